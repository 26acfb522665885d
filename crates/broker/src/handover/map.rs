//! Parts of a segment map on their way from the leader to the next one.

use std::sync::Arc;

use tidegate_cluster::orders::{MapPart, MapSegment};
use tidegate_metadata::{ByteSpan, StoredObjectKey};
use tidegate_object_storage::ObjectKey;
use tidegate_partition_log::{MapPart as LogMapPart, Segment, SegmentObject};
use tidegate_segment_format::ByteRange;

/// `None` if metadata can't have such a map.
pub(super) fn to_wire(map: &LogMapPart) -> Option<MapPart> {
    let segments: Option<Vec<MapSegment>> = map.segments.iter().map(segment_to_wire).collect();
    Some(MapPart {
        from: map.from,
        end: map.end,
        swaps: map.swaps,
        segments: segments?,
    })
}

fn segment_to_wire(segment: &Segment) -> Option<MapSegment> {
    let span = |range: ByteRange| ByteSpan {
        position: range.position,
        length: range.length,
    };
    Some(MapSegment {
        range: segment.range,
        object: StoredObjectKey::new(segment.object.key.as_str()).ok()?,
        object_size_bytes: segment.object.size_bytes,
        index: span(segment.object.index),
        span: ByteSpan {
            position: segment.position,
            length: segment.length,
        },
        max_timestamp: segment.max_timestamp,
        stored_at: segment.stored_at,
    })
}

/// `None` if a key is none: then metadata is asked.
pub(super) fn from_wire(map: MapPart) -> Option<LogMapPart> {
    let mut segments: Vec<Segment> = Vec::with_capacity(map.segments.len());
    for segment in map.segments {
        let before = segments.last().map(|s| s.object.clone());
        segments.push(segment_from_wire(segment, before)?);
    }
    Some(LogMapPart {
        from: map.from,
        end: map.end,
        swaps: map.swaps,
        segments,
    })
}

/// Segments of one object that follow each other share its description.
fn segment_from_wire(segment: MapSegment, before: Option<Arc<SegmentObject>>) -> Option<Segment> {
    let object = match before.filter(|object| object.key.as_str() == segment.object.as_str()) {
        Some(object) => object,
        None => Arc::new(SegmentObject {
            key: ObjectKey::new(segment.object.as_str()).ok()?,
            size_bytes: segment.object_size_bytes,
            index: ByteRange {
                position: segment.index.position,
                length: segment.index.length,
            },
        }),
    };
    Some(Segment {
        range: segment.range,
        object,
        position: segment.span.position,
        length: segment.span.length,
        max_timestamp: segment.max_timestamp,
        stored_at: segment.stored_at,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_types::{Offset, OffsetRange, TimestampMs};

    use super::*;

    #[test]
    fn a_part_of_a_map_comes_as_it_was_sent_and_shares_its_objects() {
        let offset = |o| Offset::new(o).unwrap();
        let object = |key| {
            Arc::new(SegmentObject {
                key: ObjectKey::new(key).unwrap(),
                size_bytes: 900,
                index: ByteRange {
                    position: 700,
                    length: 100,
                },
            })
        };
        let shared = object("data/1/2/3");
        let segment = |start, end, object: &Arc<SegmentObject>| Segment {
            range: OffsetRange::new(offset(start), offset(end)).unwrap(),
            object: object.clone(),
            position: 40 + start,
            length: 10,
            max_timestamp: TimestampMs::new(5),
            stored_at: TimestampMs::new(6),
        };
        let part = LogMapPart {
            from: offset(3),
            end: offset(20),
            swaps: 2,
            segments: vec![
                segment(3, 7, &shared),
                segment(7, 9, &shared),
                segment(9, 20, &object("data/1/2/4")),
            ],
        };
        let come = from_wire(to_wire(&part).unwrap()).unwrap();
        assert_eq!(come, part);
        assert!(Arc::ptr_eq(
            &come.segments[0].object,
            &come.segments[1].object
        ));
    }
}
