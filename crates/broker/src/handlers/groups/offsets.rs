//! OffsetCommit and OffsetDelete.

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    TopicName as WireTopicName,
};
use tidegate_coordinator::{
    CommitRequest, CommittedOffset, DeleteOffsetsRequest, Generation, GroupError, GroupId,
    MemberId, OffsetToCommit, Reply, TopicPartition,
};
use tidegate_metadata::TopicImage;
use tidegate_types::{LeaderEpoch, PartitionIndex};

use super::{ask, instance_id, mixed_up};
use crate::broker::{Broker, TopicRef};
use crate::catalog::Catalog;
use crate::error_code::ErrorCode;

/// Where each partition of a request stands: answered with a code, or handed to the coordinator.
pub(super) struct Answers {
    pub(super) topics: Vec<(WireTopicName, Vec<Place>)>,
}

/// A partition's index and its code; none yet if the coordinator is to give it.
pub(super) type Place = (i32, Option<i16>);

impl Answers {
    /// Fills the open places, in their order, with the coordinator's results; a place without one gets `rest`.
    pub(super) fn fill(&mut self, results: impl IntoIterator<Item = i16>, rest: i16) {
        let mut results = results.into_iter();
        for (_, place) in self
            .topics
            .iter_mut()
            .flat_map(|(_, partitions)| partitions)
        {
            place.get_or_insert_with(|| results.next().unwrap_or(rest));
        }
    }
}

pub(super) async fn offset_commit(
    broker: &Broker,
    request: OffsetCommitRequest,
    version: i16,
) -> OffsetCommitResponse {
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
            Err(error) => answers.fill([], ErrorCode::from(&error).code()),
        }
    }
    let topics = answers
        .topics
        .into_iter()
        .map(|(name, partitions)| {
            let partitions = partitions
                .into_iter()
                .map(|(index, code)| {
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(index)
                        .with_error_code(code.unwrap_or(ErrorCode::UnknownServerError.code()))
                })
                .collect();
            OffsetCommitResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        })
        .collect();
    OffsetCommitResponse::default().with_topics(topics)
}

fn offset_to_commit(
    topic: &TopicImage,
    partition: &OffsetCommitRequestPartition,
    version: i16,
) -> Option<OffsetToCommit> {
    let epoch = if version >= 6 {
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

/// `None` if the topic hasn't got the partition.
pub(super) fn target(topic: &TopicImage, index: i32) -> Option<TopicPartition> {
    let partition = PartitionIndex::from_wire(index).ok()?;
    topic.partition(partition)?;
    Some(TopicPartition {
        topic: topic.name.clone(),
        partition,
    })
}

async fn commit(
    broker: &Broker,
    request: OffsetCommitRequest,
    version: i16,
    offsets: Vec<OffsetToCommit>,
) -> Result<Vec<Result<(), GroupError>>, GroupError> {
    let group_id = GroupId::new(request.group_id.0.as_str())?;
    let commit = CommitRequest {
        group_id: group_id.clone(),
        api_version: version,
        member_id: MemberId::from_wire(request.member_id.as_str()),
        instance_id: instance_id(request.group_instance_id.as_deref())?,
        generation: Generation::from_wire(request.generation_id_or_member_epoch),
        retention_ms: if version <= 4 {
            request.retention_time_ms
        } else {
            -1
        },
        offsets,
    };
    drop(request);
    match ask(broker, &group_id, move |c, now, token| {
        c.commit_offsets(now, token, commit)
    })
    .await?
    {
        Reply::CommitOffsets(result) => result,
        other => Err(mixed_up(&other)),
    }
}

pub(super) async fn offset_delete(
    broker: &Broker,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let catalog = broker.catalog.load_full();
    let (mut answers, targets) = delete_targets(broker, &catalog, &request);
    match delete(broker, request.group_id.0.as_str(), targets).await {
        Ok(results) => answers.fill(
            results.iter().map(super::code_of),
            ErrorCode::UnknownServerError.code(),
        ),
        Err(error) => {
            return OffsetDeleteResponse::default().with_error_code(ErrorCode::from(&error).code());
        }
    }
    let topics = answers
        .topics
        .into_iter()
        .map(|(name, partitions)| {
            let partitions = partitions
                .into_iter()
                .map(|(index, code)| {
                    OffsetDeleteResponsePartition::default()
                        .with_partition_index(index)
                        .with_error_code(code.unwrap_or(ErrorCode::UnknownServerError.code()))
                })
                .collect();
            OffsetDeleteResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions)
        })
        .collect();
    OffsetDeleteResponse::default().with_topics(topics)
}

fn delete_targets(
    broker: &Broker,
    catalog: &Catalog,
    request: &OffsetDeleteRequest,
) -> (Answers, Vec<TopicPartition>) {
    let mut targets = Vec::new();
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let found = broker
                .topic(catalog, TopicRef::Name(topic.name.0.as_str()))
                .ok();
            let places = topic.partitions.iter().map(|partition| {
                let index = partition.partition_index;
                match found.as_deref().and_then(|topic| target(topic, index)) {
                    Some(target) => {
                        targets.push(target);
                        (index, None)
                    }
                    None => (index, Some(ErrorCode::UnknownTopicOrPartition.code())),
                }
            });
            (owned(&topic.name), places.collect())
        })
        .collect();
    (Answers { topics }, targets)
}

async fn delete(
    broker: &Broker,
    group: &str,
    targets: Vec<TopicPartition>,
) -> Result<Vec<Result<(), GroupError>>, GroupError> {
    let group_id = GroupId::new(group)?;
    if group_id.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    let delete = DeleteOffsetsRequest {
        group_id: group_id.clone(),
        targets,
    };
    match ask(broker, &group_id, move |c, now, token| {
        c.delete_offsets(now, token, &delete)
    })
    .await?
    {
        Reply::DeleteOffsets(result) => result,
        other => Err(mixed_up(&other)),
    }
}

/// A copy that doesn't hold the request's frame while the append is on its way.
pub(super) fn owned(name: &WireTopicName) -> WireTopicName {
    WireTopicName(crate::handlers::text(name.0.as_str()))
}
