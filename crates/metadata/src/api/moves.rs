//! Moves of leadership and the brokers' fate: what the process of the controller asks of it.
//!
//! All of these are methods of [`crate::ControllerHandle`]: the conductor, which holds the brokers' sessions,
//! calls them, and nobody calls them from afar. Each names the state it was decided on (a leader epoch, a broker
//! epoch) and is refused when that has passed.

use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionId};
use uuid::Uuid;

use super::{
    CommitObjectsError, CommitRefused, ControllerUnavailable, Loss, ObjectOutcome, StaleBrokerEpoch,
};
use crate::model::{Endpoint, ObjectCommit, PartitionState, WalIdentity, WriterState};

/// Wants partitions to be led by other brokers. Stored, so that any later controller drives it on; carried out
/// by [`CommitMoves`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTargets {
    /// Each by itself. Of several for one partition the last counts.
    pub moves: Vec<WantedMove>,
}

/// One wanted move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMove {
    /// Which partition.
    pub partition: PartitionId,
    /// Who shall lead it.
    pub to: BrokerId,
    /// With the move the broker becomes the first of the placement, hence the preferred leader. Without it the
    /// placement keeps its order (a drain that is to be undone later). A broker that isn't in the placement
    /// takes the place of the leader that it follows.
    pub prefer: bool,
}

/// A wanted move that isn't carried out yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingMove {
    /// Which partition.
    pub partition: PartitionId,
    /// Who leads it by the stored row, alive or not; `None`: nobody.
    pub from: Option<BrokerId>,
    /// Who shall lead.
    pub to: BrokerId,
    /// The present leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The present placement.
    pub placement: Vec<BrokerId>,
    /// The placement from the move on.
    pub new_placement: Vec<BrokerId>,
}

/// What became of a wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// It is stored.
    Pending(PendingMove),
    /// The leader is as wanted already. The placement may have changed; a wish that stood is withdrawn.
    Fulfilled {
        /// The leader.
        leader: BrokerId,
        /// Its leader epoch.
        leader_epoch: LeaderEpoch,
    },
}

/// Why a wish wasn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WishRefused {
    /// No such partition.
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// The broker isn't registered.
    #[error("broker {0} isn't registered")]
    UnknownBroker(BrokerId),
    /// The broker has no session, or hasn't taken leadership.
    #[error("broker {0} can't lead at present")]
    NotAlive(BrokerId),
    /// The broker is about to leave.
    #[error("broker {0} is draining")]
    Draining(BrokerId),
    /// Nobody leads the partition, so there is nothing to take over from.
    #[error("{0} has no leader to move away from")]
    NoLeader(PartitionId),
    /// A placement without a broker.
    #[error("a placement names no broker")]
    EmptyPlacement,
    /// A placement that names a broker twice.
    #[error("a placement names broker {0} twice")]
    RepeatedBroker(BrokerId),
}

/// Withdraws wishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelTargets {
    /// Which partitions.
    pub partitions: Vec<CancelTarget>,
}

/// One wish to withdraw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelTarget {
    /// Which partition.
    pub partition: PartitionId,
    /// Only if this is still the broker wanted; `None`: whichever it is.
    pub to: Option<BrokerId>,
}

/// Sets whole placements (AlterPartitionReassignments). The leader stays if it is in the new placement, which
/// then holds at once; else the first of it that can lead is wanted as leader, and the placement holds from the
/// move on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPlacements {
    /// Each by itself. Of several for one partition the last counts.
    pub placements: Vec<(PartitionId, Vec<BrokerId>)>,
}

/// Carries out moves after they were sealed: the moment of transfer, one atomic change for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitMoves {
    /// Under which controller epoch the partitions were sealed. When the metadata was opened again since, even by
    /// the same process, brokers may have seen the later epoch with the partition still led by the former leader,
    /// and have taken its seal back: then no move is carried out.
    pub controller_epoch: ControllerEpoch,
    /// Committed first: what the former leaders wrote and didn't commit yet.
    pub objects: Vec<SourceObjects>,
    /// Each by itself.
    pub moves: Vec<CommitMove>,
}

/// One broker's WAL objects that no commit covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceObjects {
    /// Who wrote them.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// In the order of their sequence.
    pub objects: Vec<ObjectCommit>,
}

/// One sealed partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitMove {
    /// Which partition.
    pub partition: PartitionId,
    /// The leader epoch that was sealed.
    pub leader_epoch: LeaderEpoch,
    /// Its end.
    pub sealed_end: Offset,
    /// Who led under it.
    pub from: BrokerId,
    /// Who leads from now on.
    pub to: BrokerId,
    /// Under which registration that broker holds the sealed end. One that started anew since holds nothing.
    pub to_broker_epoch: BrokerEpoch,
    /// The local WAL in which the new leader holds, durably, all from the committed to the sealed end. `None`:
    /// it holds nothing, so everything up to the sealed end must be committed.
    pub held_in: Option<WalIdentity>,
}

/// What became of sealed partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovesCommitted {
    /// In the order of the request. A broker's objects are committed all or none.
    pub objects: Vec<Result<Vec<ObjectOutcome>, CommitObjectsError>>,
    /// In the order of the request: the partition under its new leader.
    pub moves: Vec<Result<PartitionState, MoveRefused>>,
}

/// Why a move wasn't carried out. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MoveRefused {
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// The leader or its epoch is another one by now: what was sealed is of the past.
    #[error("the partition is led by {leader:?} under leader epoch {leader_epoch}")]
    Stale {
        /// The present leader by the stored row.
        leader: Option<BrokerId>,
        /// The present leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// The metadata was opened again since the partition was sealed.
    #[error("sealed under controller epoch {sealed_under}, which isn't the present one")]
    StaleController {
        /// Under which it was sealed.
        sealed_under: ControllerEpoch,
    },
    /// The move isn't wanted any more.
    #[error("the move was withdrawn")]
    Withdrawn,
    /// The new leader is gone, draining, started anew since it held the sealed end, or hasn't taken leadership.
    #[error("broker {0} can't take a partition over at present")]
    TargetUnavailable(BrokerId),
    /// Records between the committed and the sealed end would belong to nobody.
    #[error(
        "committed up to {committed_end}, sealed at {sealed_end}, and the new leader doesn't hold the rest"
    )]
    NotHeld {
        /// Where the segment map ends.
        committed_end: Offset,
        /// The sealed end.
        sealed_end: Offset,
    },
    /// The log is known to have reached further than the sealed end.
    #[error("sealed at {sealed_end}, but the log reached {reach}")]
    SealedTooLow {
        /// The sealed end.
        sealed_end: Offset,
        /// Where the log reached for sure.
        reach: Offset,
    },
}

/// Moves on what a dead broker led, after its WAL objects were fenced. Refused while it is alive, and when it has
/// registered anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailOver {
    /// The dead broker.
    pub broker: BrokerId,
    /// The registration that died.
    pub broker_epoch: BrokerEpoch,
    /// The writer whose WAL objects were fenced: the one its row names ([`BrokerView::writer`]).
    pub fenced_writer: Option<BrokerEpoch>,
    /// That writer's WAL objects which no commit covers, in the order of their sequence, without a gap.
    pub recovered: Vec<ObjectCommit>,
    /// Move also those partitions of which its local WAL holds records that exist nowhere else.
    pub accept_loss: bool,
}

/// What became of a dead broker's partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOver {
    /// The dead broker's epoch from now on: nobody holds it.
    pub broker_epoch: BrokerEpoch,
    /// The partitions that others lead now.
    pub moved: Vec<PartitionState>,
    /// Partitions that wait for the broker, since its local WAL holds records of them.
    pub waiting: Vec<PartitionId>,
    /// Partitions that anybody could lead, but there is nobody.
    pub stranded: Vec<PartitionId>,
    /// What `accept_loss` gave up.
    pub lost: Vec<Loss>,
    /// What became of the recovered objects' segments, in their order.
    pub recovered: Vec<ObjectOutcome>,
}

/// Why nothing was moved on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum FailOverError {
    /// The broker registered anew, or was failed over already.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// The broker has a session again.
    #[error("broker {0} is alive")]
    Alive(BrokerId),
    /// Its WAL objects aren't fenced, so it could still acknowledge.
    #[error("the WAL objects of broker epoch {expected} must be fenced and recovered first")]
    WriterNotFenced {
        /// Whose.
        expected: BrokerEpoch,
    },
    /// The recovered objects can't be committed.
    #[error(transparent)]
    Commit(#[from] CommitRefused),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Says whether a broker has a session. Not stored: shown in the image as long as this controller lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAlive {
    /// Which broker.
    pub broker: BrokerId,
    /// The registration that the session was opened, or missed, under.
    pub broker_epoch: BrokerEpoch,
    /// Whether.
    pub alive: bool,
}

/// Begins or ends a broker's draining: it is given no partition any more. Stored; a new registration ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDraining {
    /// Which broker.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// Whether.
    pub draining: bool,
}

/// Why a broker's standing wasn't changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BrokerChangeError {
    /// Not its registration (any more).
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Forgets a broker that won't come back. Placements no longer name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterBroker {
    /// Which.
    pub broker: BrokerId,
}

/// Why a broker wasn't forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum UnregisterBrokerError {
    /// Nobody registered under this number.
    #[error("broker {0} isn't registered")]
    UnknownBroker(BrokerId),
    /// It has a session.
    #[error("broker {0} is alive")]
    Alive(BrokerId),
    /// It leads partitions, or is the only one that may.
    #[error("{partitions} partitions need broker {broker}")]
    Needed {
        /// The broker.
        broker: BrokerId,
        /// How many.
        partitions: u64,
    },
    /// Its WAL objects may hold records that aren't committed. Fail it over first.
    #[error("the WAL objects of broker {broker} under broker epoch {writer} weren't recovered")]
    NotRecovered {
        /// The broker.
        broker: BrokerId,
        /// Its last writer.
        writer: BrokerEpoch,
    },
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// A broker, as the conductor needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerView {
    /// Its number.
    pub id: BrokerId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// The life that registered; the nil id after it was failed over.
    pub incarnation: Uuid,
    /// Where Kafka clients connect.
    pub kafka: Endpoint,
    /// Where other brokers connect.
    pub internal: Option<Endpoint>,
    /// Its rack or zone.
    pub rack: Option<String>,
    /// Its local WAL.
    pub wal: Option<WalIdentity>,
    /// Who wrote WAL objects under this number last. Fenced and recovered from here before others lead what it
    /// led. `None`: nothing to fence.
    pub writer: Option<WriterState>,
    /// It has, or is presumed to have, a session.
    pub alive: bool,
    /// It took leadership under its present registration.
    pub leads: bool,
    /// It gives its partitions away and gets none.
    pub draining: bool,
    /// Partitions whose stored row names it as leader, whether it is alive or not.
    pub leaders: u64,
}

impl BrokerView {
    /// It may be given partitions.
    pub fn takes_partitions(&self) -> bool {
        self.alive && self.leads && !self.draining
    }
}

/// A partition whose stored row names a broker as leader, whether that is alive or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedPartition {
    /// Which partition.
    pub partition: PartitionId,
    /// Under which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The brokers that may lead, in order of preference.
    pub placement: Vec<BrokerId>,
    /// The local WAL that may hold acknowledged records which aren't committed: only a broker that runs on it
    /// can lead after a crash. `None`: anybody can.
    pub bound_to: Option<WalIdentity>,
    /// Who shall lead instead, if that is wanted.
    pub target: Option<BrokerId>,
}
