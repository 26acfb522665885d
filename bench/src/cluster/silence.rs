//! How long nothing was acknowledged: a run's acknowledgements of one partition as points in time.

use crate::recorder::Nanos;

/// Acknowledgements this close together came in one answer and count as one.
const SAME_ANSWER: Nanos = 200_000;

/// When answers came, in their order.
#[derive(Clone, Debug, Default)]
pub struct Answers(Vec<Nanos>);

impl Answers {
    /// Notes an acknowledgement.
    pub fn note(&mut self, at: Nanos) {
        if self
            .0
            .last()
            .is_none_or(|last| at.saturating_sub(*last) > SAME_ANSWER)
        {
            self.0.push(at);
        }
    }

    /// When the last one came.
    pub fn last(&self) -> Option<Nanos> {
        self.0.last().copied()
    }

    /// The first one after `at`.
    pub fn first_after(&self, at: Nanos) -> Option<Nanos> {
        self.0
            .get(self.0.partition_point(|answer| *answer <= at))
            .copied()
    }

    /// The longest time between two answers that touches `from..until`, at its whole length. If no answer has
    /// come since, it lasts until `until`.
    pub fn longest_silence(&self, from: Nanos, until: Nanos) -> Nanos {
        let first = self
            .0
            .partition_point(|answer| *answer <= from)
            .saturating_sub(1);
        let mut longest = 0;
        let mut before = self.0.get(first).copied().unwrap_or(from).min(from);
        for answer in self.0.iter().skip(first) {
            longest = longest.max(answer.saturating_sub(before));
            before = before.max(*answer);
            if *answer >= until {
                return longest;
            }
        }
        longest.max(until.saturating_sub(before))
    }

    /// The times between the answers within `from..until`.
    pub fn intervals(&self, from: Nanos, until: Nanos) -> Vec<Nanos> {
        let start = self.0.partition_point(|answer| *answer < from);
        let end = self.0.partition_point(|answer| *answer < until);
        self.0[start..end.max(start)]
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect()
    }
}

/// The median, 0 of nothing.
pub fn median(mut values: Vec<Nanos>) -> Nanos {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0;
    }
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn answers(ms: &[Nanos]) -> Answers {
        let mut answers = Answers::default();
        for at in ms {
            answers.note(at * MS);
        }
        answers
    }

    #[test]
    fn a_silence_counts_whole_where_the_window_only_touches_it() {
        let answers = answers(&[0, 10, 20, 120, 130, 140]);
        for (from, until) in [(20, 130), (60, 70), (100, 140), (0, 21)] {
            assert_eq!(
                answers.longest_silence(from * MS, until * MS),
                100 * MS,
                "{from}..{until}"
            );
        }
        assert_eq!(answers.longest_silence(0, 15 * MS), 10 * MS);
        assert_eq!(answers.longest_silence(121 * MS, 140 * MS), 10 * MS);
    }

    #[test]
    fn a_silence_without_end_lasts_until_the_window_ends() {
        assert_eq!(
            answers(&[0, 10]).longest_silence(5 * MS, 500 * MS),
            490 * MS
        );
        assert_eq!(answers(&[]).longest_silence(5 * MS, 500 * MS), 495 * MS);
    }

    #[test]
    fn records_of_one_answer_are_one_answer() {
        let mut answers = Answers::default();
        for at in [0, 1_000, 2_000, 5 * MS] {
            answers.note(at);
        }
        assert_eq!(answers.intervals(0, 10 * MS), [5 * MS]);
        assert_eq!(median(vec![3, 1, 2]), 2);
        assert_eq!(median(Vec::new()), 0);
    }
}
