//! The service: config, schedule, status and HTTP. Composes what is below it; decides nothing about partitions.

mod acts;
mod caught;
mod changes;
pub mod config;
mod counters;
mod cron;
mod door;
mod guarded;
pub mod health;
mod http;
mod in_the_way;
mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod outward;
mod page;
mod reading;
mod serve;
mod status;
mod systemd;
mod timetable;
mod watch;
mod webhook;
mod worker;

pub use cron::{CronError, Schedule};
pub use guarded::Guarded;
pub use serve::{ServeError, Serving, serve};
pub use status::{Check, CheckCode, DatabaseStatus, InboxStatus, PartitionState, PartitionStatus, Status, read_status};
pub use worker::CanaryStatus;
