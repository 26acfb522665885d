//! The second half of start-up: what needs object storage.
//!
//! In order: open the metadata, register, fence what a former life of this broker may still be writing, take
//! leadership, open the logs, serve. Every step may be repeated; a step that can't reach the store is tried again.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt;
use tidegate_metadata::api::{
    LeadershipTaken, RegisterBroker, Registered, TakeLeadership, TakeLeadershipError,
};
use tidegate_metadata::store::{SlateOpener, SlateOptions};
use tidegate_metadata::{
    Controller, ControllerApi, ControllerHandle, ControllerOptions, Endpoint, ObjectCommit,
    OpenError, WriterState,
};
use tidegate_object_storage::{ObjectStorage, RequestClass, StoreHealth};
use tidegate_partition_log::{
    LogContext, LogOpener, LogReader, LogSet, ObjectBacklog, ObjectCommitter, ObjectLog,
    ReaderLimits, SegmentReader, TailBudget, Uploader, Writer, recovered_commit,
};
use tidegate_runtime::{OnExit, Random, SharedClock, Tasks};
use tidegate_types::BrokerEpoch;
use tidegate_wal::local::LocalWal;
use tidegate_wal::object::{
    FencedWriter, InvalidObjectWalOptions, LogWriter, ObjectWal, ObjectWalOptions, ObjectWalSeams,
    RecoveryError, fence_and_collect,
};
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::identity::Identity;
use super::reconcile::Reconciler;
use super::recovery::RecoveredLogs;
use super::retention::Retention;
use super::settings::NodeSettings;
use super::start::{NodeMetrics, Readiness};
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::fetch_session::{FetchSessions, SessionLimits};
use crate::groups::GroupHost;
use crate::network::Listener;
use crate::producer_ids::ProducerIds;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The folder of the metadata, relative to the store's prefix.
const METADATA: &str = "meta";
/// `max.incremental.fetch.session.cache.slots` and the partitions in all of them.
const SESSIONS: SessionLimits = SessionLimits {
    sessions: 1000,
    partitions: 200_000,
    evict_after: Duration::from_secs(120),
};

/// Everything that the second half needs.
pub(super) struct Startup {
    pub(super) settings: NodeSettings,
    pub(super) identity: Identity,
    pub(super) advertised: Endpoint,
    pub(super) storage: ObjectStorage,
    pub(super) local_wal: LocalWal,
    pub(super) recovered: RecoveredLogs,
    pub(super) clock: SharedClock,
    pub(super) random: Random,
    pub(super) tasks: Tasks,
    pub(super) metrics: NodeMetrics,
    /// How far start-up has come.
    pub(super) stage: watch::Sender<Readiness>,
    /// What is shown: the stage, or that the store can't be used.
    pub(super) readiness: watch::Sender<Readiness>,
}

/// Why this process can't become a broker, however often it tries.
#[derive(Debug, thiserror::Error)]
enum Fatal {
    #[error(transparent)]
    Metadata(#[from] OpenError),
    #[error(transparent)]
    Identity(#[from] super::identity::IdentityError),
    #[error("leadership can't be taken")]
    Leadership(#[source] TakeLeadershipError),
    #[error("the object WAL of broker epoch {epoch} can't be recovered")]
    ObjectWal {
        epoch: BrokerEpoch,
        source: RecoveryError,
    },
    #[error(transparent)]
    ObjectWalOptions(#[from] InvalidObjectWalOptions),
    #[error("the API table is inconsistent")]
    Advertise(#[from] tidegate_kafka_wire::api::AdvertiseError),
}

impl Startup {
    pub(super) async fn run(self, listener: Listener) {
        let token = self.tasks.token().clone();
        let stage = self.stage.clone();
        // Cancel-safe: a process that stops while it starts leaves nothing half done that the next start minds.
        let result = tokio::select! {
            () = token.cancelled() => return,
            result = Box::pin(self.become_broker(listener)) => result,
        };
        if let Err(fatal) = result {
            let cause = chain(&fatal);
            error!(cause, "this broker can't start");
            stage.send_replace(Readiness::Failed { cause });
        }
    }

    async fn become_broker(mut self, listener: Listener) -> Result<(), Fatal> {
        self.watch_store();
        self.find_cluster().await?;
        let controller = self.open_metadata().await?;
        let cluster_id = controller.image().borrow().cluster_id().to_owned();
        self.identity
            .join_cluster(&self.settings.data_dir, &cluster_id)?;
        self.step("registering");
        let registered = self.register(&controller).await;
        let recovered = self.fence_former(&registered).await?;
        self.step("taking leadership");
        let taken = self
            .take_leadership(&controller, &registered, recovered)
            .await?;
        self.step("opening partitions");
        let parts = self.build(&controller, registered.broker_epoch)?;
        self.open_logs(&controller, &parts, taken).await;
        self.serve(
            controller,
            cluster_id,
            parts,
            registered.broker_epoch,
            listener,
        )
        .await
    }

    fn step(&self, step: &'static str) {
        self.stage.send_replace(Readiness::Starting { step });
    }

    /// Shows how far this broker has come, or, while the store can't be used, that.
    fn watch_store(&self) {
        let mut health = self.storage.health();
        let mut stage = self.stage.subscribe();
        let readiness = self.readiness.clone();
        let token = self.tasks.token().clone();
        self.tasks.spawn("readiness", OnExit::Expected, async move {
            loop {
                let now = stage.borrow_and_update().clone();
                let now = match (&*health.borrow_and_update(), now) {
                    (_, failed @ Readiness::Failed { .. }) => failed,
                    (StoreHealth::Inaccessible { cause, bucket, .. }, _) => {
                        Readiness::StoreInaccessible {
                            cause: format!("{bucket}: {cause}"),
                        }
                    }
                    (StoreHealth::Accessible, stage) => stage,
                };
                readiness.send_if_modified(|shown| {
                    let changed = *shown != now;
                    *shown = now;
                    changed
                });
                // Cancel-safe: both states are read again in the next round. A start that fails drops the store
                // before it says why, so the end of `health` isn't the end of this.
                tokio::select! {
                    () = token.cancelled() => return,
                    Ok(()) = health.changed() => {}
                    changed = stage.changed() => if changed.is_err() { return },
                }
            }
        });
    }

    /// Makes sure that a folder which belongs to a cluster finds one: opening the metadata would create a new one
    /// in an empty store, which is refused too late then.
    async fn find_cluster(&self) -> Result<(), Fatal> {
        if self.identity.cluster.is_none() {
            return Ok(());
        }
        let storage = self.storage.with_class(RequestClass::Read);
        let mut pause = FIRST_RETRY;
        loop {
            match storage.list(METADATA).next().await {
                Some(Ok(_)) => return Ok(()),
                None => {
                    let (dir, store) = (&self.settings.data_dir, &self.settings.store);
                    return Ok(self.identity.check_empty_store(dir, store)?);
                }
                // No answer says nothing about what is stored.
                Some(Err(error)) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "metadata can't be looked for yet"
                    );
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    async fn open_metadata(&self) -> Result<ControllerHandle, Fatal> {
        let opener = Arc::new(SlateOpener::new(
            self.storage.raw(),
            METADATA,
            SlateOptions::default(),
            self.clock.clone(),
        ));
        let mut options = ControllerOptions::new(self.identity.broker);
        options.default_durability = self.default_durability();
        let mut pause = FIRST_RETRY;
        loop {
            let opened = Box::pin(Controller::open(
                opener.clone(),
                options.clone(),
                self.clock.clone(),
                Box::new(Uuid::new_v4),
                self.metrics.controller.clone(),
            ))
            .await;
            match opened {
                Ok((handle, task)) => {
                    let token = self.tasks.token().clone();
                    self.tasks
                        .spawn("controller", OnExit::StopProcess, async move {
                            let exit = Box::pin(task.run(token.cancelled_owned())).await;
                            info!(reason = %exit, "controller ended");
                        });
                    return Ok(handle);
                }
                Err(error) if error.is_retriable() => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "metadata can't be opened yet"
                    );
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    fn default_durability(&self) -> tidegate_types::DurabilityMode {
        let defaults = &self.settings.broker.topic_defaults;
        defaults
            .value("tidegate.durability")
            .parse()
            .unwrap_or(tidegate_types::DurabilityMode::Local)
    }

    async fn register(&self, controller: &ControllerHandle) -> Registered {
        let request = RegisterBroker {
            broker: Some(self.identity.broker),
            incarnation: Uuid::new_v4(),
            kafka: self.advertised.clone(),
            internal: None,
            rack: self.settings.rack.clone(),
            wal: Some(self.identity.wal),
        };
        retried(
            "register",
            || controller.register_broker(request.clone()),
            |_| true,
        )
        .await
        .unwrap_or_else(|_| unreachable!("every failure to register is retried"))
    }

    /// Makes sure that a former life of this broker can acknowledge nothing more in `object` mode, and finds what
    /// it acknowledged without committing it.
    async fn fence_former(&self, registered: &Registered) -> Result<Vec<ObjectCommit>, Fatal> {
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
            broker: self.identity.broker,
            broker_epoch: registered.broker_epoch,
            sequence: 0,
            nonce: self.random.next_u64(),
        };
        let mut pause = FIRST_RETRY;
        loop {
            match fence_and_collect(
                &store,
                self.identity.broker,
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

    async fn take_leadership(
        &self,
        controller: &ControllerHandle,
        registered: &Registered,
        recovered: Vec<ObjectCommit>,
    ) -> Result<LeadershipTaken, Fatal> {
        // After the registration: nobody but this broker ends the logs that it leads.
        let states = retried(
            "read the partitions' states",
            || controller.partition_states(self.recovered.partitions()),
            |_| true,
        )
        .await
        .unwrap_or_else(|_| unreachable!("every failure to read is retried"));
        let states: Vec<tidegate_metadata::PartitionState> = states.into_iter().flatten().collect();
        let request = TakeLeadership {
            broker: self.identity.broker,
            broker_epoch: registered.broker_epoch,
            wal: Some(self.identity.wal),
            fenced_writer: registered.former_writer.map(|w| w.broker_epoch),
            recovered,
            ends: self.recovered.ends(&states),
            accept_loss: self.settings.accept_loss,
        };
        let retriable =
            |error: &TakeLeadershipError| matches!(error, TakeLeadershipError::Unavailable(_));
        let taken = retried(
            "take leadership",
            || controller.take_leadership(request.clone()),
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

    fn build(
        &self,
        controller: &ControllerHandle,
        broker_epoch: BrokerEpoch,
    ) -> Result<Parts, Fatal> {
        let settings = &self.settings;
        let writer = Writer {
            broker: self.identity.broker,
            broker_epoch,
            nonce: self.random.next_u64(),
        };
        let logs = Arc::new(LogSet::default());
        let memory = settings.memory;
        let limits = ReaderLimits {
            block_cache_bytes: memory.block_cache_bytes,
            index_cache_bytes: memory.index_cache_bytes,
            in_flight_bytes: memory.catch_up_bytes,
        };
        let read_storage = self.storage.with_class(RequestClass::Read);
        let segments = SegmentReader::new(
            read_storage,
            limits,
            self.tasks.clone(),
            self.metrics.read.clone(),
        );
        let options = ObjectWalOptions {
            max_object_bytes: settings.object_wal.object_bytes,
            max_linger: settings.object_wal.linger,
            max_in_flight: settings.object_wal.in_flight,
            pending_bytes: settings.object_wal.pending_bytes,
            block_target_bytes: settings.upload.block_bytes,
            ..ObjectWalOptions::default()
        };
        let backlog = Arc::new(ObjectBacklog::new(logs.clone(), self.clock.clone()));
        let log_writer = LogWriter {
            broker: writer.broker,
            broker_epoch,
            first_sequence: 0,
        };
        let seams = ObjectWalSeams {
            store: Arc::new(ObjectLog::new(self.storage.with_class(RequestClass::Wal))),
            clock: self.clock.clone(),
            random: self.random.clone(),
            tasks: self.tasks.clone(),
            metrics: self.metrics.object_wal.clone(),
        };
        let object_wal = ObjectWal::start(log_writer, options, backlog.clone(), seams)?;
        let context = Arc::new(LogContext {
            clock: self.clock.clone(),
            local_wal: Arc::new(self.local_wal.clone()),
            object_wal: Arc::new(object_wal.clone()),
            tail_budget: Arc::new(TailBudget::new(memory.tail_bytes)),
            producer_expiration: settings.producer_expiration,
            upload_bell: Notify::new(),
            upload_size_bytes: settings.upload.size_bytes,
            unstored_bytes: AtomicU64::new(0),
            observed_wal: AtomicU64::new(0),
            pinned_wal: AtomicU64::new(u64::MAX),
        });
        let opener = LogOpener {
            context: context.clone(),
            controller: Arc::new(controller.clone()),
            reader: segments.clone(),
            clock: self.clock.clone(),
        };
        let reader = LogReader::new(segments, Arc::new(self.local_wal.clone()));
        Ok(Parts {
            writer,
            logs,
            context,
            opener,
            reader,
            backlog,
            object_wal,
        })
    }

    /// Opens all logs that this broker leads, many at once.
    async fn open_logs(
        &mut self,
        controller: &ControllerHandle,
        parts: &Parts,
        taken: LeadershipTaken,
    ) {
        let image = controller.image().borrow().clone();
        let catalog = Catalog::new(
            image,
            &self.settings.broker.topic_defaults,
            self.identity.broker,
        );
        let oldest = self.recovered.oldest();
        let mut recovered = HashMap::new();
        for state in &taken.partitions {
            recovered.insert(state.partition, self.recovered.take(state.partition));
        }
        let reconciler = Reconciler {
            opener: parts.opener.clone(),
            logs: parts.logs.clone(),
            broker: self.identity.broker,
        };
        reconciler
            .open_all(&catalog, taken.partitions, recovered)
            .await;
        // What the WAL holds of a partition that exists and isn't open here stays in it.
        let pinned = oldest
            .into_iter()
            .filter(|(partition, _)| parts.logs.get(*partition).is_none())
            .filter(|(partition, _)| catalog.image.topic_by_id(partition.topic).is_some())
            .map(|(_, position)| position)
            .min();
        if let Some(position) = pinned {
            warn!(position = %position, "the write-ahead log keeps records of partitions that are not open here");
            parts
                .context
                .pinned_wal
                .store(position.get(), std::sync::atomic::Ordering::Release);
        }
    }

    async fn serve(
        self,
        controller: ControllerHandle,
        cluster_id: String,
        parts: Parts,
        broker_epoch: BrokerEpoch,
        listener: Listener,
    ) -> Result<(), Fatal> {
        let Parts {
            writer,
            logs,
            context,
            opener,
            reader,
            backlog,
            object_wal,
        } = parts;
        let images = controller.image();
        let (reconciled, reconciled_watch) = watch::channel(images.borrow().version());
        let shared_controller: Arc<dyn ControllerApi> = Arc::new(controller.clone());
        let catalog = Catalog::new(
            images.borrow().clone(),
            &self.settings.broker.topic_defaults,
            self.identity.broker,
        );
        let broker = Arc::new_cyclic(|this| Broker {
            id: self.identity.broker,
            broker_epoch,
            options: self.settings.broker.clone(),
            clock: self.clock.clone(),
            catalog: arc_swap::ArcSwap::from_pointee(catalog),
            images: images.clone(),
            reconciled: reconciled_watch,
            logs: logs.clone(),
            reader: reader.clone(),
            controller: shared_controller.clone(),
            sessions: FetchSessions::new(SESSIONS, i32::from(self.random.next_u64() as i16).abs()),
            groups: GroupHost::new(
                this.clone(),
                self.tasks.child("groups"),
                self.clock.clone(),
                self.settings.broker.groups.clone(),
            ),
            producer_ids: ProducerIds::new(
                shared_controller.clone(),
                self.identity.broker,
                broker_epoch,
            ),
            metrics: self.metrics.broker.clone(),
        });
        let reconciler = Reconciler {
            opener,
            logs: logs.clone(),
            broker: self.identity.broker,
        };
        let token = self.tasks.token().clone();
        self.tasks.spawn(
            "reconcile",
            OnExit::StopProcess,
            reconciler.follow(broker.clone(), images, reconciled, token.clone()),
        );
        let uploader = Uploader {
            context: context.clone(),
            logs: logs.clone(),
            storage: self.storage.with_class(RequestClass::Background),
            controller: shared_controller.clone(),
            reader,
            local_wal: Arc::new(self.local_wal.clone()),
            writer,
            limits: self.settings.upload,
            clock: self.clock.clone(),
            metrics: self.metrics.upload.clone(),
        };
        let upload_token = token.clone();
        self.tasks.spawn("upload", OnExit::StopProcess, async move {
            if let Err(error) = uploader.run(upload_token).await {
                error!(error = &error as &dyn std::error::Error, "uploads stopped");
            }
        });
        let committer = ObjectCommitter {
            backlog,
            logs: logs.clone(),
            wal: object_wal,
            controller: shared_controller.clone(),
            writer,
            interval: self.settings.object_wal.commit_interval,
            metrics: self.metrics.upload.clone(),
        };
        let commit_token = token.clone();
        self.tasks
            .spawn("object-commit", OnExit::StopProcess, async move {
                if let Err(error) = committer.run(commit_token).await {
                    error!(
                        error = &error as &dyn std::error::Error,
                        "commits of WAL objects stopped"
                    );
                }
            });
        let retention = Retention {
            broker: broker.clone(),
            storage: self.storage.clone(),
            interval: self.settings.retention_check,
            grace: self.settings.delete_grace,
        };
        self.tasks
            .spawn("retention", OnExit::StopProcess, retention.run(token));
        let dispatcher = Arc::new(crate::network::Dispatcher::new(
            broker,
            self.settings.network.decode,
        )?);
        self.stage.send_replace(Readiness::Ready);
        info!(%cluster_id, broker_epoch = %broker_epoch, partitions = logs.len(), "ready");
        listener
            .serve(dispatcher, self.settings.network, self.tasks.child("kafka"))
            .await;
        Ok(())
    }
}

/// What serving is made of.
struct Parts {
    writer: Writer,
    logs: Arc<LogSet>,
    context: Arc<LogContext>,
    opener: LogOpener,
    reader: LogReader,
    backlog: Arc<ObjectBacklog>,
    object_wal: ObjectWal,
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

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
