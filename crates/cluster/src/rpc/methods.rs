//! The table of methods: the one place that lists what goes over the wire. Client, server and tests are made from
//! it, so a method can't be known to one and not to the other.
//!
//! Each macro hands its rows to the macro it is given. The path of a method is `/<service>/<name>`.

/// Service of [`tidegate_metadata::ControllerApi`].
pub(super) const CONTROLLER: &str = "tidegate.cluster.Controller";
/// Service of [`crate::admin::ClusterAdmin`].
pub(super) const ADMIN: &str = "tidegate.cluster.Admin";
/// Service of [`crate::orders::BrokerOrders`].
pub(super) const ORDERS: &str = "tidegate.cluster.Orders";
/// Service of [`crate::queries::BrokerQueries`].
pub(super) const QUERIES: &str = "tidegate.cluster.Queries";
/// Service of [`crate::transactions::BrokerTransactions`].
pub(super) const TRANSACTIONS: &str = "tidegate.cluster.Transactions";
/// Service with one method, [`FOLLOW`].
pub(super) const TAILS: &str = "tidegate.cluster.Tails";
/// Service with one method, [`OPEN`].
pub(super) const SESSIONS: &str = "tidegate.cluster.Sessions";
/// Follows a partition's tail: one request, a stream of answers.
pub(super) const FOLLOW: &str = "follow";
/// Holds a session: a stream each way.
pub(super) const OPEN: &str = "open";

/// `name: request => answer, error;` with the request as the message and `Result<answer, error>` as the answer.
macro_rules! controller_methods {
    ($apply:ident) => {
        $apply! {
            register_broker: RegisterBroker => Registered, RegisterBrokerError;
            take_leadership: TakeLeadership => LeadershipTaken, TakeLeadershipError;
            create_topics: CreateTopics
                => Vec<Result<CreatedTopic, CreateTopicError>>, ControllerUnavailable;
            delete_topics: DeleteTopics
                => Vec<Result<TopicName, UnknownTopic>>, ControllerUnavailable;
            create_partitions: CreatePartitions
                => Vec<Result<(), CreatePartitionsError>>, ControllerUnavailable;
            alter_configs: AlterConfigs
                => Vec<Result<Configs, UnknownTopic>>, ControllerUnavailable;
            alter_quotas: AlterQuotas
                => Vec<Result<(), TooManyQuotas>>, ControllerUnavailable;
            unregister_broker: UnregisterBroker => (), UnregisterBrokerError;
            commit_objects: CommitObjects => Vec<ObjectOutcome>, CommitObjectsError;
            advance_log_start: AdvanceLogStart => Offset, AdvanceLogStartError;
            swap_segments: SwapSegments => SwapOutcome, SwapSegmentsError;
            allocate_producer_ids: AllocateProducerIds
                => ProducerIdBlock, AllocateProducerIdsError;
            partition_states: Vec<PartitionId>
                => Vec<Option<PartitionState>>, ControllerUnavailable;
            led_by: BrokerId => Vec<PartitionState>, ControllerUnavailable;
            segments: SegmentQuery => SegmentPage, ControllerUnavailable;
            deletable_objects: DeletableQuery
                => Vec<DeletableObject>, ControllerUnavailable;
            forget_objects: Vec<StoredObjectKey> => (), ControllerUnavailable;
            object_statuses: Vec<StoredObjectKey>
                => Vec<ObjectStatus>, ControllerUnavailable;
        }
    };
}

/// `name { arguments } => answer;` with the named arguments as the message and `Result<answer, AdminError>` as the
/// answer.
macro_rules! admin_methods {
    ($apply:ident) => {
        $apply! {
            reassign { moves: Vec<MoveRequest>, wait: Duration }
                => Vec<Result<MoveReport, MoveError>>;
            alter_placements { changes: Vec<PlacementChange> }
                => Vec<Result<(), PlacementError>>;
            list_reassignments { partitions: Option<Vec<PartitionId>> } => Vec<Reassignment>;
            elect_leaders {
                kind: ElectionKind,
                partitions: Option<Vec<PartitionId>>,
                wait: Duration
            } => Vec<Elected>;
            drain { broker: BrokerId } => DrainStatus;
            undrain { broker: BrokerId } => DrainStatus;
            drain_status { broker: BrokerId } => DrainStatus;
            set_balance { enabled: bool } => bool;
            cluster_status {} => ClusterStatus;
        }
    };
}

/// `name: request => answer;` with the request as the message and the answer as the answer: a broker's own failures
/// are part of it, the error type is the transport's alone.
macro_rules! order_methods {
    ($apply:ident) => {
        $apply! {
            prepare: Orders<Prepare> => Vec<Result<(), OrderRefused>>;
            seal: Orders<Seal> => SealAnswer;
            hold: Orders<Hold> => Vec<Result<HeldLog, OrderRefused>>;
            unseal: Orders<Unseal> => ();
            discard: Orders<Discard> => ();
        }
    };
}

/// Like `order_methods`, for what brokers answer about themselves.
macro_rules! query_methods {
    ($apply:ident) => {
        $apply! {
            log_statuses: Vec<PartitionId> => Vec<Option<LogStatus>>;
            list_groups: Vec<String> => GroupList;
            describe_group: String => GroupAnswer;
        }
    };
}

/// Like `order_methods`, for what brokers do for each other's transactions.
macro_rules! transaction_methods {
    ($apply:ident) => {
        $apply! {
            write_markers: Vec<TransactionMarker> => Vec<MarkerOutcome>;
            add_partitions: AddPartitions => Vec<i16>;
        }
    };
}

pub(super) use {
    admin_methods, controller_methods, order_methods, query_methods, transaction_methods,
};
