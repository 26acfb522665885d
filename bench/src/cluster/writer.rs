//! The clients that notice: one idempotent producer that writes to every watched partition at a steady pace, and
//! a consumer that follows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::silence::Answers;
use crate::client::{Cluster, Complaints};
use crate::payload::{STAMP_BYTES, stamp};
use crate::recorder::{Nanos, nanos_since};

/// How many kinds of failure are told apart.
const ERROR_KINDS: usize = 16;
/// Bits of an opaque pointer that hold a record's number; the partition is above them.
const NUMBER_BITS: u32 = 40;

const _: () = assert!(
    usize::BITS == 64,
    "partition and number travel through the client library as one opaque pointer"
);

/// What one partition's writer knows.
#[derive(Clone, Debug, Default)]
pub struct Track {
    pub answers: Answers,
    /// By number: whether the record was acknowledged.
    pub acknowledged: Vec<bool>,
}

/// What has been acknowledged (or has arrived), of every partition.
pub struct Watch {
    pub origin: Instant,
    tracks: Vec<Mutex<Track>>,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Watch {
    fn new(origin: Instant, partitions: i32) -> Arc<Self> {
        Arc::new(Self {
            origin,
            tracks: (0..partitions).map(|_| Mutex::default()).collect(),
            errors: Mutex::default(),
        })
    }

    pub fn now(&self) -> Nanos {
        nanos_since(self.origin)
    }

    /// Looks at one partition.
    pub fn track(&self, partition: usize) -> MutexGuard<'_, Track> {
        self.tracks[partition]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn partitions(&self) -> usize {
        self.tracks.len()
    }

    /// Of each partition, its longest silence that touches `from..until`.
    pub fn silences(&self, from: Nanos, until: Nanos) -> Vec<Nanos> {
        (0..self.partitions())
            .map(|partition| self.track(partition).answers.longest_silence(from, until))
            .collect()
    }

    /// Waits until every partition has had an answer after `since`; answers how many haven't.
    pub fn await_answers(&self, since: Nanos, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        loop {
            let silent = (0..self.partitions())
                .filter(|partition| {
                    let last = self.track(*partition).answers.last();
                    last.is_none_or(|last| last <= since)
                })
                .count();
            if silent == 0 || Instant::now() >= deadline {
                return silent;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn fail(&self, kind: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERROR_KINDS || errors.contains_key(&kind) {
            *errors.entry(kind).or_default() += 1;
        }
    }
}

/// Receives the acknowledgements.
struct WriterContext {
    watch: Arc<Watch>,
    complaints: Complaints,
}

impl ClientContext for WriterContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.error(error, reason);
    }
}

impl ProducerContext for WriterContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let (partition, number) = (
            opaque >> NUMBER_BITS,
            opaque & ((1_usize << NUMBER_BITS) - 1),
        );
        match result {
            Ok(_) => {
                let now = self.watch.now();
                let mut track = self.watch.track(partition);
                track.answers.note(now);
                if track.acknowledged.len() <= number {
                    track.acknowledged.resize(number + 1, false);
                }
                track.acknowledged[number] = true;
            }
            Err((error, _)) => self.watch.fail(
                error
                    .rdkafka_error_code()
                    .map_or_else(|| error.to_string(), |code| code.to_string()),
            ),
        }
    }
}

/// What is written.
#[derive(Clone)]
pub struct WritePlan {
    pub topic: String,
    pub partitions: i32,
    /// Between two records of one partition.
    pub interval: Duration,
    pub record_bytes: u64,
    /// Written into every record; tells this run's from others.
    pub mark: u64,
}

/// The producer with its sending thread.
pub struct Writers {
    pub watch: Arc<Watch>,
    producer: Arc<ThreadedProducer<WriterContext>>,
    thread: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    /// Records handed to the producer, of each partition.
    sent: Arc<AtomicU64>,
    pub complaints: Complaints,
}

impl Writers {
    /// Starts writing at once.
    pub fn start(cluster: &Cluster, plan: &WritePlan, origin: Instant) -> Result<Self> {
        let watch = Watch::new(origin, plan.partitions);
        let complaints = Complaints::default();
        let context = WriterContext {
            watch: Arc::clone(&watch),
            complaints: complaints.clone(),
        };
        let producer: ThreadedProducer<WriterContext> = cluster
            .writer_config()
            .create_with_context(context)
            .context("the producer refused its configuration")?;
        let producer = Arc::new(producer);
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let thread = {
            let (producer, stop, sent) =
                (Arc::clone(&producer), Arc::clone(&stop), Arc::clone(&sent));
            let plan = plan.clone();
            std::thread::Builder::new()
                .name("writer".to_owned())
                .spawn(move || write(&producer, &plan, &stop, &sent))
                .context("could not start the writing thread")?
        };
        Ok(Self {
            watch,
            producer,
            thread,
            stop,
            sent,
            complaints,
        })
    }

    /// Stops writing and waits for what is still out; answers how many records were sent and how many of them
    /// have neither been acknowledged nor failed.
    pub fn finish(self, patience: Duration) -> Result<(u64, u64, Arc<Watch>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the writing thread panicked")))?;
        let deadline = Instant::now() + patience;
        while self.producer.in_flight_count() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let pending = u64::try_from(self.producer.in_flight_count()).unwrap_or_default();
        Ok((self.sent.load(Ordering::Relaxed), pending, self.watch))
    }
}

/// The writing thread: records are planned evenly over partitions and time; what is late is sent at once.
fn write(
    producer: &ThreadedProducer<WriterContext>,
    plan: &WritePlan,
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> Result<()> {
    let size = usize::try_from(plan.record_bytes)?.max(STAMP_BYTES + 4);
    let mut value = vec![b'x'; size];
    let step = plan.interval / plan.partitions.unsigned_abs();
    let mut due = Instant::now();
    for number in 0_u64.. {
        for partition in 0..plan.partitions {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            due += step;
            stamp(&mut value, plan.mark, number);
            value[STAMP_BYTES..STAMP_BYTES + 4].copy_from_slice(&partition.to_le_bytes());
            let opaque = (usize::try_from(partition)? << NUMBER_BITS) | usize::try_from(number)?;
            let record = BaseRecord::<(), [u8], usize>::with_opaque_to(&plan.topic, opaque)
                .payload(value.as_slice())
                .partition(partition);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .context("could not hand a record to the producer")?;
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A consumer that follows the watched partitions; its watch holds the times of arrival.
pub struct Follower {
    pub watch: Arc<Watch>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Follows from the end that the partitions have now.
    pub fn start(cluster: &Cluster, topic: &str, partitions: i32, origin: Instant) -> Result<Self> {
        let consumer: BaseConsumer<Complaints> = cluster
            .follower_config()
            .create_with_context(Complaints::default())
            .context("the consumer refused its configuration")?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::End)?;
        }
        consumer
            .assign(&list)
            .context("could not assign the partitions")?;
        let watch = Watch::new(origin, partitions);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (watch, stop) = (Arc::clone(&watch), Arc::clone(&stop));
            std::thread::Builder::new()
                .name("follower".to_owned())
                .spawn(move || follow(&consumer, &watch, &stop))
                .context("could not start the following thread")?
        };
        Ok(Self {
            watch,
            stop,
            thread,
        })
    }

    pub fn finish(self) -> Result<Arc<Watch>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the following thread panicked"))?;
        Ok(self.watch)
    }
}

fn follow(consumer: &BaseConsumer<Complaints>, watch: &Watch, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => {
                if let Ok(partition) = usize::try_from(message.partition()) {
                    let now = watch.now();
                    watch.track(partition).answers.note(now);
                }
            }
            // The library tries again by itself; a partition that stays silent shows in the figures.
            Some(Err(error)) => watch.fail(error.to_string()),
            None => {}
        }
    }
}
