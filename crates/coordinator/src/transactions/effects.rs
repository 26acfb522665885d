//! What the coordinator tells its host to do, and the replies it gives.

use tidegate_types::TimestampMs;

use super::{ProducerIdentity, TransactionError, TransactionVersion, TransactionalId};
use crate::{AppendId, Record, ReplyToken, TopicPartition};

/// An order or an answer. The host carries them out in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionEffect {
    /// Answer the request. Each token is answered exactly once.
    Reply(ReplyToken, TransactionReply),
    /// Append these records as one batch, then report with [`super::TransactionCoordinator::appended`]. Appends
    /// must reach the log in the order given.
    Append {
        id: AppendId,
        /// For the records' timestamps.
        at: TimestampMs,
        records: Vec<Record>,
    },
    /// Have the marker written to these partitions, again and again until it is; report with
    /// [`super::TransactionCoordinator::markers_written`].
    SendMarkers(Markers),
    /// For logs and metrics; nothing to do.
    Notice(TransactionNotice),
}

/// Names one order to write markers; a coordinator gives each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MarkerOrder(pub(super) u64);

/// The end of a transaction, for its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    pub order: MarkerOrder,
    pub transactional_id: TransactionalId,
    /// With the epoch that the marker carries.
    pub producer: ProducerIdentity,
    pub commit: bool,
    /// Version 2: the marker's epoch is above that of the transaction's records.
    pub version: TransactionVersion,
    /// Never empty, sorted.
    pub partitions: Vec<TopicPartition>,
}

/// A change of state worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionNotice {
    Initialized {
        transactional_id: TransactionalId,
        producer: ProducerIdentity,
    },
    /// A transaction took longer than its producer allowed, or its producer was replaced.
    Fenced {
        transactional_id: TransactionalId,
        timed_out: bool,
    },
    Expired {
        ids: usize,
    },
    /// An append took longer than its waiters could wait; it is still pending.
    AppendTimedOut {
        id: AppendId,
    },
}

/// What EndTxn answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTransaction {
    /// For the next transaction.
    pub producer: ProducerIdentity,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionReply {
    Init(Result<ProducerIdentity, TransactionError>),
    Add(Result<(), TransactionError>),
    End(Result<EndedTransaction, TransactionError>),
}

impl TransactionReply {
    /// The reply of the same kind that says `error` instead.
    pub(super) fn failed(&self, error: TransactionError) -> Self {
        match self {
            Self::Init(_) => Self::Init(Err(error)),
            Self::Add(_) => Self::Add(Err(error)),
            Self::End(_) => Self::End(Err(error)),
        }
    }
}
