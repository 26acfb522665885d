//! Consumers that read along from the start, whatever happens to the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use crate::{Mark, Seen};

struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Quiet {}

/// Running consumers, each with all partitions assigned by hand.
pub struct Readers {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Result<Vec<Seen>>>>,
}

impl Readers {
    /// Starts `count` consumers at the beginning of each partition.
    pub fn start(brokers: &str, topic: &str, partitions: i32, count: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        for consumer in 0..count {
            let client: BaseConsumer<Quiet> = ClientConfig::new()
                .set("bootstrap.servers", brokers)
                .set("group.id", "assigned-by-hand")
                .set("enable.auto.commit", "false")
                // An offset the broker doesn't know any more is a loss: it must show as an error.
                .set("auto.offset.reset", "error")
                .set("reconnect.backoff.ms", "20")
                .set("reconnect.backoff.max.ms", "200")
                .set("fetch.wait.max.ms", "100")
                .create_with_context(Quiet)?;
            let mut assignment = TopicPartitionList::new();
            for partition in 0..partitions {
                assignment.add_partition_offset(topic, partition, Offset::Offset(0))?;
            }
            client.assign(&assignment)?;
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            let read = move || read(&client, consumer, &stop, &seen);
            threads.push(
                std::thread::Builder::new()
                    .name(format!("reader-{consumer}"))
                    .spawn(read)?,
            );
        }
        Ok(Self {
            stop,
            count: seen,
            threads,
        })
    }

    /// Waits until all together have seen `count` records, then stops and gives what was seen (less after `limit`).
    pub fn finish(self, count: usize, limit: Duration) -> Result<Vec<Seen>> {
        let deadline = Instant::now() + limit;
        while self.count.load(Ordering::Relaxed) < count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut seen = Vec::new();
        for thread in self.threads {
            seen.extend(thread.join().ok().context("a reader panicked")??);
        }
        Ok(seen)
    }
}

fn read(
    client: &BaseConsumer<Quiet>,
    consumer: u32,
    stop: &AtomicBool,
    count: &AtomicUsize,
) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match client.poll(Duration::from_millis(50)) {
            None => {}
            Some(Ok(message)) => {
                count.fetch_add(1, Ordering::Relaxed);
                seen.push(Seen {
                    consumer,
                    partition: message.partition(),
                    offset: message.offset(),
                    mark: message.payload().and_then(Mark::read),
                });
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(
                    code @ (RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset),
                ) => {
                    bail!("consumer {consumer} was told {code}: what it had read is gone")
                }
                // Lost connections and elections pass.
                _ => std::thread::sleep(Duration::from_millis(20)),
            },
        }
    }
    Ok(seen)
}
