//! What goes wrong, and how it ends.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use inboxd::{
    Day, InboxSpec,
    maintain::operate::{self, Actor},
    postgres,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{
    course::{Fault, INBOXES, Privilege},
    defaults::default_stands,
    run::Seed,
    settle::operator,
    support::{inbox::sql, process, proxy::Cut},
    world::{AHEAD, KEEPER, RETENTION_DAYS},
};

/// The longest that a process may take to end.
const END: Duration = Duration::from_secs(5);
/// The default of `max_clock_skew`.
const MAX_SKEW: TimeDelta = TimeDelta::minutes(5);

/// A fault that outlasts the moment in which it began.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The day at whose end it ends.
    pub(crate) until: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// Services are down; they are started again.
    Down,
    /// A session that is in somebody's way until it ends.
    Session(#[expect(dead_code, reason = "held, and dropped")] PgConnection),
    Revoked(Privilege),
    Foreign {
        name: String,
        oid: i64,
        day: Day,
    },
    Held {
        inbox: &'static str,
        day: Day,
    },
    Paused,
    /// The hosts' clock is out of step.
    Skewed {
        minutes: i64,
        /// Whether a person has said since that it is the database's that is right.
        confirmed: bool,
    },
    /// A default partition that no run drains.
    Default {
        inbox: &'static str,
    },
}

impl Standing {
    /// Whether a run can still make today and tomorrow.
    pub(crate) fn lets_create(&self, today: Day) -> bool {
        match &self.kind {
            Kind::Down | Kind::Revoked(_) | Kind::Paused => false,
            Kind::Foreign { day, .. } => *day > today.next(),
            Kind::Session(_) | Kind::Held { .. } | Kind::Skewed { .. } | Kind::Default { .. } => true,
        }
    }

    /// Whether nothing may be removed while it stands. A pause ends the schedule only: who asks for a run gets one.
    pub(crate) fn bars_removal(&self) -> bool {
        match &self.kind {
            Kind::Skewed { minutes, confirmed } => TimeDelta::minutes(minutes.abs()) > MAX_SKEW && !confirmed,
            _ => false,
        }
    }
}

impl Seed {
    /// Begins a fault on a day. One that finds nothing to work on does nothing.
    pub(crate) async fn begin(&mut self, today: u32, fault: &Fault) {
        match *fault {
            Fault::KillService { replica } => {
                if let Some(service) = &mut self.world.services[replica] {
                    service.kill();
                }
                self.stands(today, Kind::Down);
            }
            Fault::StopService { replica, database_away } => self.stop(today, replica, database_away).await,
            Fault::Outage { days } => {
                for service in self.world.services.iter_mut().flatten() {
                    service.kill();
                }
                self.stands(today + days, Kind::Down);
            }
            Fault::KillServer => {
                process::kill(self.world.clock.server.cluster.pid());
                self.world.clock.server.cluster.restart().await.unwrap();
            }
            Fault::RestartServer => self.world.clock.server.cluster.restart().await.unwrap(),
            Fault::CutServices { after } => {
                self.world.poke();
                tokio::time::sleep(after).await;
                self.world.to_services.cut_all();
            }
            Fault::CutServicesAt { word, before } => {
                self.world
                    .to_services
                    .cut(word, if before { Cut::Before } else { Cut::After });
            }
            Fault::CutConsumers => self.world.to_consumers.cut_all(),
            Fault::CutConsumersAt { before } => {
                self.world
                    .to_consumers
                    .cut("commit", if before { Cut::Before } else { Cut::After });
            }
            Fault::Skew { minutes, days } => {
                // Of several the last is the one that is seen.
                self.standing.retain(|one| !matches!(one.kind, Kind::Skewed { .. }));
                self.world.clock.set_skew(TimeDelta::minutes(minutes));
                let confirmed = false;
                self.stands(today + days, Kind::Skewed { minutes, confirmed });
            }
            Fault::DefaultPartition { inbox, offset, days } => self.make_default(today, inbox, offset, days).await,
            Fault::StepBack { minutes } => self.world.clock.step(-TimeDelta::minutes(minutes)),
            // It would take the claims along; see `after_claims`.
            Fault::Leap { .. } => {}
            Fault::Revoke { privilege, days } => {
                let revoke = match privilege {
                    Privilege::CreateTables => format!("revoke create on schema public from {KEEPER}"),
                    Privilege::ControlSchema => format!("revoke all on all tables in schema inboxd from {KEEPER}"),
                    Privilege::Login => format!("alter role {KEEPER} nologin"),
                };
                sql(&mut self.world.admin().await, revoke).await;
                self.world.poke();
                self.stands(today + days, Kind::Revoked(privilege));
            }
            Fault::LongTransaction { .. }
            | Fault::LockInbox { .. }
            | Fault::LockDay { .. }
            | Fault::LockDetached { .. }
            | Fault::FillLocks { .. } => self.lock(today, fault).await,
            Fault::ForeignTable { .. } | Fault::DropByHand { .. } | Fault::DetachByHand { .. } => {
                self.by_hand(today, fault).await;
            }
            Fault::Hold { .. }
            | Fault::Restore { .. }
            | Fault::Pause { .. }
            | Fault::ConfirmClock
            | Fault::ConfirmDrops { .. } => {
                self.operate(today, fault).await;
            }
        }
    }

    pub(crate) fn stands(&mut self, until: u32, kind: Kind) {
        self.standing.push(Standing { until, kind });
    }

    /// Ends one, on a day.
    pub(crate) async fn end(&mut self, today: u32, standing: Standing) {
        match standing.kind {
            // While another outage stands they stay down.
            Kind::Down if self.standing.iter().any(|other| matches!(other.kind, Kind::Down)) => {}
            Kind::Down => self.world.start_services(),
            Kind::Session(_) => {}
            Kind::Revoked(privilege) => {
                let stands_still = |other: &Standing| matches!(other.kind, Kind::Revoked(one) if one == privilege);
                if !self.standing.iter().any(stands_still) {
                    let grant = match privilege {
                        Privilege::CreateTables => format!("grant create on schema public to {KEEPER}"),
                        Privilege::ControlSchema => format!("grant all on all tables in schema inboxd to {KEEPER}"),
                        Privilege::Login => format!("alter role {KEEPER} login"),
                    };
                    sql(&mut self.world.admin().await, grant).await;
                }
            }
            Kind::Foreign { name, oid, .. } => {
                self.leaves.forget_foreign(oid);
                sql(&mut self.world.admin().await, format!("drop table {name}")).await;
            }
            Kind::Held { inbox, day } => self.release(inbox, day).await,
            Kind::Skewed { .. } => self.world.clock.set_skew(TimeDelta::zero()),
            Kind::Default { inbox } => self.drain_by_hand(today, inbox).await,
            Kind::Paused => {
                let (deployment, actor) = (&self.world.deployment, Actor::new("operator").unwrap());
                let mut connection = deployment.maintenance().await;
                operate::resume(&mut connection, operator(deployment, &actor))
                    .await
                    .unwrap();
            }
        }
    }

    /// SIGTERM in the middle of what it does: it must end in time, and well.
    async fn stop(&mut self, today: u32, replica: usize, database_away: bool) {
        self.world.poke();
        if database_away {
            self.world.to_services.blackhole().await;
            self.world.to_services.cut_all();
        }
        if let Some(service) = &mut self.world.services[replica]
            && service.lives()
            && service
                .log()
                .iter()
                .any(|line| line["fields"]["message"] == "HTTP is served")
        {
            service.terminate();
            let begin = Instant::now();
            while service.lives() {
                assert!(
                    begin.elapsed() < END,
                    "a service does not end (database away: {database_away}): {:#?}",
                    service.log().iter().rev().take(8).collect::<Vec<_>>()
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let status = service.ended_within(END);
            assert_eq!(status.code(), Some(0), "{:#?}", service.log());
        }
        self.world.to_services.allow().await;
        self.world.to_services.cut_all();
        self.stands(today, Kind::Down);
    }

    /// Sessions that are in everybody's way.
    async fn lock(&mut self, today: u32, fault: &Fault) {
        let mut session = self.world.admin().await;
        sql(&mut session, "set lock_timeout = '2s'").await;
        match *fault {
            Fault::LongTransaction { inbox, days } => {
                let begin = format!("begin isolation level repeatable read; select count(*) from {inbox}");
                if tried(&mut session, begin).await {
                    self.stands(today + days, Kind::Session(session));
                }
            }
            Fault::LockInbox { inbox, hold } => {
                tried(
                    &mut session,
                    format!("begin; lock table {inbox} in access exclusive mode"),
                )
                .await;
                self.world.poke();
                tokio::time::sleep(hold).await;
            }
            Fault::LockDay { inbox, offset, hold } => {
                let name = self.partition(inbox, offset);
                tried(
                    &mut session,
                    format!("begin; lock table {name} in access exclusive mode"),
                )
                .await;
                self.world.poke();
                tokio::time::sleep(hold).await;
            }
            Fault::LockDetached { inbox, days } => {
                if let Some((_, name)) = detached(&mut session, inbox).await
                    && tried(
                        &mut session,
                        format!("begin; lock table {name} in access exclusive mode"),
                    )
                    .await
                {
                    self.stands(today + days, Kind::Session(session));
                }
            }
            Fault::FillLocks { hold } => {
                let mut first = 0;
                for step in [1_000, 100, 10] {
                    // Locks of the session stay when the statement fails, but it is not told how many they are.
                    while tried(
                        &mut session,
                        format!("select pg_advisory_lock(n) from generate_series({first}, {first} + {step} - 1) as n"),
                    )
                    .await
                    {
                        first += step;
                    }
                    first += step;
                }
                self.world.poke();
                tokio::time::sleep(hold).await;
                sql(&mut session, "select pg_advisory_unlock_all()").await;
            }
            _ => unreachable!("not a lock: {fault:?}"),
        }
    }

    /// A day's partition by name; 0 is today.
    fn partition(&self, inbox: &str, offset: i64) -> String {
        format!("{inbox}_{}", self.world.today().plus(offset).underscored())
    }

    /// What somebody does who does not know better.
    async fn by_hand(&mut self, today: u32, fault: &Fault) {
        let mut admin = self.world.admin().await;
        sql(&mut admin, "set lock_timeout = '2s'").await;
        match *fault {
            Fault::ForeignTable { inbox, offset, days } => {
                let (name, day) = (self.partition(inbox, offset), self.world.today().plus(offset));
                if tried(&mut admin, format!("create table {name} (whatever int)")).await {
                    let oid = oid_of(&mut admin, &name).await.unwrap();
                    self.leaves.foreign(oid, &name);
                    self.stands(today + days, Kind::Foreign { name, oid, day });
                }
            }
            Fault::DropByHand { inbox, offset } => {
                let (name, day) = (self.partition(inbox, offset), self.world.today().plus(offset));
                let Some(oid) = ours(&mut admin, &name).await else {
                    return;
                };
                self.leaves.by_hand(oid);
                self.memory.goes_away(&mut admin, inbox, day).await;
                if tried(&mut admin, format!("drop table {name}")).await {
                    self.memory.is_lost(&mut admin, inbox, day).await;
                } else {
                    self.memory.is_back(&mut admin, inbox, day).await;
                }
            }
            Fault::DetachByHand { inbox, offset } => {
                let (name, day) = (self.partition(inbox, offset), self.world.today().plus(offset));
                let Some(oid) = ours(&mut admin, &name).await else {
                    return;
                };
                // It could not be attached beside what the default partition would take meanwhile.
                if default_stands(&mut admin, inbox).await {
                    return;
                }
                self.leaves.by_hand(oid);
                self.memory.goes_away(&mut admin, inbox, day).await;
                if !tried(&mut admin, format!("alter table {inbox} detach partition {name}")).await {
                    self.memory.is_back(&mut admin, inbox, day).await;
                }
            }
            _ => unreachable!("not by hand: {fault:?}"),
        }
    }

    /// What the operator does. The database may be away, or another run going: then it is not done.
    async fn operate(&mut self, today: u32, fault: &Fault) {
        let (deployment, actor) = (self.world.deployment.clone(), Actor::new("operator").unwrap());
        let by = operator(&deployment, &actor);
        let spec = |inbox: &str| -> &InboxSpec { deployment.specs.iter().find(|spec| spec.name == inbox).unwrap() };
        let connecting = postgres::connect(&deployment.options, "inboxd operator", deployment.timeouts);
        let Ok(mut connection) = connecting.await else { return };
        match *fault {
            Fault::Hold { inbox, offset, days } => {
                let day = self.world.today().plus(offset);
                if operate::hold(&mut connection, by, spec(inbox), day, "asked for")
                    .await
                    .is_ok()
                {
                    self.leaves.hold(inbox, day);
                    self.stands(today + days, Kind::Held { inbox, day });
                }
            }
            Fault::Restore { inbox, days } => {
                let Some((day, _)) = detached(&mut self.world.admin().await, inbox).await else {
                    return;
                };
                if operate::restore(&mut connection, by, spec(inbox), day, None)
                    .await
                    .is_ok()
                {
                    self.leaves.hold(inbox, day);
                    self.stands(today + days, Kind::Held { inbox, day });
                }
            }
            Fault::Pause { days } => {
                if operate::pause(&mut connection, by, "asked for").await.is_ok() {
                    self.stands(today + days, Kind::Paused);
                }
            }
            Fault::ConfirmClock => {
                let _ = operate::confirm_clock(&mut connection, by, &deployment.specs).await;
                for standing in &mut self.standing {
                    if let Kind::Skewed { confirmed, .. } = &mut standing.kind {
                        *confirmed = true;
                    }
                }
            }
            Fault::ConfirmDrops { inbox } => {
                let _ = operate::confirm_drops(&mut connection, by, spec(inbox), None).await;
            }
            _ => unreachable!("not the operator's: {fault:?}"),
        }
        let _ = connection.close().await;
    }

    async fn release(&mut self, inbox: &'static str, day: Day) {
        let stands_still =
            |other: &Standing| matches!(other.kind, Kind::Held { inbox: one, day: of } if one == inbox && of == day);
        if self.standing.iter().any(stands_still) {
            return;
        }
        self.leaves.release(inbox, day);
        let sql_text = format!(
            "delete from inboxd.holds using inboxd.inboxes as inbox
             where inbox.id = holds.inbox_id and inbox.table_name = '{inbox}' and day = '{day}'"
        );
        // By hand: the service's role may have lost its privileges.
        sql(&mut self.world.admin().await, sql_text).await;
    }

    /// What goes wrong once the day's claims are made.
    pub(crate) async fn after_claims(&mut self, fault: &Fault) {
        let Fault::Leap { days } = *fault else { return };
        let can_run = self.standing.iter().all(|one| one.lets_create(self.world.today()));
        if !can_run {
            return;
        }
        let here = self.world.today();
        self.world.clock.step(TimeDelta::days(days));
        self.world.run(false).await;
        self.world.clock.step(-TimeDelta::days(days));
        // The schedule must not wait until the clock is there again.
        self.world.run(true).await;
        // Somebody takes the days of the far future away again.
        let mut admin = self.world.admin().await;
        for inbox in INBOXES {
            let kept = format!("{inbox}_{}", here.plus(AHEAD + 2).underscored());
            let names: Vec<String> = sqlx::query_scalar(
                "select relname::text from pg_class join pg_inherits on inhrelid = pg_class.oid
                 where inhparent = $1::regclass and relname > $2 and relname <> $1 || '_default' order by 1",
            )
            .bind(inbox)
            .bind(kept)
            .fetch_all(&mut admin)
            .await
            .unwrap();
            for name in names {
                sql(&mut admin, format!("drop table {name}")).await;
            }
        }
    }

    /// What came back by itself, and must have.
    pub(crate) async fn see_what_is_back(&mut self, must: bool) {
        let mut admin = self.world.looker().await;
        let away: Vec<(String, Day)> = self.memory.away().map(|(inbox, day)| (inbox.to_owned(), day)).collect();
        let now = self.world.clock.now();
        for (inbox, day) in away {
            let name = format!("{inbox}_{}", day.underscored());
            if ours(&mut admin, &name).await.is_some() {
                self.memory.is_back(&mut admin, &inbox, day).await;
            } else if must && day.end() + TimeDelta::days(RETENTION_DAYS) > now + TimeDelta::hours(1) {
                let steps = crate::world::last_steps(&mut admin).await;
                panic!("{name} was detached by hand and is not attached again at {now}: {steps:#?}");
            }
        }
    }
}

/// Runs what may fail.
pub(crate) async fn tried(connection: &mut PgConnection, text: String) -> bool {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await.is_ok()
}

async fn oid_of(connection: &mut PgConnection, name: &str) -> Option<i64> {
    sqlx::query_scalar("select to_regclass($1)::oid::bigint")
        .bind(name)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// The partition of this name, if it is attached.
pub(crate) async fn ours(connection: &mut PgConnection, name: &str) -> Option<i64> {
    sqlx::query_scalar(
        "select inhrelid::oid::bigint from pg_inherits where inhrelid = to_regclass($1) and not inhdetachpending",
    )
    .bind(name)
    .fetch_optional(connection)
    .await
    .unwrap()
}

/// A detached partition that is still there.
async fn detached(connection: &mut PgConnection, inbox: &str) -> Option<(Day, String)> {
    let name: Option<String> = sqlx::query_scalar(
        "select relname::text from pg_class
         where relkind = 'r' and not relispartition and relname ~ ('^' || $1 || '_\\d{4}_\\d\\d_\\d\\d$')
           and obj_description(oid, 'pg_class') is not null order by 1 limit 1",
    )
    .bind(inbox)
    .fetch_optional(connection)
    .await
    .unwrap();
    let name = name?;
    Some((name[inbox.len() + 1..].replace('_', "-").parse().unwrap(), name))
}
