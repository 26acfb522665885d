//! Writing a coordinator's records to its log.

use std::sync::Arc;

use tidegate_coordinator::{AppendFailure, Record};
use tidegate_partition_log::{AppendError, Durability, PartitionLog};
use tidegate_record_batch::{BatchBuilder, Codec, ProducedBatch, TimestampType};
use tidegate_types::{Offset, TimestampMs};
use tokio::sync::oneshot;
use tracing::{error, warn};

/// How an append stands.
pub(super) enum Outcome {
    Refused(AppendFailure),
    Durable,
    /// Resolves when durable; an error means that nobody knows whether it is in the log.
    Waiting(oneshot::Receiver<()>),
}

pub(super) fn append(log: &Arc<PartitionLog>, at: TimestampMs, records: &[Record]) -> Outcome {
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::None,
        TimestampType::CreateTime,
        None,
        false,
    );
    for record in records {
        builder.push(at, Some(&record.key), record.value.as_deref(), &[]);
    }
    let batch = match builder.finish() {
        Ok(bytes) => ProducedBatch::from_broker(bytes),
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "transaction records don't fit a batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    let batch = match batch {
        Ok(batch) => batch,
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "transaction records make no valid batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    match log.append(batch) {
        Ok(appended) => match appended.durability {
            Durability::Durable => Outcome::Durable,
            Durability::Pending(receiver) => Outcome::Waiting(receiver),
        },
        Err(error) => {
            warn!(partition = %log.id(), error = &error as &dyn std::error::Error, "transaction records were not written");
            Outcome::Refused(failure(&error))
        }
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
        // A coordinator is no idempotent producer and writes no markers here: no sequence or epoch can be wrong.
        AppendError::TooLarge { .. } | AppendError::Sequence(_) | AppendError::Marker(_) => {
            AppendFailure::TooLarge
        }
    }
}
