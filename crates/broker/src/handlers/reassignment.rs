//! AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders: Kafka's way to say who shall lead.
//!
//! The replica list is the placement: the brokers that may lead, the preferred first. Changing it copies nothing; a
//! partition whose leader isn't in the new list is handed over.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    BrokerId as WireBrokerId, ElectLeadersRequest, ElectLeadersResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    TopicName as WireTopicName,
};
use tidegate_cluster::admin::{
    AdminError, ElectError, ElectionKind, MoveError, PlacementChange, PlacementError,
};
use tidegate_metadata::ClusterImage;
use tidegate_types::{BrokerId, PartitionId, PartitionIndex};

use super::text;
use crate::broker::Broker;
use crate::error_code::ErrorCode;

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
/// The longest an election is waited for, whatever the client asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// One partition's code, with a sentence if there is an error.
type Outcome = (ErrorCode, Option<String>);

/// A topic's partitions by index; `None`: the controller's answer says.
type Known = Vec<(i32, Option<Outcome>)>;

const UNKNOWN_PARTITION: &str = "there is no such topic or partition";

fn partition_of(image: &ClusterImage, topic: &str, index: i32) -> Option<PartitionId> {
    let topic = image.topic(topic)?;
    let index = PartitionIndex::from_wire(index).ok()?;
    topic.partition(index)?;
    Some(PartitionId {
        topic: topic.id,
        index,
    })
}

fn wire_ids(brokers: &[BrokerId]) -> Vec<WireBrokerId> {
    brokers.iter().map(|b| WireBrokerId(b.to_wire())).collect()
}

pub(crate) async fn alter(
    broker: &Broker,
    request: AlterPartitionReassignmentsRequest,
    version: i16,
) -> AlterPartitionReassignmentsResponse {
    let catalog = broker.catalog.load_full();
    let lengths_free = version < 1 || request.allow_replication_factor_change;
    let mut changes = Vec::new();
    // What can't be asked of the controller at all is answered here; the rest in the order of `changes`.
    let mut answers: Vec<(WireTopicName, Known)> = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let index = wanted.partition_index;
            let change = change_of(
                &catalog.image,
                topic.name.0.as_str(),
                index,
                wanted.replicas,
                lengths_free,
            );
            match change {
                Ok(change) => {
                    changes.push(change);
                    partitions.push((index, None));
                }
                Err(outcome) => partitions.push((index, Some(outcome))),
            }
        }
        answers.push((topic.name, partitions));
    }
    let mut response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_error_message(None);
    let mut done = match broker.admin.alter_placements(changes).await {
        Ok(results) => results.into_iter(),
        Err(error) => {
            let (code, message) = whole_failure(&error);
            response.error_code = code.code();
            response.error_message = message.map(text);
            return response;
        }
    };
    for (name, partitions) in answers {
        let partitions = partitions
            .into_iter()
            .map(|(index, known)| {
                let (code, message) =
                    known.unwrap_or_else(|| done.next().map_or_else(unanswered, placement_outcome));
                ReassignablePartitionResponse::default()
                    .with_partition_index(index)
                    .with_error_code(code.code())
                    .with_error_message(message.map(text))
            })
            .collect();
        response.responses.push(
            ReassignableTopicResponse::default()
                .with_name(name)
                .with_partitions(partitions),
        );
    }
    response
}

fn change_of(
    image: &ClusterImage,
    topic: &str,
    index: i32,
    replicas: Option<Vec<WireBrokerId>>,
    lengths_free: bool,
) -> Result<PlacementChange, Outcome> {
    let Some(partition) = partition_of(image, topic, index) else {
        return Err((
            ErrorCode::UnknownTopicOrPartition,
            Some(UNKNOWN_PARTITION.to_owned()),
        ));
    };
    let Some(replicas) = replicas else {
        return Ok(PlacementChange {
            partition,
            placement: None,
        });
    };
    let placement: Result<Vec<BrokerId>, _> = replicas
        .iter()
        .map(|id| BrokerId::from_wire(id.0))
        .collect();
    let placement = placement
        .map_err(|error| (ErrorCode::InvalidReplicaAssignment, Some(error.to_string())))?;
    let present = image
        .topic_by_id(partition.topic)
        .and_then(|t| t.partition(partition.index))
        .map_or(0, |p| p.placement.len());
    if !lengths_free && placement.len() != present {
        return Err((
            ErrorCode::InvalidReplicationFactor,
            Some(format!(
                "the replication factor is {present} and the request doesn't allow to change it"
            )),
        ));
    }
    Ok(PlacementChange {
        partition,
        placement: Some(placement),
    })
}

fn unanswered() -> Outcome {
    (
        ErrorCode::UnknownServerError,
        Some("the controller gave no answer for this partition".to_owned()),
    )
}

fn placement_outcome(result: Result<(), PlacementError>) -> Outcome {
    let Err(error) = result else {
        return (ErrorCode::None, None);
    };
    let code = match &error {
        PlacementError::UnknownPartition(_) => ErrorCode::UnknownTopicOrPartition,
        PlacementError::Invalid { .. } => ErrorCode::InvalidReplicaAssignment,
        PlacementError::NoneInProgress => ErrorCode::NoReassignmentInProgress,
        PlacementError::Failed { .. } => ErrorCode::UnknownServerError,
    };
    (code, Some(error.to_string()))
}

fn whole_failure(error: &AdminError) -> Outcome {
    let code = match error {
        AdminError::Unavailable(unavailable) => ErrorCode::from(unavailable),
        AdminError::UnknownBroker(_) => ErrorCode::InvalidRequest,
        AdminError::Unsupported(_) => ErrorCode::UnsupportedVersion,
    };
    (code, Some(error.to_string()))
}

pub(crate) async fn list(
    broker: &Broker,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let catalog = broker.catalog.load_full();
    let wanted = request.topics.map(|topics| {
        topics
            .iter()
            .flat_map(|t| t.partition_indexes.iter().map(move |index| (t, *index)))
            .filter_map(|(t, index)| partition_of(&catalog.image, t.name.0.as_str(), index))
            .collect()
    });
    let mut response = ListPartitionReassignmentsResponse::default().with_error_message(None);
    let moves = match broker.admin.list_reassignments(wanted).await {
        Ok(moves) => moves,
        Err(error) => {
            let (code, message) = whole_failure(&error);
            response.error_code = code.code();
            response.error_message = message.map(text);
            return response;
        }
    };
    let mut topics: BTreeMap<String, Vec<OngoingPartitionReassignment>> = BTreeMap::new();
    for going in moves {
        let leaving = going.leader.filter(|l| !going.placement.contains(l));
        let mut replicas = going.placement.clone();
        replicas.extend(leaving);
        let ongoing = OngoingPartitionReassignment::default()
            .with_partition_index(going.partition.index.to_wire())
            .with_replicas(wire_ids(&replicas))
            .with_adding_replicas(wire_ids(&[going.to]))
            .with_removing_replicas(wire_ids(leaving.as_slice()));
        topics
            .entry(going.topic.as_str().to_owned())
            .or_default()
            .push(ongoing);
    }
    response.topics = topics
        .into_iter()
        .map(|(name, partitions)| {
            OngoingTopicReassignment::default()
                .with_name(WireTopicName(text(name)))
                .with_partitions(partitions)
        })
        .collect();
    response
}

pub(crate) async fn elect(
    broker: &Broker,
    request: ElectLeadersRequest,
    version: i16,
) -> ElectLeadersResponse {
    let kind = match request.election_type {
        PREFERRED => ElectionKind::Preferred,
        UNCLEAN if version >= 1 => ElectionKind::Unclean,
        _ => {
            return ElectLeadersResponse::default()
                .with_error_code(ErrorCode::InvalidRequest.code());
        }
    };
    let catalog = broker.catalog.load_full();
    let mut results: BTreeMap<String, Vec<PartitionResult>> = BTreeMap::new();
    let wanted = request.topic_partitions.map(|topics| {
        let mut found = Vec::new();
        for topic in topics {
            for index in topic.partitions {
                match partition_of(&catalog.image, topic.topic.0.as_str(), index) {
                    Some(partition) => found.push(partition),
                    None => results
                        .entry(topic.topic.0.as_str().to_owned())
                        .or_default()
                        .push(partition_result(
                            index,
                            (
                                ErrorCode::UnknownTopicOrPartition,
                                Some(UNKNOWN_PARTITION.to_owned()),
                            ),
                        )),
                }
            }
        }
        found
    });
    let wait = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let elected = broker
        .admin
        .elect_leaders(kind, wanted, wait.min(LONGEST_WAIT))
        .await;
    let elected = match elected {
        Ok(elected) => elected,
        Err(error) => {
            return ElectLeadersResponse::default().with_error_code(whole_failure(&error).0.code());
        }
    };
    for one in elected {
        let known = catalog.image.topic_by_id(one.partition.topic);
        let Some(name) = one.topic.as_ref().or(known.map(|t| &t.name)) else {
            continue;
        };
        let result = partition_result(one.partition.index.to_wire(), election_outcome(one.result));
        results
            .entry(name.as_str().to_owned())
            .or_default()
            .push(result);
    }
    ElectLeadersResponse::default().with_replica_election_results(
        results
            .into_iter()
            .map(|(name, results)| {
                ReplicaElectionResult::default()
                    .with_topic(WireTopicName(text(name)))
                    .with_partition_result(results)
            })
            .collect(),
    )
}

fn partition_result(index: i32, (code, message): Outcome) -> PartitionResult {
    PartitionResult::default()
        .with_partition_id(index)
        .with_error_code(code.code())
        .with_error_message(message.map(text))
}

fn election_outcome(result: Result<BrokerId, ElectError>) -> Outcome {
    let Err(error) = result else {
        return (ErrorCode::None, None);
    };
    let code = match &error {
        ElectError::UnknownPartition(_) => ErrorCode::UnknownTopicOrPartition,
        ElectError::NotNeeded => ErrorCode::ElectionNotNeeded,
        ElectError::PreferredUnavailable(_) => ErrorCode::PreferredLeaderNotAvailable,
        ElectError::NoneEligible => ErrorCode::EligibleLeadersNotAvailable,
        ElectError::Move(MoveError::TimedOut) => ErrorCode::RequestTimedOut,
        ElectError::Move(_) => ErrorCode::LeaderNotAvailable,
    };
    (code, Some(error.to_string()))
}
