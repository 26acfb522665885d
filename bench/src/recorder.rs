//! What has arrived: counted from the threads it arrives on, sampled by the one that draws the timeline.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::histogram::Latencies;

/// Nanoseconds since the run's origin.
pub type Nanos = u64;

/// How many kinds of failure are told apart.
const ERROR_KINDS: usize = 16;

/// The measured part of a run. What is planned before `from` is warm-up, what arrives at or after `until`
/// isn't part of the throughput.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Nanos,
    pub until: Nanos,
}

impl Window {
    fn contains(self, at: Nanos) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// Sums over a run or an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub records: u64,
    pub bytes: u64,
}

impl Counts {
    fn add(&mut self, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
    }

    pub fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

/// Everything one recorder has seen.
#[derive(Clone)]
pub struct Recorded {
    /// Including warm-up and what came late.
    pub all: Counts,
    /// Arrived within the window.
    pub measured: Counts,
    /// Of what was planned within the window, whenever it arrived.
    pub latencies: Latencies,
    pub errors: BTreeMap<String, u64>,
    /// When the last one arrived.
    pub last: Nanos,
    interval: Counts,
    interval_latencies: Latencies,
}

/// Counts arrivals. Cheap enough to be called once a record: one uncontended lock.
pub struct Recorder {
    origin: Instant,
    window: Window,
    recorded: Mutex<Recorded>,
}

impl Recorder {
    pub fn new(origin: Instant, window: Window) -> Self {
        Self {
            origin,
            window,
            recorded: Mutex::new(Recorded {
                all: Counts::default(),
                measured: Counts::default(),
                latencies: Latencies::new(),
                errors: BTreeMap::new(),
                last: 0,
                interval: Counts::default(),
                interval_latencies: Latencies::new(),
            }),
        }
    }

    /// A record of `bytes` that was planned at `planned` has arrived now.
    pub fn arrived(&self, planned: Nanos, bytes: u64) {
        let now = nanos_since(self.origin);
        let latency = Duration::from_nanos(now.saturating_sub(planned));
        let mut recorded = self.lock();
        recorded.all.add(bytes);
        recorded.interval.add(bytes);
        recorded.interval_latencies.record(latency);
        recorded.last = now;
        if self.window.contains(now) {
            recorded.measured.add(bytes);
        }
        if self.window.contains(planned) {
            recorded.latencies.record(latency);
        }
    }

    /// One record failed. Kinds beyond the first [`ERROR_KINDS`] are counted together.
    pub fn failed(&self, kind: String) {
        let mut recorded = self.lock();
        let errors = &mut recorded.errors;
        let kind = if errors.len() < ERROR_KINDS || errors.contains_key(&kind) {
            kind
        } else {
            "other".to_owned()
        };
        *errors.entry(kind).or_default() += 1;
    }

    /// What has arrived since the last call; its latencies are merged into `latencies`.
    pub fn take_interval(&self, latencies: &mut Latencies) -> Counts {
        let mut recorded = self.lock();
        latencies.merge(&recorded.interval_latencies);
        recorded.interval_latencies.clear();
        std::mem::take(&mut recorded.interval)
    }

    pub fn recorded(&self) -> Recorded {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// Sums up several recorders; `None` for none.
    pub fn sum(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|mut sum, part| {
            sum.all.merge(part.all);
            sum.measured.merge(part.measured);
            sum.latencies.merge(&part.latencies);
            for (kind, count) in part.errors {
                *sum.errors.entry(kind).or_default() += count;
            }
            sum.last = sum.last.max(part.last);
            sum
        })
    }
}

/// The time since the origin; 584 years fit.
pub fn nanos_since(origin: Instant) -> Nanos {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_counts_for_the_total_only() {
        let hour = 3_600_000_000_000;
        let recorder = Recorder::new(
            Instant::now(),
            Window {
                from: hour,
                until: 2 * hour,
            },
        );
        recorder.arrived(0, 10);
        let recorded = recorder.recorded();
        assert_eq!(
            recorded.all,
            Counts {
                records: 1,
                bytes: 10
            }
        );
        assert_eq!(recorded.measured, Counts::default());
        assert!(recorded.latencies.summary().is_none());
    }

    #[test]
    fn a_late_arrival_planned_in_the_window_keeps_its_latency() {
        let recorder = Recorder::new(Instant::now(), Window { from: 0, until: 1 });
        recorder.arrived(0, 10);
        let recorded = recorder.recorded();
        assert_eq!(recorded.measured, Counts::default());
        assert_eq!(
            recorded.latencies.summary().map(|summary| summary.count),
            Some(1)
        );
    }

    #[test]
    fn kinds_of_failure_are_bounded_but_each_failure_counts() {
        let recorder = Recorder::new(Instant::now(), Window { from: 0, until: 1 });
        (0..100).for_each(|index| recorder.failed(format!("kind {index}")));
        let errors = recorder.recorded().errors;
        assert_eq!(errors.len(), ERROR_KINDS + 1);
        assert_eq!(errors.values().sum::<u64>(), 100);
    }

    #[test]
    fn an_interval_is_taken_once() {
        let recorder = Recorder::new(
            Instant::now(),
            Window {
                from: 0,
                until: u64::MAX,
            },
        );
        recorder.arrived(0, 10);
        let mut latencies = Latencies::new();
        assert_eq!(recorder.take_interval(&mut latencies).records, 1);
        assert_eq!(recorder.take_interval(&mut latencies).records, 0);
        assert_eq!(latencies.summary().map(|summary| summary.count), Some(1));
    }
}
