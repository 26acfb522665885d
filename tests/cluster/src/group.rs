//! A consumer group whose committed offsets must survive everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

const GROUP: &str = "survivors";

/// The greatest offset of each partition whose commit was acknowledged.
type Committed = BTreeMap<i32, i64>;

/// One member that reads, and commits what it has read.
pub struct GroupMember {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Committed>>,
    brokers: String,
    topic: String,
}

impl GroupMember {
    /// Joins the group.
    pub fn start(brokers: &str, topic: &str) -> Result<Self> {
        let client = client(brokers)?;
        client.subscribe(&[topic])?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, name) = (Arc::clone(&stop), topic.to_owned());
        let thread = std::thread::Builder::new()
            .name("group-member".into())
            .spawn(move || read_and_commit(&client, &name, &stopping))?;
        Ok(Self {
            stop,
            thread,
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
        })
    }

    /// Leaves, and checks that no acknowledged commit is lost. Answers how many partitions had one.
    pub fn finish(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let committed = self
            .thread
            .join()
            .ok()
            .context("the group member panicked")??;
        ensure!(!committed.is_empty(), "no commit was ever acknowledged");
        let client = client(&self.brokers)?;
        let mut wanted = TopicPartitionList::new();
        for partition in committed.keys() {
            wanted.add_partition(&self.topic, *partition);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = loop {
            match client.committed_offsets(wanted.clone(), Duration::from_secs(5)) {
                Ok(found) => break found,
                Err(error) => ensure!(Instant::now() < deadline, "offsets can't be read: {error}"),
            }
        };
        for (partition, acknowledged) in &committed {
            let offset = found
                .find_partition(&self.topic, *partition)
                .map(|element| element.offset());
            let kept = matches!(offset, Some(Offset::Offset(found)) if found >= *acknowledged);
            ensure!(
                kept,
                "partition {partition}: {acknowledged} was committed, {offset:?} is found"
            );
        }
        Ok(committed.len())
    }
}

fn client(brokers: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "10000")
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "200")
        .set_log_level(rdkafka::config::RDKafkaLogLevel::Emerg)
        .create()?)
}

fn read_and_commit(client: &BaseConsumer, topic: &str, stop: &AtomicBool) -> Result<Committed> {
    let mut committed = Committed::new();
    let mut read = Committed::new();
    let mut last_commit = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Some(Ok(message)) = client.poll(Duration::from_millis(20)) {
            read.insert(message.partition(), message.offset() + 1);
        }
        if last_commit.elapsed() < Duration::from_millis(200) || read.is_empty() {
            continue;
        }
        last_commit = Instant::now();
        let mut offsets = TopicPartitionList::new();
        for (partition, next) in &read {
            offsets.add_partition_offset(topic, *partition, Offset::Offset(*next))?;
        }
        // A commit that fails, or whose answer is lost, promises nothing.
        if client.commit(&offsets, CommitMode::Sync).is_ok() {
            committed.extend(std::mem::take(&mut read));
        } else {
            // After a rebalance the position may go back to what is committed.
            read.clear();
        }
    }
    Ok(committed)
}
