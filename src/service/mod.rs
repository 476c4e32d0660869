//! The service: config, schedule, status and HTTP. Composes what is below it; decides nothing about partitions.

pub mod config;
mod cron;
mod http;
mod serve;
mod status;
mod worker;

pub use cron::{CronError, Schedule};
pub use serve::{ServeError, Serving, serve};
pub use status::{Check, DatabaseStatus, InboxStatus, PartitionState, PartitionStatus, Status, read_status};
