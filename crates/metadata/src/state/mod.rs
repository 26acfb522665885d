//! The controller's rules as a plain state machine: no I/O, no clock, no randomness of its own.
//!
//! A [`Command`] looks at the [`State`] and at [`Facts`] (rows that aren't held in memory), and decides: an
//! answer and [`Change`]s, or an error and no change. Changes are written as one batch; [`State::absorb`] puts
//! them into memory. Reading the rows back at the next opening goes through the same `absorb`, so what is in
//! memory and what is stored can't drift apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_types::{
    BrokerEpoch, BrokerId, DurabilityMode, Offset, PartitionId, PartitionIndex, TimestampMs,
    TopicId, TopicName,
};
use uuid::Uuid;

use crate::api::{QuotaEntity, QuotaLimits, StaleBrokerEpoch, durability_of};
use crate::image::Configs;
use crate::keys::SegmentKey;
use crate::model::{PartitionState, StoredObjectKey, WriterState};
use crate::rows::{
    BrokerRow, DeletedTopicRow, ObjectRow, PartitionRow, ProducerIdsRow, SegmentRow, TopicRow,
};

pub(crate) mod brokers;
pub(crate) mod change;
pub(crate) mod cleaning;
pub(crate) mod commit;
pub(crate) mod configs;
pub(crate) mod failover;
pub(crate) mod leadership;
pub(crate) mod moves;
pub(crate) mod picture;
pub(crate) mod placement;
pub(crate) mod queries;
pub(crate) mod quotas;
pub(crate) mod swaps;
pub(crate) mod topics;
pub(crate) mod workspace;

pub(crate) use change::Change;
use picture::Picture;

/// What bounds the controller's memory and batches (invariant I6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Partitions of one topic.
    pub partitions_per_topic: u32,
    /// Partitions of the cluster.
    pub partitions: u64,
    /// Segments dropped by one batch; what is left goes in later batches.
    pub segments_per_drop: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            partitions_per_topic: 10_000,
            partitions: 200_000,
            segments_per_drop: 1_000,
        }
    }
}

/// What a decision depends on besides state and facts.
pub(crate) struct Environment<'a> {
    pub(crate) now: TimestampMs,
    pub(crate) random_id: &'a mut dyn FnMut() -> Uuid,
}

/// Rows a command has to see that aren't held in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    Object(StoredObjectKey),
    /// Segments that end in `(from, to]`, in order.
    Segments {
        partition: PartitionId,
        from: Offset,
        to: Offset,
        limit: usize,
    },
    /// The partition rows of a deleted topic, in order.
    PartitionRows {
        topic: TopicId,
        limit: usize,
    },
    /// Objects dropped at or before a time, in the order of time.
    Dropped {
        until: TimestampMs,
        limit: usize,
    },
}

/// A row, or rows, as they are after all commands decided so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    Object(Option<ObjectRow>),
    Segments(Vec<(SegmentKey, SegmentRow)>),
    PartitionRows(Vec<(PartitionId, PartitionRow)>),
    Dropped(Vec<(TimestampMs, StoredObjectKey)>),
}

/// The facts gathered for one command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    known: HashMap<Need, Fact>,
}

impl Facts {
    pub(crate) fn insert(&mut self, need: Need, fact: Fact) {
        self.known.insert(need, fact);
    }

    pub(crate) fn knows(&self, need: &Need) -> bool {
        self.known.contains_key(need)
    }

    /// Those of the needs that aren't known yet, each once.
    pub(crate) fn missing(&self, needs: impl IntoIterator<Item = Need>) -> Vec<Need> {
        let mut seen = std::collections::HashSet::new();
        needs
            .into_iter()
            .filter(|need| !self.knows(need) && seen.insert(need.clone()))
            .collect()
    }

    /// An object that nobody asked about counts as unknown.
    pub(crate) fn object(&self, key: &StoredObjectKey) -> Option<ObjectRow> {
        match self.known.get(&Need::Object(key.clone())) {
            Some(Fact::Object(row)) => *row,
            _ => None,
        }
    }

    pub(crate) fn segments(&self, need: &Need) -> &[(SegmentKey, SegmentRow)] {
        match self.known.get(need) {
            Some(Fact::Segments(rows)) => rows,
            _ => &[],
        }
    }

    pub(crate) fn partition_rows(&self, need: &Need) -> &[(PartitionId, PartitionRow)] {
        match self.known.get(need) {
            Some(Fact::PartitionRows(rows)) => rows,
            _ => &[],
        }
    }

    pub(crate) fn dropped(&self, need: &Need) -> &[(TimestampMs, StoredObjectKey)] {
        match self.known.get(need) {
            Some(Fact::Dropped(rows)) => rows,
            _ => &[],
        }
    }
}

/// What a command decided.
#[derive(Debug)]
pub(crate) struct Decision<T> {
    pub(crate) changes: Vec<Change>,
    pub(crate) output: T,
}

impl<T> Decision<T> {
    pub(crate) fn unchanged(output: T) -> Self {
        Self {
            changes: Vec::new(),
            output,
        }
    }
}

/// A request to the state machine.
pub(crate) trait Command: Send + 'static {
    type Output: Send + 'static;
    type Error: Send + 'static;
    /// For metrics and logs.
    const NAME: &'static str;
    /// It never changes anything, so it needn't wait until the changes that came with it are durable.
    const IS_QUESTION: bool = false;

    /// What it has to see and doesn't yet. Asked again after each answer, until it needs nothing more.
    fn needs(&self, _state: &State, _facts: &Facts) -> Vec<Need> {
        Vec::new()
    }

    /// Decides. An error means that nothing changes.
    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, Self::Error>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicState {
    pub(crate) row: TopicRow,
    pub(crate) partitions: Vec<PartitionRow>,
}

impl TopicState {
    /// The ids of its partitions, by index.
    pub(crate) fn partition_ids(
        &self,
        topic: TopicId,
    ) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.row.partition_count).map(move |index| PartitionId {
            topic,
            index: PartitionIndex::new(index).expect("the limit on partitions is below 2^31"),
        })
    }
}

/// A change that doesn't fit the state: stored rows contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the metadata contradicts itself: {0}")]
pub struct Contradiction(pub(crate) String);

/// All that the controller holds in memory: topics, partitions, brokers and configs, but no segments and no
/// objects.
#[derive(Debug)]
pub(crate) struct State {
    topics: HashMap<TopicId, TopicState>,
    names: BTreeMap<TopicName, TopicId>,
    /// Names with '.' read as '_', to find collisions.
    folded_names: HashMap<String, TopicName>,
    deleted: BTreeMap<TopicId, DeletedTopicRow>,
    brokers: BTreeMap<BrokerId, BrokerRow>,
    /// Rows that only keep an epoch from being used again.
    unregistered: BTreeMap<BrokerId, BrokerRow>,
    alive: BTreeSet<BrokerId>,
    configs: BTreeMap<Option<BrokerId>, Configs>,
    group_configs: BTreeMap<String, Configs>,
    quotas: BTreeMap<QuotaEntity, QuotaLimits>,
    producer_ids: ProducerIdsRow,
    trims: BTreeSet<PartitionId>,
    /// What each broker leads by the rows, alive or not; under `None` what nobody leads.
    led: BTreeMap<Option<BrokerId>, BTreeSet<PartitionId>>,
    /// Partitions with a target.
    targets: BTreeSet<PartitionId>,
    partition_count: u64,
    default_durability: DurabilityMode,
    pub(crate) limits: Limits,
    pub(crate) picture: Picture,
}

impl State {
    pub(crate) fn new(
        default_durability: DurabilityMode,
        limits: Limits,
        picture: Picture,
    ) -> Self {
        Self {
            topics: HashMap::new(),
            names: BTreeMap::new(),
            folded_names: HashMap::new(),
            deleted: BTreeMap::new(),
            brokers: BTreeMap::new(),
            unregistered: BTreeMap::new(),
            alive: BTreeSet::new(),
            configs: BTreeMap::new(),
            group_configs: BTreeMap::new(),
            quotas: BTreeMap::new(),
            producer_ids: ProducerIdsRow { next: 0 },
            trims: BTreeSet::new(),
            led: BTreeMap::new(),
            targets: BTreeSet::new(),
            partition_count: 0,
            default_durability,
            limits,
            picture,
        }
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<&TopicState> {
        self.topics.get(&id)
    }

    pub(crate) fn topic_named(&self, name: &TopicName) -> Option<TopicId> {
        self.names.get(name).copied()
    }

    pub(crate) fn topic_like(&self, name: &TopicName) -> Option<&TopicName> {
        self.folded_names.get(&folded(name))
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = (TopicId, &TopicState)> {
        self.topics.iter().map(|(id, topic)| (*id, topic))
    }

    /// In a fixed order, so that equal states decide equally.
    pub(crate) fn topics_by_id(&self) -> Vec<(TopicId, &TopicState)> {
        let mut topics: Vec<_> = self.topics().collect();
        topics.sort_unstable_by_key(|(id, _)| *id);
        topics
    }

    pub(crate) fn topic_count(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn partition_count(&self) -> u64 {
        self.partition_count
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&PartitionRow> {
        let index = usize::try_from(id.index.get()).ok()?;
        self.topics.get(&id.topic)?.partitions.get(index)
    }

    pub(crate) fn partition_state(&self, id: PartitionId) -> Option<PartitionState> {
        self.partition(id).map(|row| self.describe(id, row))
    }

    /// A partition as brokers see it: the leader is named only while it may act.
    pub(crate) fn describe(&self, id: PartitionId, row: &PartitionRow) -> PartitionState {
        PartitionState {
            partition: id,
            leader: row.leader.filter(|broker| self.may_lead(*broker)),
            leader_epoch: row.leader_epoch,
            epochs: row.epochs.clone(),
            placement: row.placement.clone(),
            log_start: row.log_start,
            committed_end: row.committed_end,
            checkpoint: row.checkpoint.clone(),
            segment_count: row.segment_count,
            segment_bytes: row.segment_bytes,
            cleaned_end: row.cleaned_end,
            swaps: row.swaps,
        }
    }

    pub(crate) fn broker(&self, id: BrokerId) -> Option<&BrokerRow> {
        self.brokers.get(&id)
    }

    pub(crate) fn brokers(&self) -> impl Iterator<Item = (BrokerId, &BrokerRow)> {
        self.brokers.iter().map(|(id, row)| (*id, row))
    }

    /// The last row of a broker that was unregistered.
    pub(crate) fn unregistered(&self, id: BrokerId) -> Option<&BrokerRow> {
        self.unregistered.get(&id)
    }

    /// Partitions whose row names this leader, alive or not; `None`: those without one.
    pub(crate) fn led(&self, leader: Option<BrokerId>) -> impl Iterator<Item = PartitionId> {
        self.led.get(&leader).into_iter().flatten().copied()
    }

    pub(crate) fn led_count(&self, leader: BrokerId) -> u64 {
        self.led
            .get(&Some(leader))
            .map_or(0, |led| led.len() as u64)
    }

    /// Partitions with a target.
    pub(crate) fn targets(&self) -> impl Iterator<Item = PartitionId> {
        self.targets.iter().copied()
    }

    /// It may be given partitions.
    pub(crate) fn takes_partitions(&self, id: BrokerId) -> bool {
        self.may_lead(id) && self.brokers.get(&id).is_some_and(|row| !row.draining)
    }

    pub(crate) fn is_alive(&self, id: BrokerId) -> bool {
        self.alive.contains(&id)
    }

    /// It lives and took leadership under its present registration.
    pub(crate) fn may_lead(&self, id: BrokerId) -> bool {
        self.alive.contains(&id) && self.brokers.get(&id).is_some_and(BrokerRow::leads)
    }

    /// The broker's row, if the broker epoch is the registered one.
    pub(crate) fn registered(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<&BrokerRow, StaleBrokerEpoch> {
        let current = self.brokers.get(&broker);
        current
            .filter(|row| row.broker_epoch == broker_epoch)
            .ok_or(StaleBrokerEpoch {
                broker,
                broker_epoch,
                current: current.map(|row| row.broker_epoch),
            })
    }

    /// The broker's row with its writer, if it may commit under this epoch.
    pub(crate) fn committing(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<(&BrokerRow, WriterState), StaleBrokerEpoch> {
        let row = self.registered(broker, broker_epoch)?;
        match row.writer.filter(|_| row.leads()) {
            Some(writer) => Ok((row, writer)),
            None => Err(StaleBrokerEpoch {
                broker,
                broker_epoch,
                current: row.writer.map(|w| w.broker_epoch),
            }),
        }
    }

    pub(crate) fn configs(&self, broker: Option<BrokerId>) -> Option<&Configs> {
        self.configs.get(&broker)
    }

    /// All entities with limits.
    pub(crate) fn quotas(&self) -> &BTreeMap<QuotaEntity, QuotaLimits> {
        &self.quotas
    }

    pub(crate) fn group_configs(&self, group: &str) -> Option<&Configs> {
        self.group_configs.get(group)
    }

    pub(crate) fn next_producer_id(&self) -> i64 {
        self.producer_ids.next
    }

    pub(crate) fn durability(&self, topic: &Configs) -> DurabilityMode {
        self.durability_under(topic, self.configs(None))
    }

    /// The mode under the given configs of topic and cluster.
    pub(crate) fn durability_under(
        &self,
        topic: &Configs,
        cluster: Option<&Configs>,
    ) -> DurabilityMode {
        durability_of(topic)
            .or_else(|| cluster.and_then(durability_of))
            .unwrap_or(self.default_durability)
    }

    /// A partition with segments below its log start, if there is one.
    pub(crate) fn next_trim(&self) -> Option<PartitionId> {
        self.trims.first().copied()
    }

    /// A deleted topic whose segments aren't all dropped, if there is one.
    pub(crate) fn next_cleaning(&self) -> Option<TopicId> {
        self.deleted.keys().next().copied()
    }

    /// Rows in memory, for comparing states in tests.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (
            self.topics
                .iter()
                .map(|(k, v)| (*k, v.clone()))
                .collect::<BTreeMap<_, _>>(),
            self.names.clone(),
            self.deleted.clone(),
            (self.brokers.clone(), self.unregistered.clone()),
            (self.led.clone(), self.targets.clone()),
            (
                self.configs.clone(),
                self.group_configs.clone(),
                self.quotas.clone(),
            ),
            self.producer_ids,
            self.trims.clone(),
            self.partition_count,
        )
    }
}

/// Names that become one metric's name are the same (as Apache Kafka has it).
fn folded(name: &TopicName) -> String {
    name.as_str().replace('.', "_")
}
