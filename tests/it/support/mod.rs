//! What the tests stand on: folders, servers and clocks of their own, none of which outlives the test process.

#![allow(dead_code, reason = "a toolbox: not every tool is in use all the time")]

pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod folder;
pub(crate) mod inbox;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod log;
#[cfg(feature = "nats")]
pub(crate) mod nats;
pub(crate) mod pgbouncer;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod proxy;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbit;
pub(crate) mod redis;
pub(crate) mod server;
