//! Random lives of three brokers: they write, upload, hand partitions over, pause, die, are failed over and come
//! back, while requests are repeated late. What they acknowledged is followed beside the controller.
//!
//! Topic 0 is `object`: a node's WAL objects are in the store when they are acknowledged. Topic 1 is `local`: the
//! node's disk holds them.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use tidegate_types::ControllerEpoch;

use super::property::World;
use super::*;
use crate::state::queries::Brokers;

const NODES: u32 = 3;
const PARTITIONS: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Append {
        node: u32,
        at: (u8, u32),
        count: u8,
    },
    Upload {
        node: u32,
        objects: u8,
    },
    Want {
        at: (u8, u32),
        to: u32,
    },
    Cancel {
        at: (u8, u32),
    },
    /// Carries a wanted move out, or gives up before or after it is sealed.
    Move {
        at: (u8, u32),
        until: Until,
    },
    /// An old request comes once more.
    Replay {
        which: usize,
    },
    Kill {
        node: u32,
    },
    /// The controller misses the heartbeats, whether the process lives or not.
    Miss {
        node: u32,
    },
    Return {
        node: u32,
    },
    FailOver {
        node: u32,
        accept_loss: bool,
    },
    Restart {
        node: u32,
        halfway: bool,
    },
    Drain {
        node: u32,
    },
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Sealed,
    /// It is committed although the new leader holds nothing and the old one's objects are missing.
    Unheld,
    /// The new leader dies before the commit, unnoticed.
    Held,
    Committed,
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 1..=NODES;
    let at = || (0..2u8, 0..PARTITIONS);
    let until = prop_oneof![
        1 => Just(Until::Sealed),
        1 => Just(Until::Unheld),
        1 => Just(Until::Held),
        6 => Just(Until::Committed)
    ];
    prop_oneof![
        12 => (node(), at(), 1..9u8).prop_map(|(node, at, count)| Step::Append { node, at, count }),
        4 => (node(), 0..4u8).prop_map(|(node, objects)| Step::Upload { node, objects }),
        5 => (at(), node()).prop_map(|(at, to)| Step::Want { at, to }),
        1 => at().prop_map(|at| Step::Cancel { at }),
        8 => (at(), until).prop_map(|(at, until)| Step::Move { at, until }),
        2 => (0..50usize).prop_map(|which| Step::Replay { which }),
        1 => node().prop_map(|node| Step::Kill { node }),
        2 => node().prop_map(|node| Step::Miss { node }),
        1 => node().prop_map(|node| Step::Return { node }),
        3 => (node(), prop::bool::weighted(0.1))
            .prop_map(|(node, accept_loss)| Step::FailOver { node, accept_loss }),
        3 => (node(), prop::bool::weighted(0.2))
            .prop_map(|(node, halfway)| Step::Restart { node, halfway }),
        1 => node().prop_map(|node| Step::Drain { node }),
        4 => Just(Step::Write),
    ]
}

/// What a process believes of a partition.
#[derive(Debug, Clone, Copy)]
struct Led {
    leader_epoch: LeaderEpoch,
    end: u64,
}

#[derive(Debug, Default)]
struct Node {
    /// The process runs, maybe without a session.
    up: bool,
    epoch: Option<BrokerEpoch>,
    led: HashMap<PartitionId, Led>,
    /// WAL objects in the store that no commit covers, as far as the node, or whoever fenced it, knows.
    written: Vec<ObjectCommit>,
    next_sequence: u64,
    fenced: bool,
    /// Ends in its local WAL.
    disk: HashMap<PartitionId, (LeaderEpoch, u64)>,
}

struct Cluster {
    world: World,
    nodes: BTreeMap<u32, Node>,
    topics: Vec<TopicId>,
    acknowledged: HashMap<PartitionId, u64>,
    /// Who led under each epoch.
    leaders: HashMap<(PartitionId, LeaderEpoch), BrokerId>,
    requests: Vec<CommitMoves>,
    incarnation: u128,
    objects: u64,
}

impl Cluster {
    async fn new() -> Self {
        let mut cluster = Self {
            world: World::empty().await,
            nodes: (1..=NODES).map(|id| (id, Node::default())).collect(),
            topics: Vec::new(),
            acknowledged: HashMap::new(),
            leaders: HashMap::new(),
            requests: Vec::new(),
            incarnation: 0,
            objects: 0,
        };
        for id in 1..=NODES {
            cluster.restart(id, false).await;
        }
        let mut local = new_topic("local", PARTITIONS);
        local.configs = configs(&[(DURABILITY_CONFIG, "local")]);
        let mut object = new_topic("object", PARTITIONS);
        object.layout = TopicLayout::Count {
            partitions: PARTITIONS,
            replication_factor: 2,
        };
        let request = CreateTopics {
            topics: vec![object, local],
            validate_only: false,
        };
        let created = cluster.world.run(request).await.unwrap();
        cluster.topics = created
            .into_iter()
            .map(|t| t.unwrap().id.unwrap())
            .collect();
        for id in cluster.partitions() {
            cluster.acknowledged.insert(id, 0);
            cluster.begin(id);
        }
        cluster
    }

    fn at(&self, (topic, index): (u8, u32)) -> PartitionId {
        partition(self.topics[usize::from(topic)], index)
    }

    fn partitions(&self) -> Vec<PartitionId> {
        let indexes = |topic: &TopicId| {
            (0..PARTITIONS)
                .map(|index| partition(*topic, index))
                .collect::<Vec<_>>()
        };
        self.topics.iter().flat_map(indexes).collect()
    }

    fn is_local(&self, id: PartitionId) -> bool {
        id.topic == self.topics[1]
    }

    fn row(&self, id: PartitionId) -> crate::rows::PartitionRow {
        self.world.state.partition(id).unwrap().clone()
    }

    fn node(&mut self, id: u32) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// A new epoch began: it must start where everything acknowledged ends. The process hears of it.
    fn begin(&mut self, id: PartitionId) {
        let row = self.row(id);
        let acknowledged = self.acknowledged[&id];
        let start = row.epochs.last().unwrap().start.get();
        assert_eq!(
            start, acknowledged,
            "{id}: acknowledged records are skipped or cut"
        );
        let leader = row.leader.unwrap();
        let before = self.leaders.insert((id, row.leader_epoch), leader);
        assert_eq!(before, None, "{id}: an epoch was given out twice");
        for node in self.nodes.values_mut() {
            node.led.remove(&id);
        }
        let node = self.node(leader.get());
        if node.up {
            let led = Led {
                leader_epoch: row.leader_epoch,
                end: start,
            };
            node.led.insert(id, led);
        }
    }

    async fn view(&mut self, id: u32) -> BrokerView {
        let views = self.world.run(Brokers).await.unwrap();
        views
            .into_iter()
            .find(|view| view.id == broker(id))
            .unwrap()
    }

    fn append(&mut self, id: u32, p: PartitionId, count: u64) {
        let local = self.is_local(p);
        self.objects += 1;
        let key = format!("w{}", self.objects);
        let node = self.node(id);
        if !node.up || (node.fenced && !local) {
            return;
        }
        let Some(led) = node.led.get_mut(&p) else {
            return;
        };
        let added = range(led.end, led.end + count);
        led.end += count;
        let led = *led;
        if local {
            node.disk.insert(p, (led.leader_epoch, led.end));
        } else {
            let part = segment(p, led.leader_epoch.get(), added);
            node.written.push(ObjectCommit {
                wal_sequence: Some(node.next_sequence),
                ..object(&key, vec![part])
            });
            node.next_sequence += 1;
        }
        *self.acknowledged.get_mut(&p).unwrap() += count;
        assert_eq!(self.acknowledged[&p], led.end, "two led {p} at once");
    }

    /// Commits WAL objects, and uploads what the disk holds of the led partitions.
    async fn upload(&mut self, id: u32, objects: usize) {
        let node = &self.nodes[&id];
        let Some(broker_epoch) = node.epoch.filter(|_| node.up) else {
            return;
        };
        let taken = objects.min(node.written.len());
        let mut objects: Vec<_> = node.written[..taken].to_vec();
        let led: Vec<_> = node.led.iter().map(|(id, led)| (*id, *led)).collect();
        for (p, led) in led {
            let committed_end = self.row(p).committed_end.get();
            if self.is_local(p) && committed_end < led.end {
                self.objects += 1;
                let cut = segment(p, led.leader_epoch.get(), range(committed_end, led.end));
                objects.push(object(&format!("u{}", self.objects), vec![cut]));
            }
        }
        let request = CommitObjects {
            broker: broker(id),
            broker_epoch,
            objects,
        };
        match self.world.run(request).await {
            Ok(_) => drop(self.node(id).written.drain(..taken)),
            Err(CommitObjectsError::StaleBrokerEpoch(_)) => self.kill(id),
            Err(CommitObjectsError::Refused(refusal)) => panic!("{refusal}"),
            Err(CommitObjectsError::Unavailable(never)) => panic!("{never}"),
        }
    }

    fn kill(&mut self, id: u32) {
        let node = self.node(id);
        node.up = false;
        node.led.clear();
    }

    async fn carry_out(&mut self, p: PartitionId, until: Until) {
        let row = self.row(p);
        let (Some(from), Some(target)) = (row.leader, row.target) else {
            return;
        };
        let to = target.to;
        let source = &self.nodes[&from.get()];
        let (Some(led), Some(source_epoch)) = (source.led.get(&p).copied(), source.epoch) else {
            return;
        };
        if until == Until::Sealed || !source.up || !self.nodes[&to.get()].up {
            return;
        }
        let unheld = until == Until::Unheld;
        let mut objects = source.written.clone();
        if unheld {
            objects.clear();
        }
        let local = self.is_local(p) && !unheld;
        if local {
            let copy = (led.leader_epoch, led.end);
            self.node(to.get()).disk.insert(p, copy);
        }
        let to_broker_epoch = self.view(to.get()).await.broker_epoch;
        if until == Until::Held {
            self.kill(to.get());
        }
        let request = CommitMoves {
            controller_epoch: ControllerEpoch::new(1),
            objects: vec![SourceObjects {
                broker: from,
                broker_epoch: source_epoch,
                objects,
            }],
            moves: vec![CommitMove {
                partition: p,
                leader_epoch: led.leader_epoch,
                sealed_end: offset(led.end),
                from,
                to,
                to_broker_epoch,
                held_in: local.then(|| wal_of(to.get())),
            }],
        };
        let answer = self.world.run(request.clone()).await.unwrap();
        if answer.moves[0].is_ok() {
            self.begin(p);
            self.requests.push(request);
        }
    }

    /// What was carried out once is never carried out again, however late it is repeated.
    async fn replay(&mut self, which: usize) {
        let Some(request) = self.requests.get(which).cloned() else {
            return;
        };
        let wanted = request.moves[0];
        let wish = WantedMove {
            partition: wanted.partition,
            to: wanted.to,
            prefer: true,
        };
        let _ = self
            .world
            .run(SetTargets { moves: vec![wish] })
            .await
            .unwrap();
        let before: Vec<_> = self.partitions().iter().map(|id| self.row(*id)).collect();
        let answer = self.world.run(request).await.unwrap();
        if answer.moves[0].is_ok() {
            let present = self.row(wanted.partition).leader_epoch;
            assert_eq!(
                present,
                wanted.leader_epoch.next(),
                "it isn't the move that was"
            );
        }
        let after: Vec<_> = self.partitions().iter().map(|id| self.row(*id)).collect();
        assert_eq!(before, after);
    }

    async fn miss(&mut self, id: u32, alive: bool) {
        let broker_epoch = self.view(id).await.broker_epoch;
        let request = SetAlive {
            broker: broker(id),
            broker_epoch,
            alive,
        };
        self.world.run(request).await.unwrap();
    }

    async fn fail_over(&mut self, id: u32, accept_loss: bool) {
        let view = self.view(id).await;
        if view.alive {
            return;
        }
        self.node(id).fenced = true;
        let request = FailOver {
            broker: view.id,
            broker_epoch: view.broker_epoch,
            fenced_writer: view.writer.map(|w| w.broker_epoch),
            recovered: self.nodes[&id].written.clone(),
            accept_loss,
        };
        let outcome = self.world.run(request).await.unwrap();
        self.node(id).written.clear();
        for loss in &outcome.lost {
            self.acknowledged.insert(loss.partition, loss.from.get());
        }
        if !outcome.lost.is_empty() {
            self.kill(id);
        }
        for state in &outcome.moved {
            self.begin(state.partition);
        }
        for p in outcome.waiting {
            assert!(self.is_local(p), "{p} could have been moved");
        }
    }

    /// A new process: registers, fences, recovers and takes leadership; or dies after it registered.
    async fn restart(&mut self, id: u32, halfway: bool) {
        self.kill(id);
        self.incarnation += 1;
        let registered = self
            .world
            .run(registration(id, self.incarnation))
            .await
            .unwrap();
        self.node(id).epoch = None;
        if halfway {
            return;
        }
        let disk = self.nodes[&id].disk.iter();
        let ends = disk.map(|(p, (leader_epoch, end))| RecoveredEnd {
            partition: *p,
            leader_epoch: *leader_epoch,
            end: offset(*end),
        });
        let request = TakeLeadership {
            broker: broker(id),
            wal: Some(wal_of(id)),
            ends: ends.collect(),
            recovered: self.nodes[&id].written.clone(),
            ..taking(&registered)
        };
        let taken = self.world.run(request).await.unwrap();
        assert_eq!(taken.withheld, [], "what was acknowledged is there");
        let node = self.node(id);
        node.epoch = Some(registered.broker_epoch);
        node.up = true;
        node.fenced = false;
        node.written.clear();
        node.next_sequence = 0;
        for state in taken.partitions {
            self.begin(state.partition);
        }
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Append { node, at, count } => {
                let p = self.at(at);
                self.append(node, p, count.into());
            }
            Step::Upload { node, objects } => self.upload(node, objects.into()).await,
            Step::Want { at, to } => {
                let moves = vec![WantedMove {
                    partition: self.at(at),
                    to: broker(to),
                    prefer: true,
                }];
                let _ = self.world.run(SetTargets { moves }).await.unwrap();
            }
            Step::Cancel { at } => {
                let partition = self.at(at);
                let partitions = vec![CancelTarget {
                    partition,
                    to: None,
                }];
                let _ = self.world.run(CancelTargets { partitions }).await.unwrap();
            }
            Step::Move { at, until } => {
                let p = self.at(at);
                self.carry_out(p, until).await;
            }
            Step::Replay { which } => self.replay(which).await,
            Step::Kill { node } => self.kill(node),
            Step::Miss { node } => self.miss(node, false).await,
            Step::Return { node } => {
                // Only who is up and wasn't fenced has a session again.
                if self.nodes[&node].up && !self.nodes[&node].fenced {
                    self.miss(node, true).await;
                }
            }
            Step::FailOver { node, accept_loss } => self.fail_over(node, accept_loss).await,
            Step::Restart { node, halfway } => self.restart(node, halfway).await,
            Step::Drain { node } => {
                let broker_epoch = self.view(node).await.broker_epoch;
                let request = SetDraining {
                    broker: broker(node),
                    broker_epoch,
                    draining: true,
                };
                self.world.run(request).await.unwrap();
            }
            Step::Write => self.world.write().await,
        }
        for p in self.partitions() {
            let row = self.row(p);
            assert!(row.committed_end.get() <= self.acknowledged[&p]);
            let reach = row.epochs.last().unwrap().start;
            assert!(
                row.wal.is_some() || reach <= row.committed_end,
                "{p}: a sealed range is held by nobody"
            );
            let leader = self.leaders.get(&(p, row.leader_epoch));
            assert_eq!(
                row.leader.as_ref(),
                leader,
                "the leader changed within an epoch"
            );
        }
    }
}

proptest! {
    #[test]
    fn nothing_acknowledged_is_lost_and_no_epoch_has_two_leaders(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut cluster = Cluster::new().await;
            for step in &steps {
                cluster.step(step).await;
            }
            // All come back and find everything.
            for id in 1..=NODES {
                cluster.restart(id, false).await;
            }
            for p in cluster.partitions() {
                let leader = cluster.world.state.partition_state(p).unwrap().leader;
                prop_assert!(leader.is_some(), "{} is led by nobody", p);
            }
            cluster.world.write().await;
            Ok(())
        })?;
    }
}
