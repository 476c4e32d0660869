//! What the operator does.

use inboxd::{
    Day, InboxSpec,
    maintain::operate::{self, Actor, HeldState},
    postgres,
};
use sqlx::Connection;

use crate::{
    course::Fault,
    faults::{Kind, Standing},
    hands::detached,
    run::Seed,
    settle::operator,
    support::inbox::sql,
};

impl Seed {
    /// What the operator does. The database may be away, or another run going: then it is not done.
    pub(crate) async fn operate(&mut self, today: u32, fault: &Fault) {
        let (deployment, actor) = (self.world.deployment.clone(), Actor::new("operator").unwrap());
        let by = operator(&deployment, &actor);
        let spec = |inbox: &str| -> &InboxSpec { deployment.specs.iter().find(|spec| spec.name == inbox).unwrap() };
        let connecting = postgres::connect(&deployment.options, "inboxd operator", deployment.timeouts);
        let Ok(mut connection) = connecting.await else { return };
        match *fault {
            Fault::Hold { inbox, offset, days } => {
                let day = self.world.today().plus(offset);
                if let Ok(held) = operate::hold(&mut connection, by, spec(inbox), day, "asked for").await {
                    // What had begun goes on to its end.
                    let leaves = matches!(held.state, Some(HeldState::Detaching | HeldState::Detached));
                    self.leaves.hold(inbox, day, leaves);
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
                    self.leaves.hold(inbox, day, false);
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

    pub(crate) async fn release(&mut self, inbox: &'static str, day: Day) {
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

    /// Ends the pause.
    pub(crate) async fn resume(&mut self, today: u32) {
        let (deployment, actor) = (&self.world.deployment, Actor::new("operator").unwrap());
        let resumed = match postgres::connect(&deployment.options, "inboxd operator", deployment.timeouts).await {
            Ok(mut connection) => operate::resume(&mut connection, operator(deployment, &actor))
                .await
                .is_ok(),
            Err(_) => false,
        };
        // Without its privileges it cannot; tomorrow, then.
        if !resumed {
            self.stands(today + 1, Kind::Paused);
        }
    }
}
