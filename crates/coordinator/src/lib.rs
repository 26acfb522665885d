//! The coordinator of consumer groups, as a state machine: requests, time and the outcome of appends go in,
//! replies and records come out.
//!
//! One [`GroupCoordinator`] holds the groups of one partition of `__consumer_offsets` and moves with it.
//! Classic groups and consumer groups behave as those of Apache Kafka 4 do (KIP-62, KIP-134, KIP-211, KIP-345,
//! KIP-394, KIP-496, KIP-559, KIP-709, KIP-814, KIP-848), and the records are Kafka's own, so that its tools can
//! read them.
//! Offsets may be committed in transactions (KIP-98, KIP-447): then they count once their marker is durable.
//!
//! # Driving it
//! 1. [`GroupCoordinator::new`], then [`replay`](GroupCoordinator::replay) for each record of the log (or
//!    [`replay_transactional`](GroupCoordinator::replay_transactional), and
//!    [`replay_marker`](GroupCoordinator::replay_marker) for each marker), then
//!    [`loaded`](GroupCoordinator::loaded).
//! 2. Call a method per request, and carry out the [`Effect`]s it returns, in order. Report each
//!    append with [`appended`](GroupCoordinator::appended), in order, once its outcome is known.
//! 3. Call [`tick`](GroupCoordinator::tick) at [`next_deadline`](GroupCoordinator::next_deadline); ask for
//!    the deadline again after each input.
//! 4. Show it the cluster's topics with [`see`](GroupCoordinator::see), before `loaded` and whenever they change.
//! 5. [`unload`](GroupCoordinator::unload) when the partition goes elsewhere, or when the outcome of an append
//!    can't be found out; then start again at 1.
//!
//! # Promises
//! - Every [`ReplyToken`] is answered exactly once, at the latest by `unload`.
//! - A reply that says that something is stored is given only after the append was reported durable; an
//!   OffsetFetch returns only what is durable.
//! - An append that fails leaves no trace in what later requests see; one that takes longer than
//!   `offsets.commit.timeout.ms` is answered with COORDINATOR_NOT_AVAILABLE and stays open.
//! - What `export` returns rebuilds, when replayed, exactly the durable state but for open transactions.
//! - It never panics on bytes from the log or from clients, and all it holds is limited by [`GroupConfig`].
//!
//! # What it doesn't know
//! Clocks, tasks, the log, the wire format and its error codes, authorization; of topics only what [`ClusterView`]
//! shows.
//!
//! [`transactions`] is the coordinator of transactional ids, made and driven the same way.

mod appended;
mod classic;
mod cluster_view;
mod config;
mod consumer;
mod context;
mod coordinator;
mod effects;
mod error;
mod expression;
mod id;
mod journal;
mod offsets;
mod records;
mod request;
mod requests;
mod timers;
pub mod transactions;
mod upkeep;

pub use cluster_view::{ClusterView, GroupOverrides, TopicInfo};
pub use config::{GroupConfig, InvalidConfig};
pub use consumer::{
    Assignment, ConsumerGroupState, ConsumerHeartbeat, ConsumerHeartbeatRequest, DescribedConsumer,
    DescribedConsumerGroup, GroupEpoch, MemberEpoch, MigrationPolicy, NamedAssignment,
};
pub use coordinator::GroupCoordinator;
pub use effects::{
    AppendId, DescribedGroup, DescribedMember, Effect, FetchedOffset, GroupState, Joined,
    JoinedMember, LeftMember, ListedGroup, Notice, Record, Reply, ReplyToken, Synced,
};
pub use error::{AppendFailure, GroupError, JoinRefused, RecordError};
pub use expression::{Expression, InvalidExpression};
pub use id::{Generation, GroupId, InstanceId, MemberId, partition_for};
pub use offsets::{EndTransaction, Transaction, TransactionalCommitRequest};
pub use request::{
    CommitRequest, CommittedOffset, DeleteOffsetsRequest, FetchRequest, GroupFilter,
    HeartbeatRequest, JoinRequest, LeaveRequest, LeavingMember, Now, OffsetAndMetadata,
    OffsetSelection, OffsetToCommit, Protocol, SyncRequest, TopicPartition,
};

#[cfg(test)]
mod tests;
