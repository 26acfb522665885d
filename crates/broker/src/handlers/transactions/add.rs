//! AddPartitionsToTxn and AddOffsetsToTxn.

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
};
use tidegate_coordinator::TopicPartition;
use tidegate_coordinator::transactions::{
    AddPartitionsRequest, ProducerIdentity, TransactionError, TransactionReply, TransactionalId,
};
use tidegate_types::{PartitionIndex, TopicName};

use super::{ask, code_for, mixed_up, producer};
use crate::broker::Broker;
use crate::catalog::OFFSETS_TOPIC;
use crate::coordinators::partition_of;
use crate::error_code::ErrorCode;

/// PRODUCER_FENCED is known from this version on.
const FENCED: i16 = 2;
/// From this version on a request has many transactions, and comes from brokers.
const BATCHED: i16 = 4;

/// A request's partitions in its order, as far as they can be partitions at all.
type Asked = Vec<Option<TopicPartition>>;

pub(super) async fn add_partitions(
    broker: &Broker,
    request: AddPartitionsToTxnRequest,
    version: i16,
) -> AddPartitionsToTxnResponse {
    if version < BATCHED {
        let topics = request.v3_and_below_topics;
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(request.v3_and_below_transactional_id)
            .with_producer_id(request.v3_and_below_producer_id)
            .with_producer_epoch(request.v3_and_below_producer_epoch);
        let codes = added(broker, &transaction, &topics, version).await;
        return AddPartitionsToTxnResponse::default()
            .with_results_by_topic_v3_and_below(by_topic(&topics, &codes));
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for transaction in request.transactions {
        let codes = added(broker, &transaction, &transaction.topics, version).await;
        results.push(
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(by_topic(&transaction.topics, &codes)),
        );
    }
    AddPartitionsToTxnResponse::default().with_results_by_transaction(results)
}

/// One code per partition, in the order of the topics and of their partitions.
async fn added(
    broker: &Broker,
    transaction: &AddPartitionsToTxnTransaction,
    topics: &[AddPartitionsToTxnTopic],
    version: i16,
) -> Vec<ErrorCode> {
    let asked = existing(broker, topics);
    // All or none: what could be added isn't if something else can't.
    if asked.iter().any(Option::is_none) {
        return asked
            .iter()
            .map(|partition| match partition {
                Some(_) => ErrorCode::OperationNotAttempted,
                None => ErrorCode::UnknownTopicOrPartition,
            })
            .collect();
    }
    let count = asked.len();
    let code = |error: TransactionError| code_for(&error, version, FENCED);
    let named = TransactionalId::new(transaction.transactional_id.0.as_str()).and_then(|id| {
        let producer = producer(transaction.producer_id.0, transaction.producer_epoch)?;
        Ok((id, producer))
    });
    let (id, producer) = match named {
        Ok(named) => named,
        Err(error) => return vec![code(error); count],
    };
    let partitions: Vec<TopicPartition> = asked.into_iter().flatten().collect();
    if transaction.verify_only {
        return verified(broker, id, producer, partitions, version).await;
    }
    match add(broker, id, producer, partitions).await {
        Ok(()) => vec![ErrorCode::None; count],
        Err(error) => vec![code(error); count],
    }
}

/// `None` for what isn't a partition of this cluster.
fn existing(broker: &Broker, topics: &[AddPartitionsToTxnTopic]) -> Asked {
    let catalog = broker.catalog.load();
    let named = topics.iter().flat_map(|topic| {
        let indexes = topic.partitions.iter();
        indexes.map(|index| (topic.name.0.as_str(), *index))
    });
    named
        .map(|(topic, index)| {
            let partition = PartitionIndex::from_wire(index).ok()?;
            catalog.image.topic(topic)?.partition(partition)?;
            let topic = TopicName::new(topic).ok()?;
            Some(TopicPartition { topic, partition })
        })
        .collect()
}

async fn add(
    broker: &Broker,
    id: TransactionalId,
    producer: ProducerIdentity,
    partitions: Vec<TopicPartition>,
) -> Result<(), TransactionError> {
    let request = AddPartitionsRequest {
        transactional_id: id.clone(),
        producer,
        partitions,
    };
    let reply = ask(broker, &id, move |c, now, token| {
        c.add_partitions(now, token, request)
    });
    match reply.await? {
        TransactionReply::Add(result) => result,
        other => Err(mixed_up(&other)),
    }
}

async fn verified(
    broker: &Broker,
    id: TransactionalId,
    producer: ProducerIdentity,
    partitions: Vec<TopicPartition>,
    version: i16,
) -> Vec<ErrorCode> {
    let count = partitions.len();
    let code = |error: TransactionError| code_for(&error, version, FENCED);
    let coordinator = broker.transactions.coordinator(broker, id.as_str());
    let coordinator = match coordinator.await {
        Ok(coordinator) => coordinator,
        Err(error) => return vec![code(error); count],
    };
    let request = AddPartitionsRequest {
        transactional_id: id,
        producer,
        partitions,
    };
    let verified = coordinator.immediate(move |c, _| c.verify_partitions(&request));
    match verified.await {
        Some(Ok(results)) => results
            .into_iter()
            .map(|result| result.map_or_else(code, |()| ErrorCode::None))
            .collect(),
        Some(Err(error)) => vec![code(error); count],
        None => vec![code(TransactionError::NotCoordinator); count],
    }
}

pub(super) fn by_topic(
    topics: &[AddPartitionsToTxnTopic],
    codes: &[ErrorCode],
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut codes = codes.iter();
    topics
        .iter()
        .map(|topic| {
            let results = topic.partitions.iter().zip(codes.by_ref());
            let results = results.map(|(index, code)| {
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*index)
                    .with_partition_error_code(code.code())
            });
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.name.clone())
                .with_results_by_partition(results.collect())
        })
        .collect()
}

/// The group's offsets are a partition like any other.
pub(super) async fn add_offsets(
    broker: &Broker,
    request: AddOffsetsToTxnRequest,
    version: i16,
) -> AddOffsetsToTxnResponse {
    let code = match offsets_added(broker, &request).await {
        Ok(()) => ErrorCode::None,
        Err(error) => code_for(&error, version, FENCED),
    };
    AddOffsetsToTxnResponse::default().with_error_code(code.code())
}

async fn offsets_added(
    broker: &Broker,
    request: &AddOffsetsToTxnRequest,
) -> Result<(), TransactionError> {
    let id = TransactionalId::new(request.transactional_id.0.as_str())?;
    let producer = producer(request.producer_id.0, request.producer_epoch)?;
    let topic = broker.groups.offsets_topic(broker).await;
    let partition = topic
        .and_then(|topic| partition_of(&topic, request.group_id.0.as_str()))
        .ok_or(TransactionError::CoordinatorNotAvailable)?;
    let topic = TopicName::new(OFFSETS_TOPIC).map_err(|_| TransactionError::UnknownServerError)?;
    let partitions = vec![TopicPartition {
        topic,
        partition: partition.index,
    }];
    add(broker, id, producer, partitions).await
}
