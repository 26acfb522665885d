//! Points of throughput and latency over time, and the progress line that shows the newest of them.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::histogram::{Latencies, LatencySummary};
use crate::recorder::{Counts, Recorder};

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// End of the interval, in seconds since the run's origin.
    pub t_s: f64,
    pub records_per_s: f64,
    pub mb_per_s: f64,
    /// Latencies of what arrived in the interval; none if nothing did, or if latency isn't measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<LatencySummary>,
    /// Produce to consumer, where that is measured too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_ms: Option<LatencySummary>,
}

/// Draws the timeline at a steady pace.
pub struct Timeline {
    origin: Instant,
    interval: Duration,
    last: Instant,
    points: Vec<Point>,
    progress: Progress,
}

impl Timeline {
    pub fn new(origin: Instant, interval: Duration, progress: Progress) -> Self {
        Self {
            origin,
            interval: interval.max(Duration::from_millis(10)),
            last: Instant::now(),
            points: Vec::new(),
            progress,
        }
    }

    /// Sleeps until the current interval ends, or until `until` if that is sooner.
    pub fn wait(&self, until: Instant) {
        let wake = (self.last + self.interval).min(until);
        std::thread::sleep(wake.saturating_duration_since(Instant::now()));
    }

    /// Whether the current interval is over.
    pub fn due(&self) -> bool {
        self.last.elapsed() >= self.interval
    }

    /// Ends the interval with what the recorders of acknowledgements (and arrivals) hold.
    pub fn sample(&mut self, acks: &[&Recorder], arrivals: Option<&Recorder>) {
        let mut latencies = Latencies::new();
        let mut counts = Counts::default();
        for recorder in acks {
            counts.merge(recorder.take_interval(&mut latencies));
        }
        let end_to_end_ms = arrivals.and_then(|recorder| {
            let mut latencies = Latencies::new();
            recorder.take_interval(&mut latencies);
            latencies.summary()
        });
        self.push(counts, latencies.summary(), end_to_end_ms);
    }

    /// Ends the interval with counts alone.
    pub fn sample_counts(&mut self, counts: Counts) {
        self.push(counts, None, None);
    }

    fn push(
        &mut self,
        counts: Counts,
        latency_ms: Option<LatencySummary>,
        end_to_end_ms: Option<LatencySummary>,
    ) {
        let now = Instant::now();
        let seconds = (now - self.last).as_secs_f64().max(1e-6);
        self.last = now;
        let point = Point {
            t_s: (now - self.origin).as_secs_f64(),
            records_per_s: counts.records as f64 / seconds,
            mb_per_s: counts.bytes as f64 / seconds / 1e6,
            latency_ms,
            end_to_end_ms,
        };
        self.progress.show(&point);
        self.points.push(point);
    }

    /// Removes the progress line and hands over the points.
    pub fn finish(self) -> Vec<Point> {
        self.progress.bar.finish_and_clear();
        self.points
    }
}

/// A line on standard error, if that is a terminal.
pub struct Progress {
    bar: ProgressBar,
    expected: Option<Duration>,
    started: Instant,
}

impl Progress {
    /// `expected` is how long the run will take, if that is known.
    pub fn new(what: &str, expected: Option<Duration>) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar =
            ProgressBar::with_draw_target(expected.map(|time| time.as_millis() as u64), target);
        let template = match expected {
            Some(_) => "{prefix} [{bar:30}] {elapsed} {msg}",
            None => "{prefix} {spinner} {elapsed} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what.to_owned());
        Self {
            bar,
            expected,
            started: Instant::now(),
        }
    }

    fn show(&self, point: &Point) {
        let latency = point
            .latency_ms
            .as_ref()
            .map_or_else(String::new, |latency| {
                format!(", p50 {:.1} ms, p99 {:.1} ms", latency.p50, latency.p99)
            });
        self.bar.set_message(format!(
            "{:.1} MB/s, {:.0} records/s{latency}",
            point.mb_per_s, point.records_per_s
        ));
        match self.expected {
            Some(expected) => {
                let elapsed = self.started.elapsed().min(expected);
                self.bar.set_position(elapsed.as_millis() as u64);
            }
            None => self.bar.tick(),
        }
    }
}
