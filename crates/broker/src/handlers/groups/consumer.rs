//! ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848).

use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member,
    TopicPartitions as DescribedTopicPartitions,
};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as OwnedTopicPartitions;
use kafka_protocol::messages::consumer_group_heartbeat_response::{
    Assignment as AnsweredAssignment, TopicPartitions as AnsweredTopicPartitions,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId as WireGroupId, TopicName as WireTopicName,
};
use tidegate_coordinator::{
    Assignment, ConsumerHeartbeat, DescribedConsumer, DescribedConsumerGroup, GroupError, GroupId,
    MemberEpoch, MemberId, NamedAssignment, Reply,
};
use tidegate_types::{PartitionIndex, TopicId};
use uuid::Uuid;

use super::membership::Client;
use super::{ask, ask_now, instance_id, mixed_up};
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::handlers::{GROUP_OPERATIONS, OPERATIONS_NOT_ASKED, text};

pub(super) async fn heartbeat(
    broker: &Broker,
    request: ConsumerGroupHeartbeatRequest,
    version: i16,
    client: Client,
) -> ConsumerGroupHeartbeatResponse {
    match beat(broker, request, version, client).await {
        Ok(answer) => heartbeat_answer(answer),
        Err(error) => ConsumerGroupHeartbeatResponse::default()
            .with_error_code(ErrorCode::from(&error).code())
            .with_error_message(Some(text(error.to_string()))),
    }
}

pub(super) fn heartbeat_answer(answer: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse {
    let interval = i32::try_from(answer.heartbeat_interval_ms).unwrap_or(i32::MAX);
    let member_id = answer.member_id.map(|id| text(id.as_str()));
    let assignment = answer.assignment.map(|assignment| {
        let topics = assignment.topics().map(|(topic, partitions)| {
            AnsweredTopicPartitions::default()
                .with_topic_id(topic.uuid())
                .with_partitions(partitions.iter().map(|index| index.to_wire()).collect())
        });
        AnsweredAssignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(member_id)
        .with_member_epoch(answer.member_epoch.to_wire())
        .with_heartbeat_interval_ms(interval)
        .with_assignment(assignment)
}

async fn beat(
    broker: &Broker,
    request: ConsumerGroupHeartbeatRequest,
    version: i16,
    client: Client,
) -> Result<ConsumerHeartbeat, GroupError> {
    let group_id = GroupId::new(request.group_id.0.as_str())?;
    let owned_text = |text: &kafka_protocol::protocol::StrBytes| text.as_str().to_owned();
    let heartbeat = tidegate_coordinator::ConsumerHeartbeatRequest {
        group_id: group_id.clone(),
        api_version: version,
        member_id: MemberId::from_wire(request.member_id.as_str()),
        member_epoch: MemberEpoch::from_wire(request.member_epoch),
        instance_id: instance_id(request.instance_id.as_deref())?,
        rack_id: request.rack_id.as_ref().map(owned_text),
        client_id: client.id,
        client_host: client.host,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        topics: request
            .subscribed_topic_names
            .as_ref()
            .map(|names| names.iter().map(|name| owned_text(&name.0)).collect()),
        regex: request.subscribed_topic_regex.as_ref().map(owned_text),
        server_assignor: request.server_assignor.as_ref().map(owned_text),
        owned: request.topic_partitions.as_deref().map(owned),
        random: Uuid::new_v4(),
    };
    // What was copied is enough; the frame's memory is free while the records are on their way.
    drop(request);
    match ask(broker, &group_id, move |c, now, token| {
        c.consumer_heartbeat(now, token, heartbeat)
    })
    .await?
    {
        Reply::ConsumerHeartbeat(result) => result,
        other => Err(mixed_up(&other)),
    }
}

/// What a member says it owns. Ids that can't be are nobody's partitions.
fn owned(topics: &[OwnedTopicPartitions]) -> Assignment {
    topics
        .iter()
        .filter_map(|topic| Some((TopicId::new(topic.topic_id).ok()?, &topic.partitions)))
        .flat_map(|(id, partitions)| {
            partitions
                .iter()
                .filter_map(move |index| Some((id, PartitionIndex::from_wire(*index).ok()?)))
        })
        .collect()
}

pub(super) async fn describe(
    broker: &Broker,
    request: ConsumerGroupDescribeRequest,
    version: i16,
) -> ConsumerGroupDescribeResponse {
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for id in request.group_ids {
        let group = match describe_one(broker, id.0.as_str()).await {
            Ok(group) => described_answer(group, version).with_authorized_operations(
                if request.include_authorized_operations {
                    GROUP_OPERATIONS
                } else {
                    OPERATIONS_NOT_ASKED
                },
            ),
            Err(error) => not_described(&error, &id),
        };
        groups.push(group.with_group_id(id));
    }
    ConsumerGroupDescribeResponse::default().with_groups(groups)
}

async fn describe_one(broker: &Broker, id: &str) -> Result<DescribedConsumerGroup, GroupError> {
    if id.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    let id = GroupId::new(id)?;
    let group = id.clone();
    ask_now(broker, &group, move |c, _| c.describe_consumer_group(&id)).await
}

fn not_described(error: &GroupError, id: &WireGroupId) -> DescribedGroup {
    let message = match error {
        GroupError::GroupIdNotFound => format!("Group {} is not a consumer group.", id.0.as_str()),
        other => other.to_string(),
    };
    DescribedGroup::default()
        .with_error_code(ErrorCode::from(error).code())
        .with_error_message(Some(text(message)))
        .with_authorized_operations(OPERATIONS_NOT_ASKED)
}

pub(super) fn described_answer(group: DescribedConsumerGroup, version: i16) -> DescribedGroup {
    let members = group
        .members
        .into_iter()
        .map(|member| described_member(member, version))
        .collect();
    DescribedGroup::default()
        .with_group_state(text(group.state.as_str()))
        .with_group_epoch(group.epoch.to_wire())
        .with_assignment_epoch(group.assignment_epoch.to_wire())
        .with_assignor_name(text(group.assignor))
        .with_members(members)
}

fn described_member(member: DescribedConsumer, version: i16) -> Member {
    let member_type = i8::from(!member.is_classic);
    let topics = member
        .topics
        .into_iter()
        .map(|name| WireTopicName(text(name)))
        .collect();
    let mut described = Member::default()
        .with_member_id(text(member.member_id.as_str()))
        .with_instance_id(member.instance_id.map(|id| text(id.as_str())))
        .with_rack_id(member.rack_id.map(text))
        .with_member_epoch(member.member_epoch.to_wire())
        .with_client_id(text(member.client_id))
        .with_client_host(text(member.client_host))
        .with_subscribed_topic_names(topics)
        .with_subscribed_topic_regex(member.regex.filter(|regex| !regex.is_empty()).map(text))
        .with_assignment(named(member.assignment))
        .with_target_assignment(named(member.target));
    if version >= 1 {
        described.member_type = member_type;
    }
    described
}

fn named(assignment: NamedAssignment) -> DescribedAssignment {
    let topics = assignment.into_iter().map(|(id, name, partitions)| {
        DescribedTopicPartitions::default()
            .with_topic_id(id.uuid())
            .with_topic_name(WireTopicName(text(name.as_str())))
            .with_partitions(partitions)
    });
    DescribedAssignment::default().with_topic_partitions(topics.collect())
}
