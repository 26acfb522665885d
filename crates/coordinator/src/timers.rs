//! Deadlines, one per key, kept in order.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AppendId, GroupId, MemberId};

/// What a deadline is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A member, or one that was given its id and hasn't joined with it yet.
    Session(GroupId, MemberId),
    Join(GroupId),
    Sync(GroupId),
    /// A consumer group's member that must give partitions up.
    Revocation(GroupId, MemberId),
    /// A consumer group's member of the classic protocol that was told to join.
    ClassicJoin(GroupId, MemberId),
    /// One that has joined and must sync.
    ClassicSync(GroupId, MemberId),
    Append(AppendId),
    Expiry,
}

/// Scheduling a key again moves its deadline.
#[derive(Debug)]
pub(crate) struct Timers<T = Timer> {
    by_time: BTreeSet<(u64, T)>,
    by_timer: BTreeMap<T, u64>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_timer: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> Timers<T> {
    pub(crate) fn schedule(&mut self, timer: T, at_ms: u64) {
        if let Some(earlier) = self.by_timer.insert(timer.clone(), at_ms) {
            self.by_time.remove(&(earlier, timer.clone()));
        }
        self.by_time.insert((at_ms, timer));
    }

    pub(crate) fn cancel(&mut self, timer: &T) {
        if let Some(at) = self.by_timer.remove(timer) {
            self.by_time.remove(&(at, timer.clone()));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer whose deadline has come.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<T> {
        if self.next_deadline()? > now_ms {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.by_timer.remove(&timer);
        Some(timer)
    }

    pub(crate) fn clear(&mut self) {
        self.by_time.clear();
        self.by_timer.clear();
    }

    pub(crate) fn contains(&self, timer: &T) -> bool {
        self.by_timer.contains_key(timer)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_timer.keys()
    }
}
