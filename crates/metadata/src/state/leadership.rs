//! Taking leadership after a start: recovered ranges and new leaders in one change (DESIGN, sections 4 and 7).

use std::collections::HashMap;

use tidegate_types::{Offset, OffsetRange, PartitionId};

use super::commit::{self, Authority};
use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, Need, State};
use crate::api::{
    LeadershipTaken, Loss, RecoveredEnd, TakeLeadership, TakeLeadershipError, Withheld,
    WithheldReason,
};
use crate::model::WriterState;
use crate::rows::PartitionRow;

/// How one partition's log continues.
enum Continuation {
    At(Offset),
    Withheld(WithheldReason, Offset),
}

impl TakeLeadership {
    fn candidate(&self, row: &PartitionRow) -> bool {
        match row.leader {
            Some(leader) => leader == self.broker,
            None => row.placement.contains(&self.broker),
        }
    }

    /// Where the log continues: behind everything that was found of it.
    fn continuation(&self, row: &PartitionRow, recovered: Option<&RecoveredEnd>) -> Continuation {
        // What lies behind the sealed end of its leader epoch was never acknowledged.
        let recovered = recovered.map(|found| match row.sealed_end(found.leader_epoch) {
            Some(sealed_end) => found.end.min(sealed_end),
            None => found.end,
        });
        let end = recovered.map_or(row.committed_end, |end| end.max(row.committed_end));
        if let Some(expected) = row.wal.filter(|wal| self.wal != Some(*wal)) {
            return Continuation::Withheld(WithheldReason::OtherWal { expected }, end);
        }
        match OffsetRange::new(end, row.known_reach()) {
            Some(missing) if !missing.is_empty() => {
                Continuation::Withheld(WithheldReason::Missing { missing }, end)
            }
            _ => Continuation::At(end),
        }
    }
}

impl Command for TakeLeadership {
    type Output = LeadershipTaken;
    type Error = TakeLeadershipError;
    const NAME: &'static str = "take_leadership";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        facts.missing(commit::needs(state, &self.recovered))
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<LeadershipTaken>, TakeLeadershipError> {
        let broker = state.registered(self.broker, self.broker_epoch)?;
        let leads = broker.leads();
        let mut work = Workspace::new(state, facts, environment.now);
        let mut recovered = Vec::new();
        if let Some(former) = broker.writer.filter(|_| !leads) {
            if self.fenced_writer != Some(former.broker_epoch) {
                return Err(TakeLeadershipError::WriterNotFenced {
                    expected: former.broker_epoch,
                });
            }
            let mut writer = former;
            recovered = commit::commit_objects(
                &mut work,
                &self.recovered,
                Authority::Recovery,
                &mut writer,
            )?;
        }
        let ends: HashMap<PartitionId, &RecoveredEnd> =
            self.ends.iter().map(|end| (end.partition, end)).collect();
        let mut withheld = Vec::new();
        let mut lost = Vec::new();
        let mut led = Vec::new();
        for (topic_id, topic) in state.topics_by_id() {
            let mode = state.durability(&topic.row.configs);
            for id in topic.partition_ids(topic_id) {
                let Some(row) = work.partition(id) else {
                    continue;
                };
                if !self.candidate(row) {
                    continue;
                }
                // A repetition finds what the first request did.
                if leads && row.leader.is_some() {
                    led.push(id);
                    continue;
                }
                let continuation = self.continuation(row, ends.get(&id).copied());
                let Some(row) = work.edit(id) else { continue };
                match continuation {
                    Continuation::At(start) => row.lead(self.broker, self.wal, start, mode),
                    Continuation::Withheld(_, end) if self.accept_loss => {
                        lost.push(give_up(id, row, end));
                        row.wal = None;
                        row.lead(self.broker, self.wal, end.max(row.log_start), mode);
                    }
                    Continuation::Withheld(reason, _) => {
                        row.leader = None;
                        withheld.push(Withheld {
                            partition: id,
                            reason,
                        });
                        continue;
                    }
                }
                led.push(id);
            }
        }
        let mut row = broker.clone();
        if !leads {
            row.writer = Some(WriterState {
                broker_epoch: self.broker_epoch,
                next_wal_sequence: 0,
            });
        }
        row.wal = self.wal;
        if *broker != row {
            work.push(Change::Broker(self.broker, row));
        }
        if !state.is_alive(self.broker) {
            work.push(Change::Alive(self.broker, true));
        }
        let partitions = led
            .into_iter()
            .filter_map(|id| {
                let row = work.partition(id)?;
                let mut described = state.describe(id, row);
                described.leader = Some(self.broker);
                Some(described)
            })
            .collect();
        Ok(Decision {
            changes: work.into_changes(),
            output: LeadershipTaken {
                partitions,
                withheld,
                lost,
                recovered,
            },
        })
    }
}

/// Continues at `end` although the log is known, or must be feared, to have reached further.
pub(crate) fn give_up(id: PartitionId, row: &mut PartitionRow, end: Offset) -> Loss {
    let reach = row.known_reach();
    let loss = Loss {
        partition: id,
        from: end,
        known_to: (reach > end).then_some(reach),
    };
    // Below the log start nothing counts any more, so the map may go on there.
    if end < row.log_start {
        row.committed_end = row.log_start;
    }
    loss
}
