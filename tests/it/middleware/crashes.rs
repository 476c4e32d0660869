//! Consumers that are processes of their own, and are killed.

use std::{fs, time::Duration};

use inboxd::claim::{
    BoxError, Inbox,
    middleware::{Delivery, IdSource, Rejection, Source},
};
use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};

use super::{
    broker::{Broker, ID, InBatches},
    place::{Place, consumer, pool_of, work, work_on_all},
};
use crate::support::{
    folder::Folder,
    process::{self, OtherProcess},
};

/// What a consumer process is told, in its folder.
const ORDERS: &str = "orders";

/// What a consumer process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Says that it is there, and works until it is killed.
    Work,
    /// Says so when it is about to ack for the first time, and does not.
    StopBeforeAck,
}

pub(super) async fn m1_a_consumer_that_is_killed_between_commit_and_ack_leaves_a_duplicate_behind<B: Broker>() {
    let place = Place::<B>::new().await;
    let ids = place.published(5).await;
    let folder = Folder::new();
    let mut process = start(&place, Order::StopBeforeAck, &folder);
    assert_eq!(process.report(), "about to ack");
    process.kill();
    assert!(!place.done().await.is_empty(), "committed before the ack");
    let consumer = place.consumer().await.with_attempts(1);
    place.run_dry(&consumer, work).await;
    place.assert_done_once(&ids).await;
}

/// A process with a consumer of the place's messages.
pub(super) fn start<B: Broker>(place: &Place<B>, order: Order, folder: &Folder) -> OtherProcess {
    let orders = [
        &*format!("{order:?} {}", B::IN_BATCHES),
        &place.deployment.database.url,
        &place.broker.address(),
    ];
    fs::write(folder.path().join(ORDERS), orders.join("\n")).unwrap();
    let test = format!("middleware::conformance::{}::consumer_process", B::MODULE);
    OtherProcess::run(&test, folder.path())
}

/// What runs in such a process.
pub(super) async fn consumer_process<B: Broker>() {
    let Some(report_file) = process::report_file() else {
        return;
    };
    let orders = fs::read_to_string(report_file.with_file_name(ORDERS)).unwrap();
    let (order, place) = orders.split_once('\n').unwrap();
    let (order, in_batches) = order.split_once(' ').unwrap();
    match in_batches.parse().unwrap() {
        true => work_at::<InBatches<B>>(place, order).await,
        false => work_at::<B>(place, order).await,
    }
}

async fn work_at<B: Broker>(place: &str, order: &str) {
    let (url, address) = place.split_once('\n').unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let mut connection: PgConnection = options.connect().await.unwrap();
    let inbox = Inbox::open(&mut connection, "public.inbox").await.unwrap();
    let pool = pool_of(options);
    let source = B::source_at(address).await;
    let never = std::future::pending::<()>();
    if order == format!("{:?}", Order::StopBeforeAck) {
        let consumer = consumer(inbox, pool, IdSource::header(ID));
        let source = StopBeforeAck(source);
        match B::IN_BATCHES {
            true => consumer.run_batches(source, never, work_on_all).await,
            false => consumer.run(source, never, work).await,
        }
    } else {
        std::thread::spawn(|| process::report_and_wait("there"));
        let consumer = consumer(inbox, pool, IdSource::header(ID));
        B::run(&consumer, source, never, work).await;
    }
}

/// A source whose deliveries are never acked: the process waits for its end instead.
struct StopBeforeAck<T>(T);

impl<S: Source<Delivery: Sync>> Source for StopBeforeAck<S> {
    type Delivery = StopBeforeAck<S::Delivery>;

    async fn next(&mut self) -> Result<Option<Self::Delivery>, BoxError> {
        Ok(self.0.next().await?.map(StopBeforeAck))
    }
}

impl<D: Delivery + Sync> Delivery for StopBeforeAck<D> {
    const BROKER_DELAYS: bool = D::BROKER_DELAYS;

    fn topic(&self) -> std::borrow::Cow<'_, str> {
        self.0.topic()
    }

    fn payload(&self) -> &[u8] {
        self.0.payload()
    }

    fn header(&self, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.0.header(name)
    }

    fn id_property(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.0.id_property()
    }

    fn coordinates(&self) -> Option<String> {
        self.0.coordinates()
    }

    fn attempt(&self) -> Option<u32> {
        self.0.attempt()
    }

    async fn ack(self) -> Result<(), BoxError> {
        process::report_and_wait("about to ack");
        Err("let go instead of killed".into())
    }

    async fn retry_later(self, after: Duration) -> Result<(), BoxError> {
        self.0.retry_later(after).await
    }

    async fn reject(self, rejection: &Rejection) -> Result<(), BoxError> {
        self.0.reject(rejection).await
    }
}
