//! Putting a group right whose records contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{PartitionIndex, TopicId};

use super::group::owned_by;
use super::member::{ConsumerMember, MemberState};
use super::{Assignment, ConsumerGroup, GroupEpoch, MemberEpoch};
use crate::{InstanceId, MemberId};

impl ConsumerGroup {
    /// For a loaded or restored group: an append may have been refused and one after it stored. If that leaves two
    /// members with one partition, the one that had given it up, by the record that was refused, is at the lower
    /// epoch, and it is taken from that one. All epochs from now on are above those that members were told.
    pub(crate) fn settle_conflicts(&mut self) {
        let replaced = self.replaced_instances();
        for id in &replaced {
            self.remove(id);
            let tombstones = self.forget_member(id);
            self.due.extend(tombstones);
        }
        let mut claims: BTreeMap<(TopicId, PartitionIndex), (MemberEpoch, MemberId)> =
            BTreeMap::new();
        let mut lost: Vec<(MemberId, (TopicId, PartitionIndex))> = Vec::new();
        for member in self.members.values() {
            for place in owned_by(member) {
                let claim = (member.current.epoch, member.id.clone());
                let loser = match claims.get(&place) {
                    Some(best) if *best >= claim => Some(claim.1),
                    _ => claims.insert(place, claim).map(|(_, loser)| loser),
                };
                lost.extend(loser.map(|loser| (loser, place)));
            }
        }
        let losers: BTreeSet<MemberId> = lost.iter().map(|(id, _)| id.clone()).collect();
        for (id, (topic, index)) in lost {
            if let Some(member) = self.members.get_mut(&id) {
                member.current.assigned.remove(topic, index);
                member.current.revoking.remove(topic, index);
                let unrevoked = member.current.state == MemberState::Unrevoked;
                if unrevoked && member.current.revoking.is_empty() {
                    member.current.state = MemberState::Stable;
                }
            }
        }
        for id in &losers {
            if let Some(member) = self.members.get(id) {
                let write = self.write_current(member);
                self.due.push(write);
            }
        }
        let shared = self.drop_shared_targets();
        self.must_rebalance |= shared || !losers.is_empty() || !replaced.is_empty();
        let members: Vec<ConsumerMember> = self.members.values().cloned().collect();
        for member in members {
            let told = GroupEpoch::from_wire(member.current.epoch.to_wire());
            self.epoch = self.epoch.max(told.unwrap_or_default());
            self.put(member);
        }
        self.epoch = self.epoch.max(self.target_epoch);
    }

    /// Members whose static instance has another member too, at a higher epoch: they had left, and only the record of
    /// that was refused.
    fn replaced_instances(&self) -> Vec<MemberId> {
        let mut current: BTreeMap<&InstanceId, &ConsumerMember> = BTreeMap::new();
        let mut replaced = Vec::new();
        for member in self.members.values() {
            let Some(instance) = &member.profile.instance_id else {
                continue;
            };
            let former = match current.get(instance) {
                Some(other) if other.current.epoch > member.current.epoch => Some(member),
                _ => current.insert(instance, member),
            };
            replaced.extend(former.map(|former| former.id.clone()));
        }
        replaced
    }

    /// Takes partitions that are in several targets, or of members that are gone, from all but the first.
    fn drop_shared_targets(&mut self) -> bool {
        let mut seen = BTreeSet::new();
        let members = &self.members;
        let before = self.targets.len();
        self.targets.retain(|id, _| members.contains_key(id));
        let mut changed = before != self.targets.len();
        for target in self.targets.values_mut() {
            let kept: Assignment = target
                .partitions()
                .filter(|place| seen.insert(*place))
                .collect();
            changed |= kept != *target;
            *target = kept;
        }
        changed
    }

    #[cfg(test)]
    pub(crate) fn assert_consistent(&self) {
        let mut owners = BTreeMap::new();
        for member in self.members.values() {
            for place in owned_by(member) {
                let other = owners.insert(place, member.id.clone());
                assert_eq!(other, None, "{place:?} has two owners");
            }
        }
        assert_eq!(owners, self.owners, "owners drifted");
        for (instance, id) in &self.static_members {
            let member = self.members.get(id).expect("a static member is a member");
            assert_eq!(member.profile.instance_id.as_ref(), Some(instance));
        }
        assert!(self.target_epoch <= self.epoch);
        let mut given = BTreeSet::new();
        for (id, target) in &self.targets {
            assert!(self.members.contains_key(id), "a target without its member");
            for place in target.partitions() {
                assert!(given.insert(place), "{place:?} is in two targets");
            }
        }
    }
}
