//! Questions that change nothing. They go through the same queue as changes, so an answer never shows what
//! isn't durable yet.

use tidegate_types::{BrokerId, PartitionId};

use super::{Command, Decision, Environment, Facts, Need, State};
use crate::api::{ControllerUnavailable, DeletableObject, DeletableQuery};
use crate::model::{ObjectStatus, PartitionState, StoredObjectKey};

pub(crate) struct PartitionStates(pub(crate) Vec<PartitionId>);

impl Command for PartitionStates {
    type Output = Vec<Option<PartitionState>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "partition_states";

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

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut led = Vec::new();
        if state.may_lead(self.0) {
            for (topic_id, topic) in state.topics_by_id() {
                for (id, row) in topic.partition_ids(topic_id).zip(&topic.partitions) {
                    if row.leader == Some(self.0) {
                        led.push(state.describe(id, row));
                    }
                }
            }
        }
        Ok(Decision::unchanged(led))
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
