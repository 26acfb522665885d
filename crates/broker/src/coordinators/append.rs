//! Writing a coordinator's records to its log.

use std::sync::Arc;

use tidegate_coordinator::{AppendFailure, Record, Transaction};
use tidegate_partition_log::{AppendError, Durability, MarkerRefused, PartitionLog, SequenceError};
use tidegate_record_batch::{BatchBuilder, Codec, ProducedBatch, ProducerIdentity, TimestampType};
use tidegate_types::{Offset, TimestampMs};
use tokio::sync::oneshot;
use tracing::{error, warn};

/// How an append stands.
pub(crate) enum Outcome {
    Refused(AppendFailure),
    Durable,
    /// Resolves when durable; an error means that nobody knows whether it is in the log.
    Waiting(oneshot::Receiver<()>),
}

/// Appends records as one batch, which may belong to a producer's transaction.
pub(crate) fn append_records(
    log: &Arc<PartitionLog>,
    at: TimestampMs,
    records: &[Record],
    transaction: Option<Transaction>,
) -> Outcome {
    // As in Apache Kafka, the records of a coordinator have no sequences.
    let producer = transaction.map(|of| ProducerIdentity {
        id: of.producer,
        epoch: of.epoch,
        first_sequence: None,
    });
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::None,
        TimestampType::CreateTime,
        producer,
        transaction.is_some(),
    );
    for record in records {
        builder.push(at, Some(&record.key), record.value.as_deref(), &[]);
    }
    let batch = match builder.finish() {
        Ok(bytes) => ProducedBatch::from_broker(bytes),
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "a coordinator's records don't fit a batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    let batch = match batch {
        Ok(batch) => batch,
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "a coordinator's records make no valid batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    let appended = log.append_verified(batch, transaction.and_then(|of| of.ticket));
    match appended {
        Ok(appended) => outcome(Ok(appended.durability)),
        Err(error) => {
            warn!(partition = %log.id(), error = &error as &dyn std::error::Error, "a coordinator's records were not written");
            outcome(Err(&error))
        }
    }
}

/// What an append means to a coordinator.
pub(crate) fn outcome(appended: Result<Durability, &AppendError>) -> Outcome {
    match appended {
        Ok(Durability::Durable) => Outcome::Durable,
        Ok(Durability::Pending(receiver)) => Outcome::Waiting(receiver),
        Err(error) => Outcome::Refused(failure(error)),
    }
}

fn failure(error: &AppendError) -> AppendFailure {
    match error {
        AppendError::NotLeader | AppendError::Failed(_) | AppendError::OutOfOffsets => {
            AppendFailure::NotLeader
        }
        AppendError::Full(_) | AppendError::Switching | AppendError::Sealed => {
            AppendFailure::Unavailable
        }
        AppendError::TooLarge { .. } => AppendFailure::TooLarge,
        AppendError::Sequence(SequenceError::Fenced { .. })
        | AppendError::Marker(MarkerRefused::Fenced { .. }) => AppendFailure::ProducerFenced,
        // The records of a coordinator have no sequences to be wrong.
        AppendError::Sequence(
            SequenceError::NoTransaction { .. }
            | SequenceError::NotTransactional { .. }
            | SequenceError::OutOfOrder { .. },
        ) => AppendFailure::NoTransaction,
        AppendError::Marker(MarkerRefused::CoordinatorFenced { .. }) => {
            AppendFailure::CoordinatorFenced
        }
    }
}
