//! Ending a transaction in a partition that this broker leads: its marker, appended durably.
//!
//! A coordinator asks until it is told that the marker is written, so what can't be done now is only said, and nothing
//! is repeated here. Asked twice, the answer is the same.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::transactions::{MarkerOutcome, TransactionMarker};
use tidegate_coordinator::{EndTransaction, GroupError};
use tidegate_partition_log::{AppendError, Durability, Marker, MarkerRefused, PartitionLog};
use tidegate_types::PartitionId;

use crate::broker::Broker;
use crate::catalog::OFFSETS_TOPIC;
use crate::error_code::ErrorCode;
use crate::handover::Patience;

/// How long a marker may take to be durable before the asker is told to ask again.
const PATIENCE: Duration = Duration::from_secs(10);

/// From this version of transactions on a producer gets a new epoch with each (KIP-890).
const FIRST_WITH_RISING_EPOCHS: u8 = 2;

/// Why a marker wasn't written, or isn't known to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MarkerFailure {
    NotLeader,
    ProducerFenced,
    CoordinatorFenced,
    Unavailable(String),
}

impl From<MarkerFailure> for ErrorCode {
    fn from(failure: MarkerFailure) -> Self {
        match failure {
            MarkerFailure::NotLeader => Self::NotLeaderOrFollower,
            MarkerFailure::ProducerFenced => Self::InvalidProducerEpoch,
            MarkerFailure::CoordinatorFenced => Self::TransactionCoordinatorFenced,
            MarkerFailure::Unavailable(_) => Self::RequestTimedOut,
        }
    }
}

/// Writes a marker in one partition. A topic that isn't in this broker's picture may be new as well as deleted, so the
/// answer is then that this broker doesn't lead it.
pub(crate) async fn write_marker(
    broker: &Broker,
    partition: PartitionId,
    marker: &TransactionMarker,
) -> MarkerOutcome {
    let marker = Marker {
        producer: marker.producer,
        epoch: marker.epoch,
        coordinator_epoch: marker.coordinator_epoch,
        commit: marker.commit,
        epoch_rises: marker.transaction_version >= FIRST_WITH_RISING_EPOCHS,
    };
    match apply_marker(broker, partition, marker).await {
        Ok(()) => MarkerOutcome::Written,
        Err(MarkerFailure::NotLeader) => MarkerOutcome::NotLeader,
        Err(MarkerFailure::ProducerFenced) => MarkerOutcome::ProducerFenced,
        Err(MarkerFailure::CoordinatorFenced) => MarkerOutcome::CoordinatorFenced,
        Err(MarkerFailure::Unavailable(cause)) => MarkerOutcome::Retry(cause),
    }
}

/// The same, for those who want to know how it failed.
pub(crate) async fn apply_marker(
    broker: &Broker,
    partition: PartitionId,
    marker: Marker,
) -> Result<(), MarkerFailure> {
    let catalog = broker.catalog.load_full();
    let topic = catalog
        .image
        .topic_by_id(partition.topic)
        .ok_or(MarkerFailure::NotLeader)?;
    // While the partition is being moved this waits for what becomes of it.
    let log = broker
        .log_for_append(topic, partition.index.to_wire(), &mut Patience::default())
        .await
        .map_err(|_| MarkerFailure::NotLeader)?;
    let written = async {
        // The coordinator of groups must know of every marker in its log, in order.
        match topic.name.as_str() == OFFSETS_TOPIC {
            true => end_in_group_log(broker, partition, marker).await,
            false => append(&log, marker).await,
        }
    };
    match tokio::time::timeout(PATIENCE, written).await {
        Ok(result) => result,
        Err(_) => Err(MarkerFailure::Unavailable("it isn't durable yet".into())),
    }
}

async fn append(log: &Arc<PartitionLog>, marker: Marker) -> Result<(), MarkerFailure> {
    match log.append_marker(marker).map_err(MarkerFailure::from)? {
        Durability::Durable => Ok(()),
        // The log was closed or its WAL failed: the outcome is unknown, and asking again finds out.
        Durability::Pending(durable) => durable.await.map_err(|_| MarkerFailure::NotLeader),
    }
}

async fn end_in_group_log(
    broker: &Broker,
    partition: PartitionId,
    marker: Marker,
) -> Result<(), MarkerFailure> {
    let end = EndTransaction {
        producer: marker.producer,
        epoch: marker.epoch,
        coordinator_epoch: marker.coordinator_epoch,
        commit: marker.commit,
        epoch_rises: marker.epoch_rises,
    };
    let ended = broker.groups.end_transaction(broker, partition, end).await;
    ended.map_err(|error| match error {
        // It isn't here, or isn't ready: the asker comes back.
        GroupError::NotCoordinator | GroupError::CoordinatorLoadInProgress => {
            MarkerFailure::NotLeader
        }
        GroupError::InvalidProducerEpoch => MarkerFailure::ProducerFenced,
        GroupError::TransactionCoordinatorFenced => MarkerFailure::CoordinatorFenced,
        other => MarkerFailure::Unavailable(other.to_string()),
    })
}

impl From<AppendError> for MarkerFailure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::NotLeader | AppendError::Sealed => Self::NotLeader,
            AppendError::Marker(MarkerRefused::Fenced { .. }) => Self::ProducerFenced,
            AppendError::Marker(MarkerRefused::CoordinatorFenced { .. }) => Self::CoordinatorFenced,
            AppendError::Full(_)
            | AppendError::Failed(_)
            | AppendError::Switching
            | AppendError::TooLarge { .. }
            | AppendError::Sequence(_)
            | AppendError::OutOfOffsets => Self::Unavailable(error.to_string()),
        }
    }
}
