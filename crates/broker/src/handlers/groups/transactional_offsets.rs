//! TxnOffsetCommit: offsets that count once their transaction is committed (KIP-98, KIP-447).

use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use tidegate_coordinator::{
    CommittedOffset, Generation, GroupError, GroupId, MemberId, OffsetToCommit, Reply,
    TopicPartition, Transaction, TransactionalCommitRequest,
};
use tidegate_metadata::TopicImage;
use tidegate_partition_log::{AppendError, TransactionCheck};
use tidegate_record_batch::ProducerIdentity;
use tidegate_types::{LeaderEpoch, ProducerEpoch, ProducerId, VerificationTicket};

use super::offsets::{Answers, owned, target};
use super::{ask, instance_id, mixed_up};
use crate::broker::{Broker, TopicRef};
use crate::catalog::OFFSETS_TOPIC;
use crate::coordinators::partition_of;
use crate::error_code::ErrorCode;
use crate::handover::Patience;
use crate::transactions::vouch::{Understands, is_passing, vouch};

/// Below this version clients may stop over COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
const FIRST_WITH_LOADING: i16 = 2;
const FIRST_WITH_ABORTABLE: i16 = 4;
/// From this version on committing adds the group's offsets to the transaction.
const FIRST_WITH_IMPLICIT_ADD: i16 = 5;

pub(super) async fn txn_offset_commit(
    broker: &Broker,
    request: TxnOffsetCommitRequest,
    version: i16,
) -> TxnOffsetCommitResponse {
    let catalog = broker.catalog.load_full();
    let mut offsets = Vec::new();
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let found = broker
                .topic(&catalog, TopicRef::Name(topic.name.0.as_str()))
                .ok();
            let places = topic.partitions.iter().map(|partition| {
                let place = found
                    .as_deref()
                    .and_then(|topic| offset_to_commit(topic, partition, version));
                let code = match place {
                    Some(offset) => {
                        offsets.push(offset);
                        None
                    }
                    None => Some(ErrorCode::UnknownTopicOrPartition.code()),
                };
                (partition.partition_index, code)
            });
            (owned(&topic.name), places.collect())
        })
        .collect();
    let mut answers = Answers { topics };
    if !offsets.is_empty() {
        match commit(broker, request, version, offsets).await {
            Ok(results) => answers.fill(
                results.iter().map(super::code_of),
                ErrorCode::UnknownServerError.code(),
            ),
            Err(ErrorCode::CoordinatorLoadInProgress) if version < FIRST_WITH_LOADING => {
                answers.fill([], ErrorCode::CoordinatorNotAvailable.code());
            }
            Err(code) => answers.fill([], code.code()),
        }
    }
    let topics = answers.topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, code)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code.unwrap_or(ErrorCode::UnknownServerError.code()))
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(name)
            .with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

fn offset_to_commit(
    topic: &TopicImage,
    partition: &TxnOffsetCommitRequestPartition,
    version: i16,
) -> Option<OffsetToCommit> {
    let epoch = if version >= 2 {
        partition.committed_leader_epoch
    } else {
        -1
    };
    Some(OffsetToCommit {
        target: target(topic, partition.partition_index)?,
        topic_id: Some(topic.id),
        offset: CommittedOffset::from_wire(partition.committed_offset),
        leader_epoch: LeaderEpoch::from_wire(epoch),
        metadata: partition.committed_metadata.as_deref().map(str::to_owned),
    })
}

async fn commit(
    broker: &Broker,
    request: TxnOffsetCommitRequest,
    version: i16,
    offsets: Vec<OffsetToCommit>,
) -> Result<Vec<Result<(), GroupError>>, ErrorCode> {
    let code = |error: GroupError| ErrorCode::from(&error);
    let group_id = GroupId::new(request.group_id.0.as_str()).map_err(code)?;
    if group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let producer =
        ProducerId::from_wire(request.producer_id.0).ok_or(ErrorCode::InvalidProducerIdMapping)?;
    let epoch =
        ProducerEpoch::from_wire(request.producer_epoch).ok_or(ErrorCode::InvalidProducerEpoch)?;
    let understands = match version {
        FIRST_WITH_IMPLICIT_ADD.. => Understands::ImplicitAdd,
        FIRST_WITH_ABORTABLE.. => Understands::Abortable,
        _ => Understands::Old,
    };
    let ticket = ticket(
        broker,
        &group_id,
        request.transactional_id.0.as_str(),
        (producer, epoch),
        understands,
    )
    .await?;
    let commit = TransactionalCommitRequest {
        group_id: group_id.clone(),
        member_id: MemberId::from_wire(request.member_id.as_str()),
        instance_id: instance_id(request.group_instance_id.as_deref()).map_err(code)?,
        generation: Generation::from_wire(request.generation_id),
        transaction: Transaction {
            producer,
            epoch,
            ticket,
        },
        offsets,
    };
    drop(request);
    let reply = ask(broker, &group_id, move |c, now, token| {
        c.commit_transactional_offsets(now, token, commit)
    })
    .await
    .map_err(code)?;
    match reply {
        Reply::CommitOffsets(result) => result.map_err(code),
        other => Err(code(mixed_up(&other))),
    }
}

/// Has the transaction's coordinator vouch for the group's partition, unless the transaction is open there.
async fn ticket(
    broker: &Broker,
    group: &GroupId,
    transactional_id: &str,
    (producer, epoch): (ProducerId, ProducerEpoch),
    understands: Understands,
) -> Result<Option<VerificationTicket>, ErrorCode> {
    let catalog = broker.catalog.load_full();
    let topic = catalog
        .image
        .topic(OFFSETS_TOPIC)
        .ok_or(ErrorCode::NotCoordinator)?;
    let partition = partition_of(topic, group.as_str()).ok_or(ErrorCode::NotCoordinator)?;
    // While the partition is being moved this waits for what becomes of it.
    let log = broker
        .log_for_append(topic, partition.index.to_wire(), &mut Patience::default())
        .await
        .map_err(|_| ErrorCode::NotCoordinator)?;
    let identity = ProducerIdentity {
        id: producer,
        epoch,
        first_sequence: None,
    };
    let rises = understands == Understands::ImplicitAdd;
    let check = log.check_transaction(identity, 0, rises);
    let ticket = match check.map_err(|error| refused(&error))? {
        TransactionCheck::Open => return Ok(None),
        TransactionCheck::Ask(ticket) => ticket,
    };
    let asked = [TopicPartition {
        topic: topic.name.clone(),
        partition: partition.index,
    }];
    let codes = vouch(
        broker,
        transactional_id,
        (producer, epoch),
        &asked,
        understands,
    )
    .await;
    match codes
        .first()
        .copied()
        .unwrap_or(ErrorCode::NetworkException)
    {
        ErrorCode::None => Ok(Some(ticket)),
        // The client shall come again, and not look for the group's coordinator, which is here.
        code if is_passing(code) => Err(ErrorCode::CoordinatorLoadInProgress),
        code => Err(code),
    }
}

/// A refusal by the group's log, in the words of a coordinator.
fn refused(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::NotLeader | AppendError::Sealed | AppendError::Failed(_) => {
            ErrorCode::NotCoordinator
        }
        AppendError::Full(_) | AppendError::Switching | AppendError::OutOfOffsets => {
            ErrorCode::CoordinatorNotAvailable
        }
        AppendError::TooLarge { .. } | AppendError::Sequence(_) | AppendError::Marker(_) => {
            ErrorCode::from(error)
        }
    }
}
