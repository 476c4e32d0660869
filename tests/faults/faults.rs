//! What goes wrong, and how it ends.

use crate::{course::Fault, run::Seed, support::program::Service};

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
}

impl Standing {
    /// Whether a run can still make every day that must exist.
    pub(crate) fn lets_create(&self) -> bool {
        match self.kind {
            Kind::Down => false,
        }
    }
}

impl Seed {
    /// Begins a fault on a day.
    pub(crate) async fn begin(&mut self, today: u32, fault: &Fault) {
        match fault {
            Fault::KillService { replica } => {
                if let Some(service) = &mut self.world.services[*replica] {
                    Service::kill(service);
                }
                self.stands(today, Kind::Down);
            }
        }
    }

    fn stands(&mut self, until: u32, kind: Kind) {
        self.standing.push(Standing { until, kind });
    }

    /// Ends one.
    pub(crate) async fn end(&mut self, standing: Standing) {
        match standing.kind {
            Kind::Down => self.world.start_services(),
        }
    }
}
