//! What was taken in and isn't on its way yet, and the limits on what may be taken.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::ObjectWalOptions;
use crate::{AppendObserver, AppendRefused, Entry, FullCause, WalFailure};

/// About what an entry takes in memory beside its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// An entry taken in.
pub(super) struct Waiting {
    pub(super) entry: Entry,
    pub(super) observer: Arc<dyn AppendObserver>,
    pub(super) since: Instant,
}

impl Waiting {
    /// What it counts against the limit, until its observer is told.
    pub(super) fn cost(&self) -> u64 {
        cost(&self.entry)
    }

    fn object_bytes(&self) -> u64 {
        self.entry.batches.len() as u64
    }
}

fn cost(entry: &Entry) -> u64 {
    let checkpoint = entry.checkpoint.as_ref().map_or(0, |bytes| bytes.len());
    ENTRY_OVERHEAD_BYTES + (entry.batches.len() + checkpoint) as u64
}

enum Phase {
    Open,
    Closing,
    Ended(WalFailure),
}

pub(super) struct Intake {
    phase: Phase,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    /// Of all entries whose observers haven't been told.
    pending_bytes: u64,
    /// Objects below this are acknowledged …
    acknowledged: u64,
    /// … and below this committed.
    committed: u64,
    pending_limit: u64,
    uncommitted_limit: u64,
}

impl Intake {
    pub(super) fn new(options: &ObjectWalOptions, first_sequence: u64) -> Self {
        Self {
            phase: Phase::Open,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            pending_bytes: 0,
            acknowledged: first_sequence,
            committed: first_sequence,
            pending_limit: options.pending_bytes,
            uncommitted_limit: options.max_uncommitted_objects,
        }
    }

    /// Returns the pending bytes.
    pub(super) fn admit(
        &mut self,
        entry: Entry,
        observer: Arc<dyn AppendObserver>,
        now: Instant,
    ) -> Result<u64, AppendRefused> {
        match &self.phase {
            Phase::Open => {}
            Phase::Closing | Phase::Ended(WalFailure::Closed) => return Err(AppendRefused::Closed),
            Phase::Ended(failure) => return Err(AppendRefused::Failed(failure.clone())),
        }
        let cost = cost(&entry);
        if cost > self.pending_limit {
            return Err(AppendRefused::TooLarge {
                bytes: cost,
                limit_bytes: self.pending_limit,
            });
        }
        if self.pending_bytes + cost > self.pending_limit {
            return Err(AppendRefused::Full(FullCause::Pending));
        }
        if self.acknowledged - self.committed >= self.uncommitted_limit {
            return Err(AppendRefused::Full(FullCause::Capacity));
        }
        self.pending_bytes += cost;
        self.waiting_bytes += entry.batches.len() as u64;
        self.waiting.push_back(Waiting {
            entry,
            observer,
            since: now,
        });
        Ok(self.pending_bytes)
    }

    /// Takes the oldest entries, one at least if there are any, up to `max_bytes` of batches.
    pub(super) fn take(&mut self, max_bytes: u64) -> VecDeque<Waiting> {
        let mut taken = VecDeque::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            let next_bytes = next.object_bytes();
            if !taken.is_empty() && bytes + next_bytes > max_bytes {
                break;
            }
            bytes += next_bytes;
            taken.extend(self.waiting.pop_front());
        }
        self.waiting_bytes -= bytes;
        taken
    }

    /// Puts entries back where [`Intake::take`] took them.
    pub(super) fn give_back(&mut self, entries: VecDeque<Waiting>) {
        for entry in entries.into_iter().rev() {
            self.waiting_bytes += entry.object_bytes();
            self.waiting.push_front(entry);
        }
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.since)
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// An object's entries are durable.
    pub(super) fn acknowledge(&mut self, sequence: u64, cost: u64) -> u64 {
        self.acknowledged = sequence + 1;
        self.pending_bytes -= cost;
        self.pending_bytes
    }

    pub(super) fn committed(&mut self, sequence: u64) {
        self.committed = self.committed.max(sequence.min(self.acknowledged));
    }

    pub(super) fn close(&mut self) {
        if let Phase::Open = self.phase {
            self.phase = Phase::Closing;
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Takes nothing more, for ever; hands back what waits.
    pub(super) fn end(&mut self, failure: &WalFailure) -> VecDeque<Waiting> {
        if !matches!(self.phase, Phase::Ended(_)) {
            self.phase = Phase::Ended(failure.clone());
        }
        self.waiting_bytes = 0;
        self.pending_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    pub(super) fn available_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Open if self.acknowledged - self.committed < self.uncommitted_limit => {
                self.pending_limit - self.pending_bytes
            }
            Phase::Open | Phase::Closing | Phase::Ended(_) => 0,
        }
    }
}
