//! What is remembered of each log between two looks, so that a log with nothing new costs no more than a comparison.
//!
//! Looking at a log copies its whole segment list. A broker may lead ten thousand compacted partitions of which few
//! change, so a log that wasn't due isn't looked at again until something moved or its time came.

use std::collections::HashMap;

use tidegate_maintenance::CompactionPolicy;
use tidegate_partition_log::Watermarks;
use tidegate_types::{LeaderEpoch, Offset, PartitionId, TimestampMs};

/// What is known of one log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Known {
    pub(super) leader_epoch: LeaderEpoch,
    /// Up to there it is compacted.
    pub(super) cleaned_end: Offset,
    /// Why it needn't be looked at.
    pub(super) rest: Option<Rest>,
}

/// A log wasn't due, and won't be as long as all of this is so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rest {
    pub(super) watermarks: Watermarks,
    pub(super) policy: CompactionPolicy,
    /// `None`: time alone changes nothing.
    pub(super) until: Option<TimestampMs>,
}

impl Rest {
    fn holds(&self, watermarks: Watermarks, policy: &CompactionPolicy, now: TimestampMs) -> bool {
        self.watermarks == watermarks
            && self.policy == *policy
            && self.until.is_none_or(|until| now < until)
    }
}

/// What is known of the logs that this broker leads.
#[derive(Debug, Default)]
pub(super) struct Watch {
    logs: HashMap<PartitionId, Known>,
}

impl Watch {
    /// What is known of a log that is led under this leader epoch.
    pub(super) fn known(&self, id: PartitionId, leader_epoch: LeaderEpoch) -> Option<Known> {
        let known = self.logs.get(&id).copied();
        known.filter(|known| known.leader_epoch == leader_epoch)
    }

    /// Whether a log may be due now.
    pub(super) fn is_worth_a_look(
        &self,
        id: PartitionId,
        watermarks: Watermarks,
        policy: &CompactionPolicy,
        now: TimestampMs,
    ) -> bool {
        let rest = self.logs.get(&id).and_then(|known| known.rest);
        rest.is_none_or(|rest| !rest.holds(watermarks, policy, now))
    }

    pub(super) fn learn(&mut self, id: PartitionId, known: Known) {
        self.logs.insert(id, known);
    }

    pub(super) fn rest(&mut self, id: PartitionId, rest: Option<Rest>) {
        if let Some(known) = self.logs.get_mut(&id) {
            known.rest = rest;
        }
    }

    pub(super) fn forget(&mut self, id: PartitionId) {
        self.logs.remove(&id);
    }

    /// Forgets the logs of which `is_led` says no.
    pub(super) fn retain(&mut self, is_led: impl Fn(PartitionId) -> bool) {
        self.logs.retain(|id, _| is_led(*id));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_types::{PartitionIndex, TopicId};
    use uuid::Uuid;

    use super::*;

    const POLICY: CompactionPolicy = CompactionPolicy {
        min_dirty_ratio: 0.5,
        min_lag: Duration::ZERO,
        max_lag: None,
        min_dirty_bytes: 10,
    };
    const NOW: TimestampMs = TimestampMs::new(1_000);

    fn watermarks(log_end: u64) -> Watermarks {
        let end = Offset::new(log_end).unwrap();
        Watermarks {
            log_start: Offset::ZERO,
            last_stable: end,
            high_watermark: end,
            log_end: end,
        }
    }

    #[test]
    fn a_log_that_was_not_due_is_looked_at_again_when_something_moved_or_its_time_came() {
        let id = PartitionId {
            topic: TopicId::new(Uuid::from_u128(5)).unwrap(),
            index: PartitionIndex::new(0).unwrap(),
        };
        let mut watch = Watch::default();
        assert!(watch.is_worth_a_look(id, watermarks(7), &POLICY, NOW));
        let known = Known {
            leader_epoch: LeaderEpoch::FIRST,
            cleaned_end: Offset::ZERO,
            rest: None,
        };
        watch.learn(id, known);
        assert!(watch.is_worth_a_look(id, watermarks(7), &POLICY, NOW));
        let until = |until| Rest {
            watermarks: watermarks(7),
            policy: POLICY,
            until,
        };
        let far = TimestampMs::new(i64::MAX);
        watch.rest(id, Some(until(None)));
        assert!(!watch.is_worth_a_look(id, watermarks(7), &POLICY, far));
        assert!(watch.is_worth_a_look(id, watermarks(8), &POLICY, NOW));
        let other = CompactionPolicy {
            min_dirty_ratio: 0.1,
            ..POLICY
        };
        assert!(watch.is_worth_a_look(id, watermarks(7), &other, NOW));
        watch.rest(id, Some(until(Some(TimestampMs::new(2_000)))));
        assert!(!watch.is_worth_a_look(id, watermarks(7), &POLICY, NOW));
        assert!(watch.is_worth_a_look(id, watermarks(7), &POLICY, TimestampMs::new(2_000)));
        // A pass, or another leadership, forgets it.
        assert_eq!(watch.known(id, LeaderEpoch::FIRST.next()), None);
        watch.forget(id);
        assert!(watch.is_worth_a_look(id, watermarks(7), &POLICY, NOW));
    }
}
