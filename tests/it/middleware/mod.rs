//! The middleware against real brokers and a real PostgreSQL. Each scenario runs on every broker: [`conformance`] has the list,
//! the files beside it have the scenarios, and a broker's file what it takes to run them there, with what only that broker has.

mod batches;
mod broker;
mod chaos;
mod conformance;
mod crashes;
mod duplicates;
mod examples;
mod failures;
#[cfg(feature = "kafka")]
mod kafka;
mod members;
#[cfg(feature = "nats")]
mod nats;
mod outages;
mod place;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod spawned;
mod waiting;
