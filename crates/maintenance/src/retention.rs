//! Which segments a retention policy drops.

use std::time::Duration;

use tidegate_types::{Offset, OffsetRange, TimestampMs};

/// How much of a partition is kept. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
}

/// What retention knows of a segment.
#[derive(Debug, Clone, Copy)]
pub struct StoredSegment {
    pub range: OffsetRange,
    pub bytes: u64,
    pub max_timestamp: TimestampMs,
    /// When it came into the segment map, by the broker's clock.
    pub stored_at: TimestampMs,
}

impl StoredSegment {
    /// The segment's age counts from its youngest record, but from no later than when it was stored: a record whose
    /// producer's clock ran years ahead would otherwise keep itself, and all behind it, for years.
    pub(crate) fn effective_timestamp(&self) -> TimestampMs {
        self.max_timestamp.min(self.stored_at)
    }
}

/// The log start offset that the policy demands, if it drops at least one segment. `segments` are in offset order.
/// Segments go one after the other from the oldest; the first that stays keeps all behind it.
pub fn new_log_start(
    segments: impl Iterator<Item = StoredSegment> + Clone,
    policy: RetentionPolicy,
    now: TimestampMs,
) -> Option<Offset> {
    let by_age = policy
        .age
        .and_then(|age| expired(segments.clone(), age, now));
    let by_bytes = policy.bytes.and_then(|limit| oversize(segments, limit));
    by_age.max(by_bytes)
}

fn expired(
    segments: impl Iterator<Item = StoredSegment>,
    age: Duration,
    now: TimestampMs,
) -> Option<Offset> {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let limit = TimestampMs::new(now.get().saturating_sub(age));
    segments
        .take_while(|s| s.effective_timestamp() < limit)
        .last()
        .map(|s| s.range.end())
}

/// As in Apache Kafka, a segment goes only if what remains still holds at least the limit.
fn oversize(segments: impl Iterator<Item = StoredSegment> + Clone, limit: u64) -> Option<Offset> {
    let mut excess = segments
        .clone()
        .map(|s| s.bytes)
        .sum::<u64>()
        .saturating_sub(limit);
    let mut start = None;
    for segment in segments {
        if segment.bytes > excess {
            break;
        }
        excess -= segment.bytes;
        start = Some(segment.range.end());
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs::new(1_000_000);

    fn segment(start: u64, bytes: u64, max_timestamp: i64, stored_at: i64) -> StoredSegment {
        let offset = |o| Offset::new(o).unwrap();
        StoredSegment {
            range: OffsetRange::new(offset(start), offset(start + 10)).unwrap(),
            bytes,
            max_timestamp: TimestampMs::new(max_timestamp),
            stored_at: TimestampMs::new(stored_at),
        }
    }

    fn start(segments: &[StoredSegment], age_ms: Option<u64>, bytes: Option<u64>) -> Option<u64> {
        let policy = RetentionPolicy {
            age: age_ms.map(Duration::from_millis),
            bytes,
        };
        new_log_start(segments.iter().copied(), policy, NOW).map(Offset::get)
    }

    #[test]
    fn segments_older_than_the_limit_go_and_the_first_younger_one_stops_it() {
        let segments = [
            segment(0, 1, 100, 100),
            segment(10, 1, 200, 200),
            segment(20, 1, 999_999, 999_999),
            segment(30, 1, 5, 999_999),
        ];
        assert_eq!(start(&segments, Some(1000), None), Some(20));
        assert_eq!(start(&segments, None, None), None);
    }

    #[test]
    fn a_timestamp_years_ahead_counts_from_when_it_was_stored() {
        let wild = i64::MAX;
        let segments = [
            segment(0, 1, wild, 100),
            segment(10, 1, 200, 200),
            segment(20, 1, 999_999, 999_999),
        ];
        assert_eq!(start(&segments, Some(1000), None), Some(20));
    }

    #[test]
    fn the_size_limit_never_leaves_less_than_itself() {
        let segments = [
            segment(0, 100, 1, 1),
            segment(10, 100, 1, 1),
            segment(20, 100, 1, 1),
        ];
        assert_eq!(start(&segments, None, Some(100)), Some(20));
        assert_eq!(start(&segments, None, Some(101)), Some(10));
        assert_eq!(start(&segments, None, Some(250)), None);
        assert_eq!(start(&segments, None, Some(0)), Some(30));
    }
}
