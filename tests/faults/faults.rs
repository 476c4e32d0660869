//! What goes wrong, and how it ends.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use inboxd::Day;
use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};

use crate::{
    claims::{End, Message},
    consumers,
    course::{Fault, Privilege},
    hands::{detached, tried},
    run::Seed,
    support::{inbox::sql, process, proxy::Cut},
    world::{CONSUMER as CONSUMER_ROLE, KEEPER},
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
    /// A consumer's transaction, with its claim and its work.
    Handler {
        session: PgConnection,
        message: Message,
    },
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
    /// Days that were made while the clock was ahead, later than this.
    FarDays {
        inbox: &'static str,
        kept: Day,
    },
}

impl Standing {
    /// Whether a run can still make today and tomorrow.
    pub(crate) fn lets_create(&self, today: Day) -> bool {
        match &self.kind {
            Kind::Down | Kind::Revoked(_) | Kind::Paused => false,
            Kind::Foreign { day, .. } => *day > today.next(),
            Kind::Session(_)
            | Kind::Handler { .. }
            | Kind::Held { .. }
            | Kind::Skewed { .. }
            | Kind::Default { .. }
            | Kind::FarDays { .. } => true,
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
            Fault::OpenHandler { inbox, id, days } => self.open_handler(today, inbox, id, days).await,
            Fault::Skew { minutes, days } => {
                // Of several the last is the one that is seen.
                self.standing.retain(|one| !matches!(one.kind, Kind::Skewed { .. }));
                self.world.clock.set_skew(TimeDelta::minutes(minutes));
                let confirmed = false;
                self.stands(today + days, Kind::Skewed { minutes, confirmed });
            }
            Fault::DefaultPartition { inbox, offset, days } => self.make_default(today, inbox, offset, days).await,
            Fault::StepBack { minutes } => {
                self.world.clock.step(-TimeDelta::minutes(minutes));
                // PostgreSQL's timers go by the clock that has stepped: who waits for it now does so until it has ended.
                if self.standing.iter().any(|one| matches!(one.kind, Kind::Handler { .. })) {
                    self.world.to_consumers.cut_all();
                }
            }
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
            Kind::Handler { mut session, message } => {
                // The server may have been killed under it; then it is fresh when it comes again, at once.
                let committed = sqlx::query("commit").execute(&mut session).await.is_ok();
                let end = consumers::deliver_once(&self.consumer_options(), message).await;
                let ends = committed.then_some(End::Acked).into_iter().chain([end]);
                self.note(ends.map(|end| (message, end)).collect()).await;
            }
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
            Kind::Paused => self.resume(today).await,
            Kind::FarDays { inbox, kept } => self.drop_far_days(today, inbox, kept).await,
        }
    }

    /// The broker does not wait for it: the message is delivered again meanwhile.
    async fn open_handler(&mut self, today: u32, inbox: &'static str, id: u64, days: u32) {
        let Ok(mut session) = self.consumer_options().connect().await else {
            return;
        };
        let message = self.broker.new_message(inbox, self.world.clock.now(), id);
        let bounds = "set statement_timeout = '2s'; begin".to_owned();
        if tried(&mut session, bounds).await && consumers::claim_and_work_by_sql(&mut session, message).await {
            self.stands(today + days, Kind::Handler { session, message });
        }
    }

    /// Past the proxy, so that nothing cuts them.
    fn consumer_options(&self) -> PgConnectOptions {
        let options = self.world.database.options.clone().username(CONSUMER_ROLE);
        options.application_name("handler")
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
}
