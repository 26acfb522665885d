//! Joining the cluster: find the controller or become it, register, fence what a former life may still be writing,
//! take leadership.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::admin::ClusterAdmin;
use tidegate_cluster::conductor::{Conductor, ConductorMetrics, ConductorOptions};
use tidegate_cluster::member::{
    Conducted, ConductorFactory, LoadReport, Member, MemberIdentity, MemberSeams, MemberSettings,
    MetadataHost, SessionState, Term,
};
use tidegate_cluster::orders::Peers;
use tidegate_cluster::rpc::{
    self, ClientOptions, Connections, LocalBroker, RemotePeers, ServerOptions, Services,
};
use tidegate_cluster::session::{Heartbeat, Hello, PROTOCOL_VERSION};
use tidegate_cluster::view::{ClusterView, TopicRules};
use tidegate_metadata::api::{
    LeadershipTaken, RegisterBroker, RegisterBrokerError, Registered, TakeLeadership,
    TakeLeadershipError,
};
use tidegate_metadata::lease::LeaseRow;
use tidegate_metadata::store::{SlateOpener, SlateOptions};
use tidegate_metadata::{
    ClusterImage, ControllerApi, ControllerHandle, ControllerOptions, ObjectCommit, WriterState,
};
use tidegate_object_storage::RequestClass;
use tidegate_partition_log::{ObjectLog, recovered_commit};
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{BrokerEpoch, BrokerId, DurabilityMode};
use tidegate_wal::object::{FencedWriter, fence_and_collect};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::leaving::Leaving;
use super::start::Readiness;
use super::startup::{Fatal, Startup};
use crate::catalog::is_internal;
use crate::config::topic_config;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Load is measured over at least this time.
const RATE_WINDOW: Duration = Duration::from_millis(1_000);
/// The folder of the metadata, relative to the store's prefix.
pub(super) const METADATA: &str = "meta";

/// This broker as a member of the cluster, registered.
pub(super) struct Joined {
    pub(super) cluster_id: String,
    pub(super) broker: BrokerId,
    pub(super) broker_epoch: BrokerEpoch,
    pub(super) member: Member,
    pub(super) controller: Arc<dyn ControllerApi>,
    pub(super) admin: Arc<dyn ClusterAdmin>,
    pub(super) images: watch::Receiver<Arc<ClusterImage>>,
    pub(super) peers: Arc<dyn Peers>,
    pub(super) registered: Registered,
}

/// Counts that only grow, turned into rates per second.
struct Rates {
    at: Instant,
    counts: [u64; 3],
    rates: [u64; 3],
}

impl Rates {
    fn new(now: Instant) -> Self {
        Self {
            at: now,
            counts: [0; 3],
            rates: [0; 3],
        }
    }

    /// The rates since the last update, or since the one before if that was a moment ago.
    fn update(&mut self, now: Instant, counts: [u64; 3]) -> (u64, u64, u64) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        if passed >= RATE_WINDOW.as_secs_f64() {
            for ((rate, before), count) in self.rates.iter_mut().zip(&self.counts).zip(counts) {
                *rate = (count.saturating_sub(*before) as f64 / passed) as u64;
            }
            (self.at, self.counts) = (now, counts);
        }
        let [bytes_in, bytes_out, requests] = self.rates;
        (bytes_in, bytes_out, requests)
    }
}

/// Starts the conductor whenever this broker is elected.
struct Conducting {
    connections: Connections,
    local: Arc<LocalBroker>,
    fencing: Arc<ObjectLog>,
    options: ConductorOptions,
    clock: SharedClock,
    metrics: ConductorMetrics,
}

impl ConductorFactory for Conducting {
    fn start(&self, controller: &ControllerHandle, term: &Term, tasks: &Tasks) -> Conducted {
        let mut options = self.options.clone();
        options.me = term.me;
        options.presumed_dead = term.presumed_dead().into_iter().collect();
        let peers = RemotePeers::new(self.connections.clone(), term.me, self.local.clone());
        let conductor = Arc::new(Conductor::start(
            controller.clone(),
            Arc::new(peers),
            self.fencing.clone(),
            options,
            self.clock.clone(),
            tasks,
            self.metrics.clone(),
        ));
        Conducted {
            sessions: conductor.clone(),
            admin: conductor,
        }
    }
}

impl Startup {
    /// Joins the cluster and registers. From then on the session says that this broker lives.
    pub(super) async fn join(&mut self, internal: TcpListener) -> Result<Joined, Fatal> {
        let incarnation = Uuid::new_v4();
        let connections = Connections::new(ClientOptions::default(), self.metrics.rpc.clone());
        let local = Arc::new(LocalBroker {
            orders: self.services.clone(),
            tails: self.services.clone(),
            queries: self.queries.clone(),
            transactions: self.transactions.clone(),
        });
        let member = self.start_member(incarnation, connections.clone(), local.clone());
        self.serve_brokers(internal, &member, local.clone());
        let cluster_id = self.await_cluster(&member).await?;
        self.identity
            .join_cluster(&self.settings.data_dir, &cluster_id)?;
        self.step("registering");
        let controller = member.controller();
        let registered = self.register(&member, incarnation).await?;
        let broker = registered.broker;
        self.identity.keep_broker(&self.settings.data_dir, broker)?;
        let hello = Hello {
            broker,
            broker_epoch: registered.broker_epoch,
            incarnation,
            wal: Some(self.identity.wal),
            kafka: Some(self.advertised.clone()),
            protocol_version: PROTOCOL_VERSION,
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            features: Vec::new(),
        };
        member.begin_session(hello, self.load_report());
        self.watch_membership(&member);
        let admin = member.admin();
        self.leave.send_replace(Some(Leaving {
            broker,
            member: member.clone(),
            admin: admin.clone(),
        }));
        let mut images = member.images();
        // The session's first picture shows this registration.
        let registered_image = images.wait_for(|image| {
            image
                .broker(broker)
                .is_some_and(|row| row.broker_epoch >= registered.broker_epoch)
        });
        registered_image.await.map_err(|_| Fatal::Interrupted)?;
        let peers: Arc<dyn Peers> = Arc::new(RemotePeers::new(connections, broker, local));
        self.cluster.send_replace(Some(ClusterView {
            me: broker,
            admin: admin.clone(),
            controller: controller.clone(),
            images: images.clone(),
            peers: peers.clone(),
            topics: self.topic_rules(),
        }));
        Ok(Joined {
            cluster_id,
            broker,
            broker_epoch: registered.broker_epoch,
            controller,
            admin,
            images,
            peers,
            registered,
            member,
        })
    }

    fn topic_rules(&self) -> TopicRules {
        let options = &self.settings.broker;
        TopicRules {
            default_partitions: options.default_partitions,
            default_replication_factor: options.default_replication_factor,
            check_config: |name, value| {
                let checked = topic_config(name).and_then(|config| config.check(value));
                checked.map_err(|invalid| invalid.to_string())
            },
            is_internal,
        }
    }

    fn start_member(
        &self,
        incarnation: Uuid,
        connections: Connections,
        local: Arc<LocalBroker>,
    ) -> Member {
        let cluster = self.settings.cluster;
        let mut settings = MemberSettings::new(MemberIdentity {
            incarnation,
            wal: self.identity.wal,
            internal: self.internal_endpoint.clone(),
            broker: self.identity.broker,
        });
        settings.lease = cluster.lease;
        settings.session_timeout = cluster.session_timeout;
        // The term says who runs it.
        let me = BrokerId::new(1).expect("1 is a broker id");
        let mut conducting = ConductorOptions::new(me);
        conducting.session_timeout = cluster.session_timeout;
        conducting.balance.enabled = cluster.balance;
        let mut options = ControllerOptions::new(me);
        options.default_durability = self.default_durability();
        let opener = SlateOpener::new(
            self.storage.raw(),
            METADATA,
            SlateOptions::default(),
            self.clock.clone(),
        );
        let host = MetadataHost {
            opener: Arc::new(opener),
            options,
            clock: self.clock.clone(),
            metrics: self.metrics.controller.clone(),
            conductor: Arc::new(Conducting {
                connections: connections.clone(),
                local,
                fencing: Arc::new(ObjectLog::new(self.storage.with_class(RequestClass::Read))),
                options: conducting,
                clock: self.clock.clone(),
                metrics: self.metrics.conductor.clone(),
            }),
        };
        let seams = MemberSeams {
            lease: Arc::new(LeaseRow::new(self.storage.raw(), "")),
            host: Arc::new(host),
            reach: Arc::new(connections),
            clock: self.clock.clone(),
            tasks: self.tasks.clone(),
        };
        Member::start(settings, seams)
    }

    /// Answers other brokers from now on.
    fn serve_brokers(&self, internal: TcpListener, member: &Member, local: Arc<LocalBroker>) {
        let (_, broker) = watch::channel(Some(local));
        let services = Services {
            controller: member.active(),
            known_controller: member.known_controller(),
            broker,
        };
        rpc::serve(
            internal,
            services,
            ServerOptions::default(),
            self.metrics.rpc.clone(),
            &self.tasks.child("rpc"),
        );
    }

    /// Waits until the cluster is known: its controller was found, or is here.
    async fn await_cluster(&self, member: &Member) -> Result<String, Fatal> {
        let mut images = member.images();
        let mut fatal = member.fatal();
        // Cancel-safe: both are watched again.
        tokio::select! {
            known = images.wait_for(|image| !image.cluster_id().is_empty()) => {
                known.map(|image| image.cluster_id().to_owned()).map_err(|_| Fatal::Interrupted)
            }
            found = fatal.wait_for(Option::is_some) => Err(match found.as_deref() {
                Ok(Some(fatal)) => Fatal::Member(fatal.clone()),
                Ok(None) | Err(_) => Fatal::Interrupted,
            }),
        }
    }

    /// What the controller is told with every heartbeat.
    fn load_report(&self) -> LoadReport {
        let (services, metrics) = (self.services.clone(), self.metrics.broker.clone());
        let clock = self.clock.clone();
        let rates = parking_lot::Mutex::new(Rates::new(clock.now()));
        Arc::new(move || {
            let counts = metrics.load_counts();
            let (bytes_in_per_s, bytes_out_per_s, requests_per_s) =
                rates.lock().update(clock.now(), counts);
            Heartbeat {
                led_partitions: services.led_partitions(),
                bytes_in_per_s,
                bytes_out_per_s,
                requests_per_s,
                ..Heartbeat::default()
            }
        })
    }

    /// Shows what ends this life: the cluster has gone on without this broker, or this broker can't be part of it.
    fn watch_membership(&self, member: &Member) {
        let (mut session, mut fatal) = (member.session(), member.fatal());
        let (stage, token) = (self.stage.clone(), self.tasks.token().clone());
        self.tasks
            .spawn("membership", OnExit::Expected, async move {
                // Cancel-safe: whichever comes first ends this life.
                let last = tokio::select! {
                    () = token.cancelled() => return,
                    Ok(fenced) = session.wait_for(|s| matches!(s, SessionState::Fenced { .. })) => {
                        match &*fenced {
                            SessionState::Fenced { cause } => Readiness::Fenced { cause: cause.clone() },
                            _ => return,
                        }
                    }
                    Ok(fatal) = fatal.wait_for(Option::is_some) => match &*fatal {
                        Some(fatal) => Readiness::Failed { cause: fatal.to_string() },
                        None => return,
                    },
                    else => return,
                };
                warn!(now = ?last, "this life of the broker is over");
                stage.send_replace(last);
            });
    }

    fn default_durability(&self) -> DurabilityMode {
        let defaults = &self.settings.broker.topic_defaults;
        defaults
            .value("tidegate.durability")
            .parse()
            .unwrap_or(DurabilityMode::Local)
    }

    async fn register(&self, member: &Member, incarnation: Uuid) -> Result<Registered, Fatal> {
        let controller = member.controller();
        let request = RegisterBroker {
            broker: self.identity.broker,
            incarnation,
            wal: Some(self.identity.wal),
            kafka: self.advertised.clone(),
            internal: Some(self.internal_endpoint.clone()),
            rack: self.settings.rack.clone(),
        };
        // A former life of this broker may have a session until it lapses.
        retried(
            "register",
            || controller.register_broker(request.clone()),
            |error| {
                matches!(
                    error,
                    RegisterBrokerError::Unavailable(_) | RegisterBrokerError::Duplicate { .. }
                )
            },
        )
        .await
        .map_err(Fatal::Register)
    }

    /// Makes sure that a former life of this broker can acknowledge nothing more in `object` mode, and finds what
    /// it acknowledged without committing it.
    pub(super) async fn fence_former(
        &self,
        registered: &Registered,
    ) -> Result<Vec<ObjectCommit>, Fatal> {
        let Some(WriterState {
            broker_epoch,
            next_wal_sequence,
        }) = registered.former_writer
        else {
            return Ok(Vec::new());
        };
        self.step("recovering the object WAL");
        let store = ObjectLog::new(self.storage.with_class(RequestClass::Read));
        let me = tidegate_segment_format::WriterIdentity {
            broker: registered.broker,
            broker_epoch: registered.broker_epoch,
            sequence: 0,
            nonce: self.random.next_u64(),
        };
        let mut pause = FIRST_RETRY;
        loop {
            match fence_and_collect(
                &store,
                registered.broker,
                broker_epoch,
                next_wal_sequence,
                me,
            )
            .await
            {
                Ok(FencedWriter { objects, .. }) => {
                    if !objects.is_empty() {
                        info!(objects = objects.len(), broker_epoch = %broker_epoch, "recovered the object WAL of a former life");
                    }
                    return Ok(objects.iter().map(recovered_commit).collect());
                }
                Err(error) if error.is_retriable() => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "recovery of the object WAL is tried again"
                    );
                }
                Err(source) => {
                    return Err(Fatal::ObjectWal {
                        epoch: broker_epoch,
                        source,
                    });
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    pub(super) async fn take_leadership(
        &self,
        joined: &Joined,
        recovered: Vec<ObjectCommit>,
    ) -> Result<LeadershipTaken, Fatal> {
        // After the registration: nobody but this broker ends the logs that it leads.
        let states = retried(
            "read the partitions' states",
            || {
                joined
                    .controller
                    .partition_states(self.recovered.partitions())
            },
            |_| true,
        )
        .await
        .unwrap_or_else(|_| unreachable!("every failure to read is retried"));
        let states: Vec<tidegate_metadata::PartitionState> = states.into_iter().flatten().collect();
        let request = TakeLeadership {
            broker: joined.broker,
            broker_epoch: joined.broker_epoch,
            wal: Some(self.identity.wal),
            fenced_writer: joined.registered.former_writer.map(|w| w.broker_epoch),
            recovered,
            ends: self.recovered.ends(&states),
            accept_loss: self.settings.accept_loss,
        };
        let retriable =
            |error: &TakeLeadershipError| matches!(error, TakeLeadershipError::Unavailable(_));
        let taken = retried(
            "take leadership",
            || joined.controller.take_leadership(request.clone()),
            retriable,
        )
        .await;
        let taken = taken.map_err(Fatal::Leadership)?;
        for withheld in &taken.withheld {
            error!(partition = %withheld.partition, reason = ?withheld.reason, "partition stays offline: acknowledged records are missing; restart with the data folder that holds them, or with --accept-loss");
        }
        for loss in &taken.lost {
            error!(partition = %loss.partition, from = %loss.from, known_to = ?loss.known_to, "records given up by --accept-loss");
        }
        Ok(taken)
    }
}

/// Repeats an idempotent request until it is answered or refused for good.
async fn retried<T, E, F>(
    what: &'static str,
    request: impl Fn() -> F,
    retriable: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    E: std::error::Error + 'static,
{
    let mut pause = FIRST_RETRY;
    loop {
        match request().await {
            Err(error) if retriable(&error) => {
                warn!(
                    what,
                    error = &error as &dyn std::error::Error,
                    "the controller is asked again"
                );
            }
            answered => return answered,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
}
