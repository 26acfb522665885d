//! The seams of a member: how a controller is opened here, and how one elsewhere is reached.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use tidegate_metadata::store::StoreOpener;
use tidegate_metadata::{
    Controller, ControllerApi, ControllerExit, ControllerHandle, ControllerMetrics,
    ControllerOptions, Endpoint, ImageVersion, OpenError,
};
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::BrokerId;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::lease::LeaseRecord;
use crate::admin::ClusterAdmin;
use crate::desertion::is_refused;
use crate::rpc::{ActiveController, Connections, RemoteAdmin, RemoteController, RemoteSessionHost};
use crate::session::SessionHost;

/// One term of this broker as holder of the lease.
#[derive(Debug, Clone)]
pub struct Term {
    /// The number by which it took the lease.
    pub number: u64,
    /// This broker's number. One that registration hasn't given a number yet runs as the first one, which is what
    /// the first broker of a cluster gets; if it gets another one, the term ends and a new one begins.
    pub me: BrokerId,
    /// The lease that ended, if there was one.
    pub former: Option<LeaseRecord>,
    /// The former holder was another process that let its lease lapse, so it is dead as far as can be known.
    pub former_lapsed: bool,
}

impl Term {
    /// The broker that needs no grace at the opening: its lease lapsed.
    pub fn presumed_dead(&self) -> Option<BrokerId> {
        let former = self.former.as_ref().filter(|_| self.former_lapsed)?;
        former.broker.filter(|broker| *broker != self.me)
    }
}

/// A controller that was opened and runs.
pub struct Seated {
    /// How it is asked.
    pub active: ActiveController,
    /// Why it ended; an error means that its task panicked.
    pub exit: oneshot::Receiver<ControllerExit>,
}

/// Opens the controller in this process.
#[async_trait]
pub trait ControllerHost: Send + Sync {
    /// Opens the metadata, which fences any earlier controller, and starts all that a controller is made of, owned
    /// by `tasks`. Cancel-safe: what was begun is undone by cancelling `tasks`.
    ///
    /// # Errors
    /// See [`OpenError::is_retriable`].
    async fn open(&self, term: &Term, tasks: &Tasks) -> Result<Seated, OpenError>;
}

/// What drives the cluster beside the metadata's controller.
pub struct Conducted {
    /// Opens sessions.
    pub sessions: Arc<dyn SessionHost>,
    /// Takes people's requests.
    pub admin: Arc<dyn ClusterAdmin>,
}

/// Starts the conductor of a term.
pub trait ConductorFactory: Send + Sync {
    /// All of it ends with `tasks`.
    fn start(&self, controller: &ControllerHandle, term: &Term, tasks: &Tasks) -> Conducted;
}

/// Hosts the controller over the metadata store.
pub struct MetadataHost {
    /// Opens the store.
    pub opener: Arc<dyn StoreOpener>,
    /// How the controller runs. Its `broker` and `presumed_dead` are replaced by what the term says.
    pub options: ControllerOptions,
    /// Time.
    pub clock: SharedClock,
    /// Its metrics.
    pub metrics: ControllerMetrics,
    /// What is started beside it.
    pub conductor: Arc<dyn ConductorFactory>,
}

#[async_trait]
impl ControllerHost for MetadataHost {
    async fn open(&self, term: &Term, tasks: &Tasks) -> Result<Seated, OpenError> {
        let mut options = self.options.clone();
        options.broker = term.me;
        options.presumed_dead = term.presumed_dead();
        let opened = Controller::open(
            self.opener.clone(),
            options,
            self.clock.clone(),
            Box::new(Uuid::new_v4),
            self.metrics.clone(),
        );
        let (handle, task) = Box::pin(opened).await?;
        let (ended, exit) = oneshot::channel();
        let token = tasks.token().clone();
        tasks.spawn("controller", OnExit::StopProcess, async move {
            let exit = Box::pin(task.run(token.clone().cancelled_owned())).await;
            tracing::info!(reason = %exit, "the controller of this broker ended");
            // Its end is the end of the term; only a panic is a reason to stop the process.
            token.cancel();
            // Nobody waits for it when the term was ended from outside.
            let _ = ended.send(exit);
        });
        let conducted = self.conductor.start(&handle, term, tasks);
        let images = handle.image();
        Ok(Seated {
            active: ActiveController {
                api: Arc::new(handle),
                sessions: conducted.sessions,
                admin: conducted.admin,
                images,
            },
            exit,
        })
    }
}

/// A controller in another process.
#[derive(Clone)]
pub struct RemoteParts {
    /// Takes requests.
    pub api: Arc<dyn ControllerApi>,
    /// Opens sessions.
    pub sessions: Arc<dyn SessionHost>,
    /// Takes people's requests.
    pub admin: Arc<dyn ClusterAdmin>,
    /// The newest picture that an answer of it has named.
    pub answered: Arc<dyn Fn() -> Option<ImageVersion> + Send + Sync>,
}

/// Reaches controllers in other processes.
pub trait ControllerReach: Send + Sync {
    /// Makes what is needed to talk to it; nothing is sent yet.
    fn controller(&self, broker: Option<BrokerId>, endpoint: &Endpoint) -> RemoteParts;
    /// Whether nobody listens there, as in [`Peers::is_deserted`](crate::orders::Peers::is_deserted).
    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool>;
}

impl ControllerReach for Connections {
    fn controller(&self, _broker: Option<BrokerId>, endpoint: &Endpoint) -> RemoteParts {
        let controller = RemoteController::new(self.clone(), endpoint.clone());
        let answered = controller.clone();
        RemoteParts {
            api: Arc::new(controller),
            sessions: Arc::new(RemoteSessionHost::new(self.clone(), endpoint.clone())),
            admin: Arc::new(RemoteAdmin::new(self.clone(), endpoint.clone())),
            answered: Arc::new(move || answered.newest_image()),
        }
    }

    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool> {
        is_refused(endpoint.clone()).boxed()
    }
}
