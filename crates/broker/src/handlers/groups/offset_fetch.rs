//! OffsetFetch.

use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId as WireGroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName as WireTopicName,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_coordinator::{
    FetchRequest, FetchedOffset, GroupError, GroupId, MemberEpoch, MemberId, OffsetSelection,
    Reply, TopicPartition,
};
use tidegate_types::{PartitionIndex, TopicName};

use super::{ask, ask_now, mixed_up};
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::error_code::ErrorCode;
use crate::handlers::text;

/// One group with the topics asked for; `None` asks for all.
struct Wanted {
    group: WireGroupId,
    /// From version 9 on a member names itself and its epoch.
    member_id: Option<MemberId>,
    member_epoch: Option<MemberEpoch>,
    topics: Option<Vec<(WireTopicName, Vec<i32>)>>,
}

/// A partition's place in the answer.
pub(super) struct Place {
    index: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: StrBytes,
    code: i16,
}

impl Place {
    /// Nothing is committed, or an error says why it isn't known.
    fn without_offset(index: i32, code: ErrorCode) -> Self {
        Self {
            index,
            offset: -1,
            leader_epoch: -1,
            metadata: StrBytes::default(),
            code: code.code(),
        }
    }

    pub(super) fn of(fetched: FetchedOffset) -> Self {
        let index = fetched.target.partition.to_wire();
        match fetched.committed {
            Ok(Some(committed)) => Self {
                index,
                offset: committed.offset.to_wire(),
                leader_epoch: committed.leader_epoch.map_or(-1, |epoch| epoch.to_wire()),
                metadata: text(&*committed.metadata),
                code: ErrorCode::None.code(),
            },
            Ok(None) => Self::without_offset(index, ErrorCode::None),
            Err(error) => Self::without_offset(index, ErrorCode::from(&error)),
        }
    }
}

pub(super) type Topics = Vec<(WireTopicName, Vec<Place>)>;

/// One group up to version 7, many from version 8 on (KIP-709).
pub(super) async fn offset_fetch(
    broker: &Broker,
    request: OffsetFetchRequest,
    version: i16,
) -> OffsetFetchResponse {
    let stable = request.require_stable;
    if version < 8 {
        let name = |t: OffsetFetchRequestTopic| (t.name, t.partition_indexes);
        let topics = request.topics.map(|t| t.into_iter().map(name).collect());
        let wanted = Wanted {
            group: request.group_id,
            member_id: None,
            member_epoch: None,
            topics,
        };
        let found = fetch(broker, &wanted, stable).await;
        return single_answer(found, wanted.topics.unwrap_or_default(), version);
    }
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let name = |t: OffsetFetchRequestTopics| (t.name, t.partition_indexes);
        let topics = group.topics.map(|t| t.into_iter().map(name).collect());
        let wanted = Wanted {
            member_id: group.member_id.as_deref().and_then(MemberId::from_wire),
            member_epoch: (group.member_epoch >= 0)
                .then(|| MemberEpoch::from_wire(group.member_epoch)),
            group: group.group_id,
            topics,
        };
        let found = fetch(broker, &wanted, stable).await;
        groups.push(batched_answer(wanted.group, found));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

pub(super) fn batched_answer(
    group: WireGroupId,
    found: Result<Topics, GroupError>,
) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(group);
    match found {
        Ok(topics) => answer.with_topics(topics.into_iter().map(batched_topic).collect()),
        Err(error) => answer.with_error_code(ErrorCode::from(&error).code()),
    }
}

pub(super) fn single_answer(
    found: Result<Topics, GroupError>,
    asked: Vec<(WireTopicName, Vec<i32>)>,
    version: i16,
) -> OffsetFetchResponse {
    let answer = OffsetFetchResponse::default();
    let topics = match found {
        Ok(topics) => topics,
        Err(error) if version >= 2 => {
            return answer.with_error_code(ErrorCode::from(&error).code());
        }
        // It has no place for an error of the whole group.
        Err(error) => {
            let code = ErrorCode::from(&error);
            let place = |index| Place::without_offset(index, code);
            let topic =
                |(name, indexes): (_, Vec<i32>)| (name, indexes.into_iter().map(place).collect());
            asked.into_iter().map(topic).collect()
        }
    };
    answer.with_topics(topics.into_iter().map(single_topic).collect())
}

fn single_topic((name, places): (WireTopicName, Vec<Place>)) -> OffsetFetchResponseTopic {
    let partitions = places.into_iter().map(|place| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(place.index)
            .with_committed_offset(place.offset)
            .with_committed_leader_epoch(place.leader_epoch)
            .with_metadata(Some(place.metadata))
            .with_error_code(place.code)
    });
    OffsetFetchResponseTopic::default()
        .with_name(name)
        .with_partitions(partitions.collect())
}

fn batched_topic((name, places): (WireTopicName, Vec<Place>)) -> OffsetFetchResponseTopics {
    let partitions = places.into_iter().map(|place| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(place.index)
            .with_committed_offset(place.offset)
            .with_committed_leader_epoch(place.leader_epoch)
            .with_metadata(Some(place.metadata))
            .with_error_code(place.code)
    });
    OffsetFetchResponseTopics::default()
        .with_name(name)
        .with_partitions(partitions.collect())
}

async fn fetch(broker: &Broker, wanted: &Wanted, stable: bool) -> Result<Topics, GroupError> {
    let group_id = GroupId::new(wanted.group.0.as_str())?;
    let catalog = broker.catalog.load_full();
    let Some(topics) = &wanted.topics else {
        let request = FetchRequest {
            group_id,
            member_id: wanted.member_id.clone(),
            member_epoch: wanted.member_epoch,
            selection: OffsetSelection::All,
        };
        let fetched = fetch_from_coordinator(broker, request, stable).await?;
        return Ok(by_topic(
            fetched
                .into_iter()
                .filter(|f| !is_of_former_topic(&catalog, f)),
        ));
    };
    let selection = topics.iter().flat_map(|(name, indexes)| {
        let (catalog, name) = (&catalog, name.0.as_str());
        indexes.iter().filter_map(move |index| {
            let target = target(name, *index)?;
            Some((target, catalog.image.topic(name).map(|t| t.id)))
        })
    });
    let request = FetchRequest {
        group_id,
        member_id: wanted.member_id.clone(),
        member_epoch: wanted.member_epoch,
        selection: OffsetSelection::Partitions(selection.collect()),
    };
    let mut fetched = fetch_from_coordinator(broker, request, stable)
        .await?
        .into_iter();
    let topics = topics.iter().map(|(name, indexes)| {
        let places = indexes.iter().map(|index| {
            // A topic or a partition that can't exist has no offsets; it wasn't asked for.
            let known = target(name.0.as_str(), *index).and_then(|_| fetched.next());
            known.map_or_else(|| Place::without_offset(*index, ErrorCode::None), Place::of)
        });
        (name.clone(), places.collect())
    });
    Ok(topics.collect())
}

fn target(topic: &str, index: i32) -> Option<TopicPartition> {
    Some(TopicPartition {
        topic: TopicName::new(topic).ok()?,
        partition: PartitionIndex::from_wire(index).ok()?,
    })
}

/// Whether an offset was committed for a topic that was deleted and whose name another one has now.
fn is_of_former_topic(catalog: &Catalog, fetched: &FetchedOffset) -> bool {
    let now = catalog
        .image
        .topic(fetched.target.topic.as_str())
        .map(|topic| topic.id);
    matches!((now, fetched.topic_id), (Some(now), Some(then)) if now != then)
}

/// The coordinator gives them sorted by topic.
fn by_topic(fetched: impl Iterator<Item = FetchedOffset>) -> Topics {
    let mut topics: Topics = Vec::new();
    for offset in fetched {
        let name = offset.target.topic.as_str();
        if topics
            .last()
            .is_none_or(|(last, _)| last.0.as_str() != name)
        {
            topics.push((WireTopicName(text(name)), Vec::new()));
        }
        if let Some((_, places)) = topics.last_mut() {
            places.push(Place::of(offset));
        }
    }
    topics
}

async fn fetch_from_coordinator(
    broker: &Broker,
    request: FetchRequest,
    stable: bool,
) -> Result<Vec<FetchedOffset>, GroupError> {
    let group = request.group_id.clone();
    if !stable {
        return ask_now(broker, &group, move |c, _| c.fetch_offsets(&request)).await;
    }
    match ask(broker, &group, move |c, now, token| {
        c.fetch_stable_offsets(now, token, &request)
    })
    .await?
    {
        Reply::FetchOffsets(result) => result,
        other => Err(mixed_up(&other)),
    }
}
