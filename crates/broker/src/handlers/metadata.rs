//! Metadata, DescribeTopicPartitions: who leads what.

use std::sync::Arc;

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor as ResponseCursor, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId as WireBrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    MetadataRequest, MetadataResponse, TopicName as WireTopicName,
};
use tidegate_metadata::{BrokerImage, ClusterImage, PartitionImage, TopicImage};
use tidegate_types::TopicName;
use uuid::Uuid;

use super::{CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS, text};
use crate::broker::{Broker, TopicRef};
use crate::catalog::{OFFSETS_TOPIC, is_internal};
use crate::error_code::ErrorCode;

/// The most partitions in one DescribeTopicPartitions answer (`max.request.partition.size.limit`).
const DESCRIBE_LIMIT: usize = 2000;

pub(crate) async fn metadata(
    broker: &Broker,
    request: MetadataRequest,
    version: i16,
) -> MetadataResponse {
    let wanted = match request.topics {
        // Version 0 has no way to say "all" but an empty list.
        Some(topics) if version > 0 || !topics.is_empty() => Some(topics),
        _ => None,
    };
    if let Some(topics) = &wanted
        && request.allow_auto_topic_creation
    {
        create_missing(broker, topics).await;
    }
    let catalog = broker.catalog.load_full();
    let image = &catalog.image;
    let operations = request.include_topic_authorized_operations;
    let topics = match wanted {
        None => image
            .topics()
            .map(|t| topic_answer(image, t, operations))
            .collect(),
        Some(topics) => topics
            .iter()
            .map(|t| wanted_answer(broker, image, t, operations))
            .collect(),
    };
    let mut response = MetadataResponse::default()
        .with_brokers(
            image
                .brokers()
                .filter(|b| is_named(broker, b))
                .map(broker_answer)
                .collect(),
        )
        .with_cluster_id(Some(text(image.cluster_id())))
        .with_controller_id(WireBrokerId(controller_id(image)))
        .with_topics(topics)
        .with_cluster_authorized_operations(OPERATIONS_NOT_ASKED);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

/// Whether clients are told of it as one that lives. The broker that answers always is, whatever its picture says of
/// it (a paused controller may have taken all for dead): a client that is told of nobody has nobody left to ask.
pub(crate) fn is_named(broker: &Broker, other: &BrokerImage) -> bool {
    other.alive || other.id == broker.id
}

/// The controller's id as clients may use it: a live broker, or −1.
pub(crate) fn controller_id(image: &ClusterImage) -> i32 {
    image
        .controller()
        .filter(|id| image.broker(*id).is_some_and(|b| b.alive))
        .map_or(-1, |id| id.to_wire())
}

fn broker_answer(broker: &BrokerImage) -> MetadataResponseBroker {
    MetadataResponseBroker::default()
        .with_node_id(WireBrokerId(broker.id.to_wire()))
        .with_host(text(broker.kafka.host.as_str()))
        .with_port(i32::from(broker.kafka.port))
        .with_rack(broker.rack.as_deref().map(text))
}

fn wanted_answer(
    broker: &Broker,
    image: &Arc<ClusterImage>,
    wanted: &MetadataRequestTopic,
    operations: bool,
) -> MetadataResponseTopic {
    let catalog = broker.catalog.load();
    let (found, name, id) = match &wanted.name {
        Some(name) => (
            broker.topic(&catalog, TopicRef::Name(name.0.as_str())),
            Some(name.clone()),
            Uuid::nil(),
        ),
        None => (
            broker.topic(&catalog, TopicRef::Id(wanted.topic_id)),
            None,
            wanted.topic_id,
        ),
    };
    match found {
        Ok(topic) => topic_answer(image, &topic, operations),
        Err(code) => {
            let invalid = name
                .as_ref()
                .is_some_and(|n| TopicName::new(n.0.as_str()).is_err());
            let code = if invalid {
                ErrorCode::InvalidTopicException
            } else {
                code
            };
            MetadataResponseTopic::default()
                .with_error_code(code.code())
                .with_name(name)
                .with_topic_id(id)
                .with_topic_authorized_operations(OPERATIONS_NOT_ASKED)
        }
    }
}

fn topic_answer(
    image: &ClusterImage,
    topic: &TopicImage,
    operations: bool,
) -> MetadataResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .enumerate()
        .map(|(index, partition)| {
            let sets = ReplicaSets::of(image, partition);
            MetadataResponsePartition::default()
                .with_error_code(sets.code.code())
                .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
                .with_leader_id(WireBrokerId(sets.leader))
                .with_leader_epoch(partition.leader_epoch.to_wire())
                .with_replica_nodes(sets.replicas)
                .with_isr_nodes(sets.in_sync)
                .with_offline_replicas(sets.offline)
        })
        .collect();
    MetadataResponseTopic::default()
        .with_name(Some(WireTopicName(text(topic.name.as_str()))))
        .with_topic_id(topic.id.uuid())
        .with_is_internal(is_internal(topic.name.as_str()))
        .with_partitions(partitions)
        .with_topic_authorized_operations(if operations {
            TOPIC_OPERATIONS
        } else {
            OPERATIONS_NOT_ASKED
        })
}

/// A partition's placement in the words of the wire: replicas, those alive, those not.
struct ReplicaSets {
    code: ErrorCode,
    leader: i32,
    replicas: Vec<WireBrokerId>,
    in_sync: Vec<WireBrokerId>,
    offline: Vec<WireBrokerId>,
}

impl ReplicaSets {
    fn of(image: &ClusterImage, partition: &PartitionImage) -> Self {
        let alive = |id| image.broker(id).is_some_and(|b| b.alive);
        let leader = partition.leader.filter(|id| alive(*id));
        let mut replicas = partition.placement.clone();
        // A leader outside the placement (a move under way) is a replica too, or clients would refuse it.
        if let Some(leader) = leader.filter(|id| !replicas.contains(id)) {
            replicas.push(leader);
        }
        let wire = |ids: Vec<tidegate_types::BrokerId>| {
            ids.into_iter()
                .map(|id| WireBrokerId(id.to_wire()))
                .collect()
        };
        let (in_sync, offline) = replicas.iter().copied().partition(|id| alive(*id));
        Self {
            code: if leader.is_some() {
                ErrorCode::None
            } else {
                ErrorCode::LeaderNotAvailable
            },
            leader: leader.map_or(-1, |id| id.to_wire()),
            replicas: wire(replicas),
            in_sync: wire(in_sync),
            offline: wire(offline),
        }
    }
}

/// Creates the topics that are asked for by name and don't exist, if the broker is configured so.
async fn create_missing(broker: &Broker, topics: &[MetadataRequestTopic]) {
    let catalog = broker.catalog.load_full();
    let missing: Vec<TopicName> = topics
        .iter()
        .filter_map(|t| t.name.as_ref())
        .filter(|name| catalog.image.topic(name.0.as_str()).is_none())
        .filter(|name| broker.options.auto_create_topics || name.0.as_str() == OFFSETS_TOPIC)
        .filter_map(|name| TopicName::new(name.0.as_str()).ok())
        .collect();
    if !missing.is_empty() {
        super::topics::create_with_defaults(broker, missing).await;
    }
}

/// DescribeTopicPartitions (KIP-966): topics in the order of their names, in pages.
pub(crate) fn describe_topic_partitions(
    broker: &Broker,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let catalog = broker.catalog.load_full();
    let image = &catalog.image;
    let limit = usize::try_from(request.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, DESCRIBE_LIMIT);
    let mut names: Vec<String> = if request.topics.is_empty() {
        image.topics().map(|t| t.name.as_str().to_owned()).collect()
    } else {
        request
            .topics
            .iter()
            .map(|t| t.name.0.as_str().to_owned())
            .collect()
    };
    names.sort();
    names.dedup();
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) => (
            cursor.topic_name.0.as_str().to_owned(),
            usize::try_from(cursor.partition_index).unwrap_or(0),
        ),
        None => (String::new(), 0),
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut room = limit;
    for name in names.into_iter().filter(|n| *n >= from_topic) {
        let Some(topic) = image.topic(&name) else {
            response.topics.push(
                DescribeTopicPartitionsResponseTopic::default()
                    .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
                    .with_name(Some(WireTopicName(text(name)))),
            );
            continue;
        };
        let first = if name == from_topic {
            from_partition
        } else {
            0
        };
        if room == 0 {
            response.next_cursor = Some(cursor(&name, first));
            return response;
        }
        let partitions: Vec<_> = topic
            .partitions
            .iter()
            .enumerate()
            .skip(first)
            .take(room)
            .collect();
        room -= partitions.len();
        let next = first + partitions.len();
        response.topics.push(
            DescribeTopicPartitionsResponseTopic::default()
                .with_name(Some(WireTopicName(text(name.as_str()))))
                .with_topic_id(topic.id.uuid())
                .with_is_internal(is_internal(&name))
                .with_partitions(
                    partitions
                        .into_iter()
                        .map(|(i, p)| described(image, i, p))
                        .collect(),
                )
                .with_topic_authorized_operations(TOPIC_OPERATIONS),
        );
        if next < topic.partitions.len() {
            response.next_cursor = Some(cursor(&name, next));
            return response;
        }
    }
    response
}

fn cursor(topic: &str, partition: usize) -> ResponseCursor {
    ResponseCursor::default()
        .with_topic_name(WireTopicName(text(topic)))
        .with_partition_index(i32::try_from(partition).unwrap_or(i32::MAX))
}

fn described(
    image: &ClusterImage,
    index: usize,
    partition: &PartitionImage,
) -> DescribeTopicPartitionsResponsePartition {
    let sets = ReplicaSets::of(image, partition);
    DescribeTopicPartitionsResponsePartition::default()
        .with_error_code(sets.code.code())
        .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
        .with_leader_id(WireBrokerId(sets.leader))
        .with_leader_epoch(partition.leader_epoch.to_wire())
        .with_replica_nodes(sets.replicas)
        .with_isr_nodes(sets.in_sync)
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()))
        .with_offline_replicas(sets.offline)
}
