//! Changes of explicitly set configs.

use std::collections::BTreeMap;

use tidegate_types::DurabilityMode;

use super::{Change, Command, Decision, Environment, Facts, State};
use crate::api::{
    AlterConfigs, ConfigChange, ConfigEdit, ConfigResource, ControllerUnavailable, UnknownTopic,
};
use crate::image::Configs;

impl ConfigChange {
    fn apply(&self, configs: &Configs) -> Configs {
        match self {
            Self::Replace(new) => new.clone(),
            Self::Edit(edits) => {
                let mut configs = configs.clone();
                for edit in edits {
                    edit.apply(&mut configs);
                }
                configs
            }
        }
    }
}

impl ConfigEdit {
    fn apply(&self, configs: &mut Configs) {
        match self {
            Self::Set { name, value } => {
                configs.insert(name.clone(), value.clone());
            }
            Self::Delete { name } => {
                configs.remove(name);
            }
            Self::Append {
                name,
                values,
                default,
            } => {
                let mut list = list(configs.get(name).unwrap_or(default));
                for value in values {
                    if !list.contains(value) {
                        list.push(value.clone());
                    }
                }
                configs.insert(name.clone(), list.join(","));
            }
            Self::Subtract {
                name,
                values,
                default,
            } => {
                let mut list = list(configs.get(name).unwrap_or(default));
                list.retain(|value| !values.contains(value));
                configs.insert(name.clone(), list.join(","));
            }
        }
    }
}

fn list(value: &str) -> Vec<String> {
    value
        .split(',')
        .map(str::trim)
        .filter(|v| !v.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Command for AlterConfigs {
    type Output = Vec<Result<Configs, UnknownTopic>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "alter_configs";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        // Later entries for one resource see earlier ones.
        let mut altered: BTreeMap<ConfigResource, Configs> = BTreeMap::new();
        let mut output = Vec::with_capacity(self.changes.len());
        for (resource, change) in &self.changes {
            let present = match (altered.get(resource), resource) {
                (Some(configs), _) => Some(configs),
                (None, ConfigResource::Topic(id)) => state.topic(*id).map(|t| &t.row.configs),
                (None, ConfigResource::Broker(id)) => {
                    Some(state.configs(Some(*id)).unwrap_or(&EMPTY))
                }
                (None, ConfigResource::BrokerDefault) => {
                    Some(state.configs(None).unwrap_or(&EMPTY))
                }
                (None, ConfigResource::Group(group)) => {
                    Some(state.group_configs(group).unwrap_or(&EMPTY))
                }
            };
            let answer = match (present, resource) {
                (Some(configs), _) => Ok(change.apply(configs)),
                (None, ConfigResource::Topic(id)) => Err(UnknownTopic(*id)),
                (
                    None,
                    ConfigResource::Broker(_)
                    | ConfigResource::BrokerDefault
                    | ConfigResource::Group(_),
                ) => Ok(change.apply(&EMPTY)),
            };
            if let Ok(configs) = &answer {
                altered.insert(resource.clone(), configs.clone());
            }
            output.push(answer);
        }
        if self.validate_only {
            return Ok(Decision::unchanged(output));
        }
        let mut changes = wal_marks(state, &altered);
        changes.extend(
            altered
                .into_iter()
                .filter_map(|(resource, configs)| to_change(state, resource, configs)),
        );
        Ok(Decision { changes, output })
    }
}

/// Partitions that become `local` are marked with their leader's WAL, which holds from now on what was
/// acknowledged and isn't uploaded.
fn wal_marks(state: &State, altered: &BTreeMap<ConfigResource, Configs>) -> Vec<Change> {
    let default = altered
        .get(&ConfigResource::BrokerDefault)
        .or_else(|| state.configs(None));
    let mut marks = Vec::new();
    for (topic_id, topic) in state.topics_by_id() {
        let configs = altered
            .get(&ConfigResource::Topic(topic_id))
            .unwrap_or(&topic.row.configs);
        if state.durability_under(configs, default) != DurabilityMode::Local {
            continue;
        }
        for (id, row) in topic.partition_ids(topic_id).zip(&topic.partitions) {
            let leader = row.leader.and_then(|leader| state.broker(leader));
            let wal = leader.and_then(|leader| leader.wal);
            if row.wal.is_none() && wal.is_some() {
                let mut row = row.clone();
                row.wal = wal;
                marks.push(Change::Partition(id, Some(row)));
            }
        }
    }
    marks
}

static EMPTY: Configs = Configs::new();

/// Nothing if the configs are as they were.
fn to_change(state: &State, resource: ConfigResource, configs: Configs) -> Option<Change> {
    match resource {
        ConfigResource::Topic(id) => {
            let topic = state.topic(id)?;
            let mut row = topic.row.clone();
            row.configs = configs;
            (row != topic.row).then_some(Change::Topic(id, Some(row)))
        }
        ConfigResource::Broker(id) => changed(state, Some(id), configs),
        ConfigResource::BrokerDefault => changed(state, None, configs),
        ConfigResource::Group(group) => {
            let present = state.group_configs(&group).unwrap_or(&EMPTY);
            (*present != configs).then_some(Change::GroupConfigs(group, configs))
        }
    }
}

fn changed(
    state: &State,
    broker: Option<tidegate_types::BrokerId>,
    configs: Configs,
) -> Option<Change> {
    let present = state.configs(broker).unwrap_or(&EMPTY);
    (*present != configs).then_some(Change::Configs(broker, configs))
}
