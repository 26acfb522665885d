//! The way of a log's tail into object storage: cuts for uploads, and what becomes of a stored segment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, OffsetRange};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{CheckpointDue, PartitionLog, State, Status};
use crate::checkpoint;
use crate::segments::Segment;
use crate::tail::TailBatch;

/// A piece of a log that is to be uploaded, decided at one moment.
pub(crate) struct UploadCut {
    pub(crate) log: Arc<PartitionLog>,
    pub(crate) range: OffsetRange,
    pub(crate) leader_epoch: LeaderEpoch,
    /// Which beginning of uploads it belongs to.
    pub(crate) round: u64,
    pub(crate) bytes: u64,
    /// The state as of `range.end()`. It must not be stored before everything below is durable: a checkpoint
    /// that knows sequences which a crash then loses would turn their retries into duplicates.
    pub(crate) checkpoint: Bytes,
    pub(crate) durable: oneshot::Receiver<()>,
}

impl PartitionLog {
    /// Since when bytes wait for an upload that is possible at `now`.
    pub(crate) fn waiting_since(&self, now: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let held = state.uploads_held_until.is_some_and(|until| now < until);
        state.waiting_since.filter(|_| !held)
    }

    /// Cuts everything appended so far that no upload has taken yet.
    pub(crate) fn cut(self: &Arc<Self>) -> Option<UploadCut> {
        let mut state = self.state.lock();
        if state.durability != DurabilityMode::Local
            || matches!(
                state.status,
                Status::Closed | Status::Failed(_) | Status::Incoming
            )
        {
            return None;
        }
        let range =
            OffsetRange::new(state.upload_cursor, state.log_end).filter(|r| !r.is_empty())?;
        let bytes = std::mem::take(&mut state.waiting_bytes);
        self.context
            .unstored_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        state.waiting_since = None;
        state.upload_cursor = range.end();
        Some(UploadCut {
            log: self.clone(),
            range,
            leader_epoch: state.leader_epoch,
            round: state.upload_round,
            bytes,
            checkpoint: checkpoint::encode(range.end(), &state.producers),
            durable: state.await_durable(range.end()),
        })
    }

    /// The batches of a cut, oldest first.
    pub(crate) fn cut_batches(&self, range: OffsetRange) -> Vec<TailBatch> {
        self.state.lock().tail.batches_in(range).cloned().collect()
    }

    /// Takes in a segment that is readable in object storage (`object` mode: before metadata knows of it).
    pub(crate) fn stored(&self, segment: Segment) {
        self.state.lock().take_segment(segment);
    }

    /// Takes in that metadata has committed everything below `end`.
    pub(crate) fn uploaded(&self, end: Offset) {
        let mut state = self.state.lock();
        state.uploaded_end = state.uploaded_end.max(end);
        state.upload_cursor = state.upload_cursor.max(state.uploaded_end);
        state.ring_followers();
        state.drop_stored();
        state.finish_switch();
    }

    /// Whether a cut is still to be committed.
    pub(crate) fn is_current(&self, cut: &UploadCut) -> bool {
        self.state.lock().upload_round == cut.round
    }

    /// Whether metadata had the records from `offset` on sealed before this leadership began: then another broker
    /// may have committed them, in another object.
    pub(crate) fn was_sealed(&self, offset: Offset) -> bool {
        let state = self.state.lock();
        let began = state.epochs.entries().last();
        began.is_some_and(|(_, start)| offset < *start)
    }

    /// Lets uploads begin anew at what metadata has committed, after it took another segment than the one that
    /// was offered, or none. Cuts made before aren't committed any more.
    ///
    /// Answers `false` if metadata has less than this log knows of: then nobody has what lies between.
    pub(crate) fn restart_uploads(
        &self,
        committed_end: Option<Offset>,
        hold_until: Option<Instant>,
    ) -> bool {
        let mut state = self.state.lock();
        if committed_end.is_some_and(|end| end < state.uploaded_end) {
            return false;
        }
        state.upload_round += 1;
        state.uploads_held_until = hold_until;
        state.uploaded_end = state.uploaded_end.max(committed_end.unwrap_or_default());
        state.upload_cursor = state.uploaded_end;
        if state.durability == DurabilityMode::Local
            && !matches!(state.status, Status::Closed | Status::Failed(_))
        {
            let waiting = state.tail.bytes_from(state.upload_cursor);
            let before = std::mem::replace(&mut state.waiting_bytes, waiting);
            let unstored = &self.context.unstored_bytes;
            unstored.fetch_add(waiting, Ordering::Relaxed);
            unstored.fetch_sub(before, Ordering::Relaxed);
            let now = self.context.clock.now();
            state.waiting_since = (waiting > 0).then(|| state.waiting_since.unwrap_or(now));
        }
        state.finish_switch();
        true
    }

    /// The log can't go on: what it was promised isn't so.
    pub(crate) fn fail(&self, cause: Arc<str>) {
        let mut state = self.state.lock();
        if !matches!(state.status, Status::Closed | Status::Failed(_)) {
            state.set_status(Status::Failed(cause));
            state.ack_waiters.clear();
        }
    }

    /// Where the segment map ends and up to where metadata has more.
    pub(crate) fn unmapped(&self) -> Option<OffsetRange> {
        let state = self.state.lock();
        let missing = OffsetRange::new(state.stored_end, state.uploaded_end)?;
        let leads = !matches!(state.status, Status::Closed | Status::Incoming);
        (leads && !missing.is_empty()).then_some(missing)
    }

    /// Takes in all segments that metadata has from the map's end up to `end`.
    pub(crate) fn mapped(&self, segments: Vec<Segment>, end: Offset) {
        let mut state = self.state.lock();
        for segment in segments {
            if segment.range.end() > state.log_start {
                state.segments.extend(segment);
            }
        }
        state.stored_end = state.stored_end.max(end);
        for segment in std::mem::take(&mut state.segments_ahead) {
            state.take_segment(segment);
        }
        state.drop_stored();
        state.finish_switch();
    }

    /// Takes in a new log start that metadata has committed. It never goes back.
    pub fn advance_log_start(&self, log_start: Offset) {
        let mut state = self.state.lock();
        if log_start <= state.log_start {
            return;
        }
        state.log_start = log_start;
        state.segments.drop_below(log_start);
        state.producers.forget_below(log_start);
        // Opening can't replay what is deleted, so the next append brings the state along.
        state.checkpoint_due = CheckpointDue::overdue();
        // They may wait for what is gone, or at a transaction whose records are.
        let waiters = std::mem::take(&mut state.fetch_waiters);
        drop(state);
        waiters.iter().for_each(|waiter| waiter.bell.notify_one());
    }
}

impl State {
    /// Takes in the next segment; one behind a gap waits until the gap is closed, or readers would skip it.
    fn take_segment(&mut self, segment: Segment) {
        if segment.range.start() > self.stored_end {
            self.segments_ahead.push(segment);
            return;
        }
        self.stored_end = self.stored_end.max(segment.range.end());
        // DeleteRecords may have gone past it: then metadata doesn't keep it either.
        if segment.range.end() > self.log_start {
            self.segments.push(segment);
        }
    }

    fn drop_stored(&mut self) {
        let stored_end = self.stored_end;
        self.tail.drop_spilled(stored_end);
    }
}
