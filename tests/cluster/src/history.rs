//! What was acknowledged, seen and finally stored, and whether it fits together (invariant I1).

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::Mark;

/// A record whose produce was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The record.
    pub mark: Mark,
    /// The offset in the acknowledgement.
    pub offset: i64,
}

/// A record that a consumer got, at whatever time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The consumer.
    pub consumer: u32,
    /// The partition.
    pub partition: i32,
    /// The offset it came with.
    pub offset: i64,
    /// The record, or `None` when its bytes were wrong.
    pub mark: Option<Mark>,
}

/// Everything that happened in a run.
#[derive(Debug, Default)]
pub struct History {
    /// In the order of acknowledgement.
    pub acknowledged: Vec<Acknowledged>,
    /// In the order of arrival at each consumer.
    pub seen: Vec<Seen>,
    /// How many records each producer sent to each partition.
    pub sent: HashMap<(u32, i32), u64>,
    /// What each partition holds at the end: (offset, mark), in the order read.
    pub stored: BTreeMap<i32, Vec<(i64, Option<Mark>)>>,
}

/// One thing that must not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Offsets of a partition aren't 0, 1, 2, …
    NotDense {
        partition: i32,
        expected: i64,
        found: i64,
    },
    /// Bytes that no producer wrote, or in a partition they weren't sent to.
    Strange { partition: i32, offset: i64 },
    /// A record stored twice.
    Duplicate { mark: Mark, first: i64, second: i64 },
    /// A producer's records out of order within a partition.
    Reordered { mark: Mark, offset: i64, after: u64 },
    /// A record missing between two others of its producer.
    Skipped {
        producer: u32,
        partition: i32,
        number: u64,
    },
    /// Acknowledged and not stored.
    Lost { mark: Mark, offset: i64 },
    /// Acknowledged at one offset and stored at another.
    Moved {
        mark: Mark,
        acknowledged: i64,
        stored: i64,
    },
    /// A consumer saw something else at this offset, or beyond the end.
    SeenOtherwise {
        consumer: u32,
        partition: i32,
        offset: i64,
    },
    /// A consumer's offsets went back or jumped.
    SeenOutOfOrder {
        consumer: u32,
        partition: i32,
        expected: i64,
        offset: i64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl History {
    /// All violations, most telling first for each partition.
    pub fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut places = HashMap::new();
        for (partition, records) in &self.stored {
            self.check_partition(*partition, records, &mut places, &mut violations);
        }
        for Acknowledged { mark, offset } in &self.acknowledged {
            match places.get(mark) {
                None => violations.push(Violation::Lost {
                    mark: *mark,
                    offset: *offset,
                }),
                // Stored once, and that is all that was promised: a client acknowledges a record whose answer was lost
                // without an offset when a later one of the same producer is acknowledged.
                Some(_) if *offset < 0 => {}
                Some(stored) if stored != offset => {
                    let (acknowledged, stored) = (*offset, *stored);
                    violations.push(Violation::Moved {
                        mark: *mark,
                        acknowledged,
                        stored,
                    });
                }
                Some(_) => {}
            }
        }
        self.check_seen(&mut violations);
        violations
    }

    /// What each of so many consumers hasn't seen of what is stored, in words.
    pub fn lags(&self, consumers: u32) -> Vec<String> {
        let mut seen: HashMap<(u32, i32), i64> = HashMap::new();
        for record in &self.seen {
            let end = seen.entry((record.consumer, record.partition)).or_default();
            *end = (*end).max(record.offset + 1);
        }
        let mut lags = Vec::new();
        for consumer in 0..consumers {
            for (partition, records) in &self.stored {
                let (seen, stored) = (
                    seen.get(&(consumer, *partition)).copied().unwrap_or(0),
                    records.len(),
                );
                if i64::try_from(stored).is_ok_and(|stored| seen < stored) {
                    lags.push(format!(
                        "consumer {consumer} has seen {seen} of {stored} in partition {partition}"
                    ));
                }
            }
        }
        lags
    }

    fn check_partition(
        &self,
        partition: i32,
        records: &[(i64, Option<Mark>)],
        places: &mut HashMap<Mark, i64>,
        violations: &mut Vec<Violation>,
    ) {
        let mut next_number: HashMap<u32, u64> = HashMap::new();
        for (expected, (offset, mark)) in (0_i64..).zip(records) {
            if *offset != expected {
                violations.push(Violation::NotDense {
                    partition,
                    expected,
                    found: *offset,
                });
                return;
            }
            let Some(mark) = mark.filter(|mark| self.was_sent(mark, partition)) else {
                violations.push(Violation::Strange {
                    partition,
                    offset: *offset,
                });
                continue;
            };
            if let Some(first) = places.insert(mark, *offset) {
                violations.push(Violation::Duplicate {
                    mark,
                    first,
                    second: *offset,
                });
                continue;
            }
            let next = next_number.entry(mark.producer).or_insert(0);
            if mark.number < *next {
                violations.push(Violation::Reordered {
                    mark,
                    offset: *offset,
                    after: *next - 1,
                });
            } else {
                for number in *next..mark.number {
                    violations.push(Violation::Skipped {
                        producer: mark.producer,
                        partition,
                        number,
                    });
                }
                *next = mark.number + 1;
            }
        }
    }

    fn was_sent(&self, mark: &Mark, partition: i32) -> bool {
        let sent = self
            .sent
            .get(&(mark.producer, partition))
            .copied()
            .unwrap_or(0);
        mark.partition == partition && mark.number < sent
    }

    fn check_seen(&self, violations: &mut Vec<Violation>) {
        let mut next: HashMap<(u32, i32), i64> = HashMap::new();
        for Seen {
            consumer,
            partition,
            offset,
            mark,
        } in &self.seen
        {
            let (consumer, partition, offset) = (*consumer, *partition, *offset);
            let expected = next.entry((consumer, partition)).or_insert(0);
            if offset != *expected {
                violations.push(Violation::SeenOutOfOrder {
                    consumer,
                    partition,
                    expected: *expected,
                    offset,
                });
            }
            *expected = offset + 1;
            let stored = usize::try_from(offset)
                .ok()
                .and_then(|at| self.stored.get(&partition)?.get(at));
            if mark.is_none() || stored.is_none_or(|(_, stored)| stored != mark) {
                violations.push(Violation::SeenOtherwise {
                    consumer,
                    partition,
                    offset,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u64) -> Mark {
        Mark {
            producer: 1,
            partition: 0,
            number,
        }
    }

    /// Three records sent, stored, acknowledged and seen as they should be.
    fn right() -> History {
        let mut history = History::default();
        history.sent.insert((1, 0), 3);
        let records: Vec<(i64, Option<Mark>)> = (0..3)
            .map(|n| (i64::try_from(n).unwrap(), Some(mark(n))))
            .collect();
        history.acknowledged = records
            .iter()
            .map(|(offset, mark)| Acknowledged {
                mark: mark.unwrap(),
                offset: *offset,
            })
            .collect();
        history.seen = records
            .iter()
            .map(|(offset, mark)| Seen {
                consumer: 9,
                partition: 0,
                offset: *offset,
                mark: *mark,
            })
            .collect();
        history.stored.insert(0, records);
        history
    }

    fn first_violation(change: impl FnOnce(&mut History)) -> Violation {
        let mut history = right();
        change(&mut history);
        history.check().into_iter().next().expect("a violation")
    }

    fn stored(history: &mut History) -> &mut Vec<(i64, Option<Mark>)> {
        history.stored.get_mut(&0).unwrap()
    }

    #[test]
    fn a_right_history_passes() {
        assert_eq!(right().check(), []);
    }

    #[test]
    fn a_lost_tail_is_noticed() {
        let found = first_violation(|history| {
            stored(history).pop();
        });
        assert_eq!(
            found,
            Violation::Lost {
                mark: mark(2),
                offset: 2
            }
        );
    }

    #[test]
    fn a_record_lost_in_the_middle_is_noticed_even_if_unacknowledged() {
        let found = first_violation(|history| {
            history.acknowledged.remove(1);
            *stored(history) = vec![(0, Some(mark(0))), (1, Some(mark(2)))];
        });
        assert_eq!(
            found,
            Violation::Skipped {
                producer: 1,
                partition: 0,
                number: 1
            }
        );
    }

    #[test]
    fn a_duplicate_is_noticed() {
        let found = first_violation(|history| stored(history).push((3, Some(mark(2)))));
        assert_eq!(
            found,
            Violation::Duplicate {
                mark: mark(2),
                first: 2,
                second: 3
            }
        );
    }

    #[test]
    fn a_reordering_is_noticed() {
        let violations = {
            let mut history = right();
            stored(&mut history).swap(1, 2);
            stored(&mut history)[1].0 = 1;
            stored(&mut history)[2].0 = 2;
            history.check()
        };
        assert!(violations.contains(&Violation::Reordered {
            mark: mark(1),
            offset: 2,
            after: 2
        }));
        assert!(violations.contains(&Violation::Moved {
            mark: mark(1),
            acknowledged: 1,
            stored: 2
        }));
    }

    #[test]
    fn a_hole_in_the_offsets_is_noticed() {
        let found = first_violation(|history| stored(history)[2].0 = 3);
        assert_eq!(
            found,
            Violation::NotDense {
                partition: 0,
                expected: 2,
                found: 3
            }
        );
    }

    #[test]
    fn changed_bytes_are_noticed() {
        let found = first_violation(|history| stored(history)[1].1 = None);
        assert_eq!(
            found,
            Violation::Strange {
                partition: 0,
                offset: 1
            }
        );
    }

    #[test]
    fn a_consumer_that_saw_what_is_not_there_is_noticed() {
        let found = first_violation(|history| {
            history.acknowledged.pop();
            stored(history).pop();
        });
        assert_eq!(
            found,
            Violation::SeenOtherwise {
                consumer: 9,
                partition: 0,
                offset: 2
            }
        );
    }

    #[test]
    fn a_consumer_that_was_given_a_jump_is_noticed() {
        let found = first_violation(|history| {
            history.seen.remove(1);
        });
        assert_eq!(
            found,
            Violation::SeenOutOfOrder {
                consumer: 9,
                partition: 0,
                expected: 1,
                offset: 2
            }
        );
    }
}
