//! Behaviour tests against real servers: one binary, so that they share one PostgreSQL.

#[cfg(test)]
mod embedded;
#[cfg(test)]
mod support;
