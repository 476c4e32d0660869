//! Configuration files: each is taken or refused with a sentence, and a URL's password is in neither.
#![no_main]

use std::{collections::HashMap, io::Write};

use inboxd::service::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("room");
    let url = "postgres://inboxd:s3cr3t-f0r-n0b0dy@localhost/app";
    let environment = HashMap::from([("DATABASE_URL".to_owned(), url.to_owned())]);
    let said = match Config::load(Some(file.path()), environment) {
        Ok(config) => format!("{config:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!said.is_empty());
    assert!(text.contains("s3cr3t-f0r-n0b0dy") || !said.contains("s3cr3t-f0r-n0b0dy"), "{said}");
});
