//! Planned moves: the wish, which is stored, and the moment of transfer (DESIGN, section 6).

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{BrokerId, ControllerEpoch, PartitionId};

use super::commit::{self, Authority};
use super::placement::placement_after;
use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, Need, State};
use crate::api::{
    CancelTargets, CommitMove, CommitMoves, CommitObjectsError, ControllerUnavailable, MoveRefused,
    MovesCommitted, ObjectOutcome, PendingMove, SetPlacements, SetTargets, SourceObjects,
    WantedMove, Wish, WishRefused,
};
use crate::model::{PartitionState, WriterState};
use crate::rows::{BrokerRow, PartitionRow, Target};

pub(crate) fn pending(id: PartitionId, row: &PartitionRow) -> Option<PendingMove> {
    let target = row.target.as_ref()?;
    Some(PendingMove {
        partition: id,
        from: row.leader,
        to: target.to,
        leader_epoch: row.leader_epoch,
        placement: row.placement.clone(),
        new_placement: target.placement.clone(),
    })
}

/// What the row says of the wish that was just entered in it.
fn entered(id: PartitionId, row: &PartitionRow, leader: BrokerId) -> Wish {
    match pending(id, row) {
        Some(pending) => Wish::Pending(pending),
        None => Wish::Fulfilled {
            leader,
            leader_epoch: row.leader_epoch,
        },
    }
}

fn check_target(state: &State, id: BrokerId) -> Result<(), WishRefused> {
    let row = state.broker(id).ok_or(WishRefused::UnknownBroker(id))?;
    if !state.may_lead(id) {
        return Err(WishRefused::NotAlive(id));
    }
    if row.draining {
        return Err(WishRefused::Draining(id));
    }
    Ok(())
}

fn want(work: &mut Workspace<'_>, state: &State, wanted: WantedMove) -> Result<Wish, WishRefused> {
    let WantedMove {
        partition,
        to,
        prefer,
    } = wanted;
    let unknown = WishRefused::UnknownPartition(partition);
    let row = work.partition(partition).ok_or(unknown.clone())?;
    let leader = row.leader.ok_or(WishRefused::NoLeader(partition))?;
    if leader != to {
        check_target(state, to)?;
    }
    let placement = placement_after(&row.placement, Some(leader), to, prefer);
    let row = work.edit(partition).ok_or(unknown)?;
    if leader == to {
        row.placement = placement;
        row.target = None;
    } else {
        row.target = Some(Target { to, placement });
    }
    Ok(entered(partition, row, leader))
}

impl Command for SetTargets {
    type Output = Vec<Result<Wish, WishRefused>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "set_targets";

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut work = Workspace::new(state, facts, environment.now);
        let wishes = self.moves.iter().map(|m| want(&mut work, state, *m));
        let output = wishes.collect();
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}

impl Command for CancelTargets {
    /// Whether there was such a wish.
    type Output = Vec<bool>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "cancel_targets";

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut work = Workspace::new(state, facts, environment.now);
        let output = self
            .partitions
            .iter()
            .map(|cancel| {
                let row = work.partition(cancel.partition);
                let target = row.and_then(|row| row.target.as_ref());
                let there = target
                    .is_some_and(|target| cancel.to.is_none() || cancel.to == Some(target.to));
                if there && let Some(row) = work.edit(cancel.partition) {
                    row.target = None;
                }
                there
            })
            .collect();
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}

fn place(
    work: &mut Workspace<'_>,
    state: &State,
    partition: PartitionId,
    placement: &[BrokerId],
) -> Result<Wish, WishRefused> {
    let unknown = WishRefused::UnknownPartition(partition);
    let row = work.partition(partition).ok_or(unknown.clone())?;
    let leader = row.leader.ok_or(WishRefused::NoLeader(partition))?;
    let first = *placement.first().ok_or(WishRefused::EmptyPlacement)?;
    let mut seen = BTreeSet::new();
    for &id in placement {
        if !seen.insert(id) {
            return Err(WishRefused::RepeatedBroker(id));
        }
        if state.broker(id).is_none() {
            return Err(WishRefused::UnknownBroker(id));
        }
    }
    let placement = placement.to_vec();
    if placement.contains(&leader) {
        let row = work.edit(partition).ok_or(unknown)?;
        row.placement = placement;
        row.target = None;
        return Ok(entered(partition, row, leader));
    }
    let able = placement.iter().find(|id| state.takes_partitions(**id));
    let Some(&to) = able else {
        check_target(state, first)?;
        return Err(WishRefused::NotAlive(first));
    };
    let row = work.edit(partition).ok_or(unknown)?;
    row.target = Some(Target { to, placement });
    Ok(entered(partition, row, leader))
}

impl Command for SetPlacements {
    type Output = Vec<Result<Wish, WishRefused>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "set_placements";

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut work = Workspace::new(state, facts, environment.now);
        let output = self
            .placements
            .iter()
            .map(|(id, placement)| place(&mut work, state, *id, placement))
            .collect();
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}

/// Commits one source's objects, all or none, and moves its writer on.
fn commit_source(
    work: &mut Workspace<'_>,
    state: &State,
    source: &SourceObjects,
    writers: &mut BTreeMap<BrokerId, WriterState>,
) -> Result<Vec<ObjectOutcome>, CommitObjectsError> {
    let (_, stored) = state.committing(source.broker, source.broker_epoch)?;
    let mut writer = writers.get(&source.broker).copied().unwrap_or(stored);
    let before = work.clone();
    let authority = Authority::Leader(source.broker);
    match commit::commit_objects(work, &source.objects, authority, &mut writer) {
        Ok(outcomes) => {
            writers.insert(source.broker, writer);
            Ok(outcomes)
        }
        Err(refusal) => {
            *work = before;
            Err(refusal.into())
        }
    }
}

/// What the repetition of a move finds: it was carried out.
fn is_done(row: &PartitionRow, wanted: &CommitMove) -> bool {
    row.leader == Some(wanted.to)
        && row.leader_epoch == wanted.leader_epoch.next()
        && row
            .epochs
            .last()
            .is_some_and(|last| last.epoch == row.leader_epoch && last.start == wanted.sealed_end)
}

fn transfer(
    work: &mut Workspace<'_>,
    state: &State,
    controller_epoch: ControllerEpoch,
    wanted: &CommitMove,
) -> Result<PartitionState, MoveRefused> {
    let id = wanted.partition;
    let unknown = MoveRefused::UnknownPartition(id);
    let row = work.partition(id).ok_or(unknown.clone())?;
    if is_done(row, wanted) {
        return Ok(state.describe(id, row));
    }
    if row.leader != Some(wanted.from) || row.leader_epoch != wanted.leader_epoch {
        return Err(MoveRefused::Stale {
            leader: row.leader,
            leader_epoch: row.leader_epoch,
        });
    }
    if controller_epoch != state.picture.controller_epoch() {
        return Err(MoveRefused::StaleController {
            sealed_under: controller_epoch,
        });
    }
    let target = row
        .target
        .as_ref()
        .filter(|target| target.to == wanted.to)
        .cloned()
        .ok_or(MoveRefused::Withdrawn)?;
    let taker = state
        .broker(wanted.to)
        .filter(|row| {
            row.broker_epoch == wanted.to_broker_epoch && state.takes_partitions(wanted.to)
        })
        .ok_or(MoveRefused::TargetUnavailable(wanted.to))?;
    let reach = row.known_reach();
    if wanted.sealed_end < reach {
        return Err(MoveRefused::SealedTooLow {
            sealed_end: wanted.sealed_end,
            reach,
        });
    }
    let held = wanted.held_in.is_some() && wanted.held_in == taker.wal;
    if wanted.sealed_end > row.committed_end && !held {
        return Err(MoveRefused::NotHeld {
            committed_end: row.committed_end,
            sealed_end: wanted.sealed_end,
        });
    }
    if wanted.sealed_end < row.committed_end {
        return Err(MoveRefused::SealedTooLow {
            sealed_end: wanted.sealed_end,
            reach: row.committed_end,
        });
    }
    let topic = state.topic(id.topic).ok_or(unknown.clone())?;
    let mode = state.durability(&topic.row.configs);
    let row = work.edit(id).ok_or(unknown)?;
    row.lead(wanted.to, taker.wal, wanted.sealed_end, mode);
    row.placement = target.placement;
    row.target = None;
    Ok(state.describe(id, row))
}

impl Command for CommitMoves {
    type Output = MovesCommitted;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "commit_moves";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        let objects = self.objects.iter();
        facts.missing(objects.flat_map(|source| commit::needs(state, &source.objects)))
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<MovesCommitted>, ControllerUnavailable> {
        let mut work = Workspace::new(state, facts, environment.now);
        let mut writers = BTreeMap::new();
        let objects = self.objects.iter();
        let objects = objects
            .map(|source| commit_source(&mut work, state, source, &mut writers))
            .collect();
        for (id, writer) in writers {
            if let Some(row) = state.broker(id).filter(|row| row.writer != Some(writer)) {
                let row = BrokerRow {
                    writer: Some(writer),
                    ..row.clone()
                };
                work.push(Change::Broker(id, row));
            }
        }
        let moves = self
            .moves
            .iter()
            .map(|m| transfer(&mut work, state, self.controller_epoch, m));
        let output = MovesCommitted {
            moves: moves.collect(),
            objects,
        };
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}
