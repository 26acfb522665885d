//! A set of partitions.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{PartitionIndex, TopicId};

/// Partitions by topic, in order. No topic is in it without a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment(BTreeMap<TopicId, BTreeSet<PartitionIndex>>);

impl Assignment {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of partitions.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub fn contains(&self, topic: TopicId, partition: PartitionIndex) -> bool {
        self.0
            .get(&topic)
            .is_some_and(|partitions| partitions.contains(&partition))
    }

    /// Each topic with its partitions.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &BTreeSet<PartitionIndex>)> {
        self.0
            .iter()
            .map(|(topic, partitions)| (*topic, partitions))
    }

    /// Each partition.
    pub fn partitions(&self) -> impl Iterator<Item = (TopicId, PartitionIndex)> {
        self.topics()
            .flat_map(|(topic, partitions)| partitions.iter().map(move |index| (topic, *index)))
    }

    pub(crate) fn topic_count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn insert(&mut self, topic: TopicId, partition: PartitionIndex) -> bool {
        self.0.entry(topic).or_default().insert(partition)
    }

    pub(crate) fn remove(&mut self, topic: TopicId, partition: PartitionIndex) -> bool {
        let Some(partitions) = self.0.get_mut(&topic) else {
            return false;
        };
        let removed = partitions.remove(&partition);
        if partitions.is_empty() {
            self.0.remove(&topic);
        }
        removed
    }

    pub(crate) fn is_subset_of(&self, other: &Self) -> bool {
        self.partitions()
            .all(|(topic, index)| other.contains(topic, index))
    }

    pub(crate) fn shares_any_with(&self, other: &Self) -> bool {
        self.partitions()
            .any(|(topic, index)| other.contains(topic, index))
    }
}

impl FromIterator<(TopicId, PartitionIndex)> for Assignment {
    fn from_iter<I: IntoIterator<Item = (TopicId, PartitionIndex)>>(partitions: I) -> Self {
        let mut assignment = Self::default();
        assignment.extend(partitions);
        assignment
    }
}

impl Extend<(TopicId, PartitionIndex)> for Assignment {
    fn extend<I: IntoIterator<Item = (TopicId, PartitionIndex)>>(&mut self, partitions: I) {
        for (topic, index) in partitions {
            self.insert(topic, index);
        }
    }
}
