//! Filling the key map from the dirty part of a log.

use bytes::Bytes;
use tidegate_record_batch::{BatchError, Batches, visit_keys};
use tidegate_types::{Offset, OffsetRange};

use super::MAX_UNCOMPRESSED_BYTES;
use super::key_map::KeyMap;
use super::transactions::{Transactions, Verdict};

/// Whether the map takes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapEnd {
    More,
    /// The next batch doesn't fit any more, or everything is mapped.
    Reached,
}

/// Puts the last offset of each key into a map.
#[derive(Debug)]
pub struct Mapper {
    map: KeyMap,
    transactions: Transactions,
    /// What is mapped, in the end: its end moves.
    dirty: OffsetRange,
    mapped_end: Offset,
}

impl Mapper {
    /// `dirty` is what is to be mapped if the map is large enough.
    pub fn new(map: KeyMap, transactions: Transactions, dirty: OffsetRange) -> Self {
        Self {
            map,
            transactions,
            dirty,
            mapped_end: dirty.start(),
        }
    }

    /// Takes in the next batches.
    ///
    /// # Errors
    /// A batch is no batch. Records that can't be read are no error: their batch stays, whatever is in it.
    pub fn take(&mut self, batches: Bytes) -> Result<MapEnd, BatchError> {
        for batch in Batches::headers_only(batches) {
            let batch = batch?;
            let header = batch.header();
            if header.end_offset() <= self.mapped_end {
                continue;
            }
            if header.end_offset() > self.dirty.end() {
                return Ok(MapEnd::Reached);
            }
            if self.map.reserve(header.record_count() as usize).is_err() {
                return Ok(MapEnd::Reached);
            }
            if self.transactions.judge(&batch) == Verdict::Counts {
                let map = &mut self.map;
                // Not being able to is noticed again, and counted, when the batch is filtered.
                let _ = visit_keys(&batch, MAX_UNCOMPRESSED_BYTES, |record| {
                    if let Some(key) = record.key {
                        map.note(key, record.offset);
                    }
                });
            }
            self.mapped_end = header.end_offset();
        }
        Ok(if self.mapped_end < self.dirty.end() {
            MapEnd::More
        } else {
            MapEnd::Reached
        })
    }

    /// The map, and the offset up to which it knows everything.
    pub fn finish(self) -> (KeyMap, Offset) {
        (self.map, self.mapped_end)
    }
}
