//! Offsets of open transactions: committed when a marker says so, forgotten when it says otherwise (KIP-98).
//!
//! They lie in the log as other offsets do, in batches that carry their producer. A tombstone for the partition takes
//! them along. Until the marker is durable they count as open, so a fetch of stable offsets (KIP-447) is told to wait.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::ProducerId;

use crate::journal::Slot;
use crate::{AppendId, GroupId, OffsetAndMetadata, TopicPartition};

/// The offset of each open transaction for one partition of one group.
type Producers = BTreeMap<ProducerId, Slot<OffsetAndMetadata>>;

/// An offset whose transaction has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) group: GroupId,
    pub(crate) target: TopicPartition,
    pub(crate) value: OffsetAndMetadata,
    /// The append that brought it, to tell which of two offsets is newer.
    pub(crate) written: AppendId,
}

/// The offsets of all open transactions.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets {
    groups: BTreeMap<GroupId, BTreeMap<TopicPartition, Producers>>,
    /// Where each producer has some.
    places: BTreeMap<ProducerId, BTreeSet<(GroupId, TopicPartition)>>,
}

impl PendingOffsets {
    /// Whether an open transaction has an offset for the partition, durable or on its way.
    pub(crate) fn holds(&self, group: &GroupId, target: &TopicPartition) -> bool {
        self.groups
            .get(group)
            .is_some_and(|targets| targets.contains_key(target))
    }

    /// One of those that open transactions have for the partition.
    pub(crate) fn newest(
        &self,
        group: &GroupId,
        target: &TopicPartition,
    ) -> Option<&OffsetAndMetadata> {
        let producers = self.groups.get(group)?.get(target)?;
        producers.values().find_map(Slot::newest)
    }

    /// Whether an open transaction has an offset for the group.
    pub(crate) fn holds_group(&self, group: &GroupId) -> bool {
        self.groups.contains_key(group)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &GroupId> {
        self.groups.keys()
    }

    pub(crate) fn targets<'a>(
        &'a self,
        group: &GroupId,
    ) -> impl Iterator<Item = &'a TopicPartition> {
        self.groups.get(group).into_iter().flat_map(BTreeMap::keys)
    }

    /// Every offset, with its group and partition.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (&GroupId, &TopicPartition, &OffsetAndMetadata)> {
        self.groups.iter().flat_map(|(group, targets)| {
            targets.iter().flat_map(move |(target, producers)| {
                producers
                    .values()
                    .filter_map(move |slot| Some((group, target, slot.newest()?)))
            })
        })
    }

    pub(crate) fn stage(
        &mut self,
        id: AppendId,
        producer: ProducerId,
        group: &GroupId,
        target: &TopicPartition,
        value: OffsetAndMetadata,
    ) {
        self.slot(producer, group, target).stage(id, Some(value));
    }

    pub(crate) fn settle(
        &mut self,
        id: AppendId,
        producer: ProducerId,
        group: &GroupId,
        target: &TopicPartition,
        durable: bool,
    ) {
        self.change(producer, group, target, |slot| slot.settle(id, durable));
    }

    /// Takes over a value read from the log.
    pub(crate) fn load(
        &mut self,
        producer: ProducerId,
        group: &GroupId,
        target: &TopicPartition,
        value: OffsetAndMetadata,
        written: AppendId,
    ) {
        self.slot(producer, group, target)
            .set_written(Some(value), written);
    }

    /// A tombstone for the partition is durable. What is on its way comes behind it, and stays.
    pub(crate) fn forget(&mut self, group: &GroupId, target: &TopicPartition) {
        let producers = self.groups.get(group).and_then(|t| t.get(target));
        let producers: Vec<ProducerId> = producers.into_iter().flatten().map(|(p, _)| *p).collect();
        for producer in producers {
            self.change(producer, group, target, |slot| {
                slot.take_durable();
            });
        }
    }

    /// The producer's marker is durable: takes out what was before it. What is on its way belongs to the producer's
    /// next transaction.
    pub(crate) fn end(&mut self, producer: ProducerId) -> Vec<Ended> {
        let places = self.places.get(&producer).cloned().unwrap_or_default();
        let mut ended = Vec::with_capacity(places.len());
        for (group, target) in places {
            let taken = self.change(producer, &group, &target, Slot::take_durable);
            if let Some((value, written)) = taken.flatten() {
                ended.push(Ended {
                    group,
                    target,
                    value,
                    written,
                });
            }
        }
        ended
    }

    fn slot(
        &mut self,
        producer: ProducerId,
        group: &GroupId,
        target: &TopicPartition,
    ) -> &mut Slot<OffsetAndMetadata> {
        let place = (group.clone(), target.clone());
        self.places.entry(producer).or_default().insert(place);
        let targets = self.groups.entry(group.clone()).or_default();
        let producers = targets.entry(target.clone()).or_default();
        producers.entry(producer).or_default()
    }

    /// Changes one value; places that are left empty go.
    fn change<R>(
        &mut self,
        producer: ProducerId,
        group: &GroupId,
        target: &TopicPartition,
        change: impl FnOnce(&mut Slot<OffsetAndMetadata>) -> R,
    ) -> Option<R> {
        let targets = self.groups.get_mut(group)?;
        let producers = targets.get_mut(target)?;
        let slot = producers.get_mut(&producer)?;
        let result = change(slot);
        if slot.is_unused() {
            producers.remove(&producer);
            if producers.is_empty() {
                targets.remove(target);
            }
            if targets.is_empty() {
                self.groups.remove(group);
            }
            if let Some(places) = self.places.get_mut(&producer) {
                places.remove(&(group.clone(), target.clone()));
                if places.is_empty() {
                    self.places.remove(&producer);
                }
            }
        }
        Some(result)
    }
}
