//! Consumers as their clients behave, on the host of the crate's tests.

mod classic_members;
mod epochs;
mod migration;
mod offsets;
mod property;
mod records;
mod regexes;
mod static_members;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_types::{PartitionIndex, TopicId, TopicName};
use uuid::Uuid;

use crate::tests::{Host, group};
use crate::*;

/// Topics by name, with their numbers of partitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    pub(super) topics: BTreeMap<String, (TopicId, u32)>,
    pub(super) overrides: GroupOverrides,
}

impl Cluster {
    pub(super) fn new(topics: &[(&str, u32)]) -> Self {
        let topics = topics
            .iter()
            .map(|(name, partitions)| ((*name).to_owned(), (topic_id(name), *partitions)));
        Self {
            topics: topics.collect(),
            overrides: GroupOverrides::default(),
        }
    }
}

impl ClusterView for Cluster {
    fn topic(&self, name: &str) -> Option<TopicInfo> {
        let (id, partitions) = *self.topics.get(name)?;
        Some(TopicInfo { id, partitions })
    }

    fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        let mut topics = self.topics.iter();
        let (name, _) = topics.find(|(_, (known, _))| *known == id)?;
        TopicName::new(name).ok()
    }

    fn each_topic(&self, visit: &mut dyn FnMut(&TopicName)) {
        for name in self.topics.keys() {
            visit(&TopicName::new(name).unwrap());
        }
    }

    fn overrides(&self, _group: &GroupId) -> GroupOverrides {
        self.overrides
    }
}

pub(super) fn topic_id(name: &str) -> TopicId {
    let number = name
        .bytes()
        .fold(1_u128, |n, byte| n * 256 + u128::from(byte));
    TopicId::new(Uuid::from_u128(number)).unwrap()
}

/// Partitions of one topic.
pub(super) fn of(topic: &str, indexes: &[u32]) -> Assignment {
    let id = topic_id(topic);
    let index = |index: &u32| (id, PartitionIndex::new(*index).unwrap());
    indexes.iter().map(index).collect()
}

pub(super) fn see(host: &mut Host, cluster: &Cluster) {
    host.coordinator.see(Arc::new(cluster.clone()));
}

pub(super) fn host(topics: &[(&str, u32)]) -> Host {
    let mut host = Host::new();
    see(&mut host, &Cluster::new(topics));
    host
}

pub(super) fn member(id: &str) -> MemberId {
    MemberId::from_wire(id).unwrap()
}

/// A client of the consumer protocol, as the Java one behaves.
#[derive(Debug, Clone)]
pub(super) struct Consumer {
    pub(super) id: MemberId,
    pub(super) instance_id: Option<InstanceId>,
    pub(super) epoch: MemberEpoch,
    pub(super) topics: Vec<String>,
    pub(super) regex: Option<String>,
    pub(super) assignor: Option<String>,
    /// What it was told it may read.
    pub(super) assigned: Assignment,
    /// What it reads. It follows `assigned` when [`Self::follow`] is called.
    pub(super) owned: Assignment,
}

impl Consumer {
    pub(super) fn new(id: &str, topics: &[&str]) -> Self {
        Self {
            id: member(id),
            instance_id: None,
            epoch: MemberEpoch::JOINING,
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            regex: None,
            assignor: None,
            assigned: Assignment::default(),
            owned: Assignment::default(),
        }
    }

    /// Everything that a client says in full.
    pub(super) fn request(&self) -> ConsumerHeartbeatRequest {
        ConsumerHeartbeatRequest {
            group_id: group("g"),
            api_version: 1,
            member_id: Some(self.id.clone()),
            member_epoch: self.epoch,
            instance_id: self.instance_id.clone(),
            rack_id: None,
            client_id: "client".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout_ms: 300_000,
            topics: Some(self.topics.clone()),
            regex: self.regex.clone(),
            server_assignor: self.assignor.clone(),
            owned: Some(self.owned.clone()),
            random: Uuid::from_u128(7),
        }
    }

    /// Only what the protocol asks for in every heartbeat.
    pub(super) fn short_request(&self) -> ConsumerHeartbeatRequest {
        ConsumerHeartbeatRequest {
            rebalance_timeout_ms: -1,
            topics: None,
            regex: None,
            server_assignor: None,
            owned: None,
            ..self.request()
        }
    }

    /// Sends a full heartbeat and takes the answer in.
    pub(super) fn beat(&mut self, host: &mut Host) -> Result<(), GroupError> {
        let answer = send(host, self.request());
        self.take(answer)
    }

    pub(super) fn take(
        &mut self,
        answer: Result<ConsumerHeartbeat, GroupError>,
    ) -> Result<(), GroupError> {
        match answer {
            Ok(answer) => {
                self.epoch = answer.member_epoch;
                if let Some(assigned) = answer.assignment {
                    self.assigned = assigned;
                }
                Ok(())
            }
            Err(error) => {
                let fenced = matches!(
                    error,
                    GroupError::FencedMemberEpoch | GroupError::UnknownMemberId
                );
                if fenced {
                    self.give_up();
                }
                Err(error)
            }
        }
    }

    /// Abandons everything, to join again.
    pub(super) fn give_up(&mut self) {
        self.epoch = MemberEpoch::JOINING;
        self.assigned = Assignment::default();
        self.owned = Assignment::default();
    }

    /// Gives up what it must and takes what it may.
    pub(super) fn follow(&mut self) {
        self.owned = self.assigned.clone();
    }

    /// Heartbeats until nothing changes.
    pub(super) fn settle(&mut self, host: &mut Host) {
        for _ in 0..4 {
            self.beat(host).unwrap();
            self.follow();
        }
    }

    pub(super) fn leave(&mut self, host: &mut Host, epoch: MemberEpoch) -> Result<(), GroupError> {
        let request = ConsumerHeartbeatRequest {
            member_epoch: epoch,
            ..self.short_request()
        };
        let answer = send(host, request);
        self.give_up();
        answer.map(|_| ())
    }
}

pub(super) fn start(host: &mut Host, request: ConsumerHeartbeatRequest) -> ReplyToken {
    let token = host.token();
    let effects = host
        .coordinator
        .consumer_heartbeat(host.now(), token, request);
    host.carry_out(effects);
    token
}

pub(super) fn reply(
    host: &Host,
    token: ReplyToken,
) -> Option<Result<ConsumerHeartbeat, GroupError>> {
    match host.replies.get(&token) {
        Some(Reply::ConsumerHeartbeat(reply)) => Some(reply.clone()),
        Some(other) => panic!("not a heartbeat's reply: {other:?}"),
        None => None,
    }
}

pub(super) fn send(
    host: &mut Host,
    request: ConsumerHeartbeatRequest,
) -> Result<ConsumerHeartbeat, GroupError> {
    let token = start(host, request);
    reply(host, token).expect("the reply waits for an append")
}

pub(super) fn described(host: &Host) -> DescribedConsumerGroup {
    host.coordinator
        .describe_consumer_group(&group("g"))
        .unwrap()
}

pub(super) fn state(host: &Host) -> ConsumerGroupState {
    described(host).state
}

/// All consumers take turns until the group is stable.
pub(super) fn converge(host: &mut Host, consumers: &mut [Consumer]) {
    for _ in 0..30 {
        for consumer in consumers.iter_mut() {
            // A fenced one joins again in the next round.
            let _ = consumer.beat(host);
            consumer.follow();
        }
        let settled = consumers
            .iter()
            .all(|c| c.epoch != MemberEpoch::JOINING && c.owned == c.assigned);
        if settled && state(host) == ConsumerGroupState::Stable {
            return;
        }
    }
    panic!("no stable group: {:?}", described(host));
}
