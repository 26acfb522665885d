//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.
//!
//! Topics have the configs of [`TOPIC_CONFIGS`]. Brokers have the defaults of those, under the names that Kafka
//! gives them (`log.retention.ms` for `retention.ms`), which may be changed at run time for one broker or for
//! all; and, to read only, the keys of this broker's own configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse, alter_configs_response, incremental_alter_configs_response,
    list_config_resources_response,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_metadata::api::{AlterConfigs, ConfigChange, ConfigEdit, ConfigResource};
use tidegate_types::BrokerId;

use super::text;
use crate::broker::{Broker, TopicRef};
use crate::config::{
    ConfigDefinition, ConfigKind, GROUP_CONFIGS, InvalidConfig, THROTTLE_CONFIGS, TOPIC_CONFIGS,
    group_config, split_list, topic_config,
};
use crate::error_code::ErrorCode;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

const DYNAMIC_TOPIC: i8 = 1;
const DYNAMIC_BROKER: i8 = 2;
const DYNAMIC_DEFAULT_BROKER: i8 = 3;
const STATIC_BROKER: i8 = 4;
const DEFAULT: i8 = 5;
const DYNAMIC_GROUP: i8 = 8;

/// How long an answer waits for the change to be in force on this broker.
const CHANGE_WAIT: Duration = Duration::from_secs(10);

type Refusal = (ErrorCode, String);

/// The values a topic config has at each level that sets it, the one in force first, Kafka's default last.
fn levels(
    broker: &Broker,
    set: &BTreeMap<String, String>,
    definition: &ConfigDefinition,
) -> Vec<(String, String, i8)> {
    let mut levels = Vec::new();
    if let Some(value) = set.get(definition.name) {
        levels.push((definition.name.to_owned(), value.clone(), DYNAMIC_TOPIC));
    }
    levels.extend(broker_levels(broker, definition));
    levels
}

/// The same, below the topic's own value.
fn broker_levels(broker: &Broker, definition: &ConfigDefinition) -> Vec<(String, String, i8)> {
    let catalog = broker.catalog.load();
    let image = &catalog.image;
    let mut levels = Vec::new();
    let name = definition.broker_synonym.unwrap_or(definition.name);
    if let Some(synonym) = definition.broker_synonym {
        if let Some(value) = image.broker_configs(broker.id).and_then(|c| c.get(synonym)) {
            levels.push((synonym.to_owned(), value.clone(), DYNAMIC_BROKER));
        }
        if let Some(value) = image.broker_default_configs().get(synonym) {
            levels.push((synonym.to_owned(), value.clone(), DYNAMIC_DEFAULT_BROKER));
        }
        if let Some(value) = broker.options.topic_defaults.explicit(definition.name) {
            levels.push((synonym.to_owned(), value.to_owned(), STATIC_BROKER));
        }
    }
    levels.push((name.to_owned(), definition.default.to_owned(), DEFAULT));
    levels
}

/// A topic config's value and where it comes from.
pub(crate) fn topic_value(
    broker: &Broker,
    set: &BTreeMap<String, String>,
    definition: &ConfigDefinition,
) -> (String, i8) {
    let first = levels(broker, set, definition).into_iter().next();
    first.map_or_else(
        || (definition.default.to_owned(), DEFAULT),
        |(_, value, source)| (value, source),
    )
}

pub(crate) fn describe_configs(
    broker: &Broker,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request
        .resources
        .iter()
        .map(|resource| {
            let answer = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match described(
                broker,
                resource,
                request.include_synonyms,
                request.include_documentation,
            ) {
                Ok(configs) => answer.with_configs(configs).with_error_message(None),
                Err((code, message)) => answer
                    .with_error_code(code.code())
                    .with_error_message(Some(text(message))),
            }
        })
        .collect();
    DescribeConfigsResponse::default().with_results(results)
}

fn described(
    broker: &Broker,
    resource: &DescribeConfigsResource,
    synonyms: bool,
    documentation: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let wanted = |name: &str| {
        // Some clients send an empty list to say "all".
        resource
            .configuration_keys
            .as_ref()
            .is_none_or(|k| k.is_empty() || k.iter().any(|k| k.as_str() == name))
    };
    match resource.resource_type {
        TOPIC => {
            let catalog = broker.catalog.load_full();
            let topic = broker
                .topic(&catalog, TopicRef::Name(resource.resource_name.as_str()))
                .map_err(|code| {
                    (
                        code,
                        format!("there is no topic {}", resource.resource_name),
                    )
                })?;
            let configs = TOPIC_CONFIGS
                .iter()
                .filter(|d| wanted(d.name))
                .map(|definition| {
                    let levels = levels(broker, &topic.configs, definition);
                    entry(definition.name, definition, levels, synonyms, documentation)
                });
            Ok(configs.collect())
        }
        BROKER => {
            let target = broker_resource(&resource.resource_name)?;
            if target.is_some_and(|id| id != broker.id) {
                let message = format!(
                    "this is broker {}; ask broker {} itself",
                    broker.id, resource.resource_name
                );
                return Err((ErrorCode::InvalidRequest, message));
            }
            Ok(describe_broker(
                broker,
                target.is_none(),
                &wanted,
                synonyms,
                documentation,
            ))
        }
        GROUP => {
            let catalog = broker.catalog.load_full();
            let set = catalog.image.group_configs(resource.resource_name.as_str());
            let configs = GROUP_CONFIGS
                .iter()
                .filter(|d| wanted(d.name))
                .map(|definition| {
                    let levels = group_levels(broker, set, definition);
                    entry(definition.name, definition, levels, synonyms, documentation)
                });
            Ok(configs.collect())
        }
        other => Err((
            ErrorCode::InvalidRequest,
            format!("resource type {other} has no configs here"),
        )),
    }
}

/// The group's own value, then the broker's, then Kafka's default.
fn group_levels(
    broker: &Broker,
    set: Option<&BTreeMap<String, String>>,
    definition: &ConfigDefinition,
) -> Vec<(String, String, i8)> {
    let mut levels = Vec::new();
    if let Some(value) = set.and_then(|set| set.get(definition.name)) {
        levels.push((definition.name.to_owned(), value.clone(), DYNAMIC_GROUP));
    }
    let synonym = definition.broker_synonym.unwrap_or(definition.name);
    if let Some(value) = broker.options.shown_configs.get(synonym) {
        levels.push((synonym.to_owned(), value.clone(), STATIC_BROKER));
    }
    let default = definition.default.to_owned();
    levels.push((synonym.to_owned(), default, DEFAULT));
    levels
}

fn describe_broker(
    broker: &Broker,
    cluster_wide: bool,
    wanted: &dyn Fn(&str) -> bool,
    synonyms: bool,
    documentation: bool,
) -> Vec<DescribeConfigsResourceResult> {
    let mut configs: Vec<DescribeConfigsResourceResult> = TOPIC_CONFIGS
        .iter()
        .filter_map(|d| d.broker_synonym.map(|name| (name, d)))
        .filter(|(name, _)| wanted(name))
        .map(|(name, definition)| {
            let mut levels = broker_levels(broker, definition);
            if cluster_wide {
                levels.retain(|(_, _, source)| *source == DYNAMIC_DEFAULT_BROKER);
            }
            (name, definition, levels)
        })
        .filter(|(_, _, levels)| !levels.is_empty())
        .map(|(name, definition, levels)| entry(name, definition, levels, synonyms, documentation))
        .collect();
    if !cluster_wide {
        let fixed = under_kafkas_names(broker).into_iter();
        configs.extend(fixed.filter(|(name, ..)| wanted(name)).map(
            |(name, value, kind, source)| {
                DescribeConfigsResourceResult::default()
                    .with_name(text(name))
                    .with_value(Some(text(value)))
                    .with_read_only(true)
                    .with_config_source(source)
                    .with_config_type(kind.wire_type())
            },
        ));
        configs.extend(
            broker
                .options
                .shown_configs
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|(name, value)| {
                    DescribeConfigsResourceResult::default()
                        .with_name(text(name.as_str()))
                        .with_value(Some(text(value.as_str())))
                        .with_read_only(true)
                        .with_config_source(STATIC_BROKER)
                        .with_config_type(ConfigKind::String.wire_type())
                }),
        );
    }
    configs
}

/// What tools look for under Kafka's names, to read only: this broker's own settings, and what is fixed here.
fn under_kafkas_names(broker: &Broker) -> Vec<(&'static str, String, ConfigKind, i8)> {
    let options = &broker.options;
    let (id, set) = (broker.id.to_string(), STATIC_BROKER);
    let int = ConfigKind::Int;
    vec![
        (
            "auto.create.topics.enable",
            options.auto_create_topics.to_string(),
            ConfigKind::Boolean,
            set,
        ),
        ("broker.id", id.clone(), int, set),
        (
            "default.replication.factor",
            options.default_replication_factor.to_string(),
            int,
            set,
        ),
        (
            "delete.topic.enable",
            "true".to_owned(),
            ConfigKind::Boolean,
            DEFAULT,
        ),
        (
            "fetch.max.bytes",
            options.fetch_max_bytes.to_string(),
            int,
            set,
        ),
        ("log.dirs", options.log_dir.clone(), ConfigKind::List, set),
        ("node.id", id, int, set),
        (
            "num.partitions",
            options.default_partitions.to_string(),
            int,
            set,
        ),
        (
            "offsets.topic.num.partitions",
            options.offsets_partitions.to_string(),
            int,
            set,
        ),
        ("quota.window.num", "11".to_owned(), int, DEFAULT),
        ("quota.window.size.seconds", "1".to_owned(), int, DEFAULT),
    ]
}

fn entry(
    name: &str,
    definition: &ConfigDefinition,
    levels: Vec<(String, String, i8)>,
    synonyms: bool,
    documentation: bool,
) -> DescribeConfigsResourceResult {
    let (value, source) = levels.first().map_or(("", DEFAULT), |(_, value, source)| {
        (value.as_str(), *source)
    });
    let mut result = DescribeConfigsResourceResult::default()
        .with_name(text(name))
        .with_value(Some(text(value)))
        .with_read_only(false)
        .with_config_source(source)
        .with_config_type(definition.kind.wire_type())
        .with_documentation(documentation.then(|| text(definition.doc)));
    if synonyms {
        result.synonyms = levels
            .into_iter()
            .map(|(name, value, source)| {
                DescribeConfigsSynonym::default()
                    .with_name(text(name))
                    .with_value(Some(text(value)))
                    .with_source(source)
            })
            .collect();
    }
    result
}

/// `None` for the cluster-wide default.
fn broker_resource(name: &StrBytes) -> Result<Option<BrokerId>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    let id = name
        .as_str()
        .parse()
        .ok()
        .and_then(|id: u32| BrokerId::new(id).ok());
    id.map(Some).ok_or_else(|| {
        (
            ErrorCode::InvalidRequest,
            format!("{:?} is no broker id", name.as_str()),
        )
    })
}

pub(crate) async fn alter_configs(
    broker: &Broker,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let wanted = request
        .resources
        .iter()
        .map(|resource| {
            let mut configs = BTreeMap::new();
            let target = target(broker, resource.resource_type, &resource.resource_name)?;
            for config in &resource.configs {
                // A null value means "back to the default", which a full replacement does anyway.
                if let Some(value) = &config.value {
                    let definition = definition(resource.resource_type, config.name.as_str())?;
                    definition.check(value.as_str()).map_err(invalid)?;
                    configs.insert(config.name.as_str().to_owned(), value.as_str().to_owned());
                }
            }
            Ok((target, ConfigChange::Replace(configs)))
        })
        .collect();
    let results = apply(broker, wanted, request.validate_only).await;
    let responses = answers(request.resources, results, |resource, code, message| {
        alter_configs_response::AlterConfigsResourceResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
    });
    AlterConfigsResponse::default().with_responses(responses)
}

pub(crate) async fn incremental_alter_configs(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let wanted = request
        .resources
        .iter()
        .map(|resource| {
            let target = target(broker, resource.resource_type, &resource.resource_name)?;
            let edits = resource
                .configs
                .iter()
                .map(|config| {
                    edit(
                        broker,
                        resource.resource_type,
                        config.name.as_str(),
                        config.config_operation,
                        config.value.as_ref(),
                    )
                })
                .collect::<Result<Vec<_>, Refusal>>()?;
            Ok((target, ConfigChange::Edit(edits)))
        })
        .collect();
    let results = apply(broker, wanted, request.validate_only).await;
    let responses = answers(request.resources, results, |resource, code, message| {
        incremental_alter_configs_response::AlterConfigsResourceResponse::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

fn edit(
    broker: &Broker,
    resource_type: i8,
    name: &str,
    operation: i8,
    value: Option<&StrBytes>,
) -> Result<ConfigEdit, Refusal> {
    let definition = definition(resource_type, name)?;
    let name = name.to_owned();
    let value =
        || value.ok_or_else(|| (ErrorCode::InvalidRequest, format!("{name} needs a value")));
    match operation {
        0 => {
            let value = value()?.as_str().to_owned();
            definition.check(&value).map_err(invalid)?;
            Ok(ConfigEdit::Set { name, value })
        }
        1 => Ok(ConfigEdit::Delete { name }),
        2 | 3 => {
            if definition.kind != ConfigKind::List {
                return Err(invalid(InvalidConfig::NotAList {
                    name: definition.name,
                }));
            }
            definition.check(value()?.as_str()).map_err(invalid)?;
            let values = split_list(value()?.as_str()).map(str::to_owned).collect();
            // No group config is a list.
            let default = topic_value(broker, &BTreeMap::new(), definition).0;
            Ok(match operation {
                2 => ConfigEdit::Append {
                    name,
                    values,
                    default,
                },
                _ => ConfigEdit::Subtract {
                    name,
                    values,
                    default,
                },
            })
        }
        other => Err((
            ErrorCode::InvalidRequest,
            format!("there is no config operation {other}"),
        )),
    }
}

/// The definition behind a topic's or broker's config name.
fn definition(resource_type: i8, name: &str) -> Result<&'static ConfigDefinition, Refusal> {
    match resource_type {
        BROKER => TOPIC_CONFIGS
            .iter()
            .find(|d| d.broker_synonym == Some(name))
            .or_else(|| THROTTLE_CONFIGS.iter().find(|d| d.name == name))
            .ok_or_else(|| {
                let message = format!(
                    "{name} can't be changed at run time: set it in the broker's configuration"
                );
                (ErrorCode::InvalidConfig, message)
            }),
        GROUP => group_config(name).map_err(invalid),
        _ => topic_config(name).map_err(invalid),
    }
}

fn invalid(error: InvalidConfig) -> Refusal {
    (ErrorCode::InvalidConfig, error.to_string())
}

fn target(broker: &Broker, resource_type: i8, name: &StrBytes) -> Result<ConfigResource, Refusal> {
    match resource_type {
        TOPIC => {
            let catalog = broker.catalog.load();
            let topic = broker.topic(&catalog, TopicRef::Name(name.as_str()));
            topic
                .map(|t| ConfigResource::Topic(t.id))
                .map_err(|code| (code, format!("there is no topic {name}")))
        }
        BROKER => Ok(
            broker_resource(name)?.map_or(ConfigResource::BrokerDefault, ConfigResource::Broker)
        ),
        GROUP if name.is_empty() => Err((
            ErrorCode::InvalidRequest,
            "a group's configs need its name".to_owned(),
        )),
        GROUP => Ok(ConfigResource::Group(name.as_str().to_owned())),
        other => Err((
            ErrorCode::InvalidRequest,
            format!("resource type {other} has no configs here"),
        )),
    }
}

/// Sends what is valid to the controller; answers in the order of the request.
async fn apply(
    broker: &Broker,
    wanted: Vec<Result<(ConfigResource, ConfigChange), Refusal>>,
    validate_only: bool,
) -> Vec<Result<(), Refusal>> {
    let changes = wanted
        .iter()
        .filter_map(|w| w.as_ref().ok().cloned())
        .collect();
    let answered = broker
        .controller
        .alter_configs(AlterConfigs {
            changes,
            validate_only,
        })
        .await;
    if !validate_only {
        // So that a description asked for next shows the change.
        broker.wait_until_open(CHANGE_WAIT).await;
    }
    let mut answers = match answered {
        Ok(answers) => answers
            .into_iter()
            .map(|a| {
                a.map(|_| ())
                    .map_err(|e| (ErrorCode::UnknownTopicOrPartition, e.to_string()))
            })
            .collect::<Vec<_>>(),
        Err(error) => vec![Err((ErrorCode::from(&error), error.to_string())); wanted.len()],
    }
    .into_iter();
    wanted
        .into_iter()
        .map(|w| w.and_then(|_| answers.next().unwrap_or(Ok(()))))
        .collect()
}

/// One answer for each resource: the two requests have types of their own for the same fields.
fn answers<Resource, Answer>(
    resources: Vec<Resource>,
    results: Vec<Result<(), Refusal>>,
    answer: impl Fn(Resource, i16, Option<StrBytes>) -> Answer,
) -> Vec<Answer> {
    let answered = resources.into_iter().zip(results);
    answered
        .map(|(resource, result)| match result {
            Ok(()) => answer(resource, ErrorCode::None.code(), None),
            Err((code, message)) => answer(resource, code.code(), Some(text(message))),
        })
        .collect()
}

pub(crate) fn list_config_resources(
    broker: &Broker,
    request: ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    // Version 0 lists client metrics only, of which there are none.
    if version == 0 {
        return ListConfigResourcesResponse::default();
    }
    let types = if request.resource_types.is_empty() {
        vec![TOPIC, BROKER, GROUP]
    } else {
        request.resource_types
    };
    let catalog = broker.catalog.load_full();
    let mut resources = Vec::new();
    for kind in types {
        let names: Vec<String> = match kind {
            TOPIC => catalog
                .image
                .topics()
                .map(|t| t.name.as_str().to_owned())
                .collect(),
            BROKER => catalog.image.brokers().map(|b| b.id.to_string()).collect(),
            GROUP => catalog.image.configured_groups().cloned().collect(),
            _ => Vec::new(),
        };
        resources.extend(names.into_iter().map(|name| {
            list_config_resources_response::ConfigResource::default()
                .with_resource_name(text(name))
                .with_resource_type(kind)
        }));
    }
    ListConfigResourcesResponse::default().with_config_resources(resources)
}
