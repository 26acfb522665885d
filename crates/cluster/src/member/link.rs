//! The link to the controller: it keeps the session and the picture, and tells the election whether they work.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tidegate_metadata::{ClusterImage, ImageDelta};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::standing::{Standing, There, Whom};
use super::{LoadReport, SessionState, Shared};
use crate::rpc::ActiveController;
use crate::session::{FeedItem, Hello, HelloRefused, OpenSession, SessionHost};

/// Heartbeats per session time-out.
const HEARTBEATS: u32 = 5;
/// Before registration: how often the controller elsewhere is asked whether it is there.
const PING: Duration = Duration::from_millis(500);

/// What a session is opened with.
#[derive(Clone)]
pub(super) struct Registration {
    pub(super) hello: Hello,
    pub(super) load: LoadReport,
}

/// Whether the controller of a standing answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LinkState {
    /// About which standing.
    pub(super) serial: u64,
    pub(super) working: bool,
}

pub(super) struct Link {
    shared: Arc<Shared>,
    state: watch::Sender<LinkState>,
    token: CancellationToken,
}

/// Where the picture comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feed {
    /// From the controller in this process, past the session.
    Copied,
    /// From the session.
    Applied,
}

/// How one try of a session ended.
enum SessionEnd {
    /// Look for another controller, or try this one again.
    Broken(HelloRefused),
    /// This life has ended.
    Fenced(String),
}

impl Link {
    pub(super) fn new(
        shared: Arc<Shared>,
        state: watch::Sender<LinkState>,
        token: CancellationToken,
    ) -> Self {
        Self {
            shared,
            state,
            token,
        }
    }

    pub(super) async fn run(self) {
        let token = self.token.clone();
        // Cancel-safe: a session that is dropped ends without a word, as if the process had died.
        tokio::select! {
            () = token.cancelled() => {}
            () = self.follow() => {}
        }
    }

    /// Talks to the controller of each standing until the next one.
    async fn follow(&self) {
        let mut standings = self.shared.standing.subscribe();
        loop {
            let standing = standings.borrow_and_update().clone();
            // Cancel-safe: what a dropped talk leaves behind is told by `left`.
            tokio::select! {
                biased;
                changed = standings.changed() => if changed.is_err() { return },
                () = self.talk(&standing) => {}
            }
            self.left();
        }
    }

    /// Never returns: only a new standing ends it.
    async fn talk(&self, standing: &Standing) {
        match &standing.controller {
            Whom::Nobody => std::future::pending().await,
            Whom::Here(active) => {
                // The picture comes past the session, so that it is there before registration too.
                tokio::join!(
                    self.copy_images(active),
                    self.keep_session(standing.serial, active.sessions.as_ref(), Feed::Copied),
                );
            }
            Whom::There(there) => {
                self.ping_until_registered(standing.serial, there).await;
                self.keep_session(
                    standing.serial,
                    there.parts.sessions.as_ref(),
                    Feed::Applied,
                )
                .await;
            }
        }
    }

    async fn copy_images(&self, active: &ActiveController) {
        let mut images = active.images.clone();
        loop {
            let image = Arc::clone(&images.borrow_and_update());
            self.shared.image.offer(&image);
            if images.changed().await.is_err() {
                // The controller ended; the election says who comes next.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Before it is registered a broker can have no session. So it only learns the cluster's id, and whether the
    /// controller is there.
    async fn ping_until_registered(&self, serial: u64, there: &There) {
        let mut hello = self.shared.hello.subscribe();
        let mut backoff = self.backoff();
        while hello.borrow_and_update().is_none() {
            let status = tokio::time::timeout(
                self.shared.settings.session_timeout,
                there.parts.admin.cluster_status(),
            );
            let pause = match status.await {
                Ok(Ok(status)) => {
                    self.contact();
                    self.tell(serial, true);
                    let named = ClusterImage::empty(&status.cluster_id);
                    self.shared.image.offer(&Arc::new(named));
                    backoff = self.backoff();
                    PING
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, endpoint = ?there.endpoint, "the controller doesn't answer yet");
                    self.tell(serial, false);
                    backoff.next()
                }
                Err(_) => {
                    self.tell(serial, false);
                    backoff.next()
                }
            };
            // Cancel-safe: the registration is read again.
            tokio::select! {
                _ = hello.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Opens sessions one after the other.
    async fn keep_session(&self, serial: u64, host: &dyn SessionHost, feed: Feed) {
        if matches!(*self.shared.session.borrow(), SessionState::Fenced { .. }) {
            return std::future::pending().await;
        }
        let mut registrations = self.shared.hello.subscribe();
        let mut backoff = self.backoff();
        loop {
            let Some(registration) = registrations.borrow_and_update().clone() else {
                if registrations.changed().await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            };
            let opening = host.open(registration.hello.clone());
            let timeout = self.shared.settings.session_timeout;
            let end = match tokio::time::timeout(timeout, opening).await {
                Ok(Ok(session)) => {
                    self.hold_session(serial, session, &registration, feed)
                        .await
                }
                Ok(Err(refused)) => end_of(refused),
                Err(_) => SessionEnd::Broken(unreachable_for("it didn't answer in time")),
            };
            match end {
                SessionEnd::Fenced(cause) => {
                    tracing::warn!(
                        cause,
                        "the controller knows this life of the broker as ended"
                    );
                    let fenced = SessionState::Fenced { cause };
                    self.shared.session.send_replace(fenced);
                    return std::future::pending().await;
                }
                SessionEnd::Broken(refused) => {
                    if self.left() {
                        backoff = self.backoff();
                        tracing::info!(cause = %refused, "the session with the controller ended");
                    } else {
                        tracing::debug!(cause = %refused, "no session with the controller yet");
                    }
                    self.tell(serial, false);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Holds one session until it ends.
    async fn hold_session(
        &self,
        serial: u64,
        mut session: OpenSession,
        registration: &Registration,
        feed: Feed,
    ) -> SessionEnd {
        let epoch = session.welcome.controller_epoch;
        if epoch < self.shared.image.version().controller_epoch {
            // A controller that was deposed and doesn't know it yet.
            return SessionEnd::Broken(HelloRefused::NotController { known: None });
        }
        let timeout = session
            .welcome
            .session_timeout
            .max(Duration::from_millis(1));
        let mut sequence = 0;
        let mut heartbeat = tokio::time::interval(timeout / HEARTBEATS);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut picture: Option<Arc<ClusterImage>> = None;
        let mut heard = self.contact();
        loop {
            // Cancel-safe: a feed is a stream, an interval keeps its ticks, and the deadline is computed anew.
            let item = tokio::select! {
                item = session.feed.next() => item,
                _ = heartbeat.tick() => {
                    sequence += 1;
                    let mut load = (registration.load)();
                    load.sequence = sequence;
                    // A full queue: the next one will do. A closed one: the feed tells why.
                    let _ = session.heartbeats.try_send(load);
                    continue;
                }
                () = tokio::time::sleep_until(heard + timeout) => {
                    return SessionEnd::Broken(unreachable_for("it fell silent"));
                }
            };
            heard = self.contact();
            match item {
                Some(FeedItem::Image(delta)) => {
                    if feed == Feed::Applied {
                        let Some(newer) = apply(picture.as_deref(), &delta) else {
                            return SessionEnd::Broken(unreachable_for("its feed has a gap"));
                        };
                        let newer = Arc::new(newer);
                        self.shared.image.offer(&newer);
                        picture = Some(newer);
                    }
                    // Connected only once the picture is there: whoever serves by it may rely on that.
                    self.connected(serial, epoch);
                }
                Some(FeedItem::Ack { .. }) => {}
                Some(FeedItem::Ended(refused)) => return end_of(refused),
                None => return SessionEnd::Broken(unreachable_for("the connection broke")),
            }
        }
    }

    fn connected(&self, serial: u64, controller_epoch: tidegate_types::ControllerEpoch) {
        self.tell(serial, true);
        let now = self.shared.clock.now();
        self.shared.session.send_if_modified(|state| match state {
            SessionState::Connected {
                controller_epoch: known,
                ..
            } if *known == controller_epoch => false,
            SessionState::Fenced { .. } => false,
            SessionState::Connected { .. }
            | SessionState::NotStarted
            | SessionState::Lost { .. } => {
                tracing::info!(
                    controller_epoch = controller_epoch.get(),
                    "session with the controller"
                );
                *state = SessionState::Connected {
                    controller_epoch,
                    since: now,
                };
                true
            }
        });
    }

    /// A session ended. Whether there was one.
    fn left(&self) -> bool {
        let now = self.shared.clock.now();
        let last_contact = self.shared.last_contact.lock().unwrap_or(now);
        self.shared.session.send_if_modified(|state| {
            let connected = matches!(state, SessionState::Connected { .. });
            if connected {
                *state = SessionState::Lost {
                    since: now,
                    last_contact,
                };
            }
            connected
        })
    }

    fn contact(&self) -> Instant {
        let now = self.shared.clock.now();
        *self.shared.last_contact.lock() = Some(now);
        now
    }

    fn tell(&self, serial: u64, working: bool) {
        let now = LinkState { serial, working };
        self.state
            .send_if_modified(|state| std::mem::replace(state, now) != now);
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.shared.settings.backoff)
    }
}

/// The picture after a change; `None` if the change doesn't follow what was fed before.
fn apply(before: Option<&ClusterImage>, delta: &ImageDelta) -> Option<ClusterImage> {
    match before {
        Some(image) => image.apply(delta).ok(),
        None => ClusterImage::empty("").apply(delta).ok(),
    }
}

fn unreachable_for(cause: &str) -> HelloRefused {
    HelloRefused::Unreachable(cause.to_owned())
}

fn end_of(refused: HelloRefused) -> SessionEnd {
    match refused {
        HelloRefused::StaleBrokerEpoch(_) | HelloRefused::UnknownBroker(_) => {
            SessionEnd::Fenced(refused.to_string())
        }
        HelloRefused::NotController { .. }
        | HelloRefused::UnsupportedVersion { .. }
        | HelloRefused::Unreachable(_)
        | HelloRefused::Unsupported(_) => SessionEnd::Broken(refused),
    }
}
