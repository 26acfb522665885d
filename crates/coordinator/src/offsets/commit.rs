//! OffsetCommit.

use tidegate_types::TimestampMs;

use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::{CommitRequest, GroupError, OffsetAndMetadata, OffsetToCommit, Reply, ReplyToken};

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
    let mut writes = Vec::with_capacity(request.offsets.len());
    let mut results = Vec::with_capacity(request.offsets.len());
    for commit in request.offsets {
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
            committed_at: now,
            expires_at,
            topic_id,
        };
        writes.push(Write::Offset(request.group_id.clone(), target, Some(value)));
    }
    let reply = Reply::CommitOffsets(Ok(results));
    if writes.is_empty() {
        return cx.reply(token, reply);
    }
    // The reply first: whether the group stays is decided once its commit is settled.
    let mut waiters = vec![Waiter::Reply(token, reply)];
    waiters.extend(created);
    cx.append(writes, waiters);
}

/// Kafka counts UTF-16 units, in spite of the setting's name.
fn is_too_long(metadata: Option<&str>, max: usize) -> bool {
    metadata.is_some_and(|metadata| metadata.len() > max && metadata.encode_utf16().count() > max)
}
