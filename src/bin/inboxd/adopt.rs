//! `adopt` and `release`: a table in use becomes an inbox, and an inbox works without us again.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Result;
use inboxd::{
    AdoptStep, Adoption, InboxSpec, PartitionedTable, Problem,
    maintain::{
        AdoptRequest, Adopted, AdoptionState, DEFAULT_ADOPT_ATTEMPTS, DEFAULT_ADOPT_LOCK_TIMEOUT, ReleasedInbox,
        abort_adoption, adopt as swap, look_at_adoption, prepare_adoption, release_inbox,
    },
    postgres, show_duration,
};

use crate::{
    args::{Adopt, Release},
    commands::print,
    operate::{Operating, not_agreed},
};

pub(crate) async fn adopt(operating: Operating<'_>, options: Adopt) -> Result<ExitCode> {
    let name = match &options.inbox {
        Some(name) => name.as_str(),
        None => operating.only("adopt")?,
    };
    let (database, spec) = operating.find(name)?;
    let actor = operating.actor(database)?;
    let request = request(operating, spec, actor.as_str(), options.lock_timeout, options.attempts);
    // Not under the guard of a pass: a validation may last for hours, and says so to the server itself.
    let mut connection =
        postgres::connect(database.connect_options()?, "inboxd adopt", operating.config.timeouts).await?;
    let connection = &mut connection;
    if options.check {
        let state = look_at_adoption(connection, request).await?;
        print(operating.json, &state, show)?;
        let is_refused = match &state {
            AdoptionState::ToDo(adoption) => !adoption.problems.is_empty(),
            AdoptionState::Partitioned(table) => !table.problems.is_empty(),
            AdoptionState::Done => false,
        };
        return Ok(if is_refused {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        });
    }
    let done = if options.prepare {
        prepare_adoption(connection, request).await?
    } else if options.abort {
        abort_adoption(connection, request).await?
    } else {
        swap(connection, request, options.confirm_consumers_moved).await?
    };
    print(operating.json, &done, |done| did(done, options.abort))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn release(operating: Operating<'_>, options: Release) -> Result<ExitCode> {
    let (database, spec) = operating.find(&options.inbox)?;
    let question = format!(
        "Release {}? Nothing will make or drop its days any more.",
        options.inbox
    );
    if let Some(code) = not_agreed(&options.consent, &question)? {
        return Ok(code);
    }
    let actor = operating.actor(database)?;
    let (lock, attempts) = (DEFAULT_ADOPT_LOCK_TIMEOUT, DEFAULT_ADOPT_ATTEMPTS);
    let request = request(operating, spec, actor.as_str(), lock, attempts);
    let mut connection =
        postgres::connect(database.connect_options()?, "inboxd release", operating.config.timeouts).await?;
    let released = release_inbox(&mut connection, request).await?;
    print(operating.json, &released, left)?;
    Ok(ExitCode::SUCCESS)
}

fn request<'a>(
    operating: Operating<'a>,
    spec: &'a InboxSpec,
    actor: &'a str,
    lock_timeout: std::time::Duration,
    attempts: i32,
) -> AdoptRequest<'a> {
    AdoptRequest {
        deployment: &operating.config.deployment,
        spec,
        actor,
        clock: operating.clock,
        lock_timeout,
        attempts,
        tell: &|text| eprintln!("inboxd: {text}"),
    }
}

/// What is in the way, how far it has come, and what each move would do.
fn show(state: &AdoptionState) -> String {
    let adoption = match state {
        AdoptionState::Done => return "It is an inbox already: there is nothing to adopt.".to_owned(),
        AdoptionState::Partitioned(table) => return show_partitioned(table),
        AdoptionState::ToDo(adoption) => adoption,
    };
    let mut text = format!("{}: a table in use", adoption.table);
    if let Some(rows) = adoption.rows {
        let _ = write!(text, ", some {rows} rows");
    }
    text.push('\n');
    deadline(&mut text, adoption);
    problems(&mut text, &adoption.problems);
    steps(&mut text, "inboxd adopt --prepare", &adoption.prepare);
    steps(&mut text, "inboxd adopt", std::slice::from_ref(&adoption.swap));
    if let Some(refusal) = &adoption.swap_is_refused {
        let _ = writeln!(text, "  refused now: {}; {}", refusal.what, refusal.remedy);
    }
    if !adoption.inserters.is_empty() {
        let _ = writeln!(
            text,
            "  the right to insert directly does not come along: {}",
            adoption.inserters.join(", ")
        );
    }
    steps(&mut text, "inboxd adopt --abort", &adoption.abort);
    for note in &adoption.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The verdict on a table that needs no swap.
fn show_partitioned(found: &PartitionedTable) -> String {
    let mut text = format!("{}: partitioned already; nothing is to be swapped\n", found.table);
    if let (Some(first), Some(last)) = (found.days.first(), found.days.last()) {
        let _ = writeln!(
            text,
            "{} of its partitions are days as ours are ({first} to {last})",
            found.days.len()
        );
    }
    problems(&mut text, &found.problems);
    for note in &found.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text.push_str(if found.problems.is_empty() {
        "`inboxd init` takes it over as it is; then `inboxd run`, and the consumers move to the claim functions.\n"
    } else {
        "When that is done, look again; then `inboxd init` takes it over.\n"
    });
    text
}

fn problems(text: &mut String, problems: &[Problem]) {
    for problem in problems {
        let _ = writeln!(text, "in the way: {}\n  what to do: {}", problem.what, problem.remedy);
    }
}

fn deadline(text: &mut String, adoption: &Adoption) {
    let (Some(until), Some(left)) = (adoption.until, adoption.seconds_left()) else {
        return;
    };
    let left = chrono::TimeDelta::seconds(left);
    let _ = if left > chrono::TimeDelta::zero() {
        writeln!(
            text,
            "DEADLINE: {until} 00:00 UTC, in {}: from then on every insert fails unless the swap was done or taken back",
            show_duration(left)
        )
    } else {
        writeln!(
            text,
            "DEADLINE: {until} 00:00 UTC has passed: every insert fails; take it back with --abort"
        )
    };
}

fn steps(text: &mut String, command: &str, steps: &[AdoptStep]) {
    if steps.is_empty() {
        return;
    }
    let _ = writeln!(text, "{command}");
    for step in steps {
        let _ = writeln!(text, "  {}: {}", step.action.as_str(), step.reason);
        for lock in &step.locks {
            let _ = writeln!(text, "    lock: {} on {} ({})", lock.mode, lock.on, lock.effect);
        }
        let _ = writeln!(text, "    lasts: {}", step.estimate);
    }
}

fn did(done: &Adopted, was_taken_back: bool) -> String {
    let mut text = match done.done.as_slice() {
        [] => format!("{}: there was nothing to do\n", done.inbox),
        steps => format!("{}: done: {}\n", done.inbox, steps.join(", ")),
    };
    if let Some(millis) = done.under_lock_ms {
        let _ = writeln!(text, "the lock was held for {millis} ms");
    }
    match &done.now {
        AdoptionState::Done => text.push_str("It is an inbox now. `inboxd run` or `inboxd serve` looks after it.\n"),
        // Refused before anything is done.
        AdoptionState::Partitioned(_) => {}
        AdoptionState::ToDo(_) if was_taken_back => {
            text.push_str("The table is as it was. The claim functions are still there, and work on it.\n");
        }
        AdoptionState::ToDo(adoption) => {
            deadline(&mut text, adoption);
            text.push_str("Now move every consumer to the claim functions, then run `inboxd adopt`.\n");
        }
    }
    text
}

fn left(released: &ReleasedInbox) -> String {
    let mut text = format!(
        "{}: released; it has {} partitions\n",
        released.inbox,
        released.partitions.len()
    );
    if let Some(rest) = &released.rest {
        let _ = writeln!(text, "{rest} takes what comes after the last day");
    }
    if !released.detached.is_empty() {
        let _ = writeln!(text, "detached, and yours to drop: {}", released.detached.join(", "));
    }
    text.push_str(
        "The claim functions go on working. Take the inbox out of the configuration, and drop old days yourself.\n",
    );
    text
}
