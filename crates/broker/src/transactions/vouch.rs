//! Asking a transaction's coordinator, before its first records go into a partition here (KIP-890).

use std::time::Duration;

use tidegate_coordinator::TopicPartition;
use tidegate_types::{ProducerEpoch, ProducerId};
use tokio::time::timeout;

use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// The longest a coordinator is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client can make of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Understands {
    /// Neither a refusal that it may abort for nor partitions that are added by writing to them.
    Old,
    /// TRANSACTION_ABORTABLE (KIP-890, first part).
    Abortable,
    /// And partitions join a transaction by being written to (second part).
    ImplicitAdd,
}

/// Has the coordinator say that partitions belong to a producer's transaction, or adds them to it. A code for each.
pub(crate) async fn vouch(
    broker: &Broker,
    transactional_id: &str,
    (producer, epoch): (ProducerId, ProducerEpoch),
    partitions: &[TopicPartition],
    understands: Understands,
) -> Vec<ErrorCode> {
    let add = understands == Understands::ImplicitAdd;
    let asked = broker.transactions.verify_or_add(
        broker,
        transactional_id,
        producer,
        epoch,
        partitions,
        add,
    );
    let codes = match timeout(PATIENCE, asked).await {
        Ok(codes) => codes,
        Err(_) => vec![ErrorCode::NetworkException; partitions.len()],
    };
    codes
        .into_iter()
        .map(|code| for_client(code, understands))
        .collect()
}

fn for_client(code: ErrorCode, understands: Understands) -> ErrorCode {
    match code {
        // What producers know as the end of their epoch.
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if understands == Understands::Old => {
            ErrorCode::InvalidTxnState
        }
        other => other,
    }
}

/// Whether a refusal passes by itself.
pub(crate) fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConcurrentTransactions
            | ErrorCode::NetworkException
            | ErrorCode::RequestTimedOut
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_codes_that_they_know() {
        let abortable = ErrorCode::TransactionAbortable;
        assert_eq!(
            for_client(abortable, Understands::Old),
            ErrorCode::InvalidTxnState
        );
        for newer in [Understands::Abortable, Understands::ImplicitAdd] {
            assert_eq!(for_client(abortable, newer), abortable);
            let fenced = for_client(ErrorCode::ProducerFenced, newer);
            assert_eq!(fenced, ErrorCode::InvalidProducerEpoch);
        }
    }
}
