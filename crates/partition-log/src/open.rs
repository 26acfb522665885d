//! Opening a log: metadata, the newest checkpoint, the batch headers behind it, and what the local WAL holds.
//!
//! History is never scanned: a checkpoint is at most about a megabyte or some tens of batches of one partition behind
//! the stored end, and the local WAL holds only what isn't uploaded.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_metadata::api::SegmentQuery;
use tidegate_metadata::{ControllerApi, ControllerUnavailable, PartitionState, SegmentEntry};
use tidegate_object_storage::ObjectKey;
use tidegate_record_batch::{BatchHeader, Batches, ControlMarker, StoredBatch};
use tidegate_runtime::SharedClock;
use tidegate_segment_format::ByteRange;
use tidegate_types::{DurabilityMode, Offset, OffsetRange, PartitionId, TimestampMs, TopicName};

use crate::checkpoint::{self, CheckpointError};
use crate::epochs::EpochHistory;
use crate::log::{LogContext, Opening, PartitionLog};
use crate::producers::Producers;
use crate::reader::{SegmentReader, StoreReadError};
use crate::recovered::{RecoveredBatch, RecoveredRun};
use crate::segments::{Segment, SegmentObject};
use crate::tail::{Tail, TailBatch, WalExtent};

/// Segments read at once behind the checkpoint.
const REPLAY_READS: usize = 16;

/// Why a log couldn't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Controller(#[from] ControllerUnavailable),
    #[error(transparent)]
    Store(#[from] StoreReadError),
    #[error("the checkpoint of {partition} is damaged")]
    Checkpoint {
        partition: PartitionId,
        source: CheckpointError,
    },
    #[error("the local WAL holds {partition} from {found} on, but {expected} comes next")]
    Hole {
        partition: PartitionId,
        expected: Offset,
        found: Offset,
    },
    /// Leadership was taken with records that this opening wasn't given.
    #[error("{partition} was led up to {reach}, but only records up to {found} were found")]
    Missing {
        partition: PartitionId,
        found: Offset,
        reach: Offset,
    },
    #[error("metadata names object {0:?}, which is no key")]
    Key(String),
}

impl OpenError {
    /// Whether opening again may succeed by itself.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Controller(_) => true,
            Self::Store(StoreReadError::Store { .. } | StoreReadError::Cache { .. }) => true,
            Self::Store(StoreReadError::Damaged { .. } | StoreReadError::Hole { .. })
            | Self::Checkpoint { .. }
            | Self::Hole { .. }
            | Self::Missing { .. }
            | Self::Key(_) => false,
        }
    }
}

/// What is to be opened.
#[derive(Clone)]
pub struct OpenRequest {
    pub topic: TopicName,
    pub durability: DurabilityMode,
    pub state: PartitionState,
    /// What the local WAL holds of it, in any order; see [`RecoveredRun`] for what is used.
    pub recovered: Vec<RecoveredBatch>,
}

/// Opens logs.
#[derive(Clone)]
pub struct LogOpener {
    pub context: Arc<LogContext>,
    pub controller: Arc<dyn ControllerApi>,
    pub reader: SegmentReader,
    pub clock: SharedClock,
}

impl LogOpener {
    pub async fn open(&self, request: OpenRequest) -> Result<Arc<PartitionLog>, OpenError> {
        let OpenRequest {
            topic,
            durability,
            state,
            recovered,
        } = request;
        let id = state.partition;
        let now = self.clock.wall();
        let segments = self.segments(&state).await?;
        let (mut as_of, mut producers) = self.checkpoint(&state).await?;
        if let Some(hole_end) = deleted_behind(as_of, &state, &segments) {
            // Records behind the checkpoint were deleted, so what it knows is out of date. A producer that isn't
            // known may go on at any sequence; one that is known wrongly never could.
            producers = Producers::default();
            as_of = hole_end;
        }
        if let Some(range) = OffsetRange::new(as_of, state.committed_end) {
            self.replay_stored(id, &segments, range, &mut producers, now)
                .await?;
        }
        // The checkpoint may be older than the last compaction.
        producers.forget_below(state.cleaned_end);
        let (tail, log_end) = replay_recovered(&state, &recovered, as_of, &mut producers, now)?;
        let reach = state.leader_epoch_start();
        if log_end.max(state.log_start) < reach {
            return Err(OpenError::Missing {
                partition: id,
                found: log_end,
                reach,
            });
        }
        let opening = Opening {
            id,
            topic,
            leader_epoch: state.leader_epoch,
            durability,
            log_start: state.log_start,
            uploaded_end: state.committed_end,
            epochs: EpochHistory::new(state.epochs.iter().map(|e| (e.epoch, e.start))),
            segments,
            swaps: state.swaps,
            producers,
            tail,
            log_end: log_end.max(state.log_start),
        };
        Ok(Arc::new(PartitionLog::new(opening, self.context.clone())))
    }

    pub(crate) async fn segments(&self, state: &PartitionState) -> Result<Vec<Segment>, OpenError> {
        match state.segment_count {
            0 => Ok(Vec::new()),
            _ => self.segments_from(state.partition, state.log_start).await,
        }
    }

    pub(crate) async fn segments_from(
        &self,
        partition: PartitionId,
        from: Offset,
    ) -> Result<Vec<Segment>, OpenError> {
        segments_from(&*self.controller, partition, from).await
    }

    pub(crate) async fn checkpoint(
        &self,
        state: &PartitionState,
    ) -> Result<(Offset, Producers), OpenError> {
        let Some(reference) = &state.checkpoint else {
            return Ok((Offset::ZERO, Producers::default()));
        };
        let key = object_key(reference.object.as_str())?;
        let range = ByteRange {
            position: reference.span.position,
            length: reference.span.length,
        };
        let bytes = self.reader.checkpoint(&key, range).await?;
        checkpoint::decode(&bytes).map_err(|source| OpenError::Checkpoint {
            partition: state.partition,
            source,
        })
    }

    /// Replays the headers of stored batches in `from..to`, in their order; several segments are read at once.
    async fn replay_stored(
        &self,
        id: PartitionId,
        segments: &[Segment],
        range: OffsetRange,
        producers: &mut Producers,
        now: TimestampMs,
    ) -> Result<(), OpenError> {
        let behind = segments.partition_point(|s| s.range.end() <= range.start());
        let wanted: Vec<Segment> = segments[behind..]
            .iter()
            .take_while(|segment| segment.range.start() < range.end())
            .cloned()
            .collect();
        let mut read = stream::iter(wanted)
            .map(|segment| self.headers(id, segment, range))
            .buffered(REPLAY_READS);
        while let Some(headers) = read.try_next().await? {
            for (header, marker) in headers {
                replay(producers, &header, marker.as_ref(), now);
            }
        }
        Ok(())
    }

    /// The headers of a segment's batches that lie in `range`.
    async fn headers(
        &self,
        id: PartitionId,
        segment: Segment,
        range: OffsetRange,
    ) -> Result<Vec<(BatchHeader, Option<ControlMarker>)>, OpenError> {
        let mut headers = Vec::new();
        let mut next = range.start().max(segment.range.start());
        let end = range.end().min(segment.range.end());
        while next < end {
            let bytes = self.reader.read(id, &segment, next, 0).await?.bytes;
            let before = next;
            for batch in Batches::headers_only(bytes) {
                let Ok(batch) = batch else { break };
                let header = batch.header();
                if header.end_offset() <= next {
                    continue;
                }
                headers.push((*header, marker_of(&batch)));
                next = header.end_offset();
            }
            if next == before {
                break;
            }
        }
        Ok(headers)
    }
}

/// The segments that end behind `from`.
pub(crate) async fn segments_from(
    controller: &dyn ControllerApi,
    partition: PartitionId,
    mut from: Offset,
) -> Result<Vec<Segment>, OpenError> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut last_object: Option<Arc<SegmentObject>> = None;
    loop {
        let query = SegmentQuery {
            partition,
            from,
            limit: SegmentQuery::MAX_LIMIT,
        };
        let page = controller.segments(query).await?;
        for entry in page.segments {
            from = entry.range.end();
            segments.push(segment_from(entry, &mut last_object)?);
        }
        if !page.more {
            return Ok(segments);
        }
    }
}

/// Where the stored records go on, if some behind the checkpoint are deleted.
fn deleted_behind(as_of: Offset, state: &PartitionState, segments: &[Segment]) -> Option<Offset> {
    let next = segments.iter().find(|s| s.range.end() > as_of);
    let goes_on = next.map_or(state.committed_end, |s| s.range.start());
    (goes_on > as_of && as_of < state.log_start).then_some(goes_on)
}

/// Replays what the local WAL holds behind the stored end, and builds the tail of it.
fn replay_recovered(
    state: &PartitionState,
    recovered: &[RecoveredBatch],
    as_of: Offset,
    producers: &mut Producers,
    now: TimestampMs,
) -> Result<(Tail, Offset), OpenError> {
    let run = RecoveredRun::of(state, recovered);
    let mut tail = Tail::default();
    let mut end = state.committed_end;
    for batch in run.batches {
        let range = batch.range();
        if range.end() > as_of {
            replay(producers, &batch.header, batch.marker.as_ref(), now);
        }
        tail.push(TailBatch::spilled(&batch.header, extent_of(batch)));
        end = range.end();
    }
    if let Some(beyond) = run.beyond {
        return Err(OpenError::Hole {
            partition: state.partition,
            expected: end,
            found: beyond.start(),
        });
    }
    Ok((tail, end))
}

fn extent_of(batch: &RecoveredBatch) -> WalExtent {
    let length =
        u32::try_from(batch.header.total_bytes()).expect("a batch's length is 31 bits on the wire");
    WalExtent {
        position: batch.position,
        length,
    }
}

fn replay(
    producers: &mut Producers,
    header: &BatchHeader,
    marker: Option<&ControlMarker>,
    now: TimestampMs,
) {
    let range = OffsetRange::new(header.base_offset(), header.end_offset())
        .expect("a batch ends after its start");
    match (marker, header.producer()) {
        (Some(marker), Some(producer)) => {
            let at = header.base_offset();
            producers.apply_marker(producer.id, producer.epoch, *marker, at, now);
        }
        (None, _) if !header.is_control() => producers.apply_data(header, range, now),
        // Control batches of other kinds carry no producer state.
        (Some(_), None) | (None, _) => {}
    }
}

pub(crate) fn marker_of(batch: &StoredBatch) -> Option<ControlMarker> {
    batch
        .header()
        .is_control()
        .then(|| ControlMarker::decode(batch).ok())
        .flatten()
}

fn object_key(key: &str) -> Result<ObjectKey, OpenError> {
    ObjectKey::new(key).map_err(|_| OpenError::Key(key.to_owned()))
}

/// Segments of one object that follow each other share its description.
fn segment_from(
    entry: SegmentEntry,
    last: &mut Option<Arc<SegmentObject>>,
) -> Result<Segment, OpenError> {
    let object = match last {
        Some(object) if object.key.as_str() == entry.object.as_str() => object.clone(),
        _ => {
            let index = ByteRange {
                position: entry.index.position,
                length: entry.index.length,
            };
            let object = Arc::new(SegmentObject {
                key: object_key(entry.object.as_str())?,
                // The footer follows the index and ends the object.
                size_bytes: index.position
                    + index.length
                    + tidegate_segment_format::FOOTER_BYTES as u64,
                index,
            });
            *last = Some(object.clone());
            object
        }
    };
    Ok(Segment {
        range: entry.range,
        object,
        position: entry.span.position,
        length: entry.span.length,
        max_timestamp: entry.max_timestamp,
        stored_at: entry.committed_at,
    })
}
