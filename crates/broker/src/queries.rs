//! What this broker answers about itself: its logs and its groups, for the admin API of any broker.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Buf;
use kafka_protocol::messages::ConsumerProtocolAssignment;
use kafka_protocol::protocol::Decodable;
use tidegate_cluster::orders::OrderError;
use tidegate_cluster::queries::{
    BrokerQueries, GroupAnswer, GroupDescription, GroupList, GroupMember, GroupOffset,
    GroupSummary, LogStatus,
};
use tidegate_coordinator::{
    DescribedConsumerGroup, DescribedGroup, DescribedMember, FetchRequest, FetchedOffset,
    GroupError, GroupFilter, GroupId, OffsetSelection,
};
use tidegate_types::{Offset, PartitionId, PartitionIndex, TopicName};

use crate::broker::Broker;

/// The assignments that are read (KIP-429 and before). What is newer is shown as empty.
const ASSIGNMENT_VERSIONS: std::ops::RangeInclusive<i16> = 0..=3;

/// Answers once the broker serves.
#[derive(Default)]
pub(crate) struct Queries(ArcSwapOption<Broker>);

impl Queries {
    /// From now on questions are answered.
    pub(crate) fn open(&self, broker: Arc<Broker>) {
        self.0.store(Some(broker));
    }

    fn broker(&self) -> Result<Arc<Broker>, OrderError> {
        self.0
            .load_full()
            .ok_or_else(|| OrderError::Unreachable("the broker is starting".to_owned()))
    }
}

#[async_trait]
impl BrokerQueries for Queries {
    async fn log_statuses(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<Option<LogStatus>>, OrderError> {
        let broker = self.broker()?;
        let statuses = partitions.into_iter().map(|id| log_status(&broker, id));
        Ok(statuses.collect())
    }

    async fn list_groups(&self, states: Vec<String>) -> Result<GroupList, OrderError> {
        let broker = self.broker()?;
        let filter = GroupFilter {
            states,
            types: Vec::new(),
        };
        let mut list = GroupList::default();
        for coordinator in broker.groups.coordinators() {
            let filter = filter.clone();
            let listed = coordinator.immediate(move |c, _| c.list_groups(&filter));
            match listed.await {
                Some(Ok(listed)) => {
                    list.groups
                        .extend(listed.into_iter().map(|group| GroupSummary {
                            group: group.group_id.as_str().to_owned(),
                            state: group.state.to_owned(),
                            protocol_type: group.protocol_type,
                        }))
                }
                // It moved away while we asked; another broker lists its groups.
                None | Some(Err(GroupError::NotCoordinator)) => {}
                Some(Err(error)) => list.incomplete = Some(error.to_string()),
            }
        }
        Ok(list)
    }

    async fn describe_group(&self, group: String) -> Result<GroupAnswer, OrderError> {
        let broker = self.broker()?;
        Ok(match describe(&broker, &group).await {
            Ok(description) => GroupAnswer::Described(Box::new(description)),
            Err(GroupError::GroupIdNotFound | GroupError::InvalidGroupId) => GroupAnswer::Unknown,
            Err(GroupError::NotCoordinator) => GroupAnswer::NotHere,
            Err(error) => GroupAnswer::Unavailable {
                cause: error.to_string(),
            },
        })
    }
}

fn log_status(broker: &Broker, partition: PartitionId) -> Option<LogStatus> {
    let log = broker.logs.get(partition)?;
    // A log that was closed meanwhile isn't led here any more.
    let borders = log.watermarks().ok()?;
    let (stored_bytes, not_uploaded_bytes) = log.size_bytes();
    Some(LogStatus {
        partition,
        leader_epoch: log.leader_epoch(),
        durability: log.durability(),
        log_start: borders.log_start,
        last_stable: borders.last_stable,
        high_watermark: borders.high_watermark,
        log_end: borders.log_end,
        segments: log.segments().len() as u64,
        stored_bytes,
        not_uploaded_bytes,
    })
}

async fn describe(broker: &Broker, group: &str) -> Result<GroupDescription, GroupError> {
    let id = GroupId::new(group)?;
    let coordinator = broker.groups.coordinator(broker, group).await?;
    let request = FetchRequest {
        group_id: id.clone(),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::All,
    };
    // Both at one moment, so that the offsets are those of this generation.
    let read = coordinator.immediate(move |c, _| {
        let described = match c.describe_consumer_group(&id) {
            Ok(described) => Described::Consumer(described),
            Err(GroupError::GroupIdNotFound) => Described::Classic(c.describe_group(&id)?),
            Err(error) => return Err(error),
        };
        let offsets = c.fetch_offsets(&request)?;
        Ok::<_, GroupError>((described, offsets))
    });
    let (described, offsets) = read.await.ok_or(GroupError::NotCoordinator)??;
    Ok(match described {
        Described::Classic(described) => description(group, described, offsets),
        Described::Consumer(described) => consumer_description(group, described, offsets),
    })
}

/// A group of either kind.
enum Described {
    Classic(DescribedGroup),
    Consumer(DescribedConsumerGroup),
}

fn consumer_description(
    group: &str,
    described: DescribedConsumerGroup,
    offsets: Vec<FetchedOffset>,
) -> GroupDescription {
    let members = described.members.into_iter().map(|member| GroupMember {
        member_id: member.member_id.as_str().to_owned(),
        instance_id: member.instance_id.map(|id| id.as_str().to_owned()),
        client_id: member.client_id,
        client_host: member.client_host,
        assigned: member
            .assignment
            .into_iter()
            .flat_map(|(_, topic, partitions)| {
                partitions.into_iter().filter_map(move |index| {
                    Some((topic.clone(), PartitionIndex::from_wire(index).ok()?))
                })
            })
            .collect(),
    });
    GroupDescription {
        summary: GroupSummary {
            group: group.to_owned(),
            state: described.state.as_str().to_owned(),
            protocol_type: "consumer".to_owned(),
        },
        protocol: described.assignor,
        generation: described.epoch.to_wire(),
        members: members.collect(),
        offsets: offsets.into_iter().filter_map(offset_of).collect(),
    }
}

fn description(
    group: &str,
    described: DescribedGroup,
    offsets: Vec<FetchedOffset>,
) -> GroupDescription {
    let consumers = described.protocol_type == "consumer";
    GroupDescription {
        summary: GroupSummary {
            group: group.to_owned(),
            state: described.state.as_str().to_owned(),
            protocol_type: described.protocol_type,
        },
        protocol: described.protocol_name,
        generation: described.generation.to_wire(),
        members: described
            .members
            .into_iter()
            .map(|member| member_of(member, consumers))
            .collect(),
        offsets: offsets.into_iter().filter_map(offset_of).collect(),
    }
}

fn member_of(member: DescribedMember, consumer: bool) -> GroupMember {
    let assigned = if consumer {
        assigned(member.assignment).unwrap_or_default()
    } else {
        Vec::new()
    };
    GroupMember {
        member_id: member.member_id.as_str().to_owned(),
        instance_id: member.instance_id.map(|id| id.as_str().to_owned()),
        client_id: member.client_id,
        client_host: member.client_host,
        assigned,
    }
}

/// What the group's leader wrote for this member, with the version before it. `None` if it can't be read: the
/// broker only keeps it.
fn assigned(mut assignment: bytes::Bytes) -> Option<Vec<(TopicName, PartitionIndex)>> {
    let version = assignment.try_get_i16().ok()?;
    if !ASSIGNMENT_VERSIONS.contains(&version) {
        return None;
    }
    let read = ConsumerProtocolAssignment::decode(&mut assignment, version).ok()?;
    let mut all = Vec::new();
    for topic in read.assigned_partitions {
        let name = TopicName::new(topic.topic.as_str()).ok()?;
        for index in topic.partitions {
            all.push((name.clone(), PartitionIndex::from_wire(index).ok()?));
        }
    }
    all.sort();
    Some(all)
}

fn offset_of(fetched: FetchedOffset) -> Option<GroupOffset> {
    let committed = fetched.committed.ok()??;
    Some(GroupOffset {
        topic: fetched.target.topic,
        partition: fetched.target.partition,
        offset: Offset::from_wire(committed.offset.to_wire())?,
        metadata: (*committed.metadata).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition;
    use kafka_protocol::protocol::{Encodable, StrBytes};

    use super::*;

    fn written(version: i16) -> Bytes {
        let assignment = ConsumerProtocolAssignment::default().with_assigned_partitions(vec![
            TopicPartition::default()
                .with_topic(StrBytes::from_static_str("orders").into())
                .with_partitions(vec![2, 0]),
        ]);
        let mut bytes = BytesMut::new();
        bytes.put_i16(version);
        assignment.encode(&mut bytes, version.min(3)).unwrap();
        bytes.freeze()
    }

    #[test]
    fn an_assignment_is_read_in_the_order_of_partitions() {
        let topic = TopicName::new("orders").unwrap();
        let expected: Vec<_> = [0, 2]
            .map(|index| (topic.clone(), PartitionIndex::new(index).unwrap()))
            .into();
        for version in ASSIGNMENT_VERSIONS {
            assert_eq!(assigned(written(version)).unwrap(), expected);
        }
    }

    #[test]
    fn an_assignment_that_cannot_be_read_is_none() {
        for bytes in [
            Bytes::new(),
            Bytes::from_static(&[0]),
            Bytes::from_static(&[0, 1, 0xff, 0xff, 0xff]),
            written(4),
        ] {
            assert_eq!(assigned(bytes), None);
        }
    }
}
