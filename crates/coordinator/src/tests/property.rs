//! Random clients, appends that fail or hang, time, and restarts; after each step the invariants must hold.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::classic::ClassicGroup;
use crate::records::{RecordKey, decode_key, decode_offset};
use crate::timers::Timer;

const GROUPS: [&str; 2] = ["g", "h"];
const TOPICS: [&str; 2] = ["t", "u"];

#[derive(Debug, Clone, Copy)]
enum Op {
    Join {
        client: usize,
        version: i16,
        keep_id: bool,
        variant: bool,
    },
    Sync {
        client: usize,
    },
    Heartbeat {
        client: usize,
    },
    /// What a sane client does next.
    Drive {
        client: usize,
    },
    Leave {
        client: usize,
    },
    Commit {
        client: usize,
        as_member: bool,
        topic: usize,
    },
    StableFetch {
        group: usize,
    },
    DeleteGroup {
        group: usize,
    },
    DeleteOffset {
        group: usize,
        topic: usize,
    },
    DeleteTopic {
        topic: usize,
    },
    Advance {
        ms: u64,
    },
    Hold,
    Settle {
        outcome: Result<(), AppendFailure>,
    },
    Release,
    Restart,
}

fn any_op() -> impl Strategy<Value = Op> {
    let client = 0..6_usize;
    let index = 0..2_usize;
    prop_oneof![
        10 => (client.clone(), prop_oneof![Just(3_i16), Just(8), Just(9)], any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(client, version, keep_id, variant)| Op::Join { client, version, keep_id, variant }),
        4 => client.clone().prop_map(|client| Op::Sync { client }),
        30 => client.clone().prop_map(|client| Op::Drive { client }),
        2 => client.clone().prop_map(|client| Op::Heartbeat { client }),
        2 => client.clone().prop_map(|client| Op::Leave { client }),
        6 => (client, any::<bool>(), index.clone())
            .prop_map(|(client, as_member, topic)| Op::Commit { client, as_member, topic }),
        1 => index.clone().prop_map(|group| Op::StableFetch { group }),
        1 => index.clone().prop_map(|group| Op::DeleteGroup { group }),
        1 => (index.clone(), index.clone()).prop_map(|(group, topic)| Op::DeleteOffset { group, topic }),
        1 => index.prop_map(|topic| Op::DeleteTopic { topic }),
        8 => prop::sample::select(vec![1, 500, 1_000, 3_000, 3_000, 3_000, 4_500, 9_000, 16_000, 61_000]).prop_map(|ms| Op::Advance { ms }),
        4 => Just(Op::Hold),
        6 => prop::sample::select(vec![
            Ok(()),
            Ok(()),
            Err(AppendFailure::Unavailable),
            Err(AppendFailure::NotLeader),
        ])
        .prop_map(|outcome| Op::Settle { outcome }),
        3 => Just(Op::Release),
        1 => Just(Op::Restart),
    ]
}

#[derive(Default)]
struct Client {
    member: Option<MemberId>,
    generation: Option<Generation>,
    joining: Option<ReplyToken>,
    members: Vec<MemberId>,
}

struct World {
    host: Host,
    clients: Vec<Client>,
    /// Group, life of the group, generation → who was told to compute the assignment.
    leaders: HashMap<(usize, u64, Generation), MemberId>,
    generations: [Option<Generation>; 2],
    lives: [u64; 2],
    commits: HashMap<ReplyToken, i64>,
    next_offset: i64,
    /// Whether anything may have deleted offsets.
    offsets_may_expire: bool,
    deletions: usize,
}

impl World {
    fn new(config: GroupConfig) -> Self {
        let offsets_may_expire = config.offsets_retention_minutes == 1;
        Self {
            host: Host::with_config(config),
            clients: (0..6).map(|_| Client::default()).collect(),
            leaders: HashMap::new(),
            generations: [None; 2],
            lives: [0; 2],
            commits: HashMap::new(),
            next_offset: 0,
            offsets_may_expire,
            deletions: 0,
        }
    }

    fn instance(client: usize) -> Option<InstanceId> {
        (client >= 4).then(|| InstanceId::new(&format!("i{client}")).unwrap())
    }

    fn group_of(client: usize) -> GroupId {
        group(GROUPS[client % 2])
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Join {
                client,
                version,
                keep_id,
                variant,
            } => self.join(client, version, keep_id, variant),
            Op::Sync { client } => self.sync(client),
            Op::Heartbeat { client } => {
                let _ = self.heartbeat(client);
            }
            Op::Drive { client } => self.drive(client),
            Op::Leave { client } => {
                let Some(member) = self.clients[client].member.clone() else {
                    return;
                };
                let token = self.host.token();
                let members = vec![LeavingMember {
                    member_id: Some(member),
                    instance_id: Self::instance(client),
                    reason: None,
                }];
                let request = LeaveRequest {
                    group_id: Self::group_of(client),
                    members,
                };
                let effects = self.host.coordinator.leave(self.host.now(), token, request);
                self.host.carry_out(effects);
            }
            Op::Commit {
                client,
                as_member,
                topic,
            } => self.commit(client, as_member, topic),
            Op::StableFetch { group: index } => {
                let token = self.host.token();
                let request = FetchRequest {
                    group_id: group(GROUPS[index]),
                    member_id: None,
                    member_epoch: None,
                    selection: OffsetSelection::All,
                };
                let effects =
                    self.host
                        .coordinator
                        .fetch_stable_offsets(self.host.now(), token, &request);
                self.host.carry_out(effects);
            }
            Op::DeleteGroup { group: index } => {
                self.deletions += 1;
                let token = self.host.token();
                let groups = vec![group(GROUPS[index])];
                let effects = self
                    .host
                    .coordinator
                    .delete_groups(self.host.now(), token, groups);
                self.host.carry_out(effects);
            }
            Op::DeleteOffset {
                group: index,
                topic,
            } => {
                self.deletions += 1;
                let token = self.host.token();
                let request = DeleteOffsetsRequest {
                    group_id: group(GROUPS[index]),
                    targets: vec![target(TOPICS[topic])],
                };
                let effects =
                    self.host
                        .coordinator
                        .delete_offsets(self.host.now(), token, &request);
                self.host.carry_out(effects);
            }
            Op::DeleteTopic { topic } => {
                self.deletions += 1;
                let topics = [(TopicName::new(TOPICS[topic]).unwrap(), None)];
                let effects = self
                    .host
                    .coordinator
                    .topics_deleted(self.host.now(), &topics);
                self.host.carry_out(effects);
            }
            Op::Advance { ms } => self.host.advance(ms),
            Op::Hold => self.host.hold = true,
            Op::Settle { outcome } => {
                if !self.host.held.is_empty() {
                    self.host.settle(outcome);
                }
            }
            Op::Release => self.host.release(),
            Op::Restart => {
                self.host.restart();
                self.forget_generations();
            }
        }
    }

    fn join(&mut self, client: usize, api_version: i16, keep_id: bool, variant: bool) {
        let state = &self.clients[client];
        let member_id = state.member.clone().filter(|_| keep_id);
        let topics: &[&str] = if variant { &["t", "u"] } else { &["t"] };
        let base = self.host.request(&format!("c{client}"));
        let request = JoinRequest {
            group_id: Self::group_of(client),
            api_version,
            member_id,
            instance_id: Self::instance(client),
            rebalance_timeout_ms: 15_000,
            protocols: vec![protocol("range", topics), protocol("sticky", topics)],
            ..base
        };
        let token = self.host.join(request);
        self.clients[client].joining = Some(token);
    }

    fn sync(&mut self, client: usize) {
        let state = &self.clients[client];
        let (Some(member), Some(generation)) = (state.member.clone(), state.generation) else {
            return;
        };
        let assignments = state
            .members
            .iter()
            .map(|member| (member.clone(), Bytes::from(member.as_str().to_owned())))
            .collect();
        let request = SyncRequest {
            group_id: Self::group_of(client),
            member_id: Some(member),
            instance_id: Self::instance(client),
            generation: Some(generation),
            protocol_type: None,
            protocol_name: None,
            assignments,
        };
        let token = self.host.token();
        let effects = self.host.coordinator.sync(self.host.now(), token, request);
        self.host.carry_out(effects);
    }

    fn drive(&mut self, client: usize) {
        if self.clients[client].joining.is_some() {
            return;
        }
        match self.heartbeat(client) {
            Ok(()) => self.sync(client),
            Err(GroupError::RebalanceInProgress | GroupError::IllegalGeneration) => {
                self.join(client, 9, true, false);
            }
            Err(_) if self.clients[client].generation.is_none() => {
                self.join(client, 9, true, false)
            }
            Err(_) => self.clients[client] = Client::default(),
        }
    }

    fn heartbeat(&mut self, client: usize) -> Result<(), GroupError> {
        let request = HeartbeatRequest {
            group_id: Self::group_of(client),
            member_id: self.clients[client].member.clone(),
            instance_id: Self::instance(client),
            generation: self.clients[client].generation,
        };
        self.host.coordinator.heartbeat(self.host.now(), &request)
    }

    fn commit(&mut self, client: usize, as_member: bool, topic: usize) {
        self.next_offset += 1;
        let state = &self.clients[client];
        let request = CommitRequest {
            group_id: Self::group_of(client),
            member_id: state.member.clone().filter(|_| as_member),
            instance_id: Self::instance(client).filter(|_| as_member),
            generation: state.generation.filter(|_| as_member),
            offsets: vec![to_commit(TOPICS[topic], self.next_offset)],
            ..simple_commit(0)
        };
        let token = self.host.commit(request);
        self.commits.insert(token, self.next_offset);
    }

    fn forget_generations(&mut self) {
        self.generations = [None; 2];
        self.lives = self.lives.map(|life| life + 1);
    }

    /// Clients read their answers, which must agree with each other.
    fn read_joins(&mut self) {
        for index in 0..self.clients.len() {
            let Some(reply) = self.clients[index]
                .joining
                .and_then(|token| self.host.replies.get(&token))
            else {
                continue;
            };
            let client = &mut self.clients[index];
            client.joining = None;
            match reply {
                Reply::Join(Ok(joined)) => {
                    client.member = Some(joined.member_id.clone());
                    client.generation = Some(joined.generation);
                    client.members = joined
                        .members
                        .iter()
                        .map(|member| member.member_id.clone())
                        .collect();
                    if joined.members.is_empty() || joined.skip_assignment {
                        continue;
                    }
                    assert_eq!(joined.leader, Some(joined.member_id.clone()));
                    let key = (index % 2, self.lives[index % 2], joined.generation);
                    let leader = self
                        .leaders
                        .entry(key)
                        .or_insert_with(|| joined.member_id.clone());
                    assert_eq!(*leader, joined.member_id, "two leaders in one generation");
                }
                Reply::Join(Err(refused)) => match refused.error {
                    GroupError::MemberIdRequired => client.member.clone_from(&refused.member_id),
                    _ => *client = Client::default(),
                },
                other => panic!("not the reply to a join: {other:?}"),
            }
        }
    }

    fn check(&mut self) {
        self.read_joins();
        self.note_deleted_groups();
        for (index, name) in GROUPS.into_iter().enumerate() {
            let Some(live) = self.host.coordinator.groups.get(&group(name)) else {
                self.generations[index] = None;
                self.lives[index] += 1;
                continue;
            };
            live.assert_consistent();
            if let Some(before) = self.generations[index] {
                // A group can also have gone and come back within one step.
                if live.generation < before {
                    assert_eq!(live.generation, Generation::ZERO, "a generation went back");
                    self.lives[index] += 1;
                }
            }
            self.generations[index] = Some(live.generation);
        }
        self.check_timers();
        self.check_settled();
        self.check_log();
    }

    /// A group that is deleted and joined again starts from generation 0.
    fn note_deleted_groups(&mut self) {
        for notice in std::mem::take(&mut self.host.notices) {
            if let Notice::GroupDeleted { group } = notice
                && let Some(index) = GROUPS.iter().position(|name| *name == group.as_str())
            {
                self.lives[index] += 1;
            }
        }
    }

    /// With no append open nothing is pending, and a Stable group is what the log has, member for member.
    fn check_settled(&self) {
        let coordinator = &self.host.coordinator;
        assert_eq!(coordinator.pending_append_count(), self.host.held.len());
        if !self.host.held.is_empty() {
            return;
        }
        coordinator.journal.assert_settled();
        for (group, _) in coordinator.journal.offsets.iter() {
            assert!(
                coordinator.groups.contains_key(group),
                "offsets without a group never expire"
            );
        }
        for group in coordinator
            .groups
            .values()
            .filter(|group| group.state == GroupState::Stable)
        {
            let stored = coordinator.journal.groups[&group.id]
                .durable()
                .expect("a Stable group is stored");
            let stored = ClassicGroup::decode(group.id.clone(), stored, self.host.now()).unwrap();
            assert_eq!(stored.describe().members, group.describe().members);
            assert_eq!(stored.generation, group.generation);
        }
    }

    /// Every session timer has its member and every rebalance its end.
    fn check_timers(&self) {
        let coordinator = &self.host.coordinator;
        for timer in coordinator.timers.iter() {
            match timer {
                Timer::Session(group, member) => {
                    let group = &coordinator.groups[group];
                    assert!(
                        group.members.contains_key(member) || group.pending_joins.contains(member)
                    );
                }
                Timer::Join(group) => {
                    assert_eq!(
                        coordinator.groups[group].state,
                        GroupState::PreparingRebalance
                    );
                }
                Timer::Sync(group) => assert!(!coordinator.groups[group].is_empty()),
                Timer::Revocation(..) | Timer::ClassicJoin(..) | Timer::ClassicSync(..) => {
                    panic!("no consumer groups here");
                }
                Timer::Append(_) | Timer::Expiry => {}
            }
        }
        for group in coordinator.groups.values() {
            if group.state == GroupState::PreparingRebalance {
                assert!(
                    coordinator.timers.contains(&Timer::Join(group.id.clone())),
                    "it would never end"
                );
            }
            for member in group
                .members
                .values()
                .filter(|member| !member.needs_no_heartbeat())
            {
                let session = Timer::Session(group.id.clone(), member.id.clone());
                assert!(
                    coordinator.timers.contains(&session),
                    "{} would never expire",
                    member.id
                );
            }
            for pending in &group.pending_joins {
                assert!(
                    coordinator
                        .timers
                        .contains(&Timer::Session(group.id.clone(), pending.clone()))
                );
            }
        }
    }

    /// What is durable is what the log says, and what was acknowledged is in the log.
    fn check_log(&mut self) {
        let mut folded = BTreeMap::new();
        let mut offsets = BTreeSet::new();
        let mut tombstones = 0;
        for record in &self.host.log {
            if let Some(RecordKey::Offset(..)) = decode_key(&record.key).unwrap() {
                match &record.value {
                    Some(value) => {
                        offsets.insert(decode_offset(value).unwrap().offset.to_wire());
                    }
                    None => tombstones += 1,
                }
            }
            match &record.value {
                Some(value) => folded.insert(record.key.clone(), value.clone()),
                None => folded.remove(&record.key),
            };
        }
        if self.deletions == 0 && !self.offsets_may_expire {
            assert_eq!(tombstones, 0, "offsets were dropped without a reason");
        }
        let exported: BTreeMap<_, _> = self
            .host
            .coordinator
            .export()
            .into_iter()
            .map(|record| {
                (
                    record.key,
                    record.value.expect("an export has no tombstones"),
                )
            })
            .collect();
        assert_eq!(exported, folded);
        let host = &self.host;
        self.commits
            .retain(|token, offset| match host.replies.get(token) {
                Some(Reply::CommitOffsets(Ok(_))) => {
                    assert!(
                        offsets.contains(offset),
                        "offset {offset} was acknowledged before it was stored"
                    );
                    false
                }
                Some(_) => false,
                None => true,
            });
    }

    /// Two coordinators, one loaded from the log and one from the export, are the same.
    fn check_replay(&self) {
        let host = &self.host;
        let config = &host.coordinator.config;
        let (from_log, _) = reload(config, &host.log, host.now());
        let (from_export, _) = reload(config, &host.coordinator.export(), host.now());
        assert_eq!(from_log.export(), from_export.export());
        assert_eq!(host.coordinator.export(), from_export.export());
        for name in GROUPS {
            let describe =
                |coordinator: &GroupCoordinator| coordinator.describe_group(&group(name));
            assert_eq!(describe(&from_log), describe(&from_export));
        }
    }

    /// With all appends done and none failed, groups at rest are the same after a restart.
    fn check_live_is_replayed(&self) {
        let host = &self.host;
        let (replayed, _) = reload(&host.coordinator.config, &host.log, host.now());
        for name in GROUPS {
            let live = host.coordinator.describe_group(&group(name));
            match &live {
                Ok(described)
                    if matches!(described.state, GroupState::Stable | GroupState::Empty) =>
                {
                    assert_eq!(replayed.describe_group(&group(name)), live);
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn finish(mut self) {
        self.check_replay();
        let effects = self.host.coordinator.unload(self.host.now());
        self.host.hold = true;
        self.host.carry_out(effects);
        let last = self.host.token();
        for token in 1..last.0 {
            assert!(
                self.host.replies.contains_key(&ReplyToken(token)),
                "token {token} was never answered"
            );
        }
    }
}

fn run(config: GroupConfig, ops: &[Op], appends_succeed: bool) {
    let mut world = World::new(config);
    for op in ops {
        let op = match op {
            Op::Settle { .. } if appends_succeed => Op::Settle { outcome: Ok(()) },
            other => *other,
        };
        world.apply(op);
        world.check();
        if appends_succeed && world.host.held.is_empty() {
            world.check_live_is_replayed();
        }
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_whatever_happens(ops in prop::collection::vec(any_op(), 1..150)) {
        run(GroupConfig::default(), &ops, false);
    }

    #[test]
    fn invariants_hold_while_offsets_expire(ops in prop::collection::vec(any_op(), 1..150)) {
        let config = GroupConfig {
            offsets_retention_minutes: 1,
            offsets_retention_check_interval_ms: 1_000,
            max_cleanup_batch_records: 2,
            ..GroupConfig::default()
        };
        run(config, &ops, false);
    }

    #[test]
    fn invariants_hold_in_crowded_groups(ops in prop::collection::vec(any_op(), 1..150)) {
        let config = GroupConfig { max_group_size: 2, max_pending_members: 1, ..GroupConfig::default() };
        run(config, &ops, false);
    }

    #[test]
    fn groups_at_rest_are_the_same_after_a_restart(ops in prop::collection::vec(any_op(), 1..150)) {
        run(GroupConfig::default(), &ops, true);
    }
}
