//! Random producers whose calls come late, twice and in any order; appends that fail, hang or are lost; markers that are
//! reported twice or late; time, and moves. After each step the log must tell a history that can be true.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::transactions::record::{decode_key, decode_value};
use crate::transactions::state::Transaction;

const NAMES: [&str; 2] = ["a", "b"];

/// A call as it was made, so that it can come again.
#[derive(Debug, Clone)]
enum Sent {
    Init {
        name: usize,
        expected: Option<ProducerIdentity>,
    },
    Add {
        name: usize,
        producer: ProducerIdentity,
        partition: u32,
    },
    End {
        name: usize,
        producer: ProducerIdentity,
        commit: bool,
        version: TransactionVersion,
    },
}

#[derive(Debug, Clone)]
enum Op {
    Init {
        client: usize,
        keep: bool,
    },
    Add {
        client: usize,
        partition: u32,
    },
    End {
        client: usize,
        commit: bool,
        version_2: bool,
    },
    /// An earlier call comes once more.
    Again {
        which: prop::sample::Index,
    },
    Marked {
        which: prop::sample::Index,
        part: prop::sample::Index,
    },
    MarkAll,
    Advance {
        ms: u64,
    },
    Hold,
    Settle {
        outcome: Result<(), AppendFailure>,
    },
    Release,
    /// `written` of the held appends got into the log.
    Move {
        written: prop::sample::Index,
    },
}

fn any_op() -> impl Strategy<Value = Op> {
    let client = 0..4_usize;
    let failure = prop_oneof![
        Just(AppendFailure::Unavailable),
        Just(AppendFailure::TooLarge),
    ];
    prop_oneof![
        6 => (client.clone(), any::<bool>()).prop_map(|(client, keep)| Op::Init { client, keep }),
        12 => (client.clone(), 0..4_u32).prop_map(|(client, partition)| Op::Add { client, partition }),
        10 => (client, any::<bool>(), prop::bool::weighted(0.7))
            .prop_map(|(client, commit, version_2)| Op::End { client, commit, version_2 }),
        10 => any::<prop::sample::Index>().prop_map(|which| Op::Again { which }),
        8 => (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(which, part)| Op::Marked { which, part }),
        4 => Just(Op::MarkAll),
        2 => prop_oneof![1..1_000_u64, 59_000..61_000_u64].prop_map(|ms| Op::Advance { ms }),
        2 => Just(Op::Hold),
        4 => prop_oneof![3 => Just(Ok(())), 1 => failure.prop_map(Err)]
            .prop_map(|outcome| Op::Settle { outcome }),
        2 => Just(Op::Release),
        2 => any::<prop::sample::Index>().prop_map(|written| Op::Move { written }),
    ]
}

#[derive(Default)]
struct World {
    /// What each of the four clients takes itself to be; two share a transactional id.
    clients: [Option<ProducerIdentity>; 4],
    sent: Vec<Sent>,
    waiting: HashMap<ReplyToken, (usize, Sent)>,
    /// Every order ever given, with the partitions reported for it.
    orders: Vec<(Markers, BTreeSet<TopicPartition>)>,
    /// Records of the log that were looked at.
    checked: usize,
    newest: HashMap<TransactionalId, Transaction>,
    /// Outcomes that the log holds: by id, who ended it, and whether it was committed. Only of version 2, where one
    /// identity has one transaction.
    decided: HashMap<(TransactionalId, ProducerIdentity), bool>,
    asked_to_commit: BTreeSet<(TransactionalId, ProducerIdentity)>,
}

impl World {
    fn call(&mut self, host: &mut Host, client: usize, sent: Sent) {
        let records_before = host.log.len() + host.held.iter().map(|h| h.1.len()).sum::<usize>();
        let (name, token) = match &sent {
            Sent::Init { name, expected } => {
                (*name, host.begin_init(NAMES[*name], *expected, 60_000))
            }
            Sent::Add {
                name,
                producer,
                partition,
            } => (
                *name,
                host.begin_add(NAMES[*name], *producer, &[*partition]),
            ),
            Sent::End {
                name,
                producer,
                commit,
                version,
            } => {
                if *commit {
                    self.asked_to_commit.insert((id(NAMES[*name]), *producer));
                }
                let token = host.begin_end(NAMES[*name], *producer, *commit, *version);
                (*name, token)
            }
        };
        let all = host.log.iter().chain(host.held.iter().flat_map(|h| &h.1));
        for record in all.skip(records_before) {
            let touched = decode_key(&record.key).unwrap().unwrap();
            assert_eq!(touched, id(NAMES[name]), "a call touched another id");
        }
        self.waiting.insert(token, (client, sent));
    }

    /// Clients take in their answers, which must be true.
    fn hear(&mut self, host: &Host) {
        let answered: Vec<ReplyToken> = self
            .waiting
            .keys()
            .filter(|token| host.replies.contains_key(token))
            .copied()
            .collect();
        for token in answered {
            let (client, sent) = self.waiting.remove(&token).unwrap();
            match (sent, &host.replies[&token]) {
                (Sent::Init { .. }, TransactionReply::Init(Ok(producer))) => {
                    self.clients[client] = Some(*producer);
                }
                (
                    Sent::End {
                        name,
                        producer,
                        commit,
                        version: V2,
                    },
                    TransactionReply::End(Ok(ended)),
                ) => {
                    let decided = self.decided.get(&(id(NAMES[name]), producer));
                    assert_eq!(decided, Some(&commit), "an answer that isn't true");
                    if self.clients[client] == Some(producer) {
                        self.clients[client] = Some(ended.producer);
                    }
                }
                _ => {}
            }
        }
    }

    /// Every record must be a possible next state of its id.
    fn check_log(&mut self, host: &mut Host) {
        for markers in host.markers.drain(..) {
            self.orders.push((markers, BTreeSet::new()));
        }
        for record in &host.log[self.checked..] {
            let key = decode_key(&record.key).unwrap().unwrap();
            let Some(value) = &record.value else {
                panic!("nothing expires within minutes");
            };
            let next = decode_value(value).unwrap();
            let before = self.newest.get(&key);
            check_step(before, &next);
            if next.state.is_prepared() {
                let ended = before.expect("checked").producer;
                let commit = next.state == TransactionState::PrepareCommit;
                assert!(
                    !commit || self.asked_to_commit.contains(&(key.clone(), ended)),
                    "committed without being asked to"
                );
                if next.version == V2 {
                    let earlier = self.decided.insert((key.clone(), ended), commit);
                    assert_eq!(earlier, None, "decided twice");
                }
            }
            if matches!(
                next.state,
                TransactionState::CompleteCommit | TransactionState::CompleteAbort
            ) {
                let prepared = before.expect("checked");
                let marked = self.orders.iter().any(|(order, reported)| {
                    order.transactional_id == key
                        && order.producer == prepared.producer
                        && order.commit == (prepared.state == TransactionState::PrepareCommit)
                        && *reported == prepared.partitions
                });
                assert!(
                    marked || prepared.partitions.is_empty(),
                    "over without markers"
                );
            }
            self.newest.insert(key, next);
        }
        self.checked = host.log.len();
    }
}

fn check_step(before: Option<&Transaction>, next: &Transaction) {
    use TransactionState as S;
    let Some(before) = before else {
        assert_eq!(next.state, S::Empty);
        return;
    };
    let free = matches!(
        before.state,
        S::Empty | S::CompleteCommit | S::CompleteAbort
    );
    let legal = match next.state {
        S::Empty => free && next.partitions.is_empty(),
        S::Ongoing => {
            (free || before.state == S::Ongoing)
                && next.partitions.is_superset(&before.partitions)
                && next.producer == before.producer
        }
        S::PrepareCommit => before.state == S::Ongoing && next.partitions == before.partitions,
        S::PrepareAbort => {
            (free || before.state == S::Ongoing) && next.partitions == before.partitions
        }
        S::CompleteCommit => before.state == S::PrepareCommit,
        S::CompleteAbort => before.state == S::PrepareAbort,
    };
    assert!(legal, "{before:?} became {next:?}");
    // An identity never comes back: the producer id is newer, or the epoch isn't lower.
    assert!(
        next.producer >= before.producer,
        "{before:?} became {next:?}"
    );
}

fn run(ops: Vec<Op>) {
    let mut host = Host::new();
    let mut world = World::default();
    for op in ops {
        host.now_ms += 1;
        match op {
            Op::Init { client, keep } => {
                let expected = world.clients[client].filter(|_| keep);
                let name = client % 2;
                let sent = Sent::Init { name, expected };
                world.sent.push(sent.clone());
                world.call(&mut host, client, sent);
            }
            Op::Add { client, partition } => {
                if let Some(producer) = world.clients[client] {
                    let sent = Sent::Add {
                        name: client % 2,
                        producer,
                        partition,
                    };
                    world.sent.push(sent.clone());
                    world.call(&mut host, client, sent);
                }
            }
            Op::End {
                client,
                commit,
                version_2,
            } => {
                if let Some(producer) = world.clients[client] {
                    let sent = Sent::End {
                        name: client % 2,
                        producer,
                        commit,
                        version: if version_2 { V2 } else { V0 },
                    };
                    world.sent.push(sent.clone());
                    world.call(&mut host, client, sent);
                }
            }
            Op::Again { which } => {
                if !world.sent.is_empty() {
                    let sent = which.get(&world.sent).clone();
                    // Its answer goes to nobody who still listens.
                    let client = 0;
                    let held = world.clients;
                    world.call(&mut host, client, sent);
                    world.check_log(&mut host);
                    world.hear(&host);
                    world.clients = held;
                }
            }
            Op::Marked { which, part } => {
                if !world.orders.is_empty() {
                    let at = which.index(world.orders.len());
                    let (order, reported) = &mut world.orders[at];
                    let partition = part.get(&order.partitions).clone();
                    reported.insert(partition.clone());
                    let order = order.clone();
                    host.marked(&order, &[partition]);
                }
            }
            Op::MarkAll => {
                for at in 0..world.orders.len() {
                    let (order, reported) = &mut world.orders[at];
                    reported.extend(order.partitions.iter().cloned());
                    let order = order.clone();
                    host.marked(&order, &order.partitions.clone());
                }
            }
            Op::Advance { ms } => host.advance(ms),
            Op::Hold => host.hold = true,
            Op::Settle { outcome } => {
                if !host.held.is_empty() {
                    host.settle(outcome);
                }
            }
            Op::Release => host.release(),
            Op::Move { written } => {
                let count = written.index(host.held.len() + 1);
                for (_, records) in host.held.drain(..count) {
                    host.log.extend(records);
                }
                // Orders of the coordinator that is gone reach nobody.
                world.check_log(&mut host);
                world.orders.clear();
                host.move_away();
            }
        }
        world.check_log(&mut host);
        world.hear(&host);
    }
    host.release();
    world.check_log(&mut host);
    host.move_away();
    world.check_log(&mut host);
    world.hear(&host);
    assert!(world.waiting.is_empty(), "somebody waits for ever");
    let rebuilt = host.coordinator.export();
    for record in rebuilt {
        let key = decode_key(&record.key).unwrap().unwrap();
        let durable = decode_value(&record.value.unwrap()).unwrap();
        assert_eq!(world.newest.get(&key), Some(&durable));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_comes_when_the_history_can_be_true(ops in prop::collection::vec(any_op(), 1..120)) {
        run(ops);
    }
}
