//! Behaviour tests against real servers: one binary, so that they share one PostgreSQL.

#[cfg(test)]
mod adopt;
#[cfg(test)]
mod canary;
#[cfg(test)]
mod claim;
#[cfg(test)]
mod cli;
mod cli_ends;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod digest;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod dump;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod exactly_once;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod health_changes;
#[cfg(test)]
mod http;
#[cfg(test)]
mod init;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod language;
#[cfg(test)]
mod library;
#[cfg(test)]
mod life;
#[cfg(test)]
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
// apart: the lints know a test by the line above alone
mod middleware;
#[cfg(test)]
mod midnight;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod operate;
#[cfg(test)]
mod other_languages;
#[cfg(test)]
mod page;
#[cfg(test)]
mod pass;
#[cfg(test)]
mod reconcile;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod replication;
#[cfg(test)]
mod sealed;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_embedded;
#[cfg(test)]
mod setnx;
#[cfg(test)]
mod sql;
#[cfg(test)]
mod states;
#[cfg(test)]
mod support;
#[cfg(test)]
mod systemd;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod waiting;
#[cfg(test)]
mod webhook;
