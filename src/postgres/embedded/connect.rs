//! The ways to reach a cluster: options for sqlx, a URL for any client, a command line for people.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Cluster;

impl Cluster {
    /// Options for a connection to `database` as superuser, over the unix socket.
    ///
    /// Host, port, user, database, password and TLS mode are all set, so `PGHOST` and its kin and a password file
    /// change nothing. Only `PGOPTIONS`, which sqlx adds to every connection, cannot be kept out.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("localhost")
            .socket(self.socket_dir())
            .port(self.port())
            .username("postgres")
            .password("")
            .database(database)
            .ssl_mode(PgSslMode::Disable)
            .application_name("inboxd")
    }

    /// A URL for a connection to `database` as superuser, over the unix socket.
    ///
    /// libpq (hence psql) and sqlx take it alike. The user stands among the parameters, because a URL with a user
    /// but no host is refused by sqlx, and a socket folder in place of the host by Go.
    pub fn url(&self, database: &str) -> String {
        let database = percent_encoded(database.as_bytes());
        let socket_dir = percent_encoded(self.socket_dir().as_os_str().as_bytes());
        let port = self.port();
        format!("postgres:///{database}?host={socket_dir}&port={port}&user=postgres&sslmode=disable")
    }

    /// A shell command that opens `database` in psql.
    pub fn psql_command(&self, database: &str) -> String {
        let program = self.bin_dir().join("psql");
        // Not every package of the server brings psql along.
        let program = if program.is_file() {
            program.to_string_lossy().into_owned()
        } else {
            "psql".to_owned()
        };
        let socket_dir = self.socket_dir().to_string_lossy();
        let (program, socket_dir, database) = (quoted(&program), quoted(&socket_dir), quoted(database));
        format!(
            "{program} -h {socket_dir} -p {port} -U postgres -d {database}",
            port = self.port()
        )
    }
}

/// Leaves only what no URL parser can misread.
fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// One word for a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_bare_and_others_are_one_word_to_a_shell() {
        assert_eq!(quoted("/run/inboxd"), "/run/inboxd");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn a_folder_is_encoded_byte_by_byte() {
        assert_eq!(percent_encoded("/a b/ü&%".as_bytes()), "%2Fa%20b%2F%C3%BC%26%25");
    }
}
