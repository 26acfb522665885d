//! The target assignment: which partitions each member shall have.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::TopicId;

use super::assignor::{GroupSpec, MemberSpec, ServerAssignor};
use super::group::ConsumerGroup;
use super::{ResolvedRegex, pattern};
use crate::journal::Write;
use crate::{ClusterView, MemberId, Now};

impl ConsumerGroup {
    /// Looks at the expressions anew: those that are new, and all if the topics may have changed. Those that no
    /// member has any more are forgotten.
    pub(crate) fn refresh_regexes(
        &mut self,
        now: Now,
        view: &dyn ClusterView,
        version: u64,
    ) -> Vec<Write> {
        let wanted: BTreeSet<String> = self
            .members
            .values()
            .filter_map(|member| member.regex().map(str::to_owned))
            .collect();
        let mut writes = Vec::new();
        let gone: Vec<String> = self
            .regexes
            .keys()
            .filter(|known| !wanted.contains(*known))
            .cloned()
            .collect();
        for expression in gone {
            self.regexes.remove(&expression);
            writes.push(self.write_regex(&expression));
        }
        let stale = self.seen_view != Some(version);
        let look_at: BTreeSet<String> = wanted
            .into_iter()
            .filter(|expression| stale || !self.regexes.contains_key(expression))
            .collect();
        if look_at.is_empty() {
            return writes;
        }
        for (expression, topics) in pattern::resolve(&look_at, view) {
            let unchanged = self
                .regexes
                .get(&expression)
                .is_some_and(|known| known.topics == topics);
            if unchanged {
                continue;
            }
            let resolved = ResolvedRegex {
                topics,
                version: i64::try_from(version).unwrap_or(i64::MAX),
                resolved_at_ms: now.wall.get(),
            };
            self.regexes.insert(expression.clone(), resolved);
            writes.push(self.write_regex(&expression));
        }
        writes
    }

    /// Over the topics that exist and are subscribed to: changes when one comes, goes, or gets partitions.
    pub(crate) fn hash_of_topics(&self, view: &dyn ClusterView) -> i64 {
        // FNV-1a: the value is only compared with one of this coordinator's own.
        const START: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut hash = START;
        let mut any = false;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
        };
        for name in self.subscribed_topics() {
            if let Some(topic) = view.topic(name) {
                any = true;
                take(name.as_bytes());
                take(topic.id.as_bytes());
                take(&topic.partitions.to_be_bytes());
            }
        }
        if any { hash.cast_signed() } else { 0 }
    }

    /// Computes the target of the group's epoch, and returns what differs from the last one, or `all` of it.
    pub(crate) fn retarget(&mut self, view: &dyn ClusterView, all: bool) -> Vec<Write> {
        let mut partitions: BTreeMap<TopicId, u32> = BTreeMap::new();
        let mut topics: BTreeMap<MemberId, BTreeSet<TopicId>> = BTreeMap::new();
        for member in self.members.values() {
            let mut known = BTreeSet::new();
            for info in self.topics_of(member).filter_map(|name| view.topic(name)) {
                partitions.insert(info.id, info.partitions);
                known.insert(info.id);
            }
            topics.insert(member.id.clone(), known);
        }
        let spec = GroupSpec {
            members: self
                .members
                .values()
                .map(|member| MemberSpec {
                    id: member.id.clone(),
                    instance_id: member.profile.instance_id.clone(),
                    topics: topics.remove(&member.id).unwrap_or_default(),
                    target: self.target_of(&member.id),
                })
                .collect(),
            partitions,
        };
        let assignor = self
            .assignor()
            .and_then(ServerAssignor::by_name)
            .unwrap_or_default();
        let mut computed = assignor.assign(&spec);
        let mut writes = Vec::new();
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let target = computed.remove(&id).unwrap_or_default();
            let before = self.targets.insert(id.clone(), target);
            if all || before.as_ref() != self.targets.get(&id) {
                writes.push(self.write_target(&id));
            }
        }
        self.target_epoch = self.epoch;
        writes.push(self.write_target_epoch());
        writes
    }
}
