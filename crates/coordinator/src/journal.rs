//! What the log holds, what is on its way there, and who waits for it.
//!
//! Every value has a durable state and the values of appends that are still pending. Rules look at the newest
//! one, so that two requests in a row see each other; readers and exports see the durable one.

mod slot;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub(crate) use slot::Slot;

use crate::context::Waiter;
use crate::offsets::OffsetStore;
use crate::records::{ConsumerKey, RecordKey, encode_key, encode_offset};
use crate::timers::{Timer, Timers};
use crate::{
    AppendId, Effect, EndTransaction, GroupConfig, GroupId, Now, OffsetAndMetadata, Record,
    TopicPartition, Transaction,
};

/// A change of one value.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Group(GroupId, Option<Bytes>),
    /// Of a consumer group.
    Consumer(GroupId, ConsumerKey, Option<Bytes>),
    Offset(GroupId, TopicPartition, Option<OffsetAndMetadata>),
}

impl Write {
    fn record(&self) -> Record {
        match self {
            Self::Group(group, value) => Record {
                key: encode_key(&RecordKey::Group(group.clone())),
                value: value.clone(),
            },
            Self::Consumer(group, key, value) => Record {
                key: encode_key(&RecordKey::Consumer(group.clone(), key.clone())),
                value: value.clone(),
            },
            Self::Offset(group, target, value) => Record {
                key: encode_key(&RecordKey::Offset(group.clone(), target.clone())),
                value: value.as_ref().map(encode_offset),
            },
        }
    }
}

/// What an append is to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Plain,
    /// Its offsets belong to a transaction that is open.
    Transactional(Transaction),
    Marker(EndTransaction),
}

/// An append that the host hasn't reported on.
#[derive(Debug)]
pub(crate) struct PendingAppend {
    kind: Kind,
    keys: Vec<RecordKey>,
    pub(crate) waiters: Vec<Waiter>,
}

/// An append that has ended.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) waiters: Vec<Waiter>,
    /// Those it wrote of.
    pub(crate) groups: BTreeSet<GroupId>,
    /// Those of them whose consumer records it wrote.
    pub(crate) consumer_groups: BTreeSet<GroupId>,
    /// Those whose offsets a transaction has committed by it.
    pub(crate) committed: Vec<GroupId>,
}

/// All values of the partition and its pending appends.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Encoded group metadata, as the log has it. The live group is ahead of it during a rebalance.
    pub(crate) groups: BTreeMap<GroupId, Slot<Bytes>>,
    consumer: BTreeMap<GroupId, BTreeMap<ConsumerKey, Slot<Bytes>>>,
    pub(crate) offsets: OffsetStore,
    pending: BTreeMap<AppendId, PendingAppend>,
    next: AppendId,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            groups: BTreeMap::new(),
            consumer: BTreeMap::new(),
            offsets: OffsetStore::default(),
            pending: BTreeMap::new(),
            next: AppendId::FIRST,
        }
    }

    /// A place in the order of all writes, for a record that is replayed.
    pub(crate) fn replayed(&mut self) -> AppendId {
        let id = self.next;
        self.next = id.next();
        id
    }

    /// Stages the writes as one append. `waiters` are served when the host reports it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a context, which borrows this journal"
    )]
    pub(crate) fn append(
        &mut self,
        now: Now,
        config: &GroupConfig,
        timers: &mut Timers,
        effects: &mut Vec<Effect>,
        kind: Kind,
        writes: Vec<Write>,
        waiters: Vec<Waiter>,
    ) -> AppendId {
        let id = self.next;
        self.next = id.next();
        let mut records = Vec::with_capacity(writes.len());
        let mut keys = Vec::with_capacity(writes.len());
        for write in writes {
            records.push(write.record());
            match write {
                Write::Group(group, value) => {
                    self.groups
                        .entry(group.clone())
                        .or_default()
                        .stage(id, value);
                    keys.push(RecordKey::Group(group));
                }
                Write::Consumer(group, key, value) => {
                    let records = self.consumer.entry(group.clone()).or_default();
                    records.entry(key.clone()).or_default().stage(id, value);
                    keys.push(RecordKey::Consumer(group, key));
                }
                Write::Offset(group, target, value) => {
                    match (kind, value) {
                        (Kind::Transactional(of), Some(value)) => {
                            let pending = &mut self.offsets.pending;
                            pending.stage(id, of.producer, &group, &target, value);
                        }
                        (_, value) => self.offsets.stage(id, &group, &target, value),
                    }
                    keys.push(RecordKey::Offset(group, target));
                }
            }
        }
        let append = PendingAppend {
            kind,
            keys,
            waiters,
        };
        self.pending.insert(id, append);
        let timeout = u64::from(config.offset_commit_timeout_ms);
        timers.schedule(Timer::Append(id), now.monotonic_ms.saturating_add(timeout));
        let at = now.wall;
        effects.push(match kind {
            Kind::Plain => Effect::Append { id, at, records },
            Kind::Transactional(transaction) => Effect::AppendTransactional {
                id,
                at,
                records,
                transaction,
            },
            Kind::Marker(end) => Effect::AppendMarker { id, end },
        });
        id
    }

    /// Applies or drops what the append staged. `None` if it isn't pending.
    pub(crate) fn settle(&mut self, id: AppendId, durable: bool) -> Option<Settled> {
        let append = self.pending.remove(&id)?;
        let mut groups = BTreeSet::new();
        let mut consumer_groups = BTreeSet::new();
        for key in append.keys {
            let group = match key {
                RecordKey::Group(group) => {
                    if let Some(slot) = self.groups.get_mut(&group) {
                        slot.settle(id, durable);
                        if slot.is_unused() {
                            self.groups.remove(&group);
                        }
                    }
                    group
                }
                RecordKey::Consumer(group, key) => {
                    self.change_consumer(&group, &key, |slot| slot.settle(id, durable));
                    consumer_groups.insert(group.clone());
                    group
                }
                RecordKey::Offset(group, target) => {
                    match append.kind {
                        Kind::Transactional(of) => {
                            let pending = &mut self.offsets.pending;
                            pending.settle(id, of.producer, &group, &target, durable);
                        }
                        Kind::Plain | Kind::Marker(_) => {
                            self.offsets.settle(id, &group, &target, durable);
                        }
                    }
                    group
                }
            };
            groups.insert(group);
        }
        let committed = match append.kind {
            Kind::Marker(end) if durable => self.offsets.end_transaction(end.producer, end.commit),
            Kind::Marker(_) | Kind::Plain | Kind::Transactional(_) => Vec::new(),
        };
        Some(Settled {
            waiters: append.waiters,
            groups,
            consumer_groups,
            committed,
        })
    }

    pub(crate) fn pending(&mut self, id: AppendId) -> Option<&mut PendingAppend> {
        self.pending.get_mut(&id)
    }

    /// All that wait for any append.
    pub(crate) fn waiters_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.pending
            .values_mut()
            .flat_map(|append| &mut append.waiters)
    }

    pub(crate) fn newest_pending(&self) -> Option<AppendId> {
        self.pending.last_key_value().map(|(id, _)| *id)
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Gives up all pending appends; for the end of the coordinator.
    pub(crate) fn abandon(&mut self) -> Vec<Waiter> {
        let pending = std::mem::take(&mut self.pending);
        pending
            .into_values()
            .flat_map(|append| append.waiters)
            .collect()
    }

    /// Whether the log is known to hold the group.
    pub(crate) fn is_durable(&self, group: &GroupId) -> bool {
        self.groups
            .get(group)
            .is_some_and(|slot| slot.durable().is_some())
            || self.offsets.has_durable(group)
            || self
                .consumer
                .get(group)
                .is_some_and(|records| records.values().any(|slot| slot.durable().is_some()))
    }

    fn change_consumer(
        &mut self,
        group: &GroupId,
        key: &ConsumerKey,
        change: impl FnOnce(&mut Slot<Bytes>),
    ) {
        let Some(records) = self.consumer.get_mut(group) else {
            return;
        };
        if let Some(slot) = records.get_mut(key) {
            change(slot);
            if slot.is_unused() {
                records.remove(key);
            }
        }
        if records.is_empty() {
            self.consumer.remove(group);
        }
    }

    /// Takes over a consumer group's record read from the log.
    pub(crate) fn load_consumer(
        &mut self,
        group: GroupId,
        key: &ConsumerKey,
        value: Option<Bytes>,
    ) {
        if value.is_some() {
            let records = self.consumer.entry(group.clone()).or_default();
            records.entry(key.clone()).or_default();
        }
        self.change_consumer(&group, key, |slot| slot.set_durable(value));
    }

    /// The groups that have consumer records.
    pub(crate) fn consumer_groups(&self) -> impl Iterator<Item = &GroupId> {
        self.consumer.keys()
    }

    /// The newest value of each record of a consumer group.
    pub(crate) fn consumer_records(&self, group: &GroupId) -> Vec<(ConsumerKey, Bytes)> {
        let records = self.consumer.get(group).into_iter().flatten();
        records
            .filter_map(|(key, slot)| Some((key.clone(), slot.newest()?.clone())))
            .collect()
    }

    pub(crate) fn has_consumer_group(&self, group: &GroupId) -> bool {
        self.consumer
            .get(group)
            .is_some_and(|records| records.values().any(|slot| slot.newest().is_some()))
    }

    /// Tombstones for all that the log has, or is getting, of a consumer group.
    pub(crate) fn forget_consumer_group(&self, group: &GroupId) -> Vec<Write> {
        self.consumer_records(group)
            .into_iter()
            .map(|(key, _)| Write::Consumer(group.clone(), key, None))
            .collect()
    }

    /// What the log is known to hold of consumer groups.
    pub(crate) fn durable_consumer_records(
        &self,
    ) -> impl Iterator<Item = (&GroupId, &ConsumerKey, &Bytes)> {
        self.consumer.iter().flat_map(|(group, records)| {
            records
                .iter()
                .filter_map(move |(key, slot)| Some((group, key, slot.durable()?)))
        })
    }

    #[cfg(test)]
    pub(crate) fn assert_settled(&self) {
        assert!(self.groups.values().all(Slot::is_settled));
        for records in self.consumer.values() {
            assert!(records.values().all(Slot::is_settled));
        }
        for (_, offsets) in self.offsets.iter() {
            assert!(offsets.values().all(Slot::is_settled));
        }
    }
}
