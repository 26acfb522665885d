//! Every answer can be encoded in every version that is served.

use bytes::BytesMut;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnResponse, DescribeTransactionsResponse, EndTxnResponse,
    TopicName as WireTopicName, TransactionalId as WireTransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use tidegate_coordinator::TopicPartition;
use tidegate_coordinator::transactions::{
    DescribedTransaction, EndedTransaction, ProducerIdentity, TransactionError, TransactionState,
};
use tidegate_types::{PartitionIndex, ProducerEpoch, ProducerId, TimestampMs, TopicName};

use super::{add, admin, code_for, end};
use crate::error_code::ErrorCode;
use crate::handlers::text;

/// What a client of this version gets.
fn sent<R: Encodable + Decodable>(answer: &R, version: i16) -> R {
    let mut bytes = BytesMut::new();
    if let Err(error) = answer.encode(&mut bytes, version) {
        panic!("version {version} can't be encoded: {error}");
    }
    R::decode(&mut bytes.freeze(), version).unwrap()
}

fn versions<R: Message>() -> impl Iterator<Item = i16> {
    R::VERSIONS.min..=R::VERSIONS.max
}

fn producer() -> ProducerIdentity {
    ProducerIdentity {
        id: ProducerId::from_wire(9).unwrap(),
        epoch: ProducerEpoch::from_wire(4).unwrap(),
    }
}

#[test]
fn the_next_epoch_is_answered_from_version_5_on() {
    let ended = EndedTransaction {
        producer: producer(),
    };
    for version in versions::<EndTxnResponse>() {
        let answer = sent(&end::answer(Ok(ended), version), version);
        assert_eq!(answer.error_code, 0);
        let expected = if version >= 5 { (9, 4) } else { (-1, -1) };
        assert_eq!((answer.producer_id.0, answer.producer_epoch), expected);
        let refused = sent(
            &end::answer(Err(ErrorCode::InvalidTxnState), version),
            version,
        );
        assert_eq!(refused.error_code, ErrorCode::InvalidTxnState.code());
        assert_eq!((refused.producer_id.0, refused.producer_epoch), (-1, -1));
    }
}

#[test]
fn each_partition_has_the_code_at_its_place() {
    let topic = |name: &str, partitions: &[i32]| {
        AddPartitionsToTxnTopic::default()
            .with_name(WireTopicName(text(name)))
            .with_partitions(partitions.to_vec())
    };
    let topics = [topic("a", &[1, 0]), topic("b", &[7])];
    let codes = [
        ErrorCode::OperationNotAttempted,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::None,
    ];
    for version in versions::<AddPartitionsToTxnResponse>() {
        let results = add::by_topic(&topics, &codes);
        let answer = AddPartitionsToTxnResponse::default();
        let answer = if version < 4 {
            answer.with_results_by_topic_v3_and_below(results)
        } else {
            use kafka_protocol::messages::add_partitions_to_txn_response::AddPartitionsToTxnResult;
            answer.with_results_by_transaction(vec![
                AddPartitionsToTxnResult::default().with_topic_results(results),
            ])
        };
        let answer = sent(&answer, version);
        let results = if version < 4 {
            answer.results_by_topic_v3_and_below
        } else {
            answer.results_by_transaction[0].topic_results.clone()
        };
        let seen: Vec<_> = results
            .iter()
            .flat_map(|topic| {
                topic.results_by_partition.iter().map(|p| {
                    (
                        topic.name.0.as_str().to_owned(),
                        p.partition_index,
                        p.partition_error_code,
                    )
                })
            })
            .collect();
        let expected = [("a", 1, 55), ("a", 0, 3), ("b", 7, 0)];
        assert_eq!(seen, expected.map(|(t, p, c)| (t.to_owned(), p, c)));
    }
}

#[test]
fn a_transaction_is_described_topic_by_topic() {
    let partition = |topic: &str, index| TopicPartition {
        topic: TopicName::new(topic).unwrap(),
        partition: PartitionIndex::new(index).unwrap(),
    };
    let described = DescribedTransaction {
        state: TransactionState::Ongoing,
        producer: producer(),
        timeout_ms: 60_000,
        started_at: TimestampMs::new(5),
        partitions: vec![partition("a", 0), partition("a", 2), partition("b", 1)],
    };
    let id = || WireTransactionalId(text("payments"));
    let answer = DescribeTransactionsResponse::default().with_transaction_states(vec![
        admin::state_of(id(), Ok(described)),
        admin::state_of(id(), Err(TransactionError::TransactionalIdNotFound)),
    ]);
    let answer = sent(&answer, 0);
    let topics: Vec<_> = answer.transaction_states[0]
        .topics
        .iter()
        .map(|t| (t.topic.0.as_str(), t.partitions.as_slice()))
        .collect();
    assert_eq!(topics, [("a", &[0, 2][..]), ("b", &[1][..])]);
    assert_eq!(
        answer.transaction_states[0].transaction_state.as_str(),
        "Ongoing"
    );
    assert_eq!(answer.transaction_states[1].error_code, 105);
}

#[test]
fn a_fenced_producer_is_told_so_in_words_of_its_version() {
    let fenced = TransactionError::ProducerFenced;
    assert_eq!(code_for(&fenced, 1, 2), ErrorCode::InvalidProducerEpoch);
    assert_eq!(code_for(&fenced, 2, 2), ErrorCode::ProducerFenced);
    let other = TransactionError::ConcurrentTransactions;
    assert_eq!(code_for(&other, 0, 2), ErrorCode::ConcurrentTransactions);
}
