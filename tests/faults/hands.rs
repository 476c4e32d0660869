//! What somebody does by hand who does not know better, or has to.

use std::time::Duration;

use chrono::TimeDelta;
use inboxd::Day;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    course::{Fault, INBOXES},
    defaults::default_stands,
    faults::Kind,
    run::Seed,
    support::inbox::sql,
    world::{AHEAD, RETENTION_DAYS, last_steps},
};

/// The service looks at its clock each second. A leap between two looks is noticed only by the schedule's silence, after a
/// minute and a half: so long a wait for each would be most of a seed.
const LEAP_STAYS: Duration = Duration::from_millis(1_300);

impl Seed {
    /// A day's partition by name; 0 is today.
    pub(crate) fn partition(&self, inbox: &str, offset: i64) -> String {
        format!("{inbox}_{}", self.world.today().plus(offset).underscored())
    }

    /// What somebody does who does not know better.
    pub(crate) async fn by_hand(&mut self, today: u32, fault: &Fault) {
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

    /// What goes wrong once the day's claims are made.
    pub(crate) async fn after_claims(&mut self, today: u32, fault: &Fault) {
        let Fault::Leap { days } = *fault else { return };
        let can_run = self.standing.iter().all(|one| one.lets_create(self.world.today()));
        if !can_run {
            return;
        }
        let here = self.world.today();
        self.world.clock.step(TimeDelta::days(days));
        self.world.run(false).await;
        tokio::time::sleep(LEAP_STAYS).await;
        self.world.clock.step(-TimeDelta::days(days));
        // The schedule must not wait until the clock is there again.
        self.world.run(true).await;
        for inbox in INBOXES {
            self.drop_far_days(today, inbox, here.plus(AHEAD + 2)).await;
        }
    }

    /// Somebody takes the days of the far future away again, once no reader is in the way.
    pub(crate) async fn drop_far_days(&mut self, today: u32, inbox: &'static str, kept: Day) {
        let mut admin = self.world.admin().await;
        sql(&mut admin, "set lock_timeout = '1s'").await;
        let far: Vec<(i64, String)> = sqlx::query_as(
            "select oid::bigint, relname::text from pg_class join pg_inherits on inhrelid = pg_class.oid
             where inhparent = $1::regclass and relname > $2 and relname <> $1 || '_default' order by 2",
        )
        .bind(inbox)
        .bind(format!("{inbox}_{}", kept.underscored()))
        .fetch_all(&mut admin)
        .await
        .unwrap();
        for (oid, name) in far {
            self.leaves.by_hand(oid);
            if !tried(&mut admin, format!("drop table {name}")).await {
                self.stands(today + 1, Kind::FarDays { inbox, kept });
                return;
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
                let steps = last_steps(&mut admin).await;
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
pub(crate) async fn detached(connection: &mut PgConnection, inbox: &str) -> Option<(Day, String)> {
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
