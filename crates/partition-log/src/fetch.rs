//! Reading a log: from its tail, its local WAL or object storage, whichever holds the offset.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_record_batch::{BatchHeader, Batches, StoredBatch, records};
use tidegate_types::{Offset, OffsetRange, TimestampMs};
use tidegate_wal::local::LocalWal;

use crate::log::{Isolation, PartitionLog, Plan, ReadError, TimeCandidate, Watermarks};
use crate::producers::AbortedTransaction;
use crate::reader::{SegmentReader, SpanRead};
use crate::tail::{TailPiece, WalExtent};

/// A batch is decompressed for a lookup by time up to this size.
const LOOKUP_BYTES: usize = 64 << 20;
/// Small segments are fetched ahead for about so many bytes of one answer …
const AHEAD_BYTES: usize = 1 << 20;
/// … and at most so many at once.
const AHEAD_SEGMENTS: usize = 64;

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    pub offset: Offset,
    pub max_bytes: usize,
    /// Whether the first batch comes whole even if it is larger than `max_bytes` (KIP-74).
    pub first_whole: bool,
    pub isolation: Isolation,
}

/// What was read. The batches are whole and in order; the first may begin before the offset asked for.
#[derive(Debug)]
pub struct ReadResult {
    pub watermarks: Watermarks,
    pub batches: Vec<Bytes>,
    pub bytes: usize,
    /// Filled for read-committed readers: from the same state as the batches.
    pub aborted: Vec<AbortedTransaction>,
}

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOffset {
    pub offset: Offset,
    pub timestamp: TimestampMs,
}

/// Reads logs. Cheap to clone.
#[derive(Clone)]
pub struct LogReader {
    segments: SegmentReader,
    local_wal: Arc<LocalWal>,
}

impl LogReader {
    pub fn new(segments: SegmentReader, local_wal: Arc<LocalWal>) -> Self {
        Self {
            segments,
            local_wal,
        }
    }

    pub fn segments(&self) -> &SegmentReader {
        &self.segments
    }

    /// Reads what is visible from an offset on, without waiting for more to come.
    pub async fn read(
        &self,
        log: &Arc<PartitionLog>,
        request: ReadRequest,
    ) -> Result<ReadResult, ReadError> {
        loop {
            let forgotten = log.aborted_forgotten();
            let read = self.read_once(log, request).await?;
            match request.isolation {
                // Compaction removed records of aborted transactions and their list was shortened, but some of them
                // may have been read before.
                Isolation::ReadCommitted if log.aborted_forgotten() != forgotten => {}
                Isolation::ReadCommitted | Isolation::ReadUncommitted => return Ok(read),
            }
        }
    }

    async fn read_once(
        &self,
        log: &Arc<PartitionLog>,
        request: ReadRequest,
    ) -> Result<ReadResult, ReadError> {
        let mut batches = Vec::new();
        let mut bytes = 0usize;
        let mut next = request.offset;
        let mut ahead = None;
        let watermarks = 'plan: loop {
            let room = request.max_bytes.saturating_sub(bytes);
            let whole = request.first_whole && batches.is_empty();
            let (watermarks, plan) = log.plan(next, room, whole, request.isolation)?;
            match plan {
                Plan::Nothing => break watermarks,
                Plan::Tail(pieces) => {
                    for piece in pieces {
                        let piece = match self.tail_piece(piece).await {
                            Ok(piece) => piece,
                            Err(error) => {
                                gone_from_tail(log, next, error)?;
                                continue 'plan;
                            }
                        };
                        next = last_end(&piece).unwrap_or(next);
                        bytes += piece.len();
                        batches.push(piece);
                    }
                    break watermarks;
                }
                Plan::Store(segment) => {
                    let ahead = *ahead.get_or_insert_with(|| {
                        let depth = log.streams.lock().depth_for(request.offset);
                        self.prefetch_small(log, next, room, depth);
                        depth
                    });
                    let span = self.segments.read(log.id(), &segment, next, ahead);
                    let SpanRead { bytes: span, last } = span.await?;
                    if last && ahead > 0 {
                        self.prefetch_after(log, segment.range.end());
                    }
                    let end = watermarks.visible_end(request.isolation);
                    let Some((piece, piece_end)) = batches_between(&span, next, end, room, whole)
                    else {
                        break watermarks;
                    };
                    next = piece_end;
                    bytes += piece.len();
                    batches.push(piece);
                }
            }
            if bytes >= request.max_bytes {
                break watermarks;
            }
        };
        log.streams.lock().note(request.offset, next);
        let aborted = match request.isolation {
            Isolation::ReadCommitted if next > request.offset => {
                let range = OffsetRange::new(request.offset, next).expect("a read goes forward");
                log.aborted_in(range)?
            }
            Isolation::ReadCommitted | Isolation::ReadUncommitted => Vec::new(),
        };
        Ok(ReadResult {
            watermarks,
            batches,
            bytes,
            aborted,
        })
    }

    /// The first visible record at or after `timestamp`, in offset order (KIP-79).
    pub async fn first_at_or_after(
        &self,
        log: &Arc<PartitionLog>,
        timestamp: TimestampMs,
        isolation: Isolation,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let watermarks = log.watermarks()?;
        let end = watermarks.visible_end(isolation);
        let mut from = watermarks.log_start;
        while from < end {
            let (bytes, searched_to) = match log.time_candidate(from, timestamp, end) {
                TimeCandidate::None => return Ok(None),
                TimeCandidate::Batch { piece, range } => match self.tail_piece(piece).await {
                    Ok(piece) => (piece, range.end()),
                    Err(error) => {
                        gone_from_tail(log, range.start(), error)?;
                        continue;
                    }
                },
                TimeCandidate::Segment(segment) => {
                    let found = self
                        .segments
                        .block_with_timestamp(log.id(), &segment, from, timestamp)
                        .await?;
                    match found {
                        Some(block) => {
                            let block_end = last_end(&block).unwrap_or(segment.range.end());
                            (block, block_end)
                        }
                        None => (Bytes::new(), segment.range.end()),
                    }
                }
            };
            let visible = OffsetRange::new(from, end).expect("the search goes forward");
            if let Some(found) = find_record(bytes, visible, |t| t >= timestamp) {
                return Ok(Some(found));
            }
            from = searched_to.max(from.checked_add(1).unwrap_or(end));
        }
        Ok(None)
    }

    /// The record with the greatest timestamp; of equals the first (KIP-734).
    pub async fn max_timestamp(
        &self,
        log: &Arc<PartitionLog>,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let watermarks = log.watermarks()?;
        let visible = OffsetRange::new(watermarks.log_start, watermarks.high_watermark)
            .filter(|r| !r.is_empty());
        let Some(visible) = visible else {
            return Ok(None);
        };
        // What lies whole behind the log start is judged by its headers, what the log start cuts by its records.
        let whole = log.greatest_timestamp(visible);
        let cut = self.greatest_at_start(log, visible).await?;
        match whole.max(cut) {
            Some(greatest) => {
                self.first_at_or_after(log, greatest, Isolation::ReadUncommitted)
                    .await
            }
            None => Ok(None),
        }
    }

    /// The greatest timestamp of what begins below the log start and reaches beyond it.
    async fn greatest_at_start(
        &self,
        log: &Arc<PartitionLog>,
        visible: OffsetRange,
    ) -> Result<Option<TimestampMs>, ReadError> {
        let start = visible.start();
        let (_, plan) = log.plan(start, 0, true, Isolation::ReadUncommitted)?;
        match plan {
            Plan::Nothing => Ok(None),
            Plan::Store(segment) if segment.range.start() >= start => Ok(None),
            Plan::Store(segment) => {
                let (first, later) = self.segments.block_at(log.id(), &segment, start).await?;
                Ok(greatest_in(first, visible).max(later))
            }
            Plan::Tail(_) => {
                let request = ReadRequest {
                    offset: start,
                    max_bytes: 0,
                    first_whole: true,
                    isolation: Isolation::ReadUncommitted,
                };
                let read = self.read(log, request).await?;
                let batches = read.batches.into_iter();
                Ok(batches.filter_map(|b| greatest_in(b, visible)).max())
            }
        }
    }

    async fn tail_piece(&self, piece: TailPiece) -> Result<Bytes, ReadError> {
        match piece {
            TailPiece::Memory(bytes) => Ok(bytes),
            TailPiece::Spilled(extent) => self.spilled(extent).await,
        }
    }

    /// Reads pieces whole, what is spilled in one go.
    pub(crate) async fn tail_pieces(
        &self,
        pieces: Vec<TailPiece>,
    ) -> Result<Vec<Bytes>, ReadError> {
        let in_memory = |piece: &TailPiece| matches!(piece, TailPiece::Memory(_));
        let all_in_memory = pieces.iter().all(in_memory);
        let wal = self.local_wal.clone();
        let read = move || {
            let read = |piece| match piece {
                TailPiece::Memory(bytes) => Ok(bytes),
                TailPiece::Spilled(extent) => wal.read(extent.position, extent.length),
            };
            pieces.into_iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        let read = match all_in_memory {
            true => Ok(read()),
            false => tokio::task::spawn_blocking(read).await,
        };
        match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(ReadError::Wal(Arc::new(std::io::Error::other(error)))),
            Err(stopped) => Err(ReadError::Wal(Arc::new(std::io::Error::other(stopped)))),
        }
    }

    pub(crate) async fn spilled(&self, extent: WalExtent) -> Result<Bytes, ReadError> {
        let wal = self.local_wal.clone();
        let read =
            tokio::task::spawn_blocking(move || wal.read(extent.position, extent.length)).await;
        match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(ReadError::Wal(Arc::new(std::io::Error::other(error)))),
            Err(stopped) => Err(ReadError::Wal(Arc::new(std::io::Error::other(stopped)))),
        }
    }

    /// Where segments are small, a reader needs many of them: those of this answer and, of a sequential reader,
    /// of the next one are fetched side by side.
    fn prefetch_small(&self, log: &PartitionLog, from: Offset, room: usize, ahead: usize) {
        let answers = if ahead > 0 { 2 } else { 1 };
        let wanted = (room.min(AHEAD_BYTES) * answers) as u64;
        let segments = log.segments_from(from, wanted, AHEAD_SEGMENTS);
        if segments.len() > 1 {
            self.segments.prefetch_small(segments);
        }
    }

    /// Goes on across the end of a segment, while its last span is being read.
    fn prefetch_after(&self, log: &Arc<PartitionLog>, end: Offset) {
        if let Ok((_, Plan::Store(segment))) = log.plan(end, 1, true, Isolation::ReadUncommitted) {
            self.segments.prefetch_segment(log.id(), segment);
        }
    }
}

/// The end offset of the last whole batch in `bytes`.
pub(crate) fn last_end(bytes: &[u8]) -> Option<Offset> {
    let mut rest = bytes;
    let mut end = None;
    while let Ok(header) = BatchHeader::parse(rest) {
        let Some(after) = rest.get(header.total_bytes()..) else {
            break;
        };
        end = Some(header.end_offset());
        rest = after;
    }
    end
}

/// The batches in `bytes` from the one that holds `from` up to `end`, as one slice, and where they end.
pub(crate) fn batches_between(
    bytes: &Bytes,
    from: Offset,
    end: Offset,
    max_bytes: usize,
    first_whole: bool,
) -> Option<(Bytes, Offset)> {
    let mut start = None;
    let mut position = 0usize;
    let mut taken: Option<(usize, Offset)> = None;
    while let Ok(header) = BatchHeader::parse(bytes.get(position..)?) {
        let after = position + header.total_bytes();
        if after > bytes.len() || header.end_offset() > end {
            break;
        }
        if header.end_offset() > from {
            let first = *start.get_or_insert(position);
            if after - first > max_bytes && !(first_whole && taken.is_none()) {
                break;
            }
            taken = Some((after, header.end_offset()));
        }
        position = after;
    }
    let (stop, end) = taken?;
    Some((bytes.slice(start?..stop), end))
}

/// Settles an error of reading a tail batch out of the local WAL: no error if the batch was stored and the WAL
/// trimmed meanwhile, because then it is read from there.
pub(crate) fn gone_from_tail(
    log: &Arc<PartitionLog>,
    offset: Offset,
    error: ReadError,
) -> Result<(), ReadError> {
    log.watermarks()?;
    if log.tail_holds(offset) {
        return Err(error);
    }
    Ok(())
}

/// The greatest timestamp of the records in `bytes` that lie in `visible`.
fn greatest_in(bytes: Bytes, visible: OffsetRange) -> Option<TimestampMs> {
    let mut greatest = None;
    for batch in Batches::headers_only(bytes) {
        let batch: StoredBatch = batch.ok()?;
        let header = batch.header();
        if header.end_offset() <= visible.start() || header.is_control() {
            continue;
        }
        if header.base_offset() >= visible.start() {
            greatest = greatest.max(Some(header.max_timestamp()));
        } else if let Ok(found) = records(&batch, LOOKUP_BYTES) {
            let seen = found.filter(|r| visible.contains(r.offset));
            greatest = greatest.max(seen.map(|r| r.timestamp).max());
        }
    }
    greatest
}

/// The first record in `bytes` that lies in `visible` and whose timestamp is wanted.
fn find_record(
    bytes: Bytes,
    visible: OffsetRange,
    wanted: impl Fn(TimestampMs) -> bool,
) -> Option<TimedOffset> {
    for batch in Batches::headers_only(bytes) {
        let batch: StoredBatch = batch.ok()?;
        let header = batch.header();
        if header.end_offset() <= visible.start()
            || header.is_control()
            || !wanted(header.max_timestamp())
        {
            continue;
        }
        if header.base_offset() >= visible.end() {
            return None;
        }
        let Ok(found) = records(&batch, LOOKUP_BYTES) else {
            continue;
        };
        for record in found {
            if visible.contains(record.offset) && wanted(record.timestamp) {
                return Some(TimedOffset {
                    offset: record.offset,
                    timestamp: record.timestamp,
                });
            }
        }
    }
    None
}
