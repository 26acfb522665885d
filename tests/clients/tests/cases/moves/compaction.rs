//! A compacted topic whose leaders are killed and moved while few keys are written again and again: what is left is
//! each key's last acknowledged value, at the offset at which it was acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tidegate_harness::{
    BrokerOptions, Cluster, DecodedRecord, Durability, RawClient, S3Server, Setting, Store,
    TestBatch, TestCodec, TestRecord, decode_batches,
};

use super::{Arena, PASSING, PATIENCE, PAUSE, TURN};
use crate::ops::{Topic, create, fetch, produce};
use crate::support::{errors, now_ms, text, unique};
use crate::txn::producer_id;

const KEYS: u64 = 40;
/// Of these the last record is a tombstone.
const REMOVED_KEYS: u64 = 10;
const BATCH_RECORDS: u64 = 20;
const ACTS: u32 = 6;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

type Value = Option<Bytes>;

/// What was acknowledged, by its offset.
#[derive(Debug, Default, Clone)]
struct History {
    records: BTreeMap<i64, (Bytes, Value)>,
    bytes: usize,
}

impl History {
    fn last_of(&self, key: &Bytes) -> Option<(i64, &Value)> {
        let mut newest_first = self.records.iter().rev();
        let found = newest_first.find(|(_, (other, _))| other == key);
        found.map(|(offset, (_, value))| (*offset, value))
    }

    fn was_removed_behind(&self, key: &Bytes, offset: i64) -> bool {
        let mut behind = self.records.range(offset..);
        behind.any(|(_, (other, value))| other == key && value.is_none())
    }
}

/// An idempotent producer, one batch at a time, that asks one broker after the other until it is answered.
struct Writer {
    addresses: Vec<String>,
    topic: Topic,
    producer: (i64, i16),
    next_sequence: i32,
    codec: TestCodec,
    history: Arc<Mutex<History>>,
}

impl Writer {
    async fn write(&mut self, records: Vec<(Bytes, Value)>) -> Result<()> {
        let batch = TestBatch {
            records: records
                .iter()
                .map(|(key, value)| TestRecord {
                    timestamp_ms: now_ms(),
                    key: Some(key.clone()),
                    value: value.clone(),
                })
                .collect(),
            codec: self.codec,
            producer: (self.producer.0, self.producer.1, self.next_sequence),
            attribute_bits: 0,
        };
        let bytes = batch.encode();
        let base = self.store(&bytes).await?;
        self.next_sequence += i32::try_from(records.len())?;
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.bytes += bytes.len();
        for (offset, record) in (base..).zip(records) {
            history.records.insert(offset, record);
        }
        Ok(())
    }

    /// The batch's base offset. A retry of a batch that is there already is answered with the same.
    async fn store(&self, batch: &Bytes) -> Result<i64> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for address in &self.addresses {
                let asked = async {
                    let mut client = RawClient::connect(address).await?;
                    produce(&mut client, 9, &self.topic, 0, batch.clone()).await
                };
                match tokio::time::timeout(ANSWER_LIMIT, asked).await {
                    Ok(Ok(answer)) if answer.error_code == errors::NONE => {
                        return Ok(answer.base_offset);
                    }
                    // UNKNOWN_TOPIC_OR_PARTITION: that broker hasn't heard of it yet.
                    Ok(Ok(answer)) if answer.error_code == 3 => {}
                    Ok(Ok(answer)) => ensure!(
                        PASSING.contains(&answer.error_code),
                        "produce answered {}",
                        answer.error_code
                    ),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            ensure!(Instant::now() < deadline, "nobody takes records");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Batches of all keys in turn until it is told to stop; every fifth record removes its key.
    async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Self> {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let records = (number..number + BATCH_RECORDS).map(|number| {
                let value = (number % 5 != 0).then(|| value_of(number));
                (key_of(number * 7 % KEYS), value)
            });
            self.write(records.collect()).await?;
            number += BATCH_RECORDS;
        }
        Ok(self)
    }
}

fn key_of(number: u64) -> Bytes {
    Bytes::from(format!("key-{number:03}"))
}

fn value_of(number: u64) -> Bytes {
    Bytes::from(format!("value-{number:06}-{}", "x".repeat(200)))
}

/// Everything from the first record to the end as it is then, and how many bytes that was.
async fn read(addresses: &[String], topic: &Topic) -> Result<(Vec<DecodedRecord>, usize)> {
    let (mut records, mut bytes, mut next) = (Vec::new(), 0, 0);
    let deadline = Instant::now() + PATIENCE;
    loop {
        for address in addresses {
            let asked = async {
                let mut client = RawClient::connect(address).await?;
                fetch(&mut client, 11, topic, 0, next).await
            };
            let Ok(Ok(data)) = tokio::time::timeout(ANSWER_LIMIT, asked).await else {
                continue;
            };
            if data.error_code != errors::NONE {
                continue;
            }
            let answered = data.records.unwrap_or_default();
            bytes += answered.len();
            for batch in decode_batches(answered)? {
                ensure!(batch.end_offset > next, "a batch comes twice");
                let wanted = batch.records.into_iter().filter(|r| r.offset >= next);
                records.extend(wanted);
                next = batch.end_offset;
            }
            if next >= data.high_watermark {
                return Ok((records, bytes));
            }
        }
        ensure!(Instant::now() < deadline, "reading stands still at {next}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a reader saw between two moments, of which the history is known.
fn check(seen: &[DecodedRecord], before: &History, after: &History) -> Result<()> {
    let mut last = BTreeMap::new();
    let mut previous = -1;
    for record in seen {
        ensure!(record.offset > previous, "offsets go back");
        previous = record.offset;
        let key = record.key.clone().context("a record without a key")?;
        match after.records.get(&record.offset) {
            Some((written_key, written_value)) => ensure!(
                (written_key, written_value) == (&key, &record.value),
                "another record is at {}: {key:?}",
                record.offset
            ),
            // Stored, and its answer is still on its way or lost.
            None => ensure!(
                after.records.keys().all(|offset| *offset < record.offset),
                "nobody wrote what is at {}",
                record.offset
            ),
        }
        last.insert(key, record.offset);
    }
    let keys = (0..KEYS).map(key_of);
    for key in keys {
        let Some((offset, value)) = before.last_of(&key) else {
            continue;
        };
        match last.get(&key) {
            Some(seen) => ensure!(*seen >= offset, "{key:?} is as of {seen}, not {offset}"),
            None => ensure!(
                value.is_none() || after.was_removed_behind(&key, offset),
                "{key:?}, acknowledged at {offset}, is lost"
            ),
        }
    }
    Ok(())
}

/// A cluster with a compacted topic.
struct Case {
    arena: Arena,
    topic: Topic,
    addresses: Vec<String>,
    history: Arc<Mutex<History>>,
}

impl Case {
    async fn start(durability: Durability) -> Result<Self> {
        let turn = TURN.lock().await;
        let s3 = S3Server::start_with_bucket("compaction")?;
        let options = BrokerOptions::default()
            .tidegate_only()
            .durability(durability)
            .store(Store::S3 {
                endpoint: s3.address(),
                bucket: "compaction".into(),
                prefix: "cluster".into(),
            })
            .set(Setting::Balance, false)
            .set(Setting::UploadAgeMs, 300)
            .set(Setting::CompactionCheckMs, 200)
            .set(Setting::CompactionMinDirtyBytes, 1024);
        let mut arena = Arena {
            cluster: Cluster::start(3, &options)?,
            _s3: s3,
            _turn: turn,
        };
        let configs = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.1"),
            ("delete.retention.ms", "300"),
        ];
        let configs = configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
        });
        let wanted = CreatableTopic::default()
            .with_name(TopicName(text(&unique("compacted"))))
            .with_num_partitions(1)
            .with_replication_factor(3)
            .with_configs(configs.collect());
        let topic = create(&mut arena.client(1).await?, wanted).await?;
        let brokers = arena.cluster.brokers().iter();
        let addresses = brokers.map(|broker| broker.bootstrap()).collect();
        Ok(Self {
            arena,
            topic,
            addresses,
            history: Arc::default(),
        })
    }

    async fn writer(&mut self, codec: TestCodec) -> Result<Writer> {
        Ok(Writer {
            addresses: self.addresses.clone(),
            topic: Topic {
                name: self.topic.name.clone(),
                id: self.topic.id,
            },
            producer: producer_id(&mut self.arena.client(1).await?).await?,
            next_sequence: 0,
            codec,
            history: self.history.clone(),
        })
    }

    fn history(&self) -> History {
        let history = self.history.lock();
        history.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read_and_check(&self) -> Result<(Vec<DecodedRecord>, usize)> {
        let before = self.history();
        let (seen, bytes) = read(&self.addresses, &self.topic).await?;
        check(&seen, &before, &self.history())?;
        Ok((seen, bytes))
    }

    /// Kills the leader, or moves the partition to the next broker.
    async fn act(&mut self, number: u32) -> Result<()> {
        let (leader, _) = self.arena.led_by(&self.topic, 0, |_| true).await?;
        if number.is_multiple_of(2) {
            let broker = self.arena.cluster.broker(leader)?;
            broker.kill()?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            broker.launch()?;
            broker.wait_ready(PATIENCE)
        } else {
            self.arena.move_to(&self.topic, 0, leader % 3 + 1).await
        }
    }

    /// Writes to a key of its own, so that there is always something to compact, until nothing is left of the others but
    /// their last values.
    async fn converge(&self, writer: &mut Writer) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let beat = (Bytes::from_static(b"beat"), Some(value_of(0)));
            writer.write(vec![beat; 5]).await?;
            let (seen, bytes) = self.read_and_check().await?;
            let mut keys: Vec<Bytes> = seen.into_iter().filter_map(|r| r.key).collect();
            keys.retain(|key| key != "beat");
            keys.sort();
            let expected: Vec<Bytes> = (REMOVED_KEYS..KEYS).map(key_of).collect();
            if keys == expected {
                return Ok(bytes);
            }
            if Instant::now() > deadline {
                bail!("{} records are left: {keys:?}", keys.len());
            }
            tokio::time::sleep(PAUSE * 5).await;
        }
    }
}

async fn survives_kills_and_moves(durability: Durability, codec: TestCodec) -> Result<()> {
    let mut case = Case::start(durability).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = case.writer(codec).await?;
    let writing = tokio::spawn(writer.run(stop.clone()));
    for number in 0..ACTS {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        case.act(number)
            .await
            .with_context(|| format!("act {number}"))?;
        case.read_and_check()
            .await
            .with_context(|| format!("after act {number}"))?;
    }
    stop.store(true, Ordering::Relaxed);
    let mut writer = writing.await??;
    let last = (0..KEYS).map(|key| {
        let value = (key >= REMOVED_KEYS).then(|| value_of(1_000_000 + key));
        (key_of(key), value)
    });
    writer.write(last.collect()).await?;
    let before = case.history();
    let left = case.converge(&mut writer).await?;
    println!(
        "{durability:?}: {} records of {} bytes, {left} bytes are left",
        before.records.len(),
        before.bytes
    );
    ensure!(before.records.len() > 2_000, "the writer hardly ran");
    ensure!(
        left * 4 < before.bytes,
        "{left} bytes are left of {}",
        before.bytes
    );
    for id in 1..=3 {
        let failures = "tidegate_compaction_failures_total";
        let failures = case.arena.cluster.broker(id)?.metric(failures)?;
        assert_eq!(failures, Some(0.0), "of broker {id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_value_of_each_key_survives_kills_and_moves_in_local_mode() -> Result<()> {
    survives_kills_and_moves(Durability::Local, TestCodec::None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_value_of_each_key_survives_kills_and_moves_in_object_mode() -> Result<()> {
    survives_kills_and_moves(Durability::Object, TestCodec::Zstd).await
}
