//! Kafka's error codes, and the only place that maps this broker's errors to them.

use tidegate_coordinator::GroupError;
use tidegate_coordinator::transactions::TransactionError;
use tidegate_metadata::ControllerUnavailable;
use tidegate_metadata::api::{
    AdvanceLogStartError, AllocateProducerIdsError, AssignmentFault, CreatePartitionsError,
    CreateTopicError,
};
use tidegate_partition_log::{AppendError, MarkerRefused, ReadError, SequenceError};
use tidegate_record_batch::ProduceError;

macro_rules! error_codes {
    ($($name:ident = $code:literal,)*) => {
        /// A code of the protocol (the "Error Codes" table of Apache Kafka's protocol guide).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i16)]
        pub enum ErrorCode { $($name = $code,)* }

        impl ErrorCode {
            /// The number on the wire.
            pub fn code(self) -> i16 {
                match self { $(Self::$name => $code,)* }
            }

            /// The code of a number; `None` if this build doesn't know it.
            pub fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1,
    None = 0,
    OffsetOutOfRange = 1,
    CorruptMessage = 2,
    UnknownTopicOrPartition = 3,
    LeaderNotAvailable = 5,
    NotLeaderOrFollower = 6,
    RequestTimedOut = 7,
    MessageTooLarge = 10,
    OffsetMetadataTooLarge = 12,
    NetworkException = 13,
    CoordinatorLoadInProgress = 14,
    CoordinatorNotAvailable = 15,
    NotCoordinator = 16,
    InvalidTopicException = 17,
    NotEnoughReplicas = 19,
    InvalidRequiredAcks = 21,
    IllegalGeneration = 22,
    InconsistentGroupProtocol = 23,
    InvalidGroupId = 24,
    UnknownMemberId = 25,
    InvalidSessionTimeout = 26,
    RebalanceInProgress = 27,
    InvalidTimestamp = 32,
    UnsupportedVersion = 35,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    NotController = 41,
    InvalidRequest = 42,
    UnsupportedForMessageFormat = 43,
    PolicyViolation = 44,
    OutOfOrderSequenceNumber = 45,
    DuplicateSequenceNumber = 46,
    InvalidProducerEpoch = 47,
    InvalidTxnState = 48,
    OperationNotAttempted = 55,
    InvalidProducerIdMapping = 49,
    InvalidTransactionTimeout = 50,
    ConcurrentTransactions = 51,
    TransactionCoordinatorFenced = 52,
    TransactionalIdAuthorizationFailed = 53,
    KafkaStorageError = 56,
    UnknownProducerId = 59,
    NonEmptyGroup = 68,
    GroupIdNotFound = 69,
    FetchSessionIdNotFound = 70,
    InvalidFetchSessionEpoch = 71,
    FencedLeaderEpoch = 74,
    UnknownLeaderEpoch = 75,
    UnsupportedCompressionType = 76,
    OffsetNotAvailable = 78,
    MemberIdRequired = 79,
    PreferredLeaderNotAvailable = 80,
    GroupMaxSizeReached = 81,
    FencedInstanceId = 82,
    EligibleLeadersNotAvailable = 83,
    ElectionNotNeeded = 84,
    NoReassignmentInProgress = 85,
    InvalidRecord = 87,
    UnstableOffsetCommit = 88,
    ProducerFenced = 90,
    UnknownTopicId = 100,
    InconsistentTopicId = 103,
    GroupSubscribedToTopic = 86,
    FetchSessionTopicIdError = 106,
    ReassignmentInProgress = 60,
    TransactionalIdNotFound = 105,
    ThrottlingQuotaExceeded = 89,
    ResourceNotFound = 91,
    DuplicateResource = 92,
    InvalidUpdateVersion = 95,
    BrokerIdNotRegistered = 102,
    FencedMemberEpoch = 110,
    UnreleasedInstanceId = 111,
    UnsupportedAssignor = 112,
    StaleMemberEpoch = 113,
    InvalidRegularExpression = 128,
    TransactionAbortable = 120,
}

impl From<&AppendError> for ErrorCode {
    fn from(error: &AppendError) -> Self {
        match error {
            AppendError::NotLeader | AppendError::Switching | AppendError::Sealed => {
                Self::NotLeaderOrFollower
            }
            AppendError::Full(_) | AppendError::Failed(_) | AppendError::OutOfOffsets => {
                Self::KafkaStorageError
            }
            AppendError::TooLarge { .. } => Self::MessageTooLarge,
            AppendError::Sequence(SequenceError::OutOfOrder { .. }) => {
                Self::OutOfOrderSequenceNumber
            }
            AppendError::Sequence(SequenceError::Fenced { .. }) => Self::InvalidProducerEpoch,
            AppendError::Sequence(
                SequenceError::NotTransactional { .. } | SequenceError::NoTransaction { .. },
            ) => Self::InvalidTxnState,
            AppendError::Marker(MarkerRefused::Fenced { .. }) => Self::InvalidProducerEpoch,
            AppendError::Marker(MarkerRefused::CoordinatorFenced { .. }) => {
                Self::TransactionCoordinatorFenced
            }
        }
    }
}

impl From<&ProduceError> for ErrorCode {
    fn from(error: &ProduceError) -> Self {
        match error {
            ProduceError::UnsupportedMagic { .. } => Self::UnsupportedForMessageFormat,
            ProduceError::Crc { .. }
            | ProduceError::Length { .. }
            | ProduceError::Truncated { .. } => Self::CorruptMessage,
            ProduceError::TooLarge { .. } => Self::MessageTooLarge,
            ProduceError::ZstdNotAllowed | ProduceError::UnknownCodec { .. } => {
                Self::UnsupportedCompressionType
            }
            ProduceError::Timestamp { .. } | ProduceError::TimestampType => Self::InvalidTimestamp,
            ProduceError::Empty
            | ProduceError::MoreThanOneBatch { .. }
            | ProduceError::Header(_)
            | ProduceError::BaseOffset { .. }
            | ProduceError::NoRecords
            | ProduceError::RecordCount { .. }
            | ProduceError::ControlBatch
            | ProduceError::DeleteHorizon
            | ProduceError::NoSequence { .. }
            | ProduceError::TransactionalWithoutProducer
            | ProduceError::NoKey { .. }
            | ProduceError::Record { .. }
            | ProduceError::TrailingBytes { .. } => Self::InvalidRecord,
            ProduceError::Decompress(_) => Self::CorruptMessage,
        }
    }
}

impl From<&ReadError> for ErrorCode {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::OutOfRange { .. } => Self::OffsetOutOfRange,
            ReadError::NotLeader => Self::NotLeaderOrFollower,
            ReadError::Store(_) | ReadError::Wal(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&CreateTopicError> for ErrorCode {
    fn from(error: &CreateTopicError) -> Self {
        match error {
            CreateTopicError::Exists { .. } => Self::TopicAlreadyExists,
            CreateTopicError::Repeated { .. } => Self::InvalidRequest,
            CreateTopicError::Collides { .. } => Self::InvalidTopicException,
            CreateTopicError::PartitionCount { .. } => Self::InvalidPartitions,
            CreateTopicError::ReplicationFactor | CreateTopicError::NoBroker => {
                Self::InvalidReplicationFactor
            }
            CreateTopicError::Assignment(fault) => fault.into(),
        }
    }
}

impl From<&AssignmentFault> for ErrorCode {
    fn from(fault: &AssignmentFault) -> Self {
        match fault {
            AssignmentFault::Empty { .. }
            | AssignmentFault::Repeated { .. }
            | AssignmentFault::UnknownBroker { .. }
            | AssignmentFault::Uneven { .. }
            | AssignmentFault::WrongCount { .. } => Self::InvalidReplicaAssignment,
        }
    }
}

impl From<&CreatePartitionsError> for ErrorCode {
    fn from(error: &CreatePartitionsError) -> Self {
        match error {
            CreatePartitionsError::UnknownTopic(_) => Self::UnknownTopicOrPartition,
            CreatePartitionsError::Repeated(_) => Self::InvalidRequest,
            CreatePartitionsError::NotMore { .. }
            | CreatePartitionsError::PartitionCount { .. } => Self::InvalidPartitions,
            CreatePartitionsError::NoBroker => Self::InvalidReplicationFactor,
            CreatePartitionsError::Assignment(fault) => fault.into(),
        }
    }
}

impl From<&ControllerUnavailable> for ErrorCode {
    fn from(error: &ControllerUnavailable) -> Self {
        match error {
            ControllerUnavailable::StoreUnavailable
            | ControllerUnavailable::Busy
            | ControllerUnavailable::Deposed
            | ControllerUnavailable::NoController
            | ControllerUnavailable::Closed => Self::NotController,
            ControllerUnavailable::OutcomeUnknown => Self::RequestTimedOut,
        }
    }
}

impl From<&AdvanceLogStartError> for ErrorCode {
    fn from(error: &AdvanceLogStartError) -> Self {
        match error {
            AdvanceLogStartError::StaleBrokerEpoch(_) | AdvanceLogStartError::NotLeader { .. } => {
                Self::NotLeaderOrFollower
            }
            AdvanceLogStartError::UnknownPartition(_) => Self::UnknownTopicOrPartition,
            AdvanceLogStartError::Unavailable(_) => Self::RequestTimedOut,
        }
    }
}

impl From<&AllocateProducerIdsError> for ErrorCode {
    fn from(error: &AllocateProducerIdsError) -> Self {
        match error {
            AllocateProducerIdsError::StaleBrokerEpoch(_)
            | AllocateProducerIdsError::Unavailable(_) => Self::CoordinatorNotAvailable,
            AllocateProducerIdsError::Exhausted => Self::UnknownServerError,
        }
    }
}

impl From<&GroupError> for ErrorCode {
    fn from(error: &GroupError) -> Self {
        match error {
            GroupError::CoordinatorLoadInProgress => Self::CoordinatorLoadInProgress,
            GroupError::CoordinatorNotAvailable => Self::CoordinatorNotAvailable,
            GroupError::NotCoordinator => Self::NotCoordinator,
            GroupError::InvalidGroupId => Self::InvalidGroupId,
            GroupError::GroupIdNotFound => Self::GroupIdNotFound,
            GroupError::NonEmptyGroup => Self::NonEmptyGroup,
            GroupError::UnknownMemberId => Self::UnknownMemberId,
            GroupError::IllegalGeneration => Self::IllegalGeneration,
            GroupError::FencedInstanceId => Self::FencedInstanceId,
            GroupError::MemberIdRequired => Self::MemberIdRequired,
            GroupError::InconsistentGroupProtocol => Self::InconsistentGroupProtocol,
            GroupError::RebalanceInProgress => Self::RebalanceInProgress,
            GroupError::InvalidSessionTimeout => Self::InvalidSessionTimeout,
            // Kafka has no limit on groups; to the client it is the same as a group that is full.
            GroupError::GroupMaxSizeReached | GroupError::TooManyGroups => {
                Self::GroupMaxSizeReached
            }
            GroupError::OffsetMetadataTooLarge => Self::OffsetMetadataTooLarge,
            GroupError::GroupSubscribedToTopic => Self::GroupSubscribedToTopic,
            GroupError::UnstableOffsetCommit => Self::UnstableOffsetCommit,
            GroupError::InvalidProducerEpoch => Self::InvalidProducerEpoch,
            GroupError::InvalidTxnState => Self::InvalidTxnState,
            GroupError::TransactionCoordinatorFenced => Self::TransactionCoordinatorFenced,
            GroupError::UnknownServerError => Self::UnknownServerError,
            GroupError::InvalidRequest
            | GroupError::InvalidHeartbeat(_)
            | GroupError::MemberMetadataTooLarge => Self::InvalidRequest,
            GroupError::FencedMemberEpoch => Self::FencedMemberEpoch,
            GroupError::StaleMemberEpoch => Self::StaleMemberEpoch,
            GroupError::UnreleasedInstanceId => Self::UnreleasedInstanceId,
            GroupError::UnsupportedAssignor => Self::UnsupportedAssignor,
            GroupError::InvalidRegularExpression => Self::InvalidRegularExpression,
            GroupError::UnsupportedVersion => Self::UnsupportedVersion,
        }
    }
}

impl From<&TransactionError> for ErrorCode {
    fn from(error: &TransactionError) -> Self {
        match error {
            TransactionError::CoordinatorLoadInProgress => Self::CoordinatorLoadInProgress,
            TransactionError::CoordinatorNotAvailable => Self::CoordinatorNotAvailable,
            TransactionError::NotCoordinator => Self::NotCoordinator,
            TransactionError::InvalidRequest => Self::InvalidRequest,
            TransactionError::InvalidTransactionTimeout => Self::InvalidTransactionTimeout,
            TransactionError::InvalidProducerIdMapping => Self::InvalidProducerIdMapping,
            TransactionError::ProducerFenced => Self::ProducerFenced,
            TransactionError::ConcurrentTransactions => Self::ConcurrentTransactions,
            TransactionError::InvalidTxnState => Self::InvalidTxnState,
            TransactionError::TransactionAbortable => Self::TransactionAbortable,
            TransactionError::TransactionalIdNotFound => Self::TransactionalIdNotFound,
            // Kafka has no limit on transactional ids; producers give up on this one, as they should.
            TransactionError::TooManyTransactionalIds => Self::PolicyViolation,
            // Handlers ask again before they answer with it.
            TransactionError::UnknownServerError | TransactionError::ProducerIdNeeded => {
                Self::UnknownServerError
            }
        }
    }
}
