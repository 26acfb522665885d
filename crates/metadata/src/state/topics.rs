//! Creating, enlarging and deleting topics.

use std::collections::BTreeSet;

use tidegate_types::{
    BrokerId, DurabilityMode, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId, TopicName,
};

use super::placement::Placer;
use super::{Change, Command, Decision, Environment, Facts, State};
use crate::api::{
    AssignmentFault, ControllerUnavailable, CreatePartitions, CreatePartitionsError,
    CreateTopicError, CreateTopics, CreatedTopic, DeleteTopics, MorePartitions, NewTopic,
    TopicLayout, UnknownTopic,
};
use crate::model::EpochStart;
use crate::rows::{DeletedTopicRow, PartitionRow, TopicRow};

fn check_assignments(state: &State, assignments: &[Vec<BrokerId>]) -> Result<(), AssignmentFault> {
    let wanted = assignments.first().map_or(0, Vec::len);
    for (partition, brokers) in (0u32..).zip(assignments) {
        if brokers.is_empty() {
            return Err(AssignmentFault::Empty { partition });
        }
        if brokers.len() != wanted {
            return Err(AssignmentFault::Uneven { partition });
        }
        let mut seen = BTreeSet::new();
        for &broker in brokers {
            if !seen.insert(broker) {
                return Err(AssignmentFault::Repeated { partition, broker });
            }
            if state.broker(broker).is_none() {
                return Err(AssignmentFault::UnknownBroker { partition, broker });
            }
        }
    }
    Ok(())
}

/// A partition without records, led by the first of its brokers that can.
fn empty_partition(state: &State, placement: Vec<BrokerId>, mode: DurabilityMode) -> PartitionRow {
    let leader = placement.iter().copied().find(|id| state.may_lead(*id));
    let first = EpochStart {
        epoch: LeaderEpoch::FIRST,
        start: Offset::ZERO,
    };
    let wal = leader
        .filter(|_| mode == DurabilityMode::Local)
        .and_then(|id| state.broker(id))
        .and_then(|row| row.wal);
    PartitionRow {
        leader,
        leader_epoch: LeaderEpoch::FIRST,
        epochs: leader.map(|_| first).into_iter().collect(),
        placement,
        log_start: Offset::ZERO,
        committed_end: Offset::ZERO,
        checkpoint: None,
        segment_count: 0,
        segment_bytes: 0,
        cleaned_end: Offset::ZERO,
        swaps: 0,
        trim_pending: false,
        wal,
        target: None,
    }
}

/// The most partitions that may be added now.
fn room(state: &State, used: u64, topic_has: u32) -> u64 {
    let in_cluster = state.limits.partitions.saturating_sub(used);
    let in_topic = state.limits.partitions_per_topic.saturating_sub(topic_has);
    in_cluster.min(u64::from(in_topic))
}

/// Topics created by one command so far.
#[derive(Default)]
struct Created {
    names: BTreeSet<TopicName>,
    partitions: u64,
}

fn check_name(state: &State, created: &Created, name: &TopicName) -> Result<(), CreateTopicError> {
    if let Some(id) = state.topic_named(name) {
        return Err(CreateTopicError::Exists {
            name: name.clone(),
            id,
        });
    }
    let folded = super::folded(name);
    let sibling = created.names.iter().find(|n| super::folded(n) == folded);
    if let Some(other) = state.topic_like(name).or(sibling) {
        return Err(CreateTopicError::Collides {
            name: name.clone(),
            other: other.clone(),
        });
    }
    Ok(())
}

fn create_topic(
    state: &State,
    topic: &NewTopic,
    placer: &mut Placer,
    created: &Created,
) -> Result<(TopicRow, Vec<PartitionRow>), CreateTopicError> {
    check_name(state, created, &topic.name)?;
    let (count, replication_factor) = match &topic.layout {
        TopicLayout::Count {
            partitions,
            replication_factor,
        } => (u64::from(*partitions), *replication_factor),
        TopicLayout::Assigned(assignments) => {
            check_assignments(state, assignments)?;
            let factor = assignments.first().map_or(1, Vec::len);
            (
                assignments.len() as u64,
                u16::try_from(factor).unwrap_or(u16::MAX),
            )
        }
    };
    let limit = room(state, state.partition_count() + created.partitions, 0);
    let partition_count = u32::try_from(count)
        .ok()
        .filter(|n| *n > 0 && u64::from(*n) <= limit)
        .ok_or(CreateTopicError::PartitionCount {
            partitions: count,
            limit,
        })?;
    if replication_factor == 0 {
        return Err(CreateTopicError::ReplicationFactor);
    }
    if placer.is_empty() {
        return Err(CreateTopicError::NoBroker);
    }
    let mode = state.durability(&topic.configs);
    let placements: Vec<Vec<BrokerId>> = match &topic.layout {
        TopicLayout::Count { .. } => {
            placer.begin_topic(&[]);
            (0..partition_count)
                .map(|_| placer.place(replication_factor))
                .collect()
        }
        TopicLayout::Assigned(assignments) => assignments.clone(),
    };
    let row = TopicRow {
        name: topic.name.clone(),
        configs: topic.configs.clone(),
        partition_count,
        replication_factor,
    };
    let partitions = placements
        .into_iter()
        .map(|placement| empty_partition(state, placement, mode))
        .collect();
    Ok((row, partitions))
}

fn push_partitions(changes: &mut Vec<Change>, topic: TopicId, from: u32, rows: Vec<PartitionRow>) {
    for (index, row) in (from..).zip(rows) {
        let index = PartitionIndex::new(index).expect("the limit on partitions is below 2^31");
        changes.push(Change::Partition(PartitionId { topic, index }, Some(row)));
    }
}

impl Command for CreateTopics {
    type Output = Vec<Result<CreatedTopic, CreateTopicError>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "create_topics";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let repeated = repeated(self.topics.iter().map(|t| &t.name));
        let mut placer = Placer::new(state);
        let mut created = Created::default();
        let mut changes = Vec::new();
        let mut output = Vec::with_capacity(self.topics.len());
        for topic in &self.topics {
            if repeated.contains(&topic.name) {
                output.push(Err(CreateTopicError::Repeated {
                    name: topic.name.clone(),
                }));
                continue;
            }
            let answer = create_topic(state, topic, &mut placer, &created).map(|(row, rows)| {
                created.names.insert(row.name.clone());
                created.partitions += u64::from(row.partition_count);
                let id = (!self.validate_only).then(|| fresh_id(environment));
                let answer = CreatedTopic {
                    id,
                    name: row.name.clone(),
                    partitions: row.partition_count,
                    replication_factor: row.replication_factor,
                    configs: row.configs.clone(),
                };
                if let Some(id) = id {
                    changes.push(Change::Topic(id, Some(row)));
                    push_partitions(&mut changes, id, 0, rows);
                }
                answer
            });
            output.push(answer);
        }
        Ok(Decision { changes, output })
    }
}

/// A random id; the reserved ones (all zeros, and Kafka's metadata topic, …0001) are drawn again.
fn fresh_id(environment: &mut Environment<'_>) -> TopicId {
    loop {
        let drawn = (environment.random_id)();
        if drawn.as_u128() > 1
            && let Ok(id) = TopicId::new(drawn)
        {
            return id;
        }
    }
}

fn repeated<T: Ord + Clone>(items: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    items.filter(|item| !seen.insert(item.clone())).collect()
}

impl Command for DeleteTopics {
    type Output = Vec<Result<TopicName, UnknownTopic>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "delete_topics";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let mut changes = Vec::new();
        let mut gone = BTreeSet::new();
        let output = self
            .topics
            .iter()
            .map(|&id| {
                let topic = state
                    .topic(id)
                    .filter(|_| gone.insert(id))
                    .ok_or(UnknownTopic(id))?;
                let row = DeletedTopicRow {
                    name: topic.row.name.clone(),
                    deleted_at: environment.now,
                };
                changes.push(Change::DeletedTopic(id, Some(row)));
                changes.push(Change::Topic(id, None));
                Ok(topic.row.name.clone())
            })
            .collect();
        Ok(Decision { changes, output })
    }
}

fn more_partitions(
    state: &State,
    request: &MorePartitions,
    placer: &mut Placer,
    used: u64,
) -> Result<(TopicRow, u32, Vec<PartitionRow>), CreatePartitionsError> {
    let topic = state
        .topic(request.topic)
        .ok_or(UnknownTopic(request.topic))?;
    let current = topic.row.partition_count;
    let added = request
        .total
        .checked_sub(current)
        .filter(|added| *added > 0)
        .ok_or(CreatePartitionsError::NotMore {
            current,
            total: request.total,
        })?;
    let limit = room(state, used, current);
    if u64::from(added) > limit {
        return Err(CreatePartitionsError::PartitionCount {
            partitions: u64::from(request.total),
            limit: u64::from(current) + limit,
        });
    }
    if placer.is_empty() {
        return Err(CreatePartitionsError::NoBroker);
    }
    let placements = match &request.assignments {
        None => {
            placer.begin_topic(&topic.partitions);
            (0..added)
                .map(|_| placer.place(topic.row.replication_factor))
                .collect()
        }
        Some(assignments) => {
            if assignments.len() as u64 != u64::from(added) {
                return Err(AssignmentFault::WrongCount {
                    given: assignments.len(),
                    wanted: added,
                }
                .into());
            }
            check_assignments(state, assignments)?;
            assignments.clone()
        }
    };
    let mode = state.durability(&topic.row.configs);
    let rows = placements
        .into_iter()
        .map(|placement| empty_partition(state, placement, mode))
        .collect();
    let mut row = topic.row.clone();
    row.partition_count = request.total;
    Ok((row, current, rows))
}

impl Command for CreatePartitions {
    type Output = Vec<Result<(), CreatePartitionsError>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "create_partitions";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        let repeated = repeated(self.topics.iter().map(|t| t.topic));
        let mut placer = Placer::new(state);
        let mut used = state.partition_count();
        let mut changes = Vec::new();
        let output = self
            .topics
            .iter()
            .map(|request| {
                if repeated.contains(&request.topic) {
                    return Err(CreatePartitionsError::Repeated(request.topic));
                }
                let (row, from, rows) = more_partitions(state, request, &mut placer, used)?;
                used += rows.len() as u64;
                if !self.validate_only {
                    changes.push(Change::Topic(request.topic, Some(row)));
                    push_partitions(&mut changes, request.topic, from, rows);
                }
                Ok(())
            })
            .collect();
        Ok(Decision { changes, output })
    }
}
