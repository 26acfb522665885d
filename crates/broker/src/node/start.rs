//! The first half of start-up: what concerns this machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use prometheus_client::registry::Registry;
use tidegate_cluster::conductor::ConductorMetrics;
use tidegate_cluster::rpc::RpcMetrics;
use tidegate_cluster::view::ClusterView;
use tidegate_metadata::{ControllerMetrics, Endpoint};
use tidegate_object_storage::{OpenError as StoreOpenError, StorePlan, StoreSeams};
use tidegate_partition_log::{ReadMetrics, UploadMetrics};
use tidegate_runtime::{OnExit, Random, RealDisk, SystemClock, Tasks};
use tidegate_types::BrokerId;
use tidegate_wal::local::{
    LocalWal, LocalWalMetrics, LocalWalOptions, LocalWalSeams, OpenError as WalOpenError, WalDir,
    Workers,
};
use tidegate_wal::object::ObjectWalMetrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;
use uuid::Uuid;

use super::identity::{Identity, IdentityError};
use super::leaving::Leaving;
use super::recovery::RecoveredLogs;
use super::settings::NodeSettings;
use super::startup::Startup;
use crate::compaction::CompactionMetrics;
use crate::metrics::BrokerMetrics;
use crate::network::{ListenError, Listener};

/// Whether the broker serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Starting {
        step: &'static str,
    },
    Ready,
    /// It waits for the store; it heals by itself.
    StoreInaccessible {
        cause: String,
    },
    /// It can't go on: the process should end.
    Failed {
        cause: String,
    },
    /// The cluster has taken this broker for dead or replaced it: this life is over, another one may begin.
    Fenced {
        cause: String,
    },
}

/// Why a broker can't start here. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("can't create data folder {}", path.display())]
    DataDir { path: PathBuf, source: io::Error },
    #[error(
        "can't listen for Kafka clients on {address}: use another --kafka-listen, or stop what holds the port"
    )]
    Kafka {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "can't take {address} for other brokers: use another --internal-listen, or stop what holds the port"
    )]
    Internal {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "--kafka-listen {0} is no address that clients can be sent to: name one with --kafka-advertise HOST:PORT"
    )]
    Unadvertisable(SocketAddr),
    #[error("can't use this store")]
    Store(#[from] StoreOpenError),
    #[error("can't open the write-ahead log")]
    Wal(#[from] WalOpenError),
    #[error("the write-ahead log's recovery was interrupted")]
    Interrupted,
}

/// What a broker serves, for the start line.
#[derive(Debug, Clone)]
pub struct NodeSummary {
    /// `None`: the cluster gives it a number when it joins.
    pub broker: Option<BrokerId>,
    pub kafka: SocketAddr,
    pub advertised: Endpoint,
    pub bucket: String,
    pub data_dir: PathBuf,
    pub recovered_entries: u64,
    pub recovered_bytes: u64,
}

/// Metrics of all parts, registered once.
#[derive(Clone)]
pub(super) struct NodeMetrics {
    pub(super) broker: BrokerMetrics,
    pub(super) read: ReadMetrics,
    pub(super) upload: UploadMetrics,
    pub(super) compaction: CompactionMetrics,
    pub(super) object_wal: ObjectWalMetrics,
    pub(super) controller: ControllerMetrics,
    pub(super) conductor: ConductorMetrics,
    pub(super) rpc: RpcMetrics,
}

/// A broker process. Dropping it doesn't stop it: see [`Node::stop`].
pub struct Node {
    summary: NodeSummary,
    readiness: watch::Receiver<Readiness>,
    tasks: Tasks,
    local_wal: LocalWal,
    leaving: watch::Receiver<Option<Leaving>>,
    cluster: watch::Receiver<Option<ClusterView>>,
}

impl Node {
    /// Checks everything on this machine, opens the local WAL and starts the rest in the background.
    ///
    /// # Errors
    /// What an operator must mend. Nothing was written then, unless the data folder was this broker's already.
    pub async fn start(
        settings: NodeSettings,
        registry: &mut Registry,
        tasks: Tasks,
    ) -> Result<Self, StartError> {
        let clock = SystemClock::shared();
        let random = Random::from_system();
        let found = Identity::read(&settings.data_dir)?;
        if let Some(identity) = &found {
            identity.check_broker(&settings.data_dir, settings.broker_id)?;
        }
        let listener = Listener::bind(settings.kafka_listen)
            .map_err(|ListenError { address, source }| StartError::Kafka { address, source })?;
        let advertised = advertised(&settings, listener.address())?;
        let (internal, internal_endpoint) = listen_internal(&settings, &advertised)?;
        let metrics = register_metrics(registry);
        let wal_metrics = LocalWalMetrics::default();
        wal_metrics.register(registry);
        let seams = StoreSeams {
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
        };
        let store = StorePlan::new(
            &settings.store,
            settings.store_options.clone(),
            &seams,
            registry,
        )?;
        let disk = RealDisk::shared();
        // The first that is written. Whoever holds the data folder isn't disturbed, and nothing is made for him.
        create_dir(&settings.data_dir)?;
        let wal_dir = WalDir::take(&settings.data_dir.join("wal"), &*disk)?;
        if store.is_empty()
            && let Some(identity) = &found
        {
            identity.check_empty_store(&settings.data_dir, &settings.store)?;
        }
        let storage = store.open()?;
        let wal_seams = LocalWalSeams {
            disk,
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
            metrics: wal_metrics,
        };
        let (local_wal, logs, recovered) = open_wal(wal_dir, &settings, wal_seams).await?;
        let identity = match found {
            Some(identity) => identity,
            None => new_identity(&settings)?,
        };
        let summary = NodeSummary {
            broker: identity.broker,
            kafka: listener.address(),
            advertised: advertised.clone(),
            bucket: storage.bucket().to_owned(),
            data_dir: settings.data_dir.clone(),
            recovered_entries: recovered.0,
            recovered_bytes: recovered.1,
        };
        let (sender, readiness) = watch::channel(Readiness::Starting {
            step: "opening the metadata",
        });
        let (leave, leaving) = watch::channel(None);
        let (joined, cluster) = watch::channel(None);
        let startup = Startup {
            settings,
            identity,
            advertised,
            internal_endpoint,
            leave,
            cluster: joined,
            services: Arc::default(),
            queries: Arc::default(),
            transactions: Arc::default(),
            storage,
            local_wal: local_wal.clone(),
            recovered: logs,
            clock,
            random,
            tasks: tasks.clone(),
            metrics,
            stage: watch::Sender::new(Readiness::Starting {
                step: "opening the metadata",
            }),
            readiness: sender,
        };
        tasks.spawn("startup", OnExit::Expected, startup.run(listener, internal));
        Ok(Self {
            summary,
            readiness,
            tasks,
            local_wal,
            leaving,
            cluster,
        })
    }

    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// The cluster, once this broker has joined it.
    pub fn cluster(&self) -> watch::Receiver<Option<ClusterView>> {
        self.cluster.clone()
    }

    pub fn summary(&self) -> &NodeSummary {
        &self.summary
    }

    /// Gives what this broker leads to others, stops accepting, lets what was appended become durable, and gives the
    /// data folder back.
    pub async fn stop(self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let leaving = self.leaving.borrow().clone();
        if let Some(leaving) = leaving {
            // The rest needs time too.
            leaving.leave(patience * 3 / 4).await;
        }
        let patience = deadline.saturating_duration_since(Instant::now());
        info!("stopping");
        if let Err(error) = self.tasks.shutdown(patience).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "some tasks didn't stop in time"
            );
        }
        if let Err(error) = self.local_wal.close(patience).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the write-ahead log didn't close in time; it is recovered at the next start"
            );
        }
    }
}

fn register_metrics(registry: &mut Registry) -> NodeMetrics {
    let metrics = NodeMetrics {
        broker: BrokerMetrics::default(),
        read: ReadMetrics::default(),
        upload: UploadMetrics::default(),
        compaction: CompactionMetrics::default(),
        object_wal: ObjectWalMetrics::default(),
        controller: ControllerMetrics::register(registry),
        conductor: ConductorMetrics::register(registry),
        rpc: RpcMetrics::register(registry),
    };
    metrics.broker.register(registry);
    metrics.read.register(registry);
    metrics.upload.register(registry);
    metrics.compaction.register(registry);
    metrics.object_wal.register(registry);
    metrics
}

fn create_dir(path: &Path) -> Result<(), StartError> {
    fs::create_dir_all(path).map_err(|source| StartError::DataDir {
        path: path.to_owned(),
        source,
    })
}

fn new_identity(settings: &NodeSettings) -> Result<Identity, StartError> {
    let identity = Identity {
        cluster: None,
        broker: settings.broker_id,
        wal: Uuid::new_v4(),
    };
    identity.write(&settings.data_dir)?;
    Ok(identity)
}

/// Where clients are told to connect.
fn advertised(settings: &NodeSettings, bound: SocketAddr) -> Result<Endpoint, StartError> {
    match &settings.kafka_advertise {
        Some(endpoint) => Ok(endpoint.clone()),
        None if bound.ip().is_unspecified() => Err(StartError::Unadvertisable(bound)),
        None => Ok(Endpoint {
            host: bound.ip().to_string(),
            port: bound.port(),
        }),
    }
}

/// Takes the port for other brokers, and says where they reach it: at the address listened on, or, where that means
/// all of them, at the host that clients are told.
fn listen_internal(
    settings: &NodeSettings,
    advertised: &Endpoint,
) -> Result<(TcpListener, Endpoint), StartError> {
    let address = settings.internal_listen;
    let bind = || -> io::Result<(TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, bound))
    };
    let (listener, bound) = bind().map_err(|source| StartError::Internal { address, source })?;
    let host = match bound.ip() {
        ip if ip.is_unspecified() => advertised.host.clone(),
        ip => ip.to_string(),
    };
    let endpoint = settings.internal_advertise.clone().unwrap_or(Endpoint {
        host,
        port: bound.port(),
    });
    Ok((listener, endpoint))
}

async fn open_wal(
    dir: WalDir,
    settings: &NodeSettings,
    seams: LocalWalSeams,
) -> Result<(LocalWal, RecoveredLogs, (u64, u64)), StartError> {
    let options = LocalWalOptions {
        file_bytes: settings.wal.file_bytes,
        capacity_bytes: settings.wal.capacity_bytes,
        pending_bytes: settings.wal.pending_bytes,
        workers: Workers::Threads,
    };
    let opened = tokio::task::spawn_blocking(move || {
        let mut logs = RecoveredLogs::default();
        let opened = LocalWal::open_in(dir, &options, seams, &mut |entry| logs.add(&entry));
        opened.map(|(wal, recovered)| (wal, logs, (recovered.entries, recovered.batch_bytes)))
    });
    Ok(opened.await.map_err(|_| StartError::Interrupted)??)
}
