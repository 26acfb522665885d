//! The expiry of offsets and of groups that have none left (KIP-211).

use tidegate_types::TimestampMs;

use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::{GroupState, OffsetAndMetadata, TopicPartition};

/// From when on the retention of an offset counts.
#[derive(Debug, Clone, Copy)]
enum RetentionStart {
    /// The last commit.
    Commit,
    /// The time at which the group lost its last member.
    Emptied(TimestampMs),
}

impl ClassicGroup {
    /// The offsets of `offsets` to drop now, and whether that leaves none. A group that is rebalancing loses
    /// nothing, nor does one whose topics aren't known (KAFKA-13636).
    pub(crate) fn expired<'a>(
        &self,
        offsets: impl Iterator<Item = (&'a TopicPartition, &'a OffsetAndMetadata)>,
        now: TimestampMs,
        retention_ms: i64,
    ) -> (Vec<TopicPartition>, bool) {
        let start = self.retention_start();
        let mut expired = Vec::new();
        let mut none_left = true;
        for (target, committed) in offsets {
            let is_over = start.is_some_and(|start| is_over(start, committed, now, retention_ms));
            if is_over && !self.is_subscribed_to(target.topic.as_str()) {
                expired.push(target.clone());
            } else {
                none_left = false;
            }
        }
        (expired, none_left)
    }

    fn retention_start(&self) -> Option<RetentionStart> {
        if self.protocol_type.is_none() {
            // A simple consumer: there is no membership to go by.
            return Some(RetentionStart::Commit);
        }
        match self.state {
            GroupState::Empty => Some(
                self.state_since
                    .map_or(RetentionStart::Commit, RetentionStart::Emptied),
            ),
            // Only topics that the members no longer read; the caller checks the subscription.
            GroupState::Stable if self.uses_consumer_protocol() && self.subscribed.is_some() => {
                Some(RetentionStart::Commit)
            }
            GroupState::Stable
            | GroupState::PreparingRebalance
            | GroupState::CompletingRebalance => None,
        }
    }
}

impl ConsumerGroup {
    /// As above; retention counts from the commit, and only for topics that no member reads.
    pub(crate) fn expired<'a>(
        &self,
        offsets: impl Iterator<Item = (&'a TopicPartition, &'a OffsetAndMetadata)>,
        now: TimestampMs,
        retention_ms: i64,
    ) -> (Vec<TopicPartition>, bool) {
        let read = self.subscribed_topics();
        let mut none_left = true;
        let expired = offsets
            .filter(|(target, committed)| {
                let goes = is_over(RetentionStart::Commit, committed, now, retention_ms)
                    && !read.contains(target.topic.as_str());
                none_left &= goes;
                goes
            })
            .map(|(target, _)| target.clone())
            .collect();
        (expired, none_left)
    }
}

fn is_over(
    start: RetentionStart,
    committed: &OffsetAndMetadata,
    now: TimestampMs,
    retention_ms: i64,
) -> bool {
    if let Some(expires_at) = committed.expires_at {
        return now >= expires_at;
    }
    let start = match start {
        RetentionStart::Commit => committed.committed_at,
        RetentionStart::Emptied(at) => at,
    };
    now.get().saturating_sub(start.get()) >= retention_ms
}
