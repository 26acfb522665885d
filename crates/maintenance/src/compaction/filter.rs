//! What becomes of each batch of a log.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate_record_batch::{
    BatchError, BatchHeader, Batches, DeleteHorizon, StoredBatch, Thinned, filler, thin_out,
    without_records,
};
use tidegate_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::MAX_UNCOMPRESSED_BYTES;
use super::key_map::KeyMap;
use super::transactions::{Transactions, Verdict};

/// The newest that a partition knows of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastRecord {
    /// The batch that ends at this offset holds its last sequence number.
    Data { end: Offset },
    /// Only a marker of this producer epoch.
    Marker { epoch: ProducerEpoch },
}

/// What a pass goes by.
#[derive(Debug)]
pub struct FilterRules {
    /// When the pass began.
    pub now: TimestampMs,
    /// `delete.retention.ms`.
    pub delete_retention: Duration,
    /// The producers that the partition remembers.
    pub producers: HashMap<ProducerId, LastRecord>,
}

/// What a filter has seen and done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStats {
    pub bytes_read: u64,
    pub bytes_kept: u64,
    pub records_read: u64,
    pub records_kept: u64,
    /// Batches whose records can't be read: they stay as they are.
    pub unreadable_batches: u64,
}

/// Takes all batches of a log in order, from the log start on, and gives those that stay.
#[derive(Debug)]
pub struct Filter {
    map: KeyMap,
    map_end: Offset,
    transactions: Transactions,
    rules: FilterRules,
    horizon: TimestampMs,
    stats: CompactionStats,
    /// Whether anything came out otherwise than it went in, since this was last asked.
    changed: bool,
    /// The last batch that was taken, if it was dropped.
    dropped: Option<BatchHeader>,
    /// That one had no records: it is no change if it is put back where the run ends.
    dropped_filler: bool,
}

impl Filter {
    /// `map` knows everything of the dirty part up to `map_end`, which may lie within a batch; records behind it
    /// stay.
    pub fn new(
        map: KeyMap,
        map_end: Offset,
        transactions: Transactions,
        rules: FilterRules,
    ) -> Self {
        let retention = i64::try_from(rules.delete_retention.as_millis()).unwrap_or(i64::MAX);
        Self {
            map,
            map_end,
            transactions,
            horizon: TimestampMs::new(rules.now.get().saturating_add(retention)),
            rules,
            stats: CompactionStats::default(),
            changed: false,
            dropped: None,
            dropped_filler: false,
        }
    }

    pub fn stats(&self) -> CompactionStats {
        self.stats
    }

    /// Whether anything came out otherwise than it went in since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Takes the next batches and hands those that stay to `keep`.
    ///
    /// # Errors
    /// A batch is no batch.
    pub fn take(
        &mut self,
        batches: Bytes,
        mut keep: impl FnMut(StoredBatch),
    ) -> Result<(), BatchError> {
        for batch in Batches::headers_only(batches) {
            let batch = batch?;
            let header = *batch.header();
            self.stats.bytes_read += header.total_bytes() as u64;
            self.stats.records_read += u64::from(header.record_count());
            let kept = self.judge(batch);
            self.dropped = kept.is_none().then_some(header);
            self.changed |= std::mem::take(&mut self.dropped_filler);
            self.dropped_filler = kept.is_none() && filler(&header).header() == &header;
            let same = kept.as_ref().is_some_and(|kept| *kept.header() == header);
            self.changed |= !same && !self.dropped_filler;
            if let Some(kept) = kept {
                self.stats.bytes_kept += kept.bytes().len() as u64;
                self.stats.records_kept += u64::from(kept.header().record_count());
                keep(kept);
            }
        }
        Ok(())
    }

    /// What has to be added so that the batches given so far end where those taken end: a batch without records, if
    /// the last one was dropped.
    pub fn end_segment(&mut self) -> Option<StoredBatch> {
        let header = self.dropped.take()?;
        self.dropped_filler = false;
        Some(filler(&header))
    }

    fn judge(&mut self, batch: StoredBatch) -> Option<StoredBatch> {
        let header = *batch.header();
        if header.base_offset() >= self.map_end {
            return Some(batch);
        }
        let verdict = self.transactions.judge(&batch);
        let spent = verdict == Verdict::SpentMarker;
        let horizon_passed = header
            .delete_horizon()
            .is_some_and(|horizon| horizon <= self.rules.now);
        let all_go = match verdict {
            Verdict::Aborted => true,
            // An empty one was cleaned before.
            Verdict::SpentMarker => horizon_passed || header.record_count() == 0,
            Verdict::Counts | Verdict::NeededMarker => false,
        };
        let thinned = if all_go {
            Thinned::Emptied
        } else {
            self.thin_out(&batch, spent, horizon_passed)
        };
        match thinned {
            Thinned::Unchanged => Some(batch),
            Thinned::Rewritten(batch) => Some(batch),
            Thinned::Emptied if self.is_last_of_producer(&header) => {
                Some(if header.record_count() == 0 {
                    batch
                } else {
                    without_records(&header)
                })
            }
            Thinned::Emptied => None,
        }
    }

    fn thin_out(&mut self, batch: &StoredBatch, spent: bool, horizon_passed: bool) -> Thinned {
        let header = batch.header();
        // A batch of which only a part is mapped gets none: a tombstone's time begins when what it removes is gone.
        let horizon = (header.end_offset() <= self.map_end).then_some(DeleteHorizon {
            at: self.horizon,
            always: spent,
        });
        let (map, map_end) = (&self.map, self.map_end);
        let thinned = thin_out(batch, MAX_UNCOMPRESSED_BYTES, horizon, |record| {
            if header.is_control() || record.offset >= map_end {
                return true;
            }
            let Some(key) = record.key else {
                return false;
            };
            let is_spent = record.is_tombstone && horizon_passed;
            !is_spent && !map.has_later(key, record.offset)
        });
        thinned.unwrap_or_else(|_| {
            self.stats.unreadable_batches += 1;
            Thinned::Unchanged
        })
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let Some(producer) = header.producer() else {
            return false;
        };
        match self.rules.producers.get(&producer.id) {
            Some(LastRecord::Data { end }) => header.end_offset() == *end,
            Some(LastRecord::Marker { epoch }) => header.is_control() && producer.epoch == *epoch,
            None => false,
        }
    }
}
