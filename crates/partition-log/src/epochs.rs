//! The history of a partition's leader epochs: which epoch began at which offset (KIP-101, KIP-320).

use tidegate_types::{LeaderEpoch, Offset};

/// Epochs with their start offsets, both strictly rising in the first and not falling in the second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochHistory {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl EpochHistory {
    /// Builds the history from what metadata holds. Entries out of order are dropped: the later one wins.
    pub fn new(entries: impl IntoIterator<Item = (LeaderEpoch, Offset)>) -> Self {
        let mut history = Self::default();
        for (epoch, start) in entries {
            history.begin(epoch, start);
        }
        history
    }

    /// Records that `epoch` begins at `start`. Epochs that hold no record (same start) are replaced.
    pub fn begin(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.entries.retain(|(e, s)| *e < epoch && *s < start);
        self.entries.push((epoch, start));
    }

    /// The last epoch at or below `epoch` that holds records, and where it ended: the answer to
    /// OffsetForLeaderEpoch. `None` if nothing is known that far back.
    pub fn end_of(
        &self,
        epoch: LeaderEpoch,
        current: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch >= current {
            return Some((current, log_end));
        }
        let next = self.entries.partition_point(|(e, _)| *e <= epoch);
        let end = self.entries.get(next).map_or(log_end, |(_, start)| *start);
        let found = next.checked_sub(1).and_then(|i| self.entries.get(i))?;
        Some((found.0, end))
    }

    /// The epoch under which the record at `offset` was written, if known.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let next = self.entries.partition_point(|(_, start)| *start <= offset);
        next.checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .map(|(e, _)| *e)
    }

    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(e: u32) -> LeaderEpoch {
        LeaderEpoch::new(e).unwrap()
    }
    fn offset(o: u64) -> Offset {
        Offset::new(o).unwrap()
    }

    #[test]
    fn an_older_epoch_ends_where_the_next_one_that_wrote_begins() {
        let history = EpochHistory::new([
            (epoch(0), offset(0)),
            (epoch(2), offset(100)),
            (epoch(5), offset(200)),
        ]);
        assert_eq!(
            history.end_of(epoch(0), epoch(5), offset(250)),
            Some((epoch(0), offset(100)))
        );
        assert_eq!(
            history.end_of(epoch(1), epoch(5), offset(250)),
            Some((epoch(0), offset(100)))
        );
        assert_eq!(
            history.end_of(epoch(3), epoch(5), offset(250)),
            Some((epoch(2), offset(200)))
        );
        assert_eq!(
            history.end_of(epoch(5), epoch(5), offset(250)),
            Some((epoch(5), offset(250)))
        );
    }

    #[test]
    fn epochs_without_records_leave_no_entry() {
        let mut history = EpochHistory::new([(epoch(0), offset(0))]);
        history.begin(epoch(1), offset(10));
        history.begin(epoch(2), offset(10));
        assert_eq!(
            history.entries(),
            [(epoch(0), offset(0)), (epoch(2), offset(10))]
        );
    }
}
