//! A host for the coordinator: it keeps the log, the clock and the replies.

mod durability;
mod expiry;
mod join;
mod limits;
mod membership;
mod offsets;
mod property;
mod rebalance;
mod replay;
mod static_members;
mod transactions;
mod transactions_property;
mod views;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tidegate_types::{PartitionIndex, ProducerId, TimestampMs, TopicName};
use uuid::Uuid;

use crate::*;

pub(crate) const START_WALL: i64 = 1_700_000_000_000;

/// What the log holds besides plain records.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Plain(Record),
    Transactional(ProducerId, Record),
    Marker(EndTransaction),
}

/// Appends become durable at once unless `hold` is set.
pub(crate) struct Host {
    pub(crate) coordinator: GroupCoordinator,
    pub(crate) now_ms: u64,
    pub(crate) hold: bool,
    pub(crate) held: VecDeque<(AppendId, Vec<Record>)>,
    /// The plain records.
    pub(crate) log: Vec<Record>,
    /// Everything.
    pub(crate) entries: Vec<Entry>,
    /// Of appends that are no plain ones.
    kinds: BTreeMap<AppendId, Result<Transaction, EndTransaction>>,
    pub(crate) replies: BTreeMap<ReplyToken, Reply>,
    pub(crate) notices: Vec<Notice>,
    tokens: u64,
    uuids: u128,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with_config(GroupConfig::default())
    }

    pub(crate) fn with_config(config: GroupConfig) -> Self {
        let mut host = Self {
            coordinator: GroupCoordinator::new(config),
            now_ms: 1_000,
            hold: false,
            held: VecDeque::new(),
            log: Vec::new(),
            entries: Vec::new(),
            kinds: BTreeMap::new(),
            replies: BTreeMap::new(),
            notices: Vec::new(),
            tokens: 0,
            uuids: 0,
        };
        let effects = host.coordinator.loaded(host.now()).unwrap();
        host.carry_out(effects);
        host
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            monotonic_ms: self.now_ms,
            wall: TimestampMs::new(START_WALL + i64::try_from(self.now_ms).unwrap()),
        }
    }

    pub(crate) fn token(&mut self) -> ReplyToken {
        self.tokens += 1;
        ReplyToken(self.tokens)
    }

    pub(crate) fn random(&mut self) -> Uuid {
        self.uuids += 1;
        Uuid::from_u128(self.uuids)
    }

    pub(crate) fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut queue: VecDeque<Effect> = effects.into();
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Reply(token, reply) => {
                    let earlier = self.replies.insert(token, reply);
                    assert_eq!(earlier, None, "{token:?} was answered twice");
                }
                Effect::Append { id, records, .. } => {
                    assert!(!records.is_empty(), "an append without records");
                    self.held.push_back((id, records));
                }
                Effect::AppendTransactional {
                    id,
                    records,
                    transaction,
                    ..
                } => {
                    assert!(!records.is_empty(), "an append without records");
                    self.kinds.insert(id, Ok(transaction));
                    self.held.push_back((id, records));
                }
                Effect::AppendMarker { id, end } => {
                    self.kinds.insert(id, Err(end));
                    self.held.push_back((id, Vec::new()));
                }
                Effect::Notice(notice) => self.notices.push(notice),
            }
            if !self.hold {
                while let Some(effects) = self.settle_one(Ok(())) {
                    queue.extend(effects);
                }
            }
        }
    }

    fn settle_one(&mut self, outcome: Result<(), AppendFailure>) -> Option<Vec<Effect>> {
        let (id, records) = self.held.pop_front()?;
        let kind = self.kinds.remove(&id);
        if outcome.is_ok() {
            match kind {
                None => {
                    self.log.extend(records.iter().cloned());
                    self.entries.extend(records.into_iter().map(Entry::Plain));
                }
                Some(Ok(of)) => {
                    let entry = |record| Entry::Transactional(of.producer, record);
                    self.entries.extend(records.into_iter().map(entry));
                }
                Some(Err(end)) => self.entries.push(Entry::Marker(end)),
            }
        }
        Some(self.coordinator.appended(self.now(), id, outcome))
    }

    /// Settles the oldest held append.
    pub(crate) fn settle(&mut self, outcome: Result<(), AppendFailure>) {
        let effects = self.settle_one(outcome).expect("no append is held");
        self.carry_out(effects);
    }

    pub(crate) fn release(&mut self) {
        self.hold = false;
        self.carry_out(Vec::new());
        while !self.held.is_empty() {
            self.settle(Ok(()));
        }
    }

    /// Lets time pass, doing what comes due on the way.
    pub(crate) fn advance(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| *due <= end) {
            self.now_ms = self.now_ms.max(due);
            let effects = self.coordinator.tick(self.now());
            self.carry_out(effects);
        }
        self.now_ms = end;
    }

    /// Another broker takes over with what the log holds.
    pub(crate) fn restart(&mut self) {
        let effects = self.coordinator.unload(self.now());
        self.hold = false;
        self.held.clear();
        self.kinds.clear();
        self.carry_out(effects);
        let mut coordinator = GroupCoordinator::new(self.coordinator.config.clone());
        for entry in &self.entries {
            match entry {
                Entry::Plain(record) => coordinator.replay(&record.key, record.value.as_deref()),
                Entry::Transactional(producer, record) => coordinator.replay_transactional(
                    *producer,
                    &record.key,
                    record.value.as_deref(),
                ),
                Entry::Marker(end) => {
                    coordinator.replay_marker(end.producer, end.commit);
                    Ok(())
                }
            }
            .unwrap();
        }
        coordinator.loaded(self.now()).unwrap();
        self.coordinator = coordinator;
    }

    pub(crate) fn join(&mut self, request: JoinRequest) -> ReplyToken {
        let token = self.token();
        let effects = self.coordinator.join(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    pub(crate) fn joined(&self, token: ReplyToken) -> Joined {
        match self.replies.get(&token) {
            Some(Reply::Join(Ok(joined))) => joined.clone(),
            other => panic!("no successful join: {other:?}"),
        }
    }

    pub(crate) fn refused(&self, token: ReplyToken) -> JoinRefused {
        match self.replies.get(&token) {
            Some(Reply::Join(Err(refused))) => refused.clone(),
            other => panic!("no refused join: {other:?}"),
        }
    }

    pub(crate) fn sync(
        &mut self,
        id: &MemberId,
        generation: Generation,
        assignments: &[(&MemberId, &'static str)],
    ) -> ReplyToken {
        let token = self.token();
        let request = SyncRequest {
            group_id: group("g"),
            member_id: Some(id.clone()),
            instance_id: None,
            generation: Some(generation),
            protocol_type: None,
            protocol_name: None,
            assignments: assignments
                .iter()
                .map(|(id, bytes)| ((*id).clone(), Bytes::from_static(bytes.as_bytes())))
                .collect(),
        };
        let effects = self.coordinator.sync(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    pub(crate) fn synced(&self, token: ReplyToken) -> Result<Bytes, GroupError> {
        match self.replies.get(&token) {
            Some(Reply::Sync(reply)) => reply.clone().map(|synced| synced.assignment),
            other => panic!("no sync reply: {other:?}"),
        }
    }

    pub(crate) fn heartbeat(
        &mut self,
        id: &MemberId,
        generation: Generation,
    ) -> Result<(), GroupError> {
        let request = HeartbeatRequest {
            group_id: group("g"),
            member_id: Some(id.clone()),
            instance_id: None,
            generation: Some(generation),
        };
        self.coordinator.heartbeat(self.now(), &request)
    }

    pub(crate) fn leave(&mut self, members: Vec<LeavingMember>) -> ReplyToken {
        let token = self.token();
        let request = LeaveRequest {
            group_id: group("g"),
            members,
        };
        let effects = self.coordinator.leave(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    pub(crate) fn commit(&mut self, request: CommitRequest) -> ReplyToken {
        let token = self.token();
        let effects = self.coordinator.commit_offsets(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    pub(crate) fn committed(
        &self,
        token: ReplyToken,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        match self.replies.get(&token) {
            Some(Reply::CommitOffsets(reply)) => reply.clone(),
            other => panic!("no commit reply: {other:?}"),
        }
    }

    /// The offset of `topic-0` in group `g`, −1 if there is none.
    pub(crate) fn offset(&self, topic: &str) -> i64 {
        let request = FetchRequest {
            group_id: group("g"),
            member_id: None,
            member_epoch: None,
            selection: OffsetSelection::Partitions(vec![(target(topic), None)]),
        };
        let fetched = self.coordinator.fetch_offsets(&request).unwrap();
        fetched[0]
            .committed
            .clone()
            .unwrap()
            .map_or(-1, |committed| committed.offset.to_wire())
    }

    pub(crate) fn state(&self) -> Option<GroupState> {
        self.coordinator
            .describe_group(&group("g"))
            .ok()
            .map(|group| group.state)
    }

    /// A dynamic member that has done both steps of its join and waits for the rebalance.
    pub(crate) fn join_dynamic(&mut self, client: &str) -> (MemberId, ReplyToken) {
        let request = self.request(client);
        let first = self.join(request.clone());
        let refused = self.refused(first);
        assert_eq!(refused.error, GroupError::MemberIdRequired);
        let id = refused.member_id.unwrap();
        let token = self.join(JoinRequest {
            member_id: Some(id.clone()),
            ..request
        });
        (id, token)
    }

    /// A stable group `g` of one dynamic member.
    pub(crate) fn stable(&mut self) -> (MemberId, Generation) {
        let (id, token) = self.join_dynamic("c");
        self.advance(3_000);
        let generation = self.joined(token).generation;
        let sync = self.sync(&id, generation, &[(&id, "a")]);
        assert_eq!(self.synced(sync), Ok(Bytes::from_static(b"a")));
        assert_eq!(self.state(), Some(GroupState::Stable));
        (id, generation)
    }

    /// A stable group `g` of two dynamic members; the first one leads.
    pub(crate) fn stable_pair(&mut self) -> (MemberId, MemberId, Generation) {
        let (a, a_join) = self.join_dynamic("a");
        let (b, b_join) = self.join_dynamic("b");
        self.advance(10_000);
        let generation = self.joined(a_join).generation;
        assert_eq!(self.joined(b_join).generation, generation);
        assert_eq!(self.joined(b_join).leader, Some(a.clone()));
        let b_sync = self.sync(&b, generation, &[]);
        let a_sync = self.sync(&a, generation, &[(&a, "A"), (&b, "B")]);
        assert_eq!(self.synced(a_sync), Ok(Bytes::from_static(b"A")));
        assert_eq!(self.synced(b_sync), Ok(Bytes::from_static(b"B")));
        (a, b, generation)
    }

    pub(crate) fn request(&mut self, client: &str) -> JoinRequest {
        JoinRequest {
            group_id: group("g"),
            api_version: 9,
            member_id: None,
            instance_id: None,
            client_id: client.to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![protocol("range", &["t"])],
            reason: None,
            random: self.random(),
        }
    }

    pub(crate) fn static_request(&mut self, instance: &str) -> JoinRequest {
        JoinRequest {
            instance_id: Some(InstanceId::new(instance).unwrap()),
            ..self.request("s")
        }
    }
}

/// A coordinator loaded from the given records.
pub(crate) fn reload(
    config: &GroupConfig,
    log: &[Record],
    now: Now,
) -> (GroupCoordinator, Vec<Effect>) {
    let mut coordinator = GroupCoordinator::new(config.clone());
    for record in log {
        coordinator
            .replay(&record.key, record.value.as_deref())
            .unwrap();
    }
    let effects = coordinator.loaded(now).unwrap();
    (coordinator, effects)
}

pub(crate) fn group(id: &str) -> GroupId {
    GroupId::new(id).unwrap()
}

pub(crate) fn target(topic: &str) -> TopicPartition {
    TopicPartition {
        topic: TopicName::new(topic).unwrap(),
        partition: PartitionIndex::new(0).unwrap(),
    }
}

/// A protocol whose metadata is a consumer's subscription.
pub(crate) fn protocol(name: &str, topics: &[&str]) -> Protocol {
    let mut metadata = vec![0, 1];
    metadata.extend(u32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        metadata.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
        metadata.extend(topic.bytes());
    }
    metadata.extend((-1_i32).to_be_bytes());
    Protocol {
        name: name.into(),
        metadata: metadata.into(),
    }
}

pub(crate) fn leaving(id: &MemberId) -> LeavingMember {
    LeavingMember {
        member_id: Some(id.clone()),
        instance_id: None,
        reason: None,
    }
}

/// A commit to `t-0` by nobody in particular.
pub(crate) fn simple_commit(offset: i64) -> CommitRequest {
    CommitRequest {
        group_id: group("g"),
        api_version: 8,
        member_id: None,
        instance_id: None,
        generation: None,
        retention_ms: -1,
        offsets: vec![to_commit("t", offset)],
    }
}

pub(crate) fn member_commit(id: &MemberId, generation: Generation, offset: i64) -> CommitRequest {
    CommitRequest {
        member_id: Some(id.clone()),
        generation: Some(generation),
        ..simple_commit(offset)
    }
}

pub(crate) fn to_commit(topic: &str, offset: i64) -> OffsetToCommit {
    OffsetToCommit {
        target: target(topic),
        topic_id: None,
        offset: CommittedOffset::from_wire(offset),
        leader_epoch: None,
        metadata: None,
    }
}

pub(crate) fn generation(number: i32) -> Generation {
    Generation::from_wire(number).unwrap()
}
