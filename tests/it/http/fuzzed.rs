//! What schemathesis makes of the description: neither a fault of ours nor an answer that is not described.

use std::path::PathBuf;
use std::process::Stdio;

use super::sample::{ID, INBOX, Sample};
use super::*;

/// Names that mean something here, of which nobody would guess one; most of the time, so that wrong ones are tried too.
fn names(sample: &Sample) -> String {
    let mut config = format!(
        "[dictionaries]\ninbox.values = ['{INBOX}']\nid.values = ['{ID}']\nday.values = {:?}\ndatabase.values = ['main']\n
         [parameters]\n",
        // One on hold, and one that can be restored.
        [sample.days.first(), sample.days.last()].map(Option::unwrap)
    );
    for (place, what) in [
        ("path.inbox", "inbox"),
        ("path.day", "day"),
        ("query.inbox", "inbox"),
        ("query.database", "database"),
        ("body.inbox", "inbox"),
        ("body.day", "day"),
        ("body.database", "database"),
    ] {
        config += &format!("'{place}' = {{ dictionary = '{what}', probability = 0.8 }}\n");
    }
    config + "'path.id' = { dictionary = 'id', probability = 0.2 }\n"
}

/// Each a defect of the service or of its description. That a bad request may be accepted is none: a header that is not
/// described is ignored, and so is a token where none are configured.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_fault_and_nothing_that_is_not_described() {
    let (api, database) = Api::ready(&[]).await;
    let sample = Sample::of(&database).await;
    let reach = std::env::var_os("INBOXD_SCHEMATHESIS_DIR")
        .map_or_else(|| "/var/tmp/inboxd-schemathesis".into(), PathBuf::from);
    let folder = Folder::new();
    // It is read from the folder in which it runs.
    std::fs::write(folder.path().join("schemathesis.toml"), names(&sample)).unwrap();
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
    let output = tokio::time::timeout(Duration::from_secs(600), running).await;
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
    // It has not only been refused.
    let acts: Vec<String> = sqlx::query_scalar("select distinct action from inboxd.audit order by 1")
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
    for act in [
        "confirm_clock",
        "forget",
        "hold",
        "pause",
        "release_hold",
        "restore",
        "resume",
        "run",
    ] {
        assert!(acts.iter().any(|done| done == act), "{act} was never done: {acts:?}");
    }
}
