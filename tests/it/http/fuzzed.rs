//! What schemathesis makes of the description: neither a fault of ours nor an answer that is not described.

use std::path::PathBuf;
use std::process::Stdio;

use super::*;

/// Each a defect of the service or of its description. That a bad request may be accepted is none: a header that is not
/// described is ignored, and so is a token where none are configured.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_fault_and_nothing_that_is_not_described() {
    let (api, _database) = Api::ready(&[]).await;
    let reach = std::env::var_os("INBOXD_SCHEMATHESIS_DIR")
        .map_or_else(|| "/var/tmp/inboxd-schemathesis".into(), PathBuf::from);
    let folder = Folder::new();
    let document = format!("{}/openapi.json", api.base);
    let running = tokio::process::Command::new("python3")
        .args(["-m", "schemathesis.cli", "run", &document, "--checks", CHECKS])
        .args(["--seed", "1", "--max-examples", "20", "--generation-deterministic"])
        .args(["--request-timeout", "20", "--no-color"])
        .env("PYTHONPATH", reach)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUTF8", "1")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(300), running).await;
    let output = output.expect("it has not ended").expect("python3 is needed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("No module named schemathesis"),
        "install schemathesis with: tests/schemathesis"
    );
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{said}");
}
