//! The active controller: a task that owns state and store, and the handle that brokers call.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use tidegate_runtime::SharedClock;
use tidegate_types::{BrokerId, DurabilityMode, Offset, PartitionId, TopicName};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::api::{
    AdvanceLogStart, AdvanceLogStartError, AllocateProducerIds, AllocateProducerIdsError,
    AlterConfigs, AlterQuotas, BrokerChangeError, BrokerView, CancelTargets, CommitMoves,
    CommitObjects, CommitObjectsError, ControllerApi, ControllerUnavailable, CreatePartitions,
    CreatePartitionsError, CreateTopicError, CreateTopics, CreatedTopic, DeletableObject,
    DeletableQuery, DeleteTopics, FailOver, FailOverError, FailedOver, LeadershipTaken,
    LedPartition, MovesCommitted, ObjectOutcome, PendingMove, ProducerIdBlock, RegisterBroker,
    RegisterBrokerError, Registered, SegmentPage, SegmentQuery, SetAlive, SetDraining,
    SetPlacements, SetTargets, SwapOutcome, SwapSegments, SwapSegmentsError, TakeLeadership,
    TakeLeadershipError, TooManyQuotas, UnknownTopic, UnregisterBroker, UnregisterBrokerError,
    Wish, WishRefused,
};
use crate::image::{ClusterImage, Configs};
use crate::model::{ObjectStatus, PartitionState, StoredObjectKey};
use crate::state::cleaning::ForgetObjects;
use crate::state::queries::{
    Brokers, LedBy, ObjectStatuses, PartitionStates, PartitionsOf, PendingMoves,
};
use crate::state::{Command, Limits};
use crate::store::{MetadataStore, StoreOpener};

mod actor;
mod job;
mod metrics;
mod opening;
mod overlay;

#[cfg(test)]
mod tests;

pub use actor::{ControllerExit, ControllerTask};
pub use opening::OpenError;

use job::{Job, Pending};
pub use metrics::ControllerMetrics;

/// Random ids: topics, the cluster, this process.
pub type RandomIds = Box<dyn FnMut() -> Uuid + Send>;

/// How a controller runs.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The broker it runs on.
    pub broker: BrokerId,
    /// The broker that held the controller's lease before, if that was another process: its lease ran out, so it
    /// counts as dead. All others that led are presumed alive at the first opening, until somebody says that
    /// they have no session.
    pub presumed_dead: Option<BrokerId>,
    /// The durability mode where neither topic nor cluster sets one.
    pub default_durability: DurabilityMode,
    /// What bounds memory and batches.
    pub limits: Limits,
    /// Requests that may wait; more are refused as busy.
    pub queue: usize,
    /// Requests that share one batch.
    pub batch: usize,
    /// After so long without an answer of the store, waiting requests are told that their outcome is
    /// unknown, and new ones are refused until it answers.
    pub store_timeout: Duration,
    /// Time between tries to open the store again: the first, doubled up to the second.
    pub reopen_backoff: (Duration, Duration),
}

impl ControllerOptions {
    /// The defaults for a broker.
    pub fn new(broker: BrokerId) -> Self {
        Self {
            broker,
            presumed_dead: None,
            default_durability: DurabilityMode::Local,
            limits: Limits::default(),
            queue: 1_024,
            batch: 256,
            store_timeout: Duration::from_secs(10),
            reopen_backoff: (Duration::from_millis(250), Duration::from_secs(5)),
        }
    }
}

struct OpenStore(Arc<dyn MetadataStore>);

/// What handle and task share.
struct Shared {
    /// Set while the store is open: for reads that needn't wait behind commits.
    store: ArcSwapOption<OpenStore>,
    metrics: ControllerMetrics,
    options: ControllerOptions,
}

/// The controller of this process.
pub struct Controller;

impl Controller {
    /// Opens the metadata, fencing any earlier controller, and returns the handle and the task to run. The
    /// handle answers nothing until the task runs.
    ///
    /// # Errors
    /// See [`OpenError`]; after a retriable one call this again with a backoff.
    pub async fn open(
        opener: Arc<dyn StoreOpener>,
        options: ControllerOptions,
        clock: SharedClock,
        random_ids: RandomIds,
        metrics: ControllerMetrics,
    ) -> Result<(ControllerHandle, ControllerTask), OpenError> {
        let (sender, receiver) = mpsc::channel(options.queue.max(1));
        let (image_sender, image) = watch::channel(Arc::new(ClusterImage::empty("")));
        let shared = Arc::new(Shared {
            store: ArcSwapOption::empty(),
            metrics,
            options,
        });
        let task = ControllerTask::open(
            opener,
            Arc::clone(&shared),
            clock,
            random_ids,
            receiver,
            image_sender,
        )
        .await?;
        let handle = ControllerHandle {
            sender,
            image,
            shared,
        };
        Ok((handle, task))
    }
}

/// Calls the controller. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle {
    sender: mpsc::Sender<Box<dyn Job>>,
    image: watch::Receiver<Arc<ClusterImage>>,
    shared: Arc<Shared>,
}

impl ControllerHandle {
    /// The cluster's picture. A change is in it before its request is answered.
    pub fn image(&self) -> watch::Receiver<Arc<ClusterImage>> {
        self.image.clone()
    }

    /// Wants partitions to be led by others. One answer per move, in the order of the request.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn set_targets(
        &self,
        request: SetTargets,
    ) -> Result<Vec<Result<Wish, WishRefused>>, ControllerUnavailable> {
        self.submit(request).await
    }

    /// Withdraws wishes: whether there was such a one, in the order of the request.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn cancel_targets(
        &self,
        request: CancelTargets,
    ) -> Result<Vec<bool>, ControllerUnavailable> {
        self.submit(request).await
    }

    /// Sets placements. One answer per partition, in the order of the request.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn set_placements(
        &self,
        request: SetPlacements,
    ) -> Result<Vec<Result<Wish, WishRefused>>, ControllerUnavailable> {
        self.submit(request).await
    }

    /// The moment of transfer of sealed partitions.
    ///
    /// # Errors
    /// No answer from the controller: whether they were moved isn't known after
    /// [`ControllerUnavailable::OutcomeUnknown`]; send the same request again.
    pub async fn commit_moves(
        &self,
        request: CommitMoves,
    ) -> Result<MovesCommitted, ControllerUnavailable> {
        self.submit(request).await
    }

    /// Moves on what a dead broker led.
    ///
    /// # Errors
    /// See [`FailOverError`]. A repetition of one that was carried out answers `StaleBrokerEpoch`, if there was
    /// a writer to retire.
    pub async fn fail_over(&self, request: FailOver) -> Result<FailedOver, FailOverError> {
        self.submit(request).await
    }

    /// Shows whether a broker lives.
    ///
    /// # Errors
    /// See [`BrokerChangeError`].
    pub async fn set_alive(&self, request: SetAlive) -> Result<(), BrokerChangeError> {
        self.submit(request).await
    }

    /// Begins or ends a broker's draining.
    ///
    /// # Errors
    /// See [`BrokerChangeError`].
    pub async fn set_draining(&self, request: SetDraining) -> Result<(), BrokerChangeError> {
        self.submit(request).await
    }

    /// All wanted moves that aren't carried out yet.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn pending_moves(&self) -> Result<Vec<PendingMove>, ControllerUnavailable> {
        self.submit(PendingMoves).await
    }

    /// All registered brokers, in the order of their numbers.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn brokers(&self) -> Result<Vec<BrokerView>, ControllerUnavailable> {
        self.submit(Brokers).await
    }

    /// The partitions whose stored row names this broker as leader, whether it is alive or not.
    ///
    /// # Errors
    /// No answer from the controller.
    pub async fn partitions_of(
        &self,
        broker: BrokerId,
    ) -> Result<Vec<LedPartition>, ControllerUnavailable> {
        self.submit(PartitionsOf(broker)).await
    }

    async fn submit<C>(&self, command: C) -> Result<C::Output, C::Error>
    where
        C: Command,
        C::Error: From<ControllerUnavailable>,
    {
        let (pending, answer) = Pending::new(command);
        match self.sender.try_send(Box::new(pending)) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.shared.metrics.refused.inc();
                return Err(ControllerUnavailable::Busy.into());
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(ControllerUnavailable::Closed.into());
            }
        }
        match answer.await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(reason)) => Err(reason.into()),
            // The task ended with the request in its hands.
            Err(_) => Err(ControllerUnavailable::OutcomeUnknown.into()),
        }
    }
}

#[async_trait]
impl ControllerApi for ControllerHandle {
    async fn register_broker(
        &self,
        request: RegisterBroker,
    ) -> Result<Registered, RegisterBrokerError> {
        self.submit(request).await
    }

    async fn take_leadership(
        &self,
        request: TakeLeadership,
    ) -> Result<LeadershipTaken, TakeLeadershipError> {
        self.submit(request).await
    }

    async fn create_topics(
        &self,
        request: CreateTopics,
    ) -> Result<Vec<Result<CreatedTopic, CreateTopicError>>, ControllerUnavailable> {
        self.submit(request).await
    }

    async fn delete_topics(
        &self,
        request: DeleteTopics,
    ) -> Result<Vec<Result<TopicName, UnknownTopic>>, ControllerUnavailable> {
        self.submit(request).await
    }

    async fn create_partitions(
        &self,
        request: CreatePartitions,
    ) -> Result<Vec<Result<(), CreatePartitionsError>>, ControllerUnavailable> {
        self.submit(request).await
    }

    async fn alter_configs(
        &self,
        request: AlterConfigs,
    ) -> Result<Vec<Result<Configs, UnknownTopic>>, ControllerUnavailable> {
        self.submit(request).await
    }

    async fn unregister_broker(
        &self,
        request: UnregisterBroker,
    ) -> Result<(), UnregisterBrokerError> {
        self.submit(request).await
    }

    async fn alter_quotas(
        &self,
        request: AlterQuotas,
    ) -> Result<Vec<Result<(), TooManyQuotas>>, ControllerUnavailable> {
        self.submit(request).await
    }

    async fn commit_objects(
        &self,
        request: CommitObjects,
    ) -> Result<Vec<ObjectOutcome>, CommitObjectsError> {
        self.submit(request).await
    }

    async fn advance_log_start(
        &self,
        request: AdvanceLogStart,
    ) -> Result<Offset, AdvanceLogStartError> {
        self.submit(request).await
    }

    async fn swap_segments(&self, request: SwapSegments) -> Result<SwapOutcome, SwapSegmentsError> {
        self.submit(request).await
    }

    async fn allocate_producer_ids(
        &self,
        request: AllocateProducerIds,
    ) -> Result<ProducerIdBlock, AllocateProducerIdsError> {
        self.submit(request).await
    }

    async fn partition_states(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<Option<PartitionState>>, ControllerUnavailable> {
        self.submit(PartitionStates(partitions)).await
    }

    async fn led_by(&self, broker: BrokerId) -> Result<Vec<PartitionState>, ControllerUnavailable> {
        self.submit(LedBy(broker)).await
    }

    async fn segments(&self, query: SegmentQuery) -> Result<SegmentPage, ControllerUnavailable> {
        let Some(store) = self.shared.store.load_full() else {
            return Err(ControllerUnavailable::StoreUnavailable);
        };
        let read = overlay::read_segments(store.0.as_ref(), &query);
        match tokio::time::timeout(self.shared.options.store_timeout, read).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => {
                tracing::warn!(%error, partition = %query.partition, "segment map can't be read");
                Err(ControllerUnavailable::StoreUnavailable)
            }
            Err(_) => Err(ControllerUnavailable::StoreUnavailable),
        }
    }

    async fn deletable_objects(
        &self,
        query: DeletableQuery,
    ) -> Result<Vec<DeletableObject>, ControllerUnavailable> {
        self.submit(query).await
    }

    async fn forget_objects(
        &self,
        objects: Vec<StoredObjectKey>,
    ) -> Result<(), ControllerUnavailable> {
        self.submit(ForgetObjects(objects)).await
    }

    async fn object_statuses(
        &self,
        objects: Vec<StoredObjectKey>,
    ) -> Result<Vec<ObjectStatus>, ControllerUnavailable> {
        self.submit(ObjectStatuses(objects)).await
    }
}
