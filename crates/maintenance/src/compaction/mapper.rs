//! Filling the key map from the dirty part of a log.

use bytes::Bytes;
use tidegate_record_batch::{BatchError, Batches, StoredBatch, visit_keys};
use tidegate_types::{Offset, OffsetRange};

use super::MAX_UNCOMPRESSED_BYTES;
use super::key_map::KeyMap;
use super::transactions::{Transactions, Verdict};

/// Whether the map takes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapEnd {
    More,
    /// No key fits any more, or everything is mapped.
    Reached,
}

/// Puts the last offset of each key into a map.
#[derive(Debug)]
pub struct Mapper {
    map: KeyMap,
    transactions: Transactions,
    /// What is mapped, in the end: its end moves.
    dirty: OffsetRange,
    /// All records below are mapped. It lies within a batch if the map became full there.
    mapped_end: Offset,
    is_full: bool,
}

impl Mapper {
    /// `dirty` is what is to be mapped if the map is large enough.
    pub fn new(map: KeyMap, transactions: Transactions, dirty: OffsetRange) -> Self {
        Self {
            map,
            transactions,
            dirty,
            mapped_end: dirty.start(),
            is_full: false,
        }
    }

    /// Takes in the next batches.
    ///
    /// # Errors
    /// A batch is no batch. Records that can't be read are no error: their batch stays, whatever is in it.
    pub fn take(&mut self, batches: Bytes) -> Result<MapEnd, BatchError> {
        for batch in Batches::headers_only(batches) {
            if self.is_full {
                break;
            }
            let batch = batch?;
            let header = batch.header();
            if header.end_offset() <= self.mapped_end {
                continue;
            }
            if header.end_offset() > self.dirty.end() {
                return Ok(MapEnd::Reached);
            }
            self.mapped_end = match self.transactions.judge(&batch) {
                Verdict::Counts => self.note(&batch),
                Verdict::Aborted | Verdict::NeededMarker | Verdict::SpentMarker => {
                    header.end_offset()
                }
            };
        }
        Ok(if self.is_full || self.mapped_end >= self.dirty.end() {
            MapEnd::Reached
        } else {
            MapEnd::More
        })
    }

    /// Notes the records of a batch that aren't mapped yet, and answers up to where it came. A batch may have more
    /// keys than the whole map takes, so it needn't be its end.
    fn note(&mut self, batch: &StoredBatch) -> Offset {
        let from = self.mapped_end;
        let mut full_at = None;
        let map = &mut self.map;
        // Not being able to read it is noticed again, and counted, when the batch is filtered.
        let _ = visit_keys(batch, MAX_UNCOMPRESSED_BYTES, |record| {
            let Some(key) = record.key else {
                return;
            };
            if full_at.is_none() && record.offset >= from && map.note(key, record.offset).is_err() {
                full_at = Some(record.offset);
            }
        });
        self.is_full = full_at.is_some();
        full_at.unwrap_or(batch.header().end_offset())
    }

    /// The map, and the offset up to which it knows everything.
    pub fn finish(self) -> (KeyMap, Offset) {
        (self.map, self.mapped_end)
    }
}
