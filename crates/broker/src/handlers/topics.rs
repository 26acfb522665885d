//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    BrokerId as WireBrokerId, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    TopicName as WireTopicName,
};
use tidegate_metadata::api::{
    CreatePartitions, CreateTopics, CreatedTopic, DeleteTopics, MorePartitions, NewTopic,
    TopicLayout,
};
use tidegate_types::{BrokerId, TopicId, TopicName};

use super::text;
use crate::broker::{Broker, TopicRef};
use crate::catalog::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_internal};
use crate::config::{TOPIC_CONFIGS, topic_config};
use crate::error_code::ErrorCode;
use crate::quotas::{MutationRefused, Mutations, wire_ms};

/// How long an answer waits for new partitions to be open on this broker.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// Why a topic isn't created, with the words for the client.
type Refusal = (ErrorCode, String);

pub(crate) async fn create_topics(
    broker: &Broker,
    request: CreateTopicsRequest,
    mut mutations: Mutations<'_>,
) -> CreateTopicsResponse {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for topic in &request.topics {
        *counts.entry(topic.name.0.as_str()).or_default() += 1;
    }
    let wanted: Vec<Result<NewTopic, Refusal>> = request
        .topics
        .iter()
        .map(|topic| match counts.get(topic.name.0.as_str()) {
            Some(1) => new_topic(broker, topic),
            _ => Err((
                ErrorCode::InvalidRequest,
                "the topic is named more than once in the request".to_owned(),
            )),
        })
        .map(|wanted| wanted.and_then(|topic| admitted(broker, topic, &mut mutations)))
        .collect();
    let valid: Vec<NewTopic> = wanted
        .iter()
        .filter_map(|w| w.as_ref().ok().cloned())
        .collect();
    let command = CreateTopics {
        topics: valid,
        validate_only: request.validate_only,
    };
    let mut created = match broker.controller.create_topics(command).await {
        Ok(created) => created.into_iter(),
        Err(error) => {
            let code = ErrorCode::from(&error);
            return refuse_all(&request.topics, code, &error.to_string());
        }
    };
    if !request.validate_only {
        broker.wait_until_open(OPEN_WAIT).await;
    }
    let topics = request
        .topics
        .iter()
        .zip(wanted)
        .map(|(topic, wanted)| {
            let result = wanted.and_then(|_| match created.next() {
                Some(Ok(created)) => Ok(created),
                Some(Err(error)) => Err((ErrorCode::from(&error), error.to_string())),
                None => Err((
                    ErrorCode::UnknownServerError,
                    "the controller gave no answer".to_owned(),
                )),
            });
            create_answer(broker, topic, result)
        })
        .collect();
    CreateTopicsResponse::default()
        .with_topics(topics)
        .with_throttle_time_ms(wire_ms(mutations.throttle()))
}

/// Counts a topic's partitions against its creator's quota, unless there is the topic already.
fn admitted(
    broker: &Broker,
    topic: NewTopic,
    mutations: &mut Mutations<'_>,
) -> Result<NewTopic, Refusal> {
    let partitions = match &topic.layout {
        TopicLayout::Count { partitions, .. } => *partitions as usize,
        TopicLayout::Assigned(placements) => placements.len(),
    };
    let image = &broker.catalog.load().image;
    if image.topic(topic.name.as_str()).is_none() {
        mutations.take(partitions).map_err(over_quota)?;
    }
    Ok(topic)
}

fn over_quota(_: MutationRefused) -> Refusal {
    let message = "The throttling quota has been exceeded.".to_owned();
    (ErrorCode::ThrottlingQuotaExceeded, message)
}

fn refuse_all(topics: &[CreatableTopic], code: ErrorCode, message: &str) -> CreateTopicsResponse {
    let topics = topics
        .iter()
        .map(|t| {
            CreatableTopicResult::default()
                .with_name(t.name.clone())
                .with_error_code(code.code())
                .with_error_message(Some(text(message)))
                .with_num_partitions(-1)
                .with_replication_factor(-1)
        })
        .collect();
    CreateTopicsResponse::default().with_topics(topics)
}

fn create_answer(
    broker: &Broker,
    topic: &CreatableTopic,
    result: Result<CreatedTopic, Refusal>,
) -> CreatableTopicResult {
    let answer = CreatableTopicResult::default().with_name(topic.name.clone());
    match result {
        Ok(created) => answer
            .with_topic_id(created.id.map(TopicId::uuid).unwrap_or_default())
            .with_error_message(None)
            .with_num_partitions(i32::try_from(created.partitions).unwrap_or(i32::MAX))
            .with_replication_factor(i16::try_from(created.replication_factor).unwrap_or(i16::MAX))
            .with_configs(Some(created_configs(broker, &created.configs))),
        Err((code, message)) => answer
            .with_error_code(code.code())
            .with_error_message(Some(text(message)))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(None),
    }
}

/// All configs of a new topic with where each value comes from (KIP-525).
fn created_configs(broker: &Broker, set: &BTreeMap<String, String>) -> Vec<CreatableTopicConfigs> {
    TOPIC_CONFIGS
        .iter()
        .map(|definition| {
            let (value, source) = super::configs::topic_value(broker, set, definition);
            CreatableTopicConfigs::default()
                .with_name(text(definition.name))
                .with_value(Some(text(value)))
                .with_read_only(false)
                .with_config_source(source)
                .with_is_sensitive(false)
        })
        .collect()
}

fn new_topic(broker: &Broker, topic: &CreatableTopic) -> Result<NewTopic, Refusal> {
    let name = TopicName::new(topic.name.0.as_str())
        .map_err(|e| (ErrorCode::InvalidTopicException, e.to_string()))?;
    let mut configs = BTreeMap::new();
    for config in &topic.configs {
        let name = config.name.as_str();
        let invalid = |e: crate::config::InvalidConfig| (ErrorCode::InvalidConfig, e.to_string());
        let definition = topic_config(name).map_err(invalid)?;
        let Some(value) = &config.value else {
            return Err((
                ErrorCode::InvalidConfig,
                format!("Null value not supported for topic configs: {name}"),
            ));
        };
        definition.check(value.as_str()).map_err(invalid)?;
        configs.insert(name.to_owned(), value.as_str().to_owned());
    }
    Ok(NewTopic {
        layout: layout(broker, topic, &name)?,
        name,
        configs,
    })
}

fn layout(
    broker: &Broker,
    topic: &CreatableTopic,
    name: &TopicName,
) -> Result<TopicLayout, Refusal> {
    if !topic.assignments.is_empty() {
        if topic.num_partitions != -1 || topic.replication_factor != -1 {
            let message = "both a manual assignment and a number of partitions or a replication factor were given";
            return Err((ErrorCode::InvalidRequest, message.to_owned()));
        }
        return assigned(topic);
    }
    let partitions = match topic.num_partitions {
        -1 if name.as_str() == OFFSETS_TOPIC => broker.options.offsets_partitions,
        -1 if name.as_str() == TRANSACTIONS_TOPIC => broker.options.transactions_partitions,
        -1 => broker.options.default_partitions,
        count => u32::try_from(count)
            .ok()
            .filter(|c| *c > 0)
            .ok_or_else(|| {
                (
                    ErrorCode::InvalidPartitions,
                    "Number of partitions was set to an invalid non-positive value.".to_owned(),
                )
            })?,
    };
    let replication_factor = match topic.replication_factor {
        -1 => broker.options.default_replication_factor,
        factor => u16::try_from(factor)
            .ok()
            .filter(|f| *f > 0)
            .ok_or_else(|| {
                (
                    ErrorCode::InvalidReplicationFactor,
                    "Replication factor must be larger than 0, or -1.".to_owned(),
                )
            })?,
    };
    Ok(TopicLayout::Count {
        partitions,
        replication_factor,
    })
}

fn assigned(topic: &CreatableTopic) -> Result<TopicLayout, Refusal> {
    let invalid = |message: String| (ErrorCode::InvalidReplicaAssignment, message);
    let mut by_index = BTreeMap::new();
    for assignment in &topic.assignments {
        let brokers = broker_ids(&assignment.broker_ids).map_err(invalid)?;
        if by_index
            .insert(assignment.partition_index, brokers)
            .is_some()
        {
            return Err(invalid(format!(
                "partition {} is assigned twice",
                assignment.partition_index
            )));
        }
    }
    let expected = 0..i32::try_from(by_index.len()).unwrap_or(i32::MAX);
    if !by_index.keys().copied().eq(expected) {
        return Err(invalid(
            "partitions must be numbered from 0 without a gap".to_owned(),
        ));
    }
    Ok(TopicLayout::Assigned(by_index.into_values().collect()))
}

fn broker_ids(ids: &[WireBrokerId]) -> Result<Vec<BrokerId>, String> {
    ids.iter()
        .map(|id| BrokerId::from_wire(id.0).map_err(|e| e.to_string()))
        .collect()
}

/// Creates topics with the broker's defaults: those that clients ask for by Metadata, and the broker's own.
pub(crate) async fn create_with_defaults(broker: &Broker, names: Vec<TopicName>) {
    let topics = names
        .into_iter()
        .map(|name| {
            let partitions = match name.as_str() {
                OFFSETS_TOPIC => broker.options.offsets_partitions,
                TRANSACTIONS_TOPIC => broker.options.transactions_partitions,
                _ => broker.options.default_partitions,
            };
            NewTopic {
                layout: TopicLayout::Count {
                    partitions,
                    replication_factor: broker.options.default_replication_factor,
                },
                configs: if is_internal(name.as_str()) {
                    internal_configs()
                } else {
                    BTreeMap::new()
                },
                name,
            }
        })
        .collect();
    match broker
        .controller
        .create_topics(CreateTopics {
            topics,
            validate_only: false,
        })
        .await
    {
        Ok(answers) => {
            for error in answers.into_iter().filter_map(Result::err) {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a topic was not created automatically"
                );
            }
            broker.wait_until_open(OPEN_WAIT).await;
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "topics can't be created automatically"
            );
        }
    }
}

fn internal_configs() -> BTreeMap<String, String> {
    [
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", "104857600"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

pub(crate) async fn delete_topics(
    broker: &Broker,
    request: DeleteTopicsRequest,
    version: i16,
    mut mutations: Mutations<'_>,
) -> DeleteTopicsResponse {
    let wanted: Vec<DeleteTopicState> = if version >= 6 {
        request.topics
    } else {
        request
            .topic_names
            .into_iter()
            .map(|n| DeleteTopicState::default().with_name(Some(n)))
            .collect()
    };
    let catalog = broker.catalog.load_full();
    let mut seen = HashMap::new();
    let found: Vec<Result<TopicId, ErrorCode>> = wanted
        .iter()
        .map(|state| {
            let topic = match &state.name {
                Some(_) if !state.topic_id.is_nil() => return Err(ErrorCode::InvalidRequest),
                Some(name) => broker.topic(&catalog, TopicRef::Name(name.0.as_str()))?,
                None => broker.topic(&catalog, TopicRef::Id(state.topic_id))?,
            };
            let again = seen.insert(topic.id, ()).is_some();
            if again {
                Err(ErrorCode::InvalidRequest)
            } else {
                let taken = mutations.take(topic.partitions.len());
                taken.map_err(|_| ErrorCode::ThrottlingQuotaExceeded)?;
                Ok(topic.id)
            }
        })
        .collect();
    let ids = found
        .iter()
        .filter_map(|f| f.as_ref().ok().copied())
        .collect();
    let mut deleted = match broker
        .controller
        .delete_topics(DeleteTopics { topics: ids })
        .await
    {
        Ok(deleted) => deleted
            .into_iter()
            .map(|d| d.map_err(|_| ErrorCode::UnknownTopicId))
            .collect::<Vec<_>>()
            .into_iter(),
        Err(error) => vec![Err(ErrorCode::from(&error)); found.len()].into_iter(),
    };
    broker.wait_until_open(OPEN_WAIT).await;
    let responses = wanted
        .into_iter()
        .zip(found)
        .map(|(state, found)| {
            let result = found.and_then(|id| match deleted.next() {
                Some(Ok(name)) => Ok((id, name)),
                Some(Err(code)) => Err(code),
                None => Err(ErrorCode::UnknownServerError),
            });
            let answer = DeletableTopicResult::default();
            match result {
                Ok((id, name)) => answer
                    .with_name(Some(WireTopicName(text(name.as_str()))))
                    .with_topic_id(id.uuid()),
                Err(code) => answer
                    .with_name(state.name)
                    .with_topic_id(state.topic_id)
                    .with_error_code(code.code()),
            }
        })
        .collect();
    DeleteTopicsResponse::default()
        .with_responses(responses)
        .with_throttle_time_ms(wire_ms(mutations.throttle()))
}

pub(crate) async fn create_partitions(
    broker: &Broker,
    request: CreatePartitionsRequest,
    mut mutations: Mutations<'_>,
) -> CreatePartitionsResponse {
    let catalog = broker.catalog.load_full();
    let mut results = Vec::with_capacity(request.topics.len());
    let mut commands = Vec::new();
    for topic in &request.topics {
        let repeated = request
            .topics
            .iter()
            .filter(|t| t.name == topic.name)
            .count()
            > 1;
        let wanted = if repeated {
            Err((
                ErrorCode::InvalidRequest,
                "the topic is named more than once in the request".to_owned(),
            ))
        } else {
            more_partitions(broker, &catalog, topic).and_then(|more| {
                let present = catalog.image.topic_by_id(more.topic);
                let present = present.map_or(0, |topic| topic.partitions.len());
                let added = (more.total as usize).saturating_sub(present);
                mutations.take(added).map_err(over_quota)?;
                Ok(more)
            })
        };
        results.push(wanted.map(|more| commands.push(more)));
    }
    let command = CreatePartitions {
        topics: commands,
        validate_only: request.validate_only,
    };
    let mut answers = match broker.controller.create_partitions(command).await {
        Ok(answers) => answers
            .into_iter()
            .map(|a| a.map_err(|e| (ErrorCode::from(&e), e.to_string())))
            .collect::<Vec<_>>(),
        Err(error) => vec![Err((ErrorCode::from(&error), error.to_string())); results.len()],
    }
    .into_iter();
    if !request.validate_only {
        broker.wait_until_open(OPEN_WAIT).await;
    }
    let results = request
        .topics
        .into_iter()
        .zip(results)
        .map(|(topic, result)| {
            let result = result.and_then(|()| answers.next().unwrap_or(Ok(())));
            let answer = CreatePartitionsTopicResult::default().with_name(topic.name);
            match result {
                Ok(()) => answer.with_error_message(None),
                Err((code, message)) => answer
                    .with_error_code(code.code())
                    .with_error_message(Some(text(message))),
            }
        })
        .collect();
    CreatePartitionsResponse::default()
        .with_results(results)
        .with_throttle_time_ms(wire_ms(mutations.throttle()))
}

fn more_partitions(
    broker: &Broker,
    catalog: &crate::catalog::Catalog,
    topic: &CreatePartitionsTopic,
) -> Result<MorePartitions, Refusal> {
    let found = broker
        .topic(catalog, TopicRef::Name(topic.name.0.as_str()))
        .map_err(|code| (code, format!("there is no topic {}", topic.name.0)))?;
    if is_internal(found.name.as_str()) {
        return Err((
            ErrorCode::InvalidTopicException,
            "the partition count of an internal topic is fixed".to_owned(),
        ));
    }
    let total = u32::try_from(topic.count).map_err(|_| {
        (
            ErrorCode::InvalidPartitions,
            format!("the number of partitions can't be {}", topic.count),
        )
    })?;
    let assignments = match &topic.assignments {
        None => None,
        Some(assignments) => Some(
            assignments
                .iter()
                .map(|a| broker_ids(&a.broker_ids))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| (ErrorCode::InvalidReplicaAssignment, e))?,
        ),
    };
    Ok(MorePartitions {
        topic: found.id,
        total,
        assignments,
    })
}
