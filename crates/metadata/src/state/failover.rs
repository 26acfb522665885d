//! Moving on what a dead broker led (DESIGN, section 7).

use std::collections::BTreeSet;

use tidegate_types::PartitionId;
use uuid::Uuid;

use super::commit::{self, Authority};
use super::leadership::give_up;
use super::placement::{Survivors, placement_after};
use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, Need, State};
use crate::api::{FailOver, FailOverError, FailedOver};
use crate::rows::{BrokerRow, PartitionRow};

/// Only the leader's local WAL may hold some of the acknowledged records.
fn is_bound(row: &PartitionRow) -> bool {
    row.wal.is_some() || row.known_reach() > row.committed_end
}

impl FailOver {
    /// What it led, and what nobody leads and was placed on it: others that live would have taken it.
    fn partitions(&self, state: &State) -> BTreeSet<PartitionId> {
        let orphans = state.led(None).filter(|id| {
            let row = state.partition(*id);
            row.is_some_and(|row| row.placement.contains(&self.broker))
        });
        state.led(Some(self.broker)).chain(orphans).collect()
    }

    fn move_on(
        &self,
        work: &mut Workspace<'_>,
        state: &State,
        survivors: &mut Survivors,
        id: PartitionId,
        output: &mut FailedOver,
    ) {
        let Some(row) = work.partition(id) else {
            return;
        };
        let bound = is_bound(row);
        if bound && !self.accept_loss {
            output.waiting.push(id);
            return;
        }
        let topic = state.topic(id.topic);
        let heir = topic.and_then(|topic| Some((topic, survivors.heir(row)?)));
        let Some((topic, heir)) = heir else {
            output.stranded.push(id);
            return;
        };
        let wal = state.broker(heir).and_then(|row| row.wal);
        let Some(row) = work.edit(id) else { return };
        if bound {
            output.lost.push(give_up(id, row, row.committed_end));
            row.wal = None;
        }
        let start = row.committed_end.max(row.log_start);
        row.lead(heir, wal, start, state.durability(&topic.row.configs));
        row.placement = match row.target.take() {
            Some(target) if target.to == heir => target.placement,
            Some(_) | None => placement_after(&row.placement, Some(self.broker), heir, false),
        };
        output.moved.push(state.describe(id, row));
    }
}

impl Command for FailOver {
    type Output = FailedOver;
    type Error = FailOverError;
    const NAME: &'static str = "fail_over";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        facts.missing(commit::needs(state, &self.recovered))
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<FailedOver>, FailOverError> {
        let broker = state.registered(self.broker, self.broker_epoch)?;
        if state.is_alive(self.broker) {
            return Err(FailOverError::Alive(self.broker));
        }
        let mut work = Workspace::new(state, facts, environment.now);
        let mut output = FailedOver {
            broker_epoch: broker.broker_epoch,
            moved: Vec::new(),
            waiting: Vec::new(),
            stranded: Vec::new(),
            lost: Vec::new(),
            recovered: Vec::new(),
        };
        if let Some(mut writer) = broker.writer {
            if self.fenced_writer != Some(writer.broker_epoch) {
                return Err(FailOverError::WriterNotFenced {
                    expected: writer.broker_epoch,
                });
            }
            output.recovered = commit::commit_objects(
                &mut work,
                &self.recovered,
                Authority::Recovery,
                &mut writer,
            )?;
            // Nobody holds the next epoch, so the dead process can commit nothing more under its own; and what it
            // wrote is taken in, so that its return needs no fence.
            let row = BrokerRow {
                broker_epoch: broker.broker_epoch.next(),
                incarnation: Uuid::nil(),
                writer: None,
                ..broker.clone()
            };
            output.broker_epoch = row.broker_epoch;
            work.push(Change::Broker(self.broker, row));
        }
        let mut survivors = Survivors::new(state);
        for id in self.partitions(state) {
            self.move_on(&mut work, state, &mut survivors, id, &mut output);
        }
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}
