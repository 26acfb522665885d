//! Rows being changed by one command: partitions and objects as they will be, so that steps of one command
//! see each other.

use std::collections::BTreeMap;

use tidegate_types::{BrokerId, DurabilityMode, LeaderEpoch, Offset, PartitionId, TimestampMs};

use super::{Change, Facts, State};
use crate::keys::SegmentKey;
use crate::model::{EpochStart, StoredObjectKey, WalIdentity};
use crate::rows::{ObjectRow, PartitionRow, SegmentRow};

/// The object's last reference is gone, so nothing may refer to it again (invariant I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectDropped;

/// Cloned to be able to go back to this step.
#[derive(Clone)]
pub(crate) struct Workspace<'a> {
    state: &'a State,
    facts: &'a Facts,
    now: TimestampMs,
    partitions: BTreeMap<PartitionId, PartitionRow>,
    /// References as they will be; objects with none are dropped at the end.
    objects: BTreeMap<StoredObjectKey, ObjectRow>,
    changes: Vec<Change>,
}

impl<'a> Workspace<'a> {
    pub(crate) fn new(state: &'a State, facts: &'a Facts, now: TimestampMs) -> Self {
        Self {
            state,
            facts,
            now,
            partitions: BTreeMap::new(),
            objects: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&PartitionRow> {
        self.partitions
            .get(&id)
            .or_else(|| self.state.partition(id))
    }

    /// The row to change, if there is such a partition.
    pub(crate) fn edit(&mut self, id: PartitionId) -> Option<&mut PartitionRow> {
        match self.partitions.entry(id) {
            std::collections::btree_map::Entry::Occupied(row) => Some(row.into_mut()),
            std::collections::btree_map::Entry::Vacant(slot) => {
                Some(slot.insert(self.state.partition(id)?.clone()))
            }
        }
    }

    /// The controller's time of this change.
    pub(crate) fn now(&self) -> TimestampMs {
        self.now
    }

    /// What is known of an object, at this step.
    pub(crate) fn object(&self, key: &StoredObjectKey) -> Option<ObjectRow> {
        let changed = self.objects.get(key).copied();
        changed.or_else(|| self.facts.object(key))
    }

    pub(crate) fn check_referable(&self, key: &StoredObjectKey) -> Result<(), ObjectDropped> {
        match self.facts.object(key) {
            Some(ObjectRow {
                dropped_at: Some(_),
                ..
            }) => Err(ObjectDropped),
            _ => Ok(()),
        }
    }

    /// Adds a reference. [`Workspace::check_referable`] comes first.
    pub(crate) fn refer(&mut self, key: &StoredObjectKey, size_bytes: u64) {
        let row = self.object(key).unwrap_or(ObjectRow {
            size_bytes,
            references: 0,
            dropped_at: None,
        });
        self.objects.insert(
            key.clone(),
            ObjectRow {
                references: row.references + 1,
                ..row
            },
        );
    }

    /// Takes a reference away. An object that isn't known is left alone: it was forgotten already.
    pub(crate) fn release(&mut self, key: &StoredObjectKey) {
        if let Some(row) = self.object(key) {
            self.objects.insert(
                key.clone(),
                ObjectRow {
                    references: row.references.saturating_sub(1),
                    ..row
                },
            );
        }
    }

    /// Makes an object known that nothing refers to, so that it is deleted after the grace period.
    pub(crate) fn drop_unreferenced(&mut self, key: &StoredObjectKey, size_bytes: u64) {
        if self.object(key).is_none() {
            self.objects.insert(
                key.clone(),
                ObjectRow {
                    size_bytes,
                    references: 0,
                    dropped_at: None,
                },
            );
        }
    }

    pub(crate) fn put_segment(&mut self, key: SegmentKey, row: SegmentRow) {
        self.changes.push(Change::Segment(key, Some(row)));
    }

    /// Drops segments and their references.
    pub(crate) fn drop_segments(&mut self, segments: &[(SegmentKey, SegmentRow)]) {
        for (key, row) in segments {
            self.release(&row.object);
            self.changes.push(Change::Segment(*key, None));
        }
    }

    /// The needs of dropping these segments.
    pub(crate) fn objects_of(segments: &[(SegmentKey, SegmentRow)]) -> Vec<super::Need> {
        segments
            .iter()
            .map(|(_, row)| super::Need::Object(row.object.clone()))
            .collect()
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        let mut changes = self.changes;
        for (id, row) in self.partitions {
            if self.state.partition(id) != Some(&row) {
                changes.push(Change::Partition(id, Some(row)));
            }
        }
        for (key, mut row) in self.objects {
            let before = self.facts.object(&key);
            if row.references == 0 && row.dropped_at.is_none() {
                row.dropped_at = Some(self.now);
                changes.push(Change::Dropped(self.now, key.clone(), true));
            }
            if before != Some(row) {
                changes.push(Change::Object(key, Some(row)));
            }
        }
        changes
    }
}

impl PartitionRow {
    /// Where the records of a leader epoch end for ever: the start of the next one. `None` for the current.
    pub(crate) fn sealed_end(&self, epoch: LeaderEpoch) -> Option<Offset> {
        self.epochs
            .iter()
            .find(|entry| entry.epoch > epoch)
            .map(|entry| entry.start)
    }

    /// Gives the partition a leader under the next leader epoch. `wal` is the leader's local WAL, in which it
    /// holds whatever lies between the committed end and `start`.
    pub(crate) fn lead(
        &mut self,
        leader: BrokerId,
        wal: Option<WalIdentity>,
        start: Offset,
        mode: DurabilityMode,
    ) {
        let epoch = if self.epochs.is_empty() {
            self.leader_epoch
        } else {
            self.leader_epoch.next()
        };
        let all_uploaded = start <= self.committed_end;
        self.leader = Some(leader);
        self.begin_epoch(epoch, start);
        self.wal = match mode {
            DurabilityMode::Local => wal,
            // It was `local` before: the WAL still holds what isn't uploaded.
            DurabilityMode::Object if !all_uploaded => wal,
            DurabilityMode::Object => None,
        };
    }

    /// An offset that the log is known to have reached, whatever was found of it.
    pub(crate) fn known_reach(&self) -> Offset {
        self.epochs
            .last()
            .map_or(self.log_start, |last| last.start.max(self.log_start))
    }

    /// Enters a leader epoch into the history. Epochs without records leave no trace (KIP-101).
    pub(crate) fn begin_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.epochs.retain(|entry| entry.start < start);
        self.epochs.push(EpochStart { epoch, start });
        self.leader_epoch = epoch;
    }

    /// Moves the log start and forgets leader epochs that end at or below it.
    pub(crate) fn raise_log_start(&mut self, start: Offset) {
        self.log_start = start;
        let covering = self
            .epochs
            .iter()
            .rposition(|entry| entry.start <= start)
            .unwrap_or(0);
        self.epochs.drain(..covering);
    }
}
