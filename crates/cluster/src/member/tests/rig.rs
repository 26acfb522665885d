//! Brokers of one cluster in one process: a lease, a metadata store and a network in memory, all of which fail on
//! demand, under paused time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tidegate_metadata::api::*;
use tidegate_metadata::store::MemoryOpener;
use tidegate_metadata::{
    ClusterImage, Configs, ControllerHandle, ControllerMetrics, ControllerOptions, Endpoint,
    ImageVersion, ObjectStatus, PartitionState, StoredObjectKey,
};
use tidegate_runtime::{SystemClock, Tasks};
use tidegate_types::{BrokerEpoch, BrokerId, Offset, PartitionId, TopicName};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::super::*;
use crate::admin::*;
use crate::rpc::ActiveController;
use crate::session::{
    FeedItem, HEARTBEAT_QUEUE, Heartbeat, Hello, HelloRefused, OpenSession, PROTOCOL_VERSION,
    SessionHost, Welcome,
};

pub(super) const LEASE: Duration = Duration::from_secs(2);

/// The lease's row. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Row {
    records: Arc<Mutex<BTreeMap<u64, LeaseRecord>>>,
}

impl Row {
    pub(super) fn newest(&self) -> Option<LeaseRecord> {
        self.records.lock().values().next_back().cloned()
    }

    pub(super) fn put(&self, record: LeaseRecord) {
        self.records.lock().insert(record.number, record);
    }
}

/// How one broker reaches the store: what fails, and what was asked. Clones share it.
#[derive(Clone)]
pub(super) struct Faults {
    pub(super) unreachable: Arc<AtomicBool>,
    /// Whoever asks waits until it is thawed: the process is paused.
    frozen: Arc<watch::Sender<bool>>,
    pub(super) lists: Arc<AtomicU64>,
    pub(super) requests: Arc<AtomicU64>,
}

impl Faults {
    fn new() -> Self {
        Self {
            unreachable: Arc::default(),
            frozen: Arc::new(watch::Sender::new(false)),
            lists: Arc::default(),
            requests: Arc::default(),
        }
    }

    async fn ask(&self) -> Result<(), LeaseFailure> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.thawed().await;
        match self.unreachable.load(Ordering::SeqCst) {
            true => Err(LeaseFailure("unreachable".into())),
            false => Ok(()),
        }
    }

    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        frozen.wait_for(|frozen| !frozen).await.unwrap();
    }
}

struct LeaseView {
    row: Row,
    faults: Faults,
}

#[async_trait]
impl LeaseRow for LeaseView {
    async fn newest(&self) -> Result<Option<LeaseRecord>, LeaseFailure> {
        self.faults.ask().await?;
        self.faults.lists.fetch_add(1, Ordering::SeqCst);
        Ok(self.row.newest())
    }

    async fn behind(&self, number: u64) -> Result<Option<LeaseRecord>, LeaseFailure> {
        self.faults.ask().await?;
        let records = self.row.records.lock();
        let mut newest = None;
        let mut next = number + 1;
        while let Some(record) = records.get(&next) {
            newest = Some(record.clone());
            next += 1;
        }
        Ok(newest)
    }

    async fn create(&self, record: &LeaseRecord) -> Result<LeaseCreate, LeaseFailure> {
        self.faults.ask().await?;
        let mut records = self.row.records.lock();
        match records.get(&record.number) {
            Some(there) if there != record => Ok(LeaseCreate::Taken(there.clone())),
            Some(_) => Ok(LeaseCreate::Created),
            None => {
                records.insert(record.number, record.clone());
                Ok(LeaseCreate::Created)
            }
        }
    }

    async fn trim(&self, newest: u64) {
        self.row
            .records
            .lock()
            .retain(|number, _| number + 64 > newest);
    }
}

/// How a broker is reached by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachable {
    Yes,
    /// Connections are reset, and who asks again isn't answered by the broker's own machine.
    Down,
    /// Connections are reset, and refused by the broker's own machine.
    Deserted,
    /// Nothing is answered, nothing breaks.
    Silent,
}

#[derive(Clone)]
struct Port {
    active: watch::Receiver<Option<Arc<ActiveController>>>,
    reachable: Arc<watch::Sender<Reachable>>,
}

/// Connects brokers. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Net {
    ports: Arc<Mutex<HashMap<u16, Port>>>,
    /// How long a feed holds back what it has to tell.
    pub(super) feed_delay: Arc<Mutex<Duration>>,
}

impl Net {
    async fn reach(&self, port: u16) -> Result<Arc<ActiveController>, HelloRefused> {
        let found = self.ports.lock().get(&port).cloned();
        let Some(found) = found else {
            return Err(HelloRefused::Unreachable("nobody listens".into()));
        };
        found.speaks().await?;
        let active = found.active.borrow().clone();
        active.ok_or(HelloRefused::NotController { known: None })
    }
}

impl Port {
    async fn speaks(&self) -> Result<(), HelloRefused> {
        let mut reachable = self.reachable.subscribe();
        let state = *reachable
            .wait_for(|state| *state != Reachable::Silent)
            .await
            .unwrap();
        match state {
            Reachable::Yes => Ok(()),
            Reachable::Down | Reachable::Deserted | Reachable::Silent => {
                Err(HelloRefused::Unreachable("refused".into()))
            }
        }
    }
}

/// One broker's way to another.
#[derive(Clone)]
struct Wire {
    net: Net,
    port: u16,
    answered: Arc<Mutex<Option<ImageVersion>>>,
}

impl ControllerReach for Net {
    fn controller(&self, _: Option<BrokerId>, endpoint: &Endpoint) -> RemoteParts {
        let wire = Wire {
            net: self.clone(),
            port: endpoint.port,
            answered: Arc::default(),
        };
        let answered = wire.answered.clone();
        RemoteParts {
            api: Arc::new(wire.clone()),
            sessions: Arc::new(wire.clone()),
            admin: Arc::new(wire),
            answered: Arc::new(move || *answered.lock()),
        }
    }

    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool> {
        let port = self.ports.lock().get(&endpoint.port).cloned();
        let state = port.map(|port| *port.reachable.borrow());
        std::future::ready(state == Some(Reachable::Deserted)).boxed()
    }
}

macro_rules! wire {
    ($($name:ident: $request:ty => $answer:ty, $error:ty;)*) => {
        #[async_trait]
        impl ControllerApi for Wire {
            $(
                async fn $name(&self, request: $request) -> Result<$answer, $error> {
                    let active = self.net.reach(self.port).await
                        .map_err(|_| ControllerUnavailable::NoController)?;
                    let answer = active.api.$name(request).await;
                    *self.answered.lock() = Some(active.images.borrow().version());
                    answer
                }
            )*
        }
    };
}
wire! {
    register_broker: RegisterBroker => Registered, RegisterBrokerError;
    take_leadership: TakeLeadership => LeadershipTaken, TakeLeadershipError;
    create_topics: CreateTopics
        => Vec<Result<CreatedTopic, CreateTopicError>>, ControllerUnavailable;
    delete_topics: DeleteTopics
        => Vec<Result<TopicName, UnknownTopic>>, ControllerUnavailable;
    create_partitions: CreatePartitions
        => Vec<Result<(), CreatePartitionsError>>, ControllerUnavailable;
    alter_configs: AlterConfigs
        => Vec<Result<Configs, UnknownTopic>>, ControllerUnavailable;
    alter_quotas: AlterQuotas
        => Vec<Result<(), TooManyQuotas>>, ControllerUnavailable;
    unregister_broker: UnregisterBroker => (), UnregisterBrokerError;
    commit_objects: CommitObjects => Vec<ObjectOutcome>, CommitObjectsError;
    advance_log_start: AdvanceLogStart => Offset, AdvanceLogStartError;
    swap_segments: SwapSegments => SwapOutcome, SwapSegmentsError;
    allocate_producer_ids: AllocateProducerIds => ProducerIdBlock, AllocateProducerIdsError;
    partition_states: Vec<PartitionId> => Vec<Option<PartitionState>>, ControllerUnavailable;
    led_by: BrokerId => Vec<PartitionState>, ControllerUnavailable;
    segments: SegmentQuery => SegmentPage, ControllerUnavailable;
    deletable_objects: DeletableQuery => Vec<DeletableObject>, ControllerUnavailable;
    forget_objects: Vec<StoredObjectKey> => (), ControllerUnavailable;
    object_statuses: Vec<StoredObjectKey> => Vec<ObjectStatus>, ControllerUnavailable;
}

#[async_trait]
impl SessionHost for Wire {
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        let active = self.net.reach(self.port).await?;
        let session = active.sessions.open(hello).await?;
        let port = self.net.ports.lock().get(&self.port).cloned().unwrap();
        let net = self.net.clone();
        let feed = futures::stream::unfold((session.feed, port), move |(mut feed, port)| {
            let net = net.clone();
            async move {
                let mut reachable = port.reachable.subscribe();
                let item = tokio::select! {
                    biased;
                    _ = reachable.wait_for(|state| *state == Reachable::Down) => return None,
                    item = feed.next() => item?,
                };
                let delay = *net.feed_delay.lock();
                if matches!(item, FeedItem::Image(_)) {
                    tokio::time::sleep(delay).await;
                }
                port.speaks().await.ok()?;
                Some((item, (feed, port)))
            }
        });
        Ok(OpenSession {
            feed: feed.boxed(),
            ..session
        })
    }
}

macro_rules! status_only {
    ($owner:ty, $status:item) => {
        #[async_trait]
        impl ClusterAdmin for $owner {
            async fn reassign(
                &self,
                _: Vec<MoveRequest>,
                _: Duration,
            ) -> Result<Vec<Result<MoveReport, MoveError>>, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn alter_placements(
                &self,
                _: Vec<PlacementChange>,
            ) -> Result<Vec<Result<(), PlacementError>>, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn list_reassignments(
                &self,
                _: Option<Vec<PartitionId>>,
            ) -> Result<Vec<Reassignment>, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn elect_leaders(
                &self,
                _: ElectionKind,
                _: Option<Vec<PartitionId>>,
                _: Duration,
            ) -> Result<Vec<Elected>, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn drain(&self, _: BrokerId) -> Result<DrainStatus, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn undrain(&self, _: BrokerId) -> Result<DrainStatus, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn drain_status(&self, _: BrokerId) -> Result<DrainStatus, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            async fn set_balance(&self, _: bool) -> Result<bool, AdminError> {
                Err(AdminError::Unsupported("not in this test".into()))
            }
            $status
        }
    };
}

status_only!(
    Wire,
    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError> {
        let active = self.net.reach(self.port).await;
        let active = active.map_err(|_| ControllerUnavailable::NoController)?;
        active.admin.cluster_status().await
    }
);

/// A conductor that opens every session and answers its heartbeats.
struct Conductor {
    me: BrokerId,
    images: watch::Receiver<Arc<ClusterImage>>,
    over: tokio_util::sync::CancellationToken,
    stale: Arc<Mutex<Vec<BrokerId>>>,
}

status_only!(
    Conductor,
    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError> {
        let image = self.images.borrow().clone();
        Ok(ClusterStatus {
            cluster_id: image.cluster_id().to_owned(),
            controller: self.me,
            controller_epoch: image.version().controller_epoch,
            image: image.version(),
            brokers: Vec::new(),
            topics: 0,
            partitions: image.partition_count(),
            offline: Vec::new(),
            offline_count: 0,
            reassignments: 0,
            balance: false,
        })
    }
);

#[async_trait]
impl SessionHost for Conductor {
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        if self.over.is_cancelled() {
            return Err(HelloRefused::NotController { known: None });
        }
        let stale = StaleBrokerEpoch {
            broker: hello.broker,
            broker_epoch: hello.broker_epoch,
            current: None,
        };
        if self.stale.lock().contains(&hello.broker) {
            return Err(stale.into());
        }
        let (heartbeats, beating) = mpsc::channel::<Heartbeat>(HEARTBEAT_QUEUE);
        let mut images = self.images.clone();
        images.mark_changed();
        let controller_epoch = images.borrow().version().controller_epoch;
        let state = (beating, images, None::<ClusterImage>, self.over.clone());
        let feed = futures::stream::unfold(
            state,
            |(mut beating, mut images, sent, over)| async move {
                let item = tokio::select! {
                    biased;
                    () = over.cancelled() => return None,
                    changed = images.changed() => {
                        changed.ok()?;
                        None
                    }
                    heartbeat = beating.recv() => Some(FeedItem::Ack { sequence: heartbeat?.sequence }),
                };
                match item {
                    Some(ack) => Some((ack, (beating, images, sent, over))),
                    None => {
                        let newest = ClusterImage::clone(&images.borrow_and_update());
                        let delta = match &sent {
                            Some(sent) => sent.delta_to(&newest),
                            None => newest.snapshot(),
                        };
                        let item = FeedItem::Image(Box::new(delta));
                        Some((item, (beating, images, Some(newest), over)))
                    }
                }
            },
        );
        Ok(OpenSession {
            welcome: Welcome {
                controller_epoch,
                session_timeout: Duration::from_secs(2),
            },
            heartbeats,
            feed: feed.boxed(),
        })
    }
}

#[derive(Clone, Default)]
struct Conductors {
    stale: Arc<Mutex<Vec<BrokerId>>>,
    terms: Arc<Mutex<Vec<Term>>>,
}

impl ConductorFactory for Conductors {
    fn start(&self, controller: &ControllerHandle, term: &Term, tasks: &Tasks) -> Conducted {
        self.terms.lock().push(term.clone());
        let conductor = Arc::new(Conductor {
            me: term.me,
            images: controller.image(),
            over: tasks.token().clone(),
            stale: self.stale.clone(),
        });
        Conducted {
            sessions: conductor.clone(),
            admin: conductor,
        }
    }
}

/// What all brokers of a test share.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) row: Row,
    pub(super) store: MemoryOpener,
    pub(super) net: Net,
    conductors: Conductors,
}

/// One life of a broker.
pub(super) struct Node {
    pub(super) member: Member,
    pub(super) faults: Faults,
    pub(super) tasks: Tasks,
    id: u32,
    incarnation: Uuid,
    reachable: Arc<watch::Sender<Reachable>>,
}

pub(super) fn broker(id: u32) -> BrokerId {
    BrokerId::new(id).unwrap()
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: "internal".into(),
        port,
    }
}

impl World {
    /// Starts a broker that knows its number. A second life of the same number runs on the same local WAL.
    pub(super) fn start(&self, id: u32) -> Node {
        self.start_as(id, Some(broker(id)))
    }

    pub(super) fn start_as(&self, id: u32, number: Option<BrokerId>) -> Node {
        let port = u16::try_from(id).unwrap();
        let incarnation = Uuid::new_v4();
        let settings = MemberSettings::new(MemberIdentity {
            incarnation,
            wal: Uuid::from_u128(0xAA00 + u128::from(id)),
            internal: endpoint(port),
            broker: number,
        });
        let faults = Faults::new();
        let tasks = Tasks::new("test");
        let host = MetadataHost {
            opener: Arc::new(self.store.clone()),
            options: ControllerOptions::new(broker(1)),
            clock: SystemClock::shared(),
            metrics: ControllerMetrics::register(&mut Default::default()),
            conductor: Arc::new(self.conductors.clone()),
        };
        let seams = MemberSeams {
            lease: Arc::new(LeaseView {
                row: self.row.clone(),
                faults: faults.clone(),
            }),
            host: Arc::new(host),
            reach: Arc::new(self.net.clone()),
            clock: SystemClock::shared(),
            tasks: tasks.clone(),
        };
        let member = Member::start(settings, seams);
        let reachable = Arc::new(watch::Sender::new(Reachable::Yes));
        let port_state = Port {
            active: member.active(),
            reachable: reachable.clone(),
        };
        self.net.ports.lock().insert(port, port_state);
        Node {
            member,
            faults,
            tasks,
            id,
            incarnation,
            reachable,
        }
    }

    /// The controller knows this broker's life as ended from now on.
    pub(super) fn fence(&self, id: u32) {
        self.conductors.stale.lock().push(broker(id));
    }

    /// The terms there were.
    pub(super) fn terms(&self) -> Vec<Term> {
        self.conductors.terms.lock().clone()
    }
}

impl Node {
    /// Registers and begins the session.
    pub(super) async fn join(&self) -> Registered {
        let request = RegisterBroker {
            broker: Some(broker(self.id)),
            incarnation: self.incarnation,
            kafka: endpoint(9092),
            internal: Some(endpoint(u16::try_from(self.id).unwrap())),
            rack: None,
            wal: None,
        };
        let registered = self
            .member
            .controller()
            .register_broker(request)
            .await
            .unwrap();
        self.hello(registered.broker, registered.broker_epoch);
        registered
    }

    pub(super) fn hello(&self, broker: BrokerId, broker_epoch: BrokerEpoch) {
        let hello = Hello {
            broker,
            broker_epoch,
            incarnation: self.incarnation,
            wal: None,
            kafka: None,
            protocol_version: PROTOCOL_VERSION,
            software_version: String::new(),
            features: Vec::new(),
        };
        self.member
            .begin_session(hello, Arc::new(Heartbeat::default));
    }

    /// The machine dies: nothing runs, connections are reset by whoever is in between.
    pub(super) async fn kill(&self) {
        self.die(Reachable::Down).await;
    }

    /// The process dies, and its machine refuses whoever comes.
    pub(super) async fn kill_process(&self) {
        self.die(Reachable::Deserted).await;
    }

    async fn die(&self, reachable: Reachable) {
        self.reachable.send_replace(reachable);
        self.tasks.shutdown(Duration::from_secs(5)).await.unwrap();
    }

    pub(super) fn reachable(&self, reachable: Reachable) {
        self.reachable.send_replace(reachable);
    }

    /// The process is paused, as far as others see it: it neither asks nor answers.
    pub(super) fn freeze(&self) {
        self.faults.frozen.send_replace(true);
        self.reachable.send_replace(Reachable::Silent);
    }

    pub(super) fn thaw(&self) {
        self.faults.frozen.send_replace(false);
        self.reachable.send_replace(Reachable::Yes);
    }

    pub(super) fn is_controller(&self) -> bool {
        self.member.active().borrow().is_some()
    }

    pub(super) async fn becomes_controller(&self) {
        let mut active = self.member.active();
        active.wait_for(Option::is_some).await.unwrap();
    }

    pub(super) async fn stops_being_controller(&self) {
        let mut active = self.member.active();
        active.wait_for(Option::is_none).await.unwrap();
    }

    pub(super) async fn connects(&self) {
        let mut session = self.member.session();
        session
            .wait_for(|state| matches!(state, SessionState::Connected { .. }))
            .await
            .unwrap();
    }

    /// Has a session with the controller that this one hosts.
    pub(super) async fn follows(&self, leader: &Node) {
        let epoch = leader.member.images().borrow().version().controller_epoch;
        let mut session = self.member.session();
        session
            .wait_for(|state| {
                matches!(state, SessionState::Connected { controller_epoch, .. } if *controller_epoch == epoch)
            })
            .await
            .unwrap();
    }

    pub(super) async fn create(&self, topic: &str) -> Result<(), ControllerUnavailable> {
        let request = CreateTopics {
            topics: vec![NewTopic {
                name: TopicName::new(topic).unwrap(),
                layout: TopicLayout::Count {
                    partitions: 1,
                    replication_factor: 1,
                },
                configs: Configs::new(),
            }],
            validate_only: false,
        };
        let answers = self.member.controller().create_topics(request).await?;
        for answer in answers {
            answer.unwrap();
        }
        Ok(())
    }

    pub(super) fn shows(&self, topic: &str) -> bool {
        self.member.images().borrow().topic(topic).is_some()
    }
}
