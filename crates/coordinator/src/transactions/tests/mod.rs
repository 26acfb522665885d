//! A host for the coordinator: it keeps the log, the clock, the replies and the orders of markers.

mod failures;
mod property;
mod rules;
mod version_2;

use std::collections::{BTreeMap, VecDeque};

use tidegate_types::{PartitionIndex, ProducerEpoch, ProducerId, TimestampMs, TopicName};

use super::*;
use crate::{AppendFailure, AppendId, Now, Record, ReplyToken, TopicPartition};

const START_WALL: i64 = 1_700_000_000_000;

/// Appends become durable at once unless `hold` is set. Markers wait until a test has them written.
struct Host {
    coordinator: TransactionCoordinator,
    config: TransactionConfig,
    now_ms: u64,
    hold: bool,
    held: VecDeque<(AppendId, Vec<Record>)>,
    log: Vec<Record>,
    replies: BTreeMap<ReplyToken, TransactionReply>,
    notices: Vec<TransactionNotice>,
    markers: Vec<Markers>,
    tokens: u64,
    ids: i64,
}

impl Host {
    fn new() -> Self {
        Self::with_config(TransactionConfig::default())
    }

    fn with_config(config: TransactionConfig) -> Self {
        let mut host = Self {
            coordinator: TransactionCoordinator::new(config.clone()),
            config,
            now_ms: 1_000,
            hold: false,
            held: VecDeque::new(),
            log: Vec::new(),
            replies: BTreeMap::new(),
            notices: Vec::new(),
            markers: Vec::new(),
            tokens: 0,
            ids: 1_000,
        };
        let effects = host.coordinator.loaded(host.now());
        host.carry_out(effects);
        host
    }

    fn now(&self) -> Now {
        Now {
            monotonic_ms: self.now_ms,
            wall: TimestampMs::new(START_WALL + i64::try_from(self.now_ms).unwrap()),
        }
    }

    fn token(&mut self) -> ReplyToken {
        self.tokens += 1;
        ReplyToken(self.tokens)
    }

    fn fresh(&mut self) -> ProducerId {
        self.ids += 1;
        ProducerId::from_wire(self.ids).unwrap()
    }

    fn carry_out(&mut self, effects: Vec<TransactionEffect>) {
        let mut queue: VecDeque<TransactionEffect> = effects.into();
        while let Some(effect) = queue.pop_front() {
            match effect {
                TransactionEffect::Reply(token, reply) => {
                    let earlier = self.replies.insert(token, reply);
                    assert_eq!(earlier, None, "{token:?} was answered twice");
                }
                TransactionEffect::Append { id, records, .. } => {
                    assert!(!records.is_empty(), "an append without records");
                    self.held.push_back((id, records));
                }
                TransactionEffect::SendMarkers(markers) => {
                    assert!(!markers.partitions.is_empty(), "markers for nobody");
                    self.markers.push(markers);
                }
                TransactionEffect::Notice(notice) => self.notices.push(notice),
            }
            if !self.hold {
                while let Some(effects) = self.settle_one(Ok(())) {
                    queue.extend(effects);
                }
            }
        }
    }

    fn settle_one(&mut self, outcome: Result<(), AppendFailure>) -> Option<Vec<TransactionEffect>> {
        let (id, records) = self.held.pop_front()?;
        if outcome.is_ok() {
            self.log.extend(records);
        }
        Some(self.coordinator.appended(self.now(), id, outcome))
    }

    /// Settles the oldest held append.
    fn settle(&mut self, outcome: Result<(), AppendFailure>) {
        let effects = self.settle_one(outcome).expect("no append is held");
        self.carry_out(effects);
    }

    fn release(&mut self) {
        self.hold = false;
        while !self.held.is_empty() {
            self.settle(Ok(()));
        }
    }

    fn advance(&mut self, ms: u64) {
        let target = self.now_ms + ms;
        while let Some(at) = self.coordinator.next_deadline().filter(|at| *at <= target) {
            self.now_ms = self.now_ms.max(at);
            let effects = self.coordinator.tick(self.now());
            self.carry_out(effects);
        }
        self.now_ms = target;
    }

    /// Another broker takes over: what is pending is lost, unless it got into the log.
    fn move_away(&mut self) {
        let effects = self.coordinator.unload();
        self.carry_out(effects);
        self.held.clear();
        self.markers.clear();
        self.coordinator = TransactionCoordinator::new(self.config.clone());
        for record in &self.log {
            self.coordinator
                .replay(&record.key, record.value.as_deref())
                .unwrap();
        }
        let effects = self.coordinator.loaded(self.now());
        self.carry_out(effects);
    }

    fn begin_init(
        &mut self,
        name: &str,
        expected: Option<ProducerIdentity>,
        timeout_ms: i32,
    ) -> ReplyToken {
        let mut request = InitRequest {
            transactional_id: id(name),
            timeout_ms,
            expected,
            fresh: None,
        };
        loop {
            let token = self.token();
            let effects = self.coordinator.init(self.now(), token, &request);
            self.carry_out(effects);
            let needed = TransactionReply::Init(Err(TransactionError::ProducerIdNeeded));
            if self.replies.get(&token) != Some(&needed) {
                return token;
            }
            assert_eq!(request.fresh, None, "asked for an id twice");
            request.fresh = Some(self.fresh());
        }
    }

    fn try_init(
        &mut self,
        name: &str,
        expected: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, TransactionError> {
        let token = self.begin_init(name, expected, 60_000);
        self.init_reply(token)
    }

    fn init_reply(&self, token: ReplyToken) -> Result<ProducerIdentity, TransactionError> {
        match &self.replies[&token] {
            TransactionReply::Init(result) => *result,
            other => panic!("{other:?}"),
        }
    }

    fn init(&mut self, name: &str) -> ProducerIdentity {
        self.try_init(name, None).unwrap()
    }

    fn begin_add(
        &mut self,
        name: &str,
        producer: ProducerIdentity,
        partitions: &[u32],
    ) -> ReplyToken {
        let request = AddPartitionsRequest {
            transactional_id: id(name),
            producer,
            partitions: partitions.iter().map(|index| partition(*index)).collect(),
        };
        let token = self.token();
        let effects = self.coordinator.add_partitions(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    fn add_reply(&self, token: ReplyToken) -> Result<(), TransactionError> {
        match &self.replies[&token] {
            TransactionReply::Add(result) => *result,
            other => panic!("{other:?}"),
        }
    }

    fn add(
        &mut self,
        name: &str,
        producer: ProducerIdentity,
        partitions: &[u32],
    ) -> Result<(), TransactionError> {
        let token = self.begin_add(name, producer, partitions);
        self.add_reply(token)
    }

    fn begin_end(
        &mut self,
        name: &str,
        producer: ProducerIdentity,
        commit: bool,
        version: TransactionVersion,
    ) -> ReplyToken {
        let mut request = EndRequest {
            transactional_id: id(name),
            producer,
            commit,
            version,
            fresh: None,
        };
        loop {
            let token = self.token();
            let effects = self.coordinator.end(self.now(), token, &request);
            self.carry_out(effects);
            let needed = TransactionReply::End(Err(TransactionError::ProducerIdNeeded));
            if self.replies.get(&token) != Some(&needed) {
                return token;
            }
            assert_eq!(request.fresh, None, "asked for an id twice");
            request.fresh = Some(self.fresh());
        }
    }

    fn end_reply(&self, token: ReplyToken) -> Result<ProducerIdentity, TransactionError> {
        match &self.replies[&token] {
            TransactionReply::End(result) => result.map(|ended| ended.producer),
            other => panic!("{other:?}"),
        }
    }

    fn end(
        &mut self,
        name: &str,
        producer: ProducerIdentity,
        commit: bool,
        version: TransactionVersion,
    ) -> Result<ProducerIdentity, TransactionError> {
        let token = self.begin_end(name, producer, commit, version);
        self.end_reply(token)
    }

    /// Has all markers that were ordered written.
    fn write_markers(&mut self) -> Vec<Markers> {
        let ordered = std::mem::take(&mut self.markers);
        for markers in &ordered {
            self.marked(markers, &markers.partitions);
        }
        ordered
    }

    fn marked(&mut self, markers: &Markers, partitions: &[TopicPartition]) {
        let effects = self.coordinator.markers_written(
            self.now(),
            &markers.transactional_id,
            markers.order,
            partitions,
        );
        self.carry_out(effects);
    }

    fn state(&self, name: &str) -> TransactionState {
        self.coordinator.describe(&id(name)).unwrap().state
    }
}

fn id(name: &str) -> TransactionalId {
    TransactionalId::new(name).unwrap()
}

fn partition(index: u32) -> TopicPartition {
    TopicPartition {
        topic: TopicName::new("t").unwrap(),
        partition: PartitionIndex::new(index).unwrap(),
    }
}

fn epoch(epoch: i16) -> ProducerEpoch {
    ProducerEpoch::from_wire(epoch).unwrap()
}

fn with_epoch(producer: ProducerIdentity, number: i16) -> ProducerIdentity {
    ProducerIdentity {
        epoch: epoch(number),
        ..producer
    }
}

const V0: TransactionVersion = TransactionVersion::V0;
const V2: TransactionVersion = TransactionVersion::V2;
