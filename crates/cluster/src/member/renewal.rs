//! Renewing a lease that is held. It waits for nothing but the lease: a controller that is slow, or whose commits
//! wait for the store, keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_runtime::SharedClock;
use tidegate_types::BrokerId;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::lease::{LeaseCreate, LeaseFailure, LeaseRecord, LeaseRow};

/// Renewals per lease.
const PER_LEASE: u32 = 3;
/// The first pause after a renewal that failed, doubled up to the usual one.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// A holder that was away for so many leases looks for the newest number by listing: others may have created and
/// deleted many meanwhile, so that the number behind its own is free again.
const AWAY_LEASES: u32 = 8;

pub(super) struct Renewal {
    pub(super) lease: Arc<dyn LeaseRow>,
    /// The newest one of its own.
    pub(super) record: LeaseRecord,
    /// When the number before it was known to be the newest.
    pub(super) known: Instant,
    /// This broker's number, as soon as it has one.
    pub(super) broker: watch::Receiver<Option<BrokerId>>,
    /// The number of the newest one, for who releases the lease.
    pub(super) number: Arc<AtomicU64>,
    pub(super) clock: SharedClock,
    pub(super) token: CancellationToken,
}

/// The lease is somebody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken(pub(super) LeaseRecord);

impl Renewal {
    /// Renews until somebody else has a higher number. Ends without a result when it is cancelled.
    pub(super) async fn run(mut self) -> Option<Taken> {
        let token = self.token.clone();
        // Cancel-safe: a number that was created without an answer is ours all the same.
        tokio::select! {
            () = token.cancelled() => None,
            taken = self.renew() => Some(taken),
        }
    }

    async fn renew(&mut self) -> Taken {
        let every = self.record.lease / PER_LEASE;
        let mut renewed = self.known;
        let mut failing = false;
        let mut pause = every;
        let mut retry = Backoff::new((FIRST_RETRY.min(every), every));
        // Whoever listed a stale row has created a number that isn't the newest. A failure is met again below.
        if let Ok(Some(other)) = self.lease.behind(self.record.number).await
            && let Some(taken) = self.other(other)
        {
            return taken;
        }
        if let Ok(Some(taken)) = self.look_after_absence(self.known).await {
            return taken;
        }
        loop {
            tokio::time::sleep(pause).await;
            match self.once(renewed).await {
                Ok(None) => {
                    renewed = self.clock.now();
                    pause = every;
                    retry.reset();
                    self.lease.trim(self.record.number).await;
                    if std::mem::take(&mut failing) {
                        tracing::info!("the lease is renewed again");
                    }
                }
                Ok(Some(taken)) => return taken,
                Err(error) => {
                    pause = retry.next();
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "the lease can't be renewed; the controller goes on, since nobody can take over either");
                    }
                }
            }
        }
    }

    async fn once(&mut self, renewed: Instant) -> Result<Option<Taken>, LeaseFailure> {
        let next = LeaseRecord {
            number: self.record.number + 1,
            broker: *self.broker.borrow(),
            ..self.record.clone()
        };
        match self.lease.create(&next).await? {
            LeaseCreate::Created => self.holds(next.number),
            LeaseCreate::Taken(other) => {
                if let Some(taken) = self.other(other) {
                    return Ok(Some(taken));
                }
            }
        }
        self.look_after_absence(renewed).await
    }

    /// Looks for the newest number, after a create, if it was so long ago that the row was last known.
    async fn look_after_absence(&mut self, known: Instant) -> Result<Option<Taken>, LeaseFailure> {
        let away = self.clock.now().saturating_duration_since(known);
        if away <= self.record.lease * AWAY_LEASES {
            return Ok(None);
        }
        match self.lease.newest().await? {
            Some(newest) if newest.number > self.record.number => Ok(self.other(newest)),
            Some(_) | None => Ok(None),
        }
    }

    /// Takes in a record that was found; `None` if it is of this life, by a create whose answer was lost.
    fn other(&mut self, found: LeaseRecord) -> Option<Taken> {
        if found.incarnation != self.record.incarnation {
            return Some(Taken(found));
        }
        self.holds(found.number);
        None
    }

    fn holds(&mut self, number: u64) {
        self.record.number = number;
        self.number.store(number, Ordering::Release);
    }
}
