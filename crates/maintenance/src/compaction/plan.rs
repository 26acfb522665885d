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

/// Whether a partition is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CompactionDue {
    Now(CompactionPlan),
    /// As long as neither the segments nor the borders nor the policy change, it isn't before this time; `None`:
    /// not at all.
    NotBefore(Option<TimestampMs>),
}

/// Plans a pass if one is due. `segments` are in offset order. Up to `cleaned_end` a pass has gone already; nothing
/// at or behind `limit` may be touched.
pub fn plan_compaction(
    segments: &[StoredSegment],
    cleaned_end: Offset,
    limit: Offset,
    policy: &CompactionPolicy,
    now: TimestampMs,
) -> CompactionDue {
    let compactable = segments.iter().take_while(|s| s.range.end() <= limit);
    let mut found = Found::default();
    let mut next = None;
    for segment in compactable {
        let old_enough = after(segment.effective_timestamp(), policy.min_lag);
        if !policy.min_lag.is_zero() && old_enough > now {
            next = Some(old_enough);
            break;
        }
        found.add(segment, cleaned_end);
    }
    let Some(dirty) = found.dirty else {
        return CompactionDue::NotBefore(next);
    };
    let ratio = ratio_of(found.dirty_bytes, found.clean_bytes + found.dirty_bytes);
    let worth_it =
        found.dirty_bytes >= policy.min_dirty_bytes || found.dirty_segments >= MANY_SEGMENTS;
    let overdue = found
        .oldest
        .zip(policy.max_lag)
        .map(|(oldest, lag)| after(oldest, lag.max(policy.min_lag)));
    let due = overdue.is_some_and(|at| at < now)
        || (ratio > policy.min_dirty_ratio && worth_it)
        || found.dirty_segments >= FAR_TOO_MANY_SEGMENTS;
    if due {
        return CompactionDue::Now(CompactionPlan {
            dirty,
            dirty_ratio: ratio,
        });
    }
    let overdue = overdue.map(|at| TimestampMs::new(at.get().saturating_add(1)));
    CompactionDue::NotBefore(next.into_iter().chain(overdue).min())
}

/// What of a log may be compacted.
#[derive(Debug, Default)]
struct Found {
    clean_bytes: u64,
    dirty_bytes: u64,
    dirty_segments: usize,
    dirty: Option<OffsetRange>,
    /// Of the dirty segments.
    oldest: Option<TimestampMs>,
}

impl Found {
    fn add(&mut self, segment: &StoredSegment, cleaned_end: Offset) {
        if segment.range.end() <= cleaned_end {
            self.clean_bytes += segment.bytes;
            return;
        }
        self.dirty_bytes += segment.bytes;
        self.dirty_segments += 1;
        let first = segment.range.start().max(cleaned_end);
        let start = self.dirty.map_or(first, OffsetRange::start);
        self.dirty = OffsetRange::new(start, segment.range.end());
        let at = segment.effective_timestamp();
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
    }
}

fn after(at: TimestampMs, lag: Duration) -> TimestampMs {
    let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX);
    TimestampMs::new(at.get().saturating_add(lag))
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
        match plan_compaction(segments, offset(cleaned), offset(limit), &policy, NOW) {
            CompactionDue::Now(plan) => Some((plan.dirty.start().get(), plan.dirty.end().get())),
            CompactionDue::NotBefore(at) => {
                assert_not_before(segments, offset(cleaned), offset(limit), &policy, at);
                None
            }
        }
    }

    /// What isn't due is so at the very time that was answered, if only time decides, and not before.
    fn assert_not_before(
        segments: &[StoredSegment],
        cleaned: Offset,
        limit: Offset,
        policy: &CompactionPolicy,
        at: Option<TimestampMs>,
    ) {
        let answer =
            |now: i64| plan_compaction(segments, cleaned, limit, policy, TimestampMs::new(now));
        let Some(at) = at else {
            let never = CompactionDue::NotBefore(None);
            assert_eq!(answer(i64::MAX), never);
            return;
        };
        assert!(at > NOW);
        assert_eq!(answer(at.get() - 1), CompactionDue::NotBefore(Some(at)));
        assert_ne!(answer(at.get()), CompactionDue::NotBefore(Some(at)));
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
        assert_eq!(dirty(&log, 10, 30, policy), None);
        assert_eq!(dirty(&log[1..], 0, 30, policy), None);
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
