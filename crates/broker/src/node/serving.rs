//! The last step of start-up: the work in the background, and the Kafka listener.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_object_storage::RequestClass;
use tidegate_partition_log::{
    ObjectCommitter, ReadMetrics, SegmentReader, UploadStopped, Uploader,
};
use tidegate_runtime::OnExit;
use tidegate_wal::WalFailure;
use tokio::sync::watch;
use tracing::{error, info};

use super::join::Joined;
use super::parts::Parts;
use super::reconcile::Reconciler;
use super::retention::Retention;
use super::start::Readiness;
use super::startup::{Fatal, Startup};
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::compaction::Compactor;
use crate::coordinators::Replicas;
use crate::fetch_session::{FetchSessions, SessionLimits};
use crate::groups::GroupHost;
use crate::handover::{Handover, IncomingSet, SeenController};
use crate::network::Listener;
use crate::producer_ids::ProducerIds;
use crate::quotas::Quotas;
use crate::transactions::TransactionHost;

/// `max.incremental.fetch.session.cache.slots` and the partitions in all of them.
const SESSIONS: SessionLimits = SessionLimits {
    sessions: 1000,
    partitions: 200_000,
    evict_after: Duration::from_secs(120),
};

/// Without a controller for so many session time-outs this broker doesn't know whether it still leads.
const LAPSE_FACTOR: u32 = 5;

impl Startup {
    pub(super) async fn serve(
        self,
        joined: Joined,
        parts: Parts,
        listener: Listener,
    ) -> Result<(), Fatal> {
        let (reconciled, reconciled_watch) = watch::channel(joined.images.borrow().version());
        let broker = self.broker(&joined, &parts, reconciled_watch);
        self.services.open(broker.handover.clone());
        self.queries.open(broker.clone());
        self.transactions.open(broker.clone());
        let reconciler = Reconciler {
            opener: parts.opener.clone(),
            broker: broker.clone(),
            reconciled,
            stage: self.stage.clone(),
        };
        let token = self.tasks.token().clone();
        self.tasks.spawn(
            "reconcile",
            OnExit::StopProcess,
            reconciler.follow(token.clone()),
        );
        self.watch_object_wal(&parts);
        self.upload(&joined, &parts);
        self.commit_objects(&joined, &parts);
        let retention = Retention {
            broker: broker.clone(),
            storage: self.storage.clone(),
            interval: self.settings.retention_check,
            grace: self.settings.delete_grace,
        };
        self.compact(&broker, &parts);
        self.tasks
            .spawn("retention", OnExit::StopProcess, retention.run(token));
        let dispatcher = Arc::new(crate::network::Dispatcher::new(
            broker,
            self.settings.network.decode,
        )?);
        self.stage.send_replace(Readiness::Ready);
        info!(cluster_id = %joined.cluster_id, broker = %joined.broker, broker_epoch = %joined.broker_epoch, partitions = parts.logs.len(), "ready");
        listener
            .serve(dispatcher, self.settings.network, self.tasks.child("kafka"))
            .await;
        Ok(())
    }

    fn broker(
        &self,
        joined: &Joined,
        parts: &Parts,
        reconciled: watch::Receiver<tidegate_metadata::ImageVersion>,
    ) -> Arc<Broker> {
        let catalog = Arc::new(ArcSwap::from_pointee(Catalog::new(
            joined.images.borrow().clone(),
            &self.settings.broker.topic_defaults,
            joined.broker,
        )));
        let handover = Arc::new(Handover {
            broker_epoch: joined.broker_epoch,
            wal: self.identity.wal,
            logs: parts.logs.clone(),
            reader: parts.reader.clone(),
            opener: parts.opener.clone(),
            backlog: parts.backlog.clone(),
            catalog: catalog.clone(),
            peers: joined.peers.clone(),
            tasks: self.tasks.child("handover"),
            incoming: IncomingSet::default(),
            replicas: Replicas {
                groups: self.settings.broker.groups.clone(),
                transactions: self.settings.broker.transactions.clone(),
                reader: parts.reader.clone(),
                tasks: self.tasks.child("warm-ups"),
            },
            controller: SeenController::default(),
        });
        Arc::new_cyclic(|this| Broker {
            id: joined.broker,
            broker_epoch: joined.broker_epoch,
            options: self.settings.broker.clone(),
            clock: self.clock.clone(),
            catalog,
            images: joined.images.clone(),
            reconciled,
            logs: parts.logs.clone(),
            reader: parts.reader.clone(),
            controller: joined.controller.clone(),
            admin: joined.admin.clone(),
            member: joined.member.clone(),
            lapse: self.settings.cluster.session_timeout * LAPSE_FACTOR,
            handover,
            sessions: FetchSessions::new(SESSIONS, i32::from(self.random.next_u64() as i16).abs()),
            groups: GroupHost::new(
                this.clone(),
                self.tasks.child("groups"),
                self.clock.clone(),
                self.settings.broker.groups.clone(),
            ),
            transactions: TransactionHost::new(
                this.clone(),
                self.tasks.child("transactions"),
                self.clock.clone(),
                self.settings.broker.transactions.clone(),
            ),
            producer_ids: ProducerIds::new(
                joined.controller.clone(),
                joined.broker,
                joined.broker_epoch,
            ),
            quotas: Quotas::new(self.clock.clone(), self.metrics.broker.quotas.clone()),
            metrics: self.metrics.broker.clone(),
        })
    }

    /// An object WAL that failed for good was fenced, or can't write any more. Either way only a new registration
    /// with a new row of objects can acknowledge again.
    fn watch_object_wal(&self, parts: &Parts) {
        let mut failure = parts.object_wal.failure();
        let (stage, token) = (self.stage.clone(), self.tasks.token().clone());
        self.tasks
            .spawn("object-wal-watch", OnExit::Expected, async move {
                // Cancel-safe: the failure is only looked at.
                let failed = tokio::select! {
                    () = token.cancelled() => return,
                    failed = failure.wait_for(Option::is_some) => failed,
                };
                let Ok(failed) = failed else { return };
                if let Some(failure) = &*failed
                    && !matches!(failure, WalFailure::Closed)
                {
                    error!(
                        error = failure as &dyn std::error::Error,
                        "the object WAL of this broker ended"
                    );
                    let cause = format!("the object WAL ended: {failure}");
                    stage.send_replace(Readiness::Fenced { cause });
                }
            });
    }

    fn upload(&self, joined: &Joined, parts: &Parts) {
        let uploader = Uploader {
            context: parts.context.clone(),
            logs: parts.logs.clone(),
            storage: self.storage.with_class(RequestClass::Background),
            controller: joined.controller.clone(),
            reader: parts.reader.clone(),
            local_wal: Arc::new(self.local_wal.clone()),
            writer: parts.writer,
            limits: self.settings.upload,
            clock: self.clock.clone(),
            metrics: self.metrics.upload.clone(),
        };
        let (token, stage) = (self.tasks.token().clone(), self.stage.clone());
        self.tasks.spawn("upload", OnExit::Expected, async move {
            if let Err(stopped) = uploader.run(token).await {
                end_of_life(&stage, "uploads stopped", &stopped);
            }
        });
    }

    fn compact(&self, broker: &Arc<Broker>, parts: &Parts) {
        let storage = self.storage.with_class(RequestClass::Background);
        let settings = self.settings.compaction;
        let compactor = Compactor {
            broker: broker.clone(),
            reader: SegmentReader::new(
                storage.clone(),
                settings.reader_limits(),
                self.tasks.child("compaction-reader"),
                ReadMetrics::default(),
            ),
            storage,
            writer: parts.writer,
            block_bytes: self.settings.upload.block_bytes,
            settings,
            metrics: self.metrics.compaction.clone(),
            next_object: AtomicU64::new(1),
        };
        let token = self.tasks.token().clone();
        self.tasks
            .spawn("compaction", OnExit::StopProcess, compactor.run(token));
    }

    fn commit_objects(&self, joined: &Joined, parts: &Parts) {
        let committer = ObjectCommitter {
            backlog: parts.backlog.clone(),
            logs: parts.logs.clone(),
            wal: parts.object_wal.clone(),
            controller: joined.controller.clone(),
            writer: parts.writer,
            interval: self.settings.object_wal.commit_interval,
            metrics: self.metrics.upload.clone(),
        };
        let (token, stage) = (self.tasks.token().clone(), self.stage.clone());
        self.tasks
            .spawn("object-commit", OnExit::Expected, async move {
                if let Err(stopped) = committer.run(token).await {
                    end_of_life(&stage, "commits of WAL objects stopped", &stopped);
                }
            });
    }
}

/// A registration that was replaced ends this life of the broker; anything else ends the process.
fn end_of_life(stage: &watch::Sender<Readiness>, what: &'static str, stopped: &UploadStopped) {
    error!(error = stopped as &dyn std::error::Error, "{what}");
    let cause = format!("{what}: {stopped}");
    stage.send_replace(if stopped.is_fenced() {
        Readiness::Fenced { cause }
    } else {
        Readiness::Failed { cause }
    });
}
