//! The segment map of one partition: offset → slice of an object.

use std::sync::Arc;

use tidegate_object_storage::ObjectKey;
use tidegate_segment_format::ByteRange;
use tidegate_types::{Offset, OffsetRange, TimestampMs};

/// One partition's contiguous slice of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub range: OffsetRange,
    pub object: Arc<SegmentObject>,
    pub position: u64,
    pub length: u64,
    pub max_timestamp: TimestampMs,
    /// When it came into the segment map, by the clock of the broker that led then.
    pub stored_at: TimestampMs,
}

/// The object that segments lie in, shared by all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentObject {
    pub key: ObjectKey,
    pub size_bytes: u64,
    pub index: ByteRange,
}

/// A run of a segment map, as a leader tells it to the broker that is about to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPart {
    /// Where the run begins: 0, or the end of the part before.
    pub from: Offset,
    /// Up to here `segments` are all there are from `from` on.
    pub end: Offset,
    /// How often metadata has swapped segments of this map. Parts, and metadata, belong together only if they agree.
    pub swaps: u64,
    pub segments: Vec<Segment>,
}

/// Segments in offset order, without overlap. Offsets between two segments were compacted away.
#[derive(Debug, Default)]
pub(crate) struct SegmentMap {
    segments: Vec<Segment>,
    bytes: u64,
}

impl SegmentMap {
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        let bytes = segments.iter().map(|s| s.length).sum();
        Self { segments, bytes }
    }

    /// Adds the next segment; one that is known already (a repeated commit) changes nothing.
    pub(crate) fn push(&mut self, segment: Segment) {
        if self.end().is_none_or(|end| segment.range.start() >= end) {
            self.bytes += segment.length;
            self.segments.push(segment);
        }
    }

    /// Takes in a segment as metadata has it, which may replace several by one that joins them.
    pub(crate) fn extend(&mut self, segment: Segment) {
        if self.end().is_some_and(|end| segment.range.end() <= end) {
            return;
        }
        while let Some(last) = self
            .segments
            .pop_if(|last| last.range.end() > segment.range.start())
        {
            self.bytes -= last.length;
        }
        self.bytes += segment.length;
        self.segments.push(segment);
    }

    /// Puts `new` in the place of all segments in `range`. What retention dropped meanwhile is dropped again by the
    /// caller.
    pub(crate) fn swap(&mut self, range: OffsetRange, new: Vec<Segment>) {
        let first = self
            .segments
            .partition_point(|s| s.range.start() < range.start());
        let behind = self
            .segments
            .partition_point(|s| s.range.end() <= range.end())
            .max(first);
        self.bytes += new.iter().map(|s| s.length).sum::<u64>();
        let old = self.segments.splice(first..behind, new);
        self.bytes -= old.map(|s| s.length).sum::<u64>();
    }

    pub(crate) fn end(&self) -> Option<Offset> {
        self.segments.last().map(|s| s.range.end())
    }

    /// The segment that holds `offset`, or the first one after it.
    pub(crate) fn at_or_after(&self, offset: Offset) -> Option<&Segment> {
        self.segments
            .get(self.segments.partition_point(|s| s.range.end() <= offset))
    }

    /// The segments from the one that holds `offset` on, up to `bytes` bytes and `count` segments.
    pub(crate) fn following(&self, offset: Offset, bytes: u64, count: usize) -> Vec<Segment> {
        let first = self.segments.partition_point(|s| s.range.end() <= offset);
        let mut taken = 0;
        self.segments[first..]
            .iter()
            .take(count)
            .take_while(|segment| {
                let fits = taken < bytes;
                taken += segment.length;
                fits
            })
            .cloned()
            .collect()
    }

    /// The segments that end behind `from`, at most `count`.
    pub(crate) fn behind(&self, from: Offset, count: usize) -> &[Segment] {
        let first = self.segments.partition_point(|s| s.range.end() <= from);
        let behind = &self.segments[first..];
        &behind[..behind.len().min(count)]
    }

    /// The first segment at or after `from` that may hold a record as young as `timestamp`.
    pub(crate) fn first_with_timestamp(
        &self,
        from: Offset,
        timestamp: TimestampMs,
    ) -> Option<&Segment> {
        let first = self.segments.partition_point(|s| s.range.end() <= from);
        self.segments[first..]
            .iter()
            .find(|s| s.max_timestamp >= timestamp)
    }

    /// The greatest timestamp of the segments that begin at or after `from`.
    pub(crate) fn greatest_timestamp(&self, from: Offset) -> Option<TimestampMs> {
        let first = self.segments.partition_point(|s| s.range.start() < from);
        self.segments[first..].iter().map(|s| s.max_timestamp).max()
    }

    /// Drops segments wholly below the log start.
    pub(crate) fn drop_below(&mut self, log_start: Offset) {
        let keep_from = self
            .segments
            .partition_point(|s| s.range.end() <= log_start);
        for segment in self.segments.drain(..keep_from) {
            self.bytes -= segment.length;
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn as_slice(&self) -> &[Segment] {
        &self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, end: u64, key: &str) -> Segment {
        let offset = |o| Offset::new(o).unwrap();
        Segment {
            range: OffsetRange::new(offset(start), offset(end)).unwrap(),
            object: Arc::new(SegmentObject {
                key: ObjectKey::new(key).unwrap(),
                size_bytes: 100,
                index: ByteRange {
                    position: 50,
                    length: 10,
                },
            }),
            position: 0,
            length: end - start,
            max_timestamp: TimestampMs::NONE,
            stored_at: TimestampMs::NONE,
        }
    }

    fn shape(map: &SegmentMap) -> Vec<(u64, &str)> {
        let segments = map.as_slice().iter();
        segments
            .map(|s| (s.range.start().get(), s.object.key.as_str()))
            .collect()
    }

    #[test]
    fn a_swap_replaces_what_is_left_of_its_run_and_nothing_else() {
        let range = |start, end| segment(start, end, "x").range;
        let old = || {
            SegmentMap::new(vec![
                segment(0, 4, "a"),
                segment(4, 6, "b"),
                segment(6, 9, "c"),
            ])
        };
        let new = || vec![segment(0, 3, "m"), segment(3, 6, "n")];
        let mut map = old();
        map.swap(range(0, 6), new());
        assert_eq!(shape(&map), [(0, "m"), (3, "n"), (6, "c")]);
        assert_eq!(map.bytes(), 9);
        // Retention was faster: the first of the old ones is gone, and so will be the first of the new ones.
        let mut map = old();
        let log_start = Offset::new(4).unwrap();
        map.drop_below(log_start);
        map.swap(range(0, 6), new());
        map.drop_below(log_start);
        assert_eq!(shape(&map), [(3, "n"), (6, "c")]);
        assert_eq!(map.bytes(), 6);
        let mut map = old();
        map.drop_below(Offset::new(6).unwrap());
        map.swap(range(0, 6), Vec::new());
        assert_eq!(shape(&map), [(6, "c")]);
    }
}
