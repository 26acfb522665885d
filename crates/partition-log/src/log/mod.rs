//! One partition's log on the broker that leads it.
//!
//! All state that changes together sits behind one short, synchronous lock. An append takes it once, to judge
//! the batch, give it its offset and hand it to the WAL in that order; the WAL takes it once more, to move the
//! high watermark. Nothing is awaited under it.

mod append;
mod checkpoint_due;
mod compaction;
mod copy;
mod follow;
mod read;
mod seal;
mod store;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_runtime::SharedClock;
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, PartitionId, TimestampMs, TopicName};
use tidegate_wal::Wal;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

pub use append::{AppendError, Appended, Durability};
use checkpoint_due::CheckpointDue;
pub use compaction::{CompactionView, LastOfProducer};
pub(crate) use copy::{CopyRefused, Copying, TakeOver};
pub(crate) use follow::{FollowPlan, Told};
pub use read::{Isolation, ReadError, Watermarks};
pub(crate) use read::{Plan, TimeCandidate};
use seal::Seal;
pub use seal::{Ownership, SealError, SealOrder, SealedState};
pub(crate) use store::UploadCut;
use transactions::Ending;
pub use transactions::TransactionCheck;

use crate::budget::TailBudget;
use crate::epochs::EpochHistory;
use crate::producers::{Producers, Verifications};
use crate::read_ahead::Streams;
use crate::segments::{Segment, SegmentMap};
use crate::tail::{Tail, WalNeed};

/// What the logs of one broker share.
pub struct LogContext {
    pub clock: SharedClock,
    pub local_wal: Arc<dyn Wal>,
    pub object_wal: Arc<dyn Wal>,
    pub tail_budget: Arc<TailBudget>,
    /// How long a producer that doesn't write is remembered (`producer.id.expiration.ms`).
    pub producer_expiration: Duration,
    /// Rung when a log has so much to upload that it shouldn't wait for the next tick.
    pub upload_bell: Notify,
    pub upload_size_bytes: u64,
    /// Bytes in local-mode logs that no upload has taken yet.
    pub unstored_bytes: AtomicU64,
    /// The position of the newest entry of the local WAL whose log knows that it is durable. Entries behind it
    /// may still be on their way to their logs, so nothing from here on is trimmed.
    pub observed_wal: AtomicU64,
    /// Nothing from here on is trimmed: the WAL holds records of partitions that could not be opened.
    /// `u64::MAX` if there are none.
    pub pinned_wal: AtomicU64,
}

impl LogContext {
    fn wal(&self, durability: DurabilityMode) -> &Arc<dyn Wal> {
        match durability {
            DurabilityMode::Local => &self.local_wal,
            DurabilityMode::Object => &self.object_wal,
        }
    }
}

/// A log and everything that is known of it in memory.
pub struct PartitionLog {
    id: PartitionId,
    topic: TopicName,
    context: Arc<LogContext>,
    state: Mutex<State>,
    pub(crate) streams: Mutex<Streams>,
}

/// Whether the log takes appends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Status {
    Open,
    /// The topic's durability changed: appends wait until the tail is stored, then go to the other WAL.
    Switching(DurabilityMode),
    /// Another broker is about to lead: no appends, unless the move is taken back.
    Sealed(Seal),
    /// A copy of another broker's log, which this broker is about to lead.
    Incoming,
    /// The WAL can't promise anything any more.
    Failed(Arc<str>),
    /// Another broker leads, or the topic is gone.
    Closed,
}

struct State {
    status: Status,
    ownership: watch::Sender<Ownership>,
    /// The newest order that took a seal back. A seal up to it comes late.
    unsealed_by: Option<SealOrder>,
    leader_epoch: LeaderEpoch,
    durability: DurabilityMode,
    /// The topic's durability: differs from `durability` as long as a change waits.
    wanted_durability: DurabilityMode,
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    /// Exclusive end of what is in object storage and readable there: what the segment map covers.
    stored_end: Offset,
    /// Exclusive end of what metadata has committed as uploaded. It is ahead of `stored_end` when another broker
    /// committed a part of the log and the segment map doesn't know yet.
    uploaded_end: Offset,
    /// Where the next upload begins: at or past `stored_end` while uploads are under way.
    upload_cursor: Offset,
    /// Bytes at or past `upload_cursor`.
    waiting_bytes: u64,
    waiting_since: Option<Instant>,
    /// Raised when uploads begin anew: what was cut before isn't committed.
    upload_round: u64,
    /// No cuts before this: metadata refused the last one.
    uploads_held_until: Option<Instant>,
    checkpoint_due: CheckpointDue,
    epochs: EpochHistory,
    producers: Producers,
    /// Producers whose transaction's coordinator is being asked.
    verifications: Verifications,
    /// Transactions whose marker isn't durable yet, in the order of their markers.
    ending: VecDeque<Ending>,
    tail: Tail,
    segments: SegmentMap,
    /// How often metadata had swapped segments when this leadership began. After a swap since then it differs from
    /// metadata's count, and nobody takes this map for metadata's.
    map_swaps: u64,
    /// How often aborted transactions were taken off the list because nothing is left of them.
    aborted_forgotten: u64,
    /// Segments behind a gap in the map, which metadata can fill.
    segments_ahead: Vec<Segment>,
    ack_waiters: VecDeque<(Offset, oneshot::Sender<()>)>,
    fetch_waiters: Vec<FetchWaiter>,
    /// Bells of brokers that copy the tail: rung at every change that concerns them.
    followers: Vec<Arc<Notify>>,
}

/// A reader that waits for something visible to it.
struct FetchWaiter {
    isolation: Isolation,
    bell: Arc<Notify>,
}

/// What opening a log starts from: metadata, the newest checkpoint brought up to date, and recovered batches.
pub struct Opening {
    pub id: PartitionId,
    pub topic: TopicName,
    pub leader_epoch: LeaderEpoch,
    pub durability: DurabilityMode,
    pub log_start: Offset,
    pub uploaded_end: Offset,
    pub epochs: EpochHistory,
    pub segments: Vec<Segment>,
    /// How often metadata had swapped segments when these were read.
    pub swaps: u64,
    pub(crate) producers: Producers,
    pub(crate) tail: Tail,
    pub log_end: Offset,
}

impl PartitionLog {
    pub(crate) fn new(opening: Opening, context: Arc<LogContext>) -> Self {
        let now = context.clock.now();
        let waiting_bytes = opening.tail.bytes_from(opening.uploaded_end);
        context
            .unstored_bytes
            .fetch_add(waiting_bytes, Ordering::Relaxed);
        let mut segments = SegmentMap::new(opening.segments);
        segments.drop_below(opening.log_start);
        let mut producers = opening.producers;
        producers.forget_below(opening.log_start);
        // A crash came between a change to `object` and the upload of what was appended before it: that is in the
        // local WAL only, so the change is still to be carried out.
        let (status, durability) = match opening.durability {
            DurabilityMode::Object if waiting_bytes > 0 => (
                Status::Switching(DurabilityMode::Object),
                DurabilityMode::Local,
            ),
            durability => (Status::Open, durability),
        };
        let state = State {
            leader_epoch: opening.leader_epoch,
            durability,
            wanted_durability: opening.durability,
            log_start: opening.log_start,
            high_watermark: opening.log_end,
            log_end: opening.log_end,
            waiting_bytes,
            waiting_since: (waiting_bytes > 0).then_some(now),
            epochs: opening.epochs,
            producers,
            tail: opening.tail,
            segments,
            map_swaps: opening.swaps,
            ..State::empty(status, durability, opening.uploaded_end)
        };
        Self {
            id: opening.id,
            topic: opening.topic,
            context,
            state: Mutex::new(state),
            streams: Mutex::new(Streams::default()),
        }
    }

    pub fn id(&self) -> PartitionId {
        self.id
    }

    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.state.lock().leader_epoch
    }

    /// The promise under which batches are acknowledged at present.
    pub fn durability(&self) -> DurabilityMode {
        self.state.lock().durability
    }

    /// The segments in offset order, for retention and reports.
    pub fn segments(&self) -> Vec<Segment> {
        self.state.lock().segments.as_slice().to_vec()
    }

    /// Bytes of this log: in object storage, and not yet there.
    pub fn size_bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (
            state.segments.bytes(),
            state.tail.bytes_from(state.stored_end),
        )
    }

    /// Stops appends and lets everybody who waits know: another broker leads or the topic is gone.
    pub fn close(&self) {
        let mut state = self.state.lock();
        if state.durability == DurabilityMode::Local {
            self.context
                .unstored_bytes
                .fetch_sub(state.waiting_bytes, Ordering::Relaxed);
        }
        state.waiting_bytes = 0;
        state.waiting_since = None;
        state.set_status(Status::Closed);
        state.ack_waiters.clear();
        let waiters = std::mem::take(&mut state.fetch_waiters);
        drop(state);
        waiters.iter().for_each(|w| w.bell.notify_one());
    }

    /// Asks for another durability mode. It takes effect once nothing is left to store; until then appends are
    /// refused with a retriable error, so that no record is acknowledged under the wrong promise.
    pub fn set_durability(&self, durability: DurabilityMode) {
        let mut state = self.state.lock();
        state.wanted_durability = durability;
        match state.status {
            Status::Open | Status::Switching(_) => {
                state.status = Status::Switching(durability);
                state.finish_switch();
            }
            // A log that is unsealed goes on as the topic wants it then.
            Status::Sealed(_) | Status::Incoming | Status::Failed(_) | Status::Closed => {}
        }
        drop(state);
        self.context.upload_bell.notify_one();
    }

    /// Whether another broker leads or the topic is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().status == Status::Closed
    }

    /// Whether the tail holds the batch at `offset`.
    pub(crate) fn tail_holds(&self, offset: Offset) -> bool {
        let start = self.state.lock().tail.start();
        start.is_some_and(|start| start <= offset)
    }

    /// Whether a change of durability waits for the tail to be stored.
    pub(crate) fn switching(&self) -> bool {
        matches!(self.state.lock().status, Status::Switching(_))
    }

    /// Forgets producers that were idle for longer than the expiration.
    pub fn expire_producers(&self) -> usize {
        let expiration =
            i64::try_from(self.context.producer_expiration.as_millis()).unwrap_or(i64::MAX);
        let before = TimestampMs::new(self.context.clock.wall().get().saturating_sub(expiration));
        let mut state = self.state.lock();
        state.verifications.expire(before);
        state.producers.expire(before)
    }

    /// What this log needs the local WAL to keep.
    pub(crate) fn wal_need(&self) -> WalNeed {
        let state = self.state.lock();
        match state.durability {
            // Not the uploaded end: what the segment map doesn't cover is read from the WAL.
            DurabilityMode::Local => state.tail.wal_need(state.stored_end),
            DurabilityMode::Object => WalNeed::Nothing,
        }
    }

    pub(crate) fn holds_in_memory(&self, end: Offset) -> bool {
        self.state.lock().tail.holds_in_memory(end)
    }

    pub(crate) fn evict(&self, below: Offset) -> u64 {
        let mut state = self.state.lock();
        let stored_end = state.stored_end;
        state.tail.evict(below, stored_end)
    }
}

impl Drop for PartitionLog {
    fn drop(&mut self) {
        self.context
            .tail_budget
            .released(self.state.get_mut().tail.memory_bytes());
    }
}

impl State {
    /// A log that holds nothing and ends at `end`, below which everything is in object storage.
    fn empty(status: Status, durability: DurabilityMode, end: Offset) -> Self {
        Self {
            ownership: watch::Sender::new(status.ownership()),
            status,
            unsealed_by: None,
            leader_epoch: LeaderEpoch::FIRST,
            durability,
            wanted_durability: durability,
            log_start: Offset::ZERO,
            high_watermark: end,
            log_end: end,
            stored_end: end,
            uploaded_end: end,
            upload_cursor: end,
            waiting_bytes: 0,
            waiting_since: None,
            upload_round: 0,
            uploads_held_until: None,
            checkpoint_due: CheckpointDue::overdue(),
            epochs: EpochHistory::default(),
            producers: Producers::default(),
            verifications: Verifications::default(),
            ending: VecDeque::new(),
            tail: Tail::default(),
            segments: SegmentMap::default(),
            map_swaps: 0,
            aborted_forgotten: 0,
            segments_ahead: Vec::new(),
            ack_waiters: VecDeque::new(),
            fetch_waiters: Vec::new(),
            followers: Vec::new(),
        }
    }

    /// Changes the status and lets those know who wait for it.
    fn set_status(&mut self, status: Status) {
        let ownership = status.ownership();
        self.status = status;
        self.ownership.send_if_modified(|shown| {
            let changed = *shown != ownership;
            *shown = ownership;
            changed
        });
        self.ring_followers();
    }

    fn ring_followers(&self) {
        self.followers.iter().for_each(|bell| bell.notify_one());
    }

    fn finish_switch(&mut self) {
        if let Status::Switching(durability) = self.status
            && (durability == self.durability
                || self.stored_end.min(self.uploaded_end) == self.log_end)
        {
            self.durability = durability;
            self.status = Status::Open;
        }
    }
}
