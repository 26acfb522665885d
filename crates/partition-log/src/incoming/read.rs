//! Reading a copy while another broker still leads: whoever derives a state from a partition's records has derived it
//! by the time this broker leads.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::Offset;

use super::IncomingLog;
use crate::fetch::{LogReader, batches_between, last_end};
use crate::log::{PartitionLog, ReadError};
use crate::segments::Segment;

/// Spans fetched ahead: whoever reads a copy reads all of it.
const AHEAD_SPANS: usize = 4;
/// Small segments fetched ahead, at most so many and about so many bytes of them.
const AHEAD_SEGMENTS: usize = 64;
const AHEAD_BYTES: u64 = 4 << 20;

/// What was read of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRead {
    /// Whole and in order; the first may begin before the offset asked for. None: nothing more is known here now.
    pub batches: Vec<Bytes>,
    /// Where to go on. It may be ahead of the offset asked for although nothing was read: what lay between was
    /// compacted away.
    pub next: Offset,
}

/// Where the next bytes lie.
enum Place {
    Stored(Segment),
    /// Behind all segments that are known.
    Copied(Offset),
    /// The source hasn't told of its segments yet, or the copy is led.
    Unknown,
}

impl IncomingLog {
    /// Where the log began when the copy was prepared.
    pub fn log_start(&self) -> Offset {
        self.prepared.log_start
    }

    /// Whether this copy has become `log`.
    pub fn became(&self, log: &Arc<PartitionLog>) -> bool {
        Arc::ptr_eq(&self.log, log)
    }

    /// Reads on from `offset`, out of object storage or out of the copy, about `max_bytes`. All of it is durable where
    /// the partition is led, so it stays part of the log whatever becomes of the move; it may not be durable here yet.
    /// Nothing is read once the copy is led or given up.
    ///
    /// # Errors
    /// The store or the WAL can't be read.
    pub async fn read(
        &self,
        reader: &LogReader,
        offset: Offset,
        max_bytes: usize,
    ) -> Result<CopyRead, ReadError> {
        let from = match self.place(reader, offset) {
            Place::Stored(segment) => {
                return self.stored(reader, &segment, offset, max_bytes).await;
            }
            Place::Copied(from) => from,
            Place::Unknown => {
                return Ok(CopyRead {
                    batches: Vec::new(),
                    next: offset,
                });
            }
        };
        // Otherwise there is a gap between the map and the copy, which metadata fills when the copy is led.
        let pieces = self.log.copied(from, max_bytes);
        let held = pieces.is_some();
        let batches = reader.tail_pieces(pieces.unwrap_or_default()).await?;
        let reached = batches.last().and_then(|bytes| last_end(bytes));
        Ok(CopyRead {
            next: reached.unwrap_or(if held { from } else { offset }),
            batches,
        })
    }

    /// The segment that holds `offset` or the next one; if there is none, the copy has what follows.
    fn place(&self, reader: &LogReader, offset: Offset) -> Place {
        let mapped = self.mapped.lock();
        let Some(mapped) = &*mapped else {
            return Place::Unknown;
        };
        let first = mapped.segments.partition_point(|s| s.range.end() <= offset);
        let Some((segment, rest)) = mapped.segments.get(first..).and_then(<[_]>::split_first)
        else {
            return Place::Copied(offset.max(mapped.end));
        };
        let mut bytes = 0;
        let ahead = rest.iter().take(AHEAD_SEGMENTS).take_while(|segment| {
            bytes += segment.length;
            bytes <= AHEAD_BYTES
        });
        reader
            .segments()
            .prefetch_small(ahead.cloned().collect::<Vec<_>>());
        Place::Stored(segment.clone())
    }

    async fn stored(
        &self,
        reader: &LogReader,
        segment: &Segment,
        offset: Offset,
        max_bytes: usize,
    ) -> Result<CopyRead, ReadError> {
        let segments = reader.segments();
        let span = segments
            .read(self.id(), segment, offset, AHEAD_SPANS)
            .await?
            .bytes;
        let taken = batches_between(&span, offset, segment.range.end(), max_bytes, true);
        // A segment ends with its last batch.
        let (batches, next) = match taken {
            Some((batches, next)) => (vec![batches], next),
            None => (Vec::new(), segment.range.end()),
        };
        Ok(CopyRead { batches, next })
    }
}
