//! A digest of the sealed days: what it rules out is not looked for, and nothing that is there is ruled out.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use inboxd::{
    Consumers, Day,
    maintain::{RunReport, StepOutcome},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{
    sealed::Forms,
    support::{
        claims::{Claim, batch, pid_of, wait_until_any_blocked},
        clock::ClockServer,
        inbox::{Deployment, attach_days_before, claim, codes, random_id, spec, sql},
    },
};

const TABLE: &str = "by_time";

/// An inbox with a digest, as old as its retention, so that the digest goes back as far as claims do.
struct Inbox {
    server: ClockServer,
    deployment: Deployment,
    consumer: Option<&'static str>,
}

impl Inbox {
    async fn new(consumers: Consumers, older_days: i64) -> Self {
        let server = ClockServer::start(&[]).await;
        server.set_to(first_noon());
        let mut spec = spec("public.by_time");
        spec.policy.seal_days = true;
        spec.policy.digest = true;
        spec.policy.consumers = consumers;
        let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
        deployment.init().await.unwrap();
        let (key, consumer) = match consumers {
            Consumers::One => ("message_id", None),
            Consumers::Many => ("message_id, consumer", Some("mailer")),
        };
        let mut connection = deployment.database.connect().await;
        attach_days_before(&mut connection, (TABLE, key), Day::containing(first_noon()), older_days).await;
        deployment.done().await;
        Self {
            server,
            deployment,
            consumer,
        }
    }

    async fn for_one() -> Self {
        Self::new(Consumers::One, 7).await
    }

    /// Claims of every form, which are all fresh.
    async fn claims(&self, connection: &mut PgConnection) -> Forms {
        let forms = Forms::new(self.consumer, self.server.now());
        let told = forms.outcomes(connection).await;
        assert!(told.iter().all(|told| told == "fresh"), "{told:?}");
        forms
    }

    /// Later on the n-th day, without a run.
    fn come_to(&self, nth: i64, time: TimeDelta) {
        self.server
            .set_to(first_noon() - TimeDelta::hours(12) + TimeDelta::days(nth) + time);
    }

    /// A run at three in the morning of the n-th day; what it did about the digest.
    async fn night(&self, nth: i64) -> Vec<String> {
        self.come_to(nth, TimeDelta::hours(3));
        let mut steps = self.deployment.done().await;
        steps.retain(|step| step.contains("digest"));
        steps
    }

    /// What each slot covers, as the days from the first.
    async fn covered(&self, connection: &mut PgConnection) -> Vec<String> {
        let mut all = Vec::new();
        for slot in 0..3 {
            let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!(
                "select distinct covered_from::date || ' to ' || covered_to::date from {TABLE}_digest_{slot}"
            )))
            .fetch_all(&mut *connection)
            .await
            .unwrap();
            all.extend(found);
        }
        all.sort_by_key(|covered| covered.rsplit(' ').next().map(str::to_owned));
        all
    }
}

/// 2027-06-16 is the 10028th day since 2000-01-01, of slot 2.
fn first_noon() -> DateTime<Utc> {
    "2027-06-16T12:00:00Z".parse().unwrap()
}

async fn all_are(forms: &Forms, connection: &mut PgConnection, wanted: &str, when: &str) {
    let told = forms.outcomes(connection).await;
    assert!(told.iter().all(|told| told == wanted), "{when}: {told:?}");
}

/// The relations of the inbox that the transaction has locked.
async fn locked(transaction: &mut PgConnection) -> BTreeSet<String> {
    sqlx::query_scalar(
        "select relation::regclass::text from pg_locks where pid = pg_backend_pid() and locktype = 'relation'
         and relation::regclass::text like 'by_time%'",
    )
    .fetch_all(transaction)
    .await
    .unwrap()
    .into_iter()
    .collect()
}

#[tokio::test]
async fn every_claim_of_a_week_is_a_duplicate_and_a_fresh_one_looks_into_no_older_day() {
    for consumers in [Consumers::One, Consumers::Many] {
        let inbox = Inbox::new(consumers, 7).await;
        let mut connection = inbox.deployment.database.connect().await;
        let mut days = vec![inbox.claims(&mut connection).await];
        for nth in 1..=6 {
            inbox.come_to(nth, TimeDelta::minutes(1));
            let mut other = inbox.deployment.database.connect().await;
            // Before the digest is built: yesterday is looked into, the rest is ruled out by yesterday's.
            for session in [&mut connection, &mut other] {
                days.push(inbox.claims(session).await);
                for forms in &days {
                    all_are(forms, session, "duplicate", &format!("day {nth}, before the run")).await;
                }
            }
            let built = inbox.night(nth).await;
            assert!(built[0].starts_with("build_digest"), "{built:?}");
            for session in [&mut connection, &mut other] {
                days.push(inbox.claims(session).await);
                for forms in &days {
                    all_are(forms, session, "duplicate", &format!("day {nth}, after the run")).await;
                }
            }
        }
        let mut work = connection.begin().await.unwrap();
        let message = Claim {
            consumer: inbox.consumer,
            ..Claim::of(TABLE, random_id())
        };
        assert_eq!(message.outcome(&mut work).await, "fresh");
        let relations: Vec<_> = locked(&mut work).await.into_iter().collect();
        let wanted = [
            "by_time",
            "by_time_2027_06_22",
            "by_time_digest_2",
            "by_time_digest_2_pkey",
        ];
        assert_eq!(relations, wanted);
        work.rollback().await.unwrap();
        let mut work = connection.begin().await.unwrap();
        let ids: Vec<_> = (0..50).map(|_| Some(random_id())).collect();
        let forms = Forms::new(inbox.consumer, inbox.server.now());
        let told = forms.batch(&mut work, &ids, None).await;
        assert!(told.iter().all(|told| told == "fresh"), "{told:?}");
        let relations: Vec<_> = locked(&mut work).await.into_iter().collect();
        assert_eq!(relations, wanted, "a batch");
    }
}

#[tokio::test]
async fn each_night_one_slot_is_built_and_that_of_tomorrow_is_emptied() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.claims(&mut connection).await;
    assert_eq!(inbox.night(1).await, ["build_digest by_time_digest_0"]);
    for (nth, built, cleared) in [(2, 1, 2), (3, 2, 0), (4, 0, 1)] {
        let wanted = [
            format!("build_digest by_time_digest_{built}"),
            format!("clear_digest by_time_digest_{cleared}"),
        ];
        assert_eq!(inbox.night(nth).await, wanted);
    }
    assert_eq!(
        inbox.covered(&mut connection).await,
        ["2027-06-11 to 2027-06-19", "2027-06-12 to 2027-06-20"],
    );
    assert_eq!(inbox.night(4).await, Vec::<String>::new(), "once a day");
    for nth in 5..=9 {
        inbox.night(nth).await;
    }
    // Two nights without a run: what is in the slot goes with the build.
    let last = inbox.claims(&mut connection).await;
    inbox.come_to(12, TimeDelta::minutes(1));
    all_are(
        &last,
        &mut connection,
        "duplicate",
        "while today's slot holds what is three days old",
    )
    .await;
    assert_eq!(inbox.night(12).await, ["build_digest by_time_digest_2"]);
    assert_eq!(
        inbox.covered(&mut connection).await,
        ["2027-06-16 to 2027-06-24", "2027-06-18 to 2027-06-28"],
    );
    all_are(&last, &mut connection, "duplicate", "after two nights without a run").await;
}

#[tokio::test]
async fn a_slot_that_somebody_looks_at_is_cleared_later_and_nobody_waits() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.night(1).await;
    let mut reader = inbox.deployment.database.connect().await;
    let mut reading = reader.begin().await.unwrap();
    sql(&mut reading, "select from by_time_digest_2").await;
    inbox.come_to(2, TimeDelta::hours(3));
    let mut pass = Box::pin(inbox.deployment.pass());
    let mut waits = 0;
    // Bounded: a run ends.
    let report = loop {
        tokio::select! {
            report = &mut pass => break report,
            waiting = sqlx::query_scalar::<_, i64>(
                "select count(*) from pg_locks where relation = 'by_time_digest_2'::regclass and not granted",
            ).fetch_one(&mut connection) => waits += waiting.unwrap(),
        }
    };
    assert_eq!(waits, 0, "a claim behind it would wait as well");
    let errors = errors_of_clear(&report);
    assert!(matches!(&errors[..], [error] if error.contains("lock")), "{errors:?}");
    reading.commit().await.unwrap();
    assert_eq!(inbox.night(2).await, ["clear_digest by_time_digest_2"]);
}

#[tokio::test]
async fn a_slot_whose_day_begins_while_it_is_to_be_cleared_is_left_as_it_is() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.night(1).await;
    inbox.come_to(2, TimeDelta::hours(3));
    // The day after the last that there is must be made first, and waits.
    sql(
        &mut connection,
        "begin; lock table by_time in share update exclusive mode",
    )
    .await;
    let (report, ()) = tokio::join!(inbox.deployment.pass(), async {
        wait_until_any_blocked(&inbox.deployment.database).await;
        inbox.come_to(3, -TimeDelta::seconds(30));
        sql(&mut connection, "commit").await;
    });
    let errors = errors_of_clear(&report);
    assert!(
        matches!(&errors[..], [error] if error.contains("claims ask it")),
        "{errors:?}"
    );
    let covered = inbox.covered(&mut connection).await;
    assert!(covered.iter().any(|covered| covered.ends_with("06-16")), "{covered:?}");
}

fn errors_of_clear(report: &RunReport) -> Vec<String> {
    report
        .steps()
        .filter(|step| step.step.action.as_str() == "clear_digest")
        .map(|step| match &step.outcome {
            StepOutcome::Failed { error, .. } => error.clone(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_fingerprint_that_another_id_has_as_well_costs_a_look_and_nothing_else() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.claims(&mut connection).await;
    inbox.night(1).await;
    let forms = Forms::new(None, inbox.server.now());
    let changed = sqlx::query(
        "update by_time_digest_0 as slot set fingerprints = fingerprints || decode(
           (select string_agg(encode(int4send((uuid_hash_extended(id, slot.lock_key) << 32 >> 32)::int), 'hex'), '') from unnest($1) as id), 'hex')",
    )
    .bind(&forms.ids)
    .execute(&mut connection)
    .await
    .unwrap();
    assert!(changed.rows_affected() > 0);
    all_are(&forms, &mut connection, "fresh", "its fingerprint is there").await;
    all_are(&forms, &mut connection, "duplicate", "again").await;
}

#[tokio::test]
async fn a_handler_that_is_open_over_midnight_keeps_the_digest_from_being_built_and_health_says_so() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.claims(&mut connection).await;
    inbox.night(1).await;
    let mut handler = inbox.deployment.database.connect().await;
    let open = Claim::of(TABLE, random_id());
    let mut work = handler.begin().await.unwrap();
    assert_eq!(open.outcome(&mut work).await, "fresh");
    let pid = pid_of(&mut work).await;

    inbox.come_to(2, TimeDelta::hours(3));
    let report = inbox.deployment.pass().await;
    let steps: Vec<_> = report
        .steps()
        .filter(|step| step.step.action.as_str() != "create")
        .collect();
    assert!(
        matches!(&steps[0].outcome, StepOutcome::Failed { error, .. } if error.contains(&pid.to_string())),
        "{steps:?}"
    );
    assert!(
        matches!(&steps[1].outcome, StepOutcome::Skipped { why } if why.contains("could not be sealed")),
        "{steps:?}"
    );
    assert_eq!(inbox.covered(&mut connection).await, ["2027-06-09 to 2027-06-17"]);
    let twin = open.behind_its_twin(&inbox.deployment.database).await;
    work.commit().await.unwrap();
    assert_eq!(twin.end().await.unwrap().0, "duplicate");
    let built = inbox.night(2).await;
    assert_eq!(built, ["build_digest by_time_digest_1"]);
    assert_eq!(open.outcome(&mut connection).await, "duplicate");
}

#[tokio::test]
async fn a_day_that_was_away_when_it_was_built_is_looked_into_when_it_is_back() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let first = inbox.claims(&mut connection).await;
    inbox.night(1).await;
    let second = inbox.claims(&mut connection).await;
    inbox.night(2).await;
    let third = inbox.claims(&mut connection).await;
    // The run would attach it again at once; what is on another's name it leaves alone.
    sql(
        &mut connection,
        "alter table by_time detach partition by_time_2027_06_17; alter table by_time_2027_06_17 rename to away",
    )
    .await;
    inbox.night(3).await;
    assert_eq!(
        inbox.covered(&mut connection).await.last().unwrap(),
        "2027-06-18 to 2027-06-19"
    );
    let fresh = inbox.claims(&mut connection).await;
    sql(
        &mut connection,
        "alter table away rename to by_time_2027_06_17; alter table by_time attach partition by_time_2027_06_17
         for values from ('2027-06-17 00:00+00') to ('2027-06-18 00:00+00')",
    )
    .await;
    for (forms, when) in [
        (&first, "before"),
        (&second, "the day itself"),
        (&third, "after"),
        (&fresh, "today"),
    ] {
        all_are(forms, &mut connection, "duplicate", when).await;
    }
    inbox.night(4).await;
    assert_eq!(
        inbox.covered(&mut connection).await.last().unwrap(),
        "2027-06-12 to 2027-06-20"
    );
    for forms in [&first, &second, &third, &fresh] {
        all_are(forms, &mut connection, "duplicate", "built anew").await;
    }
}

/// Were it covered all the same, the claim of the open handler would be seen by nobody.
#[tokio::test]
async fn a_day_that_is_not_sealed_is_not_covered() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.night(1).await;
    let mut handler = inbox.deployment.database.connect().await;
    let open = Claim::of(TABLE, random_id());
    let mut work = handler.begin().await.unwrap();
    assert_eq!(open.outcome(&mut work).await, "fresh");
    // A subscription keeps days from being sealed, so nothing waits for the handler.
    sql(
        &mut connection,
        "insert into pg_subscription_rel (srsubid, srrelid, srsubstate) values (1, 'by_time'::regclass, 'r')",
    )
    .await;
    assert_eq!(inbox.night(2).await, ["clear_digest by_time_digest_2"]);
    assert_eq!(codes(&inbox.deployment.plan().await[0].plan), ["no_digest"]);
    work.commit().await.unwrap();
    assert_eq!(open.outcome(&mut connection).await, "duplicate");
    assert!(!open.fresh(&mut connection).await.unwrap());
}

#[tokio::test]
async fn a_seal_that_goes_while_the_build_waits_for_its_lock_ends_the_build() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.night(1).await;
    inbox.come_to(1, TimeDelta::hours(4));
    sql(&mut connection, "truncate by_time_digest_0").await;
    sql(
        &mut connection,
        "begin; drop trigger inboxd_sealed on by_time_2027_06_14",
    )
    .await;
    let (report, ()) = tokio::join!(inbox.deployment.pass(), async {
        wait_until_any_blocked(&inbox.deployment.database).await;
        sql(&mut connection, "commit").await;
    });
    let failed: Vec<_> = report
        .steps()
        .filter(|step| matches!(&step.outcome, StepOutcome::Failed { error, .. } if error.contains("not a sealed partition")))
        .map(|step| step.step.action.as_str())
        .collect();
    assert_eq!(failed, ["build_digest"]);
    assert!(
        inbox
            .covered(&mut connection)
            .await
            .iter()
            .all(|covered| covered.ends_with("06-16"))
    );
    assert_eq!(
        inbox.night(1).await,
        ["build_digest by_time_digest_0"],
        "it is sealed again"
    );
}

/// Nobody can tell whether such a day was ever there, so nothing is covered before the first day that is.
#[tokio::test]
async fn a_day_that_somebody_brings_from_before_the_digest_is_looked_into_at_once() {
    let inbox = Inbox::new(Consumers::One, 3).await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.claims(&mut connection).await;
    assert_eq!(inbox.covered(&mut connection).await, ["2027-06-13 to 2027-06-16"]);
    attach_days_before(&mut connection, (TABLE, "message_id"), "2027-06-12".parse().unwrap(), 1).await;
    let ids: Vec<_> = (0..4).map(|_| random_id()).collect();
    sqlx::query("insert into by_time_2027_06_11 select id, 'orders', '2027-06-11 12:00+00' from unnest($1) as id")
        .bind(&ids)
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(Claim::of(TABLE, ids[0]).outcome(&mut connection).await, "duplicate");
    assert_eq!(
        Claim::of(TABLE, ids[1])
            .waiting("1 second")
            .outcome(&mut connection)
            .await,
        "duplicate"
    );
    assert!(!Claim::of(TABLE, ids[2]).fresh(&mut connection).await.unwrap());
    let told = batch(&mut connection, TABLE, &[Some(ids[3])], None).await.unwrap();
    assert_eq!(told, ["duplicate"]);
}

#[tokio::test]
async fn a_slot_that_somebody_drops_is_told_and_made_again_by_init() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let first = inbox.claims(&mut connection).await;
    sql(&mut connection, "drop table by_time_digest_1").await;
    let plan = inbox.deployment.plan().await.remove(0).plan;
    assert_eq!(codes(&plan), ["claim_drift"]);
    assert_eq!(plan.severity(), inboxd::Severity::Fail);
    inbox.deployment.init().await.unwrap();
    assert!(codes(&inbox.deployment.plan().await[0].plan).is_empty());
    assert_eq!(inbox.night(1).await[..1], ["build_digest by_time_digest_0"]);
    all_are(&first, &mut connection, "duplicate", "with all slots").await;
}

#[tokio::test]
async fn a_build_that_fails_leaves_the_digest_as_it_was() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let first = inbox.claims(&mut connection).await;
    inbox.night(1).await;
    let second = inbox.claims(&mut connection).await;
    sql(
        &mut connection,
        "alter table by_time_digest_1 add check (hash_from < 0)",
    )
    .await;
    inbox.come_to(2, TimeDelta::hours(3));
    let report = inbox.deployment.pass().await;
    let failed: Vec<_> = report
        .steps()
        .filter(|step| matches!(step.outcome, StepOutcome::Failed { .. }))
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].step.action.as_str(), "build_digest");
    assert_eq!(inbox.covered(&mut connection).await, ["2027-06-09 to 2027-06-17"]);
    for forms in [&first, &second] {
        all_are(forms, &mut connection, "duplicate", "beside the failure").await;
    }
    sql(
        &mut connection,
        "alter table by_time_digest_1 drop constraint by_time_digest_1_hash_from_check",
    )
    .await;
    assert_eq!(inbox.night(2).await, ["build_digest by_time_digest_1"]);
    all_are(&second, &mut connection, "duplicate", "after it").await;
}

#[tokio::test]
async fn a_digest_of_other_hashes_is_not_believed() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let first = inbox.claims(&mut connection).await;
    inbox.night(1).await;
    sql(
        &mut connection,
        "update by_time_digest_0 set lock_key = lock_key + 1, fingerprints = ''",
    )
    .await;
    all_are(&first, &mut connection, "duplicate", "of another lock key").await;
    assert_eq!(inbox.night(1).await, ["build_digest by_time_digest_0"]);
    all_are(&first, &mut connection, "duplicate", "built anew").await;
}

/// Those whose hash is below zero, which have the first of the two rows that a digest of a few ids is made of.
async fn lower_half(connection: &mut PgConnection, ids: &[uuid::Uuid]) -> Vec<uuid::Uuid> {
    sqlx::query_scalar(
        "select id from unnest($1) as id where uuid_hash_extended(id, (select min(lock_key) from by_time_digest_0)) < 0",
    )
    .bind(ids)
    .fetch_all(connection)
    .await
    .unwrap()
}

/// As if rows of two builds could be seen at once: half of all ids are led to the row of the other half, which knows none.
#[tokio::test]
async fn a_row_is_not_believed_of_a_hash_that_is_not_its_own_and_none_rules_nothing_out() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let ids: Vec<uuid::Uuid> = (0..40).map(|_| random_id()).collect();
    for id in &ids {
        assert_eq!(Claim::of(TABLE, *id).outcome(&mut connection).await, "fresh");
    }
    inbox.night(1).await;
    let low = lower_half(&mut connection, &ids).await;
    for damage in [
        "update by_time_digest_0 set mask = 0 where hash_from < 0;
         update by_time_digest_0 set fingerprints = '' where hash_from = 0",
        "update by_time_digest_0 set mask = '-9223372036854775808' where hash_from < 0;
         update by_time_digest_0 set hash_from = 1 where hash_from < 0",
    ] {
        sql(&mut connection, damage).await;
        for id in &low[..4] {
            assert_eq!(Claim::of(TABLE, *id).outcome(&mut connection).await, "duplicate");
            assert!(!Claim::of(TABLE, *id).fresh(&mut connection).await.unwrap());
            let told = batch(&mut connection, TABLE, &[Some(*id)], None).await.unwrap();
            assert_eq!(told, ["duplicate"], "{damage}");
        }
    }
}

/// The session remembers where to look in the digest, and that the day's partition has its key.
#[tokio::test]
async fn a_session_that_has_claimed_looks_once_for_a_fresh_id_and_what_it_remembers_wrongly_costs_no_more_than_a_look()
{
    const CALLS_OF_INNER: &str = "select coalesce(sum(calls), 0)::bigint from pg_stat_xact_user_functions where funcname = 'by_time_claim_inner'";
    async fn calls(connection: &mut PgConnection) -> i64 {
        sqlx::query_scalar(CALLS_OF_INNER).fetch_one(connection).await.unwrap()
    }
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let ids: Vec<uuid::Uuid> = (0..40).map(|_| random_id()).collect();
    for id in &ids {
        assert!(claim(&mut connection, TABLE, *id).await.unwrap());
    }
    inbox.night(1).await;
    // In one transaction: what is counted in it may be what was counted before and is not yet passed on.
    let asks_again = async |connection: &mut PgConnection| {
        sql(connection, "begin").await;
        let before = calls(connection).await;
        assert!(claim(connection, TABLE, random_id()).await.unwrap());
        let asked = calls(connection).await - before;
        sql(connection, "commit").await;
        asked == 1
    };
    sql(&mut connection, "reset all; set track_functions = 'all'").await;
    let seen = [
        asks_again(&mut connection).await,
        asks_again(&mut connection).await,
        asks_again(&mut connection).await,
    ];
    assert_eq!(seen, [true, false, false], "the first finds out");

    // As if the row of half of all ids were that of the others.
    sql(
        &mut connection,
        "update by_time_digest_0 set fingerprints = '' where hash_from = 0",
    )
    .await;
    let setting: String = sqlx::query_scalar(
        "select substring(prosrc from 'inboxd.mask_[0-9]+') from pg_proc where proname = 'by_time_claim'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let low = lower_half(&mut connection, &ids).await;
    for mask in ["0", "1", "-1", "-9223372036854775808", "''"] {
        for id in &low {
            sql(&mut connection, format!("set {setting} = {mask}")).await;
            assert!(!claim(&mut connection, TABLE, *id).await.unwrap(), "{mask}: {id}");
        }
        assert!(claim(&mut connection, TABLE, random_id()).await.unwrap(), "{mask}");
    }
    sql(&mut connection, "reset all; set track_functions = 'all'").await;
    assert!(asks_again(&mut connection).await, "nothing is remembered");
    assert!(!asks_again(&mut connection).await);
}

/// The other way round: were a day covered that can still be written into, this very check would show it.
#[tokio::test]
async fn a_digest_that_covered_a_day_too_early_would_let_a_message_be_processed_twice() {
    let inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    inbox.night(1).await;
    let message = Claim::of(TABLE, random_id());
    assert_eq!(message.outcome(&mut connection).await, "fresh");
    inbox.come_to(2, TimeDelta::minutes(1));
    sql(
        &mut connection,
        "insert into by_time_digest_1
         select hash_from, mask, lock_key, covered_from, covered_to + interval '24 hours', fingerprints from by_time_digest_0",
    )
    .await;
    assert_eq!(
        message.outcome(&mut connection).await,
        "fresh",
        "the digest is asked at all"
    );
}

#[tokio::test]
async fn it_can_be_switched_on_and_off_in_place() {
    let mut inbox = Inbox::for_one().await;
    let mut connection = inbox.deployment.database.connect().await;
    let first = inbox.claims(&mut connection).await;
    inbox.night(1).await;
    inbox.deployment.specs[0].policy.digest = false;
    assert_eq!(codes(&inbox.deployment.plan().await[0].plan), ["claim_drift"]);
    inbox.deployment.init().await.unwrap();
    all_are(&first, &mut connection, "duplicate", "without").await;
    let slots: i64 = sqlx::query_scalar("select count(*) from pg_class where relname like 'by_time_digest%'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(slots, 0);
    assert!(inbox.deployment.done().await.is_empty());
    inbox.deployment.specs[0].policy.digest = true;
    inbox.deployment.init().await.unwrap();
    all_are(&first, &mut connection, "duplicate", "not built yet").await;
    assert_eq!(inbox.night(1).await, ["build_digest by_time_digest_0"]);
    all_are(&first, &mut connection, "duplicate", "with").await;
    inbox.claims(&mut connection).await;
}

#[tokio::test]
async fn a_table_of_somebody_else_s_is_not_taken_for_a_slot() {
    let server = ClockServer::start(&[]).await;
    let mut spec = spec("public.by_time");
    (spec.policy.seal_days, spec.policy.digest) = (true, true);
    let deployment = Deployment::new(server.database().await, server.clock(), vec![spec]);
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "create table by_time_digest_1 (note text)").await;
    let error = deployment.init().await.unwrap_err();
    assert!(error.to_string().contains("by_time_digest_1"), "{error}");
}
