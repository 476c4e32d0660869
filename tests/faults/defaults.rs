//! A default partition that somebody makes, with a day's rows in it, and how it goes away again.

use inboxd::{Action, Bounds, Day, Routing};

use crate::{
    faults::{Kind, Standing},
    hands::{ours, tried},
    run::Seed,
    support::inbox::sql,
    world::{KEEPER, default_of, last_steps},
};

fn routing(inbox: &str) -> Routing {
    match inbox {
        "by_id" => Routing::MessageId,
        _ => Routing::ProcessedAt,
    }
}

/// Each partition of an inbox by time brings its own key; that of the other has the inbox's.
fn key(inbox: &str, partition: &str) -> String {
    match routing(inbox) {
        Routing::ProcessedAt => format!("alter table {partition} add primary key (message_id);"),
        Routing::MessageId => String::new(),
    }
}

impl Seed {
    /// Makes one, and moves a day's rows into it, in one transaction: every claim stays in the inbox.
    pub(crate) async fn make_default(&mut self, today: u32, inbox: &'static str, offset: i64, days: u32) {
        let mut admin = self.world.admin().await;
        // A table of a day that has rows of its own can be merged with no default partition: that is nobody's fault but his
        // who made both, and maintenance reports it.
        if self.memory.away().any(|(one, _)| one == inbox) || has_default(&mut admin, inbox).await {
            return;
        }
        sql(&mut admin, "set lock_timeout = '2s'").await;
        let day = self.world.today().plus(offset);
        let (default, name) = (default_of(inbox), format!("{inbox}_{}", day.underscored()));
        let oid = ours(&mut admin, &name).await;
        let with_rows = match oid {
            Some(_) => format!(
                "alter table {inbox} detach partition {name};
                 insert into {default} select * from {name};
                 alter table {inbox} attach partition {default} default;
                 drop table {name};"
            ),
            None => format!("alter table {inbox} attach partition {default} default;"),
        };
        let text = format!(
            "begin; lock table {inbox} in access exclusive mode;
             create table {default} (like {inbox} including defaults); alter table {default} owner to {KEEPER}; {}
             {with_rows} commit",
            key(inbox, &default)
        );
        if !tried(&mut admin, text).await {
            return;
        }
        self.leaves.default_made(inbox);
        if let Some(oid) = oid {
            self.leaves.by_hand(oid);
        }
        if !self.world.drains(inbox) {
            self.stands(today + days, Kind::Default { inbox });
        }
    }

    /// What a person does where no run drains it: all in one transaction, with a partition made for each day of its rows.
    pub(crate) async fn drain_by_hand(&mut self, today: u32, inbox: &'static str) {
        let mut admin = self.world.admin().await;
        let default = default_of(inbox);
        sql(&mut admin, "set lock_timeout = '2s'").await;
        if !tried(
            &mut admin,
            format!(
                "begin; lock table {inbox} in access exclusive mode; alter table {inbox} detach partition {default}"
            ),
        )
        .await
        {
            // Somebody is in the way; tomorrow, then.
            self.standing.push(Standing {
                until: today + 1,
                kind: Kind::Default { inbox },
            });
            return;
        }
        for day in self.days_in(&mut admin, inbox).await {
            let name = format!("{inbox}_{}", day.underscored());
            let [from, to] = Bounds::ends(day, routing(inbox));
            let range = format!("for values from ('{from}') to ('{to}')");
            let made = format!(
                "create table {name} partition of {inbox} {range}; alter table {name} owner to {KEEPER}; {}",
                key(inbox, &name)
            );
            // Messages may have come again for a day that is detached already; attached with what it remembers, it leaves anew.
            let text = match loose(&mut admin, &name).await {
                Some(true) => format!("alter table {inbox} attach partition {name} {range}"),
                _ => made,
            };
            // The name may be somebody else's; then all of it tomorrow.
            if !tried(&mut admin, text).await {
                sql(&mut admin, "rollback").await;
                self.stands(today + 1, Kind::Default { inbox });
                return;
            }
        }
        sql(
            &mut admin,
            format!("insert into {inbox} select * from {default} on conflict do nothing; drop table {default}; commit"),
        )
        .await;
        self.leaves.default_gone(inbox);
    }

    async fn days_in(&self, admin: &mut sqlx::PgConnection, inbox: &str) -> Vec<Day> {
        let default = default_of(inbox);
        match routing(inbox) {
            Routing::ProcessedAt => {
                let asked = format!("select distinct (processed_at at time zone 'UTC')::date from {default}");
                let days: Vec<chrono::NaiveDate> = sqlx::query_scalar(sqlx::AssertSqlSafe(asked))
                    .fetch_all(admin)
                    .await
                    .unwrap();
                days.into_iter().map(Day::from).collect()
            }
            Routing::MessageId => {
                let asked = format!("select message_id from {default}");
                let ids: Vec<uuid::Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(asked))
                    .fetch_all(admin)
                    .await
                    .unwrap();
                let days: std::collections::BTreeSet<Day> = ids.into_iter().map(crate::memory::day_of_id).collect();
                days.into_iter().collect()
            }
        }
    }

    /// On a day when nothing else is wrong, a run that could drain has.
    pub(crate) async fn must_be_drained(&self) {
        for planned in self.world.deployment.plan().await {
            let drains = |step: &&inboxd::Step| step.action == Action::Drain;
            if let Some(step) = planned.plan.steps.iter().find(drains) {
                let steps = last_steps(&mut self.world.admin().await).await;
                panic!(
                    "{} is not drained although nothing is in the way: {steps:#?}",
                    step.relation
                );
            }
        }
    }
}

/// Whether a table of this name that is no partition is one of ours; none where there is no such table.
async fn loose(admin: &mut sqlx::PgConnection, name: &str) -> Option<bool> {
    sqlx::query_scalar(
        "select obj_description(oid, 'pg_class') is not null from pg_class where oid = to_regclass($1) and not relispartition",
    )
    .bind(name)
    .fetch_optional(admin)
    .await
    .unwrap()
}

/// Whether an inbox has a default partition, or a table of that name is left of one.
pub(crate) async fn has_default(admin: &mut sqlx::PgConnection, inbox: &str) -> bool {
    sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(default_of(inbox))
        .fetch_one(admin)
        .await
        .unwrap()
}

/// Whether it is attached.
pub(crate) async fn default_stands(admin: &mut sqlx::PgConnection, inbox: &str) -> bool {
    sqlx::query_scalar(
        "select exists (select from pg_inherits where inhrelid = to_regclass($1) and inhparent = $2::regclass)",
    )
    .bind(default_of(inbox))
    .bind(inbox)
    .fetch_one(admin)
    .await
    .unwrap()
}
