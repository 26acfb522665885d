//! What people and tools ask of the cluster: moves, elections, draining, balance, and how it all stands.
//!
//! Any broker takes these requests and passes them to the controller: [`ClusterAdmin`] is implemented by the
//! conductor and, for every other broker, by [`crate::rpc`].

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_metadata::{ControllerUnavailable, Endpoint, ImageVersion};
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionId, TopicName,
};

/// Why a request wasn't carried out at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AdminError {
    /// No answer from the controller; `NoController` if there is none at present.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
    /// No broker has this number.
    #[error("broker {0} isn't registered")]
    UnknownBroker(BrokerId),
    /// The controller's version doesn't know this request.
    #[error("{0}")]
    Unsupported(String),
}

/// A wanted move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRequest {
    /// Which partition.
    pub partition: PartitionId,
    /// Who shall lead it.
    pub to: BrokerId,
}

/// A move that took place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Which partition.
    pub partition: PartitionId,
    /// Its topic.
    pub topic: TopicName,
    /// Who led it before.
    pub from: BrokerId,
    /// Who leads it now.
    pub to: BrokerId,
    /// The new leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Where the former leader epoch ended and this one starts.
    pub sealed_end_offset: Offset,
    /// From the order to follow to the copy having caught up, while the former leader served.
    pub prepare_ms: f64,
    /// From the order to seal to the sealed end being durable at the former leader.
    pub seal_ms: f64,
    /// From the order to hold to the sealed end being held by the new leader; in parallel with the seal.
    pub hold_ms: f64,
    /// The change in metadata.
    pub commit_ms: f64,
    /// From the request to the commit.
    pub total_ms: f64,
}

/// Why one partition didn't move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MoveError {
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// No broker has this number.
    #[error("broker {0} isn't registered")]
    UnknownBroker(BrokerId),
    /// The wanted leader has no session.
    #[error("broker {0} isn't alive")]
    BrokerNotAlive(BrokerId),
    /// The wanted broker leads already: as good as a success.
    #[error("broker {leader} leads already, under leader epoch {leader_epoch}")]
    AlreadyThere {
        /// Who leads.
        leader: BrokerId,
        /// Under which leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// The wanted leader is giving its partitions away.
    #[error("broker {0} is draining")]
    Draining(BrokerId),
    /// Nobody leads the partition, so there is nobody to hand it over.
    #[error("the partition has no leader at present")]
    NoLeader,
    /// Another request wants the partition elsewhere.
    #[error("the move was replaced by another one")]
    Replaced,
    /// The move failed; it is tried again as long as it is wanted and both brokers live.
    #[error("the move failed: {cause}")]
    Failed {
        /// Why.
        cause: String,
    },
    /// Not done within the time given; it goes on.
    #[error("the move wasn't done in time; it goes on")]
    TimedOut,
}

/// One change of AlterPartitionReassignments (KIP-455).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementChange {
    /// Which partition.
    pub partition: PartitionId,
    /// The brokers that may lead, the preferred first; `None` cancels a move that is under way.
    pub placement: Option<Vec<BrokerId>>,
}

/// Why a placement wasn't changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum PlacementError {
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// The placement isn't possible.
    #[error("{reason}")]
    Invalid {
        /// Why, as a sentence: empty, a broker named twice, unknown, or none of them alive.
        reason: String,
    },
    /// There is nothing to cancel.
    #[error("no move of the partition is under way")]
    NoneInProgress,
    /// It failed.
    #[error("{cause}")]
    Failed {
        /// Why.
        cause: String,
    },
}

/// A move that is wanted and not done yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    /// Which partition.
    pub partition: PartitionId,
    /// Its topic.
    pub topic: TopicName,
    /// Who leads it at present.
    pub leader: Option<BrokerId>,
    /// Who shall lead it.
    pub to: BrokerId,
    /// The brokers that may lead, the preferred first.
    pub placement: Vec<BrokerId>,
    /// What it is at, for people: such as `waiting`, `preparing`, `sealing`.
    #[serde(default)]
    pub phase: String,
    /// Why the last attempt failed.
    #[serde(default)]
    pub last_failure: Option<String>,
}

/// What kind of election (KIP-460).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElectionKind {
    /// The first broker of the placement.
    Preferred,
    /// Any broker of the placement, also with loss. Never carried out: a loss needs an operator at the broker.
    Unclean,
}

/// What became of the election in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elected {
    /// Which partition.
    pub partition: PartitionId,
    /// Its topic; `None` if there is no such partition.
    pub topic: Option<TopicName>,
    /// Who leads now, or why nobody new does.
    pub result: Result<BrokerId, ElectError>,
}

/// Why an election didn't take place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ElectError {
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// The right one leads already.
    #[error("the election isn't needed")]
    NotNeeded,
    /// The preferred leader isn't alive, or is draining.
    #[error("the preferred leader, broker {0}, isn't available")]
    PreferredUnavailable(BrokerId),
    /// Nobody can lead without loss.
    #[error("no broker can lead the partition without loss")]
    NoneEligible,
    /// The move failed.
    #[error(transparent)]
    Move(#[from] MoveError),
}

/// How far a broker is in giving its partitions away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Which broker.
    pub broker: BrokerId,
    /// It takes nothing new and gives away what it has.
    pub draining: bool,
    /// How many partitions it leads.
    pub led_partitions: u64,
    /// How many of them are being moved now.
    pub moving: u64,
    /// Why the rest can't move at present, if it can't: such as no other broker being alive.
    #[serde(default)]
    pub blocked: Option<String>,
}

impl DrainStatus {
    /// Nothing is left to give away.
    pub fn is_done(&self) -> bool {
        self.draining && self.led_partitions == 0
    }
}

/// One broker, as the controller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Its number.
    pub id: BrokerId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// It has a session.
    pub alive: bool,
    /// It gives its partitions away.
    pub draining: bool,
    /// Its rack or zone.
    pub rack: Option<String>,
    /// Where Kafka clients connect.
    pub kafka: Endpoint,
    /// Where other brokers connect.
    pub internal: Option<Endpoint>,
    /// How many partitions metadata says it leads.
    pub led_partitions: u64,
    /// From its last heartbeat: record bytes that producers sent, per second.
    pub bytes_in_per_s: u64,
    /// From its last heartbeat: record bytes that consumers read, per second.
    pub bytes_out_per_s: u64,
    /// From its last heartbeat: Kafka requests per second.
    pub requests_per_s: u64,
    /// Its release, if it said so.
    #[serde(default)]
    pub software_version: String,
}

/// A partition that nobody serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflinePartition {
    /// Which partition.
    pub partition: PartitionId,
    /// Its topic.
    pub topic: TopicName,
    /// The broker whose return it waits for.
    pub waits_for: Option<BrokerId>,
}

/// How the cluster stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its identity.
    pub cluster_id: String,
    /// Who is the controller.
    pub controller: BrokerId,
    /// Under which epoch.
    pub controller_epoch: ControllerEpoch,
    /// As of this picture.
    pub image: ImageVersion,
    /// All registered brokers, in the order of their numbers.
    pub brokers: Vec<BrokerStatus>,
    /// Number of topics.
    pub topics: u64,
    /// Number of partitions of all topics.
    pub partitions: u64,
    /// Partitions that nobody serves: the first 1,000.
    pub offline: Vec<OfflinePartition>,
    /// How many partitions nobody serves.
    pub offline_count: u64,
    /// How many moves are wanted and not done.
    pub reassignments: u64,
    /// The controller moves partitions by itself to even out load.
    pub balance: bool,
}

/// What people and tools ask of the active controller.
#[async_trait]
pub trait ClusterAdmin: Send + Sync {
    /// Moves partitions, and waits for it up to `wait`. One answer per move, in the order of the request. A move
    /// that isn't done by then goes on, and survives a change of controller.
    async fn reassign(
        &self,
        moves: Vec<MoveRequest>,
        wait: Duration,
    ) -> Result<Vec<Result<MoveReport, MoveError>>, AdminError>;

    /// Changes placements (AlterPartitionReassignments). The leader stays if the new placement has it, else the
    /// partition moves to the first one of it that is alive. Answers once the wish is stored, not the move done.
    async fn alter_placements(
        &self,
        changes: Vec<PlacementChange>,
    ) -> Result<Vec<Result<(), PlacementError>>, AdminError>;

    /// Moves that are wanted and not done: of these partitions, or of all.
    async fn list_reassignments(
        &self,
        partitions: Option<Vec<PartitionId>>,
    ) -> Result<Vec<Reassignment>, AdminError>;

    /// Makes preferred leaders lead: of these partitions, or wherever needed. Waits up to `wait`. With `None` only
    /// partitions that needed an election are answered.
    async fn elect_leaders(
        &self,
        kind: ElectionKind,
        partitions: Option<Vec<PartitionId>>,
        wait: Duration,
    ) -> Result<Vec<Elected>, AdminError>;

    /// Gives all partitions of a broker to others, and none to it from now on. Answers at once.
    async fn drain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError>;

    /// Takes a drain back; partitions that have left return only by balance or elections.
    async fn undrain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError>;

    /// How far a drain is.
    async fn drain_status(&self, broker: BrokerId) -> Result<DrainStatus, AdminError>;

    /// Switches balancing on or off until the next change of controller; answers what it was.
    async fn set_balance(&self, enabled: bool) -> Result<bool, AdminError>;

    /// How the cluster stands.
    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError>;
}
