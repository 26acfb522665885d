//! Brokers that exist only in memory: logs are counters, and every step can be made to fail.
//!
//! The world knows what was acknowledged, so it notices when a leader begins anywhere else than where the one
//! before ended: see [`World::violations`].

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidegate_metadata::{
    ByteSpan, ClusterImage, ControllerApi, ControllerHandle, Endpoint, ObjectCommit, SegmentCommit,
    StoredObjectKey, WalIdentity,
};
use tidegate_runtime::Random;
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, OffsetRange, PartitionId,
    TimestampMs,
};
use uuid::Uuid;

use crate::orders::{
    BrokerOrders, Discard, FollowError, FollowRequest, HeldLog, Hold, OrderError, OrderRefused,
    Orders, Peers, Prepare, Seal, SealAnswer, SealedLog, Tail, TailSource, Unseal,
};
use crate::queries::BrokerQueries;
use crate::transactions::BrokerTransactions;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Prepare,
    Seal,
    Hold,
    Unseal,
    Discard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The broker dies before it does anything.
    DieBefore,
    /// The broker does it and dies before it answers.
    DieAfter,
    /// The broker does it, and its answer is lost.
    LoseReply,
    /// The order is lost.
    LoseOrder,
    /// The broker does it, long after everybody has given up.
    Late(Duration),
    /// The broker takes its time.
    Slow(Duration),
    /// It can't do it now.
    Refuse,
}

#[derive(Debug, Clone)]
struct Log {
    leader_epoch: LeaderEpoch,
    end: u64,
    sealed: Option<u64>,
    unsealed: u64,
}

#[derive(Debug, Clone)]
struct Incoming {
    attempt: u64,
    leader_epoch: LeaderEpoch,
    held: Option<u64>,
}

#[derive(Debug)]
struct Broker {
    up: bool,
    broker_epoch: BrokerEpoch,
    wal: Option<WalIdentity>,
    highest: ControllerEpoch,
    logs: HashMap<PartitionId, Log>,
    incoming: HashMap<PartitionId, Incoming>,
    faults: HashMap<Step, VecDeque<Fault>>,
    /// Object mode: the next WAL sequence, and what no commit covers.
    sequence: u64,
    uncommitted: Vec<ObjectCommit>,
}

impl Broker {
    fn new(broker_epoch: BrokerEpoch, wal: Option<WalIdentity>) -> Self {
        Self {
            up: true,
            broker_epoch,
            wal,
            highest: ControllerEpoch::new(0),
            logs: HashMap::new(),
            incoming: HashMap::new(),
            faults: HashMap::new(),
            sequence: 0,
            uncommitted: Vec::new(),
        }
    }
}

#[derive(Default)]
struct State {
    brokers: BTreeMap<BrokerId, Broker>,
    /// The truth: how many records of each partition were acknowledged.
    acknowledged: HashMap<PartitionId, u64>,
    violations: Vec<String>,
    orders: HashMap<Step, u64>,
    largest_order: usize,
    chaos: Option<(Random, u64)>,
    /// At whose port nobody listens. A broker that is only killed is silent.
    deserted: HashSet<BrokerId>,
}

impl State {
    fn broker(&mut self, id: BrokerId) -> &mut Broker {
        self.brokers.get_mut(&id).expect("a broker of this world")
    }
}

/// All brokers.
#[derive(Default)]
pub(super) struct World {
    state: Mutex<State>,
}

fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

impl World {
    pub(super) fn add(&self, id: BrokerId, broker_epoch: BrokerEpoch, wal: Option<WalIdentity>) {
        let mut state = self.state.lock();
        state.brokers.insert(id, Broker::new(broker_epoch, wal));
    }

    pub(super) fn kill(&self, id: BrokerId) {
        if let Some(broker) = self.state.lock().brokers.get_mut(&id) {
            broker.up = false;
        }
    }

    /// Nobody listens at its port from now on.
    pub(super) fn desert(&self, id: BrokerId) {
        self.state.lock().deserted.insert(id);
    }

    /// It was only cut off, and goes on where it was.
    pub(super) fn wake(&self, id: BrokerId) {
        if let Some(broker) = self.state.lock().brokers.get_mut(&id) {
            broker.up = true;
        }
    }

    pub(super) fn is_up(&self, id: BrokerId) -> bool {
        self.state.lock().brokers.get(&id).is_some_and(|b| b.up)
    }

    pub(super) fn fault(&self, id: BrokerId, step: Step, fault: Fault) {
        let mut state = self.state.lock();
        let broker = state.broker(id);
        broker.faults.entry(step).or_default().push_back(fault);
    }

    /// From now on every order fails in some way with this probability, in percent.
    pub(super) fn chaos(&self, random: Option<(Random, u64)>) {
        self.state.lock().chaos = random;
    }

    pub(super) fn orders_given(&self, step: Step) -> u64 {
        self.state.lock().orders.get(&step).copied().unwrap_or(0)
    }

    pub(super) fn largest_order(&self) -> usize {
        self.state.lock().largest_order
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    pub(super) fn acknowledged(&self, partition: PartitionId) -> u64 {
        let state = self.state.lock();
        state.acknowledged.get(&partition).copied().unwrap_or(0)
    }

    /// Where every log of a broker ends, as its local WAL would tell after a crash.
    pub(super) fn ends(&self, id: BrokerId) -> Vec<(PartitionId, LeaderEpoch, u64)> {
        let state = self.state.lock();
        let logs = state.brokers.get(&id).into_iter().flat_map(|b| &b.logs);
        logs.map(|(partition, log)| (*partition, log.leader_epoch, log.end))
            .collect()
    }

    /// A producer finds whoever serves the partition. `false`: nobody does.
    pub(super) fn append(&self, partition: PartitionId) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut served = false;
        for (id, broker) in &mut state.brokers {
            if !broker.up {
                continue;
            }
            let Some(log) = broker.logs.get_mut(&partition) else {
                continue;
            };
            if log.sealed.is_some() {
                continue;
            }
            let acknowledged = state.acknowledged.entry(partition).or_default();
            if log.end != *acknowledged {
                state.violations.push(format!(
                    "broker {id} appends to {partition} at {} under {}, but {acknowledged} were acknowledged",
                    log.end, log.leader_epoch
                ));
                continue;
            }
            let range = OffsetRange::new(offset(log.end), offset(log.end + 1)).unwrap();
            log.end += 1;
            *acknowledged += 1;
            served = true;
            if broker.wal.is_none() {
                let commit = wal_object(
                    *id,
                    broker.broker_epoch,
                    broker.sequence,
                    partition,
                    log,
                    range,
                );
                broker.uncommitted.push(commit);
                broker.sequence += 1;
            }
        }
        served
    }

    /// Whether some broker that is up serves the partition.
    pub(super) fn serves(&self, partition: PartitionId) -> Vec<BrokerId> {
        let state = self.state.lock();
        let serving = state.brokers.iter().filter(|(_, broker)| {
            let log = broker.logs.get(&partition);
            broker.up && log.is_some_and(|log| log.sealed.is_none())
        });
        serving.map(|(id, _)| *id).collect()
    }

    /// What brokers do when their feed brings them a picture.
    pub(super) async fn show(&self, handle: &ControllerHandle, image: &ClusterImage) {
        let ids: Vec<PartitionId> = image
            .topics()
            .flat_map(|topic| {
                (0..topic.partitions.len()).map(|index| super::partition(topic.id, index))
            })
            .collect();
        let states = handle.partition_states(ids.clone()).await;
        let Ok(states) = states else { return };
        let mut world = self.state.lock();
        let world = &mut *world;
        for (partition, state) in ids.into_iter().zip(states) {
            let Some(state) = state else { continue };
            let acknowledged = world.acknowledged.get(&partition).copied().unwrap_or(0);
            for (id, broker) in world.brokers.iter_mut().filter(|(_, broker)| broker.up) {
                broker.highest = broker.highest.max(image.version().controller_epoch);
                let own = broker.logs.get_mut(&partition);
                if state.leader == Some(*id) {
                    match own {
                        Some(log) if log.leader_epoch == state.leader_epoch => {
                            // A newer controller than the one that sealed doesn't go on with it.
                            let newer =
                                |order: u64| image.version().controller_epoch.get() > (order >> 32);
                            if log.sealed.is_some_and(newer) {
                                log.sealed = None;
                            }
                        }
                        Some(log) if log.leader_epoch > state.leader_epoch => {}
                        Some(_) | None => {
                            let start = state.leader_epoch_start().get();
                            if start != acknowledged {
                                world.violations.push(format!(
                                    "broker {id} begins {} of {partition} at {start}, but {acknowledged} were acknowledged",
                                    state.leader_epoch
                                ));
                            }
                            let held = broker.incoming.remove(&partition).and_then(|i| i.held);
                            if broker.wal.is_some()
                                && state.committed_end.get() < start
                                && held.is_some_and(|held| held != start)
                            {
                                world.violations.push(format!(
                                    "broker {id} holds {held:?} of {partition}, not {start}"
                                ));
                            }
                            broker.logs.insert(
                                partition,
                                Log {
                                    leader_epoch: state.leader_epoch,
                                    end: start,
                                    sealed: None,
                                    unsealed: 0,
                                },
                            );
                        }
                    }
                } else if own.is_some_and(|log| log.leader_epoch < state.leader_epoch) {
                    broker.logs.remove(&partition);
                }
            }
        }
    }

    fn next_fault(
        &self,
        id: BrokerId,
        step: Step,
        items: usize,
    ) -> Result<Option<Fault>, OrderError> {
        let mut state = self.state.lock();
        *state.orders.entry(step).or_default() += 1;
        state.largest_order = state.largest_order.max(items);
        let rolled = state.chaos.as_ref().and_then(|(random, percent)| {
            (random.below(100) < *percent).then(|| match random.below(4) {
                0 => Fault::LoseReply,
                1 => Fault::LoseOrder,
                2 => Fault::Late(Duration::from_millis(random.below(12_000))),
                _ => Fault::Refuse,
            })
        });
        let broker = state.broker(id);
        if !broker.up {
            return Err(OrderError::Unreachable("connection refused".to_owned()));
        }
        let planned = broker.faults.get_mut(&step).and_then(VecDeque::pop_front);
        if planned == Some(Fault::DieBefore) {
            broker.up = false;
            return Err(OrderError::Unreachable("connection reset".to_owned()));
        }
        Ok(planned.or(rolled))
    }

    /// Checks the controller epoch, then does the work on the broker.
    fn on<T>(
        &self,
        id: BrokerId,
        controller_epoch: ControllerEpoch,
        work: impl FnOnce(&mut Broker) -> T,
    ) -> Result<T, OrderRefused> {
        let mut state = self.state.lock();
        let broker = state.broker(id);
        if controller_epoch < broker.highest {
            return Err(OrderRefused::StaleController {
                seen: broker.highest,
            });
        }
        broker.highest = controller_epoch;
        Ok(work(broker))
    }
}

fn wal_object(
    id: BrokerId,
    broker_epoch: BrokerEpoch,
    sequence: u64,
    partition: PartitionId,
    log: &Log,
    range: OffsetRange,
) -> ObjectCommit {
    let key = format!("data/{id}/{broker_epoch}/{sequence}");
    ObjectCommit {
        key: StoredObjectKey::new(&key).unwrap(),
        size_bytes: 1_000,
        index: ByteSpan {
            position: 900,
            length: 80,
        },
        wal_sequence: Some(sequence),
        segments: vec![SegmentCommit {
            partition,
            leader_epoch: log.leader_epoch,
            range,
            span: ByteSpan {
                position: 64,
                length: 100,
            },
            max_timestamp: TimestampMs::new(1),
            record_count: range.span(),
            checkpoint: None,
        }],
    }
}

/// Reaches the world's brokers.
pub(super) struct FakePeers(pub(super) Arc<World>);

impl Peers for FakePeers {
    fn orders(&self, broker: BrokerId, _endpoint: &Endpoint) -> Arc<dyn BrokerOrders> {
        Arc::new(FakeOrders {
            id: broker,
            world: Arc::clone(&self.0),
        })
    }

    fn tails(&self, _broker: BrokerId, _endpoint: &Endpoint) -> Arc<dyn TailSource> {
        Arc::new(NoTails)
    }

    fn queries(&self, _broker: BrokerId, _endpoint: &Endpoint) -> Arc<dyn BrokerQueries> {
        unreachable!("the conductor asks brokers nothing")
    }

    fn transactions(&self, _broker: BrokerId, _endpoint: &Endpoint) -> Arc<dyn BrokerTransactions> {
        unreachable!("the conductor takes no part in transactions")
    }

    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool> {
        let deserted = &self.0.state.lock().deserted;
        let found = deserted.iter().any(|id| endpoint.host == format!("b{id}"));
        std::future::ready(found).boxed()
    }
}

struct NoTails;

#[async_trait]
impl TailSource for NoTails {
    async fn follow(&self, _request: FollowRequest) -> Result<Tail, FollowError> {
        Err(FollowError::Unreachable("not in this test".to_owned()))
    }
}

#[derive(Clone)]
struct FakeOrders {
    id: BrokerId,
    world: Arc<World>,
}

impl FakeOrders {
    /// Does the work with whatever fault comes up. `refused` is the answer of a broker that can't now.
    async fn carry_out<T, F>(
        &self,
        step: Step,
        items: usize,
        refused: Result<T, OrderError>,
        work: impl FnOnce(Self) -> F + Send,
    ) -> Result<T, OrderError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, OrderError>> + Send + 'static,
    {
        // A round trip.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let fault = self.world.next_fault(self.id, step, items)?;
        match fault {
            None => work(self.clone()).await,
            Some(Fault::Refuse) => refused,
            Some(Fault::Slow(time)) => {
                tokio::time::sleep(time).await;
                work(self.clone()).await
            }
            Some(Fault::LoseOrder) => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Err(OrderError::TimedOut)
            }
            Some(Fault::LoseReply) => {
                let _ = work(self.clone()).await;
                Err(OrderError::Unreachable("connection reset".to_owned()))
            }
            Some(Fault::Late(after)) => {
                let (this, work) = (self.clone(), work(self.clone()));
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    if this.world.is_up(this.id) {
                        let _ = work.await;
                    }
                });
                Err(OrderError::TimedOut)
            }
            Some(Fault::DieBefore) => unreachable!("handled where it was taken"),
            Some(Fault::DieAfter) => {
                let _ = work(self.clone()).await;
                self.world.kill(self.id);
                Err(OrderError::Unreachable("connection reset".to_owned()))
            }
        }
    }
}

fn not_yet() -> OrderRefused {
    OrderRefused::NotYet {
        cause: "busy".to_owned(),
    }
}

fn prepare_one(broker: &mut Broker, order: &Prepare) -> Result<(), OrderRefused> {
    let partition = order.state.partition;
    if let Some(other) = broker.incoming.get(&partition)
        && other.attempt > order.attempt
    {
        return Err(OrderRefused::Superseded {
            newest: other.attempt,
        });
    }
    if broker.logs.contains_key(&partition) {
        return Err(not_yet());
    }
    broker.incoming.insert(
        partition,
        Incoming {
            attempt: order.attempt,
            leader_epoch: order.state.leader_epoch,
            held: None,
        },
    );
    Ok(())
}

fn seal_one(broker: &mut Broker, order: &Seal) -> Result<SealedLog, OrderRefused> {
    let log = broker
        .logs
        .get_mut(&order.partition)
        .filter(|log| log.leader_epoch == order.leader_epoch)
        .ok_or(OrderRefused::NotLeader)?;
    if order.order <= log.unsealed {
        return Err(OrderRefused::Superseded {
            newest: log.unsealed,
        });
    }
    log.sealed = Some(log.sealed.unwrap_or(0).max(order.order));
    Ok(SealedLog {
        partition: order.partition,
        end: offset(log.end),
    })
}

fn unseal_one(broker: &mut Broker, order: &Unseal) {
    if let Some(log) = broker
        .logs
        .get_mut(&order.partition)
        .filter(|log| log.leader_epoch == order.leader_epoch)
    {
        log.unsealed = log.unsealed.max(order.order);
        if log.sealed.is_some_and(|sealed| sealed <= order.order) {
            log.sealed = None;
        }
    }
}

fn discard_one(broker: &mut Broker, order: &Discard) {
    let known = broker.incoming.get(&order.partition);
    if known.is_some_and(|incoming| incoming.attempt <= order.attempt) {
        broker.incoming.remove(&order.partition);
    }
}

impl FakeOrders {
    /// Waits for the source's end of the log, as the follow stream would bring it.
    async fn hold_one(&self, order: Hold) -> Result<HeldLog, OrderRefused> {
        for _ in 0..1_000 {
            {
                let mut state = self.world.state.lock();
                let sealed_end = state.brokers.values().find_map(|broker| {
                    let log = broker.logs.get(&order.partition)?;
                    let sealed = log.leader_epoch == order.leader_epoch && log.sealed.is_some();
                    (broker.up && sealed).then_some(log.end)
                });
                let broker = state.broker(self.id);
                let (broker_epoch, wal) = (broker.broker_epoch, broker.wal);
                let incoming = broker
                    .incoming
                    .get_mut(&order.partition)
                    .filter(|i| i.attempt == order.attempt && i.leader_epoch == order.leader_epoch)
                    .ok_or(OrderRefused::NotPrepared)?;
                if let Some(end) = sealed_end {
                    incoming.held = Some(end);
                    return Ok(HeldLog {
                        partition: order.partition,
                        end: offset(end),
                        broker_epoch,
                        held_in: wal,
                    });
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(not_yet())
    }
}

#[async_trait]
impl BrokerOrders for FakeOrders {
    async fn prepare(
        &self,
        orders: Orders<Prepare>,
    ) -> Result<Vec<Result<(), OrderRefused>>, OrderError> {
        let count = orders.items.len();
        let refused = (0..count).map(|_| Err(not_yet())).collect();
        self.carry_out(Step::Prepare, count, Ok(refused), |this| async move {
            let all = this.world.on(this.id, orders.controller_epoch, |broker| {
                orders
                    .items
                    .iter()
                    .map(|o| prepare_one(broker, o))
                    .collect()
            });
            Ok(all.unwrap_or_else(|stale| (0..count).map(|_| Err(stale.clone())).collect()))
        })
        .await
    }

    async fn seal(&self, orders: Orders<Seal>) -> Result<SealAnswer, OrderError> {
        let count = orders.items.len();
        let refused = SealAnswer {
            results: (0..count).map(|_| Err(not_yet())).collect(),
            objects: Vec::new(),
            broker_epoch: BrokerEpoch::new(0),
        };
        self.carry_out(Step::Seal, count, Ok(refused), |this| async move {
            let all = this
                .world
                .on(this.id, orders.controller_epoch, |broker| SealAnswer {
                    results: orders.items.iter().map(|o| seal_one(broker, o)).collect(),
                    objects: broker.uncommitted.clone(),
                    broker_epoch: broker.broker_epoch,
                });
            Ok(all.unwrap_or_else(|stale| SealAnswer {
                results: (0..count).map(|_| Err(stale.clone())).collect(),
                objects: Vec::new(),
                broker_epoch: BrokerEpoch::new(0),
            }))
        })
        .await
    }

    async fn hold(
        &self,
        orders: Orders<Hold>,
    ) -> Result<Vec<Result<HeldLog, OrderRefused>>, OrderError> {
        let count = orders.items.len();
        let refused = (0..count).map(|_| Err(not_yet())).collect();
        self.carry_out(Step::Hold, count, Ok(refused), |this| async move {
            if let Err(stale) = this.world.on(this.id, orders.controller_epoch, |_| ()) {
                return Ok((0..count).map(|_| Err(stale.clone())).collect());
            }
            let all = orders.items.into_iter().map(|order| this.hold_one(order));
            Ok(futures::future::join_all(all).await)
        })
        .await
    }

    async fn unseal(&self, orders: Orders<Unseal>) -> Result<(), OrderError> {
        self.carry_out(
            Step::Unseal,
            orders.items.len(),
            Err(OrderError::TimedOut),
            |this| async move {
                let _ = this.world.on(this.id, orders.controller_epoch, |broker| {
                    orders.items.iter().for_each(|o| unseal_one(broker, o));
                });
                Ok(())
            },
        )
        .await
    }

    async fn discard(&self, orders: Orders<Discard>) -> Result<(), OrderError> {
        self.carry_out(
            Step::Discard,
            orders.items.len(),
            Err(OrderError::TimedOut),
            |this| async move {
                let _ = this.world.on(this.id, orders.controller_epoch, |broker| {
                    orders.items.iter().for_each(|o| discard_one(broker, o));
                });
                Ok(())
            },
        )
        .await
    }
}

pub(super) fn wal_of(id: BrokerId) -> WalIdentity {
    Uuid::from_u128(0xE0_0000 + u128::from(id.get()))
}
