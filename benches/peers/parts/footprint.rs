//! What the service itself takes: its file, its start, and its memory and processor time while there is nothing to do.

use std::time::{Duration, Instant};

use crate::{
    arguments::Arguments,
    measure::{self, Spread, bytes, milliseconds, number},
    report::{Report, Table},
    support::{
        program::Service,
        server::{self, OwnServer, TestDatabase},
    },
};

/// The service with defaults, idling on a server of its own.
pub(crate) struct Idle {
    service: Service,
    _server: OwnServer,
    /// How long starts took until `/readyz` answered 200, in milliseconds.
    starts: Vec<f64>,
    begin: Instant,
    cpu: f64,
    at_least: Duration,
}

pub(crate) async fn start(arguments: Arguments) -> Idle {
    let server = server::own(&[]).await;
    let database = server.database().await;
    crate::support::program::ask(&database.url, &["init"]).must(0, &[]);
    let starts = if arguments.quick { 2 } else { 10 };
    let (mut times, mut last) = (Vec::new(), None);
    for _ in 0..starts {
        drop(last.take());
        let (service, millis) = ready(&database).await;
        times.push(millis);
        last = Some(service);
    }
    let service = last.unwrap();
    Idle {
        cpu: measure::cpu_of(service.pid()),
        service,
        _server: server,
        starts: times,
        begin: Instant::now(),
        at_least: Duration::from_secs(if arguments.quick { 10 } else { 600 }),
    }
}

async fn ready(database: &TestDatabase) -> (Service, f64) {
    let begin = Instant::now();
    let mut service = Service::start(&database.url, &[]);
    service.wait_until_ready().await;
    (service, begin.elapsed().as_secs_f64() * 1000.0)
}

impl Idle {
    pub(crate) async fn end(self) -> Report {
        tokio::time::sleep(self.at_least.saturating_sub(self.begin.elapsed())).await;
        let (time, pid) = (self.begin.elapsed().as_secs_f64(), self.service.pid());
        let cpu = measure::cpu_of(pid) - self.cpu;
        let memory = |name| measure::memory_of(pid, name).map_or_else(|| "unknown".to_owned(), bytes);
        let program = std::fs::metadata(env!("CARGO_BIN_EXE_inboxd")).unwrap().len();
        let mut table = Table::new(&["", "of the service"]);
        #[expect(clippy::cast_precision_loss, reason = "the size of a file")]
        table.row(&["size of the program", &bytes(program as f64)]);
        table.row(&["start to ready", &Spread::of(self.starts).told(milliseconds)]);
        table.row(&["memory while idle (resident)", &memory("VmRSS")]);
        table.row(&["most memory it ever had", &memory("VmHWM")]);
        let share = format!(
            "{} s in {:.0} s, or {} % of a core",
            number(cpu),
            time,
            number(100.0 * cpu / time)
        );
        table.row(&["processor time while idle", &share]);
        let mut report = Report::new("footprint");
        report.table("One inbox, default configuration.", table);
        report
    }
}
