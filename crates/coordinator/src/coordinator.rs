//! The state machine itself: one input at a time, effects out.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_types::ProducerId;

use crate::classic::ClassicGroup;
use crate::cluster_view::NothingSeen;
use crate::consumer::ConsumerGroup;
use crate::context::Context;
use crate::journal::Journal;
use crate::records::{RecordKey, decode_key, decode_offset, encode_key, encode_offset};
use crate::timers::{Timer, Timers};
use crate::{ClusterView, Effect, GroupConfig, GroupError, GroupId, Now, Record, RecordError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    Active,
    Unloaded,
}

/// The groups of one partition of `__consumer_offsets`. See the crate's page for how to drive it.
#[derive(Debug)]
pub struct GroupCoordinator {
    pub(crate) config: GroupConfig,
    pub(crate) phase: Phase,
    pub(crate) groups: BTreeMap<GroupId, ClassicGroup>,
    /// A group is in this map or in the one above.
    pub(crate) consumer_groups: BTreeMap<GroupId, ConsumerGroup>,
    pub(crate) view: Arc<dyn ClusterView>,
    /// Raised with each view.
    pub(crate) view_version: u64,
    pub(crate) journal: Journal,
    pub(crate) timers: Timers,
    pub(crate) effects: Vec<Effect>,
    skipped_records: u64,
}

/// A context for `$self` that leaves `$self.groups` free to borrow.
macro_rules! context {
    ($self:ident, $now:expr) => {
        crate::context::Context {
            now: $now,
            config: &$self.config,
            timers: &mut $self.timers,
            journal: &mut $self.journal,
            effects: &mut $self.effects,
        }
    };
}
pub(crate) use context;

impl GroupCoordinator {
    /// A coordinator that is loading: feed it the log with [`Self::replay`], then call [`Self::loaded`].
    pub fn new(config: GroupConfig) -> Self {
        Self {
            config,
            phase: Phase::Loading,
            groups: BTreeMap::new(),
            consumer_groups: BTreeMap::new(),
            view: Arc::new(NothingSeen),
            view_version: 0,
            journal: Journal::new(),
            timers: Timers::default(),
            effects: Vec::new(),
            skipped_records: 0,
        }
    }

    /// Takes in one record of the log, in the order of offsets. Records of types that this build doesn't know
    /// are skipped and counted. Control batches are not records.
    ///
    /// # Errors
    /// The record is damaged or of a newer version; the partition must not be served from what was loaded.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), RecordError> {
        match decode_key(key)? {
            None => self.skipped_records += 1,
            Some(RecordKey::Group(group)) => match value {
                Some(value) => {
                    let slot = self.journal.groups.entry(group).or_default();
                    slot.set_durable(Some(bytes::Bytes::copy_from_slice(value)));
                }
                None => {
                    self.journal.groups.remove(&group);
                }
            },
            Some(RecordKey::Consumer(group, key)) => {
                let value = value.map(bytes::Bytes::copy_from_slice);
                self.journal.load_consumer(group, &key, value);
            }
            Some(RecordKey::Offset(group, target)) => {
                let value = value.map(decode_offset).transpose()?;
                let written = self.journal.replayed();
                self.journal.offsets.load(&group, &target, value, written);
            }
        }
        Ok(())
    }

    /// Takes in one record of a batch that belongs to a producer's transaction: its offset counts once a marker
    /// says so.
    ///
    /// # Errors
    /// As for [`Self::replay`].
    pub fn replay_transactional(
        &mut self,
        producer: ProducerId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), RecordError> {
        match (decode_key(key)?, value) {
            (Some(RecordKey::Offset(group, target)), Some(value)) => {
                let value = decode_offset(value)?;
                let written = self.journal.replayed();
                let pending = &mut self.journal.offsets.pending;
                pending.load(producer, &group, &target, value, written);
                Ok(())
            }
            _ => self.replay(key, value),
        }
    }

    /// Takes in a transaction marker.
    pub fn replay_marker(&mut self, producer: ProducerId, commit: bool) {
        self.journal.offsets.end_transaction(producer, commit);
    }

    /// Ends loading. The sessions of all members start now, whatever time the log is from.
    ///
    /// # Errors
    /// As for [`Self::replay`]; the coordinator stays in loading.
    pub fn loaded(&mut self, now: Now) -> Result<Vec<Effect>, RecordError> {
        if self.phase != Phase::Loading {
            return Ok(Vec::new());
        }
        let mut consumer_groups = BTreeMap::new();
        for id in self.journal.consumer_groups() {
            let records = self.journal.consumer_records(id);
            consumer_groups.insert(
                id.clone(),
                ConsumerGroup::from_records(id.clone(), records)?,
            );
        }
        let mut groups = BTreeMap::new();
        for (id, slot) in &self.journal.groups {
            if let Some(value) = slot.durable()
                && !consumer_groups.contains_key(id)
            {
                groups.insert(id.clone(), ClassicGroup::decode(id.clone(), value, now)?);
            }
        }
        for (id, _) in self.journal.offsets.iter() {
            if consumer_groups.contains_key(id) {
                continue;
            }
            groups
                .entry(id.clone())
                .or_insert_with(|| ClassicGroup::new(id.clone(), now));
        }
        for id in self.journal.offsets.pending.groups() {
            if consumer_groups.contains_key(id) {
                continue;
            }
            let new = || ClassicGroup::new(id.clone(), now);
            groups.entry(id.clone()).or_insert_with(new);
        }
        self.groups = groups;
        self.consumer_groups = consumer_groups;
        self.phase = Phase::Active;
        for id in self.consumer_groups.keys().cloned().collect::<Vec<_>>() {
            self.start_consumer_timers(now, &id);
        }
        let mut cx = context!(self, now);
        cx.schedule(Timer::Expiry, cx.config.offsets_retention_check_interval_ms);
        for group in self.groups.values_mut() {
            for id in group.members.keys() {
                group.renew_session(&mut cx, id);
            }
            if group.members.len() > cx.config.max_group_size {
                let reason = format!(
                    "loaded with {} members, more than allowed",
                    group.members.len()
                );
                group.prepare_rebalance(&mut cx, reason);
            }
        }
        Ok(self.take_effects())
    }

    /// The partition is no longer led here, or is about to be closed. Everyone who waits is told
    /// NOT_COORDINATOR; so is every later request.
    pub fn unload(&mut self, now: Now) -> Vec<Effect> {
        self.phase = Phase::Unloaded;
        let mut groups = std::mem::take(&mut self.groups);
        self.consumer_groups.clear();
        let waiters = self.journal.abandon();
        let mut cx = context!(self, now);
        for group in groups.values_mut() {
            group.close(&mut cx, &GroupError::NotCoordinator);
        }
        for waiter in waiters {
            if let crate::context::Waiter::Reply(token, reply) = waiter {
                cx.reply(token, reply.failed(GroupError::NotCoordinator));
            }
        }
        self.timers.clear();
        self.journal = Journal::new();
        self.take_effects()
    }

    /// What the log is known to hold, as the fewest records that rebuild it. A rebalance that is under way is not in
    /// it, as it isn't in the log; nor are the offsets of open transactions, which plain records can't carry.
    pub fn export(&self) -> Vec<Record> {
        let groups = self.journal.groups.iter().filter_map(|(id, slot)| {
            Some(Record {
                key: encode_key(&RecordKey::Group(id.clone())),
                value: Some(slot.durable()?.clone()),
            })
        });
        let offsets = self.journal.offsets.iter().flat_map(|(id, offsets)| {
            offsets.iter().filter_map(|(target, slot)| {
                Some(Record {
                    key: encode_key(&RecordKey::Offset(id.clone(), target.clone())),
                    value: Some(encode_offset(slot.durable()?)),
                })
            })
        });
        let consumers = self.journal.durable_consumer_records();
        let consumers = consumers.map(|(group, key, value)| Record {
            key: encode_key(&RecordKey::Consumer(group.clone(), key.clone())),
            value: Some(value.clone()),
        });
        groups.chain(consumers).chain(offsets).collect()
    }

    /// When to call [`Self::tick`] next, on the monotonic clock. `None` while nothing can come due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline()
    }

    /// Does all that has come due.
    pub fn tick(&mut self, now: Now) -> Vec<Effect> {
        while let Some(timer) = self.timers.take_due(now.monotonic_ms) {
            self.fire(now, timer);
        }
        self.take_effects()
    }

    fn fire(&mut self, now: Now, timer: Timer) {
        match timer {
            Timer::Session(group, member) if self.consumer_groups.contains_key(&group) => {
                self.consumer_session_expired(now, &group, &member);
            }
            Timer::Revocation(group, member) => self.revocation_time_is_up(now, &group, &member),
            Timer::ClassicJoin(group, member) => {
                self.classic_join_time_is_up(now, &group, &member);
            }
            Timer::ClassicSync(group, member) => {
                self.classic_sync_time_is_up(now, &group, &member);
            }
            Timer::Session(group, member) => {
                self.with_group(now, &group, |group, cx| group.session_expired(cx, &member));
            }
            Timer::Join(group) => {
                self.with_group(now, &group, |group, cx| group.join_time_is_up(cx));
            }
            Timer::Sync(group) => {
                self.with_group(now, &group, |group, cx| group.sync_time_is_up(cx));
            }
            Timer::Append(id) => self.append_timed_out(now, id),
            Timer::Expiry => self.expire(now),
        }
    }

    /// Records skipped while loading because their type is not known.
    pub fn skipped_records(&self) -> u64 {
        self.skipped_records
    }

    /// Groups held, for metrics.
    pub fn group_count(&self) -> usize {
        self.groups.len() + self.consumer_groups.len()
    }

    /// Appends that the host hasn't reported on, for metrics.
    pub fn pending_append_count(&self) -> usize {
        self.journal.pending_count()
    }

    pub(crate) fn serving(&self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Loading => Err(GroupError::CoordinatorLoadInProgress),
            Phase::Active => Ok(()),
            Phase::Unloaded => Err(GroupError::NotCoordinator),
        }
    }

    pub(crate) fn with_group<R>(
        &mut self,
        now: Now,
        id: &GroupId,
        act: impl FnOnce(&mut ClassicGroup, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(id)?;
        let mut cx = context!(self, now);
        Some(act(group, &mut cx))
    }

    #[must_use]
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
