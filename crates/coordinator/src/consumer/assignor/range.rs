//! The `range` assignor: each topic is cut into contiguous ranges, in the order of the members. With equal
//! subscriptions and equal topics each member gets the same indexes of every topic.

use std::collections::BTreeMap;

use super::{GroupSpec, MemberSpec, indexes};
use crate::MemberId;
use crate::consumer::Assignment;

pub(super) fn assign(spec: &GroupSpec) -> BTreeMap<MemberId, Assignment> {
    let members = in_order(spec);
    let mut targets: BTreeMap<MemberId, Assignment> = members
        .iter()
        .map(|member| (member.id.clone(), Assignment::default()))
        .collect();
    for (topic, count) in &spec.partitions {
        let subscribers: Vec<&&MemberSpec> = members
            .iter()
            .filter(|member| member.topics.contains(topic))
            .collect();
        if subscribers.is_empty() {
            continue;
        }
        let share = *count as usize / subscribers.len();
        let one_more = *count as usize % subscribers.len();
        let mut rest = indexes(*count);
        for (place, member) in subscribers.iter().enumerate() {
            let size = share + usize::from(place < one_more);
            if let Some(target) = targets.get_mut(&member.id) {
                target.extend(rest.by_ref().take(size).map(|index| (*topic, index)));
            }
        }
    }
    targets
}

/// Static members first, by their instance ids: those outlive the member ids, and so do their ranges.
fn in_order(spec: &GroupSpec) -> Vec<&MemberSpec> {
    let mut members: Vec<&MemberSpec> = spec.members.iter().collect();
    members.sort_by(|a, b| match (&a.instance_id, &b.instance_id) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.id.cmp(&b.id),
    });
    members
}
