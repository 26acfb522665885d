//! What was acknowledged and what was read, and when: all figures of the demo are made from this.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Points in time that are kept of each partition, for each of its clients: minutes, at the demo's pace.
const POINTS: usize = 16_384;
/// Intervals that say what is normal.
const NORMAL_POINTS: usize = 256;
/// Failures that are kept word by word.
const FAILURES: usize = 16;

/// Points in time since the demo's start, in their order. The oldest are forgotten.
#[derive(Debug, Default)]
pub struct Answers(VecDeque<Duration>);

impl Answers {
    fn note(&mut self, at: Duration) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.push_back(at);
    }

    /// The longest time between two answers that touches `from..until`, at its whole length. If none has come
    /// since, it lasts until `until`.
    pub fn longest_silence(&self, from: Duration, until: Duration) -> Duration {
        let first = self.0.partition_point(|at| *at <= from).saturating_sub(1);
        let mut before = self.0.get(first).copied().unwrap_or(from).min(from);
        let mut longest = Duration::ZERO;
        for at in self.0.iter().skip(first) {
            longest = longest.max(at.saturating_sub(before));
            before = before.max(*at);
            if *at >= until {
                return longest;
            }
        }
        longest.max(until.saturating_sub(before))
    }

    /// The median of the last intervals before `until`.
    pub fn normal(&self, until: Duration) -> Duration {
        let end = self.0.partition_point(|at| *at < until);
        let start = end.saturating_sub(NORMAL_POINTS);
        let points: Vec<Duration> = self.0.range(start..end).copied().collect();
        median(points.windows(2).map(|pair| pair[1] - pair[0]).collect())
    }
}

/// The middle of all, zero of nothing.
pub fn median(mut all: Vec<Duration>) -> Duration {
    let middle = all.len() / 2;
    if all.is_empty() {
        return Duration::ZERO;
    }
    *all.select_nth_unstable(middle).1
}

/// One partition.
#[derive(Debug, Default)]
struct Track {
    /// Records up to this number are acknowledged: a partition has one request under way at a time.
    acknowledged: u64,
    /// The broker that acknowledged last.
    acknowledged_by: Option<u32>,
    answers: Answers,
    /// The number that the next record should have.
    next_read: u64,
    arrivals: Answers,
    missing: u64,
    repeated: u64,
}

/// Counts over all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub acknowledged: u64,
    pub read: u64,
    /// Acknowledged, and not found by the reader.
    pub lost: u64,
    /// Found more than once, or behind later ones.
    pub duplicates: u64,
}

/// A silence beyond what is normal, seen by the producer and by the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gap {
    pub write: Duration,
    pub read: Duration,
}

/// All partitions.
#[derive(Debug)]
pub struct Ledger {
    begun: Instant,
    tracks: Vec<Mutex<Track>>,
    failures: Mutex<Vec<String>>,
}

impl Ledger {
    pub fn new(begun: Instant, partitions: u32) -> Self {
        Self {
            begun,
            tracks: (0..partitions).map(|_| Mutex::default()).collect(),
            failures: Mutex::default(),
        }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// All numbers of partitions.
    pub fn partitions(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.tracks.len()).unwrap_or(u32::MAX)
    }

    fn track(&self, partition: u32) -> &Mutex<Track> {
        &self.tracks[partition as usize]
    }

    /// `count` further records of a partition are acknowledged by a broker.
    pub fn acknowledge(&self, partition: u32, count: u64, by: u32) {
        let now = self.now();
        let mut track = self.track(partition).lock();
        track.acknowledged += count;
        track.acknowledged_by = Some(by);
        track.answers.note(now);
    }

    /// A record of this number is read.
    pub fn read(&self, partition: u32, number: u64) {
        let mut track = self.track(partition).lock();
        if number < track.next_read {
            track.repeated += 1;
            return;
        }
        track.missing += number - track.next_read;
        track.next_read = number + 1;
    }

    /// An answer with records has been read.
    pub fn arrived(&self, partition: u32) {
        let now = self.now();
        self.track(partition).lock().arrivals.note(now);
    }

    /// Something went wrong that the clients can't mend.
    pub fn fail(&self, what: String) {
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES && !failures.contains(&what) {
            failures.push(what);
        }
    }

    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().clone()
    }

    /// How many records of a partition are acknowledged.
    pub fn acknowledged(&self, partition: u32) -> u64 {
        self.track(partition).lock().acknowledged
    }

    /// How far a partition is read.
    pub fn read_up_to(&self, partition: u32) -> u64 {
        self.track(partition).lock().next_read
    }

    /// The broker that acknowledged last.
    pub fn acknowledged_by(&self, partition: u32) -> Option<u32> {
        self.track(partition).lock().acknowledged_by
    }

    /// Whether the reader has got so far as the producer's acknowledgements.
    pub fn is_read(&self) -> bool {
        self.tracks.iter().all(|track| {
            let track = track.lock();
            track.next_read >= track.acknowledged
        })
    }

    /// What was silent in a partition around `from..until`, beyond what was normal before.
    pub fn gap(&self, partition: u32, from: Duration, until: Duration) -> Gap {
        let track = self.track(partition).lock();
        let of = |answers: &Answers| {
            let silence = answers.longest_silence(from, until);
            silence.saturating_sub(answers.normal(from))
        };
        Gap {
            write: of(&track.answers),
            read: of(&track.arrivals),
        }
    }

    /// The time that is normal between two answers, over all partitions.
    pub fn normal(&self) -> Duration {
        let now = self.now();
        let all = self.tracks.iter();
        median(all.map(|track| track.lock().answers.normal(now)).collect())
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for track in &self.tracks {
            let track = track.lock();
            totals.acknowledged += track.acknowledged;
            totals.read += track.next_read - track.missing;
            totals.lost += track.missing + track.acknowledged.saturating_sub(track.next_read);
            totals.duplicates += track.repeated;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answers(points: &[u64]) -> Answers {
        Answers(points.iter().map(|at| ms(*at)).collect())
    }

    #[test]
    fn a_silence_counts_whole_where_the_window_only_touches_it() {
        let answers = answers(&[0, 10, 20, 120, 130, 140]);
        for (from, until) in [(20, 130), (60, 70), (100, 140), (0, 21)] {
            assert_eq!(answers.longest_silence(ms(from), ms(until)), ms(100));
        }
        assert_eq!(answers.longest_silence(ms(0), ms(15)), ms(10));
        assert_eq!(answers.longest_silence(ms(121), ms(140)), ms(10));
    }

    #[test]
    fn a_silence_without_end_lasts_until_the_window_ends() {
        assert_eq!(answers(&[0, 10]).longest_silence(ms(5), ms(500)), ms(490));
        assert_eq!(answers(&[]).longest_silence(ms(5), ms(500)), ms(495));
    }

    #[test]
    fn what_is_normal_isnt_changed_by_one_silence() {
        assert_eq!(answers(&[0, 10, 20, 30, 900]).normal(ms(1_000)), ms(10));
        assert_eq!(answers(&[7]).normal(ms(1_000)), Duration::ZERO);
    }

    #[test]
    fn the_oldest_points_are_forgotten() {
        let mut answers = Answers::default();
        for at in 0..POINTS as u64 + 5 {
            answers.note(ms(at));
        }
        assert_eq!(answers.0.len(), POINTS);
        assert_eq!(answers.0.front(), Some(&ms(5)));
    }

    #[tokio::test]
    async fn lost_and_repeated_records_are_told_apart() {
        let ledger = Ledger::new(Instant::now(), 2);
        ledger.acknowledge(0, 5, 1);
        for number in [0, 1, 1, 3] {
            ledger.read(0, number);
        }
        assert!(!ledger.is_read(), "number 4 isn't read yet");
        let totals = ledger.totals();
        assert_eq!((totals.acknowledged, totals.read), (5, 3));
        // Number 2 was left out, 4 hasn't come.
        assert_eq!((totals.lost, totals.duplicates), (2, 1));
        ledger.read(0, 4);
        assert!(ledger.is_read());
        assert_eq!(ledger.totals().lost, 1);
    }

    #[tokio::test]
    async fn a_record_read_before_its_acknowledgement_is_neither_lost_nor_repeated() {
        let ledger = Ledger::new(Instant::now(), 1);
        ledger.read(0, 0);
        assert_eq!(ledger.totals().lost, 0);
        ledger.acknowledge(0, 1, 2);
        assert_eq!(ledger.acknowledged_by(0), Some(2));
        let totals = ledger.totals();
        assert_eq!((totals.lost, totals.duplicates), (0, 0));
    }
}
