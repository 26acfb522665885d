//! The `uniform` assignor: first even, then close to the last target.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_types::{PartitionIndex, TopicId};

use super::{GroupSpec, indexes};
use crate::MemberId;
use crate::consumer::Assignment;

/// How often all topics are gone through to even out unequal subscriptions. Each round moves only what makes the
/// assignment more even, so this is a bound and not a wish.
const ROUNDS: usize = 16;

pub(super) fn assign(spec: &GroupSpec) -> BTreeMap<MemberId, Assignment> {
    if spec.has_one_subscription() {
        assign_equals(spec)
    } else {
        Unequal::new(spec).assign()
    }
}

/// All members subscribe to the same topics: sizes differ by one at most, and a member gives up only what is
/// above its share.
fn assign_equals(spec: &GroupSpec) -> BTreeMap<MemberId, Assignment> {
    let Some(first) = spec.members.first() else {
        return BTreeMap::new();
    };
    let total: usize = first
        .topics
        .iter()
        .map(|topic| spec.partition_count(*topic) as usize)
        .sum();
    let share = total / spec.members.len();
    let mut one_more = total % spec.members.len();
    let mut kept = kept_targets(spec);
    // Those that have more than the share keep one more as long as there are any to give.
    let mut room: BTreeMap<MemberId, usize> = BTreeMap::new();
    for (id, target) in &kept {
        let extra = usize::from(target.len() > share && one_more > 0);
        one_more -= extra;
        room.insert(id.clone(), share + extra);
    }
    for size in room.values_mut() {
        if one_more > 0 && *size == share {
            *size += 1;
            one_more -= 1;
        }
    }
    for (id, target) in &mut kept {
        let above = target
            .len()
            .saturating_sub(room.get(id).copied().unwrap_or(0));
        let surplus: Vec<_> = last_partitions(target, above);
        for (topic, index) in surplus {
            target.remove(topic, index);
        }
    }
    let mut free = unassigned(spec, &kept);
    for (id, target) in &mut kept {
        let wanted = room
            .get(id)
            .copied()
            .unwrap_or(0)
            .saturating_sub(target.len());
        let count = wanted.min(free.len());
        target.extend(free.drain(..count));
    }
    kept
}

fn last_partitions(target: &Assignment, count: usize) -> Vec<(TopicId, PartitionIndex)> {
    let keep = target.len().saturating_sub(count);
    target.partitions().skip(keep).collect()
}

/// The last targets without what doesn't exist any more, isn't subscribed to, or is somebody else's too.
fn kept_targets(spec: &GroupSpec) -> BTreeMap<MemberId, Assignment> {
    let mut taken = BTreeSet::new();
    let mut kept = BTreeMap::new();
    for member in &spec.members {
        let target: Assignment = member
            .target
            .partitions()
            .filter(|(topic, index)| {
                member.topics.contains(topic)
                    && index.get() < spec.partition_count(*topic)
                    && taken.insert((*topic, *index))
            })
            .collect();
        kept.insert(member.id.clone(), target);
    }
    kept
}

/// The partitions that nobody has, round the topics: 0 of each, 1 of each and so on would pile up equal indexes;
/// topic by topic is Kafka's order.
fn unassigned(
    spec: &GroupSpec,
    targets: &BTreeMap<MemberId, Assignment>,
) -> VecDeque<(TopicId, PartitionIndex)> {
    let taken: BTreeSet<(TopicId, PartitionIndex)> =
        targets.values().flat_map(Assignment::partitions).collect();
    spec.partitions
        .iter()
        .flat_map(|(topic, count)| indexes(*count).map(|index| (*topic, index)))
        .filter(|place| !taken.contains(place))
        .filter(|(topic, _)| {
            spec.members
                .iter()
                .any(|member| member.topics.contains(topic))
        })
        .collect()
}

/// Subscriptions differ: each free partition goes to the subscriber that has least; then partitions move from
/// those that have more to those that have less, topic by topic, until nothing gets more even.
struct Unequal<'a> {
    spec: &'a GroupSpec,
    subscribers: BTreeMap<TopicId, Vec<MemberId>>,
    targets: BTreeMap<MemberId, Assignment>,
    sizes: BTreeMap<MemberId, usize>,
}

impl<'a> Unequal<'a> {
    fn new(spec: &'a GroupSpec) -> Self {
        let mut subscribers: BTreeMap<TopicId, Vec<MemberId>> = BTreeMap::new();
        for member in &spec.members {
            for topic in &member.topics {
                subscribers
                    .entry(*topic)
                    .or_default()
                    .push(member.id.clone());
            }
        }
        let targets = kept_targets(spec);
        let sizes = targets
            .iter()
            .map(|(id, target)| (id.clone(), target.len()))
            .collect();
        Self {
            spec,
            subscribers,
            targets,
            sizes,
        }
    }

    fn assign(mut self) -> BTreeMap<MemberId, Assignment> {
        let mut free: Vec<_> = unassigned(self.spec, &self.targets).into();
        // What few may have goes first.
        free.sort_by_key(|(topic, index)| {
            let subscribers = self.subscribers.get(topic).map_or(0, Vec::len);
            (subscribers, *topic, *index)
        });
        for (topic, index) in free {
            if let Some(member) = self.least(topic) {
                self.give(&member, topic, index);
            }
        }
        for _ in 0..ROUNDS {
            if !self.even_out() {
                break;
            }
        }
        self.targets
    }

    fn size(&self, member: &MemberId) -> usize {
        self.sizes.get(member).copied().unwrap_or(0)
    }

    fn least(&self, topic: TopicId) -> Option<MemberId> {
        self.subscribers
            .get(&topic)?
            .iter()
            .min_by_key(|member| self.size(member))
            .cloned()
    }

    fn give(&mut self, member: &MemberId, topic: TopicId, index: PartitionIndex) {
        self.targets
            .entry(member.clone())
            .or_default()
            .insert(topic, index);
        *self.sizes.entry(member.clone()).or_default() += 1;
    }

    fn take(&mut self, member: &MemberId, topic: TopicId) -> Option<PartitionIndex> {
        let target = self.targets.get_mut(member)?;
        let (_, index) = target.partitions().filter(|(of, _)| *of == topic).last()?;
        target.remove(topic, index);
        if let Some(size) = self.sizes.get_mut(member) {
            *size -= 1;
        }
        Some(index)
    }

    fn owns_some(&self, member: &MemberId, topic: TopicId) -> bool {
        self.targets
            .get(member)
            .is_some_and(|target| target.topics().any(|(of, _)| of == topic))
    }

    /// One round over the topics. False if nothing moved.
    fn even_out(&mut self) -> bool {
        let mut moved = false;
        for topic in self.subscribers.keys().copied().collect::<Vec<_>>() {
            while let Some((from, to)) = self.uneven_pair(topic) {
                let Some(index) = self.take(&from, topic) else {
                    break;
                };
                self.give(&to, topic, index);
                moved = true;
            }
        }
        moved
    }

    /// The fullest member with a partition of the topic and the emptiest that may have it, if a move helps.
    fn uneven_pair(&self, topic: TopicId) -> Option<(MemberId, MemberId)> {
        let subscribers = self.subscribers.get(&topic)?;
        let from = subscribers
            .iter()
            .filter(|member| self.owns_some(member, topic))
            .max_by_key(|member| self.size(member))?;
        let to = subscribers.iter().min_by_key(|member| self.size(member))?;
        (self.size(from) > self.size(to) + 1).then(|| (from.clone(), to.clone()))
    }
}
