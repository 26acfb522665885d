//! What brokers ask each other for transactions: a coordinator has markers written by the leaders of partitions, and a
//! leader asks the coordinator whether a partition is in a transaction. Protocol: `docs/protocols/transactions.md`.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_types::{PartitionId, PartitionIndex, ProducerEpoch, ProducerId, TopicName};

use crate::orders::OrderError;

/// The end of a transaction, for the partitions that the receiver leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionMarker {
    /// Whose transaction.
    pub producer: ProducerId,
    /// The epoch that the marker carries.
    pub epoch: ProducerEpoch,
    /// The leader epoch of the coordinator's partition; a partition refuses one below the last it saw.
    pub coordinator_epoch: i32,
    /// Whether it commits, or aborts.
    pub commit: bool,
    /// From 2 on the marker's epoch is above that of the transaction's records (KIP-890).
    pub transaction_version: u8,
    /// Where to write it.
    pub partitions: Vec<PartitionId>,
}

/// What became of a marker in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkerOutcome {
    /// It is durable.
    Written,
    /// Another broker leads the partition.
    NotLeader,
    /// There is no such partition any more; nobody waits for its marker.
    UnknownPartition,
    /// The partition knows a newer epoch of the producer, so the transaction is over there.
    ProducerFenced,
    /// The partition has seen a newer coordinator, which sends the marker itself.
    CoordinatorFenced,
    /// Not now.
    Retry(String),
}

/// Partitions of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddPartitions {
    /// Whose coordinator is asked.
    pub transactional_id: String,
    /// The producer, as its records say.
    pub producer: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Which partitions.
    pub partitions: Vec<(TopicName, PartitionIndex)>,
    /// Only say whether they are in it.
    pub verify_only: bool,
}

/// What a broker does for the transactions of others.
#[async_trait]
pub trait BrokerTransactions: Send + Sync {
    /// Writes markers; twice is as good as once. One answer per partition: those of the first marker in its order, then
    /// those of the second.
    async fn write_markers(
        &self,
        markers: Vec<TransactionMarker>,
    ) -> Result<Vec<MarkerOutcome>, OrderError>;

    /// Adds partitions to an open transaction, or looks whether they are in it. One of Kafka's error codes per partition,
    /// in the order of the request.
    async fn add_partitions(&self, request: AddPartitions) -> Result<Vec<i16>, OrderError>;
}
