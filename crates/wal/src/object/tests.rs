//! The object WAL over a store with scripted faults, in simulated time.

mod chaos;
mod fencing;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tidegate_object_storage::testing::ScriptedStore;
use tidegate_object_storage::{
    ObjectKey, ObjectStorage, Operation, PutOutcome, RequestClass, StoreError, StoreOptions,
    StoreSeams,
};
use tidegate_runtime::{Random, SystemClock, Tasks};
use tidegate_segment_format::{ByteRange, WriterIdentity};
use tidegate_types::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex,
    TimestampMs, TopicId,
};

use super::{
    CreateOutcome, FencedWriter, LogObjectName, LogWriter, ObjectLogStore, ObjectWal,
    ObjectWalMetrics, ObjectWalOptions, ObjectWalSeams, RecoveryError, StoreFailure, WrittenObject,
    WrittenSink, fence_and_collect,
};
use crate::{AppendObserver, AppendRefused, Appended, Entry, Location, Wal, WalFailure};

/// Joins the WAL to the object storage, as the broker does.
struct Joined(ObjectStorage);

fn key(name: LogObjectName) -> ObjectKey {
    ObjectKey::data(name.broker, name.broker_epoch, name.sequence)
}

fn failure(error: StoreError) -> StoreFailure {
    StoreFailure(Arc::new(error))
}

#[async_trait]
impl ObjectLogStore for Joined {
    async fn create(
        &self,
        name: LogObjectName,
        payload: Vec<Bytes>,
    ) -> Result<CreateOutcome, StoreFailure> {
        match self.0.put_create(&key(name), payload).await {
            Ok(PutOutcome::Created) => Ok(CreateOutcome::Created),
            Ok(PutOutcome::AlreadyExists) => Ok(CreateOutcome::AlreadyExists),
            Err(error) => Err(failure(error)),
        }
    }

    async fn read_tail(
        &self,
        name: LogObjectName,
        length: u64,
    ) -> Result<Option<(Bytes, u64)>, StoreFailure> {
        match self.0.get_tail(&key(name), length).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    async fn read_range(
        &self,
        name: LogObjectName,
        range: ByteRange,
    ) -> Result<Bytes, StoreFailure> {
        let range = range.position..range.end();
        self.0.get_range(&key(name), range).await.map_err(failure)
    }

    async fn accessible_again(&self) {
        let mut health = self.0.health();
        if !health.borrow().is_accessible() && health.wait_for(|h| h.is_accessible()).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// What the observers and the sink heard, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Written(u64),
    Durable {
        partition: u32,
        start: u64,
        sequence: u64,
    },
    Fenced {
        partition: u32,
        start: u64,
    },
    Closed {
        partition: u32,
        start: u64,
    },
}

#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<Heard>>,
    locations: Mutex<Vec<(Location, Bytes)>>,
}

impl WrittenSink for Ear {
    fn written(&self, object: WrittenObject) {
        self.heard
            .lock()
            .push(Heard::Written(object.object.sequence));
    }
}

struct Observer {
    ear: Arc<Ear>,
    partition: u32,
    start: u64,
    batches: Bytes,
}

impl AppendObserver for Observer {
    fn durable(&self, appended: Appended) {
        assert_eq!(appended.range.start().get(), self.start);
        let Location::Object { object, .. } = &appended.location else {
            panic!("an object WAL's entries lie in objects");
        };
        self.ear.heard.lock().push(Heard::Durable {
            partition: self.partition,
            start: self.start,
            sequence: object.sequence,
        });
        self.ear
            .locations
            .lock()
            .push((appended.location, self.batches.clone()));
    }

    fn failed(&self, failure: &WalFailure) {
        let (partition, start) = (self.partition, self.start);
        self.ear.heard.lock().push(match failure {
            WalFailure::Fenced { .. } => Heard::Fenced { partition, start },
            WalFailure::Closed => Heard::Closed { partition, start },
            other => panic!("{other}"),
        });
    }
}

/// One process: a WAL and what it tells.
struct Process {
    wal: ObjectWal,
    ear: Arc<Ear>,
    storage: ObjectStorage,
}

const BROKER: u32 = 1;
const EPOCH: BrokerEpoch = BrokerEpoch::new(5);

fn broker(id: u32) -> BrokerId {
    BrokerId::from_wire(i32::try_from(id).unwrap()).unwrap()
}

fn name(sequence: u64) -> LogObjectName {
    LogObjectName {
        broker: broker(BROKER),
        broker_epoch: EPOCH,
        sequence,
    }
}

fn storage(store: &ScriptedStore, seed: u64) -> ObjectStorage {
    let seams = StoreSeams {
        clock: SystemClock::shared(),
        random: Random::seeded(seed),
        tasks: Tasks::new("test"),
    };
    ObjectStorage::from_store(
        Arc::new(store.clone()),
        "bucket",
        StoreOptions::default(),
        &seams,
        &mut Registry::default(),
    )
    .with_class(RequestClass::Wal)
}

fn start_with(store: &ScriptedStore, options: ObjectWalOptions, seed: u64) -> Process {
    let ear = Arc::new(Ear::default());
    let storage = storage(store, seed);
    let writer = LogWriter {
        broker: broker(BROKER),
        broker_epoch: EPOCH,
        first_sequence: 0,
    };
    let seams = ObjectWalSeams {
        store: Arc::new(Joined(storage.clone())),
        clock: SystemClock::shared(),
        random: Random::seeded(seed + 1000),
        tasks: Tasks::new("test"),
        metrics: ObjectWalMetrics::default(),
    };
    let sink: Arc<dyn WrittenSink> = Arc::<Ear>::clone(&ear);
    let wal = ObjectWal::start(writer, options, sink, seams).unwrap();
    Process { wal, ear, storage }
}

fn start(store: &ScriptedStore) -> Process {
    start_with(store, ObjectWalOptions::default(), 1)
}

fn partition(index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId::from_bytes([7; 16]).unwrap(),
        index: PartitionIndex::new(index).unwrap(),
    }
}

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(Offset::new(start).unwrap(), Offset::new(end).unwrap()).unwrap()
}

fn entry(index: u32, start: u64, bytes: usize) -> Entry {
    let fill = u8::try_from((start * 7 + u64::from(index)) % 251).unwrap();
    Entry {
        partition: partition(index),
        leader_epoch: LeaderEpoch::FIRST,
        range: range(start, start + 1),
        batches: Bytes::from(vec![fill; bytes]),
        max_timestamp: TimestampMs::new(1),
        record_count: 1,
        checkpoint: None,
    }
}

impl Process {
    fn append_entry(&self, entry: Entry) -> Result<(), AppendRefused> {
        let observer = Observer {
            ear: Arc::clone(&self.ear),
            partition: entry.partition.index.get(),
            start: entry.range.start().get(),
            batches: entry.batches.clone(),
        };
        self.wal.append(entry, Arc::new(observer))
    }

    fn append(&self, index: u32, start: u64) {
        self.append_entry(entry(index, start, 100)).unwrap();
    }

    fn heard(&self) -> Vec<Heard> {
        self.ear.heard.lock().clone()
    }

    /// First offsets of partition 0 that were acknowledged, in order.
    fn durable(&self) -> Vec<u64> {
        let of_one = |heard: &Heard| match heard {
            Heard::Durable {
                partition: 0,
                start,
                ..
            } => Some(*start),
            _ => None,
        };
        self.heard().iter().filter_map(of_one).collect()
    }

    fn fenced(&self) -> Vec<u64> {
        let of_one = |heard: &Heard| match heard {
            Heard::Fenced {
                partition: 0,
                start,
            } => Some(*start),
            _ => None,
        };
        self.heard().iter().filter_map(of_one).collect()
    }

    async fn until_durable(&self, count: usize) {
        let wait = async {
            while self.durable().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(120), wait).await;
        assert!(
            waited.is_ok(),
            "durable after two minutes: {:?}",
            self.durable()
        );
    }

    /// Every acknowledged entry's bytes are where its location says.
    async fn check_locations(&self) {
        let locations = self.ear.locations.lock().clone();
        for (location, batches) in locations {
            let Location::Object {
                object,
                position,
                length,
            } = location
            else {
                panic!("an object WAL's entries lie in objects");
            };
            let key = ObjectKey::data(object.broker, object.broker_epoch, object.sequence);
            let stored = self.storage.get_range(&key, position..position + length);
            assert_eq!(stored.await.unwrap(), batches);
            assert_eq!(
                self.storage.head(&key).await.unwrap(),
                Some(object.size_bytes)
            );
        }
    }
}

async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn puts(store: &ScriptedStore) -> usize {
    store.seen(Operation::Put).len()
}

async fn recover(store: &ScriptedStore, who: u32) -> Result<FencedWriter, RecoveryError> {
    let joined = Joined(storage(store, 100 + u64::from(who)));
    let me = WriterIdentity {
        broker: broker(who),
        broker_epoch: BrokerEpoch::new(9),
        sequence: 0,
        nonce: u64::from(who),
    };
    fence_and_collect(&joined, broker(BROKER), EPOCH, 0, me).await
}

/// The offsets of partition `index` in recovered objects, which must follow each other.
fn offsets(fenced: &FencedWriter, index: u32) -> Vec<u64> {
    let mut all = Vec::new();
    for object in &fenced.objects {
        for segment in object
            .segments
            .iter()
            .filter(|s| s.partition == partition(index))
        {
            all.extend(segment.range.start().get()..segment.range.end().get());
        }
    }
    all
}
