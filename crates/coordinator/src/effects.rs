//! What the coordinator tells its host to do, and the replies it gives.

use std::fmt;

use bytes::Bytes;
use tidegate_types::{TimestampMs, TopicId};

use crate::offsets::{EndTransaction, Transaction};
use crate::{
    ConsumerHeartbeat, Generation, GroupError, GroupId, InstanceId, JoinRefused, MemberId,
    OffsetAndMetadata, TopicPartition,
};

/// Names one request that is waiting for its reply. The host makes them and must not use one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// Names one append of this coordinator. Later appends have higher ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendId(u64);

impl AppendId {
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for AppendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record for the partition's log. No value is a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// An order or an answer. The host carries them out in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer the request. Each token is answered exactly once.
    Reply(ReplyToken, Reply),
    /// Append these records as one batch, then report with [`crate::GroupCoordinator::appended`]. Appends
    /// must reach the log in the order given.
    Append {
        id: AppendId,
        /// For the records' timestamps.
        at: TimestampMs,
        records: Vec<Record>,
    },
    /// The same, in a producer's transaction.
    AppendTransactional {
        id: AppendId,
        at: TimestampMs,
        records: Vec<Record>,
        transaction: Transaction,
    },
    /// Append the marker that ends a transaction, then report it like the others.
    AppendMarker { id: AppendId, end: EndTransaction },
    /// For logs and metrics; nothing to do.
    Notice(Notice),
}

/// A change of state worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    PreparingRebalance {
        group: GroupId,
        generation: Generation,
        reason: String,
    },
    JoinCompleted {
        group: GroupId,
        generation: Generation,
        members: usize,
    },
    Stable {
        group: GroupId,
        generation: Generation,
    },
    Empty {
        group: GroupId,
        generation: Generation,
    },
    /// No member came back within the rebalance timeout; static ones are waited for until their session ends.
    NobodyRejoined {
        group: GroupId,
    },
    MemberExpired {
        group: GroupId,
        member: MemberId,
    },
    MembersDropped {
        group: GroupId,
        members: Vec<MemberId>,
        reason: &'static str,
    },
    StaticMemberReplaced {
        group: GroupId,
        instance: InstanceId,
        old: MemberId,
        new: MemberId,
    },
    OffsetsExpired {
        group: GroupId,
        count: usize,
    },
    GroupDeleted {
        group: GroupId,
    },
    /// An append took longer than its waiters could wait; it is still pending.
    AppendTimedOut {
        id: AppendId,
    },
    /// A classic group became a consumer group.
    Upgraded {
        group: GroupId,
        members: usize,
    },
    /// A consumer group became a classic one.
    Downgraded {
        group: GroupId,
        members: usize,
    },
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Join(Result<Joined, JoinRefused>),
    Sync(Result<Synced, GroupError>),
    /// Per member, in the order of the request.
    Leave(Result<Vec<LeftMember>, GroupError>),
    /// Per partition, in the order of the request; in a transaction or not.
    CommitOffsets(Result<Vec<Result<(), GroupError>>, GroupError>),
    EndTransaction(Result<(), GroupError>),
    FetchOffsets(Result<Vec<FetchedOffset>, GroupError>),
    /// Per partition, in the order of the request.
    DeleteOffsets(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// Per group, in the order of the request.
    DeleteGroups(Vec<(GroupId, Result<(), GroupError>)>),
    ConsumerHeartbeat(Result<ConsumerHeartbeat, GroupError>),
}

impl Reply {
    /// The reply of the same kind that says `error` instead.
    pub(crate) fn failed(self, error: GroupError) -> Self {
        match self {
            Self::Join(reply) => {
                let member_id = match reply {
                    Ok(joined) => Some(joined.member_id),
                    Err(refused) => refused.member_id,
                };
                Self::Join(Err(JoinRefused { error, member_id }))
            }
            Self::Sync(_) => Self::Sync(Err(error)),
            Self::ConsumerHeartbeat(_) => Self::ConsumerHeartbeat(Err(error)),
            Self::Leave(_) => Self::Leave(Err(error)),
            Self::CommitOffsets(_) => Self::CommitOffsets(Err(error)),
            Self::EndTransaction(_) => Self::EndTransaction(Err(error)),
            // Consumers before 3.9 don't know COORDINATOR_NOT_AVAILABLE here and give up; NOT_COORDINATOR
            // makes every client look for the coordinator again (KAFKA-17455).
            Self::FetchOffsets(_) => Self::FetchOffsets(Err(match error {
                GroupError::CoordinatorNotAvailable => GroupError::NotCoordinator,
                other => other,
            })),
            Self::DeleteOffsets(_) => Self::DeleteOffsets(Err(error)),
            Self::DeleteGroups(groups) => Self::DeleteGroups(
                groups
                    .into_iter()
                    .map(|(group, _)| (group, Err(error.clone())))
                    .collect(),
            ),
        }
    }
}

/// A successful JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub generation: Generation,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    /// Not the member's own id if another one leads. After a static rejoin below version 9 it is the id that
    /// the leader had before, so that nobody takes itself for the leader.
    pub leader: Option<MemberId>,
    pub member_id: MemberId,
    /// The leader must not compute an assignment (v9+).
    pub skip_assignment: bool,
    /// All members; empty unless the receiver leads.
    pub members: Vec<JoinedMember>,
}

/// A member as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub metadata: Bytes,
}

/// A successful SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    pub assignment: Bytes,
}

/// One member of a LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftMember {
    /// As in the request.
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    pub result: Result<(), GroupError>,
}

/// One partition of an OffsetFetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedOffset {
    pub target: TopicPartition,
    /// As in the request, or else as stored.
    pub topic_id: Option<TopicId>,
    /// `Ok(None)`: no offset committed, −1 on the wire. The error is [`GroupError::UnstableOffsetCommit`].
    pub committed: Result<Option<OffsetAndMetadata>, GroupError>,
}

/// The state of a group, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl GroupState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// One group of DescribeGroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedGroup {
    pub state: GroupState,
    pub generation: Generation,
    /// "" if unknown.
    pub protocol_type: String,
    /// "" unless the group is Stable.
    pub protocol_name: String,
    pub members: Vec<DescribedMember>,
}

/// One member of DescribeGroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: MemberId,
    pub instance_id: Option<InstanceId>,
    pub client_id: String,
    pub client_host: String,
    /// Empty unless the group is Stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// One group of ListGroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedGroup {
    pub group_id: GroupId,
    pub protocol_type: String,
    /// By Kafka's name; the two types of groups have different states.
    pub state: &'static str,
    /// `classic` or `consumer`, as Kafka's group types are written.
    pub group_type: &'static str,
}
