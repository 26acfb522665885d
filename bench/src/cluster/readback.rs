//! What is really there: every watched partition read back and compared with what was acknowledged.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::Serialize;

use super::writer::Watch;
use crate::client::{Cluster, Complaints, PartitionSpan};
use crate::payload::{STAMP_BYTES, read_stamp};

/// What came of comparing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub acknowledged: u64,
    /// Records read.
    pub found: u64,
    /// Acknowledged and not there.
    pub lost: u64,
    /// There more than once.
    pub duplicates: u64,
    /// There after a later one.
    pub out_of_order: u64,
    /// There, but in a partition they weren't written to, or not written by this run.
    pub foreign: u64,
    /// Offsets that no record has.
    pub holes: u64,
}

/// One partition while it is read.
struct Reading {
    next_offset: i64,
    end: i64,
    seen: Vec<bool>,
    last: Option<u64>,
}

impl Reading {
    fn take(&mut self, offset: i64, number: Option<u64>, result: &mut Comparison) {
        result.holes += u64::try_from(offset - self.next_offset).unwrap_or(0);
        self.next_offset = offset + 1;
        let Some(number) = number else {
            result.foreign += 1;
            return;
        };
        result.found += 1;
        let index = number as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, false);
        }
        if self.seen[index] {
            result.duplicates += 1;
            return;
        }
        self.seen[index] = true;
        if self.last.is_some_and(|last| number < last) {
            result.out_of_order += 1;
        }
        self.last = self.last.max(Some(number));
    }

    fn is_done(&self) -> bool {
        self.next_offset >= self.end
    }
}

/// Reads each partition from its start in `spans` (where this run's records begin) to its present end.
pub fn compare(
    cluster: &Cluster,
    watch: &Watch,
    topic: &str,
    starts: &[PartitionSpan],
    mark: u64,
) -> Result<Comparison> {
    let ends = cluster.spans(&[(topic.to_owned(), i32::try_from(watch.partitions())?)])?;
    let mut readings: Vec<Reading> = starts
        .iter()
        .zip(&ends)
        .map(|(start, end)| Reading {
            next_offset: start.end,
            end: end.end,
            seen: Vec::new(),
            last: None,
        })
        .collect();
    let mut result = Comparison::default();
    read(cluster, topic, mark, &mut readings, &mut result)?;
    for (partition, reading) in readings.iter().enumerate() {
        let track = watch.track(partition);
        for (number, acknowledged) in track.acknowledged.iter().enumerate() {
            if *acknowledged {
                result.acknowledged += 1;
                if !reading.seen.get(number).copied().unwrap_or(false) {
                    result.lost += 1;
                }
            }
        }
    }
    Ok(result)
}

fn read(
    cluster: &Cluster,
    topic: &str,
    mark: u64,
    readings: &mut [Reading],
    result: &mut Comparison,
) -> Result<()> {
    let complaints = Complaints::default();
    let consumer: BaseConsumer<Complaints> = cluster
        .follower_config()
        .create_with_context(complaints.clone())
        .context("the consumer refused its configuration")?;
    let mut list = TopicPartitionList::new();
    for (partition, reading) in (0_i32..).zip(readings.iter()) {
        if !reading.is_done() {
            list.add_partition_offset(topic, partition, Offset::Offset(reading.next_offset))?;
        }
    }
    let mut open = list.count();
    consumer
        .assign(&list)
        .context("could not assign the partitions")?;
    let mut deadline = Instant::now() + cluster.timeout();
    while open > 0 {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                deadline = Instant::now() + cluster.timeout();
                let index = usize::try_from(message.partition())?;
                let reading = readings
                    .get_mut(index)
                    .context("a record of a partition that wasn't asked for")?;
                let was_done = reading.is_done();
                let number = number_in(message.payload(), message.partition(), mark);
                if !was_done {
                    reading.take(message.offset(), number, result);
                    open -= usize::from(reading.is_done());
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => complaints.note(error.to_string()),
        }
        if Instant::now() > deadline {
            bail!(
                "{open} partitions can't be read back to their ends: {}",
                complaints.last().unwrap_or_default()
            );
        }
    }
    Ok(())
}

fn number_in(value: Option<&[u8]>, partition: i32, mark: u64) -> Option<u64> {
    let value = value?;
    let number = read_stamp(value, mark)?;
    let written_to = value.get(STAMP_BYTES..STAMP_BYTES + 4)?;
    (written_to == partition.to_le_bytes()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_late_and_missing_records_are_told_apart() {
        let mut reading = Reading {
            next_offset: 10,
            end: 17,
            seen: Vec::new(),
            last: None,
        };
        let mut result = Comparison::default();
        for (offset, number) in [
            (10, Some(0)),
            (11, Some(2)),
            (12, Some(1)),
            (13, Some(2)),
            (15, Some(3)),
            (16, None),
        ] {
            reading.take(offset, number, &mut result);
        }
        assert!(reading.is_done());
        let expected = Comparison {
            acknowledged: 0,
            found: 5,
            lost: 0,
            duplicates: 1,
            out_of_order: 1,
            foreign: 1,
            holes: 1,
        };
        assert_eq!(result, expected);
    }

    #[test]
    fn a_record_in_the_wrong_partition_is_foreign() {
        let mut value = vec![0; STAMP_BYTES + 4];
        crate::payload::stamp(&mut value, 5, 9);
        value[STAMP_BYTES..].copy_from_slice(&3_i32.to_le_bytes());
        assert_eq!(number_in(Some(&value), 3, 5), Some(9));
        assert_eq!(number_in(Some(&value), 4, 5), None);
        assert_eq!(number_in(Some(&value), 3, 6), None);
        assert_eq!(number_in(None, 3, 5), None);
    }
}
