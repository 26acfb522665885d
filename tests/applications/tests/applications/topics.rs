//! What the tests themselves write and read, with librdkafka.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);

/// Creates topics with so many partitions.
pub(crate) fn create(brokers: &str, topics: &[(String, u32)]) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .create()?;
    let wanted = topics
        .iter()
        .map(|(name, partitions)| {
            let partitions = i32::try_from(*partitions)?;
            Ok(NewTopic::new(name, partitions, TopicReplication::Fixed(3)))
        })
        .collect::<Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for created in runtime.block_on(admin.create_topics(&wanted, &options))? {
        created.map_err(|(topic, code)| anyhow::anyhow!("creating {topic}: {code}"))?;
    }
    Ok(())
}

/// An idempotent producer that writes numbered lines, a few each 10 ms, until it is told to stop.
pub(crate) struct Feed {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl Feed {
    /// Starts it; `line` makes the text of a number.
    pub(crate) fn start(
        brokers: &str,
        topic: &str,
        line: impl Fn(u64) -> String + Send + 'static,
    ) -> Result<Self> {
        let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("message.timeout.ms", "120000")
            .create()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, topic) = (Arc::clone(&stop), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let mut lines = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..3 {
                    let text = line(u64::try_from(lines.len())?);
                    let record: BaseRecord<'_, (), String> = BaseRecord::to(&topic).payload(&text);
                    producer.send(record).map_err(|(error, _)| error)?;
                    lines.push(text);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            producer
                .flush(2 * PATIENCE)
                .context("not all lines were acknowledged")?;
            Ok(lines)
        });
        Ok(Self { stop, thread })
    }

    /// Stops it, and gives all lines; each is acknowledged.
    pub(crate) fn finish(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the producer panicked")?
    }
}

/// A committed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) partition: i32,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// All that a `read_committed` reader sees of `topic`, up to where each partition ends now.
pub(crate) fn read_committed(
    brokers: &str,
    topic: &str,
    partitions: u32,
) -> Result<Vec<Committed>> {
    let client: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "assigned-by-hand")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()?;
    let deadline = Instant::now() + PATIENCE;
    let mut assignment = TopicPartitionList::new();
    let mut ends = BTreeMap::new();
    for partition in 0..i32::try_from(partitions)? {
        assignment.add_partition_offset(topic, partition, Offset::Offset(0))?;
        ends.insert(partition, end(&client, topic, partition, deadline)?);
    }
    client.assign(&assignment)?;
    let mut records = Vec::new();
    // One that others write to need never be read to its end: what it had in the beginning is enough.
    let mut ended = BTreeSet::new();
    while ended.len() < usize::try_from(partitions)? {
        match client.poll(Duration::from_millis(200)) {
            None => {}
            Some(Ok(message)) => {
                let text = |bytes: Option<&[u8]>| {
                    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
                };
                if message.offset() + 1 >= ends[&message.partition()] {
                    ended.insert(message.partition());
                }
                records.push(Committed {
                    partition: message.partition(),
                    key: text(message.key()),
                    value: text(message.payload()),
                });
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(
                    code @ (RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset),
                ) => {
                    bail!("the reader of {topic} was told {code}")
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            },
        }
        ensure!(
            Instant::now() < deadline,
            "{topic}: only {ended:?} were read to their ends"
        );
    }
    Ok(records)
}

/// The end of a partition as `client` may read it.
fn end(client: &BaseConsumer, topic: &str, partition: i32, deadline: Instant) -> Result<i64> {
    loop {
        match client.fetch_watermarks(topic, partition, Duration::from_secs(5)) {
            Ok((_, end)) => return Ok(end),
            Err(error) => ensure!(
                Instant::now() < deadline,
                "the end of {topic} {partition} isn't told: {error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until `topic` holds `count` committed records or more.
pub(crate) fn wait_for_records(
    brokers: &str,
    topic: &str,
    partitions: u32,
    count: usize,
    limit: Duration,
) -> Result<Vec<Committed>> {
    let deadline = Instant::now() + limit;
    loop {
        let records = read_committed(brokers, topic, partitions)?;
        if records.len() >= count {
            return Ok(records);
        }
        ensure!(
            Instant::now() < deadline,
            "{topic} has {} of {count} records after {limit:?}",
            records.len()
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}
