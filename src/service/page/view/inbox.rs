//! One inbox with all that is known of it.

use chrono::{DateTime, Utc};

use super::{
    DatabaseView, Planned, Problems, database,
    overview::{next_run, policy, rows, runway_class, size},
    planned, problems,
};
use crate::{
    pure::Day,
    service::{
        health,
        page::{
            timeline::{self, Kind, Timeline},
            words::{self, Exact, When},
        },
        status::{InboxStatus, PartitionState, PartitionStatus, Status},
    },
};

/// One inbox.
#[derive(Debug)]
pub(in crate::service::page) struct InboxView {
    pub(in crate::service::page) name: String,
    pub(in crate::service::page) table: String,
    pub(in crate::service::page) policy: String,
    pub(in crate::service::page) problems: Problems,
    pub(in crate::service::page) database: DatabaseView,
    pub(in crate::service::page) next_run: Option<When>,
    pub(in crate::service::page) timeline: Timeline,
    pub(in crate::service::page) runway: Exact,
    pub(in crate::service::page) runway_class: &'static str,
    pub(in crate::service::page) size: Exact,
    pub(in crate::service::page) rows: Exact,
    pub(in crate::service::page) oldest_transaction: Option<String>,
    /// The newest first.
    pub(in crate::service::page) partitions: Vec<PartitionRow>,
    pub(in crate::service::page) planned: Planned,
}

/// One partition.
#[derive(Debug)]
pub(in crate::service::page) struct PartitionRow {
    pub(in crate::service::page) relation: String,
    pub(in crate::service::page) day: Option<Day>,
    pub(in crate::service::page) class: &'static str,
    pub(in crate::service::page) word: &'static str,
    pub(in crate::service::page) note: String,
    pub(in crate::service::page) held: Option<HeldView>,
    pub(in crate::service::page) size: Option<Exact>,
    pub(in crate::service::page) rows: Option<Exact>,
    pub(in crate::service::page) dead_rows: Option<Exact>,
    pub(in crate::service::page) xid_age: Option<Exact>,
    pub(in crate::service::page) vacuumed: Option<When>,
    /// Whether it can be put on hold.
    pub(in crate::service::page) can_hold: bool,
    /// Whether it can be made part of the inbox again.
    pub(in crate::service::page) can_restore: bool,
}

/// A hold that stands.
#[derive(Debug)]
pub(in crate::service::page) struct HeldView {
    pub(in crate::service::page) since: When,
    /// Who and why; empty where that is not known.
    pub(in crate::service::page) told: String,
}

/// Puts one inbox of a status into the words of the page; none where the status has no such inbox.
pub(in crate::service::page) fn inbox(status: &Status, name: &str) -> Option<InboxView> {
    let mut status = status.clone();
    status
        .databases
        .retain(|database| database.inboxes.iter().any(|inbox| inbox.inbox == name));
    for database in &mut status.databases {
        database.inboxes.retain(|inbox| inbox.inbox == name);
    }
    let health = health::health(&status);
    let of_database = status.databases.first()?;
    let inbox = of_database.inboxes.first()?;
    let now = of_database.now.unwrap_or_default();
    let held_open = inbox
        .oldest_transaction_seconds
        .and_then(chrono::TimeDelta::try_seconds);
    Some(InboxView {
        name: inbox.inbox.clone(),
        table: inbox.table.to_string(),
        policy: policy(inbox),
        problems: problems(&health, &status),
        database: database(of_database),
        next_run: next_run(&status),
        timeline: timeline::timeline(inbox, now),
        runway: words::runway(inbox.runway_seconds),
        runway_class: runway_class(&health, &inbox.inbox),
        size: size(inbox),
        rows: rows(inbox),
        oldest_transaction: held_open.map(words::length),
        partitions: partitions(inbox, now),
        planned: planned(&inbox.steps),
    })
}

fn partitions(inbox: &InboxStatus, now: DateTime<Utc>) -> Vec<PartitionRow> {
    let mut rows: Vec<PartitionRow> = inbox
        .partitions
        .iter()
        .map(|partition| partition_row(partition, now))
        .collect();
    // What holds no single day comes last.
    rows.sort_by_key(|row| std::cmp::Reverse(row.day));
    rows
}

fn partition_row(partition: &PartitionStatus, now: DateTime<Utc>) -> PartitionRow {
    let kind = Kind::Partition(partition.state.into());
    PartitionRow {
        relation: partition.relation.clone(),
        day: partition.day,
        class: kind.class(),
        word: kind.word(),
        note: timeline::note(partition, now),
        held: partition.held_since.map(|since| HeldView {
            since: words::when(since, now),
            told: timeline::hold(partition),
        }),
        size: partition.bytes.map(words::bytes),
        rows: partition.estimated_rows.map(|rows| words::about(rows, "rows")),
        dead_rows: partition
            .dead_rows
            .filter(|rows| *rows > 0)
            .map(|rows| words::about(rows, "dead")),
        xid_age: partition.xid_age.map(|age| words::about(age.into(), "transactions")),
        vacuumed: partition.vacuumed_at.map(|at| words::when(at, now)),
        can_hold: partition.day.is_some() && partition.held_since.is_none(),
        can_restore: partition.state == PartitionState::Detached && partition.day.is_some(),
    }
}
