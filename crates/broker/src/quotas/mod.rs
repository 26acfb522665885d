//! Client quotas: how fast a user, a client id or an address may go (KIP-13, 124, 257, 599, 612).
//!
//! The limits are in the cluster's metadata and reach every broker with its image; each broker applies them to what
//! it sees itself, as Kafka does. Over its limit, a client is answered at once and told in the answer how long to
//! wait; its connection isn't read for that time, so one that doesn't heed it gains nothing (KIP-219).
//!
//! While no quota of a kind is set, a request costs a look at a flag. Else it takes one lock for a moment, under
//! which its sensor is found and changed. Sensors are bounded in number (`sensors`).

mod busy;
mod limits;
mod metrics;
mod rate;
mod sensors;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_runtime::SharedClock;
use tokio::time::Instant;

pub(crate) use busy::measured;
pub(crate) use limits::{Asker, CONNECTION_RATE, QuotaKind, QuotaTable};
pub(crate) use metrics::QuotaMetrics;

use limits::{Bound, Scope};
use rate::{Millis, SAMPLE_MS, SAMPLES, TokenBucket, WindowedRate};
use sensors::{SensorKey, Sensors};

/// Over a limit of requests' time or of connections nobody is held back for longer, as in Kafka: the window of a
/// sample.
const SHORT: Duration = Duration::from_millis(SAMPLE_MS);

/// The limits, and whom to judge by them.
#[derive(Clone, Copy)]
pub(crate) struct Quoted<'a> {
    pub(crate) table: &'a QuotaTable,
    pub(crate) asker: Asker<'a>,
}

impl Quoted<'_> {
    fn bound(self, kind: QuotaKind) -> Option<Bound> {
        self.table.bound(kind, self.asker)
    }
}

/// What this broker measures.
pub(crate) struct Quotas {
    clock: SharedClock,
    epoch: Instant,
    hashers: [RandomState; 2],
    produce: Sensors<WindowedRate>,
    fetch: Sensors<WindowedRate>,
    request: Sensors<WindowedRate>,
    mutation: Sensors<TokenBucket>,
    connection: Sensors<WindowedRate>,
    metrics: QuotaMetrics,
}

impl Quotas {
    pub(crate) fn new(clock: SharedClock, metrics: QuotaMetrics) -> Self {
        Self {
            epoch: clock.now(),
            clock,
            hashers: [RandomState::new(), RandomState::new()],
            produce: Sensors::new(),
            fetch: Sensors::new(),
            request: Sensors::new(),
            mutation: Sensors::new(),
            connection: Sensors::new(),
            metrics,
        }
    }

    pub(crate) fn metrics(&self) -> &QuotaMetrics {
        &self.metrics
    }

    /// Counts a produce request; answers how long its client is to be held back.
    pub(crate) fn produced(&self, quota: Quoted<'_>, bytes: usize) -> Duration {
        let kind = QuotaKind::Produce;
        let Some(bound) = quota.bound(kind) else {
            return Duration::ZERO;
        };
        let (key, now) = (self.key(bound.scope, quota.asker), self.now());
        let throttle = self.produce.with(key, now, |sensor| {
            sensor.record(bytes as f64, now);
            sensor.excess(bound.limit, now)
        });
        self.metrics.sensors(kind.key(), self.produce.len());
        self.told(kind.key(), throttle)
    }

    /// The most that one fetch may answer: more would always be over the limit.
    pub(crate) fn most_fetched(&self, quota: Quoted<'_>) -> usize {
        match quota.bound(QuotaKind::Fetch) {
            // A float goes to the nearest integer there is.
            Some(bound) => (bound.limit * (SAMPLES - 1) as f64) as usize,
            None => usize::MAX,
        }
    }

    /// Counts what a fetch answers, unless that is over the limit: then it answers how long the client is to be held
    /// back, and nothing may be answered.
    pub(crate) fn fetched(&self, quota: Quoted<'_>, bytes: usize) -> Duration {
        let kind = QuotaKind::Fetch;
        let Some(bound) = quota.bound(kind) else {
            return Duration::ZERO;
        };
        let (key, now) = (self.key(bound.scope, quota.asker), self.now());
        let throttle = self.fetch.with(key, now, |sensor| {
            sensor.record(bytes as f64, now);
            let throttle = sensor.excess(bound.limit, now);
            if !throttle.is_zero() {
                sensor.record(-(bytes as f64), now);
            }
            throttle
        });
        self.metrics.sensors(kind.key(), self.fetch.len());
        self.told(kind.key(), throttle)
    }

    /// Counts the time that a request kept a thread busy; answers how long its client is to be held back.
    pub(crate) fn ran(&self, quota: Quoted<'_>, busy: Duration) -> Duration {
        let kind = QuotaKind::Request;
        let Some(bound) = quota.bound(kind) else {
            return Duration::ZERO;
        };
        let (key, now) = (self.key(bound.scope, quota.asker), self.now());
        let throttle = self.request.with(key, now, |sensor| {
            sensor.record(busy.as_secs_f64() * 100.0, now);
            sensor.excess(bound.limit, now).min(SHORT)
        });
        self.metrics.sensors(kind.key(), self.request.len());
        self.told(kind.key(), throttle)
    }

    /// Counts a new connection, unless its address is over its limit: then it answers how long to hold it before it
    /// is closed.
    pub(crate) fn connected(&self, table: &QuotaTable, address: IpAddr) -> Duration {
        let Some(limit) = table.connection_rate(address) else {
            return Duration::ZERO;
        };
        let (key, now) = (self.hash(address.to_canonical()), self.now());
        let throttle = self.connection.with(key, now, |sensor| {
            sensor.record(1.0, now);
            let throttle = sensor.excess(limit, now).min(SHORT);
            if !throttle.is_zero() {
                sensor.record(-1.0, now);
            }
            throttle
        });
        self.metrics.sensors(CONNECTION_RATE, self.connection.len());
        self.told(CONNECTION_RATE, throttle)
    }

    /// What one request may change of the cluster's partitions. A strict one is refused what is over the limit; the
    /// others are carried out, and their clients held back afterwards.
    pub(crate) fn mutations(&self, quota: Quoted<'_>, strict: bool) -> Mutations<'_> {
        let bound = quota.bound(QuotaKind::Mutation);
        Mutations {
            quotas: self,
            bound: bound.map(|bound| (bound, self.key(bound.scope, quota.asker))),
            strict,
            throttled_at: None,
        }
    }

    fn told(&self, quota: &'static str, throttle: Duration) -> Duration {
        if !throttle.is_zero() {
            self.metrics.throttled(quota, throttle);
        }
        throttle
    }

    fn now(&self) -> Millis {
        let since = self.clock.now().saturating_duration_since(self.epoch);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn key(&self, scope: Scope, asker: Asker<'_>) -> SensorKey {
        match scope {
            Scope::UserAndClient => self.hash((scope, asker.user, asker.client_id)),
            Scope::User => self.hash((scope, asker.user)),
            Scope::Client => self.hash((scope, asker.client_id)),
        }
    }

    fn hash(&self, value: impl Hash) -> SensorKey {
        let [high, low] = &self.hashers;
        (u128::from(high.hash_one(&value)) << 64) | u128::from(low.hash_one(&value))
    }
}

/// The changes of partitions that one request wants (KIP-599).
pub(crate) struct Mutations<'a> {
    quotas: &'a Quotas,
    bound: Option<(Bound, SensorKey)>,
    strict: bool,
    throttled_at: Option<(Instant, Duration)>,
}

/// The client is over its limit, and the change isn't to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MutationRefused;

impl Mutations<'_> {
    /// Counts the creation or deletion of so many partitions.
    pub(crate) fn take(&mut self, partitions: usize) -> Result<(), MutationRefused> {
        let Some((bound, key)) = self.bound else {
            return Ok(());
        };
        let (quotas, now) = (self.quotas, self.quotas.now());
        let strict = self.strict;
        let wait = quotas.mutation.with(key, now, |bucket| {
            let before = bucket.wait(bound.limit, now);
            if strict {
                if before.is_zero() {
                    bucket.take(partitions as f64, bound.limit, now);
                }
                return before;
            }
            bucket.take(partitions as f64, bound.limit, now);
            bucket.wait(bound.limit, now)
        });
        let name = QuotaKind::Mutation.key();
        quotas.metrics.sensors(name, quotas.mutation.len());
        if wait.is_zero() {
            return Ok(());
        }
        self.throttled_at = Some((quotas.clock.now(), quotas.told(name, wait)));
        if strict { Err(MutationRefused) } else { Ok(()) }
    }

    /// How long the client is to be held back from now on.
    pub(crate) fn throttle(&self) -> Duration {
        self.throttled_at.map_or(Duration::ZERO, |(at, wait)| {
            let gone = self.quotas.clock.now().saturating_duration_since(at);
            wait.saturating_sub(gone)
        })
    }
}

/// A time as the protocol's field has it.
pub(crate) fn wire_ms(throttle: Duration) -> i32 {
    i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX)
}
