//! Topics.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tidegate_cluster::view::ClusterView;
use tidegate_metadata::api::{
    CreateTopicError, CreateTopics, CreatedTopic, DeleteTopics, NewTopic, TopicLayout,
};
use tidegate_metadata::{PartitionImage, TopicImage};
use tidegate_types::{PartitionId, PartitionIndex, TopicName};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::leaders::{Statuses, log_statuses};
use super::topic_named;
use crate::extract::{Body, Cluster, Named};
use crate::problem::{ProblemBody, ProblemKind};
use crate::{AdminState, Problem};

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(describe, delete))
}

/// All topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topics {
    /// In the order of their names.
    pub topics: Vec<Topic>,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its identity; a topic that is deleted and created anew has another one.
    pub id: String,
    /// Number of partitions.
    pub partitions: u32,
    /// How many brokers may lead its first partition.
    pub replication_factor: u32,
    /// The broker keeps its own records in it.
    pub internal: bool,
    /// The configs that were set, by their Kafka names.
    pub configs: BTreeMap<String, String>,
}

/// A topic with its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopicDescription {
    /// The topic.
    #[serde(flatten)]
    pub topic: Topic,
    /// Its partitions, in the order of their numbers.
    pub partition_list: Vec<PartitionSummary>,
}

/// One partition of a topic. What only the leader knows isn't there if it didn't answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionSummary {
    /// Its number.
    pub partition: u32,
    /// Who leads it; nobody can append or read without.
    pub leader: Option<u32>,
    /// The number of its leadership; it rises with each change.
    pub leader_epoch: u32,
    /// The brokers that may lead it, the preferred first.
    pub placement: Vec<u32>,
    /// First readable offset.
    pub log_start: Option<u64>,
    /// What readers see ends here.
    pub high_watermark: Option<u64>,
    /// Bytes in object storage.
    pub stored_bytes: Option<u64>,
    /// Bytes that aren't in object storage yet.
    pub not_uploaded_bytes: Option<u64>,
}

/// A topic to be created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTopic {
    /// Its name: 1 to 249 of `a-z A-Z 0-9 . _ -`.
    pub name: String,
    /// Number of partitions; the broker's default if it isn't said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// How many brokers may lead each partition. Object storage does the replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<u16>,
    /// Configs, by their Kafka names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configs: BTreeMap<String, String>,
    /// Check only, change nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validate_only: bool,
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn topic_of(cluster: &ClusterView, topic: &TopicImage) -> Topic {
    let first = topic.partitions.first();
    Topic {
        name: topic.name.as_str().to_owned(),
        id: topic.id.to_string(),
        partitions: count(topic.partitions.len()),
        replication_factor: first.map_or(0, |partition| count(partition.placement.len())),
        internal: (cluster.topics.is_internal)(topic.name.as_str()),
        configs: topic.configs.clone(),
    }
}

fn summary(id: PartitionId, image: &PartitionImage, statuses: &Statuses) -> PartitionSummary {
    let status = statuses.get(&id).and_then(|status| status.as_ref().ok());
    PartitionSummary {
        partition: id.index.get(),
        leader: image.leader.map(|leader| leader.get()),
        leader_epoch: image.leader_epoch.get(),
        placement: image.placement.iter().map(|broker| broker.get()).collect(),
        log_start: status.map(|s| s.log_start.get()),
        high_watermark: status.map(|s| s.high_watermark.get()),
        stored_bytes: status.map(|s| s.stored_bytes),
        not_uploaded_bytes: status.map(|s| s.not_uploaded_bytes),
    }
}

/// All topics.
#[utoipa::path(
    get, path = "/v1/topics", tag = "topics", operation_id = "list_topics",
    responses(
        (status = 200, description = "All topics, internal ones among them", body = Topics),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn list(Cluster(cluster): Cluster) -> Json<Topics> {
    let image = cluster.image();
    let topics = image.topics();
    Json(Topics {
        topics: topics.map(|topic| topic_of(&cluster, topic)).collect(),
    })
}

/// A topic with its partitions.
#[utoipa::path(
    get, path = "/v1/topics/{topic}", tag = "topics", operation_id = "describe_topic",
    params(("topic" = String, Path, description = "The topic's name")),
    responses(
        (status = 200, description = "The topic", body = TopicDescription),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn describe(
    Cluster(cluster): Cluster,
    Named(name): Named<String>,
) -> Result<Json<TopicDescription>, Problem> {
    let image = cluster.image();
    let topic = topic_named(&image, &name)?;
    let partitions: Vec<(PartitionId, &PartitionImage)> = (0..)
        .map_while(|index| PartitionIndex::new(index).ok())
        .zip(&topic.partitions)
        .map(|(index, partition)| {
            let id = PartitionId {
                topic: topic.id,
                index,
            };
            (id, partition)
        })
        .collect();
    let statuses = log_statuses(&cluster, &image, partitions.iter().map(|(id, _)| *id)).await;
    Ok(Json(TopicDescription {
        topic: topic_of(&cluster, topic),
        partition_list: partitions
            .into_iter()
            .map(|(id, partition)| summary(id, partition, &statuses))
            .collect(),
    }))
}

fn invalid(detail: String) -> Problem {
    Problem::new(ProblemKind::InvalidTopic, detail)
}

fn new_topic(cluster: &ClusterView, wanted: &CreateTopic) -> Result<NewTopic, Problem> {
    let name = TopicName::new(&wanted.name).map_err(|error| invalid(error.to_string()))?;
    for (config, value) in &wanted.configs {
        (cluster.topics.check_config)(config, value)
            .map_err(|refusal| invalid(format!("field configs.{config}: {refusal}")))?;
    }
    let rules = &cluster.topics;
    Ok(NewTopic {
        name,
        layout: TopicLayout::Count {
            partitions: wanted.partitions.unwrap_or(rules.default_partitions),
            replication_factor: wanted
                .replication_factor
                .unwrap_or(rules.default_replication_factor),
        },
        configs: wanted.configs.clone(),
    })
}

/// Whether a topic that exists is what is wanted, so that a repeated request is as good as the first.
fn is_as_wanted(topic: &TopicImage, wanted: &CreateTopic) -> bool {
    let partitions = wanted.partitions;
    partitions.is_none_or(|partitions| partitions == count(topic.partitions.len()))
        && topic.configs == wanted.configs
}

fn created(cluster: &ClusterView, created: CreatedTopic) -> Topic {
    let image = cluster.image();
    match created.id.and_then(|id| image.topic_by_id(id)) {
        Some(topic) => topic_of(cluster, topic),
        // Only validated, or not in this broker's picture yet.
        None => Topic {
            name: created.name.as_str().to_owned(),
            id: created.id.map_or_else(String::new, |id| id.to_string()),
            partitions: created.partitions,
            replication_factor: u32::from(created.replication_factor),
            internal: (cluster.topics.is_internal)(created.name.as_str()),
            configs: created.configs,
        },
    }
}

/// Creates a topic. One that exists just so already is answered with 200.
#[utoipa::path(
    post, path = "/v1/topics", tag = "topics", operation_id = "create_topic",
    request_body = CreateTopic,
    responses(
        (status = 201, description = "It was created", body = Topic),
        (status = 200, description = "It existed just so, or could be created", body = Topic),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn create(
    Cluster(cluster): Cluster,
    Body(wanted): Body<CreateTopic>,
) -> Result<(StatusCode, Json<Topic>), Problem> {
    let request = CreateTopics {
        topics: vec![new_topic(&cluster, &wanted)?],
        validate_only: wanted.validate_only,
    };
    let answers = cluster.controller.create_topics(request).await?;
    let answer = answers.into_iter().next().ok_or_else(|| {
        Problem::new(
            ProblemKind::OutcomeUnknown,
            "the controller gave no answer for this topic",
        )
    })?;
    match answer {
        Ok(new) => {
            let status = if wanted.validate_only {
                StatusCode::OK
            } else {
                StatusCode::CREATED
            };
            Ok((status, Json(created(&cluster, new))))
        }
        Err(error @ CreateTopicError::Exists { .. }) => {
            let image = cluster.image();
            match image.topic(&wanted.name) {
                Some(topic) if is_as_wanted(topic, &wanted) => {
                    Ok((StatusCode::OK, Json(topic_of(&cluster, topic))))
                }
                _ => Err(Problem::new(ProblemKind::TopicExists, error.to_string())),
            }
        }
        Err(CreateTopicError::NoBroker) => Err(Problem::new(
            ProblemKind::Unavailable,
            CreateTopicError::NoBroker.to_string(),
        )),
        Err(error) => Err(invalid(error.to_string())),
    }
}

/// Deletes a topic and, in the background, its records.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}", tag = "topics", operation_id = "delete_topic",
    params(("topic" = String, Path, description = "The topic's name")),
    responses(
        (status = 204, description = "It is deleted"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn delete(
    Cluster(cluster): Cluster,
    Named(name): Named<String>,
) -> Result<StatusCode, Problem> {
    let image = cluster.image();
    let topic = topic_named(&image, &name)?;
    if (cluster.topics.is_internal)(&name) {
        return Err(invalid(format!(
            "topic {name:?} holds the broker's own records and can't be deleted"
        )));
    }
    let request = DeleteTopics {
        topics: vec![topic.id],
    };
    let answers = cluster.controller.delete_topics(request).await?;
    match answers.into_iter().next() {
        Some(Ok(_)) => Ok(StatusCode::NO_CONTENT),
        Some(Err(_)) => Err(Problem::unknown_topic(&name)),
        None => Err(Problem::new(
            ProblemKind::OutcomeUnknown,
            "the controller gave no answer for this topic",
        )),
    }
}
