//! Requests, as the edge hands them over after parsing. Topic ids are resolved and authorization is checked
//! by then.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::{LeaderEpoch, PartitionIndex, TimestampMs, TopicId, TopicName};
use uuid::Uuid;

use crate::{Generation, GroupId, InstanceId, MemberEpoch, MemberId};

/// The time at which an input is applied. Deadlines are measured on the monotonic clock, everything that is
/// stored on the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back; its zero is the host's choice.
    pub monotonic_ms: u64,
    pub wall: TimestampMs,
}

/// A partition as `__consumer_offsets` names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

/// The offset that a client committed. Kafka stores negative ones unchecked, so this isn't an
/// [`Offset`](tidegate_types::Offset).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommittedOffset(i64);

impl CommittedOffset {
    pub const fn from_wire(offset: i64) -> Self {
        Self(offset)
    }
    pub const fn to_wire(self) -> i64 {
        self.0
    }
}

/// A committed offset and what is kept with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    pub offset: CommittedOffset,
    pub leader_epoch: Option<LeaderEpoch>,
    pub metadata: Arc<str>,
    pub committed_at: TimestampMs,
    /// Set only if the client asked for its own retention (OffsetCommit v2 to v4).
    pub expires_at: Option<TimestampMs>,
    /// The topic's id at the time of the commit; unknown in records of Kafka before 4.1.
    pub topic_id: Option<TopicId>,
}

/// One protocol that a member supports, in order of its preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    pub name: Arc<str>,
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    pub group_id: GroupId,
    /// 0 to 9. From 4 on dynamic members must come back with the id they are given (KIP-394); from 9 on a
    /// static leader may be told to skip the assignment (KIP-814); 0 has no rebalance timeout.
    pub api_version: i16,
    /// `None` for the wire's "".
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    /// "" if the client sent none.
    pub client_id: String,
    /// As Kafka shows it, e.g. `/10.0.0.1`.
    pub client_host: String,
    pub session_timeout_ms: i32,
    /// Ignored in version 0.
    pub rebalance_timeout_ms: i32,
    pub protocol_type: String,
    pub protocols: Vec<Protocol>,
    /// Why the client joins (v8+); only passed on to [`crate::Notice`].
    pub reason: Option<String>,
    /// Random; becomes part of the member id if one must be made.
    pub random: Uuid,
}

/// SyncGroup.
#[derive(Debug, Clone)]
pub struct SyncRequest {
    pub group_id: GroupId,
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    pub generation: Option<Generation>,
    /// From version 5 on; `None` isn't checked.
    pub protocol_type: Option<String>,
    /// From version 5 on; `None` isn't checked.
    pub protocol_name: Option<String>,
    /// Counts only if the sender is the leader.
    pub assignments: Vec<(MemberId, Bytes)>,
}

/// Heartbeat.
#[derive(Debug, Clone)]
pub struct HeartbeatRequest {
    pub group_id: GroupId,
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    pub generation: Option<Generation>,
}

/// LeaveGroup. Versions below 3 name exactly one member.
#[derive(Debug, Clone)]
pub struct LeaveRequest {
    pub group_id: GroupId,
    pub members: Vec<LeavingMember>,
}

/// A member to remove: by its id, or a static one by its instance id alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingMember {
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    /// From version 5 on.
    pub reason: Option<String>,
}

/// OffsetCommit, for partitions that exist.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    pub group_id: GroupId,
    /// 2 to 10; from 9 on a group that doesn't exist has an error of its own.
    pub api_version: i16,
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    pub generation: Option<Generation>,
    /// Versions 2 to 4; −1 means the broker's retention.
    pub retention_ms: i64,
    pub offsets: Vec<OffsetToCommit>,
}

/// One partition of an OffsetCommit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetToCommit {
    pub target: TopicPartition,
    pub topic_id: Option<TopicId>,
    pub offset: CommittedOffset,
    pub leader_epoch: Option<LeaderEpoch>,
    pub metadata: Option<String>,
}

/// One group of an OffsetFetch.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub group_id: GroupId,
    /// From version 9 on a member of a consumer group names itself and its epoch.
    pub member_id: Option<MemberId>,
    /// `None` for the wire's −1.
    pub member_epoch: Option<MemberEpoch>,
    pub selection: OffsetSelection,
}

/// Which offsets of a group to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetSelection {
    /// The wire's null.
    All,
    /// An offset that was committed under another topic id than the one given here is not returned.
    Partitions(Vec<(TopicPartition, Option<TopicId>)>),
}

/// OffsetDelete.
#[derive(Debug, Clone)]
pub struct DeleteOffsetsRequest {
    pub group_id: GroupId,
    pub targets: Vec<TopicPartition>,
}

/// ListGroups: an empty filter lets all pass; case doesn't matter.
#[derive(Debug, Clone, Default)]
pub struct GroupFilter {
    pub states: Vec<String>,
    pub types: Vec<String>,
}
