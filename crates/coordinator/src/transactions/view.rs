//! What admin tools see (KIP-664).

use tidegate_types::{ProducerId, TimestampMs};

use super::{
    ProducerIdentity, TransactionCoordinator, TransactionError, TransactionFilter,
    TransactionState, TransactionalId,
};
use crate::{Now, TopicPartition};

/// One transactional id of DescribeTransactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedTransaction {
    pub state: TransactionState,
    pub producer: ProducerIdentity,
    pub timeout_ms: i32,
    /// [`TimestampMs::NONE`] if none was begun.
    pub started_at: TimestampMs,
    /// Sorted by topic and partition.
    pub partitions: Vec<TopicPartition>,
}

/// One transactional id of ListTransactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTransaction {
    pub transactional_id: TransactionalId,
    pub producer: ProducerId,
    pub state: TransactionState,
}

impl TransactionCoordinator {
    /// What the log is known to hold of an id.
    pub fn describe(&self, id: &TransactionalId) -> Result<DescribedTransaction, TransactionError> {
        self.serving()?;
        let known = self
            .entries
            .get(id)
            .and_then(|entry| entry.durable.as_ref())
            .ok_or(TransactionError::TransactionalIdNotFound)?;
        Ok(DescribedTransaction {
            state: known.state,
            producer: known.producer,
            timeout_ms: known.timeout_ms,
            started_at: known.started_at,
            partitions: known.partitions.iter().cloned().collect(),
        })
    }

    /// The ids that pass the filter, in their order.
    pub fn list(
        &self,
        now: Now,
        filter: &TransactionFilter,
    ) -> Result<Vec<ListedTransaction>, TransactionError> {
        self.serving()?;
        let stored = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((id, entry.durable.as_ref()?)));
        let listed = stored
            .filter(|(_, t)| filter.states.is_empty() || filter.states.contains(&t.state))
            .filter(|(_, t)| {
                filter.producers.is_empty() || filter.producers.contains(&t.producer.id)
            })
            .filter(|(_, t)| {
                // As in Kafka, ids without an open transaction pass as well.
                let since = now.wall.get().saturating_sub(t.started_at.get());
                filter.longer_than_ms < 0 || since > filter.longer_than_ms
            })
            .filter(|(id, _)| {
                let name = filter.name.as_ref();
                name.is_none_or(|name| name.is_match(id.as_str()))
            });
        Ok(listed
            .map(|(id, t)| ListedTransaction {
                transactional_id: id.clone(),
                producer: t.producer.id,
                state: t.state,
            })
            .collect())
    }
}
