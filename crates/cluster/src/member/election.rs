//! Who is the controller: finds the lease's holder and follows it, or takes over and hosts the controller.
//!
//! One loop: look at the lease; follow its holder until its session breaks or its lease lapses; or hold the lease
//! until the term ends. Each of the three says what comes next, so there is no state between them but whether this
//! life may be the controller at all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_metadata::{ControllerExit, OpenError};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::BrokerId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::host::{ControllerHost, ControllerReach, Seated, Term};
use super::lapse::LapseWatch;
use super::lease::{LeaseCreate, LeaseFailure, LeaseRecord, LeaseRow};
use super::link::LinkState;
use super::renewal::{Renewal, Taken};
use super::standing::{Standing, There, Whom};
use super::{MemberFatal, MemberSettings, Shared};
use crate::desertion::is_gone;

/// Looks per lease while the holder doesn't answer.
const LOOKS_PER_LEASE: u32 = 4;

/// What the member's handle asks of its election.
pub(super) enum Command {
    /// Be the controller no more; answered when the lease is released.
    Resign(oneshot::Sender<()>),
}

pub(super) struct Election {
    shared: Arc<Shared>,
    lease: Arc<dyn LeaseRow>,
    host: Arc<dyn ControllerHost>,
    reach: Arc<dyn ControllerReach>,
    link: watch::Receiver<LinkState>,
    inbox: mpsc::Receiver<Command>,
    tasks: Tasks,
    /// It hasn't resigned and can read the metadata.
    candidate: bool,
    backoff: Backoff,
    /// That the lease can't be reached was said.
    failing: bool,
    /// When the lease was looked at last.
    looked: Instant,
}

/// What comes next.
enum Turn {
    /// Look at the lease.
    Look,
    /// Look after a while: what ended the term may still be going on.
    Rest(Duration),
    /// Take the lease over.
    Take {
        former: Option<LeaseRecord>,
        /// It is taken because nothing was seen of the holder for too long, or because it died.
        lapsed: bool,
    },
    /// Follow the holder.
    Follow(LeaseRecord),
}

/// Why a term ended.
enum TermEnd {
    /// Somebody else has the lease.
    Taken(LeaseRecord),
    /// The controller ended, or its task panicked.
    Exit(Option<ControllerExit>),
    /// Nobody of this release can be the controller.
    Fatal(String),
    Resigned(Command),
    /// This broker was given a number, and the controller runs under another one.
    Numbered,
}

impl Election {
    pub(super) fn new(
        shared: Arc<Shared>,
        lease: Arc<dyn LeaseRow>,
        host: Arc<dyn ControllerHost>,
        reach: Arc<dyn ControllerReach>,
        link: watch::Receiver<LinkState>,
        inbox: mpsc::Receiver<Command>,
        tasks: Tasks,
    ) -> Self {
        let backoff = Backoff::new(shared.settings.backoff);
        let looked = shared.clock.now();
        Self {
            shared,
            lease,
            host,
            reach,
            link,
            inbox,
            tasks,
            candidate: true,
            backoff,
            failing: false,
            looked,
        }
    }

    pub(super) async fn run(mut self) {
        let token = self.tasks.token().clone();
        let active = self.shared.active.clone();
        // Cancel-safe: a term's tasks are children of the same owner and end with it; the lease then lapses.
        tokio::select! {
            // First the token: a request to the store that the shutdown cut off says nothing of the store.
            biased;
            () = token.cancelled() => {}
            () = self.elect() => {}
        }
        active.send_replace(None);
    }

    async fn elect(&mut self) {
        let mut turn = Turn::Look;
        loop {
            turn = match turn {
                Turn::Look => self.look().await,
                Turn::Rest(pause) => {
                    self.meanwhile(tokio::time::sleep(pause)).await;
                    Turn::Look
                }
                Turn::Follow(holder) => self.follow(holder).await,
                Turn::Take { former, lapsed } => self.take(former, lapsed).await,
            };
        }
    }

    fn settings(&self) -> &MemberSettings {
        &self.shared.settings
    }

    fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Finds the newest number, by listing.
    async fn look(&mut self) -> Turn {
        self.looked = self.now();
        let newest = match self.lease.newest().await {
            Ok(newest) => newest,
            Err(error) => return self.failed(&error, "the controller can't be looked for yet"),
        };
        self.reached();
        self.judge(newest)
    }

    /// Says once that the lease can't be reached, and tries again later.
    fn failed(&mut self, error: &LeaseFailure, what: &'static str) -> Turn {
        // What the end of the process cut off says nothing of the store.
        let ending = self.tasks.token().is_cancelled();
        if !ending && !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(%error, "{what}");
        }
        Turn::Rest(self.backoff.next())
    }

    fn reached(&mut self) {
        self.failing = false;
        self.backoff.reset();
    }

    fn judge(&self, newest: Option<LeaseRecord>) -> Turn {
        let me = &self.settings().me;
        match newest {
            Some(holder) if holder.wal != Some(me.wal) && !holder.released => Turn::Follow(holder),
            // The process that held the data folder before is dead: its lock is ours.
            former if self.candidate => Turn::Take {
                former,
                lapsed: false,
            },
            Some(_) | None => {
                self.stand(Whom::Nobody);
                Turn::Rest(self.look_interval())
            }
        }
    }

    fn look_interval(&self) -> Duration {
        self.settings().lease / LOOKS_PER_LEASE
    }

    /// Follows a holder. Looks at the lease only while it doesn't answer.
    async fn follow(&mut self, mut holder: LeaseRecord) -> Turn {
        let serial = self.stand_by(&holder);
        let lease = holder.lease.max(self.settings().lease);
        let mut watch = LapseWatch::new(holder.number, lease, self.now());
        loop {
            if self.answers(serial) {
                self.stay(serial).await;
                if self.candidate && self.is_gone(&holder).await {
                    return self.take_from_dead(&holder).await;
                }
                // Many numbers may have come and gone, so that the next one says nothing.
                return Turn::Look;
            }
            let asked = self.now();
            match self.lease.behind(watch.number()).await {
                Ok(Some(newer)) if newer.incarnation != holder.incarnation || newer.released => {
                    return self.judge(Some(newer));
                }
                Ok(Some(newer)) => {
                    watch.saw(newer.number, self.now());
                    holder = newer;
                    self.backoff.reset();
                }
                Ok(None) if self.candidate && asked >= watch.lapses_at() => {
                    return self.take_lapsed(holder, watch.number()).await;
                }
                Ok(None) => self.backoff.reset(),
                Err(error) => {
                    tracing::debug!(%error, "the lease can't be looked at");
                    // While the store doesn't answer nobody can renew: the holder gets a whole lease after that.
                    let pause = self.backoff.next();
                    self.meanwhile(tokio::time::sleep(pause)).await;
                    watch.restart(self.now());
                    continue;
                }
            }
            let mut wake = self.now() + self.look_interval();
            if self.candidate {
                wake = wake.min(watch.lapses_at().max(self.now()));
            }
            let mut link = self.link.clone();
            self.meanwhile(async move {
                // Cancel-safe: both are looked at again.
                tokio::select! {
                    () = tokio::time::sleep_until(wake) => {}
                    _ = link.wait_for(|state| state.serial == serial && state.working) => {}
                }
            })
            .await;
        }
    }

    /// Takes a lapsed lease over, unless a listing shows newer numbers: whoever was paused may have missed so many
    /// that the next one was deleted.
    async fn take_lapsed(&mut self, holder: LeaseRecord, number: u64) -> Turn {
        self.looked = self.now();
        match self.lease.newest().await {
            Ok(Some(newest)) if newest.number > number => self.judge(Some(newest)),
            Ok(Some(_) | None) => Turn::Take {
                former: Some(holder),
                lapsed: true,
            },
            Err(error) => self.failed(&error, "the controller can't be looked for yet"),
        }
    }

    /// Whether a holder whose session broke is known to have died. One that was never reached isn't: the endpoint it
    /// names may be wrong.
    async fn is_gone(&self, holder: &LeaseRecord) -> bool {
        match &holder.internal {
            Some(endpoint) => is_gone(|| self.reach.is_deserted(endpoint)).await,
            None => false,
        }
    }

    /// Takes over from a holder that died, unless somebody did already.
    async fn take_from_dead(&mut self, holder: &LeaseRecord) -> Turn {
        self.looked = self.now();
        match self.lease.newest().await {
            Ok(Some(newest)) if newest.incarnation == holder.incarnation && !newest.released => {
                tracing::warn!(broker = ?newest.broker, "the controller's session broke, and nobody listens at its port");
                Turn::Take {
                    former: Some(newest),
                    lapsed: true,
                }
            }
            Ok(newest) => self.judge(newest),
            Err(error) => self.failed(&error, "the controller can't be looked for yet"),
        }
    }

    /// Stays with a controller that answers until it doesn't, or until it is suspected to have been cut off from the
    /// store: then it can neither renew its lease nor learn that it has lost it.
    async fn stay(&mut self, serial: u64) {
        let mut link = self.link.clone();
        let shared = self.shared.clone();
        self.meanwhile(async move {
            // Cancel-safe: the link's state is read again, a suspicion that is lost comes again.
            tokio::select! {
                // An error: the link has ended, and so does everything.
                _ = link.wait_for(|state| state.serial == serial && !state.working) => {}
                () = async {
                    shared.suspicion.notified().await;
                    tokio::time::sleep(shared.settings.lease).await;
                } => {}
            }
        })
        .await;
    }

    fn answers(&self, serial: u64) -> bool {
        let link = *self.link.borrow();
        link.serial == serial && link.working
    }

    /// Waits, and takes commands meanwhile.
    async fn meanwhile(&mut self, wait: impl Future<Output = ()>) {
        let mut wait = std::pin::pin!(wait);
        loop {
            // Cancel-safe: `wait` is polled by reference, a channel loses nothing.
            tokio::select! {
                () = &mut wait => return,
                Some(Command::Resign(done)) = self.inbox.recv() => {
                    self.candidate = false;
                    // Whoever asked may be gone.
                    let _ = done.send(());
                }
            }
        }
    }

    fn record(&self, number: u64, released: bool) -> LeaseRecord {
        let me = &self.settings().me;
        LeaseRecord {
            number,
            broker: *self.shared.broker.borrow(),
            incarnation: me.incarnation,
            wal: Some(me.wal),
            internal: Some(me.internal.clone()),
            lease: self.settings().lease,
            released,
        }
    }

    /// Creates the next number, and holds the lease for a term.
    async fn take(&mut self, former: Option<LeaseRecord>, lapsed: bool) -> Turn {
        let number = former.as_ref().map_or(1, |former| former.number + 1);
        let record = self.record(number, false);
        match self.lease.create(&record).await {
            Ok(LeaseCreate::Created) => {}
            Ok(LeaseCreate::Taken(other)) if other.incarnation == record.incarnation => {}
            Ok(LeaseCreate::Taken(_)) => return Turn::Look,
            Err(error) => return self.failed(&error, "the lease can't be taken yet"),
        }
        self.reached();
        self.stand(Whom::Nobody);
        let term = Term {
            number,
            me: self.shared.broker.borrow().unwrap_or_else(first_broker),
            former,
            former_lapsed: lapsed,
        };
        tracing::info!(number, lapsed, "this broker holds the lease");
        let tasks = self.tasks.child("controller");
        let (newest, mut taken) = self.renew(record, &tasks);
        let end = self.hold(&term, &tasks, &mut taken).await;
        self.shared.active.send_replace(None);
        self.stand(Whom::Nobody);
        if let Err(error) = tasks.shutdown(self.settings().stop_patience).await {
            tracing::warn!(%error, "the controller didn't stop in time");
        }
        self.after(end, newest.load(Ordering::Acquire)).await
    }

    /// Starts renewing. Losing the lease ends all that belongs to the term at once.
    fn renew(
        &self,
        record: LeaseRecord,
        tasks: &Tasks,
    ) -> (Arc<AtomicU64>, oneshot::Receiver<Taken>) {
        let newest = Arc::new(AtomicU64::new(record.number));
        let token = tasks.token().clone();
        let renewal = Renewal {
            lease: self.lease.clone(),
            record,
            known: self.looked,
            broker: self.shared.broker.subscribe(),
            number: newest.clone(),
            clock: self.shared.clock.clone(),
            token: token.clone(),
        };
        let (lost, taken) = oneshot::channel();
        tasks.spawn("lease", OnExit::StopProcess, async move {
            if let Some(other) = renewal.run().await {
                // Nobody waits for it if the term ended by itself.
                let _ = lost.send(other);
                token.cancel();
            }
        });
        (newest, taken)
    }

    /// Opens the controller and keeps it until the term ends.
    async fn hold(
        &mut self,
        term: &Term,
        tasks: &Tasks,
        taken: &mut oneshot::Receiver<Taken>,
    ) -> TermEnd {
        let host = self.host.clone();
        let mut backoff = Backoff::new(self.settings().backoff);
        let opening = async {
            loop {
                match host.open(term, tasks).await {
                    Err(error) if error.is_retriable() => {
                        tracing::warn!(%error, "the metadata can't be opened yet");
                        tokio::time::sleep(backoff.next()).await;
                    }
                    result => return result,
                }
            }
        };
        // Cancel-safe: the caller cancels `tasks`, which undoes what was begun.
        let opened = tokio::select! {
            biased;
            Ok(Taken(other)) = &mut *taken => return TermEnd::Taken(other),
            Some(command) = self.inbox.recv() => return TermEnd::Resigned(command),
            opened = opening => opened,
        };
        let Seated { active, mut exit } = match opened {
            Ok(seated) => seated,
            Err(OpenError::Deposed { broker }) => {
                return TermEnd::Exit(Some(ControllerExit::Deposed { broker }));
            }
            Err(error) => return TermEnd::Fatal(error.to_string()),
        };
        tracing::info!(
            controller_epoch = active.images.borrow().version().controller_epoch.get(),
            number = term.number,
            "this broker is the controller"
        );
        let active = Arc::new(active);
        self.shared.active.send_replace(Some(active.clone()));
        self.stand(Whom::Here(active));
        let mut broker = self.shared.broker.subscribe();
        let numbered = broker.wait_for(|broker| broker.is_some_and(|broker| broker != term.me));
        // Cancel-safe: the term ends with the first of them.
        tokio::select! {
            biased;
            Ok(Taken(other)) = &mut *taken => TermEnd::Taken(other),
            exit = &mut exit => TermEnd::Exit(exit.ok()),
            Some(command) = self.inbox.recv() => TermEnd::Resigned(command),
            _ = numbered => TermEnd::Numbered,
        }
    }

    /// What follows a term. Everything of it has stopped.
    async fn after(&mut self, end: TermEnd, newest: u64) -> Turn {
        match end {
            TermEnd::Taken(other) => {
                tracing::info!(broker = ?other.broker, number = other.number, "another broker has taken the lease over");
                Turn::Look
            }
            TermEnd::Exit(Some(ControllerExit::Damaged(cause))) => {
                self.fatal(cause.to_string(), newest).await
            }
            TermEnd::Fatal(cause) => self.fatal(cause, newest).await,
            // Somebody opened the metadata without the lease, or is about to show that it has it. Without a pause
            // two such brokers would depose each other without end.
            TermEnd::Exit(Some(ControllerExit::Deposed { .. })) => {
                Turn::Rest(self.settings().lease)
            }
            TermEnd::Exit(Some(ControllerExit::Shutdown) | None) => {
                Turn::Rest(self.settings().lease)
            }
            TermEnd::Resigned(Command::Resign(done)) => {
                self.candidate = false;
                self.release(newest).await;
                // Whoever asked may be gone.
                let _ = done.send(());
                Turn::Look
            }
            TermEnd::Numbered => Turn::Look,
        }
    }

    /// Another release may be able to read what this one can't.
    async fn fatal(&mut self, cause: String, newest: u64) -> Turn {
        tracing::error!(cause, "this broker can't be the controller");
        self.candidate = false;
        self.shared.fatal.send_replace(Some(MemberFatal { cause }));
        self.release(newest).await;
        Turn::Look
    }

    async fn release(&self, newest: u64) {
        let mut number = newest + 1;
        // The first may be a renewal whose answer was lost; after that there is nothing of this life any more.
        for _ in 0..2 {
            match self.lease.create(&self.record(number, true)).await {
                Ok(LeaseCreate::Created) => {
                    tracing::info!(number, "the lease is released");
                    return;
                }
                Ok(LeaseCreate::Taken(other))
                    if other.incarnation == self.settings().me.incarnation =>
                {
                    number = other.number + 1;
                }
                // Somebody has taken it.
                Ok(LeaseCreate::Taken(_)) => return,
                Err(error) => {
                    tracing::warn!(%error, "the lease can't be released; it lapses by itself");
                    return;
                }
            }
        }
    }

    /// Says who is the controller.
    fn stand(&self, controller: Whom) -> u64 {
        let mut serial = 0;
        self.shared.standing.send_if_modified(|standing| {
            let same = matches!(
                (&standing.controller, &controller),
                (Whom::Nobody, Whom::Nobody)
            );
            if !same {
                *standing = Standing {
                    serial: standing.serial + 1,
                    controller,
                };
            }
            serial = standing.serial;
            !same
        });
        self.shared.tell_known();
        serial
    }

    /// Says that a holder elsewhere is the controller; nothing changes if it was before.
    fn stand_by(&self, holder: &LeaseRecord) -> u64 {
        let Some(endpoint) = &holder.internal else {
            return self.stand(Whom::Nobody);
        };
        let standing = self.shared.standing.borrow().clone();
        if let Whom::There(there) = &standing.controller
            && there.incarnation == holder.incarnation
            && there.endpoint == *endpoint
        {
            return standing.serial;
        }
        let number = holder.number;
        tracing::info!(broker = ?holder.broker.map(BrokerId::get), %endpoint, number, "following the controller");
        self.stand(Whom::There(Arc::new(There {
            broker: holder.broker,
            incarnation: holder.incarnation,
            endpoint: endpoint.clone(),
            parts: self.reach.controller(holder.broker, endpoint),
        })))
    }
}

/// What registration gives the first broker of a cluster.
fn first_broker() -> BrokerId {
    BrokerId::new(1).expect("1 is a broker's number")
}
