//! DescribeProducers: what partitions know of their producers (KIP-664).

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerId as WireProducerId,
};
use tidegate_partition_log::ProducerView;
use tidegate_types::{Offset, Sequence};

use crate::broker::{Broker, TopicRef};
use crate::error_code::ErrorCode;

pub(crate) fn describe_producers(
    broker: &Broker,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let catalog = broker.catalog.load_full();
    let topics = request.topics.into_iter().map(|topic| {
        let found = broker.topic(&catalog, TopicRef::Name(topic.name.0.as_str()));
        let partitions = topic.partition_indexes.iter().map(|index| {
            let answer = PartitionResponse::default().with_partition_index(*index);
            let log = found
                .as_ref()
                .map_err(|code| *code)
                .and_then(|topic| broker.led_log(topic, *index));
            let producers = log.and_then(|log| log.producers().map_err(|e| ErrorCode::from(&e)));
            match producers {
                Ok(views) => answer.with_active_producers(views.iter().map(shown).collect()),
                Err(code) => answer.with_error_code(code.code()),
            }
        });
        let partitions = partitions.collect();
        TopicResponse::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
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
