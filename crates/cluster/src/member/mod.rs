//! A broker as a member of the cluster: it finds the controller, or becomes it.
//!
//! One [`Member`] is one life of a broker process. It looks at the lease only at its start and when it has no
//! working controller: then it follows the holder, or takes over once the lease has lapsed. A life that is
//! elected hosts the controller. Either way the rest of the broker sees the same four things: somebody to ask
//! ([`Member::controller`], [`Member::admin`]), the cluster's picture, which never goes back ([`Member::images`]),
//! and whether the controller knows that this broker lives ([`Member::session`]).
//!
//! The lease gives liveness only. Safety is the metadata store's fencing and the controller epoch: two brokers
//! that take themselves for the controller can't both change anything.

mod backoff;
mod election;
mod host;
mod images;
mod lapse;
mod lease;
mod link;
mod renewal;
mod routed;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_metadata::{ClusterImage, ControllerApi, Endpoint, WalIdentity};
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{BrokerId, ControllerEpoch};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::admin::ClusterAdmin;
use crate::rpc::ActiveController;
use crate::session::{Heartbeat, Hello};
use election::{Command, Election};
use images::LocalImage;
use link::Link;
use standing::Standing;

pub use host::{
    Conducted, ConductorFactory, ControllerHost, ControllerReach, MetadataHost, RemoteParts,
    Seated, Term,
};
pub use lease::{LeaseCreate, LeaseFailure, LeaseRecord, LeaseRow};

/// Who this life of a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// Random per life.
    pub incarnation: Uuid,
    /// Its local WAL. Whoever has it holds its lock, so a former lease under it is that of a dead process.
    pub wal: WalIdentity,
    /// Where other brokers reach this one.
    pub internal: Endpoint,
    /// Its number; `None` until registration gives it one, see [`Member::set_broker`].
    pub broker: Option<BrokerId>,
}

/// Who a member is, and its times. None of the times is what safety rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSettings {
    /// Who it is.
    pub me: MemberIdentity,
    /// A lease without a new number for so long has lapsed. A holder renews three times in that time.
    pub lease: Duration,
    /// Without a word of the controller for so long a session counts as lost. The controller's greeting may name
    /// another time.
    pub session_timeout: Duration,
    /// How long a request waits for a controller to appear, and for another one if the first is gone.
    pub controller_patience: Duration,
    /// How long a request may take in all; its outcome is unknown after that.
    pub request_timeout: Duration,
    /// How long an answer that changed the cluster is held back until this broker's picture shows the change.
    pub image_patience: Duration,
    /// Pauses between tries (the store, a controller that doesn't answer): the first, doubled up to the second.
    pub backoff: (Duration, Duration),
    /// How long what belongs to a controller may take to stop.
    pub stop_patience: Duration,
}

impl MemberSettings {
    /// The defaults.
    pub fn new(me: MemberIdentity) -> Self {
        Self {
            me,
            lease: Duration::from_secs(2),
            session_timeout: Duration::from_secs(2),
            controller_patience: Duration::from_secs(5),
            request_timeout: Duration::from_secs(20),
            image_patience: Duration::from_secs(1),
            backoff: (Duration::from_millis(50), Duration::from_secs(1)),
            stop_patience: Duration::from_secs(5),
        }
    }
}

/// What a member takes from its surroundings.
#[derive(Clone)]
pub struct MemberSeams {
    /// The cluster's lease.
    pub lease: Arc<dyn LeaseRow>,
    /// Opens the metadata and starts what else a controller is made of.
    pub host: Arc<dyn ControllerHost>,
    /// Reaches a controller in another process.
    pub reach: Arc<dyn ControllerReach>,
    /// Time.
    pub clock: SharedClock,
    /// Owner of all that runs; the member makes a child of it.
    pub tasks: Tasks,
}

/// Whether the controller knows that this broker lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState {
    /// [`Member::begin_session`] wasn't called, or its session was never opened yet.
    NotStarted,
    /// There is a session.
    Connected {
        /// With which controller.
        controller_epoch: ControllerEpoch,
        /// Opened then.
        since: Instant,
    },
    /// There was a session. Whether the controller takes this broker for dead is unknown.
    Lost {
        /// When that was noticed.
        since: Instant,
        /// When the controller was heard last.
        last_contact: Instant,
    },
    /// The controller knows this life as ended: it must stop serving. Nothing follows in this life.
    Fenced {
        /// Why, as a sentence.
        cause: String,
    },
}

/// What a human must act upon: this broker can't be the controller of this cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct MemberFatal {
    /// A sentence.
    pub cause: String,
}

/// What heartbeats tell; its sequence number is filled in.
pub type LoadReport = Arc<dyn Fn() -> Heartbeat + Send + Sync>;

/// The broker side of membership. Cheap to clone.
#[derive(Clone)]
pub struct Member {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    controller: Arc<routed::Routed>,
}

/// What the tasks and handles of a member share.
struct Shared {
    settings: MemberSettings,
    /// Its number, as soon as it is known.
    broker: watch::Sender<Option<BrokerId>>,
    clock: SharedClock,
    image: LocalImage,
    standing: watch::Sender<Standing>,
    known: watch::Sender<Option<(BrokerId, Endpoint)>>,
    active: watch::Sender<Option<Arc<ActiveController>>>,
    session: watch::Sender<SessionState>,
    fatal: watch::Sender<Option<MemberFatal>>,
    hello: watch::Sender<Option<link::Registration>>,
    last_contact: Mutex<Option<Instant>>,
    /// A controller elsewhere said that it can't reach the store.
    suspicion: Notify,
}

impl Shared {
    fn tell_known(&self) {
        let known = self.standing.borrow().known(self);
        self.known
            .send_if_modified(|told| std::mem::replace(told, known.clone()) != known);
    }
}

impl Member {
    /// Starts to look for the controller, or to become it.
    pub fn start(settings: MemberSettings, seams: MemberSeams) -> Self {
        let tasks = seams.tasks.child("member");
        let shared = Arc::new(Shared {
            broker: watch::Sender::new(settings.me.broker),
            settings,
            clock: seams.clock.clone(),
            image: LocalImage::new(),
            standing: watch::Sender::new(Standing::unknown()),
            known: watch::Sender::new(None),
            active: watch::Sender::new(None),
            session: watch::Sender::new(SessionState::NotStarted),
            fatal: watch::Sender::new(None),
            hello: watch::Sender::new(None),
            last_contact: Mutex::new(None),
            suspicion: Notify::new(),
        });
        let (commands, inbox) = mpsc::channel(4);
        let (working, link_state) = watch::channel(link::LinkState::default());
        let election = Election::new(
            shared.clone(),
            seams.lease,
            seams.host,
            seams.reach,
            link_state,
            inbox,
            tasks.clone(),
        );
        tasks.spawn("election", OnExit::StopProcess, election.run());
        let link = Link::new(shared.clone(), working, tasks.token().clone());
        tasks.spawn("controller-link", OnExit::StopProcess, link.run());
        Self {
            controller: Arc::new(routed::Routed::new(shared.clone())),
            shared,
            commands,
        }
    }

    /// Asks whoever is the controller. A request waits for one to appear up to
    /// [`MemberSettings::controller_patience`]; the answer to a change waits until [`Member::images`] shows it, up to
    /// [`MemberSettings::image_patience`].
    pub fn controller(&self) -> Arc<dyn ControllerApi> {
        self.controller.clone()
    }

    /// Passes people's requests to whoever is the controller.
    pub fn admin(&self) -> Arc<dyn ClusterAdmin> {
        self.controller.clone()
    }

    /// The cluster's picture. It never goes back. Before a controller was heard it is empty and has controller
    /// epoch 0; before [`Member::begin_session`] it is only known to have the cluster's id.
    pub fn images(&self) -> watch::Receiver<Arc<ClusterImage>> {
        self.shared.image.subscribe()
    }

    /// Tells the number that registration gave this broker. The controller hosted here takes it up.
    pub fn set_broker(&self, broker: BrokerId) {
        self.shared.broker.send_if_modified(|known| {
            let changed = *known != Some(broker);
            *known = Some(broker);
            changed
        });
        self.shared.tell_known();
    }

    /// Keeps one session open from now on, with whoever is the controller. `load` is asked for each heartbeat: it
    /// must return at once.
    pub fn begin_session(&self, hello: Hello, load: LoadReport) {
        self.set_broker(hello.broker);
        self.shared
            .hello
            .send_replace(Some(link::Registration { hello, load }));
    }

    /// Whether the controller knows that this broker lives.
    pub fn session(&self) -> watch::Receiver<SessionState> {
        self.shared.session.subscribe()
    }

    /// When a controller was heard last in this life. Unlike [`Member::session`] it needs no task to be told, so a
    /// process that was paused sees at once how long it heard nothing.
    pub fn last_contact(&self) -> Option<Instant> {
        *self.shared.last_contact.lock()
    }

    /// The controller, while it is hosted here: for the gRPC server.
    pub fn active(&self) -> watch::Receiver<Option<Arc<ActiveController>>> {
        self.shared.active.subscribe()
    }

    /// Whom this broker takes for the controller: for the gRPC server, which tells it to those who ask the wrong
    /// broker. `None` also while the controller has no number yet.
    pub fn known_controller(&self) -> watch::Receiver<Option<(BrokerId, Endpoint)>> {
        self.shared.known.subscribe()
    }

    /// What a human must act upon, once it is known.
    pub fn fatal(&self) -> watch::Receiver<Option<MemberFatal>> {
        self.shared.fatal.subscribe()
    }

    /// A clean end: this life won't be the controller (again). If it is, the controller stops and the lease is
    /// released, so that another broker takes over at once. Waits for that up to `patience`.
    pub async fn resign(&self, patience: Duration) {
        let (done, ended) = oneshot::channel();
        let resign = async {
            if self.commands.send(Command::Resign(done)).await.is_ok() {
                // An error means that the election has ended already.
                let _ = ended.await;
            }
        };
        if tokio::time::timeout(patience, resign).await.is_err() {
            tracing::warn!("the lease wasn't released in time; it lapses by itself");
        }
    }
}
