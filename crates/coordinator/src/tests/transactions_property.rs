//! Random commits in and outside of transactions: what the coordinator answers equals what a plain reading of its log
//! says, and what another one answers that loads the log.

use proptest::prelude::*;
use tidegate_types::ProducerEpoch;

use super::*;

const TOPICS: [&str; 2] = ["t", "u"];

#[derive(Debug, Clone)]
enum Op {
    Commit(usize, i64),
    Transact(i64, usize, i64),
    End(i64, bool),
    Delete(usize),
    /// The oldest append on its way becomes durable, or fails.
    Settle(bool),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let topic = 0..TOPICS.len();
    prop_oneof![
        3 => (topic.clone(), 0..100i64).prop_map(|(t, o)| Op::Commit(t, o)),
        4 => (0..3i64, topic.clone(), 100..200i64).prop_map(|(p, t, o)| Op::Transact(p, t, o)),
        3 => (0..3i64, any::<bool>()).prop_map(|(p, c)| Op::End(p, c)),
        1 => topic.prop_map(Op::Delete),
        9 => (0..10u8).prop_map(|n| Op::Settle(n > 0)),
        1 => Just(Op::Restart),
    ]
}

/// One durable change, in the order of the log.
#[derive(Debug, Clone, Copy)]
enum Change {
    Commit(usize, i64),
    Transact(i64, usize, i64),
    End(i64, bool),
    Delete(usize),
}

/// The committed offset of a topic, and whether an open transaction has one for it.
fn truth(changes: &[Change], topic: usize) -> (i64, bool) {
    let mut offset = -1;
    // By producer, with the place in the log.
    let mut pending: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
    let mut newest = 0;
    for (at, change) in changes.iter().enumerate() {
        match *change {
            Change::Commit(t, o) if t == topic => (newest, offset) = (at, o),
            Change::Transact(p, t, o) if t == topic => {
                pending.insert(p, (at, o));
            }
            Change::End(p, commit) => {
                if let Some((at, o)) = pending.remove(&p)
                    && commit
                    && (offset < 0 || at > newest)
                {
                    (newest, offset) = (at, o);
                }
            }
            Change::Delete(t) if t == topic => {
                offset = -1;
                pending.clear();
            }
            _ => {}
        }
    }
    (offset, !pending.is_empty())
}

fn fetch(host: &mut Host, topic: &str) -> (i64, bool) {
    let request = FetchRequest {
        group_id: group("g"),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::Partitions(vec![(target(topic), None)]),
    };
    let token = host.token();
    let now = host.now();
    let effects = host.coordinator.fetch_stable_offsets(now, token, &request);
    host.carry_out(effects);
    let unstable = match &host.replies[&token] {
        Reply::FetchOffsets(Ok(fetched)) => fetched[0].committed.is_err(),
        other => panic!("{other:?}"),
    };
    (host.offset(topic), unstable)
}

fn run(ops: &[Op]) {
    let mut host = Host::new();
    host.hold = true;
    let (mut sent, mut changes) = (VecDeque::new(), Vec::new());
    for op in ops {
        let (now, token) = (host.now(), host.token());
        let before = host.held.len();
        let (effects, change) = match *op {
            Op::Commit(topic, offset) => {
                let mut request = simple_commit(offset);
                request.offsets = vec![to_commit(TOPICS[topic], offset)];
                let effects = host.coordinator.commit_offsets(now, token, request);
                (effects, Change::Commit(topic, offset))
            }
            Op::Transact(id, topic, offset) => {
                let request = TransactionalCommitRequest {
                    group_id: group("g"),
                    member_id: None,
                    instance_id: None,
                    generation: None,
                    transaction: Transaction {
                        producer: ProducerId::from_wire(id).unwrap(),
                        epoch: ProducerEpoch::FIRST,
                        ticket: None,
                    },
                    offsets: vec![to_commit(TOPICS[topic], offset)],
                };
                let coordinator = &mut host.coordinator;
                let effects = coordinator.commit_transactional_offsets(now, token, request);
                (effects, Change::Transact(id, topic, offset))
            }
            Op::End(id, commit) => {
                let end = EndTransaction {
                    producer: ProducerId::from_wire(id).unwrap(),
                    epoch: ProducerEpoch::FIRST,
                    coordinator_epoch: 0,
                    commit,
                    epoch_rises: false,
                };
                let effects = host.coordinator.end_transaction(now, token, end);
                (effects, Change::End(id, commit))
            }
            Op::Delete(topic) => {
                let name = TopicName::new(TOPICS[topic]).unwrap();
                let effects = host.coordinator.topics_deleted(now, &[(name, None)]);
                (effects, Change::Delete(topic))
            }
            Op::Settle(durable) => {
                if let Some(change) = sent.pop_front() {
                    let outcome = match durable {
                        true => Ok(()),
                        false => Err(AppendFailure::Unavailable),
                    };
                    host.settle(outcome);
                    if durable {
                        changes.push(change);
                    }
                }
                assert_true(&mut host, &changes, sent.is_empty());
                continue;
            }
            Op::Restart => {
                sent.clear();
                host.restart();
                assert_true(&mut host, &changes, true);
                host.hold = true;
                continue;
            }
        };
        host.carry_out(effects);
        // A tombstone is only written where there is something.
        if host.held.len() > before {
            sent.push_back(change);
        }
    }
    while let Some(change) = sent.pop_front() {
        host.settle(Ok(()));
        changes.push(change);
    }
    assert_true(&mut host, &changes, true);
    host.restart();
    assert_true(&mut host, &changes, true);
}

fn assert_true(host: &mut Host, changes: &[Change], settled: bool) {
    for (index, topic) in TOPICS.iter().enumerate() {
        let (offset, unstable) = truth(changes, index);
        if settled {
            assert_eq!(
                fetch(host, topic),
                (offset, unstable),
                "{topic} {changes:?}"
            );
        } else {
            assert_eq!(host.offset(topic), offset, "{topic} {changes:?}");
        }
    }
}

proptest! {
    #[test]
    fn commits_in_and_outside_of_transactions_are_what_the_log_says(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        run(&ops);
    }
}
