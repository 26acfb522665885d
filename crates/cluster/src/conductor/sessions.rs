//! The table of sessions: who was heard when, and each broker's feed.
//!
//! A heartbeat touches this table and nothing else: it never waits for the controller's state, a commit, or a
//! consumer that reads its feed slowly. A feed holds no queue: it remembers which picture it sent last, and
//! when its consumer asks for more, it sends the difference to the newest one. So a slow consumer gets fewer,
//! larger changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tidegate_metadata::ClusterImage;
use tidegate_metadata::api::StaleBrokerEpoch;
use tidegate_types::{BrokerEpoch, BrokerId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::session::{FeedItem, Heartbeat, HelloRefused};

/// What is known of one registration of a broker.
#[derive(Debug)]
struct Entry {
    broker_epoch: BrokerEpoch,
    /// When it was last heard; `None`: it is known to be dead.
    heard: Option<Instant>,
    /// It failed over: it may not come back under this registration.
    ended: bool,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    /// Tells the session from one that replaced it.
    serial: u64,
    software_version: String,
    heartbeat: Heartbeat,
    end: watch::Sender<Option<HelloRefused>>,
}

/// What the controller knows of a broker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Heard within the session time-out, through a session.
    Heard,
    /// It isn't known yet to have no session; it has until the session time-out.
    Presumed,
    /// Not heard for the session time-out.
    Silent,
}

/// A broker's last heartbeat and what it said of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reported {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) software_version: String,
}

/// All sessions of this controller.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<BrokerId, Entry>,
    serial: u64,
    closed: bool,
}

/// A session's ends as the conductor's task and the feed hold them.
pub(crate) struct Opened {
    pub(crate) serial: u64,
    pub(crate) end: watch::Receiver<Option<HelloRefused>>,
}

impl Sessions {
    /// Takes in that a registration exists. One seen for the first time is presumed alive from now on, unless
    /// it is known to be dead.
    pub(crate) fn notice(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        now: Instant,
        dead: bool,
    ) {
        let mut table = self.table.lock();
        let known = table.entries.get(&broker);
        if known.is_some_and(|entry| entry.broker_epoch >= broker_epoch) {
            return;
        }
        let heard = (!dead).then_some(now);
        let old = table.entries.insert(
            broker,
            Entry {
                broker_epoch,
                heard,
                ended: false,
                session: None,
            },
        );
        drop(table);
        if let Some(session) = old.and_then(|entry| entry.session) {
            let stale = StaleBrokerEpoch {
                broker,
                broker_epoch,
                current: Some(broker_epoch),
            };
            session.end.send_replace(Some(stale.into()));
        }
    }

    /// Forgets brokers that aren't registered any more.
    pub(crate) fn retain(&self, registered: impl Fn(BrokerId) -> bool) {
        let mut table = self.table.lock();
        table.entries.retain(|broker, _| registered(*broker));
    }

    /// Opens a session for a registration that was checked to be the present one. An earlier session of the
    /// same broker ends.
    pub(crate) fn open(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        software_version: String,
        now: Instant,
    ) -> Result<Opened, HelloRefused> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(HelloRefused::NotController { known: None });
        }
        table.serial += 1;
        let serial = table.serial;
        let stale = |current| {
            HelloRefused::from(StaleBrokerEpoch {
                broker,
                broker_epoch,
                current,
            })
        };
        let entry = table.entries.entry(broker).or_insert(Entry {
            broker_epoch,
            heard: None,
            ended: false,
            session: None,
        });
        if entry.broker_epoch > broker_epoch {
            return Err(stale(Some(entry.broker_epoch)));
        }
        if entry.broker_epoch < broker_epoch {
            entry.broker_epoch = broker_epoch;
            entry.ended = false;
        }
        if entry.ended {
            // Its WAL is fenced: it can't acknowledge any more and has to register anew.
            return Err(stale(None));
        }
        entry.heard = Some(now);
        let (end, ended) = watch::channel(None);
        // Dropping the sender of an earlier session ends its feed and its heartbeats.
        entry.session = Some(Session {
            serial,
            software_version,
            heartbeat: Heartbeat::default(),
            end,
        });
        Ok(Opened { serial, end: ended })
    }

    /// Takes a heartbeat in. `false`: the session isn't the present one.
    pub(crate) fn heartbeat(
        &self,
        broker: BrokerId,
        serial: u64,
        heartbeat: Heartbeat,
        now: Instant,
    ) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(&broker) else {
            return false;
        };
        let Some(session) = entry.session.as_mut().filter(|s| s.serial == serial) else {
            return false;
        };
        session.heartbeat = heartbeat;
        entry.heard = Some(now);
        true
    }

    /// Doesn't count the last `pause` as anybody's silence: nobody listened.
    pub(crate) fn excuse(&self, pause: std::time::Duration, now: Instant) {
        let mut table = self.table.lock();
        for heard in table.entries.values_mut().filter_map(|e| e.heard.as_mut()) {
            *heard = (*heard + pause).min(now);
        }
    }

    /// Whether a registration lives.
    pub(crate) fn life(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        now: Instant,
        timeout: std::time::Duration,
    ) -> Life {
        let table = self.table.lock();
        let Some(entry) = table.entries.get(&broker) else {
            return Life::Silent;
        };
        if entry.broker_epoch != broker_epoch || entry.ended {
            return Life::Silent;
        }
        let recent = entry
            .heard
            .is_some_and(|heard| now.saturating_duration_since(heard) <= timeout);
        match (&entry.session, recent) {
            (_, false) => Life::Silent,
            (Some(_), true) => Life::Heard,
            (None, true) => Life::Presumed,
        }
    }

    /// Ends a silent registration for good, before its WAL is fenced: from now on it has no way back but to
    /// register anew. `false`: it was heard meanwhile.
    pub(crate) fn end_silent(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        now: Instant,
        timeout: std::time::Duration,
    ) -> bool {
        let mut table = self.table.lock();
        let entry = table.entries.entry(broker).or_insert(Entry {
            broker_epoch,
            heard: None,
            ended: false,
            session: None,
        });
        if entry.broker_epoch != broker_epoch {
            return false;
        }
        let recent = entry
            .heard
            .is_some_and(|heard| now.saturating_duration_since(heard) <= timeout);
        if recent && !entry.ended {
            return false;
        }
        entry.ended = true;
        if let Some(session) = entry.session.take() {
            let stale = StaleBrokerEpoch {
                broker,
                broker_epoch,
                current: None,
            };
            session.end.send_replace(Some(stale.into()));
        }
        true
    }

    /// The broker's process is known to have ended, and with it this session: it isn't given the rest of its time.
    /// `false`: another session was opened since.
    pub(crate) fn take_for_dead(&self, broker: BrokerId, serial: u64) -> bool {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&broker);
        let Some(entry) = entry.filter(|e| e.session.as_ref().is_some_and(|s| s.serial == serial))
        else {
            return false;
        };
        entry.heard = None;
        true
    }

    /// What the broker said last, if it has a session.
    pub(crate) fn reported(&self, broker: BrokerId) -> Option<Reported> {
        let table = self.table.lock();
        let session = table.entries.get(&broker)?.session.as_ref()?;
        Some(Reported {
            heartbeat: session.heartbeat,
            software_version: session.software_version.clone(),
        })
    }

    /// Ends all sessions and opens none any more. Their feeds end without a word: the brokers look for the new
    /// controller.
    pub(crate) fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        for entry in table.entries.values_mut() {
            entry.session = None;
        }
    }
}

/// Receives a session's heartbeats until it ends. `true`: the broker's side ended it, or the connection broke.
pub(crate) async fn receive_heartbeats(
    sessions: Arc<Sessions>,
    clock: tidegate_runtime::SharedClock,
    broker: BrokerId,
    mut opened: Opened,
    mut heartbeats: mpsc::Receiver<Heartbeat>,
    acks: watch::Sender<u64>,
) -> bool {
    loop {
        // Cancel-safe: `recv` loses nothing, and an end is read again from the watch.
        let heartbeat = tokio::select! {
            ended = opened.end.changed() => {
                if ended.is_err() || opened.end.borrow().is_some() {
                    return false;
                }
                continue;
            }
            heartbeat = heartbeats.recv() => heartbeat,
        };
        let Some(heartbeat) = heartbeat else {
            return true;
        };
        if !sessions.heartbeat(broker, opened.serial, heartbeat, clock.now()) {
            return false;
        }
        acks.send_replace(heartbeat.sequence);
    }
}

/// A session's way down: no task, no queue, only the place it has reached.
struct Feed {
    images: watch::Receiver<Arc<ClusterImage>>,
    /// The picture sent last; `None` before the first.
    sent: Option<Arc<ClusterImage>>,
    acks: watch::Receiver<u64>,
    end: watch::Receiver<Option<HelloRefused>>,
    over: bool,
}

pub(crate) fn feed(
    images: watch::Receiver<Arc<ClusterImage>>,
    acks: watch::Receiver<u64>,
    end: watch::Receiver<Option<HelloRefused>>,
) -> BoxStream<'static, FeedItem> {
    let feed = Feed {
        images,
        sent: None,
        acks,
        end,
        over: false,
    };
    futures::stream::unfold(feed, |mut feed| async move {
        let item = feed.next().await?;
        Some((item, feed))
    })
    .fuse()
    .boxed()
}

impl Feed {
    async fn next(&mut self) -> Option<FeedItem> {
        if self.over {
            return None;
        }
        loop {
            if let Some(item) = self.image() {
                return Some(item);
            }
            // Cancel-safe: all three only mark what was seen.
            tokio::select! {
                biased;
                ended = self.end.changed() => {
                    let why = self.end.borrow().clone();
                    if ended.is_ok() && why.is_none() {
                        continue;
                    }
                    self.over = true;
                    return why.map(FeedItem::Ended);
                }
                acked = self.acks.changed() => {
                    // The heartbeats' task has ended: so does the feed.
                    acked.ok()?;
                    let sequence = *self.acks.borrow();
                    return Some(FeedItem::Ack { sequence });
                }
                changed = self.images.changed() => changed.ok()?,
            }
        }
    }

    /// The difference to the newest picture, if it isn't sent yet.
    fn image(&mut self) -> Option<FeedItem> {
        let newest = Arc::clone(&self.images.borrow_and_update());
        let delta = match &self.sent {
            Some(sent) if sent.version() >= newest.version() => return None,
            Some(sent) => sent.delta_to(&newest),
            None => newest.snapshot(),
        };
        self.sent = Some(newest);
        Some(FeedItem::Image(Box::new(delta)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pause_of_the_controller_is_nobodys_silence() {
        let (one, two) = (
            BrokerId::new(1).expect("valid"),
            BrokerId::new(2).expect("valid"),
        );
        let epoch = BrokerEpoch::new(1);
        let (started, timeout) = (Instant::now(), Duration::from_secs(2));
        let sessions = Sessions::default();
        sessions.notice(one, epoch, started, false);
        sessions.notice(two, epoch, started, true);
        let life = |broker, now| sessions.life(broker, epoch, now, timeout);
        let woken = started + Duration::from_secs(6);
        assert_eq!(life(one, woken), Life::Silent);
        sessions.excuse(Duration::from_secs(5), woken);
        assert_eq!(life(one, woken), Life::Presumed);
        assert_eq!(life(two, woken), Life::Silent, "known to be dead");
        let later = woken + Duration::from_millis(1_500);
        assert_eq!(life(one, later), Life::Silent, "its own silence counts on");
        // Whoever spoke in the middle of it isn't heard in the future.
        sessions.excuse(Duration::from_secs(60), later);
        assert_eq!(life(one, later + timeout), Life::Presumed);
        assert_eq!(
            life(one, later + timeout + Duration::from_millis(1)),
            Life::Silent
        );
    }
}
