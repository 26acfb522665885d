//! What a controller tells a broker, and what one broker reads from another, as plain requests and answers.
//!
//! Every order names the controller epoch it is given under. A broker refuses those of an epoch below the
//! highest it has seen, so a controller that was replaced moves nothing. Every order may come twice.

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tidegate_metadata::{
    ByteSpan, Endpoint, ObjectCommit, PartitionState, StoredObjectKey, WalIdentity,
};
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, OffsetRange, PartitionId,
    TimestampMs,
};

use crate::queries::BrokerQueries;
use crate::transactions::BrokerTransactions;

/// Several orders of one kind to one broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders<T> {
    /// Under which controller.
    pub controller_epoch: ControllerEpoch,
    /// The orders; answers come in the same sequence.
    pub items: Vec<T>,
}

/// Get ready to lead: follow the present leader's tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// The partition as metadata has it.
    pub state: PartitionState,
    /// Who leads it now.
    pub source: BrokerId,
    /// Where that broker answers brokers.
    pub source_endpoint: Endpoint,
    /// The number of this attempt to move the partition: see [`Discard::attempt`].
    #[serde(default)]
    pub attempt: u64,
}

/// Admit no more appends, and hand the rest of the tail to who follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Which partition.
    pub partition: PartitionId,
    /// The leader epoch that ends.
    pub leader_epoch: LeaderEpoch,
    /// Rises with each order, over all controllers too (their epoch is its upper half); an older one that comes
    /// late is refused.
    pub order: u64,
}

/// Answer when everything up to the sealed end is held as durably as the topic's mode promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which partition.
    pub partition: PartitionId,
    /// The leader epoch that ends.
    pub leader_epoch: LeaderEpoch,
    /// The attempt that prepared it. What another attempt prepared isn't answered for:
    /// [`OrderRefused::NotPrepared`].
    #[serde(default)]
    pub attempt: u64,
}

/// The move doesn't take place: admit appends again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseal {
    /// Which partition.
    pub partition: PartitionId,
    /// The leader epoch that goes on.
    pub leader_epoch: LeaderEpoch,
    /// Above the order number of the seal it takes back.
    pub order: u64,
}

/// Forget what was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discard {
    /// Which partition.
    pub partition: PartitionId,
    /// Attempts and orders are numbered in one rising sequence, over all controllers too. What a later attempt
    /// prepared stays: this order may come late, when that one is already held, or its holder already leads.
    #[serde(default)]
    pub attempt: u64,
}

/// A log that takes no more appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedLog {
    /// Which partition.
    pub partition: PartitionId,
    /// Its end under the sealed leader epoch. Everything below is durable, nothing will ever be behind it.
    pub end: Offset,
}

/// What became of seal orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealAnswer {
    /// In the sequence of the orders.
    pub results: Vec<Result<SealedLog, OrderRefused>>,
    /// The broker's WAL objects that no commit covers yet, in the order of their numbers; they hold the sealed
    /// ends of `object` partitions, so they are committed together with the move.
    pub objects: Vec<ObjectCommit>,
    /// Under which registration they were written.
    pub broker_epoch: BrokerEpoch,
}

/// A log whose sealed end is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLog {
    /// Which partition.
    pub partition: PartitionId,
    /// The sealed end.
    pub end: Offset,
    /// Under which registration it is held: if the broker starts anew before the move is committed, it isn't.
    pub broker_epoch: BrokerEpoch,
    /// The local WAL in which all of it from the uploaded end on is durable; `None`: nothing is held there, all of
    /// it has to be in the object store.
    #[serde(default)]
    pub held_in: Option<WalIdentity>,
}

/// Why one order wasn't carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OrderRefused {
    /// A newer controller has given orders.
    #[error("controller epoch {seen} has given orders since")]
    StaleController {
        /// Its epoch.
        seen: ControllerEpoch,
    },
    /// The broker doesn't lead the partition under that leader epoch.
    #[error("the broker doesn't lead the partition under this leader epoch")]
    NotLeader,
    /// Not possible now; ask again soon.
    #[error("not possible at present: {cause}")]
    NotYet {
        /// Why.
        cause: String,
    },
    /// A later order for the same partition came before this one.
    #[error("order {newest} came before")]
    Superseded {
        /// The newest order number.
        newest: u64,
    },
    /// Nothing was prepared.
    #[error("the partition isn't prepared here")]
    NotPrepared,
    /// The attempt failed.
    #[error("{cause}")]
    Failed {
        /// Why.
        cause: String,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum OrderError {
    /// The broker can't be reached; the order may have been carried out.
    #[error("the broker can't be reached: {0}")]
    Unreachable(String),
    /// No answer in time; the order may have been carried out.
    #[error("the broker didn't answer in time")]
    TimedOut,
    /// The broker's version doesn't know this order.
    #[error("the broker's version doesn't know this: {0}")]
    Unknown(String),
}

/// What a controller may tell a broker. The broker implements it over its logs; the gRPC client and server
/// carry it between processes.
#[async_trait]
pub trait BrokerOrders: Send + Sync {
    /// Answers per partition when it has caught up with its source, which still serves.
    async fn prepare(
        &self,
        orders: Orders<Prepare>,
    ) -> Result<Vec<Result<(), OrderRefused>>, OrderError>;

    /// Answers when all that was admitted is durable.
    async fn seal(&self, orders: Orders<Seal>) -> Result<SealAnswer, OrderError>;

    /// Answers when the sealed ends are held.
    async fn hold(
        &self,
        orders: Orders<Hold>,
    ) -> Result<Vec<Result<HeldLog, OrderRefused>>, OrderError>;

    /// Takes seals back.
    async fn unseal(&self, orders: Orders<Unseal>) -> Result<(), OrderError>;

    /// Forgets preparations.
    async fn discard(&self, orders: Orders<Discard>) -> Result<(), OrderError>;
}

/// Asks a leader for the tail of its log, from what is uploaded on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowRequest {
    /// Which partition.
    pub partition: PartitionId,
    /// The leader epoch under which the source leads.
    pub leader_epoch: LeaderEpoch,
}

/// One step of a followed tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowItem {
    /// The first: where the copy begins. Everything below is in object storage. It comes again whenever more was
    /// uploaded; if `from` lies behind what came so far, the copy begins anew there.
    Start {
        /// The leader's uploaded end.
        from: Offset,
        /// The source's high watermark when it sent this.
        high_watermark: Offset,
        /// More of the source's segment map. Where it is missing, metadata is asked.
        #[serde(default)]
        map: Option<MapPart>,
    },
    /// Whole batches, each starting where the one before ended, all durable at the source.
    Batches {
        /// Under which leader epoch they were appended.
        leader_epoch: LeaderEpoch,
        /// Their bytes as stored.
        bytes: Bytes,
        /// The source's high watermark when it sent them: tells how far behind the copy is.
        high_watermark: Offset,
    },
    /// The source is sealed; nothing follows.
    Sealed {
        /// The sealed end.
        end: Offset,
        /// The state of the log as of `end`, as in an object's checkpoint.
        checkpoint: Bytes,
        /// The rest of the source's segment map.
        #[serde(default)]
        map: Option<MapPart>,
    },
}

/// A run of a leader's segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPart {
    /// Where it begins: 0, or the end of the part before.
    pub from: Offset,
    /// Up to here `segments` are all there are.
    pub end: Offset,
    /// How often metadata had swapped segments of the map ([`PartitionState::swaps`]).
    pub swaps: u64,
    /// In the order of their offsets.
    pub segments: Vec<MapSegment>,
}

/// One segment of a leader's map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapSegment {
    /// Its offsets.
    pub range: OffsetRange,
    /// The object it lies in.
    pub object: StoredObjectKey,
    /// The object's size.
    pub object_size_bytes: u64,
    /// The object's index.
    pub index: ByteSpan,
    /// Where in the object it lies.
    pub span: ByteSpan,
    /// The greatest timestamp of its records.
    pub max_timestamp: TimestampMs,
    /// When it came into the map.
    pub stored_at: TimestampMs,
}

/// Why a tail can't be followed (any more).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FollowError {
    /// The source doesn't lead the partition under that leader epoch.
    #[error("the source doesn't lead the partition under this leader epoch")]
    NotLeader,
    /// The connection broke, or the source stopped.
    #[error("the source can't be reached: {0}")]
    Unreachable(String),
    /// The source can't read its own tail.
    #[error("the source failed: {0}")]
    Failed(String),
}

/// A followed tail.
pub type Tail = BoxStream<'static, Result<FollowItem, FollowError>>;

/// What a broker reads from another one.
#[async_trait]
pub trait TailSource: Send + Sync {
    /// Follows a partition's tail until it is sealed, or the leader stops leading.
    async fn follow(&self, request: FollowRequest) -> Result<Tail, FollowError>;
}

/// Reaches other brokers, and this one without a detour.
pub trait Peers: Send + Sync {
    /// Gives orders to a broker.
    fn orders(&self, broker: BrokerId, endpoint: &Endpoint) -> std::sync::Arc<dyn BrokerOrders>;
    /// Reads tails from a broker.
    fn tails(&self, broker: BrokerId, endpoint: &Endpoint) -> std::sync::Arc<dyn TailSource>;
    /// Asks a broker about itself.
    fn queries(&self, broker: BrokerId, endpoint: &Endpoint) -> std::sync::Arc<dyn BrokerQueries>;
    /// Has a broker do its part in transactions.
    fn transactions(
        &self,
        broker: BrokerId,
        endpoint: &Endpoint,
    ) -> std::sync::Arc<dyn BrokerTransactions>;
    /// Whether nobody listens at a broker's endpoint: the connection is refused, as it is from the moment the process
    /// is dead. Silence, or whatever else, is `false`.
    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool>;
}
