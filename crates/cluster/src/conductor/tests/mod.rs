//! The conductor over the real controller and brokers that exist only in memory. Time is paused: it passes when
//! nothing else is to be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tidegate_metadata::api::{
    CreateTopics, NewTopic, RecoveredEnd, RegisterBroker, Registered, TakeLeadership, TopicLayout,
};
use tidegate_metadata::store::MemoryOpener;
use tidegate_metadata::{
    Controller, ControllerApi, ControllerExit, ControllerHandle, ControllerMetrics,
    ControllerOptions, ControllerTask, Endpoint, OpenError, PartitionState,
};
use tidegate_runtime::{SharedClock, SystemClock, Tasks};
use tidegate_types::{
    BrokerId, DurabilityMode, Offset, PartitionId, PartitionIndex, TopicId, TopicName,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::*;
use crate::session::{Heartbeat, Hello, HelloRefused, OpenSession, PROTOCOL_VERSION, SessionHost};

mod chaos;
mod driving;
mod failing;
mod living;
mod store;
mod world;

use store::MemoryLog;
use world::{FakePeers, World, wal_of};

fn broker(id: u32) -> BrokerId {
    BrokerId::new(id).unwrap()
}

fn partition(topic: TopicId, index: usize) -> PartitionId {
    PartitionId {
        topic,
        index: PartitionIndex::new(u32::try_from(index).unwrap()).unwrap(),
    }
}

/// A controller with its conductor.
struct Seat {
    handle: ControllerHandle,
    conductor: ConductorHandle,
    registry: Registry,
    tasks: Tasks,
    stop: oneshot::Sender<()>,
    controller: JoinHandle<ControllerExit>,
    followers: Vec<JoinHandle<()>>,
}

/// A cluster.
struct Rig {
    opener: MemoryOpener,
    world: Arc<World>,
    log: MemoryLog,
    durability: DurabilityMode,
    options: ConductorOptions,
    clock: SharedClock,
    presumed_dead: Option<BrokerId>,
    seat: Option<Seat>,
    ids: u128,
}

impl Rig {
    /// A controller, and no broker yet.
    async fn new(durability: DurabilityMode) -> Self {
        let mut rig = Self::unopened(durability);
        rig.open().await;
        rig
    }

    fn unopened(durability: DurabilityMode) -> Self {
        let mut options = ConductorOptions::new(broker(1));
        // Only the tests of balance want it.
        options.balance.enabled = false;
        Self {
            opener: MemoryOpener::new(),
            world: Arc::default(),
            log: MemoryLog::default(),
            durability,
            options,
            clock: SystemClock::shared(),
            presumed_dead: None,
            seat: None,
            ids: 0,
        }
    }

    fn handle(&self) -> &ControllerHandle {
        &self.seat.as_ref().unwrap().handle
    }

    fn conductor(&self) -> &ConductorHandle {
        &self.seat.as_ref().unwrap().conductor
    }

    /// Opens a controller. One that is open finds itself fenced.
    async fn open(&mut self) {
        let (handle, task) = loop {
            match self.try_open().await {
                Ok(opened) => break opened,
                Err(error) => assert!(error.is_retriable(), "{error}"),
            }
        };
        let (stop, stopped) = oneshot::channel();
        let controller = tokio::spawn(Box::pin(task.run(async {
            let _ = stopped.await;
        })));
        let mut registry = Registry::default();
        let tasks = Tasks::new("test");
        let conductor = Conductor::start(
            handle.clone(),
            Arc::new(FakePeers(Arc::clone(&self.world))),
            Arc::new(self.log.clone()),
            self.options.clone(),
            self.clock.clone(),
            &tasks,
            ConductorMetrics::register(&mut registry),
        );
        let world = Arc::clone(&self.world);
        let (watched, mut images) = (handle.clone(), handle.image());
        let follower = tokio::spawn(async move {
            loop {
                let image = Arc::clone(&images.borrow_and_update());
                world.show(&watched, &image).await;
                if images.changed().await.is_err() {
                    return;
                }
            }
        });
        let sessions = tokio::spawn(keep_sessions(
            Arc::clone(&self.world),
            handle.clone(),
            conductor.clone(),
        ));
        self.seat = Some(Seat {
            handle,
            conductor,
            registry,
            tasks,
            stop,
            controller,
            followers: vec![follower, sessions],
        });
    }

    async fn try_open(&mut self) -> Result<(ControllerHandle, ControllerTask), OpenError> {
        self.ids += 1;
        let mut next = (self.ids << 64) | 0xB000;
        let options = ControllerOptions {
            default_durability: self.durability,
            presumed_dead: self.presumed_dead,
            ..ControllerOptions::new(broker(1))
        };
        let opening = Controller::open(
            Arc::new(self.opener.clone()),
            options,
            SystemClock::shared(),
            Box::new(move || {
                next += 1;
                Uuid::from_u128(next)
            }),
            ControllerMetrics::register(&mut Registry::default()),
        );
        Box::pin(opening).await
    }

    /// The controller's process dies.
    fn drop_controller(&mut self) {
        if let Some(seat) = self.seat.take() {
            seat.controller.abort();
            seat.tasks.token().cancel();
            seat.followers.iter().for_each(JoinHandle::abort);
        }
    }

    async fn stop(mut self) {
        if let Some(seat) = self.seat.take() {
            seat.conductor.stop(Duration::from_secs(5)).await.unwrap();
            let _ = seat.stop.send(());
            let _ = seat.controller.await;
            seat.followers.iter().for_each(JoinHandle::abort);
        }
        assert_eq!(self.world.violations(), Vec::<String>::new());
    }

    async fn register(&mut self, id: u32) -> Registered {
        self.ids += 1;
        let request = RegisterBroker {
            broker: Some(broker(id)),
            incarnation: Uuid::from_u128(0xA000_0000 + self.ids),
            kafka: Endpoint {
                host: format!("b{id}"),
                port: 9092,
            },
            internal: Some(Endpoint {
                host: format!("b{id}"),
                port: 9095,
            }),
            rack: None,
            wal: self.wal(id),
        };
        self.handle().register_broker(request).await.unwrap()
    }

    fn wal(&self, id: u32) -> Option<Uuid> {
        (self.durability == DurabilityMode::Local).then(|| wal_of(broker(id)))
    }

    /// Starts a broker, for the first time or again, with what its local WAL holds.
    async fn start(&mut self, id: u32) -> Registered {
        let registered = self.register(id).await;
        let ends = if self.durability == DurabilityMode::Local {
            self.world.ends(broker(id))
        } else {
            Vec::new()
        };
        let request = TakeLeadership {
            broker: broker(id),
            broker_epoch: registered.broker_epoch,
            wal: self.wal(id),
            fenced_writer: registered.former_writer.map(|w| w.broker_epoch),
            recovered: Vec::new(),
            ends: ends
                .into_iter()
                .map(|(partition, leader_epoch, end)| RecoveredEnd {
                    partition,
                    leader_epoch,
                    end: Offset::new(end).unwrap(),
                })
                .collect(),
            accept_loss: false,
        };
        self.world
            .add(broker(id), registered.broker_epoch, self.wal(id));
        self.handle().take_leadership(request).await.unwrap();
        settle().await;
        registered
    }

    async fn start_all(&mut self, ids: std::ops::RangeInclusive<u32>) {
        for id in ids {
            self.start(id).await;
        }
    }

    /// A topic whose partition `i` is led by `leaders[i]`.
    async fn topic(&self, name: &str, leaders: &[u32]) -> TopicId {
        let request = CreateTopics {
            topics: vec![NewTopic {
                name: TopicName::new(name).unwrap(),
                layout: TopicLayout::Assigned(leaders.iter().map(|id| vec![broker(*id)]).collect()),
                configs: BTreeMap::new(),
            }],
            validate_only: false,
        };
        let created = self.handle().create_topics(request).await.unwrap();
        let id = created[0].as_ref().unwrap().id.unwrap();
        settle().await;
        id
    }

    async fn state(&self, id: PartitionId) -> PartitionState {
        let states = self.handle().partition_states(vec![id]).await.unwrap();
        states[0].clone().unwrap()
    }

    fn leader(&self, id: PartitionId) -> Option<BrokerId> {
        self.conductor()
            .core
            .image()
            .topic_by_id(id.topic)?
            .partition(id.index)?
            .leader
    }

    /// How many partitions each broker leads.
    fn leaders(&self) -> BTreeMap<u32, usize> {
        let image = self.conductor().core.image();
        let mut counts = BTreeMap::new();
        for one in image.topics().flat_map(|t| &t.partitions) {
            if let Some(leader) = one.leader {
                *counts.entry(leader.get()).or_default() += 1;
            }
        }
        counts
    }

    /// Until the condition holds, for at most `limit` of time that passes.
    async fn until(&self, limit: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + limit;
        while !condition(self) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "not within {limit:?}: {what}; violations: {:?}",
                self.world.violations()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A metric's value, by its line without labels.
    fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        let registry = &self.seat.as_ref().unwrap().registry;
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let line = text
            .lines()
            .find(|line| line.split(' ').next() == Some(name))
            .unwrap_or_else(|| panic!("no metric {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Lets everything be done that needs no long time to pass.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(120)).await;
}

fn hello(id: BrokerId, broker_epoch: tidegate_types::BrokerEpoch) -> Hello {
    Hello {
        broker: id,
        broker_epoch,
        incarnation: Uuid::nil(),
        wal: None,
        kafka: None,
        protocol_version: PROTOCOL_VERSION,
        software_version: "test".to_owned(),
        features: Vec::new(),
    }
}

/// Every broker that is up keeps its session. None reads its feed: that must not matter.
async fn keep_sessions(world: Arc<World>, handle: ControllerHandle, conductor: ConductorHandle) {
    let mut sessions: BTreeMap<BrokerId, OpenSession> = BTreeMap::new();
    let mut sequence = 0;
    loop {
        sequence += 1;
        let views = handle.brokers().await.unwrap_or_default();
        for view in views {
            if !world.is_up(view.id) {
                sessions.remove(&view.id);
                continue;
            }
            let heartbeat = Heartbeat {
                sequence,
                ..Heartbeat::default()
            };
            let sent = sessions
                .get(&view.id)
                .is_some_and(|s| s.heartbeats.try_send(heartbeat).is_ok());
            if !sent {
                sessions.remove(&view.id);
                if let Ok(session) = conductor.open(hello(view.id, view.broker_epoch)).await {
                    sessions.insert(view.id, session);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}
