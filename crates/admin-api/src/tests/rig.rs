//! An admin API on a port of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tidegate_cluster::admin::*;
use tidegate_cluster::orders::*;
use tidegate_cluster::queries::*;
use tidegate_cluster::transactions::BrokerTransactions;
use tidegate_cluster::view::{ClusterView, TopicRules};
use tidegate_metadata::api::{ControllerApi, RegisterBroker, TakeLeadership};
use tidegate_metadata::store::MemoryOpener;
use tidegate_metadata::{
    Controller, ControllerHandle, ControllerMetrics, ControllerOptions, ControllerUnavailable,
    Endpoint,
};
use tidegate_runtime::SystemClock;
use tidegate_types::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::{AdminState, Readiness, Token, serve};

pub(super) fn broker(id: u32) -> BrokerId {
    BrokerId::new(id).unwrap()
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

type Moved = Result<Vec<Result<MoveReport, MoveError>>, AdminError>;

/// Answers moves as told, and keeps what was asked.
#[derive(Default)]
pub(super) struct FakeAdmin {
    pub(super) moves: Mutex<Option<Moved>>,
    pub(super) asked: Mutex<Vec<(Vec<MoveRequest>, Duration)>>,
    draining: Mutex<Vec<BrokerId>>,
    balance: Mutex<bool>,
}

impl FakeAdmin {
    fn standing(&self, id: BrokerId) -> Result<DrainStatus, AdminError> {
        if id.get() > 2 {
            return Err(AdminError::UnknownBroker(id));
        }
        let draining = self.draining.lock().contains(&id);
        Ok(DrainStatus {
            broker: id,
            draining,
            led_partitions: u64::from(!draining),
            moving: 0,
            blocked: None,
        })
    }
}

#[async_trait]
impl ClusterAdmin for FakeAdmin {
    async fn reassign(&self, moves: Vec<MoveRequest>, wait: Duration) -> Moved {
        self.asked.lock().push((moves, wait));
        self.moves.lock().take().expect("an answer is scripted")
    }

    async fn alter_placements(
        &self,
        _: Vec<PlacementChange>,
    ) -> Result<Vec<Result<(), PlacementError>>, AdminError> {
        unreachable!("the admin API doesn't ask this")
    }

    async fn list_reassignments(
        &self,
        partitions: Option<Vec<PartitionId>>,
    ) -> Result<Vec<Reassignment>, AdminError> {
        assert_eq!(partitions, None);
        Err(ControllerUnavailable::OutcomeUnknown.into())
    }

    async fn elect_leaders(
        &self,
        _: ElectionKind,
        _: Option<Vec<PartitionId>>,
        _: Duration,
    ) -> Result<Vec<Elected>, AdminError> {
        unreachable!("the admin API doesn't ask this")
    }

    async fn drain(&self, id: BrokerId) -> Result<DrainStatus, AdminError> {
        self.draining.lock().push(id);
        self.standing(id)
    }

    async fn undrain(&self, id: BrokerId) -> Result<DrainStatus, AdminError> {
        self.draining.lock().retain(|draining| *draining != id);
        self.standing(id)
    }

    async fn drain_status(&self, id: BrokerId) -> Result<DrainStatus, AdminError> {
        self.standing(id)
    }

    async fn set_balance(&self, enabled: bool) -> Result<bool, AdminError> {
        Ok(std::mem::replace(&mut *self.balance.lock(), enabled))
    }

    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError> {
        let status = |id: u32| BrokerStatus {
            id: broker(id),
            broker_epoch: BrokerEpoch::new(7),
            alive: id == 1,
            draining: false,
            rack: None,
            kafka: endpoint(9092),
            internal: None,
            led_partitions: 3,
            bytes_in_per_s: 1,
            bytes_out_per_s: 2,
            requests_per_s: 3,
            software_version: "9.9.9".to_owned(),
        };
        Ok(ClusterStatus {
            cluster_id: "c".to_owned(),
            controller: broker(1),
            controller_epoch: ControllerEpoch::new(4),
            image: tidegate_metadata::ClusterImage::empty("c").version(),
            brokers: vec![status(1), status(2)],
            topics: 1,
            partitions: 3,
            offline: Vec::new(),
            offline_count: 0,
            reassignments: 0,
            balance: *self.balance.lock(),
        })
    }
}

/// What one broker says of itself. A broker that isn't there is silent.
#[derive(Clone, Default)]
pub(super) struct Says {
    pub(super) logs: HashMap<PartitionId, LogStatus>,
    pub(super) groups: Vec<GroupSummary>,
    pub(super) described: Option<GroupAnswer>,
}

#[derive(Default)]
pub(super) struct FakePeers(pub(super) Mutex<HashMap<BrokerId, Says>>);

impl Peers for FakePeers {
    fn orders(&self, _: BrokerId, _: &Endpoint) -> Arc<dyn BrokerOrders> {
        unreachable!("the admin API gives no orders")
    }

    fn tails(&self, _: BrokerId, _: &Endpoint) -> Arc<dyn TailSource> {
        unreachable!("the admin API follows no tails")
    }

    fn queries(&self, id: BrokerId, _: &Endpoint) -> Arc<dyn BrokerQueries> {
        Arc::new(FakeQueries(self.0.lock().get(&id).cloned()))
    }

    fn transactions(&self, _: BrokerId, _: &Endpoint) -> Arc<dyn BrokerTransactions> {
        unreachable!("the admin API takes no part in transactions")
    }

    fn is_deserted(&self, _: &Endpoint) -> BoxFuture<'static, bool> {
        unreachable!("the admin API buries nobody")
    }
}

struct FakeQueries(Option<Says>);

impl FakeQueries {
    fn says(&self) -> Result<&Says, OrderError> {
        self.0.as_ref().ok_or(OrderError::TimedOut)
    }
}

#[async_trait]
impl BrokerQueries for FakeQueries {
    async fn log_statuses(
        &self,
        partitions: Vec<PartitionId>,
    ) -> Result<Vec<Option<LogStatus>>, OrderError> {
        let says = self.says()?;
        Ok(partitions
            .iter()
            .map(|id| says.logs.get(id).copied())
            .collect())
    }

    async fn list_groups(&self, _: Vec<String>) -> Result<GroupList, OrderError> {
        Ok(GroupList {
            groups: self.says()?.groups.clone(),
            incomplete: None,
        })
    }

    async fn describe_group(&self, _: String) -> Result<GroupAnswer, OrderError> {
        let described = self.says()?.described.clone();
        Ok(described.unwrap_or(GroupAnswer::NotHere))
    }
}

/// The API and what is behind it.
pub(super) struct Rig {
    address: SocketAddr,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) stop: Option<oneshot::Sender<()>>,
    pub(super) serving: tokio::task::JoinHandle<std::io::Result<()>>,
    pub(super) admin: Arc<FakeAdmin>,
    pub(super) peers: Arc<FakePeers>,
    pub(super) controller: ControllerHandle,
}

async fn controller() -> ControllerHandle {
    let (handle, task) = Controller::open(
        Arc::new(MemoryOpener::new()),
        ControllerOptions::new(broker(1)),
        SystemClock::shared(),
        Box::new(Uuid::new_v4),
        ControllerMetrics::register(&mut Registry::default()),
    )
    .await
    .unwrap();
    tokio::spawn(task.run(std::future::pending()));
    for id in [1, 2] {
        let registered = handle
            .register_broker(RegisterBroker {
                broker: Some(broker(id)),
                incarnation: Uuid::new_v4(),
                kafka: endpoint(9092),
                internal: Some(endpoint(9641)),
                rack: None,
                wal: None,
            })
            .await
            .unwrap();
        handle
            .take_leadership(TakeLeadership {
                broker: broker(id),
                broker_epoch: registered.broker_epoch,
                wal: None,
                fenced_writer: None,
                recovered: Vec::new(),
                ends: Vec::new(),
                accept_loss: false,
            })
            .await
            .unwrap();
    }
    handle
}

impl Rig {
    /// A broker of a cluster of two.
    pub(super) async fn start() -> Self {
        Self::with(true, None).await
    }

    pub(super) async fn with_token(token: &str) -> Self {
        Self::with(true, Token::new(token)).await
    }

    /// A broker that hasn't joined its cluster, and reads its WAL.
    pub(super) async fn starting() -> Self {
        Self::with(false, None).await
    }

    async fn with(joined: bool, token: Option<Token>) -> Self {
        let registry = OnceLock::new();
        if joined {
            let mut metrics = Registry::default();
            let fetched = Counter::<u64>::default();
            metrics.register("fetched_bytes", "Bytes fetched", fetched.clone());
            fetched.inc_by(7);
            registry.set(metrics).unwrap();
        }
        let starting = Readiness::NotReady {
            cause: "the WAL is being read".into(),
        };
        let (readiness, shown) = watch::channel(starting);
        let controller = controller().await;
        let admin = Arc::new(FakeAdmin::default());
        let peers = Arc::new(FakePeers::default());
        let view = ClusterView {
            me: broker(1),
            admin: admin.clone(),
            controller: Arc::new(controller.clone()),
            images: controller.image(),
            peers: peers.clone(),
            topics: TopicRules {
                default_partitions: 2,
                default_replication_factor: 1,
                check_config: |name, value| match (name, value) {
                    ("retention.ms", "5") => Ok(()),
                    _ => Err(format!("{name} can't be {value}")),
                },
                is_internal: |name| name.starts_with("__"),
            },
        };
        let (_, cluster) = watch::channel(joined.then_some(view));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = AdminState {
            readiness: shown,
            registry: Arc::new(registry),
            cluster,
            token,
        };
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, state, async move {
            stopped.await.ok();
        }));
        Self {
            address,
            readiness,
            stop: Some(stop),
            serving,
            admin,
            peers,
            controller,
        }
    }

    /// Status, headers and body of the answer.
    pub(super) async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        self.send(method, path, &[], "").await
    }

    /// Status and body of the answer, which is JSON.
    pub(super) async fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, _, answer) = self.send(method, path, &[], body).await;
        let read = if answer.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&answer).unwrap()
        };
        (status, read)
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> (u16, String, String) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    /// The id of a partition.
    pub(super) fn partition(&self, topic: &str, index: u32) -> PartitionId {
        let image = self.controller.image().borrow().clone();
        PartitionId {
            topic: image.topic(topic).unwrap().id,
            index: PartitionIndex::new(index).unwrap(),
        }
    }
}

/// The kind of a problem, without what all have in common.
pub(super) fn kind(problem: &Value) -> &str {
    let uri = problem["type"].as_str().unwrap();
    uri.strip_prefix("urn:tidegate:problem:").unwrap_or(uri)
}
