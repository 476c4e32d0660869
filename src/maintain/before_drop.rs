//! The command that must succeed before a partition is dropped.

use std::process::Stdio;

use tokio::{io::AsyncReadExt, process::Command};

use crate::pure::{BeforeDrop, Bounds, InboxSpec, Step};

/// How much of a failed command's words is kept.
const WORDS_KEPT: usize = 500;

/// Runs the command; an error says why the partition stays.
///
/// It gets no input, and in its environment `INBOXD_INBOX`, `INBOXD_SCHEMA`, `INBOXD_TABLE`, `INBOXD_DAY`, `INBOXD_FROM` and
/// `INBOXD_TO` (both as the partition's bounds had them). It is killed when its time is up.
pub(super) async fn run(hook: &BeforeDrop, spec: &InboxSpec, step: &Step) -> Result<(), String> {
    let Some((program, arguments)) = hook.command.split_first() else {
        return Ok(());
    };
    let Some(day) = step.day else {
        return Err("the partition holds no single day".to_owned());
    };
    let [from, to] = Bounds::ends(day, spec.policy.routing);
    let mut child = Command::new(program)
        .args(arguments)
        .env("INBOXD_INBOX", &spec.name)
        .env("INBOXD_SCHEMA", step.schema.as_str())
        .env("INBOXD_TABLE", step.relation.as_str())
        .env("INBOXD_DAY", day.to_string())
        .env("INBOXD_FROM", from)
        .env("INBOXD_TO", to)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("before_drop {program:?} cannot be started: {error}"))?;
    let mut words = child.stderr.take();
    let running = async {
        let mut said = Vec::new();
        if let Some(words) = &mut words {
            // What it says is for the record; whether it can be read does not decide anything.
            let _ = words.read_to_end(&mut said).await;
        }
        (child.wait().await, said)
    };
    match tokio::time::timeout(hook.timeout, running).await {
        Err(_) => Err(format!(
            "before_drop {program:?} did not end within {:?} and was killed",
            hook.timeout
        )),
        Ok((Err(error), _)) => Err(format!("before_drop {program:?}: {error}")),
        Ok((Ok(status), _)) if status.success() => Ok(()),
        Ok((Ok(status), said)) => {
            let said = String::from_utf8_lossy(&said);
            let last: String = said
                .trim()
                .chars()
                .rev()
                .take(WORDS_KEPT)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            Err(format!("before_drop {program:?} failed ({status}): {last}"))
        }
    }
}
