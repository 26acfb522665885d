//! Requests to whoever is the controller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_metadata::api::*;
use tidegate_metadata::{Configs, ImageVersion, ObjectStatus, PartitionState, StoredObjectKey};
use tidegate_types::{BrokerId, Offset, PartitionId, TopicName};
use tokio::time::{Instant, timeout_at};

use super::standing::{Standing, Whom};
use super::{SessionState, Shared};
use crate::admin::*;

/// Between two tries at a controller that says it isn't one, unless another one is found before.
const AGAIN: Duration = Duration::from_millis(50);

/// Whether an answer is held back until this broker's picture shows its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It changes what the picture shows.
    Shown,
    /// It changes nothing, or nothing that the picture shows.
    Unseen,
}

/// Implements the controller's interfaces over whoever is the controller.
pub(super) struct Routed {
    shared: Arc<Shared>,
}

/// An error that may say that there was no answer.
trait Unanswered: From<ControllerUnavailable> {
    fn unavailable(&self) -> Option<ControllerUnavailable>;
}

impl Unanswered for ControllerUnavailable {
    fn unavailable(&self) -> Option<ControllerUnavailable> {
        Some(*self)
    }
}

macro_rules! unanswered {
    ($($error:ty),*) => {
        $(impl Unanswered for $error {
            fn unavailable(&self) -> Option<ControllerUnavailable> {
                match self {
                    Self::Unavailable(unavailable) => Some(*unavailable),
                    _ => None,
                }
            }
        })*
    };
}
unanswered!(
    RegisterBrokerError,
    TakeLeadershipError,
    CommitObjectsError,
    AdvanceLogStartError,
    SwapSegmentsError,
    AllocateProducerIdsError,
    UnregisterBrokerError,
    AdminError
);

/// Whether another controller may be asked the same, since this one carried nothing out and never will.
fn try_another(unavailable: ControllerUnavailable) -> bool {
    match unavailable {
        ControllerUnavailable::NoController | ControllerUnavailable::Closed => true,
        // `Deposed` leaves open what became of it. The rest may be over soon, and the caller knows best how long it
        // can wait.
        ControllerUnavailable::Deposed
        | ControllerUnavailable::StoreUnavailable
        | ControllerUnavailable::OutcomeUnknown
        | ControllerUnavailable::Busy => false,
    }
}

/// How a controller is asked.
struct Target {
    api: Arc<dyn ControllerApi>,
    admin: Arc<dyn ClusterAdmin>,
}

impl Target {
    fn of(standing: &Standing) -> Option<Self> {
        match &standing.controller {
            Whom::Nobody => None,
            Whom::Here(active) => Some(Self {
                api: active.api.clone(),
                admin: active.admin.clone(),
            }),
            Whom::There(there) => Some(Self {
                api: there.parts.api.clone(),
                admin: there.parts.admin.clone(),
            }),
        }
    }
}

/// The picture that shows the effect of what was answered last.
fn shown_by(standing: &Standing) -> Option<ImageVersion> {
    match &standing.controller {
        Whom::Nobody => None,
        Whom::Here(active) => Some(active.images.borrow().version()),
        Whom::There(there) => (there.parts.answered)(),
    }
}

impl Routed {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Asks, and asks again if the one asked isn't the controller (any more), for as long as requests wait for a
    /// controller. `wait` is what the request itself asks to be waited for.
    async fn ask<T, E, F>(
        &self,
        effect: Effect,
        wait: Duration,
        request: impl Fn(Target) -> F + Send,
    ) -> Result<T, E>
    where
        T: Send,
        E: Unanswered + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let settings = &self.shared.settings;
        let start = Instant::now();
        let patience = start + settings.controller_patience;
        let deadline = start + settings.request_timeout + wait;
        let mut standings = self.shared.standing.subscribe();
        loop {
            let standing = standings.borrow_and_update().clone();
            let Some(target) = Target::of(&standing) else {
                match timeout_at(patience, standings.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) | Err(_) => return Err(ControllerUnavailable::NoController.into()),
                }
            };
            let Ok(answer) = timeout_at(deadline, request(target)).await else {
                return Err(ControllerUnavailable::OutcomeUnknown.into());
            };
            let error = match answer {
                Ok(answer) => {
                    if effect == Effect::Shown {
                        self.show(&standing).await;
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let Some(unavailable) = error.unavailable() else {
                return Err(error);
            };
            if !try_another(unavailable) {
                self.suspect(&standing, unavailable);
                return Err(error);
            }
            let now = Instant::now();
            if now >= patience {
                return Err(ControllerUnavailable::NoController.into());
            }
            // Either way the standing is read again.
            let _ = timeout_at(patience.min(now + AGAIN), standings.changed()).await;
        }
    }

    /// A controller elsewhere that can't reach the store can't learn either that it was replaced.
    fn suspect(&self, standing: &Standing, unavailable: ControllerUnavailable) {
        let cut_off = match unavailable {
            ControllerUnavailable::StoreUnavailable
            | ControllerUnavailable::OutcomeUnknown
            | ControllerUnavailable::Deposed => true,
            ControllerUnavailable::Busy
            | ControllerUnavailable::Closed
            | ControllerUnavailable::NoController => false,
        };
        if cut_off && matches!(standing.controller, Whom::There(_)) {
            self.shared.suspicion.notify_one();
        }
    }

    /// Waits until this broker's picture shows the effect of what was just answered, if anybody feeds it.
    async fn show(&self, standing: &Standing) {
        let fed = match &standing.controller {
            Whom::Here(_) => true,
            Whom::There(_) | Whom::Nobody => {
                matches!(
                    *self.shared.session.borrow(),
                    SessionState::Connected { .. }
                )
            }
        };
        let Some(version) = shown_by(standing).filter(|_| fed) else {
            return;
        };
        let patience = self.shared.settings.image_patience;
        if !self.shared.image.reaches(version, patience).await {
            tracing::debug!(?version, "the picture doesn't show an answered change yet");
        }
    }
}

macro_rules! controller {
    ($($name:ident: $request:ty => $answer:ty, $error:ty, $effect:ident;)*) => {
        #[async_trait]
        impl ControllerApi for Routed {
            $(
                async fn $name(&self, request: $request) -> Result<$answer, $error> {
                    self.ask(Effect::$effect, Duration::ZERO, |target| {
                        let request = request.clone();
                        async move { target.api.$name(request).await }
                    })
                    .await
                }
            )*
        }
    };
}
controller! {
    register_broker: RegisterBroker => Registered, RegisterBrokerError, Shown;
    take_leadership: TakeLeadership => LeadershipTaken, TakeLeadershipError, Shown;
    create_topics: CreateTopics
        => Vec<Result<CreatedTopic, CreateTopicError>>, ControllerUnavailable, Shown;
    delete_topics: DeleteTopics
        => Vec<Result<TopicName, UnknownTopic>>, ControllerUnavailable, Shown;
    create_partitions: CreatePartitions
        => Vec<Result<(), CreatePartitionsError>>, ControllerUnavailable, Shown;
    alter_configs: AlterConfigs
        => Vec<Result<Configs, UnknownTopic>>, ControllerUnavailable, Shown;
    alter_quotas: AlterQuotas
        => Vec<Result<(), TooManyQuotas>>, ControllerUnavailable, Shown;
    unregister_broker: UnregisterBroker => (), UnregisterBrokerError, Shown;
    commit_objects: CommitObjects => Vec<ObjectOutcome>, CommitObjectsError, Unseen;
    advance_log_start: AdvanceLogStart => Offset, AdvanceLogStartError, Unseen;
    swap_segments: SwapSegments => SwapOutcome, SwapSegmentsError, Unseen;
    allocate_producer_ids: AllocateProducerIds
        => ProducerIdBlock, AllocateProducerIdsError, Unseen;
    partition_states: Vec<PartitionId>
        => Vec<Option<PartitionState>>, ControllerUnavailable, Unseen;
    led_by: BrokerId => Vec<PartitionState>, ControllerUnavailable, Unseen;
    segments: SegmentQuery => SegmentPage, ControllerUnavailable, Unseen;
    deletable_objects: DeletableQuery
        => Vec<DeletableObject>, ControllerUnavailable, Unseen;
    forget_objects: Vec<StoredObjectKey> => (), ControllerUnavailable, Unseen;
    object_statuses: Vec<StoredObjectKey>
        => Vec<ObjectStatus>, ControllerUnavailable, Unseen;
}

const AT_ONCE: Duration = Duration::ZERO;

#[async_trait]
impl ClusterAdmin for Routed {
    async fn reassign(
        &self,
        moves: Vec<MoveRequest>,
        wait: Duration,
    ) -> Result<Vec<Result<MoveReport, MoveError>>, AdminError> {
        self.ask(Effect::Shown, wait, |target| {
            let moves = moves.clone();
            async move { target.admin.reassign(moves, wait).await }
        })
        .await
    }

    async fn alter_placements(
        &self,
        changes: Vec<PlacementChange>,
    ) -> Result<Vec<Result<(), PlacementError>>, AdminError> {
        self.ask(Effect::Shown, AT_ONCE, |target| {
            let changes = changes.clone();
            async move { target.admin.alter_placements(changes).await }
        })
        .await
    }

    async fn list_reassignments(
        &self,
        partitions: Option<Vec<PartitionId>>,
    ) -> Result<Vec<Reassignment>, AdminError> {
        self.ask(Effect::Unseen, AT_ONCE, |target| {
            let partitions = partitions.clone();
            async move { target.admin.list_reassignments(partitions).await }
        })
        .await
    }

    async fn elect_leaders(
        &self,
        kind: ElectionKind,
        partitions: Option<Vec<PartitionId>>,
        wait: Duration,
    ) -> Result<Vec<Elected>, AdminError> {
        self.ask(Effect::Shown, wait, |target| {
            let partitions = partitions.clone();
            async move { target.admin.elect_leaders(kind, partitions, wait).await }
        })
        .await
    }

    async fn drain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        self.ask(Effect::Shown, AT_ONCE, |target| async move {
            target.admin.drain(broker).await
        })
        .await
    }

    async fn undrain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        self.ask(Effect::Shown, AT_ONCE, |target| async move {
            target.admin.undrain(broker).await
        })
        .await
    }

    async fn drain_status(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        self.ask(Effect::Unseen, AT_ONCE, |target| async move {
            target.admin.drain_status(broker).await
        })
        .await
    }

    async fn set_balance(&self, enabled: bool) -> Result<bool, AdminError> {
        self.ask(Effect::Unseen, AT_ONCE, |target| async move {
            target.admin.set_balance(enabled).await
        })
        .await
    }

    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError> {
        self.ask(Effect::Unseen, AT_ONCE, |target| async move {
            target.admin.cluster_status().await
        })
        .await
    }
}
