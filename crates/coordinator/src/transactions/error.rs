//! What can go wrong, in the coordinator's own words. Kafka's codes are assigned elsewhere.

use crate::AppendFailure;

/// Why a request was refused. Each variant is named like the Kafka error it stands for, except for the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    #[error("the coordinator is loading its transactions")]
    CoordinatorLoadInProgress,
    #[error("the coordinator could not store the change; nothing says that it failed for good")]
    CoordinatorNotAvailable,
    #[error("this broker no longer coordinates the transactional id")]
    NotCoordinator,
    #[error("the transactional id is empty or too long")]
    InvalidRequest,
    #[error("the transaction time-out is not above 0 or above the allowed maximum")]
    InvalidTransactionTimeout,
    #[error("the transactional id belongs to another producer id")]
    InvalidProducerIdMapping,
    #[error("a producer with a newer epoch has taken over the transactional id")]
    ProducerFenced,
    #[error("another change of the transactional id is not finished")]
    ConcurrentTransactions,
    #[error("the transaction is not in a state that allows this")]
    InvalidTxnState,
    #[error("the partition isn't in the transaction")]
    TransactionAbortable,
    #[error("no such transactional id")]
    TransactionalIdNotFound,
    #[error("the record is too large for the log")]
    UnknownServerError,
    /// Ask again with a new producer id; clients never see this.
    #[error("a new producer id is needed")]
    ProducerIdNeeded,
    /// This coordinator's limit on ids (`max_transactional_ids`), which Kafka hasn't got.
    #[error("the coordinator holds as many transactional ids as it may hold")]
    TooManyTransactionalIds,
}

impl AppendFailure {
    pub(super) fn as_transaction_error(self) -> TransactionError {
        match self {
            Self::Unavailable => TransactionError::CoordinatorNotAvailable,
            Self::NotLeader => TransactionError::NotCoordinator,
            // Its own records are in nobody's transaction.
            Self::TooLarge
            | Self::ProducerFenced
            | Self::NoTransaction
            | Self::CoordinatorFenced => TransactionError::UnknownServerError,
        }
    }
}
