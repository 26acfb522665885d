//! The idempotent producer: one steady writer for each partition.
//!
//! A writer has one request under way; what becomes due meanwhile goes into the next batch. A batch is sent again,
//! unchanged, until it is acknowledged, so that the broker's memory of its sequence number keeps it single (KIP-98).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use tidegate_record_batch::{BatchBuilder, Codec, ProducerIdentity, TimestampType};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::kafka::{Cluster, Leader, Verdict};
use super::ledger::Ledger;

/// The last version that names topics, with hints of the new leader (KIP-951).
const PRODUCE_VERSION: i16 = 12;
const REQUEST_TIMEOUT_MS: i32 = 5_000;
/// Before a batch is sent again and there was no hint.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Records of one batch.
const MAX_BATCH: u64 = 1_000;

/// What is written.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two records of one partition.
    pub interval: Duration,
    /// Of each record's value; a record's number takes 8 of them.
    pub record_bytes: usize,
}

/// The writers of all partitions.
#[derive(Debug)]
pub struct Producer {
    stop: watch::Sender<bool>,
    tasks: Tasks,
}

impl Producer {
    /// Starts writing to all partitions of the ledger.
    pub fn start(
        cluster: &Arc<Cluster>,
        ledger: &Arc<Ledger>,
        pace: Pace,
        identity: (i64, i16),
        tasks: &Tasks,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let tasks = tasks.child("producer");
        for partition in ledger.partitions() {
            let writer = Writer {
                cluster: Arc::clone(cluster),
                ledger: Arc::clone(ledger),
                partition,
                identity,
                pace,
            };
            let (token, stopping) = (tasks.token().clone(), stopping.clone());
            tasks.spawn("writer", OnExit::Expected, async move {
                // Cancel-safe: only a demo that is given up is cancelled.
                tokio::select! {
                    () = token.cancelled() => {}
                    () = writer.write(stopping) => {}
                }
            });
        }
        Self { stop, tasks }
    }

    /// Writes nothing new, and waits until what was sent is acknowledged. Answers how many partitions' last batches
    /// aren't, after `patience`.
    pub async fn finish(self, patience: Duration) -> usize {
        self.stop.send_replace(true);
        let deadline = Instant::now() + patience;
        while self.tasks.running() > 0 && Instant::now() < deadline {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        self.tasks.running()
    }
}

struct Writer {
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    partition: u32,
    identity: (i64, i16),
    pace: Pace,
}

/// What became of one attempt.
enum Attempt {
    /// Stored, as a broker says.
    Stored {
        by: i32,
    },
    /// Another broker leads now, and is known.
    Elsewhere,
    Again,
}

impl Writer {
    async fn write(self, mut stopping: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.pace.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();
        let mut next = 0;
        loop {
            // Cancel-safe: a tick that isn't waited for comes again.
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
            }
            let due = begun.elapsed().as_nanos() / self.pace.interval.as_nanos().max(1);
            let due = u64::try_from(due).unwrap_or(u64::MAX);
            let count = due.saturating_sub(next).min(MAX_BATCH);
            if count == 0 {
                continue;
            }
            let Some(batch) = self.batch(next, count) else {
                let partition = self.partition;
                self.ledger
                    .fail(format!("a batch for partition {partition} can't be made"));
                return;
            };
            match self.store(batch).await {
                Some(by) => self.ledger.acknowledge(self.partition, count, by),
                None => return,
            }
            next += count;
        }
    }

    /// The records numbered from `first`, as one batch.
    fn batch(&self, first: u64, count: u64) -> Option<Bytes> {
        let (id, epoch) = self.identity;
        let producer = ProducerIdentity {
            id: ProducerId::from_wire(id)?,
            epoch: ProducerEpoch::from_wire(epoch)?,
            first_sequence: Some(Sequence::from_wire(i32::try_from(first % (1 << 31)).ok()?)?),
        };
        let timestamp = TimestampMs::new(wall_ms());
        let mut builder = BatchBuilder::new(
            Offset::ZERO,
            Codec::None,
            TimestampType::CreateTime,
            Some(producer),
            false,
        );
        let mut value = vec![b'~'; self.pace.record_bytes.max(8)];
        for number in first..first + count {
            value[..8].copy_from_slice(&number.to_be_bytes());
            builder.push(timestamp, None, Some(&value), &[]);
        }
        builder.finish().ok().map(bytes::BytesMut::freeze)
    }

    /// Sends a batch until it is stored. Answers who stored it; `None` after an error that is final.
    async fn store(&self, batch: Bytes) -> Option<u32> {
        loop {
            match self.attempt(batch.clone()).await {
                Ok(Attempt::Stored { by }) => return Some(by.unsigned_abs()),
                Ok(Attempt::Elsewhere) => {}
                Ok(Attempt::Again) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    self.cluster.refresh().await;
                }
                Err(failure) => {
                    self.ledger.fail(failure);
                    return None;
                }
            }
        }
    }

    async fn attempt(&self, batch: Bytes) -> Result<Attempt, String> {
        let partition = i32::try_from(self.partition).unwrap_or(i32::MAX);
        let Some(leader) = self.cluster.leader(partition) else {
            return Ok(Attempt::Again);
        };
        let Some(address) = self.cluster.address(leader.broker) else {
            return Ok(Attempt::Again);
        };
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch));
        let data = TopicProduceData::default()
            .with_name(self.cluster.topic().clone())
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(REQUEST_TIMEOUT_MS)
            .with_topic_data(vec![data]);
        let connection = self.cluster.connection(&address);
        match connection.call(PRODUCE_VERSION, &request).await {
            Ok(answer) => self.judge(partition, leader, answer),
            Err(_) => Ok(Attempt::Again),
        }
    }

    fn judge(
        &self,
        partition: i32,
        asked: Leader,
        answer: ProduceResponse,
    ) -> Result<Attempt, String> {
        let endpoints = answer.node_endpoints.into_iter();
        let endpoints = endpoints.map(|broker| {
            let address = format!("{}:{}", broker.host.as_str(), broker.port);
            (broker.node_id.0, address)
        });
        let topics = answer.responses.into_iter();
        let Some(part) = topics.flat_map(|topic| topic.partition_responses).next() else {
            return Ok(Attempt::Again);
        };
        match Verdict::of(part.error_code) {
            Verdict::Fine | Verdict::StoredBefore => Ok(Attempt::Stored { by: asked.broker }),
            Verdict::Passing => {
                let leader = Leader {
                    broker: part.current_leader.leader_id.0,
                    epoch: part.current_leader.leader_epoch,
                };
                let new = self.cluster.hint(partition, leader, endpoints) && leader != asked;
                Ok(if new {
                    Attempt::Elsewhere
                } else {
                    Attempt::Again
                })
            }
            Verdict::Final(error) => Err(format!(
                "broker {} refused a batch for partition {partition}: {error}",
                asked.broker
            )),
        }
    }
}

fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
