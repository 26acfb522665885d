//! Getting ready to lead: a copy of the tail of a log that another broker still leads.
//!
//! Its order: [`IncomingLog::prepare`] begins; [`IncomingLog::push`] takes what the leader's
//! [`crate::TailFollower`] gives, the segment map among it; [`IncomingLog::held`] answers when everything below the
//! sealed end is as durable here as it was there; after metadata made this broker the leader
//! [`IncomingLog::activate`] gives the open log, without reading the store. A copy that is dropped or discarded leaves
//! nothing behind but entries of the local WAL that the next trim frees.

mod read;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_metadata::PartitionState;
use tidegate_record_batch::{BatchError, Batches, StoredBatch};
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, OffsetRange, PartitionId, TopicName};
use tokio::sync::watch;
use tracing::warn;

pub use read::CopyRead;

use crate::checkpoint::{self, CheckpointError};
use crate::epochs::EpochHistory;
use crate::follow::TailItem;
use crate::log::{CopyRefused, Copying, Ownership, PartitionLog, SealedState, TakeOver};
use crate::open::{LogOpener, OpenError};
use crate::producers::Producers;
use crate::segments::{MapPart, Segment};
use crate::set::LogSet;

/// How soon a full WAL is asked again.
const FULL_RETRY: Duration = Duration::from_millis(20);
/// Others get their turn after so many batches.
const BATCHES_PER_TURN: usize = 128;

/// A log that this broker may soon lead.
#[derive(Debug, Clone)]
pub struct PrepareRequest {
    pub topic: TopicName,
    /// The topic's durability. In `local` mode the copy goes to this broker's WAL.
    pub durability: DurabilityMode,
    /// As metadata has it now; its leader epoch is the present leader's.
    pub state: PartitionState,
}

/// Why the copy can't go on. It must be discarded.
#[derive(Debug, thiserror::Error)]
pub enum IncomingError {
    #[error("the copy was discarded")]
    Discarded,
    #[error("the copy ends at {expected}, but {found:?} came next")]
    Gap {
        expected: Offset,
        found: OffsetRange,
    },
    #[error("a copied batch is damaged")]
    Batch(#[from] BatchError),
    #[error("a copied batch has leader epoch {found}, but the leader's is {current}")]
    Epoch { found: i32, current: LeaderEpoch },
    #[error("the sealed state's checkpoint can't be used")]
    Checkpoint(#[from] CheckpointError),
    #[error("the sealed state ends at {sealed_end} and its checkpoint at {as_of}")]
    SealedEnd { sealed_end: Offset, as_of: Offset },
    #[error("the write-ahead log doesn't take the copy: {0}")]
    Wal(Arc<str>),
}

/// Why the copy can't be led.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    #[error("the copy was discarded")]
    Discarded,
    #[error("the source was not sealed, or the copy isn't durable")]
    NotHeld,
    /// Metadata begins the new leadership elsewhere: this isn't the copy that the move was made with.
    #[error("leader epoch {leader_epoch} begins at {start}, the copy was sealed at {sealed_end}")]
    OtherEnd {
        leader_epoch: LeaderEpoch,
        start: Offset,
        sealed_end: Offset,
    },
    /// The copy is in memory only, and metadata doesn't have all of it in object storage.
    #[error("records from {committed_end} to {sealed_end} are in no store")]
    NotStored {
        committed_end: Offset,
        sealed_end: Offset,
    },
    #[error("the segment map can't be read")]
    Segments(#[from] OpenError),
}

impl ActivateError {
    /// Whether the same may succeed soon.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Segments(error) => error.is_retriable(),
            Self::Discarded | Self::NotHeld | Self::OtherEnd { .. } | Self::NotStored { .. } => {
                false
            }
        }
    }
}

/// The segments of the log up to an offset.
struct Mapped {
    segments: Vec<Segment>,
    end: Offset,
    /// How often metadata had swapped segments before these were read.
    swaps: u64,
}

impl Mapped {
    /// Takes in what the source tells of the map, if it continues what is known.
    fn extend(&mut self, part: MapPart) {
        let more = part.segments.into_iter();
        let more: Vec<Segment> = more.filter(|s| s.range.end() > self.end).collect();
        let overlaps = more.first().is_some_and(|s| s.range.start() < self.end);
        if part.swaps == self.swaps && part.from <= self.end && !overlaps {
            self.segments.extend(more);
            self.end = self.end.max(part.end);
        }
    }
}

struct Sealed {
    end: Offset,
    producers: Producers,
}

/// A copy of a log that another broker leads.
pub struct IncomingLog {
    log: Arc<PartitionLog>,
    logs: Arc<LogSet>,
    opener: LogOpener,
    /// The partition as metadata had it when the move began.
    prepared: PartitionState,
    /// `None` until the source has told of it, or metadata was asked.
    mapped: Mutex<Option<Mapped>>,
    /// The source's high watermark as it was last told.
    source_end: Mutex<Offset>,
    sealed: watch::Sender<Option<Arc<Sealed>>>,
}

impl IncomingLog {
    /// Begins a copy that holds nothing. An earlier one of the same partition is discarded.
    pub fn prepare(opener: &LogOpener, logs: &Arc<LogSet>, request: PrepareRequest) -> Arc<Self> {
        let PrepareRequest {
            topic,
            durability,
            state,
        } = request;
        let copying = Copying {
            id: state.partition,
            topic,
            leader_epoch: state.leader_epoch,
            durability,
        };
        let log = Arc::new(PartitionLog::copying(copying, opener.context.clone()));
        logs.expect(log.clone());
        Arc::new(Self {
            log,
            logs: logs.clone(),
            opener: opener.clone(),
            prepared: state,
            mapped: Mutex::new(None),
            source_end: Mutex::new(Offset::ZERO),
            sealed: watch::Sender::new(None),
        })
    }

    pub fn id(&self) -> PartitionId {
        self.log.id()
    }

    /// The leader epoch that is being copied.
    pub fn source_epoch(&self) -> LeaderEpoch {
        self.prepared.leader_epoch
    }

    /// Whether the copy goes to this broker's local WAL. If not, it counts only once metadata has everything in
    /// object storage.
    pub fn is_in_local_wal(&self) -> bool {
        self.log.durability() == DurabilityMode::Local
    }

    /// Where the copy ends.
    pub fn end(&self) -> Offset {
        self.log.copied_end()
    }

    /// Whether the copy had everything when the source last spoke.
    pub fn caught_up(&self) -> bool {
        self.log.copied_end() >= *self.source_end.lock()
    }

    /// Resolves to [`Ownership::Leading`] when the copy was activated, and to `Closed` when it was discarded.
    pub fn ownership(&self) -> watch::Receiver<Ownership> {
        self.log.ownership()
    }

    /// Takes the next item of the followed tail; waits while the WAL is full. Items of a new stream for the same
    /// leader epoch may follow those of one that broke. One call at a time. A call that is dropped may have taken
    /// a part of its item; a new stream brings the rest.
    ///
    /// # Errors
    /// See [`IncomingError`]. What has come so far can't be continued then.
    pub async fn push(&self, item: TailItem) -> Result<(), IncomingError> {
        match item {
            TailItem::Start {
                from,
                high_watermark,
                map,
            } => {
                // The seal of a stream that came before may have been taken back.
                self.sealed.send_replace(None);
                self.log.copy_from(from);
                *self.source_end.lock() = high_watermark;
                self.take_map(map);
                self.complete_map().await;
                Ok(())
            }
            TailItem::Batches {
                leader_epoch: _,
                batches,
                high_watermark,
            } => {
                *self.source_end.lock() = high_watermark;
                self.opener.context.tail_budget.shrink();
                let batches = batches.into_iter().flat_map(Batches::with_crc);
                for (count, batch) in (1..).zip(batches) {
                    self.copy(batch?).await?;
                    if count % BATCHES_PER_TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(())
            }
            TailItem::Sealed { state, map } => {
                self.take_map(map);
                self.take_seal(&state)
            }
        }
    }

    async fn copy(&self, batch: StoredBatch) -> Result<(), IncomingError> {
        loop {
            return match self.log.copy(batch.clone()) {
                Ok(()) => Ok(()),
                Err(CopyRefused::Full) => {
                    tokio::time::sleep(FULL_RETRY).await;
                    continue;
                }
                Err(CopyRefused::Gap { expected, found }) => {
                    Err(IncomingError::Gap { expected, found })
                }
                Err(CopyRefused::Epoch(found)) => Err(IncomingError::Epoch {
                    found,
                    current: self.source_epoch(),
                }),
                Err(CopyRefused::Wal(cause)) => Err(IncomingError::Wal(cause)),
                Err(CopyRefused::Discarded) => Err(IncomingError::Discarded),
            };
        }
    }

    fn take_seal(&self, sealed: &SealedState) -> Result<(), IncomingError> {
        let (as_of, producers) = checkpoint::decode(&sealed.checkpoint)?;
        if as_of != sealed.end {
            return Err(IncomingError::SealedEnd {
                sealed_end: sealed.end,
                as_of,
            });
        }
        let copied = self.log.copied_end();
        if copied != sealed.end {
            return Err(IncomingError::Gap {
                expected: copied,
                found: OffsetRange::new(sealed.end, sealed.end).expect("an empty range is a range"),
            });
        }
        self.sealed.send_replace(Some(Arc::new(Sealed {
            end: sealed.end,
            producers,
        })));
        Ok(())
    }

    /// Waits until the source is sealed and everything below its end is as durable here as it was there; answers
    /// the sealed end.
    ///
    /// # Errors
    /// If the copy is discarded, or the WAL fails.
    pub async fn held(&self) -> Result<Offset, IncomingError> {
        let mut sealed = self.sealed.subscribe();
        let mut ownership = self.log.ownership();
        // Cancel-safe: both are only looked at.
        let end = tokio::select! {
            sealed = sealed.wait_for(Option::is_some) => sealed.ok().and_then(|s| s.as_ref().map(|s| s.end)),
            _ = ownership.wait_for(|o| *o == Ownership::Closed) => None,
        };
        let end = end.ok_or(IncomingError::Discarded)?;
        let durable = self.log.copy_durable().await;
        // What could not give way before it was durable.
        self.opener.context.tail_budget.shrink();
        match durable {
            _ if self.log.is_closed() => Err(IncomingError::Discarded),
            Ok(()) => Ok(end),
            Err(_) => Err(IncomingError::Wal("it failed".into())),
        }
    }

    /// Begins to lead: `state` is the partition after metadata made this broker its leader. The log isn't in the
    /// [`LogSet`] yet: insert it.
    ///
    /// # Errors
    /// See [`ActivateError`]. After an error that isn't retriable, only what is in metadata and recovered from
    /// the WAL counts.
    pub async fn activate(
        &self,
        state: &PartitionState,
    ) -> Result<Arc<PartitionLog>, ActivateError> {
        let sealed = self.sealed.borrow().clone().ok_or(ActivateError::NotHeld)?;
        // Only as the very next one: were there a leader in between, it may have written at the same end.
        let is_next = state.leader_epoch == self.source_epoch().next();
        if state.leader_epoch_start() != sealed.end || !is_next {
            return Err(ActivateError::OtherEnd {
                leader_epoch: state.leader_epoch,
                start: state.leader_epoch_start(),
                sealed_end: sealed.end,
            });
        }
        if self.log.durability() == DurabilityMode::Object && state.committed_end < sealed.end {
            return Err(ActivateError::NotStored {
                committed_end: state.committed_end,
                sealed_end: sealed.end,
            });
        }
        let durable = self.log.copy_durable().await;
        durable.map_err(|_| ActivateError::NotHeld)?;
        // Compaction may have changed the map since it was told or read; its old objects will be deleted.
        self.mapped
            .lock()
            .take_if(|mapped| mapped.swaps != state.swaps);
        // Usually the copy reaches back to what the map covers, and the map is completed later.
        self.load_map(state).await?;
        // Who reads the copy beside this finds no map then, not one that covers nothing.
        let Some(mapped) = self.mapped.lock().take() else {
            return Err(ActivateError::Discarded);
        };
        let mut producers = sealed.producers.clone();
        // The source may have been sealed before its last swap was carried out.
        producers.forget_below(state.cleaned_end);
        let taken = self.log.take_over(TakeOver {
            leader_epoch: state.leader_epoch,
            epochs: EpochHistory::new(state.epochs.iter().map(|e| (e.epoch, e.start))),
            log_start: state.log_start,
            uploaded_end: state.committed_end,
            segments: mapped.segments,
            swaps: mapped.swaps,
            mapped_end: mapped.end,
            producers,
        });
        match taken {
            true => Ok(self.log.clone()),
            false => Err(ActivateError::Discarded),
        }
    }

    /// Gives the copy up, unless it was activated. What waits for it is told.
    pub fn discard(&self) {
        if self.log.abandon() {
            self.logs.forget(&self.log);
        }
    }

    fn take_map(&self, part: Option<MapPart>) {
        let Some(part) = part else { return };
        let mut mapped = self.mapped.lock();
        match &mut *mapped {
            Some(mapped) => mapped.extend(part),
            // Anything but the beginning can't be used alone, nor a map that was swapped since that leadership began.
            unknown => {
                if part.from == Offset::ZERO && part.swaps == self.prepared.swaps {
                    *unknown = Some(Mapped {
                        segments: part.segments,
                        end: part.end,
                        swaps: part.swaps,
                    });
                }
            }
        }
    }

    /// Reads of the map what the source didn't tell, as far as metadata has it. Not being able to is no harm:
    /// activating would do it.
    async fn complete_map(&self) {
        if let Err(error) = self.load_map(&self.prepared).await {
            warn!(partition = %self.id(), error = &error as &dyn std::error::Error, "the segment map of a partition about to be led isn't complete");
        }
    }

    /// Asks metadata for the map, unless it is known up to where the copy begins. Everything below `state`'s committed
    /// end is committed.
    async fn load_map(&self, state: &PartitionState) -> Result<(), OpenError> {
        let known = self.mapped.lock().as_ref().map(|mapped| mapped.end);
        let from = match known {
            Some(end) => end,
            None => {
                let segments = self.opener.segments(state).await?;
                let end = mapped_end(&segments, state.committed_end);
                *self.mapped.lock() = Some(Mapped {
                    segments,
                    end,
                    swaps: state.swaps,
                });
                end
            }
        };
        if self.log.copied_start() <= from {
            return Ok(());
        }
        let more = self.opener.segments_from(self.id(), from).await?;
        let end = mapped_end(&more, from.max(state.committed_end));
        if let Some(mapped) = &mut *self.mapped.lock() {
            let known = mapped.end;
            let more = more.into_iter().filter(|s| s.range.end() > known);
            mapped.segments.extend(more);
            mapped.end = known.max(end);
        }
        Ok(())
    }
}

impl Drop for IncomingLog {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Segments were read after everything below `known` had been committed.
pub(crate) fn mapped_end(segments: &[Segment], known: Offset) -> Offset {
    segments.last().map_or(known, |s| s.range.end().max(known))
}
