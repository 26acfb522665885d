//! Latencies of one run: a histogram for the whole and one for the current interval of the timeline.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart; longer ones count as this.
const LONGEST_US: u64 = 600_000_000;

/// Percentiles in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencySummary {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// Latencies in microseconds, exact to three digits.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, 3)
            .expect("the bounds are constant and valid: 1 <= low < high / 2, at most 5 digits");
        Self(histogram)
    }

    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LONGEST_US);
        self.0.saturating_record(micros.max(1));
    }

    pub fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("both histograms have the same bounds, so every value fits");
    }

    pub fn clear(&mut self) {
        // `Histogram::clear` would keep the maximum.
        self.0.reset();
    }

    /// `None` if nothing was recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.0.is_empty() {
            return None;
        }
        let quantile = |q: f64| milliseconds(self.0.value_at_quantile(q));
        Some(LatencySummary {
            count: self.0.len(),
            mean: self.0.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(self.0.max()),
        })
    }
}

fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_milliseconds() {
        let mut latencies = Latencies::new();
        for ms in 1..=1_000 {
            latencies.record(Duration::from_millis(ms));
        }
        let summary = latencies.summary().expect("something was recorded");
        assert_eq!(summary.count, 1_000);
        assert!((summary.p50 - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99 - 990.0).abs() < 1.0, "{summary:?}");
        assert!((summary.max - 1_000.0).abs() < 1.0, "{summary:?}");
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_counted_not_lost() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(86_400));
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.summary().map(|summary| summary.count), Some(2));
    }

    #[test]
    fn a_cleared_histogram_forgets_its_maximum() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(1));
        latencies.clear();
        latencies.record(Duration::from_millis(1));
        let max = latencies.summary().map(|summary| summary.max);
        assert!(max.is_some_and(|max| max < 2.0), "{max:?}");
    }

    #[test]
    fn nothing_recorded_has_no_summary() {
        assert!(Latencies::new().summary().is_none());
    }
}
