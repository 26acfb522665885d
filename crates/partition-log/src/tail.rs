//! The newest part of a partition: every batch that isn't in object storage yet, and of those that are, as many
//! as the tail cache's budget keeps.
//!
//! A batch starts in memory and *pending* (not yet durable). Once durable in the local WAL its bytes may be
//! dropped under memory pressure and read back from there; once in object storage it may leave the tail
//! altogether.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_record_batch::BatchHeader;
use tidegate_types::{Offset, OffsetRange, TimestampMs};
use tidegate_wal::WalPosition;

/// Where a durable batch of the local WAL lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalExtent {
    pub(crate) position: WalPosition,
    pub(crate) length: u32,
}

/// One batch of the tail.
#[derive(Debug, Clone)]
pub(crate) struct TailBatch {
    pub(crate) range: OffsetRange,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) record_count: u32,
    pub(crate) length: u32,
    /// `None` once spilled: the bytes are then in the local WAL.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) wal: Option<WalExtent>,
}

impl TailBatch {
    pub(crate) fn new(header: &BatchHeader, bytes: Bytes) -> Self {
        Self {
            range: OffsetRange::new(header.base_offset(), header.end_offset())
                .expect("a batch ends after its start"),
            max_timestamp: header.max_record_timestamp(),
            record_count: header.record_count(),
            length: u32::try_from(bytes.len()).expect("a batch's length is 31 bits on the wire"),
            bytes: Some(bytes),
            wal: None,
        }
    }

    /// A batch that recovery found in the local WAL and left there.
    pub(crate) fn spilled(header: &BatchHeader, extent: WalExtent) -> Self {
        Self {
            range: OffsetRange::new(header.base_offset(), header.end_offset())
                .expect("a batch ends after its start"),
            max_timestamp: header.max_record_timestamp(),
            record_count: header.record_count(),
            length: extent.length,
            bytes: None,
            wal: Some(extent),
        }
    }
}

/// A run of tail batches: bytes where they are in memory, extents where they must be read from the local WAL.
#[derive(Debug, Clone)]
pub(crate) enum TailPiece {
    Memory(Bytes),
    Spilled(WalExtent),
}

/// What a log needs the local WAL to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalNeed {
    Nothing,
    /// Entries whose positions the log hasn't been told yet.
    Pending,
    /// Everything from here on.
    From(WalPosition),
}

/// Contiguous batches up to the log end.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    batches: VecDeque<TailBatch>,
    /// So many batches at the front are spilled; all behind them are in memory. There may be a million of them
    /// while the store is out of reach, so eviction must not walk over them.
    spilled: usize,
    memory_bytes: u64,
    /// Recovery found batches at positions that fall: a part was copied to this WAL again.
    out_of_order: bool,
}

impl Tail {
    pub(crate) fn push(&mut self, batch: TailBatch) {
        if batch.bytes.is_some() {
            self.memory_bytes += u64::from(batch.length);
        } else {
            debug_assert_eq!(self.spilled, self.batches.len(), "recovery comes first");
            self.spilled += 1;
            let before = self.batches.back().and_then(|b| b.wal);
            let falls = |(before, now): (WalExtent, WalExtent)| now.position < before.position;
            self.out_of_order |= before.zip(batch.wal).is_some_and(falls);
        }
        self.batches.push_back(batch);
    }

    fn pop_front(&mut self) {
        if let Some(front) = self.batches.pop_front() {
            self.spilled = self.spilled.saturating_sub(1);
            if front.bytes.is_some() {
                self.memory_bytes -= u64::from(front.length);
            }
        }
    }

    /// The first offset held, if any.
    pub(crate) fn start(&self) -> Option<Offset> {
        self.batches.front().map(|b| b.range.start())
    }

    /// Notes that everything in `range` is durable at `extent`. An entry may hold several batches only if they
    /// were appended as one; the extent then belongs to the first.
    pub(crate) fn set_extent(&mut self, range: OffsetRange, extent: WalExtent) {
        let at = self
            .batches
            .partition_point(|b| b.range.start() < range.start());
        if let Some(batch) = self.batches.get_mut(at).filter(|b| b.range == range) {
            batch.wal = Some(extent);
        }
    }

    fn index_of(&self, offset: Offset) -> usize {
        self.batches.partition_point(|b| b.range.end() <= offset)
    }

    /// Batches from the one that holds `from` up to `end`, at most `max_bytes` but at least one if `first_whole`.
    pub(crate) fn read(
        &self,
        from: Offset,
        end: Offset,
        max_bytes: usize,
        first_whole: bool,
    ) -> Vec<TailPiece> {
        let mut pieces = Vec::new();
        let mut taken = 0usize;
        for batch in self.batches.iter().skip(self.index_of(from)) {
            if batch.range.end() > end {
                break;
            }
            let length = batch.length as usize;
            if taken + length > max_bytes && !(first_whole && pieces.is_empty()) {
                break;
            }
            taken += length;
            pieces.push(match (&batch.bytes, batch.wal) {
                (Some(bytes), _) => TailPiece::Memory(bytes.clone()),
                (None, Some(extent)) => TailPiece::Spilled(extent),
                (None, None) => unreachable!("bytes are dropped only once the WAL holds them"),
            });
        }
        pieces
    }

    /// The batches in `range`, for an upload.
    pub(crate) fn batches_in(&self, range: OffsetRange) -> impl Iterator<Item = &TailBatch> {
        self.batches
            .iter()
            .skip(self.index_of(range.start()))
            .take_while(move |b| b.range.end() <= range.end())
    }

    /// Batches for a lookup by time, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TailBatch> {
        self.batches.iter()
    }

    /// Which of the local WAL's entries hold the batches at or after `offset`.
    pub(crate) fn wal_need(&self, offset: Offset) -> WalNeed {
        let first = self.index_of(offset);
        if self.out_of_order {
            let extents = self.batches.iter().skip(first).map_while(|b| b.wal);
            if let Some(oldest) = extents.map(|e| e.position).min() {
                return WalNeed::From(oldest);
            }
        }
        // Batches become durable in order, so the first says where all of them begin.
        match self.batches.get(first) {
            None => WalNeed::Nothing,
            Some(batch) => batch
                .wal
                .map_or(WalNeed::Pending, |extent| WalNeed::From(extent.position)),
        }
    }

    /// Gives memory back below `below`: batches under `stored_end` leave the tail, durable others are spilled.
    /// Answers the bytes freed.
    pub(crate) fn evict(&mut self, below: Offset, stored_end: Offset) -> u64 {
        let before = self.memory_bytes;
        while let Some(front) = self.batches.front() {
            if front.range.end() > below || front.range.end() > stored_end {
                break;
            }
            self.pop_front();
        }
        while let Some(batch) = self.batches.get_mut(self.spilled) {
            if batch.range.end() > below || batch.wal.is_none() {
                break;
            }
            batch.bytes = None;
            self.memory_bytes -= u64::from(batch.length);
            self.spilled += 1;
        }
        before - self.memory_bytes
    }

    /// Drops the batches below `below`. Answers the bytes of memory freed.
    pub(crate) fn drop_below(&mut self, below: Offset) -> u64 {
        let before = self.memory_bytes;
        while self.batches.front().is_some_and(|b| b.range.end() <= below) {
            self.pop_front();
        }
        before - self.memory_bytes
    }

    /// Drops everything. Answers the bytes of memory freed.
    pub(crate) fn clear(&mut self) -> u64 {
        std::mem::take(self).memory_bytes
    }

    /// Drops what was spilled and is in object storage now: the WAL may be trimmed under it.
    pub(crate) fn drop_spilled(&mut self, stored_end: Offset) {
        while self
            .batches
            .front()
            .is_some_and(|b| b.bytes.is_none() && b.range.end() <= stored_end)
        {
            self.pop_front();
        }
    }

    /// Whether a batch that ends at or below `end` is still in memory.
    pub(crate) fn holds_in_memory(&self, end: Offset) -> bool {
        self.batches
            .get(self.spilled)
            .is_some_and(|b| b.range.end() <= end)
    }

    /// Bytes of batches from `from` on, in memory or not.
    pub(crate) fn bytes_from(&self, from: Offset) -> u64 {
        self.batches
            .iter()
            .skip(self.index_of(from))
            .map(|b| u64::from(b.length))
            .sum()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
