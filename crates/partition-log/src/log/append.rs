//! Appending, and the WAL's report that what was appended is durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use tidegate_record_batch::{BatchHeader, ProducedBatch, TimestampType};
use tidegate_types::{DurabilityMode, Offset, OffsetRange, TimestampMs, VerificationTicket};
use tidegate_wal::{
    AppendObserver, AppendRefused, Appended as WalAppended, Entry, FullCause, Location, WalFailure,
};
use tokio::sync::oneshot;

use super::{FetchWaiter, Isolation, PartitionLog, State, Status};
use crate::producers::{Admission, Circumstances, MarkerRefused, SequenceError};
use crate::tail::{TailBatch, WalExtent};

/// A batch that has its offsets.
#[derive(Debug)]
pub struct Appended {
    pub range: OffsetRange,
    /// The broker's time if the topic stamps records itself, else [`TimestampMs::NONE`].
    pub log_append_time: TimestampMs,
    pub log_start: Offset,
    pub durability: Durability,
}

/// Whether the producer may be told already.
#[derive(Debug)]
pub enum Durability {
    Durable,
    /// Resolves when durable. An error means the log failed or closed: the outcome is unknown.
    Pending(oneshot::Receiver<()>),
}

/// Why a batch was not appended. Nothing of it will ever appear.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("this broker no longer leads the partition")]
    NotLeader,
    #[error("the write-ahead log is full: {0}")]
    Full(FullCause),
    #[error("a batch of {bytes} bytes is above the write-ahead log's limit of {limit_bytes}")]
    TooLarge { bytes: u64, limit_bytes: u64 },
    #[error("the write-ahead log failed: {0}")]
    Failed(Arc<str>),
    #[error("the topic's durability is changing")]
    Switching,
    /// Another broker is about to lead; see [`PartitionLog::settled`].
    #[error("the partition is being moved to another broker")]
    Sealed,
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    #[error(transparent)]
    Marker(#[from] MarkerRefused),
    #[error("the partition is out of offsets")]
    OutOfOffsets,
}

impl PartitionLog {
    /// Whether the WAL would take so many bytes now. A hint: somebody else may take the room.
    pub fn has_room(&self, bytes: u64) -> bool {
        let durability = self.state.lock().durability;
        self.context.wal(durability).available_bytes() >= bytes
    }

    /// Appends one validated batch of a client (or of a coordinator) that opens no transaction.
    pub fn append(self: &Arc<Self>, batch: ProducedBatch) -> Result<Appended, AppendError> {
        self.append_verified(batch, None)
    }

    /// Appends one validated batch. Does it open a transaction here, then `ticket` says that the transaction's
    /// coordinator knows of it; see [`Self::check_transaction`].
    pub fn append_verified(
        self: &Arc<Self>,
        batch: ProducedBatch,
        ticket: Option<VerificationTicket>,
    ) -> Result<Appended, AppendError> {
        let now = self.context.clock.wall();
        let state = self.state.lock();
        state.writable()?;
        let circumstances = Circumstances {
            never_written: state.log_end == Offset::ZERO,
            verifications: &state.verifications,
            ticket,
        };
        let header = batch.header();
        match state.producers.admit(header, circumstances)? {
            Admission::Append => {}
            Admission::Duplicate { range, timestamp } => {
                let kind = header.timestamp_type();
                let mut state = state;
                return Ok(state.acknowledge_duplicate(range, timestamp, kind));
            }
        }
        self.enter(state, batch, |state, header, range| {
            if let Some(producer) = header.producer().filter(|_| header.is_transactional()) {
                state.verifications.opened(producer.id);
            }
            state.producers.apply_data(header, range, now);
        })
    }

    /// Gives a batch its place, hands it to the WAL, and lets `apply` take it into the derived state.
    pub(super) fn enter(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        batch: ProducedBatch,
        apply: impl FnOnce(&mut State, &BatchHeader, OffsetRange),
    ) -> Result<Appended, AppendError> {
        let base = state.log_end;
        let span = i64::from(batch.header().last_offset_delta()) + 1;
        let end = base
            .checked_add(span)
            .map_err(|_| AppendError::OutOfOffsets)?;
        let stored = batch.place(base, state.leader_epoch);
        let header = *stored.header();
        let range = OffsetRange::new(base, end).expect("a batch ends after its start");
        let bytes = stored.into_bytes();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let checkpoint = state.checkpoint_if_due(length);
        let with_checkpoint = checkpoint.is_some();
        let entry = Entry {
            partition: self.id,
            leader_epoch: state.leader_epoch,
            range,
            batches: bytes.clone(),
            max_timestamp: header.max_record_timestamp(),
            record_count: header.record_count(),
            checkpoint,
        };
        let observer: Arc<dyn AppendObserver> = self.clone();
        self.context
            .wal(state.durability)
            .append(entry, observer)
            .map_err(|refused| match refused {
                AppendRefused::Full(cause) => AppendError::Full(cause),
                AppendRefused::Failed(cause) => AppendError::Failed(cause.to_string().into()),
                AppendRefused::Closed => AppendError::NotLeader,
                AppendRefused::TooLarge { bytes, limit_bytes } => {
                    AppendError::TooLarge { bytes, limit_bytes }
                }
            })?;
        state.checkpoint_due.appended(length, with_checkpoint);
        apply(&mut state, &header, range);
        state.log_end = end;
        state.tail.push(TailBatch::new(&header, bytes));
        let (sender, receiver) = oneshot::channel();
        state.ack_waiters.push_back((end, sender));
        let ring = state.note_waiting(self, length);
        let appended = Appended {
            range,
            log_append_time: append_time(header.timestamp_type(), header.max_timestamp()),
            log_start: state.log_start,
            durability: Durability::Pending(receiver),
        };
        drop(state);
        if ring {
            self.context.upload_bell.notify_one();
        }
        self.context.tail_budget.added(self, end, length);
        Ok(appended)
    }
}

fn append_time(kind: TimestampType, timestamp: TimestampMs) -> TimestampMs {
    match kind {
        TimestampType::LogAppendTime => timestamp,
        TimestampType::CreateTime => TimestampMs::NONE,
    }
}

impl State {
    pub(super) fn writable(&self) -> Result<(), AppendError> {
        match &self.status {
            Status::Open => Ok(()),
            Status::Switching(_) => Err(AppendError::Switching),
            Status::Sealed(_) => Err(AppendError::Sealed),
            Status::Failed(cause) => Err(AppendError::Failed(cause.clone())),
            Status::Incoming | Status::Closed => Err(AppendError::NotLeader),
        }
    }

    /// Answers a retry with its first offsets, once they are durable.
    fn acknowledge_duplicate(
        &mut self,
        range: OffsetRange,
        timestamp: TimestampMs,
        kind: TimestampType,
    ) -> Appended {
        let durability = if range.end() <= self.high_watermark {
            Durability::Durable
        } else {
            Durability::Pending(self.await_durable(range.end()))
        };
        Appended {
            range,
            log_append_time: append_time(kind, timestamp),
            log_start: self.log_start,
            durability,
        }
    }

    /// Registers somebody who waits for everything below `end`.
    pub(super) fn await_durable(&mut self, end: Offset) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        if end <= self.high_watermark {
            // The receiver may have gone already, which is its right.
            let _ = sender.send(());
            return receiver;
        }
        let at = self.ack_waiters.partition_point(|(e, _)| *e <= end);
        self.ack_waiters.insert(at, (end, sender));
        receiver
    }

    /// In `object` mode the state as of the log end, when enough was appended since the last one.
    fn checkpoint_if_due(&mut self, appending: u64) -> Option<bytes::Bytes> {
        match self.durability {
            DurabilityMode::Local => None,
            DurabilityMode::Object => {
                self.checkpoint_due
                    .take_if_due(appending, self.log_end, &self.producers)
            }
        }
    }

    fn note_waiting(&mut self, log: &PartitionLog, length: u64) -> bool {
        match self.durability {
            DurabilityMode::Object => false,
            DurabilityMode::Local => {
                self.waiting_bytes += length;
                self.waiting_since
                    .get_or_insert_with(|| log.context.clock.now());
                let before = log
                    .context
                    .unstored_bytes
                    .fetch_add(length, Ordering::Relaxed);
                let size = log.context.upload_size_bytes;
                before < size && before + length >= size
            }
        }
    }
}

impl AppendObserver for PartitionLog {
    fn durable(&self, appended: WalAppended) {
        let mut state = self.state.lock();
        if let Location::Local { position, length } = appended.location {
            state
                .tail
                .set_extent(appended.range, WalExtent { position, length });
            // After the tail knows the extent: see `Uploader::trim`.
            self.context
                .observed_wal
                .fetch_max(position.get(), Ordering::Release);
        }
        if matches!(state.status, Status::Closed | Status::Failed(_)) {
            return;
        }
        let stable_before = state.last_stable();
        state.high_watermark = state.high_watermark.max(appended.range.end());
        let high_watermark = state.high_watermark;
        state.settle_endings();
        let is_stabler = state.last_stable() > stable_before;
        let acknowledged = state
            .ack_waiters
            .partition_point(|(end, _)| *end <= high_watermark);
        let acknowledged: Vec<_> = state
            .ack_waiters
            .drain(..acknowledged)
            .map(|(_, s)| s)
            .collect();
        // An open transaction would wake read-committed readers in vain for every batch.
        let waiters = std::mem::take(&mut state.fetch_waiters);
        let (rung, still_waiting): (Vec<FetchWaiter>, _) = waiters
            .into_iter()
            .partition(|waiter| is_stabler || waiter.isolation == Isolation::ReadUncommitted);
        state.fetch_waiters = still_waiting;
        state.ring_followers();
        drop(state);
        for waiter in acknowledged {
            // A producer that hung up or timed out no longer listens.
            let _ = waiter.send(());
        }
        for fetcher in rung {
            fetcher.bell.notify_one();
        }
    }

    fn failed(&self, failure: &WalFailure) {
        let mut state = self.state.lock();
        match state.status {
            Status::Open | Status::Switching(_) | Status::Sealed(_) | Status::Incoming => {
                state.set_status(Status::Failed(failure.to_string().into()));
            }
            Status::Failed(_) | Status::Closed => {}
        }
        state.ack_waiters.clear();
    }
}
