//! OffsetDelete, and the end of topics.

use tidegate_types::{TopicId, TopicName};

use super::fetch::is_same_topic;
use crate::classic::ClassicGroup;
use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::{DeleteOffsetsRequest, GroupError, Reply, ReplyToken, TopicPartition};

impl ClassicGroup {
    /// KIP-496: a group that isn't empty must be a consumer group, and only topics that it isn't subscribed
    /// to can go.
    pub(crate) fn delete_offsets(
        &self,
        cx: &mut Context<'_>,
        token: ReplyToken,
        request: &DeleteOffsetsRequest,
    ) {
        if !self.is_empty() && !self.uses_consumer_protocol() {
            return cx.reply(token, Reply::DeleteOffsets(Err(GroupError::NonEmptyGroup)));
        }
        delete_offsets(cx, token, request, |topic| self.is_subscribed_to(topic));
    }
}

/// Deletes the offsets of topics that the group isn't subscribed to.
pub(crate) fn delete_offsets(
    cx: &mut Context<'_>,
    token: ReplyToken,
    request: &DeleteOffsetsRequest,
    is_subscribed_to: impl Fn(&str) -> bool,
) {
    let group = &request.group_id;
    let mut writes = Vec::new();
    let mut results = Vec::with_capacity(request.targets.len());
    for target in &request.targets {
        if is_subscribed_to(target.topic.as_str()) {
            results.push(Err(GroupError::GroupSubscribedToTopic));
            continue;
        }
        results.push(Ok(()));
        if cx.journal.offsets.newest(group, target).is_some() {
            writes.push(Write::Offset(group.clone(), target.clone(), None));
        }
    }
    let reply = Reply::DeleteOffsets(Ok(results));
    if writes.is_empty() {
        return cx.reply(token, reply);
    }
    cx.append(writes, vec![Waiter::Reply(token, reply)]);
}

/// Tombstones for all offsets of the given topics. With an id, offsets known to be of another incarnation of
/// the name stay.
pub(crate) fn delete_topics(cx: &mut Context<'_>, topics: &[(TopicName, Option<TopicId>)]) {
    let is_deleted = |target: &TopicPartition, stored: Option<TopicId>| {
        topics
            .iter()
            .any(|(name, id)| *name == target.topic && is_same_topic(stored, *id))
    };
    let mut writes = Vec::new();
    for (group, offsets) in cx.journal.offsets.iter() {
        for (target, slot) in offsets {
            if slot
                .newest()
                .is_some_and(|committed| is_deleted(target, committed.topic_id))
            {
                writes.push(Write::Offset(group.clone(), target.clone(), None));
            }
        }
    }
    // Those of open transactions go with them, by the same tombstones.
    for (group, target, pending) in cx.journal.offsets.pending.iter() {
        if is_deleted(target, pending.topic_id)
            && cx.journal.offsets.newest_committed(group, target).is_none()
        {
            writes.push(Write::Offset(group.clone(), target.clone(), None));
        }
    }
    append_in_batches(cx, writes);
}

/// For tombstones that need not be stored together.
pub(crate) fn append_in_batches(cx: &mut Context<'_>, writes: Vec<Write>) {
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        let batch = writes
            .by_ref()
            .take(cx.config.max_cleanup_batch_records.max(1))
            .collect();
        cx.append(batch, Vec::new());
    }
}
