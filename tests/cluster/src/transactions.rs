//! Transactions and what became of them, with a checker: nothing committed is missing, nothing aborted is seen, no
//! transaction is seen in part, nothing twice, and a producer's records lie in the order in which it sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A record in a transaction, as its value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionMark {
    pub producer: u32,
    /// Of the producer, from 0.
    pub transaction: u64,
    /// In the transaction, from 0.
    pub index: u32,
}

impl TransactionMark {
    pub fn value(&self) -> Vec<u8> {
        format!("{}:{}:{}", self.producer, self.transaction, self.index).into_bytes()
    }

    pub fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split(':');
        let mark = Self {
            producer: parts.next()?.parse().ok()?,
            transaction: parts.next()?.parse().ok()?,
            index: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(mark)
    }
}

/// What a producer was told of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    /// It was told nothing, or that nobody knows: all or nothing.
    Unknown,
}

/// One transaction: the partition of each record, in the order of sending.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub fate: Fate,
    pub partitions: Vec<i32>,
}

/// A record that a reader of committed records saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenInTransaction {
    pub partition: i32,
    pub offset: i64,
    /// `None` if the bytes are nobody's.
    pub mark: Option<TransactionMark>,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionViolation {
    Lost(TransactionMark),
    /// It was aborted, or never sent, or sent elsewhere.
    Unexpected(SeenInTransaction),
    Torn {
        producer: u32,
        transaction: u64,
        seen: usize,
        sent: usize,
    },
    Twice(TransactionMark),
    OutOfOrder {
        before: SeenInTransaction,
        after: SeenInTransaction,
    },
}

impl fmt::Display for TransactionViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// All that was attempted and all that was seen.
#[derive(Debug, Clone, Default)]
pub struct TransactionHistory {
    /// By producer and number.
    pub attempts: BTreeMap<(u32, u64), Attempt>,
    pub seen: Vec<SeenInTransaction>,
}

impl TransactionHistory {
    pub fn check(&self) -> Vec<TransactionViolation> {
        let mut violations = Vec::new();
        let mut found: BTreeMap<(u32, u64), BTreeSet<u32>> = BTreeMap::new();
        let mut newest: BTreeMap<(i32, u32), SeenInTransaction> = BTreeMap::new();
        let mut seen = self.seen.clone();
        seen.sort();
        for record in seen {
            let Some(mark) = record.mark else {
                violations.push(TransactionViolation::Unexpected(record));
                continue;
            };
            if !self.is_expected(record, mark) {
                violations.push(TransactionViolation::Unexpected(record));
                continue;
            }
            let indexes = found.entry((mark.producer, mark.transaction)).or_default();
            if !indexes.insert(mark.index) {
                violations.push(TransactionViolation::Twice(mark));
                continue;
            }
            let before = newest.insert((record.partition, mark.producer), record);
            if let Some(before) = before.filter(|before| before.mark > record.mark) {
                violations.push(TransactionViolation::OutOfOrder {
                    before,
                    after: record,
                });
            }
        }
        for (&(producer, transaction), attempt) in &self.attempts {
            let none = BTreeSet::new();
            let indexes = found.get(&(producer, transaction)).unwrap_or(&none);
            let sent = attempt.partitions.len();
            match attempt.fate {
                Fate::Committed => {
                    let all = 0..u32::try_from(sent).unwrap_or(u32::MAX);
                    violations.extend(all.filter(|index| !indexes.contains(index)).map(|index| {
                        TransactionViolation::Lost(TransactionMark {
                            producer,
                            transaction,
                            index,
                        })
                    }));
                }
                Fate::Unknown if !indexes.is_empty() && indexes.len() < sent => {
                    violations.push(TransactionViolation::Torn {
                        producer,
                        transaction,
                        seen: indexes.len(),
                        sent,
                    });
                }
                Fate::Unknown | Fate::Aborted => {}
            }
        }
        violations
    }

    fn is_expected(&self, record: SeenInTransaction, mark: TransactionMark) -> bool {
        let attempt = self.attempts.get(&(mark.producer, mark.transaction));
        let Some(attempt) = attempt.filter(|attempt| attempt.fate != Fate::Aborted) else {
            return false;
        };
        let at = usize::try_from(mark.index).unwrap_or(usize::MAX);
        attempt.partitions.get(at) == Some(&record.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(partition: i32, offset: i64, transaction: u64, index: u32) -> SeenInTransaction {
        SeenInTransaction {
            partition,
            offset,
            mark: Some(TransactionMark {
                producer: 0,
                transaction,
                index,
            }),
        }
    }

    /// Three transactions of two records each, one to each of two partitions: committed, aborted, unknown.
    fn history() -> TransactionHistory {
        let attempt = |fate| Attempt {
            fate,
            partitions: vec![0, 1],
        };
        let fates = [Fate::Committed, Fate::Aborted, Fate::Unknown];
        TransactionHistory {
            attempts: (0..)
                .zip(fates)
                .map(|(n, fate)| ((0, n), attempt(fate)))
                .collect(),
            seen: vec![
                seen(0, 0, 0, 0),
                seen(1, 0, 0, 1),
                seen(0, 4, 2, 0),
                seen(1, 4, 2, 1),
            ],
        }
    }

    #[test]
    fn a_history_in_order_is_accepted_with_or_without_what_is_unknown() {
        let mut right = history();
        assert_eq!(right.check(), []);
        right.seen.truncate(2);
        assert_eq!(right.check(), []);
    }

    #[test]
    fn each_wrong_history_is_noticed() {
        let mut lost = history();
        lost.seen.remove(0);
        assert!(matches!(lost.check()[..], [TransactionViolation::Lost(_)]));

        let mut aborted = history();
        aborted.seen.push(seen(0, 2, 1, 0));
        assert!(matches!(
            aborted.check()[..],
            [TransactionViolation::Unexpected(_)]
        ));

        let mut elsewhere = history();
        elsewhere.seen[0].partition = 1;
        assert_eq!(elsewhere.check().len(), 2, "unexpected there, lost here");

        let mut torn = history();
        torn.seen.pop();
        assert!(matches!(
            torn.check()[..],
            [TransactionViolation::Torn { .. }]
        ));

        let mut twice = history();
        twice.seen.push(seen(0, 9, 0, 0));
        assert!(matches!(
            twice.check()[..],
            [TransactionViolation::Twice(_)]
        ));

        let mut swapped = history();
        (swapped.seen[0].offset, swapped.seen[2].offset) = (4, 0);
        assert!(matches!(
            swapped.check()[..],
            [TransactionViolation::OutOfOrder { .. }]
        ));

        let mut foreign = history();
        foreign.seen.push(SeenInTransaction {
            partition: 0,
            offset: 7,
            mark: None,
        });
        assert!(matches!(
            foreign.check()[..],
            [TransactionViolation::Unexpected(_)]
        ));
    }

    #[test]
    fn a_mark_is_read_back_and_other_bytes_are_none() {
        let mark = TransactionMark {
            producer: 3,
            transaction: 41,
            index: 2,
        };
        assert_eq!(TransactionMark::read(&mark.value()), Some(mark));
        for other in [&b"3:41"[..], b"3:41:2:1", b"", b"\xff", b"3:x:2"] {
            assert_eq!(TransactionMark::read(other), None);
        }
    }
}
