//! Produce of transactional producers: before a transaction's first records go into a partition, its coordinator says
//! that the partition belongs to it (KIP-890).
//!
//! All partitions of a request are asked for at once. Batches that need no word, or got none, change nothing for the
//! others.

use std::sync::Arc;

use tidegate_coordinator::TopicPartition;
use tidegate_kafka_wire::produce::ProduceRequest;
use tidegate_partition_log::{Appended, PartitionLog, TransactionCheck};
use tidegate_record_batch::{ProducedBatch, ProducerIdentity};
use tidegate_types::{PartitionIndex, TopicName, VerificationTicket};

use super::{Outcome, PendingTopic, Refusal, append_prepared, prepare};
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::error_code::ErrorCode;
use crate::handover::Patience;
use crate::transactions::vouch::{Understands, is_passing, vouch};

/// From this version on clients know TRANSACTION_ABORTABLE.
const FIRST_WITH_ABORTABLE: i16 = 11;
/// From this version on writing to a partition adds it to the transaction.
const FIRST_WITH_IMPLICIT_ADD: i16 = 12;

/// A batch that may be appended, as far as its own bytes and its topic go.
struct Ready {
    log: Arc<PartitionLog>,
    batch: ProducedBatch,
    target: TopicPartition,
    /// With what the coordinator is asked.
    ticket: Option<VerificationTicket>,
}

/// What becomes of one partition.
type Place = Result<Ready, Refusal>;

/// Appends what a transactional producer sent.
pub(super) async fn append(
    broker: &Broker,
    catalog: &Catalog,
    transactional_id: &str,
    request: ProduceRequest,
    version: i16,
) -> Vec<PendingTopic> {
    let understands = match version {
        FIRST_WITH_IMPLICIT_ADD.. => Understands::ImplicitAdd,
        FIRST_WITH_ABORTABLE.. => Understands::Abortable,
        _ => Understands::Old,
    };
    let mut patience = Patience::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = broker.topic(catalog, (&topic.topic).into());
        let mut places: Vec<(i32, Place)> = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let index = partition.index;
            let place = match &found {
                Ok(found) => {
                    let ready =
                        prepare(broker, catalog, found, partition, version, &mut patience).await;
                    ready.and_then(|(log, batch)| {
                        check(log, batch, found.name.clone(), index, understands)
                    })
                }
                Err(code) => Err(Refusal::unknown_topic(*code)),
            };
            places.push((index, place));
        }
        topics.push((topic.topic, found.ok().map(|topic| topic.id), places));
    }
    {
        let places = topics.iter_mut().flat_map(|(_, _, places)| places);
        let mut places: Vec<&mut Place> = places.map(|(_, place)| place).collect();
        match one_producer(&places) {
            Ok(Some(producer)) => {
                ask(broker, transactional_id, producer, &mut places, understands).await;
            }
            Ok(None) => {}
            Err(()) => places.into_iter().for_each(|place| {
                *place = Err(Refusal::new(
                    ErrorCode::InvalidProducerIdMapping,
                    "transactional records are of more than one producer",
                ));
            }),
        }
    }
    let mut pending = Vec::with_capacity(topics.len());
    for (topic, id, places) in topics {
        let mut outcomes = Vec::with_capacity(places.len());
        for (index, place) in places {
            let appended = match place {
                Ok(ready) => append_ready(broker, ready).await,
                Err(refusal) => Err(refusal),
            };
            let outcome = appended.map_or_else(Outcome::Refused, Outcome::Appended);
            outcomes.push((index, outcome));
        }
        pending.push((topic, id, outcomes));
    }
    pending
}

async fn append_ready(broker: &Broker, ready: Ready) -> Result<Appended, Refusal> {
    let vouched = ready.ticket.is_some();
    let appended = append_prepared(broker, &ready.log, ready.batch, ready.ticket).await;
    appended.map_err(|refusal| {
        if vouched && refusal.code == ErrorCode::InvalidTxnState {
            out_of_date()
        } else {
            refusal
        }
    })
}

/// The coordinator has vouched for the batch, but since it was asked a marker came, or the log was opened anew. Sent
/// again, the batch is judged by what the coordinator says then.
fn out_of_date() -> Refusal {
    Refusal::new(
        ErrorCode::NotEnoughReplicas,
        "the partition changed hands or ended a transaction while the coordinator was asked",
    )
}

fn check(
    log: Arc<PartitionLog>,
    batch: ProducedBatch,
    topic: TopicName,
    index: i32,
    understands: Understands,
) -> Place {
    let header = batch.header();
    let ticket = match header.producer().filter(|_| header.is_transactional()) {
        None => None,
        Some(producer) => {
            let rises = understands == Understands::ImplicitAdd;
            match log.check_transaction(producer, header.last_offset_delta(), rises) {
                Ok(TransactionCheck::Open) => None,
                Ok(TransactionCheck::Ask(ticket)) => Some(ticket),
                Err(error) => {
                    return Err(Refusal::new(ErrorCode::from(&error), error.to_string()));
                }
            }
        }
    };
    let partition = PartitionIndex::from_wire(index)
        .map_err(|_| Refusal::unknown_topic(ErrorCode::UnknownTopicOrPartition))?;
    Ok(Ready {
        log,
        batch,
        target: TopicPartition { topic, partition },
        ticket,
    })
}

/// Whose transactional records these are; an error if they are of several.
fn one_producer(places: &[&mut Place]) -> Result<Option<ProducerIdentity>, ()> {
    let headers = places
        .iter()
        .filter_map(|place| place.as_ref().ok())
        .map(|ready| ready.batch.header())
        .filter(|header| header.is_transactional());
    let mut found: Option<ProducerIdentity> = None;
    for producer in headers.filter_map(|header| header.producer()) {
        let first = *found.get_or_insert(producer);
        if (first.id, first.epoch) != (producer.id, producer.epoch) {
            return Err(());
        }
    }
    Ok(found)
}

/// Has the coordinator vouch for all who need it, and refuses those it doesn't vouch for.
async fn ask(
    broker: &Broker,
    transactional_id: &str,
    producer: ProducerIdentity,
    places: &mut [&mut Place],
    understands: Understands,
) {
    let needs_word = |place: &Place| place.as_ref().is_ok_and(|ready| ready.ticket.is_some());
    let partitions: Vec<TopicPartition> = places
        .iter()
        .filter(|place| needs_word(place))
        .filter_map(|place| place.as_ref().ok())
        .map(|ready| ready.target.clone())
        .collect();
    if partitions.is_empty() {
        return;
    }
    let producer = (producer.id, producer.epoch);
    let codes = vouch(broker, transactional_id, producer, &partitions, understands).await;
    let asked = places.iter_mut().filter(|place| needs_word(place));
    let codes = codes.into_iter().map(Some).chain(std::iter::repeat(None));
    for (place, code) in asked.zip(codes) {
        match code.unwrap_or(ErrorCode::NetworkException) {
            ErrorCode::None => {}
            code => **place = Err(not_vouched(code)),
        }
    }
}

fn not_vouched(code: ErrorCode) -> Refusal {
    if is_passing(code) {
        // Every client repeats this one, and none asks for metadata because of it.
        return Refusal::new(
            ErrorCode::NotEnoughReplicas,
            format!("the transaction's coordinator didn't answer for the partition: {code:?}"),
        );
    }
    Refusal::new(
        code,
        "the partition doesn't belong to an open transaction of this producer",
    )
}
