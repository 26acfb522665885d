//! OffsetCommit.

use tidegate_types::TimestampMs;

use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::{
    CommitRequest, GroupError, GroupId, OffsetAndMetadata, OffsetToCommit, Reply, ReplyToken,
};

/// Stores the offsets of a sender that was accepted. `created` goes along if the group is new.
pub(crate) fn commit_offsets(
    cx: &mut Context<'_>,
    token: ReplyToken,
    request: CommitRequest,
    created: Option<Waiter>,
) {
    let now = cx.now.wall;
    let expires_at = match request.retention_ms {
        // The broker's retention, by the rules of KIP-211; not "expired already".
        -1 => None,
        retention_ms => Some(TimestampMs::new(now.get().saturating_add(retention_ms))),
    };
    let (writes, results) = checked_offsets(cx, &request.group_id, request.offsets, expires_at);
    let reply = Reply::CommitOffsets(Ok(results));
    if writes.is_empty() {
        return cx.reply(token, reply);
    }
    // The reply first: whether the group stays is decided once its commit is settled.
    let mut waiters = vec![Waiter::Reply(token, reply)];
    waiters.extend(created);
    cx.append(writes, waiters);
}

/// What is to be stored, and the result of each partition in the order of the request.
pub(super) fn checked_offsets(
    cx: &Context<'_>,
    group: &GroupId,
    offsets: Vec<OffsetToCommit>,
    expires_at: Option<TimestampMs>,
) -> (Vec<Write>, Vec<Result<(), GroupError>>) {
    let mut writes = Vec::with_capacity(offsets.len());
    let mut results = Vec::with_capacity(offsets.len());
    for commit in offsets {
        if is_too_long(
            commit.metadata.as_deref(),
            cx.config.offset_metadata_max_bytes,
        ) {
            results.push(Err(GroupError::OffsetMetadataTooLarge));
            continue;
        }
        results.push(Ok(()));
        let OffsetToCommit {
            target,
            topic_id,
            offset,
            leader_epoch,
            metadata,
        } = commit;
        let value = OffsetAndMetadata {
            offset,
            leader_epoch,
            metadata: metadata.unwrap_or_default().into(),
            committed_at: cx.now.wall,
            expires_at,
            topic_id,
        };
        writes.push(Write::Offset(group.clone(), target, Some(value)));
    }
    (writes, results)
}

/// Kafka counts UTF-16 units, in spite of the setting's name.
fn is_too_long(metadata: Option<&str>, max: usize) -> bool {
    metadata.is_some_and(|metadata| metadata.len() > max && metadata.encode_utf16().count() > max)
}
