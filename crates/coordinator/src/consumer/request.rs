//! The requests of the consumer protocol, and their answers.

use tidegate_types::{TopicId, TopicName};
use uuid::Uuid;

use super::{Assignment, GroupEpoch, MemberEpoch};
use crate::{GroupId, InstanceId, MemberId};

/// ConsumerGroupHeartbeat: joins, stays, reports what is owned, or leaves, by its member epoch.
#[derive(Debug, Clone)]
pub struct ConsumerHeartbeatRequest {
    pub group_id: GroupId,
    /// 0 or 1. From 1 on members choose their ids, and may subscribe by a regular expression.
    pub api_version: i16,
    /// `None` for the wire's "".
    pub member_id: Option<MemberId>,
    pub member_epoch: MemberEpoch,
    pub instance_id: Option<InstanceId>,
    pub rack_id: Option<String>,
    /// "" if the client sent none.
    pub client_id: String,
    /// As Kafka shows it, e.g. `/10.0.0.1`.
    pub client_host: String,
    /// −1 if unchanged.
    pub rebalance_timeout_ms: i32,
    /// `None` if unchanged.
    pub topics: Option<Vec<String>>,
    /// `None` if unchanged, "" to withdraw it.
    pub regex: Option<String>,
    /// `None` if unchanged or not chosen.
    pub server_assignor: Option<String>,
    /// `None` if unchanged.
    pub owned: Option<Assignment>,
    /// Random; becomes the member's id if one must be made.
    pub random: Uuid,
}

/// A successful ConsumerGroupHeartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerHeartbeat {
    pub member_id: Option<MemberId>,
    pub member_epoch: MemberEpoch,
    pub heartbeat_interval_ms: u32,
    /// What the member may read. `None` if that is unchanged.
    pub assignment: Option<Assignment>,
}

/// The state of a consumer group, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConsumerGroupState {
    Empty,
    /// The target of the newest epoch isn't computed yet.
    Assigning,
    /// Members move towards the target.
    Reconciling,
    Stable,
}

impl ConsumerGroupState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// One group of ConsumerGroupDescribe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConsumerGroup {
    pub state: ConsumerGroupState,
    pub epoch: GroupEpoch,
    pub assignment_epoch: GroupEpoch,
    pub assignor: String,
    pub members: Vec<DescribedConsumer>,
}

/// Partitions of topics that exist, for a description.
pub type NamedAssignment = Vec<(TopicId, TopicName, Vec<i32>)>;

/// One member of ConsumerGroupDescribe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConsumer {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub rack_id: Option<String>,
    pub member_epoch: MemberEpoch,
    pub client_id: String,
    pub client_host: String,
    pub topics: Vec<String>,
    pub regex: Option<String>,
    pub assignment: NamedAssignment,
    pub target: NamedAssignment,
    /// Whether it speaks the classic protocol (online migration).
    pub is_classic: bool,
}
