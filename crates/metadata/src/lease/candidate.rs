//! When to take over: a plain state machine, without I/O and with the time as an argument.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Lease, LeaseBody, LeaseKind};
use crate::model::WalIdentity;

/// Bounds of what a holder may say of its lease time, so that a wrong word doesn't leave the cluster without a
/// controller.
const LEASE_RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Somebody may hold the lease. Look again, at the latest after this time.
    Wait {
        /// Until the lease runs out, if no new number appears.
        remaining: Duration,
    },
    /// Create the number behind this one; `None`: the first.
    TakeOver {
        /// The newest number there is.
        after: Option<u64>,
    },
    /// This life holds it already.
    Mine,
}

/// Watches the row on behalf of one life of a broker.
#[derive(Debug)]
pub struct Candidate {
    incarnation: Uuid,
    wal: Option<WalIdentity>,
    default_lease: Duration,
    /// The greatest number seen, and when it was first seen.
    seen: Option<(u64, Instant)>,
}

impl Candidate {
    /// `default_lease` counts for a holder whose lease can't be read.
    pub fn new(incarnation: Uuid, wal: Option<WalIdentity>, default_lease: Duration) -> Self {
        Self {
            incarnation,
            wal,
            default_lease,
            seen: None,
        }
    }

    /// Takes in what was just read.
    pub fn observe(&mut self, newest: Option<&Lease>, now: Instant) -> Verdict {
        let Some(newest) = newest else {
            return match self.seen {
                // It was there before: the listing is stale, or somebody deletes by hand. Give it its time.
                Some((number, since)) => self.timed(number, since, self.default_lease, now),
                None => Verdict::TakeOver { after: None },
            };
        };
        let since = match self.seen {
            Some((number, since)) if number >= newest.number => since,
            Some(_) | None => now,
        };
        let number = self.seen.map_or(0, |(seen, _)| seen).max(newest.number);
        self.seen = Some((number, since));
        let current = newest.body.as_ref().filter(|_| number == newest.number);
        if let Some(body) = current {
            let released = body.kind == LeaseKind::Released;
            if body.incarnation == self.incarnation && !released {
                return Verdict::Mine;
            }
            if released || self.replaces(body) {
                return Verdict::TakeOver {
                    after: Some(number),
                };
            }
        }
        let lease = current.map_or(self.default_lease, |body| body.lease);
        self.timed(number, since, lease, now)
    }

    /// A local WAL is locked by one process, so a former holder with this one's is dead.
    fn replaces(&self, body: &LeaseBody) -> bool {
        self.wal.is_some() && body.wal == self.wal
    }

    fn timed(&self, number: u64, since: Instant, lease: Duration, now: Instant) -> Verdict {
        let lease = lease.clamp(LEASE_RANGE.0, LEASE_RANGE.1);
        let remaining = lease.saturating_sub(now.saturating_duration_since(since));
        if remaining.is_zero() {
            Verdict::TakeOver {
                after: Some(number),
            }
        } else {
            Verdict::Wait { remaining }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::tests::body;
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    fn held(number: u64, incarnation: u128) -> Lease {
        Lease {
            number,
            body: Some(body(incarnation)),
        }
    }

    fn candidate() -> Candidate {
        Candidate::new(Uuid::from_u128(99), Some(Uuid::from_u128(99)), LEASE)
    }

    #[test]
    fn an_empty_row_is_taken_at_once() {
        let verdict = candidate().observe(None, Instant::now());
        assert_eq!(verdict, Verdict::TakeOver { after: None });
    }

    #[test]
    fn a_holder_that_renews_keeps_the_lease_for_ever() {
        let mut candidate = candidate();
        let mut now = Instant::now();
        for number in 1..100 {
            let verdict = candidate.observe(Some(&held(number, 1)), now);
            assert_eq!(verdict, Verdict::Wait { remaining: LEASE });
            now += SECOND + SECOND / 2;
        }
    }

    #[test]
    fn a_lease_runs_out_when_no_new_number_appears_for_its_time() {
        let mut candidate = candidate();
        let start = Instant::now();
        candidate.observe(Some(&held(5, 1)), start);
        let verdict = candidate.observe(Some(&held(5, 1)), start + SECOND);
        assert_eq!(verdict, Verdict::Wait { remaining: SECOND });
        let verdict = candidate.observe(Some(&held(5, 1)), start + LEASE);
        assert_eq!(verdict, Verdict::TakeOver { after: Some(5) });
    }

    #[test]
    fn a_released_lease_or_that_of_an_own_former_life_is_taken_at_once() {
        let now = Instant::now();
        let mut released = held(5, 1);
        if let Some(body) = &mut released.body {
            body.kind = LeaseKind::Released;
        }
        let taken = Verdict::TakeOver { after: Some(5) };
        assert_eq!(candidate().observe(Some(&released), now), taken);
        let mut same_disk = Candidate::new(Uuid::from_u128(99), body(1).wal, LEASE);
        assert_eq!(same_disk.observe(Some(&held(5, 1)), now), taken);
        let mut no_disk = Candidate::new(Uuid::from_u128(99), None, LEASE);
        let mut diskless = held(5, 1);
        if let Some(body) = &mut diskless.body {
            body.wal = None;
        }
        assert!(matches!(
            no_disk.observe(Some(&diskless), now),
            Verdict::Wait { .. }
        ));
    }

    #[test]
    fn a_stale_listing_neither_prolongs_a_lease_nor_leads_back() {
        let mut candidate = candidate();
        let start = Instant::now();
        candidate.observe(Some(&held(8, 1)), start);
        for stale in [Some(held(6, 1)), None] {
            let verdict = candidate.observe(stale.as_ref(), start + SECOND);
            assert_eq!(verdict, Verdict::Wait { remaining: SECOND });
        }
        let verdict = candidate.observe(Some(&held(6, 1)), start + LEASE);
        assert_eq!(verdict, Verdict::TakeOver { after: Some(8) });
    }

    #[test]
    fn an_unreadable_lease_counts_as_anothers_for_the_default_time() {
        let mut candidate = candidate();
        let start = Instant::now();
        let unreadable = Lease {
            number: 5,
            body: None,
        };
        let verdict = candidate.observe(Some(&unreadable), start);
        assert_eq!(verdict, Verdict::Wait { remaining: LEASE });
        let verdict = candidate.observe(Some(&unreadable), start + LEASE);
        assert_eq!(verdict, Verdict::TakeOver { after: Some(5) });
    }

    #[test]
    fn a_holder_knows_its_own_lease_but_not_after_it_gave_it_back() {
        let mut candidate = candidate();
        let now = Instant::now();
        assert_eq!(candidate.observe(Some(&held(5, 99)), now), Verdict::Mine);
        let mut released = held(6, 99);
        if let Some(body) = &mut released.body {
            body.kind = LeaseKind::Released;
        }
        let verdict = candidate.observe(Some(&released), now);
        assert_eq!(verdict, Verdict::TakeOver { after: Some(6) });
    }
}
