//! Committed offsets: the store, and the requests about them.

mod commit;
mod delete;
mod expiry;
mod fetch;
mod pending;
mod transactional;

pub(crate) use commit::commit_offsets;
pub(crate) use delete::{append_in_batches, delete_offsets, delete_topics};
pub(crate) use fetch::View;
use pending::PendingOffsets;
pub use transactional::{EndTransaction, Transaction, TransactionalCommitRequest};

use std::collections::BTreeMap;

use tidegate_types::ProducerId;

use crate::journal::{Slot, Write};
use crate::{AppendId, GroupId, OffsetAndMetadata, TopicPartition};

pub(crate) type GroupOffsets = BTreeMap<TopicPartition, Slot<OffsetAndMetadata>>;

/// The offsets of all groups.
#[derive(Debug, Default)]
pub(crate) struct OffsetStore {
    groups: BTreeMap<GroupId, GroupOffsets>,
    /// Those of open transactions, which come here when they are committed.
    pub(crate) pending: PendingOffsets,
}

impl OffsetStore {
    pub(crate) fn group(&self, group: &GroupId) -> Option<&GroupOffsets> {
        self.groups.get(group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupId, &GroupOffsets)> {
        self.groups.iter()
    }

    /// The newest offset, durable or not; if there is none, one of an open transaction.
    pub(crate) fn newest(
        &self,
        group: &GroupId,
        target: &TopicPartition,
    ) -> Option<&OffsetAndMetadata> {
        let committed = self.newest_committed(group, target);
        committed.or_else(|| self.pending.newest(group, target))
    }

    /// The newest offset outside of open transactions.
    pub(crate) fn newest_committed(
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

    /// The newest offsets that no open transaction is about to replace: these may expire.
    pub(crate) fn settled_of<'a>(
        &'a self,
        group: &'a GroupId,
    ) -> impl Iterator<Item = (&'a TopicPartition, &'a OffsetAndMetadata)> {
        self.newest_of(group)
            .filter(|(target, _)| !self.is_unstable(group, target))
    }

    /// Whether the log has an offset of the group, be it one of an open transaction.
    pub(crate) fn has_durable(&self, group: &GroupId) -> bool {
        self.pending.holds_group(group)
            || self
                .groups
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
        let is_tombstone = self.change(group, target, |slot| {
            slot.settle(id, durable);
            slot.durable().is_none()
        });
        if durable && is_tombstone == Some(true) {
            self.pending.forget(group, target);
        }
    }

    /// Takes over a value read from the log. `written` puts it in order with all others.
    pub(crate) fn load(
        &mut self,
        group: &GroupId,
        target: &TopicPartition,
        value: Option<OffsetAndMetadata>,
        written: AppendId,
    ) {
        if value.is_none() {
            self.pending.forget(group, target);
        } else {
            self.groups
                .entry(group.clone())
                .or_default()
                .entry(target.clone())
                .or_default();
        }
        self.change(group, target, |slot| slot.set_written(value, written));
    }

    /// Tombstones for what only open transactions have of a group.
    pub(crate) fn forget_pending(&self, group: &GroupId) -> Vec<Write> {
        self.pending
            .targets(group)
            .filter(|target| self.newest_committed(group, target).is_none())
            .map(|target| Write::Offset(group.clone(), target.clone(), None))
            .collect()
    }

    /// A producer's transaction has ended, durably. Answers the groups whose offsets it committed.
    pub(crate) fn end_transaction(&mut self, producer: ProducerId, commit: bool) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for ended in self.pending.end(producer).into_iter().filter(|_| commit) {
            let offsets = self.groups.entry(ended.group.clone()).or_default();
            let slot = offsets.entry(ended.target).or_default();
            // An offset that was committed outside, and later, stays.
            slot.supersede(ended.value, ended.written);
            groups.push(ended.group);
        }
        groups.dedup();
        groups
    }

    fn change<R>(
        &mut self,
        group: &GroupId,
        target: &TopicPartition,
        change: impl FnOnce(&mut Slot<OffsetAndMetadata>) -> R,
    ) -> Option<R> {
        let offsets = self.groups.get_mut(group)?;
        let result = offsets.get_mut(target).map(|slot| {
            let result = change(slot);
            (result, slot.is_unused())
        });
        if let Some((_, true)) = result {
            offsets.remove(target);
        }
        if offsets.is_empty() {
            self.groups.remove(group);
        }
        result.map(|(result, _)| result)
    }
}
