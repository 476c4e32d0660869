//! Rounds and ratios.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use inboxd::{
    claim::{
        Inbox,
        middleware::{Consumer, Delivery, IdSource, Source},
    },
    clock::Clock,
};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    brokers::{ID, Kafka, Nats, Peer, Rabbit},
    support::{
        folder::Folder,
        inbox::{Deployment, random_id, spec, sql},
        pool,
        server::{OwnServer, options_in},
    },
};

const BATCH: usize = 50;

/// The first is what the others are compared with.
const SHAPES: [(Shape, &str); 5] = [
    (Shape::ByHand, "by hand"),
    (Shape::PlainInsert, "plain insert"),
    (Shape::Middleware { prepares: true }, "middleware"),
    (Shape::Middleware { prepares: false }, "nothing prepared"),
    (Shape::Batches, "middleware, batches of 50"),
];

#[derive(Debug, Clone, Copy)]
enum Shape {
    ByHand,
    PlainInsert,
    /// With or without a claim that the driver prepares, as it does all statements of the shapes by hand.
    Middleware {
        prepares: bool,
    },
    Batches,
}

struct Bench {
    messages: usize,
    rounds: usize,
    concurrency: usize,
    pool: PgPool,
    inbox: Inbox,
}

#[tokio::main]
pub(crate) async fn main() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.durable = true;
    let server = OwnServer::start(folder, options).await;
    let deployment = Deployment::new(server.database().await, Clock::system(), vec![spec("public.inbox")]);
    deployment.init().await.unwrap();
    deployment.done().await;
    let mut connection = deployment.database.connect().await;
    sql(&mut connection, "create table work (message_id uuid not null)").await;
    sql(&mut connection, "create table seen (message_id uuid primary key)").await;
    let concurrency = number("CONCURRENCY", 8);
    let bench = Bench {
        messages: number("MESSAGES", 2_000),
        rounds: number("ROUNDS", 5),
        concurrency,
        pool: pool::options(u32::try_from(concurrency).unwrap()).connect_lazy_with(deployment.database.options.clone()),
        inbox: Inbox::open(&mut connection, "public.inbox").await.unwrap(),
    };
    let only = std::env::var("BROKER").unwrap_or_default();
    println!(
        "{} messages a round, {} rounds, {concurrency} at once",
        bench.messages, bench.rounds
    );
    if "nats".contains(&only) {
        bench.compare("nats", &Nats::start().await).await;
    }
    if "rabbitmq".contains(&only) {
        bench.compare("rabbitmq", &Rabbit::start()).await;
    }
    if "kafka".contains(&only) {
        bench.compare("kafka (mock cluster)", &Kafka::start()).await;
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

impl Bench {
    async fn compare<P: Peer>(&self, name: &str, peer: &P) {
        let mut rates = vec![Vec::new(); SHAPES.len()];
        for round in 0..=self.rounds {
            for ((shape, _), rates) in SHAPES.iter().zip(&mut rates) {
                let rate = self.rate(*shape, peer).await;
                // The first one warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        println!("\n{name}");
        for ((_, what), of_shape) in SHAPES.iter().zip(&rates) {
            let ratios = of_shape.iter().zip(&rates[0]).map(|(rate, base)| rate / base);
            let mut ratios: Vec<f64> = ratios.collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                "  {what:<28} {:>7.0}/s   {:.2} ({:.2} to {:.2})",
                median(of_shape.clone()),
                median(ratios.clone()),
                ratios[0],
                ratios[ratios.len() - 1]
            );
        }
    }

    /// Messages a second.
    async fn rate<P: Peer>(&self, shape: Shape, peer: &P) -> f64 {
        let ids: Vec<Uuid> = (0..self.messages).map(|_| random_id()).collect();
        let queue = peer.filled(&ids).await;
        let course = Course::new(self.messages);
        let at_once = self.concurrency;
        match shape {
            Shape::ByHand => {
                let handle = async |id| self.claimed(&course, id).await.unwrap();
                peer.by_hand(&queue, self.messages, at_once, handle).await;
            }
            Shape::PlainInsert => {
                let handle = async |id| self.inserted(&course, id).await.unwrap();
                peer.by_hand(&queue, self.messages, at_once, handle).await;
            }
            Shape::Middleware { prepares } => {
                let source = peer.source(&queue, at_once).await;
                let handler = async |tx: &mut Transaction<'_, Postgres>, delivery: &Taken<P>| {
                    course.step();
                    work(tx, id_in(delivery)).await
                };
                self.consumer(prepares)
                    .run(source, course.all.notified(), handler)
                    .await;
            }
            Shape::Batches => {
                // Two of them, so that one is collected while the other one is committed.
                let consumer = self.consumer(false).with_concurrency(2);
                let source = peer.source(&queue, BATCH * 2).await;
                let handler = async |tx: &mut Transaction<'_, Postgres>, deliveries: &[&Taken<P>]| {
                    deliveries.iter().for_each(|_| course.step());
                    let ids: Vec<Uuid> = deliveries.iter().map(|delivery| id_in(*delivery)).collect();
                    sqlx::query("insert into work select unnest($1::uuid[])")
                        .bind(ids)
                        .execute(&mut **tx)
                        .await
                        .map(|_| ())
                };
                consumer.run_batches(source, course.all.notified(), handler).await;
            }
        }
        course.rate()
    }

    fn consumer<D: Delivery>(&self, prepares: bool) -> Consumer<D> {
        let inbox = match prepares {
            true => self.inbox.clone().with_prepared_statements(),
            false => self.inbox.clone(),
        };
        Consumer::new(inbox, self.pool.clone(), IdSource::header(ID))
            .with_concurrency(self.concurrency)
            .with_batch(BATCH, Duration::from_millis(10))
    }

    /// As somebody writes it who has the inbox and no middleware.
    async fn claimed(&self, course: &Course, id: Uuid) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let claim = "select outcome from public.inbox_try_claim($1, 'orders', null, null, interval '2 seconds')";
        let outcome: String = sqlx::query_scalar(claim).bind(id).fetch_one(&mut *tx).await?;
        course.step();
        if outcome == "fresh" {
            work(&mut tx, id).await?;
        }
        tx.commit().await
    }

    /// As somebody writes it who has no inbox either.
    async fn inserted(&self, course: &Course, id: Uuid) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let insert = sqlx::query("insert into seen values ($1) on conflict do nothing");
        let inserted = insert.bind(id).execute(&mut *tx).await?.rows_affected();
        course.step();
        if inserted == 1 {
            work(&mut tx, id).await?;
        }
        tx.commit().await
    }
}

/// What a peer's source delivers.
type Taken<P> = <<P as Peer>::Source as Source>::Delivery;

async fn work(tx: &mut Transaction<'_, Postgres>, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("insert into work values ($1)")
        .bind(id)
        .execute(&mut **tx)
        .await
        .map(|_| ())
}

fn id_in(delivery: &impl Delivery) -> Uuid {
    delivery.header(ID).unwrap().parse().unwrap()
}

/// From the first run of the handler to the last.
struct Course {
    messages: usize,
    steps: AtomicUsize,
    ends: Mutex<Option<(Instant, Instant)>>,
    all: Notify,
}

impl Course {
    fn new(messages: usize) -> Self {
        Self {
            messages,
            steps: AtomicUsize::new(0),
            ends: Mutex::default(),
            all: Notify::new(),
        }
    }

    fn step(&self) {
        let now = Instant::now();
        self.ends.lock().unwrap().get_or_insert((now, now)).1 = now;
        if self.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.messages {
            self.all.notify_one();
        }
    }

    fn rate(&self) -> f64 {
        let (first, last) = self.ends.lock().unwrap().expect("it has begun");
        let steps = u32::try_from(self.steps.load(Ordering::SeqCst)).unwrap();
        f64::from(steps) / (last - first).as_secs_f64()
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
