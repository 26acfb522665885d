//! What brokers ask of the controller: one async trait of plain requests and answers. What only the controller's
//! own process asks (`moves`) are methods of [`crate::ControllerHandle`].
//!
//! Every request may be sent again after [`ControllerUnavailable::OutcomeUnknown`] or a lost answer: it is
//! idempotent by an identity it carries (an incarnation, a broker epoch, an offset range, an object key), or
//! its repetition is answered with an error that tells the first one was carried out (a topic that exists).

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerEpoch, BrokerId, DurabilityMode, Offset, PartitionId, TopicName};

use crate::image::Configs;
use crate::model::{ObjectStatus, PartitionState, StoredObjectKey};

mod brokers;
mod commits;
mod moves;
mod quotas;
mod swaps;
mod topics;

pub use brokers::*;
pub use commits::*;
pub use moves::*;
pub use quotas::*;
pub use swaps::*;
pub use topics::*;

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
    /// No broker is known to be controller; one will be soon. Nothing was carried out.
    #[error("there is no controller at present; nothing was carried out")]
    NoController,
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

    /// One answer per entity, in the order of the request.
    async fn alter_quotas(
        &self,
        request: AlterQuotas,
    ) -> Result<Vec<Result<(), TooManyQuotas>>, ControllerUnavailable>;

    /// Forgets a broker that is gone for good.
    async fn unregister_broker(
        &self,
        request: UnregisterBroker,
    ) -> Result<(), UnregisterBrokerError>;

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

    /// Puts new segments in the place of others.
    async fn swap_segments(&self, request: SwapSegments) -> Result<SwapOutcome, SwapSegmentsError>;

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
