//! What is noticed about an inbox and its relations as they are. Decides nothing.

use chrono::TimeDelta;

use super::{Finding, FindingCode, Planner, Severity};
use crate::pure::{Attachment, Bounds, Day, FoundInbox, FoundRelation, RelationKind, Routing, show_duration};

/// Half of what the server can bear; anti-wraparound vacuums have been due since 200 million by default.
const OLD_TRANSACTIONS: i32 = 1_000_000_000;

pub(super) fn kind_name(relation: &FoundRelation) -> &'static str {
    match relation.kind {
        RelationKind::Table => "table",
        RelationKind::PartitionedTable => "partitioned table",
        RelationKind::ForeignTable => "foreign table",
        RelationKind::Other => "relation (no table)",
    }
}

impl Planner<'_> {
    pub(super) fn examine(&mut self) {
        let found = self.found;
        for relation in &found.relations {
            match relation.attachment {
                Attachment::Attached => self.examine_child(relation),
                Attachment::PendingDetach => {}
                Attachment::Loose => self.examine_loose(relation),
            }
        }
        for replica in &found.replicas {
            // The planner's policy is the agreed one already: who has less than that disagrees.
            if (replica.retention, replica.ahead) != (self.policy.retention, self.policy.ahead) || self.was_overruled {
                let (who, retention, ahead) = (&replica.replica, replica.retention, replica.ahead.days());
                let message = format!(
                    "replica {who} is configured with retention {retention} and {ahead} days ahead; the longer and the larger rule"
                );
                let remedy =
                    "nothing to do during an upgrade; afterwards, give all replicas the same configuration".to_owned();
                self.report(FindingCode::ReplicasDisagree, Severity::Info, message, remedy);
            }
        }
        for grant in &found.lacking {
            self.report(
                FindingCode::MissingPrivilege,
                Severity::Fail,
                format!("maintenance lacks a privilege and will fail: {grant}"),
                format!("grant it: {grant}"),
            );
        }
        if found.claim_retention.is_none() {
            self.report(
                FindingCode::ClaimDrift,
                Severity::Fail,
                "the claim functions are missing".to_owned(),
                "run `inboxd init`".to_owned(),
            );
        } else if !found.has_functions {
            self.report(
                FindingCode::ClaimDrift,
                Severity::Fail,
                "one of the claim functions is missing, or a table of the digest that they ask, or does not belong to the \
                 table's owner: claims fail or will"
                    .to_owned(),
                "run `inboxd init`".to_owned(),
            );
        } else if !found.claim_drift.is_empty() {
            let what = found.claim_drift.join("; ");
            self.report(
                FindingCode::ClaimDrift,
                Severity::Warn,
                format!("the claim functions were made with another configuration: {what}"),
                "run `inboxd init`; until then the longer retention rules".to_owned(),
            );
        }
        for publication in &found.unfit_publications {
            // Without the root, a subscriber needs each day's table by its name and stops at the first that it lacks; an inbox
            // has no updates, and a forget's delete is not to be applied through the root.
            self.report(
                FindingCode::Publication,
                Severity::Fail,
                format!(
                    "publication {publication} publishes more of it than inserts, or its partitions by their own names: \
                     what is subscribed to it stops at a new day or a forget, and its slot keeps WAL"
                ),
                format!(
                    "alter publication {publication} set (publish = 'insert', publish_via_partition_root = true), then refresh \
                     the subscriptions; or let it name other tables only"
                ),
            );
        }
        if !found.plain_inserters.is_empty() && self.policy.routing == Routing::ProcessedAt {
            let roles = found.plain_inserters.join(", ");
            self.report(
                FindingCode::PlainInsert,
                Severity::Fail,
                format!("{roles} may insert into the table directly, past the claim's lock and look-back"),
                format!(
                    "revoke insert on {} from {roles}; consumers call the claim functions",
                    found.table.quoted()
                ),
            );
        }
    }

    fn examine_child(&mut self, relation: &FoundRelation) {
        if relation.bounds == Some(Bounds::Default) {
            self.report_on(
                relation,
                FindingCode::DefaultPartition,
                Severity::Fail,
                "a default partition hides missing days and prevents every concurrent detach".to_owned(),
                if self.policy.drain_default {
                    "runs drain it; if it stays, the `drain` step of the last run says what is in the way"
                } else {
                    "let runs drain it with drain_default = true; or move its rows into partitions of their days, detach and drop it"
                }
                .to_owned(),
            );
            return;
        }
        if relation.kind != RelationKind::Table {
            self.report_on(
                relation,
                FindingCode::ForeignChild,
                Severity::Warn,
                format!("a {} stands among the partitions", kind_name(relation)),
                "inboxd leaves it alone; detach it if it should not be there".to_owned(),
            );
            // It counts as holding its days: where claims are still to come, they must find a key on it.
            let span = relation.bounds.as_ref().and_then(Bounds::span);
            if span.is_some_and(|span| span.to.is_none_or(|to| to > self.now)) {
                self.examine_key(relation);
            }
            return;
        }
        let Some(day) = relation.day() else {
            let bounds = match &relation.bounds {
                Some(Bounds::Unreadable(text)) => text.clone(),
                other => other.as_ref().and_then(Bounds::span).map_or_else(String::new, |span| {
                    let end = |at: Option<chrono::DateTime<chrono::Utc>>| {
                        at.map_or_else(|| "unbounded".to_owned(), |at| at.to_rfc3339())
                    };
                    format!("{} to {}", end(span.from), end(span.to))
                }),
            };
            self.report_on(
                relation,
                FindingCode::WrongBounds,
                Severity::Warn,
                format!("its bounds ({bounds}) are not exactly one UTC day"),
                "inboxd never removes it; detach it by hand when its last row has expired".to_owned(),
            );
            self.examine_key(relation);
            return;
        };
        if !self.is_named_for(relation, day) {
            let name = self.found.table.quoted_sibling(&self.found.table.partition(day));
            self.report_on(
                relation,
                FindingCode::WrongName,
                Severity::Warn,
                format!("it holds {day}, but is not named {name}"),
                "inboxd never removes it; rename it to its day".to_owned(),
            );
        }
        match &relation.marker {
            Some(marker) if marker.inbox != self.found.inbox_id || marker.day != day => {
                self.report_on(
                    relation,
                    FindingCode::WrongMarker,
                    Severity::Warn,
                    format!(
                        "its comment says that it is the partition of {} of inbox {}",
                        marker.day, marker.inbox
                    ),
                    "inboxd never removes it; if the comment is wrong, remove it".to_owned(),
                );
            }
            _ => {}
        }
        self.examine_key(relation);
        self.examine_drift(relation, day);
    }

    fn examine_key(&mut self, relation: &FoundRelation) {
        if !relation.has_key {
            let is_mended = self.policy.routing == Routing::ProcessedAt
                && relation
                    .day()
                    .is_some_and(|day| self.is_ours(relation, day) && !self.is_expired(day));
            let remedy = if is_mended {
                "the next run makes it again; if it finds duplicates, decide which to delete"
            } else {
                "inboxd leaves it alone; look for duplicates, then make a unique index on the key concurrently"
            };
            self.report_on(
                relation,
                FindingCode::MissingKey,
                Severity::Fail,
                "it has no valid unique index on exactly the inbox's key: claims on it fail rather than double"
                    .to_owned(),
                remedy.to_owned(),
            );
        }
    }

    /// What is not mended by a step, because mending it would make claims wait or rewrite the table.
    fn examine_drift(&mut self, relation: &FoundRelation, day: Day) {
        let FoundInbox::Fit(parent) = &self.found.inbox else {
            return;
        };
        let table = self.found.table.quoted_sibling(&relation.name);
        if !self.claims_can_wait(day) {
            if relation.owner != parent.owner {
                let message = format!("its owner is {:?}, the inbox's is {:?}", relation.owner, parent.owner);
                let remedy =
                    format!("in a quiet moment, for claims wait: alter table {table} owner to …; or let it expire");
                self.report_on(relation, FindingCode::OwnerDrift, Severity::Warn, message, remedy);
            }
            if relation.replica_identity != parent.replica_identity {
                let message = "its replica identity is not the inbox's".to_owned();
                let remedy = format!(
                    "in a quiet moment, for claims wait: alter table {table} replica identity …; or let it expire"
                );
                self.report_on(
                    relation,
                    FindingCode::ReplicaIdentityDrift,
                    Severity::Warn,
                    message,
                    remedy,
                );
            }
        }
        if relation.tablespace != parent.tablespace {
            let name =
                |tablespace: &Option<String>| tablespace.clone().unwrap_or_else(|| "the database's own".to_owned());
            let message = format!(
                "its tablespace is {}, the inbox's is {}",
                name(&relation.tablespace),
                name(&parent.tablespace)
            );
            let remedy = "let it expire; moving it would rewrite it under a lock that claims wait for".to_owned();
            self.report_on(relation, FindingCode::TablespaceDrift, Severity::Info, message, remedy);
        }
        if let Some(age) = relation.xid_age.filter(|age| *age > OLD_TRANSACTIONS) {
            let message = format!(
                "its oldest unfrozen row is {age} transactions old; the server stops taking writes at some 2,140 million"
            );
            let remedy = format!("vacuum (freeze) {table}, and see why autovacuum does not");
            self.report_on(relation, FindingCode::OldTransactions, Severity::Warn, message, remedy);
        }
    }

    fn examine_loose(&mut self, relation: &FoundRelation) {
        let ours = relation
            .marker
            .as_ref()
            .is_some_and(|marker| marker.inbox == self.found.inbox_id);
        let Some(day) = relation.day().filter(|_| ours) else {
            return;
        };
        let named = self.is_named_for(relation, day);
        if self.is_archived(relation, day) {
            return;
        }
        if !named {
            let name = self.found.table.quoted_sibling(&self.found.table.partition(day));
            self.report_on(
                relation,
                FindingCode::WrongName,
                Severity::Warn,
                format!("its comment says that it is the detached partition of {day}, but it is not named {name}"),
                "inboxd never removes it; rename it to its day, or remove the comment to keep it".to_owned(),
            );
        }
        let remembered = self
            .retention()
            .horizon(self.now)
            .is_none_or(|horizon| horizon < day.end());
        // From today on, one that keeps a day from being created is reported there.
        if self.will_attach(relation) {
            return;
        }
        let keeps_from_creation = day >= self.today && named && !self.coverage.covers(day);
        if remembered && !keeps_from_creation {
            self.report_on(
                relation,
                FindingCode::NotAttached,
                Severity::Warn,
                format!("the partition of {day} is inside the retention, but detached: its duplicates are not caught"),
                "attach it again with `inboxd restore`".to_owned(),
            );
        }
    }

    /// Warns when creation has failed for six hours past a midnight, fails at half of what is kept ahead or two days,
    /// whichever is less: a run every ten minutes keeps the runway above `ahead` days but for minutes.
    pub(super) fn judge_runway(&mut self, runway: Option<TimeDelta>) {
        let Some(runway) = runway else { return };
        let full = TimeDelta::days(self.policy.ahead.days());
        let severity = if runway < (full / 2).min(TimeDelta::days(2)) {
            Severity::Fail
        } else if runway < full - TimeDelta::hours(6) {
            Severity::Warn
        } else {
            return;
        };
        let when = if runway.is_zero() {
            "claims fail now".to_owned()
        } else {
            format!("the first claim would fail in {}", show_duration(runway))
        };
        let message = format!(
            "{when} for want of a partition; {} days should be ahead",
            self.policy.ahead.days()
        );
        let remedy = "run `inboxd run` and see why its create steps fail".to_owned();
        self.findings.push(Finding {
            code: FindingCode::Runway,
            severity,
            relation: None,
            day: None,
            message,
            remedy,
        });
    }
}
