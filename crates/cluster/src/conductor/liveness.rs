//! Who lives: compares the table of sessions with what the metadata says, ten times a second.
//!
//! A broker that isn't heard for the session time-out is said to be dead, and its partitions are failed over if
//! others can lead them. A stream's end alone decides nothing: a process that was killed and one that is cut off
//! look alike then. But when the stream has ended and the broker's operating system refuses connections to its port,
//! twice, the process is gone, and nobody waits for the rest of the time-out ([`session_broke`]). All is compared
//! level by level, so a change that can't be stored now is made in a later round.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_metadata::api::{BrokerView, SetAlive};
use tidegate_metadata::{ClusterImage, ImageVersion};
use tidegate_types::{BrokerEpoch, BrokerId};
use tokio::time::Instant;

use super::metrics::gauge;
use super::sessions::Life;
use super::{Core, failover};
use crate::desertion::is_gone;

/// The registered brokers as of the last look.
#[derive(Default)]
pub(crate) struct Brokers {
    views: Mutex<Arc<BTreeMap<BrokerId, BrokerView>>>,
}

impl Brokers {
    pub(crate) fn all(&self) -> Arc<BTreeMap<BrokerId, BrokerView>> {
        Arc::clone(&self.views.lock())
    }

    fn set(&self, views: Vec<BrokerView>) {
        let views = views.into_iter().map(|view| (view.id, view)).collect();
        *self.views.lock() = Arc::new(views);
    }
}

/// Which failovers are under way, and which have nothing left to do.
#[derive(Default)]
pub(crate) struct Failovers {
    running: Mutex<HashSet<BrokerId>>,
    settled: Mutex<HashSet<(BrokerId, BrokerEpoch)>>,
}

impl Failovers {
    pub(crate) fn end(&self, broker: BrokerId) {
        self.running.lock().remove(&broker);
    }

    /// Nothing is left to be done for this registration.
    pub(crate) fn settle(&self, broker: BrokerId, broker_epoch: BrokerEpoch) {
        self.settled.lock().insert((broker, broker_epoch));
    }

    fn begin(&self, broker: BrokerId, broker_epoch: BrokerEpoch) -> bool {
        !self.settled.lock().contains(&(broker, broker_epoch)) && self.running.lock().insert(broker)
    }

    /// It lives, so what it leads may change.
    fn unsettle(&self, broker: BrokerId) {
        self.settled.lock().retain(|(other, _)| *other != broker);
    }

    fn forget_others(&self, current: impl Fn(BrokerId) -> Option<BrokerEpoch>) {
        let mut settled = self.settled.lock();
        settled.retain(|(broker, broker_epoch)| current(*broker) == Some(*broker_epoch));
    }
}

/// Looks until the conductor stops.
pub(crate) async fn watch(core: Arc<Core>) {
    let mut images = core.handle.image();
    let mut seen: Option<ImageVersion> = None;
    loop {
        let image = core.image();
        // Leadership changes the views without changing the picture's brokers, so every picture is asked about.
        if seen != Some(image.version()) {
            match core.handle.brokers().await {
                Ok(views) => {
                    core.brokers.set(views);
                    seen = Some(image.version());
                    count_offline(&core, &image);
                }
                Err(error) => tracing::debug!(%error, "the brokers can't be read at present"),
            }
        }
        look(&core).await;
        let asleep = Instant::now();
        // Cancel-safe: all three only wake.
        tokio::select! {
            changed = images.changed() => if changed.is_err() {
                return;
            },
            () = core.died.notified() => {}
            () = tokio::time::sleep(core.options.tick) => {}
        }
        let overslept = asleep.elapsed().saturating_sub(core.options.tick);
        if overslept > core.options.session_timeout / 2 {
            // This process was paused, so it heard nobody, whoever spoke. By now there may be another controller, and a
            // broker's life isn't stored, so no fence would keep the wrong picture from this broker's clients.
            tracing::warn!(
                ?overslept,
                "the controller was paused; the brokers' silence meanwhile doesn't count"
            );
            core.sessions.excuse(overslept, core.clock.now());
        }
    }
}

/// A session ended from the broker's side. If nobody listens at its port any more, the broker is dead; otherwise it
/// has the session time-out to come back.
pub(crate) async fn session_broke(core: &Core, broker: BrokerId, serial: u64) {
    let Some(endpoint) = core.endpoint(broker) else {
        return;
    };
    if is_gone(|| core.peers.is_deserted(&endpoint)).await
        && core.sessions.take_for_dead(broker, serial)
    {
        tracing::warn!(%broker, "a broker's session broke, and nobody listens at its port");
        core.died.notify_one();
    }
}

fn count_offline(core: &Core, image: &ClusterImage) {
    let partitions = image.topics().flat_map(|topic| &topic.partitions);
    let offline = partitions.filter(|p| p.leader.is_none()).count();
    core.metrics.offline_partitions.set(gauge(offline));
}

/// One comparison.
async fn look(core: &Arc<Core>) {
    let views = core.brokers.all();
    let now = core.clock.now();
    core.sessions.retain(|broker| views.contains_key(&broker));
    core.failovers
        .forget_others(|broker| views.get(&broker).map(|view| view.broker_epoch));
    let (mut heard, mut dead) = (0, 0);
    for view in views.values() {
        // No process holds the nil incarnation: it stands for one that was failed over.
        let presumed_dead = view.incarnation.is_nil()
            || (core.options.presumed_dead.contains(&view.id) && !view.alive);
        core.sessions
            .notice(view.id, view.broker_epoch, now, presumed_dead);
        let timeout = core.options.session_timeout;
        let life = core.sessions.life(view.id, view.broker_epoch, now, timeout);
        match life {
            Life::Heard => heard += 1,
            Life::Presumed => {}
            Life::Silent => dead += 1,
        }
        match (life, view.alive) {
            (Life::Heard, false) => set_alive(core, view, true).await,
            (Life::Silent, true) => set_alive(core, view, false).await,
            (Life::Silent, false) => consider_failover(core, view),
            (Life::Heard | Life::Presumed, true) => core.failovers.unsettle(view.id),
            (Life::Presumed, false) => {}
        }
    }
    core.metrics.sessions.set(heard);
    core.metrics.dead_brokers.set(dead);
}

async fn set_alive(core: &Core, view: &BrokerView, alive: bool) {
    let request = SetAlive {
        broker: view.id,
        broker_epoch: view.broker_epoch,
        alive,
    };
    match core.handle.set_alive(request).await {
        Ok(()) if alive => tracing::info!(broker = %view.id, "a broker is alive again"),
        Ok(()) => tracing::warn!(
            broker = %view.id,
            session_timeout = ?core.options.session_timeout,
            "a broker has no session any more; it is taken for dead"
        ),
        // The next round sees how it is.
        Err(error) => {
            tracing::debug!(broker = %view.id, alive, %error, "a broker's life can't be changed at present");
        }
    }
}

fn consider_failover(core: &Arc<Core>, view: &BrokerView) {
    let survivors = core
        .brokers
        .all()
        .values()
        .any(|other| other.id != view.id && other.alive && other.leads);
    if !survivors || view.leaders == 0 {
        return;
    }
    if core.failovers.begin(view.id, view.broker_epoch) {
        let work = failover::run(Arc::clone(core), view.id, view.broker_epoch);
        core.spawn("failover", work);
    }
}
