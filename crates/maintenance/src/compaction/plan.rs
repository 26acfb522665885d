//! When a partition is due, and how much of it may be compacted.

use std::time::Duration;

use tidegate_types::{Offset, OffsetRange, TimestampMs};

use crate::retention::StoredSegment;

/// So many dirty segments make up for few bytes.
const MANY_SEGMENTS: usize = 32;
/// So many dirty segments are worth joining, however large the clean part is.
const FAR_TOO_MANY_SEGMENTS: usize = 1_000;

/// A topic's configs about compaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionPolicy {
    /// `min.cleanable.dirty.ratio`.
    pub min_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_lag: Duration,
    /// `max.compaction.lag.ms`; `None`: no limit.
    pub max_lag: Option<Duration>,
    /// Fewer dirty bytes aren't worth a pass.
    pub min_dirty_bytes: u64,
}

/// A partition that is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactionPlan {
    /// What is to be mapped.
    pub dirty: OffsetRange,
    /// Dirty bytes / all bytes. It orders partitions.
    pub dirty_ratio: f64,
}

/// Plans a pass if one is due. `segments` are in offset order. Up to `cleaned_end` a pass has gone already; nothing
/// at or behind `limit` may be touched.
pub fn plan_compaction(
    segments: &[StoredSegment],
    cleaned_end: Offset,
    limit: Offset,
    policy: &CompactionPolicy,
    now: TimestampMs,
) -> Option<CompactionPlan> {
    let before = |lag: Duration| {
        let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX);
        TimestampMs::new(now.get().saturating_sub(lag))
    };
    let too_young = |segment: &StoredSegment| {
        !policy.min_lag.is_zero() && segment.effective_timestamp() > before(policy.min_lag)
    };
    let compactable = segments
        .iter()
        .take_while(|s| s.range.end() <= limit && !too_young(s));
    let (mut clean_bytes, mut dirty_bytes, mut dirty_segments) = (0u64, 0u64, 0usize);
    let mut dirty: Option<(Offset, Offset)> = None;
    let mut oldest: Option<TimestampMs> = None;
    for segment in compactable {
        if segment.range.end() <= cleaned_end {
            clean_bytes += segment.bytes;
            continue;
        }
        dirty_bytes += segment.bytes;
        dirty_segments += 1;
        let start = dirty.map_or(segment.range.start().max(cleaned_end), |(start, _)| start);
        dirty = Some((start, segment.range.end()));
        let at = segment.effective_timestamp();
        oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
    }
    let (start, end) = dirty?;
    let ratio = ratio_of(dirty_bytes, clean_bytes + dirty_bytes);
    let overdue = policy
        .max_lag
        .is_some_and(|lag| oldest.is_some_and(|at| at < before(lag.max(policy.min_lag))));
    let worth_it = dirty_bytes >= policy.min_dirty_bytes || dirty_segments >= MANY_SEGMENTS;
    let due = overdue
        || (ratio > policy.min_dirty_ratio && worth_it)
        || dirty_segments >= FAR_TOO_MANY_SEGMENTS;
    due.then_some(CompactionPlan {
        dirty: OffsetRange::new(start, end)?,
        dirty_ratio: ratio,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of bytes needs no more than 52 bits"
)]
fn ratio_of(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs::new(1_000_000);
    const POLICY: CompactionPolicy = CompactionPolicy {
        min_dirty_ratio: 0.5,
        min_lag: Duration::ZERO,
        max_lag: None,
        min_dirty_bytes: 10,
    };

    fn offset(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    /// Segments of ten offsets and so many bytes, with so old records.
    fn segments(bytes_and_ages: &[(u64, i64)]) -> Vec<StoredSegment> {
        let starts = (0..).step_by(10);
        let made = starts.zip(bytes_and_ages).map(|(start, (bytes, age))| {
            let at = TimestampMs::new(NOW.get() - age);
            StoredSegment {
                range: OffsetRange::new(offset(start), offset(start + 10)).unwrap(),
                bytes: *bytes,
                max_timestamp: at,
                stored_at: at,
            }
        });
        made.collect()
    }

    fn dirty(
        segments: &[StoredSegment],
        cleaned: u64,
        limit: u64,
        policy: CompactionPolicy,
    ) -> Option<(u64, u64)> {
        plan_compaction(segments, offset(cleaned), offset(limit), &policy, NOW)
            .map(|plan| (plan.dirty.start().get(), plan.dirty.end().get()))
    }

    #[test]
    fn a_partition_is_due_above_the_dirty_ratio_only() {
        let log = segments(&[(100, 5), (100, 5), (100, 5)]);
        assert_eq!(dirty(&log, 10, 30, POLICY), Some((10, 30)));
        assert_eq!(dirty(&log, 20, 30, POLICY), None);
        assert_eq!(dirty(&log, 30, 30, POLICY), None);
    }

    #[test]
    fn nothing_behind_the_limit_is_touched() {
        let log = segments(&[(100, 5), (100, 5), (100, 5)]);
        assert_eq!(dirty(&log, 0, 29, POLICY), Some((0, 20)));
        assert_eq!(dirty(&log, 0, 9, POLICY), None);
    }

    #[test]
    fn a_young_segment_and_all_behind_it_wait_for_the_minimal_lag() {
        let log = segments(&[(100, 900), (100, 5), (100, 900)]);
        let policy = CompactionPolicy {
            min_lag: Duration::from_millis(100),
            ..POLICY
        };
        assert_eq!(dirty(&log, 0, 30, policy), Some((0, 10)));
    }

    #[test]
    fn the_maximal_lag_makes_a_partition_due_whatever_its_ratio() {
        let log = segments(&[(1000, 900), (1, 900)]);
        let lag = |ms| CompactionPolicy {
            max_lag: Some(Duration::from_millis(ms)),
            ..POLICY
        };
        assert_eq!(dirty(&log, 10, 20, lag(1000)), None);
        assert_eq!(dirty(&log, 10, 20, lag(800)), Some((10, 20)));
    }

    #[test]
    fn few_bytes_wait_until_they_are_many_segments() {
        let few = segments(&vec![(0, 5); 31]);
        let policy = CompactionPolicy {
            min_dirty_ratio: -1.0,
            ..POLICY
        };
        assert_eq!(dirty(&few, 0, 9999, policy), None);
        let many = segments(&vec![(0, 5); 32]);
        assert_eq!(dirty(&many, 0, 9999, policy), Some((0, 320)));
    }

    #[test]
    fn the_cleaned_end_may_lie_within_a_segment() {
        let log = segments(&[(100, 5), (100, 5)]);
        assert_eq!(dirty(&log, 4, 20, POLICY), Some((4, 20)));
    }
}
