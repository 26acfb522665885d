//! FindCoordinator.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId as WireBrokerId, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_metadata::{BrokerImage, TopicImage};
use tidegate_types::PartitionIndex;

use crate::broker::Broker;
use crate::coordinators::partition_of;
use crate::error_code::ErrorCode;
use crate::handlers::text;

/// What kinds of coordinators there are.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// From version 4 on for many keys at once (KIP-699).
pub(super) async fn find_coordinator(
    broker: &Broker,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    if version < 4 {
        return single_answer(find(broker, request.key_type, request.key.as_str()).await);
    }
    let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
    for key in request.coordinator_keys {
        let found = find(broker, request.key_type, key.as_str()).await;
        coordinators.push(batched_answer(key, found));
    }
    FindCoordinatorResponse::default().with_coordinators(coordinators)
}

pub(super) fn single_answer(found: Result<BrokerImage, ErrorCode>) -> FindCoordinatorResponse {
    let found = Found::new(found);
    FindCoordinatorResponse::default()
        .with_error_code(found.code.code())
        .with_error_message(found.message().map(text))
        .with_node_id(found.node)
        .with_host(text(found.host))
        .with_port(found.port)
}

pub(super) fn batched_answer(key: StrBytes, found: Result<BrokerImage, ErrorCode>) -> Coordinator {
    let found = Found::new(found);
    Coordinator::default()
        .with_key(key)
        .with_error_code(found.code.code())
        .with_error_message(found.message().map(text))
        .with_node_id(found.node)
        .with_host(text(found.host))
        .with_port(found.port)
}

/// The coordinator as the wire names it.
struct Found {
    code: ErrorCode,
    node: WireBrokerId,
    host: String,
    port: i32,
}

impl Found {
    fn new(found: Result<BrokerImage, ErrorCode>) -> Self {
        match found {
            Ok(broker) => Self {
                code: ErrorCode::None,
                node: WireBrokerId(broker.id.to_wire()),
                host: broker.kafka.host,
                port: i32::from(broker.kafka.port),
            },
            Err(code) => Self {
                code,
                node: WireBrokerId(-1),
                host: String::new(),
                port: -1,
            },
        }
    }

    fn message(&self) -> Option<&'static str> {
        match self.code {
            ErrorCode::None => None,
            ErrorCode::InvalidRequest => Some("there is no coordinator of this type"),
            _ => Some("the coordinator is not available"),
        }
    }
}

fn leader_of(
    broker: &Broker,
    topic: &TopicImage,
    partition: PartitionIndex,
) -> Result<BrokerImage, ErrorCode> {
    let leader = topic.partition(partition).and_then(|p| p.leader);
    let catalog = broker.catalog.load();
    leader
        .and_then(|id| catalog.image.broker(id))
        .filter(|leader| leader.alive)
        .cloned()
        .ok_or(ErrorCode::CoordinatorNotAvailable)
}

async fn find(broker: &Broker, key_type: i8, key: &str) -> Result<BrokerImage, ErrorCode> {
    match key_type {
        GROUP => {
            let topic = broker
                .groups
                .offsets_topic(broker)
                .await
                .ok_or(ErrorCode::CoordinatorNotAvailable)?;
            let partition = partition_of(&topic, key).ok_or(ErrorCode::CoordinatorNotAvailable)?;
            leader_of(broker, &topic, partition.index)
        }
        TRANSACTION => {
            let topic = broker
                .transactions
                .state_topic(broker)
                .await
                .ok_or(ErrorCode::CoordinatorNotAvailable)?;
            let partition = partition_of(&topic, key).ok_or(ErrorCode::CoordinatorNotAvailable)?;
            leader_of(broker, &topic, partition.index)
        }
        _ => Err(ErrorCode::InvalidRequest),
    }
}
