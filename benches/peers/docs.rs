//! Puts what was measured last into the documentation, between its marks.

use std::fs;

use crate::{
    parts::NAMES,
    report::{ESSENTIAL, folder, root},
};

/// Copies tables and plots from `target/bench` into `docs/performance.md`, its folder and `README.md`. A part that was not
/// measured stays as it is.
pub(crate) fn write() {
    let (docs, measured) = (root().join("docs"), folder());
    let page = docs.join("performance.md");
    let mut text = fs::read_to_string(&page).unwrap();
    let mut essential = format!(
        "| | {} |\n|{}\n",
        ESSENTIAL.join(" | "),
        " --- |".repeat(ESSENTIAL.len() + 1)
    );
    for name in NAMES {
        let Ok(tables) = fs::read_to_string(measured.join(format!("{name}.md"))) else {
            eprintln!("{name} was not measured, and stays as it is");
            continue;
        };
        text = between(&text, name, &tables);
        essential += &fs::read_to_string(measured.join(format!("{name}.essential"))).unwrap_or_default();
    }
    fs::write(page, text).unwrap();
    let plots = docs.join("performance");
    fs::create_dir_all(&plots).unwrap();
    for entry in fs::read_dir(measured).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "svg") {
            fs::copy(entry.path(), plots.join(entry.file_name())).unwrap();
        }
    }
    let readme = root().join("README.md");
    let text = between(&fs::read_to_string(&readme).unwrap(), "essential", &essential);
    fs::write(readme, text).unwrap();
}

/// The text with something else between the marks of a name.
fn between(text: &str, name: &str, new: &str) -> String {
    let (begin, end) = (format!("<!-- measured: {name} -->\n"), format!("<!-- end: {name} -->"));
    let (head, rest) = text
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{begin:?} is missing"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{end:?} is missing"));
    format!("{head}{begin}\n{}\n\n{end}{tail}", new.trim())
}
