//! What groups do, as lines of the log.

use tidegate_coordinator::Notice;
use tracing::{info, warn};

pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::PreparingRebalance {
            group,
            generation,
            reason,
        } => {
            info!(%group, %generation, reason, "group prepares to rebalance");
        }
        Notice::JoinCompleted {
            group,
            generation,
            members,
        } => {
            info!(%group, %generation, members, "group has a new generation");
        }
        Notice::Stable { group, generation } => info!(%group, %generation, "group is stable"),
        Notice::Empty { group, generation } => info!(%group, %generation, "group is empty"),
        Notice::NobodyRejoined { group } => info!(%group, "no member rejoined in time"),
        Notice::MemberExpired { group, member } => info!(%group, %member, "member's session ended"),
        Notice::MembersDropped {
            group,
            members,
            reason,
        } => {
            info!(%group, members = members.len(), reason, "members dropped");
        }
        Notice::StaticMemberReplaced {
            group,
            instance,
            old,
            new,
        } => {
            info!(%group, %instance, %old, %new, "static member replaced");
        }
        Notice::OffsetsExpired { group, count } => info!(%group, count, "offsets expired"),
        Notice::GroupDeleted { group } => info!(%group, "group deleted"),
        Notice::Upgraded { group, members } => {
            info!(%group, members, "classic group became a consumer group");
        }
        Notice::Downgraded { group, members } => {
            info!(%group, members, "consumer group became a classic group");
        }
        Notice::AppendTimedOut { id } => {
            warn!(append = %id, "a group's records are not durable in time")
        }
    }
}
