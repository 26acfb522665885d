//! How much memory requests may take before they are handled.
//!
//! What counts is what has arrived, not what was announced: a client that promises a large request and stays silent
//! keeps nobody waiting. So several requests may be half read when the memory is used up, and each would wait for the
//! others for ever. One of them at a time may therefore go on regardless: the memory of all requests is at most the
//! limit, one request of the largest size, and the one read of each connection that isn't counted yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes per permit.
const UNIT: usize = 1024;

/// Admits requests by their size. A connection whose request doesn't fit waits, unread, until others are done.
#[derive(Clone)]
pub struct Admission {
    permits: Arc<Semaphore>,
    total: u32,
    /// Of the one request that may pass the limit.
    overdraft: Arc<Semaphore>,
}

/// The memory of one request, whole or half read; given back when dropped.
#[derive(Default)]
pub(super) struct Admitted {
    permit: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub fn new(limit_bytes: usize) -> Self {
        let total = u32::try_from((limit_bytes / UNIT).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::MAX >> 4);
        Self {
            permits: Arc::new(Semaphore::new(total as usize)),
            total,
            overdraft: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until `admitted` covers so many bytes. A request that is larger than everything takes everything.
    pub(super) async fn cover(&self, admitted: &mut Admitted, bytes: usize) {
        let wanted = u32::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .clamp(1, self.total);
        let held = admitted.units();
        if held >= wanted || admitted.overdraft.is_some() {
            return;
        }
        // Cancel-safe: a permit that wasn't handed out stays where it is.
        tokio::select! {
            biased;
            more = self.permits.clone().acquire_many_owned(wanted - held) => {
                admitted.take(more.expect("the semaphore is never closed"));
            }
            // Only for who holds what others wait for.
            only = self.overdraft.clone().acquire_owned(), if held > 0 => {
                admitted.overdraft = Some(only.expect("the semaphore is never closed"));
            }
        }
    }
}

impl Admitted {
    fn units(&self) -> u32 {
        self.permit
            .as_ref()
            .and_then(|permit| u32::try_from(permit.num_permits()).ok())
            .unwrap_or(0)
    }

    fn take(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const TOTAL: usize = 100 * UNIT;

    fn covers(admission: &Admission, admitted: &mut Admitted, bytes: usize) -> bool {
        admission.cover(admitted, bytes).now_or_never().is_some()
    }

    #[test]
    fn half_read_requests_do_not_wait_for_each_other_for_ever() {
        let admission = Admission::new(TOTAL);
        let (mut one, mut two) = (Admitted::default(), Admitted::default());
        assert!(covers(&admission, &mut one, TOTAL / 2));
        assert!(covers(&admission, &mut two, TOTAL / 2));
        assert!(covers(&admission, &mut one, TOTAL), "one may go on");
        assert!(!covers(&admission, &mut two, TOTAL), "and only one");
        drop(one);
        assert!(covers(&admission, &mut two, TOTAL));
        drop(two);
        assert!(covers(&admission, &mut Admitted::default(), TOTAL));
    }

    #[test]
    fn what_has_not_begun_never_passes_the_limit() {
        let admission = Admission::new(TOTAL);
        let (mut one, mut late) = (Admitted::default(), Admitted::default());
        assert!(covers(&admission, &mut one, 1_000 * TOTAL));
        assert!(!covers(&admission, &mut late, 1));
        drop(one);
        assert!(covers(&admission, &mut late, 1));
    }

    #[test]
    fn growing_takes_only_what_is_missing() {
        let admission = Admission::new(TOTAL);
        let (mut one, mut two) = (Admitted::default(), Admitted::default());
        for bytes in [UNIT, 10 * UNIT, 10 * UNIT, 40 * UNIT] {
            assert!(covers(&admission, &mut one, bytes));
        }
        assert_eq!(one.units(), 40);
        assert!(covers(&admission, &mut two, 60 * UNIT));
        assert!(!covers(&admission, &mut Admitted::default(), 1));
    }
}
