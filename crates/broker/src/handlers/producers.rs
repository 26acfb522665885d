//! DescribeProducers and WriteTxnMarkers: what partitions know of their producers, and how an operator ends a
//! transaction that its coordinator has forgotten (KIP-664).

use futures::future::join_all;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerId as WireProducerId,
    WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use tidegate_metadata::TopicImage;
use tidegate_partition_log::{Marker, ProducerView};
use tidegate_types::{Offset, PartitionId, PartitionIndex, ProducerEpoch, ProducerId, Sequence};

use crate::broker::{Broker, TopicRef};
use crate::error_code::ErrorCode;
use crate::handover::Patience;
use crate::transactions::apply::apply_marker;

pub(crate) async fn describe_producers(
    broker: &Broker,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let catalog = broker.catalog.load_full();
    let mut patience = Patience::default();
    let mut response = DescribeProducersResponse::default();
    for topic in request.topics {
        let found = broker.topic(&catalog, TopicRef::Name(topic.name.0.as_str()));
        let mut answer = TopicResponse::default().with_name(topic.name);
        for index in topic.partition_indexes {
            let log = broker.log_for_read(&found, index, -1, &mut patience).await;
            let producers = log.and_then(|log| log.producers().map_err(|e| ErrorCode::from(&e)));
            let partition = PartitionResponse::default().with_partition_index(index);
            answer.partitions.push(match producers {
                Ok(views) => partition.with_active_producers(views.iter().map(shown).collect()),
                Err(code) => partition.with_error_code(code.code()),
            });
        }
        response.topics.push(answer);
    }
    response
}

fn shown(view: &ProducerView) -> ProducerState {
    ProducerState::default()
        .with_producer_id(WireProducerId(view.producer.to_wire()))
        .with_producer_epoch(i32::from(view.epoch.to_wire()))
        .with_last_sequence(view.last_sequence.map_or(-1, Sequence::to_wire))
        .with_last_timestamp(view.last_timestamp.get())
        .with_coordinator_epoch(view.coordinator_epoch.unwrap_or(-1))
        .with_current_txn_start_offset(view.transaction_start.map_or(-1, Offset::to_wire))
}

/// For Apache Kafka's tools; this broker's own coordinators have another way.
pub(crate) async fn write_txn_markers(
    broker: &Broker,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let mut results = Vec::with_capacity(request.markers.len());
    // One after the other: several may be of one producer.
    for marker in request.markers {
        results.push(write_one(broker, marker).await);
    }
    WriteTxnMarkersResponse::default().with_markers(results)
}

async fn write_one(broker: &Broker, wire: WritableTxnMarker) -> WritableTxnMarkerResult {
    let catalog = broker.catalog.load_full();
    let catalog = &*catalog;
    let marker = marker_of(&wire);
    let topics = wire.topics.iter().map(|topic| async move {
        let found = &broker.topic(catalog, TopicRef::Name(topic.name.0.as_str()));
        let partitions = topic.partition_indexes.iter().map(|index| async move {
            let result = match (found, marker) {
                (Ok(topic), Some(marker)) => write_to(broker, topic, *index, marker).await,
                (Err(code), Some(_)) => Err(*code),
                (_, None) => Err(ErrorCode::InvalidRequest),
            };
            let code = result.err().unwrap_or(ErrorCode::None);
            WritableTxnMarkerPartitionResult::default()
                .with_partition_index(*index)
                .with_error_code(code.code())
        });
        WritableTxnMarkerTopicResult::default()
            .with_name(topic.name.clone())
            .with_partitions(join_all(partitions).await)
    });
    let topics = join_all(topics).await;
    WritableTxnMarkerResult::default()
        .with_producer_id(wire.producer_id)
        .with_topics(topics)
}

/// `None` if there can't be such a producer.
fn marker_of(wire: &WritableTxnMarker) -> Option<Marker> {
    Some(Marker {
        producer: ProducerId::from_wire(wire.producer_id.0)?,
        epoch: ProducerEpoch::from_wire(wire.producer_epoch)?,
        coordinator_epoch: wire.coordinator_epoch,
        commit: wire.transaction_result,
        // Who aborts a hanging transaction gives the epoch that the partition knows.
        epoch_rises: false,
    })
}

async fn write_to(
    broker: &Broker,
    topic: &TopicImage,
    index: i32,
    marker: Marker,
) -> Result<(), ErrorCode> {
    let index = PartitionIndex::from_wire(index).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
    topic
        .partition(index)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = PartitionId {
        topic: topic.id,
        index,
    };
    apply_marker(broker, partition, marker)
        .await
        .map_err(ErrorCode::from)
}
