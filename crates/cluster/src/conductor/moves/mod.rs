//! The mover: carries out every stored wish that a partition be led by another broker (DESIGN, section 6).
//!
//! ```text
//! waiting ──► preparing ──► sealing ──► done
//!    ▲            │            │
//!    └── pause ◄──┴── undoing ◄┘   (unseal at the source, discard at the target)
//! ```
//!
//! [`Table`] holds what is wanted and where it stands, and is changed under a lock that is never held over an
//! await. `wishes` is the one task that stores wishes, so the table takes them in the order in which they were
//! stored. `attempt` takes a batch of one source and one target through all steps; batches depend on nothing of
//! each other (a source's limit is taken before, for all steps), so any number of crosswise moves ends.
//! `commit` joins what is sealed into few changes of the metadata. `undo` takes back what failed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_types::{BrokerId, PartitionId};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::options::MoveOptions;
use crate::admin::{MoveError, MoveReport};

pub(super) mod attempt;
pub(super) mod commit;
pub(super) mod undo;
pub(super) mod wishes;

/// Who wanted a move; the first in this order goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A person, or a tool of theirs.
    Operator,
    /// It was found stored.
    Stored,
    /// Its leader gives everything away.
    Drain,
    /// Evening out.
    Balance,
}

/// How a wish ended.
pub(crate) type MoveEnd = Result<MoveReport, MoveError>;

/// Where a move stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// For its turn, a pause to pass, or a broker to come back.
    Waiting,
    /// The target catches up while the source serves.
    Preparing,
    /// The source takes no appends.
    Sealing,
    /// An attempt failed and is taken back.
    Undoing,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Sealing => "sealing",
            Self::Undoing => "taking back",
        }
    }
}

struct Move {
    /// `None`: withdrawn while an attempt was under way; the entry stays until that one has ended.
    to: Option<BrokerId>,
    origin: Origin,
    /// Order of arrival.
    number: u64,
    phase: Phase,
    /// Failed attempts in a row.
    failures: u32,
    not_before: Option<Instant>,
    last_failure: Option<String>,
    wanted_at: Instant,
    /// Since when the target can't lead.
    target_gone: Option<Instant>,
    waiters: Vec<oneshot::Sender<MoveEnd>>,
}

/// What is told of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    pub(crate) last_failure: Option<String>,
}

/// What one attempt takes through all steps: partitions of one source for one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) from: BrokerId,
    pub(crate) to: BrokerId,
    pub(crate) partitions: Vec<PartitionId>,
}

/// What the table asks of the cluster's picture when it looks for work.
pub(crate) enum Leader {
    /// There is no such partition.
    NoPartition,
    /// Nobody can serve it at present.
    None,
    /// This one leads.
    Broker(BrokerId),
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) batches: Vec<Batch>,
    /// Wishes that can't be carried out any more, and why: to be withdrawn.
    pub(crate) hopeless: Vec<(PartitionId, BrokerId, MoveError)>,
    /// Partitions that the wanted broker leads already.
    pub(crate) there: Vec<(PartitionId, BrokerId)>,
}

/// All moves that are wanted.
#[derive(Default)]
pub(crate) struct Moves {
    table: Mutex<Table>,
    bell: Notify,
}

#[derive(Default)]
struct Table {
    moves: HashMap<PartitionId, Move>,
    waiting: BTreeSet<(Origin, u64, PartitionId)>,
    at_source: HashMap<BrokerId, usize>,
    number: u64,
    pins: HashMap<PartitionId, Instant>,
}

impl Table {
    fn set_phase(&mut self, partition: PartitionId, phase: Phase) {
        if let Some(one) = self.moves.get_mut(&partition) {
            one.phase = phase;
            let place = (one.origin, one.number, partition);
            if phase == Phase::Waiting {
                self.waiting.insert(place);
            } else {
                self.waiting.remove(&place);
            }
        }
    }

    fn remove(&mut self, partition: PartitionId) -> Option<Move> {
        let one = self.moves.remove(&partition)?;
        self.waiting.remove(&(one.origin, one.number, partition));
        Some(one)
    }

    fn release(&mut self, from: BrokerId) {
        if let Some(count) = self.at_source.get_mut(&from) {
            *count = count.saturating_sub(1);
        }
    }
}

fn tell(waiters: Vec<oneshot::Sender<MoveEnd>>, end: &MoveEnd) {
    for waiter in waiters {
        // Who doesn't wait any more doesn't want to know.
        let _ = waiter.send(end.clone());
    }
}

impl Moves {
    /// Takes in a stored wish. The same one once more is joined; another one replaces it: an attempt under way
    /// for the former target won't seal, and if it has, the metadata refuses it.
    pub(crate) fn want(
        &self,
        partition: PartitionId,
        to: BrokerId,
        origin: Origin,
        now: Instant,
        waiter: Option<oneshot::Sender<MoveEnd>>,
    ) {
        let mut table = self.table.lock();
        let number = table.number;
        table.number += 1;
        let mut replaced = Vec::new();
        match table.moves.get_mut(&partition) {
            Some(one) => {
                let old = (one.origin, one.number, partition);
                if one.to != Some(to) {
                    replaced = std::mem::take(&mut one.waiters);
                    one.to = Some(to);
                    one.origin = origin;
                    one.failures = 0;
                    one.not_before = None;
                    one.last_failure = None;
                    one.wanted_at = now;
                    one.target_gone = None;
                }
                one.origin = one.origin.min(origin);
                if origin == Origin::Operator {
                    // A person doesn't wait for the pause after failures.
                    one.not_before = None;
                }
                one.waiters.extend(waiter);
                let (phase, place) = (one.phase, (one.origin, one.number, partition));
                if phase == Phase::Waiting {
                    table.waiting.remove(&old);
                    table.waiting.insert(place);
                }
            }
            None => {
                table.moves.insert(
                    partition,
                    Move {
                        to: Some(to),
                        origin,
                        number,
                        phase: Phase::Waiting,
                        failures: 0,
                        not_before: None,
                        last_failure: None,
                        wanted_at: now,
                        target_gone: None,
                        waiters: waiter.into_iter().collect(),
                    },
                );
                table.waiting.insert((origin, number, partition));
            }
        }
        drop(table);
        tell(replaced, &Err(MoveError::Replaced));
        self.bell.notify_one();
    }

    /// Forgets a wish, if it is (still) for `to`. An attempt under way doesn't seal any more.
    pub(crate) fn forget(&self, partition: PartitionId, to: Option<BrokerId>, end: &MoveEnd) {
        let mut table = self.table.lock();
        let Some(one) = table.moves.get_mut(&partition) else {
            return;
        };
        if to.is_some() && one.to != to {
            return;
        }
        let waiters = std::mem::take(&mut one.waiters);
        one.to = None;
        if one.phase == Phase::Waiting {
            table.remove(partition);
        }
        drop(table);
        tell(waiters, end);
    }

    /// Makes what is stored the truth: forgets what isn't, and takes in what is missing.
    pub(crate) fn align(&self, stored: &HashMap<PartitionId, BrokerId>, now: Instant) {
        let mut known = HashMap::new();
        {
            let mut table = self.table.lock();
            table.pins.retain(|_, until| *until > now);
            for (id, one) in &table.moves {
                known.insert(*id, (one.to, one.phase));
            }
        }
        for (partition, (to, phase)) in &known {
            if *phase == Phase::Waiting && !stored.contains_key(partition) {
                self.forget(*partition, *to, &Err(MoveError::Replaced));
            }
        }
        for (partition, to) in stored {
            if known
                .get(partition)
                .is_none_or(|(known, _)| *known != Some(*to))
            {
                self.want(*partition, *to, Origin::Stored, now, None);
            }
        }
    }

    /// Takes out what can begin now.
    pub(crate) fn take_due(
        &self,
        options: &MoveOptions,
        now: Instant,
        leader: impl Fn(PartitionId) -> Leader,
        can_lead: impl Fn(BrokerId) -> bool,
    ) -> Due {
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let mut due = Due::default();
        // Failed ones go in smaller company, so that one that hinders a whole order is found.
        let mut open: HashMap<(BrokerId, BrokerId, usize), Vec<PartitionId>> = HashMap::new();
        let waiting: Vec<PartitionId> = table.waiting.iter().map(|(_, _, id)| *id).collect();
        for partition in waiting {
            let Some(one) = table.moves.get_mut(&partition) else {
                continue;
            };
            let Some(to) = one.to else {
                continue;
            };
            let from = match leader(partition) {
                Leader::NoPartition => {
                    let why = MoveError::UnknownPartition(partition);
                    due.hopeless.push((partition, to, why));
                    continue;
                }
                Leader::Broker(from) if from == to => {
                    due.there.push((partition, to));
                    continue;
                }
                Leader::Broker(from) => Some(from),
                Leader::None => None,
            };
            if can_lead(to) {
                one.target_gone = None;
            } else {
                let since = *one.target_gone.get_or_insert(now);
                // Who plans by itself plans anew at once; a person's wish outlives a restart.
                let patience = match one.origin {
                    Origin::Operator | Origin::Stored => options.target_patience,
                    Origin::Drain | Origin::Balance => Duration::ZERO,
                };
                if now.saturating_duration_since(since) >= patience {
                    let why = MoveError::BrokerNotAlive(to);
                    due.hopeless.push((partition, to, why));
                }
                one.last_failure = Some(format!("broker {to} can't lead at present"));
                continue;
            }
            let Some(from) = from else {
                one.last_failure = Some("the partition has no leader at present".to_owned());
                continue;
            };
            if one.not_before.is_some_and(|time| time > now) {
                continue;
            }
            let size = match one.failures {
                0 => options.per_order,
                1 => options.per_order.min(8),
                _ => 1,
            };
            let at_source = table.at_source.entry(from).or_default();
            if *at_source >= options.per_source {
                continue;
            }
            *at_source += 1;
            table.set_phase(partition, Phase::Preparing);
            let group = open.entry((from, to, size)).or_default();
            group.push(partition);
            if group.len() >= size {
                due.batches.push(Batch {
                    from,
                    to,
                    partitions: std::mem::take(group),
                });
            }
        }
        let rest = open.into_iter().filter(|(_, group)| !group.is_empty());
        due.batches
            .extend(rest.map(|((from, to, _), partitions)| Batch {
                from,
                to,
                partitions,
            }));
        due
    }

    /// From here on the partition may be sealed. `false`: it isn't wanted there any more.
    pub(crate) fn begin_seal(&self, partition: PartitionId, to: BrokerId) -> bool {
        let mut table = self.table.lock();
        let wanted = table
            .moves
            .get(&partition)
            .is_some_and(|one| one.to == Some(to) && one.phase == Phase::Preparing);
        if wanted {
            table.set_phase(partition, Phase::Sealing);
        }
        wanted
    }

    /// When the move was wanted.
    pub(crate) fn wanted_at(&self, partition: PartitionId) -> Option<Instant> {
        self.table.lock().moves.get(&partition).map(|m| m.wanted_at)
    }

    /// An attempt to move `partition` from `from` to `to` has succeeded.
    pub(crate) fn done(
        &self,
        partition: PartitionId,
        from: BrokerId,
        to: BrokerId,
        report: MoveReport,
        pin_until: Instant,
    ) {
        let mut table = self.table.lock();
        table.release(from);
        let mut waiters = Vec::new();
        match table.moves.get(&partition).map(|one| one.to) {
            // It is wanted elsewhere by now: it goes on from its new leader.
            Some(Some(wanted)) if wanted != to => table.set_phase(partition, Phase::Waiting),
            Some(_) => {
                if let Some(one) = table.remove(partition) {
                    if one.origin == Origin::Operator {
                        table.pins.insert(partition, pin_until);
                    }
                    waiters = one.waiters;
                }
            }
            None => {}
        }
        drop(table);
        tell(waiters, &Ok(report));
        self.bell.notify_one();
    }

    /// An attempt has failed and is being taken back.
    pub(crate) fn undoing(&self, partition: PartitionId) {
        self.table.lock().set_phase(partition, Phase::Undoing);
    }

    /// An attempt has failed and is taken back.
    pub(crate) fn failed(
        &self,
        partition: PartitionId,
        from: BrokerId,
        to: BrokerId,
        cause: String,
        options: &MoveOptions,
        now: Instant,
    ) {
        let mut table = self.table.lock();
        table.release(from);
        let known = table.moves.get_mut(&partition);
        if known.as_ref().is_some_and(|one| one.to.is_none()) {
            table.remove(partition);
        } else if let Some(one) = known {
            if one.to == Some(to) {
                one.failures = one.failures.saturating_add(1);
                one.not_before = Some(now + pause(options.backoff, one.failures));
                one.last_failure = Some(cause);
            }
            table.set_phase(partition, Phase::Waiting);
        }
        drop(table);
        self.bell.notify_one();
    }

    /// Resolves when there may be something to do.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Where a move stands.
    pub(crate) fn standing(&self, partition: PartitionId) -> Option<Standing> {
        let table = self.table.lock();
        table.moves.get(&partition).map(|one| Standing {
            phase: one.phase,
            last_failure: one.last_failure.clone(),
        })
    }

    /// Where every partition goes that is wanted elsewhere.
    pub(crate) fn all(&self) -> HashMap<PartitionId, (BrokerId, Origin)> {
        let table = self.table.lock();
        let moves = table.moves.iter();
        moves
            .filter_map(|(id, one)| Some((*id, (one.to?, one.origin))))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().moves.len()
    }

    /// Leaves a partition where an operator wants it, for a while.
    pub(crate) fn pin(&self, partition: PartitionId, until: Instant) {
        self.table.lock().pins.insert(partition, until);
    }

    /// Which partitions are pinned now.
    pub(crate) fn pinned(&self, now: Instant) -> BTreeSet<PartitionId> {
        let mut table = self.table.lock();
        table.pins.retain(|_, until| *until > now);
        table.pins.keys().copied().collect()
    }
}

/// The pause after so many failures in a row.
pub(super) fn pause((first, longest): (Duration, Duration), failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    longest.min(first.saturating_mul(1 << doublings))
}
