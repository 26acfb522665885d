//! Questions that change nothing. They go through the same queue as changes, before those that wait with them, so an
//! answer never shows what isn't durable yet.

use tidegate_types::{BrokerId, PartitionId};

use super::{Command, Decision, Environment, Facts, Need, State, moves};
use crate::api::{
    BrokerView, ControllerUnavailable, DeletableObject, DeletableQuery, LedPartition, PendingMove,
};
use crate::model::{ObjectStatus, PartitionState, StoredObjectKey};

pub(crate) struct PartitionStates(pub(crate) Vec<PartitionId>);

impl Command for PartitionStates {
    type Output = Vec<Option<PartitionState>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "partition_states";
    const IS_QUESTION: bool = true;

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        Ok(Decision::unchanged(
            self.0.iter().map(|id| state.partition_state(*id)).collect(),
        ))
    }
}

pub(crate) struct LedBy(pub(crate) BrokerId);

impl Command for LedBy {
    type Output = Vec<PartitionState>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "led_by";
    const IS_QUESTION: bool = true;

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut led = Vec::new();
        if state.may_lead(self.0) {
            led.extend(
                state
                    .led(Some(self.0))
                    .filter_map(|id| state.partition_state(id)),
            );
        }
        Ok(Decision::unchanged(led))
    }
}

pub(crate) struct PendingMoves;

impl Command for PendingMoves {
    type Output = Vec<PendingMove>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "pending_moves";
    const IS_QUESTION: bool = true;

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let wanted = state
            .targets()
            .filter_map(|id| moves::pending(id, state.partition(id)?));
        Ok(Decision::unchanged(wanted.collect()))
    }
}

pub(crate) struct Brokers;

impl Command for Brokers {
    type Output = Vec<BrokerView>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "brokers";
    const IS_QUESTION: bool = true;

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let views = state.brokers().map(|(id, row)| BrokerView {
            id,
            broker_epoch: row.broker_epoch,
            incarnation: row.incarnation,
            kafka: row.kafka.clone(),
            internal: row.internal.clone(),
            rack: row.rack.clone(),
            wal: row.wal,
            writer: row.writer,
            alive: state.is_alive(id),
            leads: row.leads(),
            draining: row.draining,
            leaders: state.led_count(id),
        });
        Ok(Decision::unchanged(views.collect()))
    }
}

pub(crate) struct PartitionsOf(pub(crate) BrokerId);

impl Command for PartitionsOf {
    type Output = Vec<LedPartition>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "partitions_of";
    const IS_QUESTION: bool = true;

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let led = state.led(Some(self.0)).filter_map(|id| {
            let row = state.partition(id)?;
            Some(LedPartition {
                partition: id,
                leader_epoch: row.leader_epoch,
                placement: row.placement.clone(),
                bound_to: row.wal,
                target: row.target.as_ref().map(|target| target.to),
            })
        });
        Ok(Decision::unchanged(led.collect()))
    }
}

const MAX_DELETABLE: usize = 10_000;

impl DeletableQuery {
    fn dropped_need(&self) -> Need {
        Need::Dropped {
            until: self.dropped_before,
            limit: self.limit.min(MAX_DELETABLE),
        }
    }
}

impl Command for DeletableQuery {
    type Output = Vec<DeletableObject>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "deletable_objects";
    const IS_QUESTION: bool = true;

    fn needs(&self, _state: &State, facts: &Facts) -> Vec<Need> {
        let need = self.dropped_need();
        if facts.knows(&need) {
            let dropped = facts.dropped(&need).iter();
            facts.missing(dropped.map(|(_, key)| Need::Object(key.clone())))
        } else {
            vec![need]
        }
    }

    fn decide(
        &self,
        _state: &State,
        facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let listed = facts.dropped(&self.dropped_need()).iter();
        let deletable = listed.filter_map(|(dropped_at, key)| {
            // The object's own row decides; the list only finds it.
            let row = facts.object(key)?;
            (row.references == 0 && row.dropped_at == Some(*dropped_at)).then(|| DeletableObject {
                key: key.clone(),
                size_bytes: row.size_bytes,
                dropped_at: *dropped_at,
            })
        });
        Ok(Decision::unchanged(deletable.collect()))
    }
}

pub(crate) struct ObjectStatuses(pub(crate) Vec<StoredObjectKey>);

impl Command for ObjectStatuses {
    type Output = Vec<ObjectStatus>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "object_statuses";
    const IS_QUESTION: bool = true;

    fn needs(&self, _state: &State, facts: &Facts) -> Vec<Need> {
        facts.missing(self.0.iter().cloned().map(Need::Object))
    }

    fn decide(
        &self,
        _state: &State,
        facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let status = |key: &StoredObjectKey| match facts.object(key) {
            None => ObjectStatus::Unknown,
            Some(row) => match row.dropped_at {
                None => ObjectStatus::Referenced {
                    references: row.references,
                },
                Some(at) => ObjectStatus::Dropped { at },
            },
        };
        Ok(Decision::unchanged(self.0.iter().map(status).collect()))
    }
}
