//! What anybody asks a broker about what lives on it alone: the logs that it leads, and the groups that it coordinates.
//!
//! Answers are a moment's view, for people and tools. Nothing is decided by them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicName};

use crate::orders::OrderError;

/// A log as its leader has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Which partition.
    pub partition: PartitionId,
    /// Under which leader epoch it is led.
    pub leader_epoch: LeaderEpoch,
    /// The promise under which records are acknowledged.
    pub durability: DurabilityMode,
    /// First readable offset.
    pub log_start: Offset,
    /// What readers of committed transactions see ends here.
    pub last_stable: Offset,
    /// What readers see ends here.
    pub high_watermark: Offset,
    /// What was appended ends here; records behind the high watermark aren't durable yet.
    pub log_end: Offset,
    /// Number of segments in object storage.
    pub segments: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Bytes that aren't in object storage yet.
    pub not_uploaded_bytes: u64,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Its name.
    pub group: String,
    /// Its state, by Kafka's name.
    pub state: String,
    /// What its members speak among each other, such as `consumer`; empty if unknown.
    pub protocol_type: String,
}

/// The groups that a broker coordinates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupList {
    /// All that are loaded.
    pub groups: Vec<GroupSummary>,
    /// Why some may be missing.
    #[serde(default)]
    pub incomplete: Option<String>,
}

/// One group in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDescription {
    /// Name, state and kind.
    pub summary: GroupSummary,
    /// The assignment strategy in use; empty unless the group is stable.
    pub protocol: String,
    /// Rises with each rebalance.
    pub generation: i32,
    /// Its members.
    pub members: Vec<GroupMember>,
    /// Its committed offsets.
    pub offsets: Vec<GroupOffset>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Its number in the group.
    pub member_id: String,
    /// What it calls itself across restarts (KIP-345).
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// What it reads, if it is a consumer whose assignment can be read.
    pub assigned: Vec<(TopicName, PartitionIndex)>,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// The next record the group reads.
    pub offset: Offset,
    /// What was committed with it.
    pub metadata: String,
}

/// What a broker knows of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupAnswer {
    /// It coordinates the group.
    Described(Box<GroupDescription>),
    /// It would coordinate the group, but there is none.
    Unknown,
    /// Another broker coordinates groups of this name, or nobody does yet.
    NotHere,
    /// It can't say at present.
    Unavailable {
        /// Why.
        cause: String,
    },
}

/// What a broker answers about itself. Questions change nothing.
#[async_trait]
pub trait BrokerQueries: Send + Sync {
    /// One answer per partition, in the order of the request; `None` for those that this broker doesn't lead.
    async fn log_statuses(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<Option<LogStatus>>, OrderError>;

    /// The groups in these states (Kafka's names), or all if none is named.
    async fn list_groups(&self, states: Vec<String>) -> Result<GroupList, OrderError>;

    /// One group.
    async fn describe_group(&self, group: String) -> Result<GroupAnswer, OrderError>;
}
