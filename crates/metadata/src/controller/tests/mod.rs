//! The controller as its callers see it. Rules of single requests are in `rules`, `leadership` and `commits`,
//! failures of the store in `failures`, random sequences in `property`.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tidegate_runtime::ManualClock;
use tidegate_types::{
    BrokerEpoch, BrokerId, DurabilityMode, LeaderEpoch, Offset, OffsetRange, PartitionId,
    PartitionIndex, TimestampMs, TopicId, TopicName,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::*;
use crate::api::*;
use crate::model::*;
use crate::store::{MemoryOpener, StoreOpener};

mod commits;
mod failures;
mod leadership;
mod moves;
mod property;
mod property_moves;
mod quotas;
mod rules;
mod swaps;

const NOW: TimestampMs = TimestampMs::new(1_700_000_000_000);

pub(super) fn broker(id: u32) -> BrokerId {
    BrokerId::new(id).unwrap()
}

pub(super) fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(super) fn epoch(epoch: u32) -> LeaderEpoch {
    LeaderEpoch::new(epoch).unwrap()
}

pub(super) fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(offset(start), offset(end)).unwrap()
}

pub(super) fn partition(topic: TopicId, index: u32) -> PartitionId {
    PartitionId {
        topic,
        index: PartitionIndex::new(index).unwrap(),
    }
}

pub(super) fn name(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

pub(super) fn key(text: &str) -> StoredObjectKey {
    StoredObjectKey::new(text).unwrap()
}

pub(super) fn configs(pairs: &[(&str, &str)]) -> Configs {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

pub(super) fn registration(id: u32, incarnation: u128) -> RegisterBroker {
    RegisterBroker {
        broker: Some(broker(id)),
        incarnation: Uuid::from_u128(incarnation),
        kafka: Endpoint {
            host: format!("b{id}"),
            port: 9092,
        },
        internal: None,
        rack: None,
        wal: Some(wal_of(id)),
    }
}

/// The local WAL that a broker's lives run on, one after the other.
pub(super) fn wal_of(id: u32) -> WalIdentity {
    Uuid::from_u128(0x3A1_0000 + u128::from(id))
}

pub(super) fn new_topic(topic: &str, partitions: u32) -> NewTopic {
    NewTopic {
        name: name(topic),
        layout: TopicLayout::Count {
            partitions,
            replication_factor: 1,
        },
        configs: BTreeMap::new(),
    }
}

pub(super) fn segment(
    partition: PartitionId,
    leader_epoch: u32,
    range: OffsetRange,
) -> SegmentCommit {
    SegmentCommit {
        partition,
        leader_epoch: epoch(leader_epoch),
        range,
        span: ByteSpan {
            position: 64,
            length: 100,
        },
        max_timestamp: NOW,
        record_count: range.span(),
        checkpoint: Some(ByteSpan {
            position: 500,
            length: 50,
        }),
    }
}

pub(super) fn object(object: &str, segments: Vec<SegmentCommit>) -> ObjectCommit {
    ObjectCommit {
        key: key(object),
        size_bytes: 1_000,
        index: ByteSpan {
            position: 900,
            length: 80,
        },
        wal_sequence: None,
        segments,
    }
}

pub(super) fn counted_ids() -> RandomIds {
    let mut next = 0xA000_0000_u128;
    Box::new(move || {
        next += 1;
        Uuid::from_u128(next)
    })
}

/// A running controller.
pub(super) struct Running {
    pub(super) handle: ControllerHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<ControllerExit>,
}

impl Running {
    pub(super) async fn start(opener: &MemoryOpener) -> Self {
        Self::start_with(
            Arc::new(opener.clone()),
            ControllerOptions::new(broker(1)),
            0,
        )
        .await
    }

    /// `salt` makes ids of different processes differ.
    pub(super) async fn start_with(
        opener: Arc<dyn StoreOpener>,
        options: ControllerOptions,
        salt: u128,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let mut ids = counted_ids();
        let ids: RandomIds = Box::new(move || Uuid::from_u128(ids().as_u128() + (salt << 64)));
        let (handle, task) = Controller::open(
            opener,
            options,
            clock,
            ids,
            ControllerMetrics::register(&mut Registry::default()),
        )
        .await
        .unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(task.run(async {
            let _ = stopped.await;
        }));
        Self { handle, stop, task }
    }

    pub(super) async fn stop(self) -> ControllerExit {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }

    pub(super) async fn exited(self) -> ControllerExit {
        self.task.await.unwrap()
    }

    /// Says that a registered broker has no session.
    pub(super) async fn lose(&self, id: u32) {
        let brokers = self.handle.brokers().await.unwrap();
        if let Some(view) = brokers.iter().find(|view| view.id == broker(id)) {
            let dead = SetAlive {
                broker: view.id,
                broker_epoch: view.broker_epoch,
                alive: false,
            };
            self.handle.set_alive(dead).await.unwrap();
        }
    }

    /// Registers broker 1 and takes leadership.
    pub(super) async fn lead(&self, incarnation: u128) -> (BrokerEpoch, LeadershipTaken) {
        let registered = self
            .handle
            .register_broker(registration(1, incarnation))
            .await
            .unwrap();
        let taken = self
            .handle
            .take_leadership(taking(&registered))
            .await
            .unwrap();
        (registered.broker_epoch, taken)
    }

    pub(super) async fn create(&self, topic: &str, partitions: u32) -> TopicId {
        self.create_all(vec![new_topic(topic, partitions)]).await[0]
    }

    pub(super) async fn create_all(&self, topics: Vec<NewTopic>) -> Vec<TopicId> {
        let request = CreateTopics {
            topics,
            validate_only: false,
        };
        let created = self.handle.create_topics(request).await.unwrap();
        created
            .into_iter()
            .map(|topic| topic.unwrap().id.unwrap())
            .collect()
    }

    pub(super) async fn commit(
        &self,
        broker_epoch: BrokerEpoch,
        objects: Vec<ObjectCommit>,
    ) -> Result<Vec<ObjectOutcome>, CommitObjectsError> {
        self.handle
            .commit_objects(CommitObjects {
                broker: broker(1),
                broker_epoch,
                objects,
            })
            .await
    }

    pub(super) async fn state(&self, id: PartitionId) -> PartitionState {
        let states = self.handle.partition_states(vec![id]).await.unwrap();
        states[0].clone().unwrap()
    }

    pub(super) async fn ranges(&self, id: PartitionId) -> Vec<OffsetRange> {
        let query = SegmentQuery {
            partition: id,
            from: Offset::ZERO,
            limit: 1_000,
        };
        let page = self.handle.segments(query).await.unwrap();
        page.segments.into_iter().map(|s| s.range).collect()
    }

    pub(super) async fn deletable(&self, before_ms: i64) -> Vec<StoredObjectKey> {
        let query = DeletableQuery {
            dropped_before: TimestampMs::new(before_ms),
            limit: 1_000,
        };
        let found = self.handle.deletable_objects(query).await.unwrap();
        found.into_iter().map(|object| object.key).collect()
    }

    /// Lets the background drop all it can.
    pub(super) async fn settle(&self) {
        for _ in 0..200 {
            let _ = self.handle.partition_states(Vec::new()).await;
        }
    }
}

pub(super) fn taking(registered: &Registered) -> TakeLeadership {
    TakeLeadership {
        broker: broker(1),
        broker_epoch: registered.broker_epoch,
        wal: Some(wal_of(1)),
        fenced_writer: registered.former_writer.map(|w| w.broker_epoch),
        recovered: Vec::new(),
        ends: Vec::new(),
        accept_loss: false,
    }
}

pub(super) fn object_mode() -> ControllerOptions {
    ControllerOptions {
        default_durability: DurabilityMode::Object,
        ..ControllerOptions::new(broker(1))
    }
}
