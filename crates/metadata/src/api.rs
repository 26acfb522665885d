//! What brokers ask of the controller: one async trait of plain requests and answers.
//!
//! Every request may be sent again after [`ControllerUnavailable::OutcomeUnknown`] or a lost answer: it is
//! idempotent by an identity it carries (an incarnation, a broker epoch, an offset range, an object key), or
//! its repetition is answered with an error that tells the first one was carried out (a topic that exists).

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_types::{
    BrokerEpoch, BrokerId, DurabilityMode, LeaderEpoch, Offset, OffsetRange, PartitionId,
    ProducerId, TimestampMs, TopicId, TopicName,
};
use uuid::Uuid;

use crate::image::Configs;
use crate::model::{
    Endpoint, ObjectCommit, ObjectStatus, PartitionState, SegmentEntry, StoredObjectKey,
    WalIdentity, WriterState,
};

/// Why the controller gave no answer. All but `Deposed` and `Closed` pass by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ControllerUnavailable {
    /// Nothing was carried out.
    #[error("the metadata store can't be reached; nothing was carried out")]
    StoreUnavailable,
    /// The write went out and its answer didn't come. Ask again, or read the state.
    #[error("the metadata store didn't answer; the request may have been carried out")]
    OutcomeUnknown,
    /// The queue is full. Nothing was carried out.
    #[error("the controller has too many requests waiting; nothing was carried out")]
    Busy,
    /// Another controller has taken over. Nothing was carried out, or nothing of it is known.
    #[error("another controller has taken over")]
    Deposed,
    /// This controller has been shut down.
    #[error("the controller is shut down")]
    Closed,
}

/// Announces a broker process. Sent at each start, and again whenever the answer was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBroker {
    /// The broker's number.
    pub broker: BrokerId,
    /// Random per process: tells a repetition from a restart.
    pub incarnation: Uuid,
    /// Where Kafka clients connect.
    pub kafka: Endpoint,
    /// Where other brokers connect.
    pub internal: Option<Endpoint>,
    /// Its rack or zone.
    pub rack: Option<String>,
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// To be named in every later request. From now on an earlier broker epoch can commit nothing.
    pub broker_epoch: BrokerEpoch,
    /// The broker epoch that last led partitions under this broker's number. Its WAL objects must be fenced
    /// and recovered, from this sequence on, before leadership is taken. `None` at the first start ever, or
    /// when this registration has taken leadership already.
    pub former_writer: Option<WriterState>,
}

/// A request that a broker can make only under its present registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("broker {broker} isn't registered under broker epoch {broker_epoch}; current: {current:?}")]
pub struct StaleBrokerEpoch {
    /// Who asked.
    pub broker: BrokerId,
    /// Under which broker epoch.
    pub broker_epoch: BrokerEpoch,
    /// The registered one, if there is one.
    pub current: Option<BrokerEpoch>,
}

/// Why a broker wasn't registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RegisterBrokerError {
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// The end of what a broker's local WAL holds of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredEnd {
    /// Which partition.
    pub partition: PartitionId,
    /// Leader epoch of the last batch.
    pub leader_epoch: LeaderEpoch,
    /// Exclusive end.
    pub end: Offset,
}

/// Commits what recovery found and makes the broker leader of all partitions that it led or that nobody
/// ever led and that are placed on it, in one atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeLeadership {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// The local WAL it runs on.
    pub wal: Option<WalIdentity>,
    /// The former writer whose WAL objects were fenced; must be the one that registration named.
    pub fenced_writer: Option<BrokerEpoch>,
    /// That writer's WAL objects which no commit covers, in the order of their sequence, without a gap.
    pub recovered: Vec<ObjectCommit>,
    /// What the local WAL holds; partitions that it doesn't hold aren't named.
    pub ends: Vec<RecoveredEnd>,
    /// Lead also the partitions whose acknowledged records are known to be missing.
    pub accept_loss: bool,
}

/// What leadership was taken of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadershipTaken {
    /// All partitions that the broker leads now.
    pub partitions: Vec<PartitionState>,
    /// Partitions left offline, because leading them would skip acknowledged records.
    pub withheld: Vec<Withheld>,
    /// What `accept_loss` gave up.
    pub lost: Vec<Loss>,
    /// What became of the recovered objects' segments, in their order.
    pub recovered: Vec<ObjectOutcome>,
}

/// A partition left without a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// Which partition.
    pub partition: PartitionId,
    /// Why.
    pub reason: WithheldReason,
}

/// Why leading would skip acknowledged records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithheldReason {
    /// It was acknowledged on another local WAL than the one this broker runs on.
    OtherWal {
        /// The WAL that holds its records.
        expected: WalIdentity,
    },
    /// The log is known to have reached further than what was found.
    Missing {
        /// From the end of what was found to where the log is known to have reached.
        missing: OffsetRange,
    },
}

/// Offsets given up by `accept_loss`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Which partition.
    pub partition: PartitionId,
    /// From here on; how far the log reached may be unknown.
    pub from: Offset,
    /// Where the log is known to have reached, if that is beyond `from`.
    pub known_to: Option<Offset>,
}

/// Why leadership wasn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TakeLeadershipError {
    /// Another process registered under this number.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// The former writer isn't fenced, so it could still acknowledge.
    #[error("the WAL objects of broker epoch {expected} must be fenced and recovered first")]
    WriterNotFenced {
        /// Whose.
        expected: BrokerEpoch,
    },
    /// The recovered objects can't be committed.
    #[error(transparent)]
    Commit(#[from] CommitRefused),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Creates topics, each by itself: one that can't be created doesn't hinder the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopics {
    /// The wanted topics.
    pub topics: Vec<NewTopic>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// A wanted topic. Its configs were validated by the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// Its partitions.
    pub layout: TopicLayout,
    /// Explicitly set configs.
    pub configs: Configs,
}

/// How many partitions, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicLayout {
    /// The controller places them: on as many brokers as the factor says, or as there are.
    Count {
        /// Number of partitions, at least 1.
        partitions: u32,
        /// Wanted length of each placement, at least 1.
        replication_factor: u16,
    },
    /// The placement of each partition, by index.
    Assigned(Vec<Vec<BrokerId>>),
}

/// A topic that was created, or would have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// `None` if it was only validated.
    pub id: Option<TopicId>,
    /// Its name.
    pub name: TopicName,
    /// Number of partitions.
    pub partitions: u32,
    /// The replication factor asked for, also where there are fewer brokers.
    pub replication_factor: u16,
    /// Explicitly set configs.
    pub configs: Configs,
}

/// Why a placement isn't possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AssignmentFault {
    /// A partition with no broker.
    #[error("partition {partition} has no broker")]
    Empty {
        /// Its index.
        partition: u32,
    },
    /// A broker named twice for one partition.
    #[error("partition {partition} names broker {broker} twice")]
    Repeated {
        /// Its index.
        partition: u32,
        /// The broker.
        broker: BrokerId,
    },
    /// A broker nobody knows.
    #[error("partition {partition} names broker {broker}, which isn't registered")]
    UnknownBroker {
        /// Its index.
        partition: u32,
        /// The broker.
        broker: BrokerId,
    },
    /// Placements of different lengths.
    #[error("partition {partition} has another number of brokers than partition 0")]
    Uneven {
        /// Its index.
        partition: u32,
    },
    /// As many placements as new partitions are wanted.
    #[error("{given} placements for {wanted} new partitions")]
    WrongCount {
        /// Placements in the request.
        given: usize,
        /// New partitions.
        wanted: u32,
    },
}

/// Why one topic wasn't created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreateTopicError {
    /// The name is taken.
    #[error("topic {name} exists with id {id}")]
    Exists {
        /// The name.
        name: TopicName,
        /// Who has it.
        id: TopicId,
    },
    /// The request names it more than once.
    #[error("topic {name} is named more than once in the request")]
    Repeated {
        /// The name.
        name: TopicName,
    },
    /// Names that differ only in '.' and '_' give metrics of the same name (as Apache Kafka has it).
    #[error("topic {name} differs only in '.' and '_' from {other}")]
    Collides {
        /// The name.
        name: TopicName,
        /// The topic that exists.
        other: TopicName,
    },
    /// No partition at all, or more than the limit.
    #[error("the number of partitions must lie between 1 and {limit}, not {partitions}")]
    PartitionCount {
        /// Asked for.
        partitions: u64,
        /// The most that one topic may have, or that fit into the cluster's limit.
        limit: u64,
    },
    /// A factor of 0.
    #[error("the replication factor must be at least 1")]
    ReplicationFactor,
    /// There is no broker to place it on.
    #[error("no broker is registered")]
    NoBroker,
    /// An explicit placement isn't possible.
    #[error(transparent)]
    Assignment(#[from] AssignmentFault),
}

/// Deletes topics, each by itself. The names are free at once; the segments go in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopics {
    /// Which.
    pub topics: Vec<TopicId>,
}

/// No topic has this id (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("no topic has the id {0}")]
pub struct UnknownTopic(pub TopicId);

/// Adds partitions, to each topic by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePartitions {
    /// Which topics.
    pub topics: Vec<MorePartitions>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// More partitions for one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    /// Which topic.
    pub topic: TopicId,
    /// Its new number of partitions.
    pub total: u32,
    /// Placements of the new ones only; `None`: the controller places them.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Why one topic got no more partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreatePartitionsError {
    /// No such topic.
    #[error(transparent)]
    UnknownTopic(#[from] UnknownTopic),
    /// The request names it more than once.
    #[error("topic {0} is named more than once in the request")]
    Repeated(TopicId),
    /// Partitions can only become more.
    #[error("the topic has {current} partitions, the request asks for {total}")]
    NotMore {
        /// What it has.
        current: u32,
        /// What was asked for.
        total: u32,
    },
    /// Above the limit.
    #[error("the number of partitions must lie between 1 and {limit}, not {partitions}")]
    PartitionCount {
        /// Asked for.
        partitions: u64,
        /// The most that one topic may have, or that fit into the cluster's limit.
        limit: u64,
    },
    /// There is no broker to place them on.
    #[error("no broker is registered")]
    NoBroker,
    /// An explicit placement isn't possible.
    #[error(transparent)]
    Assignment(#[from] AssignmentFault),
}

/// What configs belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConfigResource {
    /// One topic.
    Topic(TopicId),
    /// One broker.
    Broker(BrokerId),
    /// All brokers: the cluster-wide default.
    BrokerDefault,
}

/// One step of an incremental change (KIP-339).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigEdit {
    /// Sets it, also if the value equals the default.
    Set {
        /// Which config.
        name: String,
        /// Its new value.
        value: String,
    },
    /// Back to the default.
    Delete {
        /// Which config.
        name: String,
    },
    /// Adds values to a comma-separated list, those that aren't in it.
    Append {
        /// Which config.
        name: String,
        /// The values.
        values: Vec<String>,
        /// The list to add to if none is set.
        default: String,
    },
    /// Takes values from a comma-separated list.
    Subtract {
        /// Which config.
        name: String,
        /// The values.
        values: Vec<String>,
        /// The list to take from if none is set.
        default: String,
    },
}

/// How the configs of one resource change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigChange {
    /// Only what is named (IncrementalAlterConfigs).
    Edit(Vec<ConfigEdit>),
    /// These and no others (the older AlterConfigs).
    Replace(Configs),
}

/// Changes configs, of each resource by itself and atomically. The broker has validated names and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigs {
    /// What changes how.
    pub changes: Vec<(ConfigResource, ConfigChange)>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// Registers the ranges of written objects; they become visible by this, all in one atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitObjects {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// In order: of a partition, each must start where the one before ended.
    pub objects: Vec<ObjectCommit>,
}

/// What became of one object's segments, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectOutcome {
    /// The object.
    pub key: StoredObjectKey,
    /// One per segment of the request.
    pub segments: Vec<SegmentOutcome>,
}

/// What became of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentOutcome {
    /// The range is covered by the segment map: by this segment or, if it was committed before, by this or
    /// another one. What lies below may be trimmed from the WAL.
    Committed {
        /// The partition's uploaded end offset.
        committed_end: Offset,
    },
    /// The topic is gone, and with it the need for the data.
    TopicDeleted,
    /// A later leader started below the end of this range: the range was sealed without these records, which
    /// were never acknowledged. They are skipped.
    Superseded {
        /// Where the range of its leader epoch was sealed.
        sealed_end: Offset,
    },
}

/// Why nothing of a commit was carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CommitRefused {
    /// The range doesn't start where the partition's map ends. Commit what lies between first.
    #[error(
        "{object}: {partition} is committed up to {committed_end}, so a segment from {start} would leave a gap or overlap"
    )]
    NotContiguous {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// Where its segment map ends.
        committed_end: Offset,
        /// Where the segment starts.
        start: Offset,
    },
    /// The segment's leader epoch is above the partition's.
    #[error(
        "{object}: leader epoch {leader_epoch} of {partition} was never given out; the current one is {current}"
    )]
    UnknownLeaderEpoch {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// The segment's.
        leader_epoch: LeaderEpoch,
        /// The partition's.
        current: LeaderEpoch,
    },
    /// Only the leader may commit under the current leader epoch.
    #[error("{object}: the broker doesn't lead {partition}")]
    NotLeader {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// Who does.
        leader: Option<BrokerId>,
    },
    /// A WAL object whose predecessor wasn't committed.
    #[error("{object}: WAL sequence {sequence} isn't the next one, {expected}")]
    SequenceGap {
        /// The object.
        object: StoredObjectKey,
        /// Its sequence.
        sequence: u64,
        /// The next one.
        expected: u64,
    },
    /// All references to the object were dropped; it may be deleted at any time.
    #[error("{object} was dropped and can't be referred to again")]
    ObjectDropped {
        /// The object.
        object: StoredObjectKey,
    },
    /// The object contradicts itself.
    #[error("{object} can't be committed: {reason}")]
    Malformed {
        /// The object.
        object: StoredObjectKey,
        /// What is wrong.
        reason: std::borrow::Cow<'static, str>,
    },
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CommitObjectsError {
    /// Another process registered under this number, or this one hasn't taken leadership.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// Nothing of it was carried out.
    #[error(transparent)]
    Refused(#[from] CommitRefused),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Raises a partition's log start offset (retention, DeleteRecords).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvanceLogStart {
    /// Who asks: the leader.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// Which partition.
    pub partition: PartitionId,
    /// Under which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The new first readable offset, at most the high watermark. Lower than the present one: no change.
    pub new_start: Offset,
}

/// Why the log start didn't move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AdvanceLogStartError {
    /// Another process registered under this number, or this one hasn't taken leadership.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// Only the present leader may.
    #[error("broker {broker} doesn't lead {partition} under leader epoch {leader_epoch}")]
    NotLeader {
        /// Who asked.
        broker: BrokerId,
        /// The partition.
        partition: PartitionId,
        /// Under which leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Takes a block of producer ids that nobody else ever gets. A lost answer loses a block, which is harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateProducerIds {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
}

/// Consecutive producer ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: ProducerId,
    /// How many.
    pub count: u32,
}

/// Why there is no block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AllocateProducerIdsError {
    /// Another process registered under this number.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// All 2^63 are given out.
    #[error("all producer ids are given out")]
    Exhausted,
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Reads a part of a partition's segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentQuery {
    /// Which partition.
    pub partition: PartitionId,
    /// Segments that end behind this offset, in order.
    pub from: Offset,
    /// At most so many; cut to [`SegmentQuery::MAX_LIMIT`].
    pub limit: usize,
}

impl SegmentQuery {
    /// The most segments in one answer.
    pub const MAX_LIMIT: usize = 10_000;
}

/// A part of a segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPage {
    /// In the order of offsets, without a hole between them.
    pub segments: Vec<SegmentEntry>,
    /// There are more behind the last.
    pub more: bool,
}

/// Asks for objects that may be deleted from the store (invariant I3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletableQuery {
    /// Only those whose last reference was dropped at or before this time: now less the grace period.
    pub dropped_before: TimestampMs,
    /// At most so many; cut to 10,000.
    pub limit: usize,
}

/// An object nobody refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletableObject {
    /// Its key.
    pub key: StoredObjectKey,
    /// Its size.
    pub size_bytes: u64,
    /// When its last reference was dropped.
    pub dropped_at: TimestampMs,
}

/// What a broker asks of the active controller. Implemented by [`crate::ControllerHandle`] in the process of
/// the controller itself.
#[async_trait]
pub trait ControllerApi: Send + Sync {
    /// Registers a broker process; raises its broker epoch unless this incarnation is registered already.
    async fn register_broker(
        &self,
        request: RegisterBroker,
    ) -> Result<Registered, RegisterBrokerError>;

    /// Commits what recovery found and takes leadership, atomically.
    async fn take_leadership(
        &self,
        request: TakeLeadership,
    ) -> Result<LeadershipTaken, TakeLeadershipError>;

    /// One answer per topic, in the order of the request.
    async fn create_topics(
        &self,
        request: CreateTopics,
    ) -> Result<Vec<Result<CreatedTopic, CreateTopicError>>, ControllerUnavailable>;

    /// One answer per topic, in the order of the request.
    async fn delete_topics(
        &self,
        request: DeleteTopics,
    ) -> Result<Vec<Result<TopicName, UnknownTopic>>, ControllerUnavailable>;

    /// One answer per topic, in the order of the request.
    async fn create_partitions(
        &self,
        request: CreatePartitions,
    ) -> Result<Vec<Result<(), CreatePartitionsError>>, ControllerUnavailable>;

    /// One answer per resource, in the order of the request: the configs that are set afterwards.
    async fn alter_configs(
        &self,
        request: AlterConfigs,
    ) -> Result<Vec<Result<Configs, UnknownTopic>>, ControllerUnavailable>;

    /// Commits objects. One outcome per object, in the order of the request.
    async fn commit_objects(
        &self,
        request: CommitObjects,
    ) -> Result<Vec<ObjectOutcome>, CommitObjectsError>;

    /// Answers the log start offset afterwards.
    async fn advance_log_start(
        &self,
        request: AdvanceLogStart,
    ) -> Result<Offset, AdvanceLogStartError>;

    /// Takes a block of producer ids.
    async fn allocate_producer_ids(
        &self,
        request: AllocateProducerIds,
    ) -> Result<ProducerIdBlock, AllocateProducerIdsError>;

    /// The state of each partition, `None` where there is no such partition.
    async fn partition_states(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<Option<PartitionState>>, ControllerUnavailable>;

    /// The state of all partitions that the broker leads at present.
    async fn led_by(&self, broker: BrokerId) -> Result<Vec<PartitionState>, ControllerUnavailable>;

    /// Reads a part of a segment map. A partition that doesn't exist has no segments.
    async fn segments(&self, query: SegmentQuery) -> Result<SegmentPage, ControllerUnavailable>;

    /// Objects that may be deleted, the oldest first.
    async fn deletable_objects(
        &self,
        query: DeletableQuery,
    ) -> Result<Vec<DeletableObject>, ControllerUnavailable>;

    /// Forgets objects that were deleted from the store. Those that are referred to stay known.
    async fn forget_objects(
        &self,
        objects: Vec<StoredObjectKey>,
    ) -> Result<(), ControllerUnavailable>;

    /// What is known of each object: for the sweep, which deletes only what is unknown and old.
    async fn object_statuses(
        &self,
        objects: Vec<StoredObjectKey>,
    ) -> Result<Vec<ObjectStatus>, ControllerUnavailable>;
}

/// The config by which a topic or the cluster chooses its durability mode. The only config whose meaning the
/// controller knows: it decides who may lead after a crash.
pub const DURABILITY_CONFIG: &str = "tidegate.durability";

/// The mode a set of configs asks for; `None` if it isn't set or isn't readable.
pub fn durability_of(configs: &BTreeMap<String, String>) -> Option<DurabilityMode> {
    configs.get(DURABILITY_CONFIG)?.parse().ok()
}
