//! DescribeCluster and DescribeLogDirs: what consoles show of the brokers.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{
    BrokerId as WireBrokerId, DescribeClusterRequest, DescribeClusterResponse,
    DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName as WireTopicName,
};

use super::metadata::{controller_id, is_named};
use super::{CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, text};
use crate::broker::Broker;
use crate::error_code::ErrorCode;

const ENDPOINT_BROKERS: i8 = 1;

pub(crate) fn describe_cluster(
    broker: &Broker,
    request: DescribeClusterRequest,
    version: i16,
) -> DescribeClusterResponse {
    if version >= 1 && request.endpoint_type != ENDPOINT_BROKERS {
        return DescribeClusterResponse::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_error_message(Some(text(
                "this endpoint serves brokers (endpoint type 1) only",
            )))
            .with_endpoint_type(ENDPOINT_BROKERS)
            .with_cluster_authorized_operations(OPERATIONS_NOT_ASKED);
    }
    let catalog = broker.catalog.load_full();
    let image = &catalog.image;
    let brokers = image
        .brokers()
        .filter(|b| is_named(broker, b) || request.include_fenced_brokers)
        .map(|b| {
            DescribeClusterBroker::default()
                .with_broker_id(WireBrokerId(b.id.to_wire()))
                .with_host(text(b.kafka.host.as_str()))
                .with_port(i32::from(b.kafka.port))
                .with_rack(b.rack.as_deref().map(text))
                .with_is_fenced(!is_named(broker, b))
        })
        .collect();
    DescribeClusterResponse::default()
        .with_endpoint_type(ENDPOINT_BROKERS)
        .with_cluster_id(text(image.cluster_id()))
        .with_controller_id(WireBrokerId(controller_id(image)))
        .with_brokers(brokers)
        .with_cluster_authorized_operations(if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            OPERATIONS_NOT_ASKED
        })
}

/// One directory per broker: what it leads, wherever the bytes lie.
pub(crate) fn describe_log_dirs(
    broker: &Broker,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let wanted = request.topics.map(|topics| {
        topics
            .into_iter()
            .map(|t| (t.topic.0.as_str().to_owned(), t.partitions))
            .collect::<BTreeMap<String, Vec<i32>>>()
    });
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    let mut total: u64 = 0;
    for log in broker.logs.all() {
        let (stored, waiting) = log.size_bytes();
        total += stored + waiting;
        let (name, index) = (log.topic().as_str(), log.id().index.to_wire());
        let named = wanted.as_ref().is_none_or(|w| {
            w.get(name)
                .is_some_and(|p| p.is_empty() || p.contains(&index))
        });
        if named {
            topics.entry(name.to_owned()).or_default().push(
                DescribeLogDirsPartition::default()
                    .with_partition_index(index)
                    .with_partition_size(i64::try_from(stored + waiting).unwrap_or(i64::MAX)),
            );
        }
    }
    let topics = topics
        .into_iter()
        .map(|(name, mut partitions)| {
            partitions.sort_by_key(|p| p.partition_index);
            DescribeLogDirsTopic::default()
                .with_name(WireTopicName(text(name)))
                .with_partitions(partitions)
        })
        .collect();
    let directory = DescribeLogDirsResult::default()
        .with_log_dir(text(broker.options.log_dir.as_str()))
        .with_topics(topics)
        .with_total_bytes(i64::try_from(total).unwrap_or(i64::MAX))
        // Object storage has no known end.
        .with_usable_bytes(-1);
    DescribeLogDirsResponse::default().with_results(vec![directory])
}
