//! The second half of start-up: what needs object storage.
//!
//! In order: join the cluster and register, fence what a former life of this broker may still be writing, take
//! leadership, open the logs, serve. Every step may be repeated; a step that can't reach the store is tried again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tidegate_cluster::member::MemberFatal;
use tidegate_cluster::view::ClusterView;
use tidegate_metadata::Endpoint;
use tidegate_metadata::api::{RegisterBrokerError, TakeLeadershipError};
use tidegate_object_storage::{ObjectStorage, RequestClass, StoreHealth};
use tidegate_runtime::{OnExit, Random, SharedClock, Tasks};
use tidegate_types::{BrokerEpoch, WithCauses};
use tidegate_wal::local::LocalWal;
use tidegate_wal::object::{InvalidObjectWalOptions, RecoveryError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{error, warn};

use super::identity::Identity;
use super::join::METADATA;
use super::leaving::Leaving;
use super::recovery::RecoveredLogs;
use super::settings::NodeSettings;
use super::start::{NodeMetrics, Readiness};
use crate::handover::BrokerServices;
use crate::network::Listener;
use crate::queries::Queries;
use crate::transactions::TransactionServices;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Everything that the second half needs.
pub(super) struct Startup {
    pub(super) settings: NodeSettings,
    pub(super) identity: Identity,
    pub(super) advertised: Endpoint,
    /// Where other brokers reach this one.
    pub(super) internal_endpoint: Endpoint,
    /// What other brokers may ask of this one; filled when the logs are open.
    pub(super) services: Arc<BrokerServices>,
    /// What anybody may ask this broker about itself; filled when it serves.
    pub(super) queries: Arc<Queries>,
    /// What this broker does for the transactions of others; filled when it serves.
    pub(super) transactions: Arc<TransactionServices>,
    /// How to leave the cluster, once this broker has joined it.
    pub(super) leave: watch::Sender<Option<Leaving>>,
    /// The cluster, once this broker has joined it.
    pub(super) cluster: watch::Sender<Option<ClusterView>>,
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
pub(super) enum Fatal {
    #[error(transparent)]
    Member(MemberFatal),
    #[error("this broker can't be registered")]
    Register(#[source] RegisterBrokerError),
    #[error("start-up was interrupted")]
    Interrupted,
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

impl Fatal {
    /// Another process registered under this broker's number meanwhile; a new life may register in turn.
    fn is_replaced(&self) -> bool {
        matches!(
            self,
            Self::Leadership(TakeLeadershipError::StaleBrokerEpoch(_))
        )
    }
}

impl Startup {
    pub(super) async fn run(self, listener: Listener, internal: TcpListener) {
        let token = self.tasks.token().clone();
        let stage = self.stage.clone();
        // Cancel-safe: a process that stops while it starts leaves nothing half done that the next start minds.
        let result = tokio::select! {
            () = token.cancelled() => return,
            result = Box::pin(self.become_broker(listener, internal)) => result,
        };
        if let Err(fatal) = result {
            let cause = WithCauses(&fatal).to_string();
            if fatal.is_replaced() {
                warn!(cause, "this life of the broker is over before it began");
                stage.send_replace(Readiness::Fenced { cause });
            } else {
                error!(cause, "this broker can't start");
                stage.send_replace(Readiness::Failed { cause });
            }
        }
    }

    async fn become_broker(
        mut self,
        listener: Listener,
        internal: TcpListener,
    ) -> Result<(), Fatal> {
        self.watch_store();
        self.find_cluster().await?;
        self.step("looking for the controller");
        let joined = self.join(internal).await?;
        let recovered = self.fence_former(&joined.registered).await?;
        self.step("taking leadership");
        let taken = self.take_leadership(&joined, recovered).await?;
        self.step("opening partitions");
        let parts = self.build(&joined)?;
        self.open_logs(&joined, &parts, taken).await;
        self.serve(joined, parts, listener).await
    }

    pub(super) fn step(&self, step: &'static str) {
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
}
