//! Committed offsets: the store, and the requests about them.

mod commit;
mod delete;
mod expiry;
mod fetch;

pub(crate) use commit::commit_offsets;
pub(crate) use delete::{append_in_batches, delete_topics};
pub(crate) use fetch::View;

use std::collections::BTreeMap;

use crate::journal::Slot;
use crate::{AppendId, GroupId, OffsetAndMetadata, TopicPartition};

pub(crate) type GroupOffsets = BTreeMap<TopicPartition, Slot<OffsetAndMetadata>>;

/// The offsets of all groups. Offsets of open transactions will be a second store beside it, keyed by
/// producer, that moves here at the commit marker; [`Self::is_unstable`] is the question to ask it.
#[derive(Debug, Default)]
pub(crate) struct OffsetStore {
    groups: BTreeMap<GroupId, GroupOffsets>,
}

impl OffsetStore {
    pub(crate) fn group(&self, group: &GroupId) -> Option<&GroupOffsets> {
        self.groups.get(group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupId, &GroupOffsets)> {
        self.groups.iter()
    }

    /// The newest offset, durable or not.
    pub(crate) fn newest(
        &self,
        group: &GroupId,
        target: &TopicPartition,
    ) -> Option<&OffsetAndMetadata> {
        self.groups.get(group)?.get(target)?.newest()
    }

    pub(crate) fn newest_of<'a>(
        &'a self,
        group: &GroupId,
    ) -> impl Iterator<Item = (&'a TopicPartition, &'a OffsetAndMetadata)> {
        self.groups
            .get(group)
            .into_iter()
            .flatten()
            .filter_map(|(target, slot)| Some((target, slot.newest()?)))
    }

    pub(crate) fn has_durable(&self, group: &GroupId) -> bool {
        self.groups
            .get(group)
            .is_some_and(|offsets| offsets.values().any(|slot| slot.durable().is_some()))
    }

    pub(crate) fn stage(
        &mut self,
        id: AppendId,
        group: &GroupId,
        target: &TopicPartition,
        value: Option<OffsetAndMetadata>,
    ) {
        let offsets = self.groups.entry(group.clone()).or_default();
        offsets.entry(target.clone()).or_default().stage(id, value);
    }

    pub(crate) fn settle(
        &mut self,
        id: AppendId,
        group: &GroupId,
        target: &TopicPartition,
        durable: bool,
    ) {
        self.change(group, target, |slot| slot.settle(id, durable));
    }

    /// Takes over a value read from the log.
    pub(crate) fn load(
        &mut self,
        group: &GroupId,
        target: &TopicPartition,
        value: Option<OffsetAndMetadata>,
    ) {
        if value.is_some() {
            self.groups
                .entry(group.clone())
                .or_default()
                .entry(target.clone())
                .or_default();
        }
        self.change(group, target, |slot| slot.set_durable(value));
    }

    fn change(
        &mut self,
        group: &GroupId,
        target: &TopicPartition,
        change: impl FnOnce(&mut Slot<OffsetAndMetadata>),
    ) {
        let Some(offsets) = self.groups.get_mut(group) else {
            return;
        };
        if let Some(slot) = offsets.get_mut(target) {
            change(slot);
            if slot.is_unused() {
                offsets.remove(target);
            }
        }
        if offsets.is_empty() {
            self.groups.remove(group);
        }
    }
}
