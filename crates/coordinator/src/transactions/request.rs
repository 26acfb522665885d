//! Requests, as the edge hands them over after parsing.

use std::fmt;
use std::sync::Arc;

use tidegate_types::{ProducerEpoch, ProducerId};

use super::{TransactionError, TransactionState, TransactionVersion};
use crate::TopicPartition;
use crate::expression::Expression;
use crate::id::MAX_RECORD_STRING_BYTES;

/// The durable name of a transactional producer. Never empty.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionalId(Arc<str>);

impl TransactionalId {
    /// Fails with [`TransactionError::InvalidRequest`] if empty or above 32767 bytes, which the records can't carry.
    pub fn new(id: &str) -> Result<Self, TransactionError> {
        if id.is_empty() || id.len() > MAX_RECORD_STRING_BYTES {
            return Err(TransactionError::InvalidRequest);
        }
        Ok(Self(id.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A producer as it takes itself to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerIdentity {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
}

/// InitProducerId with a transactional id.
#[derive(Debug, Clone)]
pub struct InitRequest {
    pub transactional_id: TransactionalId,
    pub timeout_ms: i32,
    /// What the producer had before, from version 3 on (KIP-360).
    pub expected: Option<ProducerIdentity>,
    /// For [`TransactionError::ProducerIdNeeded`]: an id that nobody has.
    pub fresh: Option<ProducerId>,
}

/// AddPartitionsToTxn of one transaction; AddOffsetsToTxn is one with the partition of the group's offsets.
#[derive(Debug, Clone)]
pub struct AddPartitionsRequest {
    pub transactional_id: TransactionalId,
    pub producer: ProducerIdentity,
    pub partitions: Vec<TopicPartition>,
}

/// EndTxn.
#[derive(Debug, Clone)]
pub struct EndRequest {
    pub transactional_id: TransactionalId,
    pub producer: ProducerIdentity,
    pub commit: bool,
    pub version: TransactionVersion,
    /// For [`TransactionError::ProducerIdNeeded`]: an id that nobody has.
    pub fresh: Option<ProducerId>,
}

/// ListTransactions: an empty filter lets all pass.
#[derive(Debug, Clone, Default)]
pub struct TransactionFilter {
    pub states: Vec<TransactionState>,
    pub producers: Vec<ProducerId>,
    /// Only those that started longer ago than so many milliseconds; negative: all.
    pub longer_than_ms: i64,
    pub name: Option<Expression>,
}
