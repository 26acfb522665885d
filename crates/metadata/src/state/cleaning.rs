//! Dropping references: log starts that move, topics that are gone, objects that were deleted. Each step is
//! bounded; what is left over is remembered in the store and goes on after a restart.

use tidegate_types::{Offset, PartitionId, TopicId};

use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, Need, State};
use crate::api::{AdvanceLogStart, AdvanceLogStartError, ControllerUnavailable, StaleBrokerEpoch};
use crate::keys;
use crate::model::StoredObjectKey;
use crate::rows::PartitionRow;

/// The segments wholly below an offset.
fn below(state: &State, partition: PartitionId, start: Offset) -> Need {
    Need::Segments {
        partition,
        from: Offset::ZERO,
        to: start,
        limit: state.limits.segments_per_drop,
    }
}

/// Needs the segments, then the objects that they are in.
fn segments_then_objects(facts: &Facts, segments: Need) -> Vec<Need> {
    if facts.knows(&segments) {
        facts.missing(Workspace::objects_of(facts.segments(&segments)))
    } else {
        vec![segments]
    }
}

/// Drops the segments below the log start; notes whether some may be left.
fn trim(work: &mut Workspace<'_>, state: &State, facts: &Facts, id: PartitionId, need: &Need) {
    let segments = facts.segments(need);
    work.drop_segments(segments);
    if let Some(row) = work.edit(id) {
        row.segment_count = row.segment_count.saturating_sub(segments.len() as u64);
        let bytes: u64 = segments
            .iter()
            .map(|(_, segment)| segment.span.length)
            .sum();
        row.segment_bytes = row.segment_bytes.saturating_sub(bytes);
        row.trim_pending = segments.len() >= state.limits.segments_per_drop;
    }
}

impl AdvanceLogStart {
    /// The partition's row, if the log start has to move.
    fn moves<'a>(&self, state: &'a State) -> Option<&'a PartitionRow> {
        state
            .partition(self.partition)
            .filter(|row| row.log_start < self.new_start)
    }
}

impl Command for AdvanceLogStart {
    type Output = Offset;
    type Error = AdvanceLogStartError;
    const NAME: &'static str = "advance_log_start";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        match self.moves(state) {
            Some(_) => segments_then_objects(facts, below(state, self.partition, self.new_start)),
            None => Vec::new(),
        }
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Offset>, AdvanceLogStartError> {
        let broker = state.registered(self.broker, self.broker_epoch)?;
        if !broker.leads() {
            return Err(StaleBrokerEpoch {
                broker: self.broker,
                broker_epoch: self.broker_epoch,
                current: broker.writer.map(|w| w.broker_epoch),
            }
            .into());
        }
        let row = state
            .partition(self.partition)
            .ok_or(AdvanceLogStartError::UnknownPartition(self.partition))?;
        if row.leader != Some(self.broker) || row.leader_epoch != self.leader_epoch {
            return Err(AdvanceLogStartError::NotLeader {
                broker: self.broker,
                partition: self.partition,
                leader_epoch: self.leader_epoch,
            });
        }
        if self.moves(state).is_none() {
            return Ok(Decision::unchanged(row.log_start));
        }
        let mut work = Workspace::new(state, facts, environment.now);
        if let Some(row) = work.edit(self.partition) {
            row.raise_log_start(self.new_start);
        }
        let need = below(state, self.partition, self.new_start);
        trim(&mut work, state, facts, self.partition, &need);
        Ok(Decision {
            changes: work.into_changes(),
            output: self.new_start,
        })
    }
}

/// Drops more of the segments below a partition's log start.
#[derive(Debug)]
pub(crate) struct TrimPartition(pub(crate) PartitionId);

impl TrimPartition {
    fn need(&self, state: &State) -> Option<Need> {
        let row = state.partition(self.0)?;
        Some(below(state, self.0, row.log_start))
    }
}

impl Command for TrimPartition {
    type Output = ();
    type Error = ControllerUnavailable;
    const NAME: &'static str = "trim_partition";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        self.need(state)
            .map(|need| segments_then_objects(facts, need))
            .unwrap_or_default()
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, ControllerUnavailable> {
        let Some(need) = self.need(state) else {
            return Ok(Decision::unchanged(()));
        };
        let mut work = Workspace::new(state, facts, environment.now);
        trim(&mut work, state, facts, self.0, &need);
        Ok(Decision {
            changes: work.into_changes(),
            output: (),
        })
    }
}

/// Drops some of what a deleted topic still refers to: partition by partition, the segments first.
#[derive(Debug)]
pub(crate) struct CleanTopic(pub(crate) TopicId);

impl CleanTopic {
    fn partition_need(&self) -> Need {
        Need::PartitionRows {
            topic: self.0,
            limit: 1,
        }
    }

    fn segments_need(state: &State, partition: PartitionId) -> Need {
        below(state, partition, keys::last_offset())
    }
}

impl Command for CleanTopic {
    type Output = ();
    type Error = ControllerUnavailable;
    const NAME: &'static str = "clean_topic";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        let need = self.partition_need();
        if !facts.knows(&need) {
            return vec![need];
        }
        let Some((id, row)) = facts.partition_rows(&need).first() else {
            return Vec::new();
        };
        let mut needs = segments_then_objects(facts, Self::segments_need(state, *id));
        if let Some(checkpoint) = &row.checkpoint {
            needs.extend(facts.missing([Need::Object(checkpoint.object.clone())]));
        }
        needs
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, ControllerUnavailable> {
        let mut work = Workspace::new(state, facts, environment.now);
        match facts.partition_rows(&self.partition_need()).first() {
            None => work.push(Change::DeletedTopic(self.0, None)),
            Some((id, row)) => {
                let segments = facts.segments(&Self::segments_need(state, *id));
                work.drop_segments(segments);
                if segments.len() < state.limits.segments_per_drop {
                    if let Some(checkpoint) = &row.checkpoint {
                        work.release(&checkpoint.object);
                    }
                    work.push(Change::Partition(*id, None));
                }
            }
        }
        Ok(Decision {
            changes: work.into_changes(),
            output: (),
        })
    }
}

/// Forgets objects that were deleted from the store.
#[derive(Debug)]
pub(crate) struct ForgetObjects(pub(crate) Vec<StoredObjectKey>);

impl Command for ForgetObjects {
    type Output = ();
    type Error = ControllerUnavailable;
    const NAME: &'static str = "forget_objects";

    fn needs(&self, _state: &State, facts: &Facts) -> Vec<Need> {
        facts.missing(self.0.iter().cloned().map(Need::Object))
    }

    fn decide(
        &self,
        _state: &State,
        facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, ControllerUnavailable> {
        let mut changes = Vec::new();
        for key in &self.0 {
            if let Some(at) = facts.object(key).and_then(|row| row.dropped_at) {
                changes.push(Change::Dropped(at, key.clone(), false));
                changes.push(Change::Object(key.clone(), None));
            }
        }
        Ok(Decision {
            changes,
            output: (),
        })
    }
}
