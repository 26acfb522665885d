//! A planned move is no event for a normal client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use tidegate_harness::Durability;

use super::{Arena, PATIENCE};
use crate::ops::produce;
use crate::support::{errors, now_ms};

const PARTITIONS: i32 = 81;
const MOVES: u32 = 20;
/// A record that isn't acknowledged in this time fails, and the case with it.
const DELIVERY_TIMEOUT: &str = "5000";
/// Between two records.
const INTERVAL: Duration = Duration::from_millis(10);

/// Partition → (offset, number) of each acknowledged record, in the order of the acknowledgements.
type Acknowledged = HashMap<i32, Vec<(i64, u64)>>;

#[derive(Default)]
struct Outcome {
    acknowledged: Acknowledged,
    failures: Vec<String>,
}

#[derive(Clone, Default)]
struct Context(Arc<Mutex<Outcome>>);

impl Context {
    fn outcome(&self) -> std::sync::MutexGuard<'_, Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: rdkafka::error::KafkaError, _: &str) {}
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut outcome = self.outcome();
        match result {
            Ok(message) => match number(message.payload()) {
                Some(number) => outcome
                    .acknowledged
                    .entry(message.partition())
                    .or_default()
                    .push((message.offset(), number)),
                None => outcome.failures.push("bytes that nobody sent".into()),
            },
            Err((error, _)) => outcome.failures.push(error.to_string()),
        }
    }
}

fn number(payload: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_be_bytes(payload?.try_into().ok()?))
}

/// Writes at a steady pace until told to stop: to partition 0, and in turn to all others.
fn write(
    bootstrap: &str,
    topic: &str,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<Outcome>>> {
    let context = Context::default();
    let producer: ThreadedProducer<Context> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("delivery.timeout.ms", DELIVERY_TIMEOUT)
        .set("linger.ms", "0")
        .create_with_context(context.clone())?;
    let (topic, stop) = (topic.to_owned(), Arc::clone(stop));
    let run = move || {
        for number in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let others = i32::try_from(number % 80)? + 1;
            for partition in [0, others] {
                let payload = number.to_be_bytes();
                let record = BaseRecord::<(), [u8]>::to(&topic)
                    .partition(partition)
                    .payload(&payload);
                producer.send(record).map_err(|(error, _)| error)?;
            }
            std::thread::sleep(INTERVAL);
        }
        producer.flush(PATIENCE)?;
        Ok(std::mem::take(&mut *context.outcome()))
    };
    Ok(std::thread::Builder::new()
        .name("writer".into())
        .spawn(run)?)
}

/// What a member of a group has read: partition → (offset, number), in the order of reading.
type Read = Arc<Mutex<Acknowledged>>;

/// Reads as the only member of a group until told to stop; it is never restarted.
fn read(
    bootstrap: &str,
    topic: &str,
    seen: &Read,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<()>>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "invisible")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set_log_level(RDKafkaLogLevel::Emerg)
        .create()?;
    consumer.subscribe(&[topic])?;
    let (seen, stop) = (Arc::clone(seen), Arc::clone(stop));
    let run = move || {
        while !stop.load(Ordering::Relaxed) {
            // Errors that librdkafka reports while a broker changes are its own to mend.
            if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
                let number = number(message.payload()).context("bytes that nobody sent")?;
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.entry(message.partition())
                    .or_default()
                    .push((message.offset(), number));
            }
        }
        consumer.commit_consumer_state(CommitMode::Sync)?;
        Ok(())
    };
    Ok(std::thread::Builder::new()
        .name("reader".into())
        .spawn(run)?)
}

fn counts(map: &Acknowledged) -> usize {
    map.values().map(Vec::len).sum()
}

/// Every record once: offsets without a gap, numbers in the order of sending.
fn expect_in_order(what: &str, map: &Acknowledged) -> Result<()> {
    for (partition, records) in map {
        for (at, (offset, _)) in records.iter().enumerate() {
            ensure!(
                *offset == i64::try_from(at)?,
                "{what}, partition {partition}: offset {offset} where {at} was due"
            );
        }
        let rising = records.windows(2).all(|pair| pair[0].1 < pair[1].1);
        ensure!(
            rising,
            "{what}, partition {partition}: records are out of order or repeated"
        );
    }
    Ok(())
}

async fn until(what: &str, mut seen: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !seen() {
        ensure!(Instant::now() < deadline, "waited for {what}, in vain");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// O-FO-02. That no record waits five seconds is the producer's own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn moves_cost_a_producer_and_a_group_nothing() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Local).await?;
    let topic = arena.create_topic(PARTITIONS, 1).await?;
    let bootstrap = arena.cluster.bootstrap();
    let [stop_writing, stop_reading] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let seen = Read::default();
    let count = || counts(&seen.lock().unwrap_or_else(PoisonError::into_inner));
    let writer = write(&bootstrap, &topic.name, &stop_writing)?;
    let reader = read(&bootstrap, &topic.name, &seen, &stop_reading)?;
    until("the group to read", || count() > 100).await?;

    for number in 0..MOVES {
        arena.move_to(&topic, 0, 2 - number % 2).await?;
        // Each leader is read from before the next.
        let before = count();
        until("records after a move", || count() > before + 20).await?;
    }
    let all: Vec<(i32, u32)> = (1..PARTITIONS).map(|partition| (partition, 2)).collect();
    arena.move_all(&topic.name, &all).await?;
    let before = count();
    // Two rounds over all partitions.
    until("records after moving 80 partitions", || {
        count() > before + 320
    })
    .await?;

    stop_writing.store(true, Ordering::Relaxed);
    let written = writer.join().ok().context("the writer panicked")??;
    ensure!(written.failures.is_empty(), "{:?}", written.failures);
    ensure!(
        written.acknowledged.len() == usize::try_from(PARTITIONS)?,
        "only {} partitions were written to",
        written.acknowledged.len()
    );
    expect_in_order("acknowledgements", &written.acknowledged)?;
    let due = counts(&written.acknowledged);
    until("the lag to be 0", || count() >= due).await?;
    stop_reading.store(true, Ordering::Relaxed);
    reader.join().ok().context("the reader panicked")??;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for (partition, acknowledged) in &written.acknowledged {
        ensure!(
            seen.get(partition) == Some(acknowledged),
            "partition {partition}: what was read isn't what was acknowledged"
        );
    }
    Ok(())
}

/// O-FO-02: the old owner says who leads now (KIP-951), and takes nothing.
#[tokio::test]
async fn the_old_leader_refuses_and_names_the_new_one() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let batch = tidegate_harness::TestBatch::of_values(now_ms(), ["v"]).encode();
    let mut former = arena.client(1).await?;
    let stored = produce(&mut former, 10, &topic, 0, batch.clone()).await?;
    assert_eq!(stored.error_code, errors::NONE);
    arena.move_to(&topic, 0, 2).await?;
    // Without waiting for its metadata: it knows by the move itself.
    let refused = produce(&mut former, 10, &topic, 0, batch.clone()).await?;
    assert_eq!(refused.error_code, errors::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.base_offset, -1);
    let (leader, epoch) = arena.led_by(&topic, 0, |id| id == 2).await?;
    assert_eq!(leader, 2);
    // The hint comes with the metadata at the latest.
    let refused = produce(&mut former, 10, &topic, 0, batch.clone()).await?;
    let hint = &refused.current_leader;
    assert_eq!((hint.leader_id.0, hint.leader_epoch), (2, epoch));
    // Nothing of what was refused is stored.
    let next = arena.produce(&topic, 0, &batch).await?;
    assert_eq!((next.error_code, next.base_offset), (errors::NONE, 1));
    Ok(())
}
