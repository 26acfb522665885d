//! A log that is copied from the broker that leads it, until this broker leads.
//!
//! It is a log from the start, so that copied batches count, spill and become durable as all others do, and
//! leading begins without moving one of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_record_batch::StoredBatch;
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, OffsetRange, PartitionId, TopicName};
use tidegate_wal::{AppendObserver, AppendRefused, Entry};
use tokio::sync::oneshot;

use super::{CheckpointDue, LogContext, PartitionLog, State, Status};
use crate::epochs::EpochHistory;
use crate::producers::Producers;
use crate::read_ahead::Streams;
use crate::segments::{Segment, SegmentMap};
use crate::tail::{TailBatch, TailPiece};

/// What is to be copied.
pub(crate) struct Copying {
    pub(crate) id: PartitionId,
    pub(crate) topic: TopicName,
    /// Under which the present leader leads.
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) durability: DurabilityMode,
}

/// Why a batch wasn't copied.
#[derive(Debug)]
pub(crate) enum CopyRefused {
    /// No room in the WAL now.
    Full,
    /// It doesn't follow what was copied.
    Gap {
        expected: Offset,
        found: OffsetRange,
    },
    /// The batch names no leader epoch, or one that isn't yet.
    Epoch(i32),
    /// The WAL takes nothing more, or not this.
    Wal(Arc<str>),
    /// The copy was given up.
    Discarded,
}

/// What leading begins with.
pub(crate) struct TakeOver {
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) epochs: EpochHistory,
    pub(crate) log_start: Offset,
    pub(crate) uploaded_end: Offset,
    pub(crate) segments: Vec<Segment>,
    /// How often metadata has swapped segments of this map.
    pub(crate) swaps: u64,
    /// Up to where `segments` are all there are.
    pub(crate) mapped_end: Offset,
    pub(crate) producers: Producers,
}

impl PartitionLog {
    pub(crate) fn copying(copying: Copying, context: Arc<LogContext>) -> Self {
        let state = State {
            leader_epoch: copying.leader_epoch,
            ..State::empty(Status::Incoming, copying.durability, Offset::ZERO)
        };
        Self {
            id: copying.id,
            topic: copying.topic,
            context,
            state: parking_lot::Mutex::new(state),
            streams: parking_lot::Mutex::new(Streams::default()),
        }
    }

    /// Takes in that everything below `from` is in object storage. What was copied up to there isn't needed; if
    /// there is a gap before `from`, all of it isn't.
    pub(crate) fn copy_from(&self, from: Offset) {
        let mut state = self.state.lock();
        if state.status != Status::Incoming || from <= state.uploaded_end {
            return;
        }
        let freed = if from > state.log_end {
            state.log_end = from;
            state.high_watermark = from;
            state.tail.clear()
        } else {
            match state.durability {
                DurabilityMode::Local => state.tail.drop_below(from),
                // Readers may want it soon, and it may leave memory at any time.
                DurabilityMode::Object => 0,
            }
        };
        state.uploaded_end = from;
        state.stored_end = state.stored_end.max(from);
        drop(state);
        self.context.tail_budget.released(freed);
    }

    /// Takes in one batch. One that was copied already changes nothing. It is durable here once the high watermark
    /// has passed it.
    pub(crate) fn copy(self: &Arc<Self>, batch: StoredBatch) -> Result<(), CopyRefused> {
        let header = *batch.header();
        let range = OffsetRange::new(header.base_offset(), header.end_offset())
            .expect("a batch ends after its start");
        let mut state = self.state.lock();
        match &state.status {
            Status::Incoming => {}
            Status::Failed(cause) => return Err(CopyRefused::Wal(cause.clone())),
            Status::Open | Status::Switching(_) | Status::Sealed(_) | Status::Closed => {
                return Err(CopyRefused::Discarded);
            }
        }
        if range.end() <= state.log_end {
            return Ok(());
        }
        if range.start() != state.log_end {
            return Err(CopyRefused::Gap {
                expected: state.log_end,
                found: range,
            });
        }
        let leader_epoch = LeaderEpoch::from_wire(header.leader_epoch())
            .filter(|epoch| *epoch <= state.leader_epoch)
            .ok_or(CopyRefused::Epoch(header.leader_epoch()))?;
        let bytes = batch.into_bytes();
        let length = bytes.len() as u64;
        match state.durability {
            DurabilityMode::Local => {
                let entry = Entry {
                    partition: self.id,
                    leader_epoch,
                    range,
                    batches: bytes.clone(),
                    max_timestamp: header.max_record_timestamp(),
                    record_count: header.record_count(),
                    checkpoint: None,
                };
                let observer: Arc<dyn AppendObserver> = self.clone();
                self.context.local_wal.append(entry, observer).map_err(
                    |refused| match refused {
                        AppendRefused::Full(_) => CopyRefused::Full,
                        AppendRefused::Failed(_)
                        | AppendRefused::Closed
                        | AppendRefused::TooLarge { .. } => {
                            CopyRefused::Wal(refused.to_string().into())
                        }
                    },
                )?;
            }
            // It is in the present leader's WAL objects, so this copy is a cache and may leave memory.
            DurabilityMode::Object => {
                state.high_watermark = range.end();
                state.stored_end = range.end();
            }
        }
        state.log_end = range.end();
        state.tail.push(TailBatch::new(&header, bytes));
        drop(state);
        self.context.tail_budget.added(self, range.end(), length);
        Ok(())
    }

    pub(crate) fn copied_end(&self) -> Offset {
        self.state.lock().log_end
    }

    /// The copied batches from `offset` on; `None` if what is left of the copy begins behind it, or it isn't a copy
    /// any more.
    pub(crate) fn copied(&self, offset: Offset, max_bytes: usize) -> Option<Vec<TailPiece>> {
        let state = self.state.lock();
        let start = state.tail.start().unwrap_or(state.log_end);
        let holds = state.status == Status::Incoming && start <= offset;
        holds.then(|| state.tail.read(offset, state.log_end, max_bytes, true))
    }

    /// Where what is left of the copy begins.
    pub(crate) fn copied_start(&self) -> Offset {
        let state = self.state.lock();
        state.tail.start().unwrap_or(state.log_end)
    }

    /// Resolves when the copy is durable here up to its end; an error means that it never will be.
    pub(crate) fn copy_durable(&self) -> oneshot::Receiver<()> {
        let mut state = self.state.lock();
        let end = state.log_end;
        let receiver = state.await_durable(end);
        if matches!(state.status, Status::Failed(_) | Status::Closed) {
            state.ack_waiters.clear();
        }
        receiver
    }

    /// Gives the copy up. Answers `false` if it leads, or was given up before.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.state.lock();
        let incoming = state.status == Status::Incoming;
        if incoming {
            state.set_status(Status::Closed);
            state.ack_waiters.clear();
        }
        incoming
    }

    /// Begins to lead with what was copied, all of it durable. `false` if the copy was given up.
    ///
    /// What is left of the copy must begin at or before `mapped_end`.
    pub(crate) fn take_over(&self, from: TakeOver) -> bool {
        let mut state = self.state.lock();
        if state.status != Status::Incoming {
            return false;
        }
        state.leader_epoch = from.leader_epoch;
        state.epochs = from.epochs;
        state.log_start = from.log_start;
        state.uploaded_end = from.uploaded_end.max(from.mapped_end);
        state.stored_end = from.mapped_end;
        state.upload_cursor = state.uploaded_end;
        state.producers = from.producers;
        state.producers.forget_below(from.log_start);
        state.segments = SegmentMap::new(from.segments);
        state.map_swaps = from.swaps;
        state.segments.drop_below(from.log_start);
        state.high_watermark = state.log_end;
        state.checkpoint_due = CheckpointDue::overdue();
        if state.durability == DurabilityMode::Local {
            let waiting_bytes = state.tail.bytes_from(state.uploaded_end);
            self.context
                .unstored_bytes
                .fetch_add(waiting_bytes, Ordering::Relaxed);
            state.waiting_bytes = waiting_bytes;
            state.waiting_since = (waiting_bytes > 0).then(|| self.context.clock.now());
        }
        let wanted = state.wanted_durability;
        state.set_status(Status::Switching(wanted));
        state.finish_switch();
        true
    }
}
