//! How many requests may be in flight, and how fast they may follow each other.
//!
//! Additive increase, multiplicative decrease: the limit halves when the store asks for a lower rate and
//! grows by one per window of successes. At a limit of one the pace falls further, by a pause between
//! requests that doubles. WAL requests go first, so catching up can't hold up producers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_runtime::Random;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::options::RequestClass;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Answers to requests sent before a decrease say nothing about the rate after it.
const DECREASE_WINDOW: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(crate) struct Limiter {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    max: f64,
    limit: f64,
    in_flight: usize,
    first: VecDeque<oneshot::Sender<Permit>>,
    rest: VecDeque<oneshot::Sender<Permit>>,
    pause: Duration,
    not_before: Option<Instant>,
    last_decrease: Option<Instant>,
}

/// The right to have one request in flight; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Option<Limiter>,
}

/// What the limiter looks like from outside, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimiterState {
    pub limit: usize,
    pub in_flight: usize,
    pub waiting: usize,
}

impl Limiter {
    pub(crate) fn new(max_concurrency: usize) -> Self {
        let max = max_concurrency.max(1) as f64;
        Self {
            shared: Arc::new(Mutex::new(State {
                max,
                limit: max,
                in_flight: 0,
                first: VecDeque::new(),
                rest: VecDeque::new(),
                pause: Duration::ZERO,
                not_before: None,
                last_decrease: None,
            })),
        }
    }

    /// Waits for a place among the requests in flight, then for the pace. Cancel-safe: a place that was
    /// granted to a caller that has gone goes to the next.
    pub(crate) async fn acquire(&self, class: RequestClass) -> Permit {
        let waiter = {
            let mut state = self.shared.lock();
            if state.has_room() && state.first.is_empty() && state.rest.is_empty() {
                state.in_flight += 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                match class {
                    RequestClass::Wal => state.first.push_back(sender),
                    RequestClass::Read | RequestClass::Background => state.rest.push_back(sender),
                }
                Some(receiver)
            }
        };
        let permit = match waiter {
            None => self.permit(),
            Some(receiver) => receiver
                .await
                .expect("the limiter is held by the caller and drops no waiter"),
        };
        loop {
            let not_before = self.shared.lock().not_before;
            match not_before {
                Some(at) if at > Instant::now() => tokio::time::sleep_until(at).await,
                Some(_) | None => return permit,
            }
        }
    }

    pub(crate) fn on_success(&self) {
        let mut state = self.shared.lock();
        state.limit = (state.limit + 1.0 / state.limit).min(state.max);
        state.pause /= 2;
        if state.pause < FIRST_PAUSE {
            state.pause = Duration::ZERO;
            state.not_before = None;
        }
        drop(state);
        self.wake();
    }

    /// The pause is jittered: brokers that share a bucket must not come back in step.
    pub(crate) fn on_throttled(&self, random: &Random) {
        let mut state = self.shared.lock();
        let now = Instant::now();
        if state
            .last_decrease
            .is_some_and(|at| now < at + DECREASE_WINDOW)
        {
            return;
        }
        state.last_decrease = Some(now);
        if state.limit > 1.0 {
            state.limit = (state.limit / 2.0).max(1.0);
        } else {
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            state.not_before = Some(now + random.jitter(state.pause));
        }
    }

    pub(crate) fn state(&self) -> LimiterState {
        let state = self.shared.lock();
        LimiterState {
            limit: state.limit as usize,
            in_flight: state.in_flight,
            waiting: state.first.len() + state.rest.len(),
        }
    }

    fn permit(&self) -> Permit {
        Permit {
            limiter: Some(self.clone()),
        }
    }

    fn release(&self) {
        self.shared.lock().in_flight -= 1;
        self.wake();
    }

    fn wake(&self) {
        loop {
            let next = {
                let mut state = self.shared.lock();
                if !state.has_room() {
                    return;
                }
                let Some(next) = state.first.pop_front().or_else(|| state.rest.pop_front()) else {
                    return;
                };
                state.in_flight += 1;
                next
            };
            // A waiter that has gone gives its permit back here, outside the lock. Disarmed, because
            // releasing it would recurse once per waiter that has gone.
            if let Err(mut permit) = next.send(self.permit()) {
                permit.limiter = None;
                self.shared.lock().in_flight -= 1;
            }
        }
    }
}

impl State {
    fn has_room(&self) -> bool {
        (self.in_flight as f64) < self.limit.floor()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.take() {
            limiter.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wal_goes_before_reads_that_waited_longer() {
        let limiter = Limiter::new(1);
        let held = limiter.acquire(RequestClass::Read).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let run = |class, name| {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            async move {
                let _permit = limiter.acquire(class).await;
                order.lock().push(name);
            }
        };
        let reads = async {
            tokio::join!(
                run(RequestClass::Read, "read"),
                run(RequestClass::Background, "background"),
                run(RequestClass::Wal, "wal"),
            )
        };
        tokio::join!(reads, async {
            tokio::task::yield_now().await;
            assert_eq!(limiter.state().waiting, 3);
            drop(held);
        });
        assert_eq!(*order.lock(), ["wal", "read", "background"]);
        assert_eq!(limiter.state().in_flight, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_that_gave_up_leave_no_place_taken() {
        let limiter = Limiter::new(1);
        let held = limiter.acquire(RequestClass::Read).await;
        for _ in 0..10 {
            let wait = limiter.acquire(RequestClass::Read);
            assert!(
                tokio::time::timeout(Duration::from_millis(1), wait)
                    .await
                    .is_err()
            );
        }
        drop(held);
        let _next = limiter.acquire(RequestClass::Read).await;
        assert_eq!(limiter.state().in_flight, 1);
        assert_eq!(limiter.state().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_minute_of_throttling_is_met_with_few_requests_and_success_restores_the_rate() {
        let limiter = Limiter::new(64);
        let random = Random::seeded(1);
        let end = Instant::now() + Duration::from_secs(60);
        let mut requests = 0;
        while Instant::now() < end {
            let _permit = limiter.acquire(RequestClass::Background).await;
            requests += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
            limiter.on_throttled(&random);
        }
        assert_eq!(limiter.state().limit, 1);
        // Some 300 come in the second in which the limit falls from 64 to 1, then the pause grows.
        assert!(requests < 400, "{requests} requests in a minute of 503");
        let restored = Instant::now();
        for _ in 0..3000 {
            let _permit = limiter.acquire(RequestClass::Background).await;
            limiter.on_success();
        }
        assert_eq!(limiter.state().limit, 64);
        assert!(restored.elapsed() < Duration::from_secs(15));
    }
}
