//! What can go wrong, in the coordinator's own words. Kafka's codes are assigned elsewhere.

use crate::MemberId;

/// Why a request, a member or a partition of a request was refused. Each variant is named like the Kafka
/// error it stands for, except for the last two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("the coordinator is loading its groups")]
    CoordinatorLoadInProgress,
    #[error("the coordinator could not store the change; nothing says that it failed for good")]
    CoordinatorNotAvailable,
    #[error("this broker no longer coordinates the group")]
    NotCoordinator,
    #[error("the group id is not valid for this request")]
    InvalidGroupId,
    #[error("no such group")]
    GroupIdNotFound,
    #[error("the group has members")]
    NonEmptyGroup,
    #[error("the member is not in the group")]
    UnknownMemberId,
    #[error("the generation is not the group's")]
    IllegalGeneration,
    #[error("another member has taken over the group instance id")]
    FencedInstanceId,
    #[error("join again with the member id given")]
    MemberIdRequired,
    #[error("the protocol type or the protocols don't fit the group's")]
    InconsistentGroupProtocol,
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    #[error("the session timeout is outside the allowed range")]
    InvalidSessionTimeout,
    #[error("the group has as many members as it may have")]
    GroupMaxSizeReached,
    #[error("the offset's metadata is too long")]
    OffsetMetadataTooLarge,
    #[error("the group is subscribed to the topic")]
    GroupSubscribedToTopic,
    #[error("the partition has offsets of an open transaction")]
    UnstableOffsetCommit,
    #[error("the producer's epoch is over")]
    InvalidProducerEpoch,
    #[error("the producer has no transaction open here")]
    InvalidTxnState,
    #[error("another coordinator of transactions has taken the sender's place")]
    TransactionCoordinatorFenced,
    #[error("the record is too large for the log")]
    UnknownServerError,
    #[error("a field of the request is longer than a record can carry")]
    InvalidRequest,
    #[error("{0}")]
    InvalidHeartbeat(&'static str),
    #[error(
        "the member epoch is not the one known here; the member must abandon its partitions and join again"
    )]
    FencedMemberEpoch,
    #[error("the member epoch is not the member's")]
    StaleMemberEpoch,
    #[error("the group instance id is still owned by another member")]
    UnreleasedInstanceId,
    #[error("the server assignor is not known; there are uniform and range")]
    UnsupportedAssignor,
    #[error("the subscribed topics are no regular expression of RE2's kind, or too large a one")]
    InvalidRegularExpression,
    #[error("members of the consumer protocol need a newer version of the request")]
    UnsupportedVersion,
    /// This coordinator's limit on groups (`max_groups`), which Kafka hasn't got.
    #[error("the coordinator holds as many groups as it may hold")]
    TooManyGroups,
    /// This coordinator's limit on the bytes of one member's protocols, which Kafka hasn't got.
    #[error("the member's protocol metadata is too large")]
    MemberMetadataTooLarge,
}

/// A refused JoinGroup. The wire carries a member id beside the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("join refused: {error}")]
pub struct JoinRefused {
    pub error: GroupError,
    /// With [`GroupError::MemberIdRequired`] the id to join again with; `None` is "" on the wire.
    pub member_id: Option<MemberId>,
}

/// How an append ended without becoming durable. Each is final: the records are not and will not be in the
/// log. An append whose outcome the host doesn't know must not be reported; the coordinator answers its
/// waiters after `offset_commit_timeout_ms` and leaves the records pending. A host that can't find out
/// unloads the coordinator and loads it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendFailure {
    /// Not taken: queue full, storage away. The client may try again here.
    #[error("the append was refused for now")]
    Unavailable,
    /// The partition is no longer led here, or its storage failed.
    #[error("the partition is not led here any more")]
    NotLeader,
    #[error("the records exceed the largest batch allowed")]
    TooLarge,
    /// The producer has begun a later epoch.
    #[error("the producer's epoch is over")]
    ProducerFenced,
    /// The transaction ended before its records came.
    #[error("the producer has no transaction open here")]
    NoTransaction,
    /// A later coordinator of transactions has spoken.
    #[error("the sender of the marker no longer coordinates the transaction")]
    CoordinatorFenced,
}

impl AppendFailure {
    pub(crate) fn as_reply(self) -> GroupError {
        match self {
            Self::Unavailable => GroupError::CoordinatorNotAvailable,
            Self::NotLeader => GroupError::NotCoordinator,
            Self::TooLarge => GroupError::UnknownServerError,
            Self::ProducerFenced => GroupError::InvalidProducerEpoch,
            Self::NoTransaction => GroupError::InvalidTxnState,
            Self::CoordinatorFenced => GroupError::TransactionCoordinatorFenced,
        }
    }
}

/// A record of the log that can't be read. Loading must not go on past it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("{record} ends in the middle of {field}")]
    Truncated {
        record: &'static str,
        field: &'static str,
    },
    #[error("{record} has an invalid {field}")]
    Invalid {
        record: &'static str,
        field: &'static str,
    },
    #[error("{record} has version {version}, which this reader doesn't know")]
    UnsupportedVersion { record: &'static str, version: i16 },
    #[error("{record} has {bytes} bytes left over")]
    TrailingBytes { record: &'static str, bytes: usize },
}
