//! What is measured against a limit: a rate over a sliding window, and a bucket of tokens.
//!
//! Both follow Apache Kafka's arithmetic, so that a limit holds clients back in the same way: the rate over 11 samples
//! of a second (`quota.window.num`, `quota.window.size.seconds`), the bucket with a burst of as many seconds (KIP-599).

use std::collections::VecDeque;
use std::time::Duration;

/// Samples of a window, the one being filled among them.
pub(super) const SAMPLES: u64 = 11;
/// Milliseconds of a sample.
pub(super) const SAMPLE_MS: u64 = 1_000;

/// Milliseconds since the quotas were made: sensors don't care when that was.
pub(super) type Millis = u64;

/// Something that forgets: idle for long enough it is as good as new, and needn't be kept.
pub(super) trait Sensor: Default {
    fn is_as_new(&self, now: Millis) -> bool;
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    start: Millis,
    last: Millis,
    sum: f64,
}

/// A rate per second.
#[derive(Debug, Default)]
pub(super) struct WindowedRate {
    samples: VecDeque<Sample>,
}

impl WindowedRate {
    /// Adds to the rate; a negative value takes back.
    pub(super) fn record(&mut self, value: f64, now: Millis) {
        match self.samples.back_mut() {
            Some(sample) if now.saturating_sub(sample.start) < SAMPLE_MS => {
                sample.sum += value;
                sample.last = now;
            }
            _ => {
                // One more than the window has may overlap its beginning.
                if self.samples.len() as u64 > SAMPLES {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample {
                    start: now,
                    last: now,
                    sum: value,
                });
            }
        }
    }

    /// How long it takes until the rate is down at the limit, if nothing is added. Zero if it isn't above.
    pub(super) fn excess(&mut self, limit: f64, now: Millis) -> Duration {
        let kept = |sample: &Sample| now.saturating_sub(sample.last) < SAMPLES * SAMPLE_MS;
        while self.samples.front().is_some_and(|sample| !kept(sample)) {
            self.samples.pop_front();
        }
        let Some(first) = self.samples.front() else {
            return Duration::ZERO;
        };
        // However little was seen so far, it counts as if the window were full, but for the sample being filled.
        let seen = now.saturating_sub(first.start);
        let missing = (SAMPLES - 1).saturating_sub(seen / SAMPLE_MS);
        let window_ms = (seen + missing * SAMPLE_MS).max(1) as f64;
        let rate = self.samples.iter().map(|s| s.sum).sum::<f64>() / (window_ms / 1_000.0);
        if rate > limit {
            milliseconds((rate - limit) / limit * window_ms)
        } else {
            Duration::ZERO
        }
    }
}

impl Sensor for WindowedRate {
    fn is_as_new(&self, now: Millis) -> bool {
        self.samples
            .back()
            .is_none_or(|s| now.saturating_sub(s.last) >= SAMPLES * SAMPLE_MS)
    }
}

/// Tokens that come back at the rate of the limit. Below zero nothing is given until they are back at zero.
#[derive(Debug, Default)]
pub(super) struct TokenBucket {
    /// When it was looked at last, what was missing to the full bucket then, and its limit.
    last: Option<(Millis, f64, f64)>,
}

impl TokenBucket {
    /// How long it takes until tokens are given again. Zero if they are.
    pub(super) fn wait(&mut self, limit: f64, now: Millis) -> Duration {
        let tokens = burst(limit) - self.missing(limit, now);
        if tokens < 0.0 {
            milliseconds(-tokens / limit * 1_000.0)
        } else {
            Duration::ZERO
        }
    }

    /// Takes tokens, also if there are fewer.
    pub(super) fn take(&mut self, tokens: f64, limit: f64, now: Millis) {
        let missing = (self.missing(limit, now) + tokens).max(0.0);
        self.last = Some((now, missing, limit));
    }

    fn missing(&self, limit: f64, now: Millis) -> f64 {
        let Some((at, missing, _)) = self.last else {
            return 0.0;
        };
        (missing - limit * now.saturating_sub(at) as f64 / 1_000.0).max(0.0)
    }
}

impl Sensor for TokenBucket {
    fn is_as_new(&self, now: Millis) -> bool {
        self.last
            .is_none_or(|(_, _, limit)| self.missing(limit, now) <= 0.0)
    }
}

/// The most tokens there are.
fn burst(limit: f64) -> f64 {
    limit * (SAMPLES * SAMPLE_MS) as f64 / 1_000.0
}

/// At most what fits into the protocol's field.
fn milliseconds(ms: f64) -> Duration {
    // Up, since whoever waits so long must then be served. A float beyond all integers becomes the largest one; the protocol's field has 31 bits.
    Duration::from_millis((ms.ceil() as u64).min(u64::from(i32::MAX.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_first_burst_is_judged_as_if_ten_seconds_had_gone() {
        let mut rate = WindowedRate::default();
        rate.record(10_000.0, 5);
        assert_eq!(rate.excess(1_000.0, 5), ms(0));
        rate.record(5_000.0, 5);
        // 1,500/s over 10 s: after 5 s more it is 1,000/s.
        assert_eq!(rate.excess(1_000.0, 5), ms(5_000));
        rate.record(-5_000.0, 5);
        assert_eq!(rate.excess(1_000.0, 5), ms(0));
    }

    #[test]
    fn waiting_as_long_as_was_told_brings_the_rate_down_to_the_limit() {
        let mut rate = WindowedRate::default();
        for second in 0..20 {
            rate.record(3_000.0, second * 1_000);
        }
        let now = 19_500;
        let wait = rate.excess(1_000.0, now);
        assert!(wait > ms(10_000), "{wait:?}");
        let after = now + u64::try_from(wait.as_millis()).unwrap();
        assert_eq!(rate.excess(1_000.0, after), ms(0));
    }

    #[test]
    fn a_rate_forgets_after_eleven_seconds_and_keeps_few_samples() {
        let mut rate = WindowedRate::default();
        for at in 0..100_000 {
            rate.record(1.0, at);
        }
        assert!(rate.samples.len() <= 12, "{}", rate.samples.len());
        assert!(!rate.is_as_new(110_998));
        assert!(rate.is_as_new(110_999));
        assert_eq!(rate.excess(0.001, 110_999), ms(0));
    }

    #[test]
    fn a_steady_rate_below_the_limit_is_never_held_back() {
        let mut rate = WindowedRate::default();
        for at in (0..60_000).step_by(100) {
            rate.record(99.0, at);
            assert_eq!(rate.excess(1_000.0, at), ms(0), "at {at} ms");
        }
    }

    #[test]
    fn a_bucket_gives_a_burst_and_then_the_rate_of_the_limit() {
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.wait(2.0, 100), ms(0));
        bucket.take(22.0, 2.0, 100);
        // Empty isn't below zero: one more request passes, whatever its size.
        assert_eq!(bucket.wait(2.0, 100), ms(0));
        bucket.take(3.0, 2.0, 100);
        assert_eq!(bucket.wait(2.0, 100), ms(1_500));
        assert_eq!(bucket.wait(2.0, 1_100), ms(500));
        assert_eq!(bucket.wait(2.0, 1_600), ms(0));
        assert!(!bucket.is_as_new(1_600));
        assert!(bucket.is_as_new(12_600));
    }

    #[test]
    fn times_beyond_the_protocols_field_are_cut() {
        let mut rate = WindowedRate::default();
        rate.record(1e300, 0);
        assert_eq!(rate.excess(1e-300, 0), ms(2_147_483_647));
    }
}
