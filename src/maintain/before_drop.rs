//! The command that must succeed before a partition is dropped.

use std::{
    convert::Infallible,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, Command},
};

use super::apply::asked_to;
use crate::pure::{BeforeDrop, Bounds, InboxSpec, Step};

/// How much of a failed command's words is kept, in characters; a character has at most four bytes.
const WORDS_KEPT: usize = 500;
/// How long the last words of a command that has ended may take. What it left running may hold its standard error open
/// for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs the command; an error says why the partition stays.
///
/// It gets no input, and in its environment `INBOXD_INBOX`, `INBOXD_SCHEMA`, `INBOXD_TABLE`, `INBOXD_DAY`, `INBOXD_FROM` and
/// `INBOXD_TO` (both as the partition's bounds had them). When its time is up, or `stop` says so, it is killed with all
/// that it started.
pub(super) async fn run(
    hook: &BeforeDrop,
    spec: &InboxSpec,
    step: &Step,
    stop: &(dyn Fn() -> bool + Send + Sync),
) -> Result<(), String> {
    let Some((program, arguments)) = hook.command.split_first() else {
        return Ok(());
    };
    let Some(day) = step.day else {
        return Err("the partition holds no single day".to_owned());
    };
    let [from, to] = Bounds::ends(day, spec.policy.routing);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("INBOXD_INBOX", &spec.name)
        .env("INBOXD_SCHEMA", step.schema.as_str())
        .env("INBOXD_TABLE", step.relation.as_str())
        .env("INBOXD_DAY", day.to_string())
        .env("INBOXD_FROM", from)
        .env("INBOXD_TO", to)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    succeed(command, hook.timeout, stop)
        .await
        .map_err(|why| format!("before_drop {program:?} {why}"))
}

/// Waits until the command has ended, for as long as it may take. An error says why it has not succeeded.
async fn succeed(
    mut command: Command,
    timeout: Duration,
    stop: &(dyn Fn() -> bool + Send + Sync),
) -> Result<(), String> {
    let mut child = command
        .stderr(Stdio::piped())
        // A group of its own, which can be killed whole: a script's own end would not end what it waits for.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let mut stderr = child.stderr.take();
    let mut words = Vec::new();
    let ended = tokio::select! {
        ended = wait(&mut child, stderr.as_mut(), &mut words) => ended,
        () = tokio::time::sleep(timeout) => {
            kill_group(&child);
            return Err(format!("did not end within {timeout:?} and was killed"));
        }
        () = asked_to(stop) => {
            kill_group(&child);
            return Err("was killed: the service is shutting down".to_owned());
        }
    };
    let status = ended.map_err(|error| format!("cannot be waited for: {error}"))?;
    if status.success() {
        return Ok(());
    }
    if let Some(stderr) = &mut stderr {
        let _ = tokio::time::timeout(LAST_WORDS, listen(stderr, &mut words)).await;
    }
    let words = String::from_utf8_lossy(&words);
    let words = words.trim();
    let left_out = words.chars().count().saturating_sub(WORDS_KEPT);
    let last: String = words.chars().skip(left_out).collect();
    Err(format!("failed ({status}): {last}"))
}

/// Waits for the command, and listens meanwhile: it would stand still when nobody took its words.
async fn wait(
    child: &mut Child,
    stderr: Option<&mut ChildStderr>,
    words: &mut Vec<u8>,
) -> Result<ExitStatus, std::io::Error> {
    let listening = async {
        if let Some(stderr) = stderr {
            listen(stderr, words).await;
        }
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        ended = child.wait() => ended,
        never = listening => match never {},
    }
}

/// Keeps the last of what is said until its end. It is for the record; whether it can be read does not decide anything.
async fn listen(stderr: &mut ChildStderr, words: &mut Vec<u8>) {
    let mut more = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut more).await {
        words.extend(more.iter().take(count));
        let too_many = words.len().saturating_sub(4 * WORDS_KEPT);
        words.drain(..too_many);
    }
}

fn kill_group(child: &Child) {
    // It has not been waited for, so the number is still its own.
    if let Some(Ok(group)) = child.id().map(i32::try_from) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_command_has_ended_although_what_it_left_running_holds_its_standard_error() {
        let ended = succeed(shell("sleep 20 & exit 0"), Duration::from_secs(10), &|| false).await;
        assert_eq!(ended, Ok(()));
        let failed = succeed(
            shell("sleep 20 & echo no room >&2; exit 3"),
            Duration::from_secs(10),
            &|| false,
        );
        assert_eq!(failed.await, Err("failed (exit status: 3): no room".to_owned()));
    }

    #[tokio::test]
    async fn only_the_last_words_of_a_talkative_command_are_kept() {
        let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo and so it failed >&2; exit 3";
        let error = succeed(shell(script), Duration::from_secs(30), &|| false)
            .await
            .unwrap_err();
        assert!(error.ends_with("xand so it failed"), "{error}");
        assert!(error.len() < WORDS_KEPT + 100, "{error}");
    }

    /// A pipe's reading end: it ends when all that the command started have ended.
    fn alive() -> (std::io::PipeReader, Stdio) {
        let (reader, writer) = std::io::pipe().unwrap();
        (reader, writer.into())
    }

    #[tokio::test]
    async fn a_command_is_killed_with_all_that_it_started_when_its_time_is_up_and_at_the_shutdown() {
        type Stop = &'static (dyn Fn() -> bool + Send + Sync);
        let ways: [(Duration, Stop, &str); 2] = [
            (Duration::from_millis(300), &|| false, "did not end within 300ms"),
            (Duration::from_secs(600), &|| true, "shutting down"),
        ];
        for (timeout, stop, needle) in ways {
            let (mut alive, writer) = alive();
            // Neither it nor its child heeds a polite signal.
            let mut command = shell("trap '' TERM INT HUP; sleep 60 & wait");
            command.stdout(writer);
            let error = succeed(command, timeout, stop).await.unwrap_err();
            assert!(error.contains(needle), "{error}");
            let ended = tokio::task::spawn_blocking(move || alive.read_to_end(&mut Vec::new()));
            let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
            assert!(ended.is_ok(), "something that it started is alive");
        }
    }
}
