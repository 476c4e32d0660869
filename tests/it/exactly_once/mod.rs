//! Every message's work is done exactly once: 8 consumers, each message delivered three times, a clock that is stepped over
//! midnights and a year's end, rollbacks, errors, panics, cancellations, killed sessions and handlers that span a midnight.
//!
//! `INBOXD_TEST_MESSAGES` sets the number of ids a shape; it also runs all shapes on every PostgreSQL. Without it, 14,
//! 16 and 17 run the two single shapes for one consumer only: the versions between the oldest and the newest that differ in
//! how they plan and lock are 15 and 18.

mod feed;
mod library;
mod naive;
mod run;
mod shape;
mod world;

use inboxd::{Consumers, Routing};

use self::{
    shape::{ByHand, Claims, InBatches, OneByOne, Shape},
    world::World,
};

/// In the middle of the nights that are stepped over a year ends.
const MIDNIGHT: &str = "2027-12-31T00:00:00Z";

/// Enough that each pair of accidents happens; a shape takes some seconds.
const MESSAGES: usize = 2_000;

const SEED: u64 = 20_271_231;

fn asked_for() -> Option<usize> {
    let messages = std::env::var("INBOXD_TEST_MESSAGES").ok()?;
    Some(messages.parse().expect("INBOXD_TEST_MESSAGES is a number"))
}

/// Whether a shape is left out on a version between those that matter most.
fn is_left_out(version: i32, consumers: Consumers, at_a_time: usize) -> bool {
    let is_single = consumers == Consumers::One && at_a_time == 1;
    !is_single && ![15, 18].contains(&(version / 10_000)) && asked_for().is_none()
}

async fn each_once<C: Claims>(routing: Routing, consumers: Consumers, claims: C) {
    each_once_by(routing, consumers, ByHand(claims)).await;
}

/// With sealed days and a digest, which is built anew in an evening of the run.
async fn each_once_with_digest<C: Claims>(consumers: Consumers, claims: C) {
    let mut inbox = world::inbox(Routing::ProcessedAt, consumers);
    (inbox.policy.seal_days, inbox.policy.digest) = (true, true);
    let world = World::of(MIDNIGHT, 8, inbox).await;
    assert_eq!(world.digests().await, ["2027-12-29", "2027-12-30"]);
    if let Some(world) = each_once_in(world, consumers, ByHand(claims)).await {
        let last = world.digests().await.pop().unwrap();
        assert!(last.as_str() > "2027-12-30", "none is built in the run: {last}");
    }
}

async fn each_once_by<S: Shape>(routing: Routing, consumers: Consumers, shape: S) {
    let world = World::before(MIDNIGHT, 8, routing, consumers).await;
    each_once_in(world, consumers, shape).await;
}

/// The world after the run; none where it is left out.
async fn each_once_in<S: Shape>(world: World, consumers: Consumers, shape: S) -> Option<World> {
    let routing = world.deployment.specs[0].policy.routing;
    if is_left_out(world.version().await, consumers, S::AT_A_TIME) {
        return None;
    }
    let messages = world.messages(asked_for().unwrap_or(MESSAGES), SEED);
    let (world, course) = run::run(world, shape, &messages, SEED).await;
    println!("{routing}, {consumers}, up to {} at a time: {course}", S::AT_A_TIME);
    world.assert_each_once(&messages).await;
    let days = world.days().await;
    assert!(days.len() >= 4, "messages were processed on {days:?} only");
    Some(world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_time_one_by_one_for_one_consumer() {
    each_once(Routing::ProcessedAt, Consumers::One, OneByOne).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_time_one_by_one_for_many_consumers() {
    each_once(Routing::ProcessedAt, Consumers::Many, OneByOne).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_time_in_batches_for_one_consumer() {
    each_once(Routing::ProcessedAt, Consumers::One, InBatches).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_time_in_batches_for_many_consumers() {
    each_once(Routing::ProcessedAt, Consumers::Many, InBatches).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_digest_one_by_one_for_many_consumers() {
    each_once_with_digest(Consumers::Many, OneByOne).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_digest_in_batches_for_one_consumer() {
    each_once_with_digest(Consumers::One, InBatches).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_id_one_by_one_for_one_consumer() {
    each_once(Routing::MessageId, Consumers::One, OneByOne).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_id_one_by_one_for_many_consumers() {
    each_once(Routing::MessageId, Consumers::Many, OneByOne).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_id_in_batches_for_one_consumer() {
    each_once(Routing::MessageId, Consumers::One, InBatches).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_id_in_batches_for_many_consumers() {
    each_once(Routing::MessageId, Consumers::Many, InBatches).await;
}
