//! What a reader may see, and where it lies.

use std::sync::Arc;

use tidegate_types::{LeaderEpoch, Offset, OffsetRange, TimestampMs};
use tokio::sync::Notify;

use super::{FetchWaiter, PartitionLog, State, Status};
use crate::producers::AbortedTransaction;
use crate::segments::Segment;
use crate::tail::TailPiece;

/// Which records a reader wants to see (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

/// The borders of a log at one moment: `log_start <= last_stable <= high_watermark <= log_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    pub log_start: Offset,
    pub last_stable: Offset,
    pub high_watermark: Offset,
    pub log_end: Offset,
}

impl Watermarks {
    /// The exclusive end of what a reader of this isolation sees.
    pub fn visible_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable,
        }
    }
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {offset} is outside {}..={}", watermarks.log_start, watermarks.log_end)]
    OutOfRange { offset: i64, watermarks: Watermarks },
    #[error("this broker no longer leads the partition")]
    NotLeader,
    #[error("the object store can't be read")]
    Store(#[from] crate::reader::StoreReadError),
    #[error("the write-ahead log can't be read")]
    Wal(#[source] Arc<std::io::Error>),
}

/// Where the next bytes of a read lie.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Nothing visible at this offset yet.
    Nothing,
    Tail(Vec<TailPiece>),
    Store(Segment),
}

/// Where the search for a timestamp goes on.
#[derive(Debug)]
pub(crate) enum TimeCandidate {
    Segment(Segment),
    Batch {
        piece: TailPiece,
        range: OffsetRange,
    },
    None,
}

impl PartitionLog {
    pub fn watermarks(&self) -> Result<Watermarks, ReadError> {
        self.state.lock().watermarks()
    }

    /// Finds where to read `offset`; at most `max_bytes`, but a first batch always whole if `first_whole`.
    pub(crate) fn plan(
        &self,
        offset: Offset,
        max_bytes: usize,
        first_whole: bool,
        isolation: Isolation,
    ) -> Result<(Watermarks, Plan), ReadError> {
        let state = self.state.lock();
        let watermarks = state.watermarks()?;
        if offset < watermarks.log_start || offset > watermarks.log_end {
            return Err(ReadError::OutOfRange {
                offset: offset.to_wire(),
                watermarks,
            });
        }
        let end = watermarks.visible_end(isolation);
        if offset >= end {
            return Ok((watermarks, Plan::Nothing));
        }
        if state.tail.start().is_some_and(|start| start <= offset) {
            let pieces = state.tail.read(offset, end, max_bytes, first_whole);
            let plan = if pieces.is_empty() {
                Plan::Nothing
            } else {
                Plan::Tail(pieces)
            };
            return Ok((watermarks, plan));
        }
        match state.segments.at_or_after(offset) {
            Some(segment) => Ok((watermarks, Plan::Store(segment.clone()))),
            None => {
                // Everything between the last segment and the tail was compacted away.
                let pieces = state.tail.read(offset, end, max_bytes, first_whole);
                Ok((
                    watermarks,
                    if pieces.is_empty() {
                        Plan::Nothing
                    } else {
                        Plan::Tail(pieces)
                    },
                ))
            }
        }
    }

    /// The stored segments from `offset` on that a reader of `bytes` bytes needs, at most `count`.
    pub(crate) fn segments_from(&self, offset: Offset, bytes: u64, count: usize) -> Vec<Segment> {
        self.state.lock().segments.following(offset, bytes, count)
    }

    /// The aborted transactions in `range`, from the same state as the data: if a part of the range was deleted
    /// meanwhile, and with it what is known of its transactions, the read must begin anew.
    pub(crate) fn aborted_in(
        &self,
        range: OffsetRange,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        let state = self.state.lock();
        let watermarks = state.watermarks()?;
        if range.start() < watermarks.log_start {
            return Err(ReadError::OutOfRange {
                offset: range.start().to_wire(),
                watermarks,
            });
        }
        Ok(state.producers.aborted_in(range))
    }

    /// Rings `bell` when the end of what is visible next moves or the log closes, unless something is visible past
    /// `offset` already: then it answers `false` and registers nothing.
    pub fn watch(&self, offset: Offset, isolation: Isolation, bell: &Arc<Notify>) -> bool {
        let mut state = self.state.lock();
        let Ok(watermarks) = state.watermarks() else {
            return false;
        };
        if offset < watermarks.visible_end(isolation) {
            return false;
        }
        state.fetch_waiters.push(FetchWaiter {
            isolation,
            bell: bell.clone(),
        });
        true
    }

    /// Takes back what [`Self::watch`] registered.
    pub fn unwatch(&self, bell: &Arc<Notify>) {
        self.state
            .lock()
            .fetch_waiters
            .retain(|waiter| !Arc::ptr_eq(&waiter.bell, bell));
    }

    /// The answer to OffsetForLeaderEpoch: the last epoch at or below `epoch` and its end.
    pub fn epoch_end(
        &self,
        epoch: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
        let state = self.state.lock();
        let watermarks = state.watermarks()?;
        Ok(state
            .epochs
            .end_of(epoch, state.leader_epoch, watermarks.high_watermark))
    }

    /// The epoch under which `offset` was or would be written.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let state = self.state.lock();
        state.epochs.epoch_at(offset)
    }

    /// The next place at or after `from` that may hold a record as young as `timestamp`.
    pub(crate) fn time_candidate(
        &self,
        from: Offset,
        timestamp: TimestampMs,
        end: Offset,
    ) -> TimeCandidate {
        let state = self.state.lock();
        let from = from.max(state.log_start);
        let tail_start = state.tail.start().unwrap_or(state.log_end);
        if let Some(segment) = state.segments.first_with_timestamp(from, timestamp)
            && segment.range.start() < tail_start.max(from)
            && segment.range.start() < end
        {
            return TimeCandidate::Segment(segment.clone());
        }
        let found = state
            .tail
            .iter()
            .find(|b| b.range.end() > from && b.range.start() < end && b.max_timestamp >= timestamp)
            .map(|b| b.range);
        state.tail_candidate(found)
    }

    /// The greatest timestamp of what lies whole in `visible`: by segment in the store, by batch in the tail.
    pub(crate) fn greatest_timestamp(&self, visible: OffsetRange) -> Option<TimestampMs> {
        let state = self.state.lock();
        let stored = state.segments.greatest_timestamp(visible.start());
        let in_tail = state
            .tail
            .iter()
            .filter(|b| b.range.start() >= visible.start() && b.range.end() <= visible.end())
            .map(|b| b.max_timestamp)
            .max();
        stored.max(in_tail)
    }
}

impl State {
    pub(super) fn watermarks(&self) -> Result<Watermarks, ReadError> {
        if matches!(self.status, Status::Closed | Status::Incoming) {
            return Err(ReadError::NotLeader);
        }
        Ok(Watermarks {
            log_start: self.log_start,
            last_stable: self.last_stable(),
            high_watermark: self.high_watermark,
            log_end: self.log_end,
        })
    }

    fn tail_candidate(&self, range: Option<OffsetRange>) -> TimeCandidate {
        let Some(range) = range else {
            return TimeCandidate::None;
        };
        let piece = self.tail.read(range.start(), range.end(), 0, true).pop();
        piece.map_or(TimeCandidate::None, |piece| TimeCandidate::Batch {
            piece,
            range,
        })
    }
}
