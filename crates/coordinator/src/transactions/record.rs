//! Apache Kafka's own records of `__transaction_state`, so that its tools can read them.
//!
//! ```text
//! key      int16 0 · string transactional id
//! value
//!   v0     int16 0 · int64 producer id · int16 epoch · int32 time-out ms · int8 state · int32 n · n topics
//!          · int64 last update ms · int64 start ms
//!   topic  string name · int32 n · n × int32 partition
//!   v1     v0 in flexible form (varint counts, compact strings, tag sections)
//!          tag 0 int64 previous producer id · tag 1 int64 next producer id · tag 2 int16 transaction version
//!          tag 10001 int16 last epoch (Tidegate's own; others skip it)
//! ```
//!
//! The topics are null (count −1, or varint 0) in state Empty. Readers accept both versions, writers emit 1. A tombstone
//! says that the id is unknown. As with group records, version and checksum are the batch's (KIP-98).

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{PartitionIndex, ProducerEpoch, ProducerId, TimestampMs, TopicName};

use super::state::Transaction;
use super::{ProducerIdentity, TransactionState, TransactionVersion, TransactionalId};
use crate::records::Reader;
use crate::records::codec::{put_compact_string, put_string, put_unsigned_varint};
use crate::{RecordError, TopicPartition};

const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 1;
const PREVIOUS_ID: u32 = 0;
const NEXT_ID: u32 = 1;
const VERSION: u32 = 2;
/// Far above the tags that Kafka gives out one by one.
const LAST_EPOCH: u32 = 10_001;

/// `Ok(None)` for a type of record that is not known here.
pub(super) fn decode_key(bytes: &[u8]) -> Result<Option<TransactionalId>, RecordError> {
    let mut reader = Reader::new("transaction key", bytes);
    if reader.i16("version")? != KEY_VERSION {
        return Ok(None);
    }
    let id = reader.string(false, "transactional id")?;
    let id = TransactionalId::new(id).map_err(|_| reader.invalid("transactional id"))?;
    reader.finish()?;
    Ok(Some(id))
}

pub(super) fn encode_key(id: &TransactionalId) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(KEY_VERSION);
    put_string(&mut out, id.as_str());
    out.freeze()
}

pub(super) fn decode_value(bytes: &[u8]) -> Result<Transaction, RecordError> {
    let mut reader = Reader::new("transaction", bytes);
    let version = reader.i16("version")?;
    if !(0..=VALUE_VERSION).contains(&version) {
        return Err(reader.unsupported(version));
    }
    let flexible = version >= 1;
    let id = ProducerId::from_wire(reader.i64("producer id")?)
        .ok_or_else(|| reader.invalid("producer id"))?;
    let epoch =
        ProducerEpoch::from_wire(reader.i16("epoch")?).ok_or_else(|| reader.invalid("epoch"))?;
    let timeout_ms = reader.i32("time-out")?;
    let state = reader.take(1, "state")?[0].cast_signed();
    let state = TransactionState::from_record(state).ok_or_else(|| reader.invalid("state"))?;
    let partitions = partitions(&mut reader, flexible)?;
    let updated_at = TimestampMs::new(reader.i64("last update")?);
    let started_at = TimestampMs::new(reader.i64("start")?);
    let mut transaction = Transaction {
        partitions,
        state,
        updated_at,
        started_at,
        ..Transaction::empty(ProducerIdentity { id, epoch }, timeout_ms, updated_at)
    };
    reader.tags(flexible, |tag, bytes| {
        let mut field = Reader::new("transaction tag", bytes);
        match tag {
            PREVIOUS_ID => {
                transaction.previous_id = ProducerId::from_wire(field.i64("previous producer id")?)
            }
            NEXT_ID => transaction.next_id = ProducerId::from_wire(field.i64("next producer id")?),
            VERSION => {
                transaction.version = TransactionVersion::from_level(field.i16("version")?)
                    .ok_or_else(|| field.invalid("version"))?;
            }
            LAST_EPOCH => {
                transaction.last_epoch = ProducerEpoch::from_wire(field.i16("last epoch")?)
            }
            _ => return Ok(()),
        }
        field.finish()
    })?;
    reader.finish()?;
    Ok(transaction)
}

/// The count of an array; 0 for null. Bounded by the bytes left.
fn count(
    reader: &mut Reader<'_>,
    flexible: bool,
    field: &'static str,
) -> Result<usize, RecordError> {
    let count = if flexible {
        reader.unsigned_varint(field)?.saturating_sub(1) as usize
    } else {
        usize::try_from(reader.i32(field)?.max(0)).map_err(|_| reader.invalid(field))?
    };
    if count > reader.remaining() {
        return Err(reader.invalid(field));
    }
    Ok(count)
}

fn partitions(
    reader: &mut Reader<'_>,
    flexible: bool,
) -> Result<BTreeSet<TopicPartition>, RecordError> {
    let mut partitions = BTreeSet::new();
    for _ in 0..count(reader, flexible, "topics")? {
        let topic = reader.string(flexible, "topic")?;
        let topic = TopicName::new(topic).map_err(|_| reader.invalid("topic"))?;
        for _ in 0..count(reader, flexible, "partitions")? {
            let partition = PartitionIndex::from_wire(reader.i32("partition")?)
                .map_err(|_| reader.invalid("partition"))?;
            partitions.insert(TopicPartition {
                topic: topic.clone(),
                partition,
            });
        }
        reader.tags(flexible, |_, _| Ok(()))?;
    }
    Ok(partitions)
}

pub(super) fn encode_value(transaction: &Transaction) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VALUE_VERSION);
    out.put_i64(transaction.producer.id.to_wire());
    out.put_i16(transaction.producer.epoch.to_wire());
    out.put_i32(transaction.timeout_ms);
    out.put_i8(transaction.state.to_record());
    put_partitions(&mut out, transaction);
    out.put_i64(transaction.updated_at.get());
    out.put_i64(transaction.started_at.get());
    let mut tags: Vec<(u32, Vec<u8>)> = Vec::new();
    if let Some(id) = transaction.previous_id {
        tags.push((PREVIOUS_ID, id.to_wire().to_be_bytes().into()));
    }
    if let Some(id) = transaction.next_id {
        tags.push((NEXT_ID, id.to_wire().to_be_bytes().into()));
    }
    if transaction.version != TransactionVersion::V0 {
        tags.push((VERSION, transaction.version.level().to_be_bytes().into()));
    }
    if let Some(epoch) = transaction.last_epoch {
        tags.push((LAST_EPOCH, epoch.to_wire().to_be_bytes().into()));
    }
    put_count(&mut out, tags.len());
    for (tag, bytes) in tags {
        put_unsigned_varint(&mut out, tag);
        put_count(&mut out, bytes.len());
        out.put_slice(&bytes);
    }
    out.freeze()
}

fn put_count(out: &mut BytesMut, count: usize) {
    let count = u32::try_from(count).expect("requests are smaller than 2 GiB");
    put_unsigned_varint(out, count);
}

fn put_partitions(out: &mut BytesMut, transaction: &Transaction) {
    if transaction.state == TransactionState::Empty {
        put_unsigned_varint(out, 0);
        return;
    }
    let mut topics: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for partition in &transaction.partitions {
        let indexes = topics.entry(&partition.topic).or_default();
        indexes.push(partition.partition.to_wire());
    }
    put_count(out, topics.len() + 1);
    for (topic, indexes) in topics {
        put_compact_string(out, topic.as_str());
        put_count(out, indexes.len() + 1);
        for index in indexes {
            out.put_i32(index);
        }
        put_unsigned_varint(out, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> Transaction {
        let producer = ProducerIdentity {
            id: ProducerId::from_wire(7).unwrap(),
            epoch: ProducerEpoch::from_wire(3).unwrap(),
        };
        let partitions = [("b", 1), ("a", 0), ("b", 0)].map(|(topic, index)| TopicPartition {
            topic: TopicName::new(topic).unwrap(),
            partition: PartitionIndex::new(index).unwrap(),
        });
        Transaction {
            previous_id: ProducerId::from_wire(6),
            next_id: ProducerId::from_wire(8),
            last_epoch: ProducerEpoch::from_wire(2),
            state: TransactionState::PrepareCommit,
            partitions: partitions.into(),
            started_at: TimestampMs::new(1_000),
            version: TransactionVersion::V2,
            ..Transaction::empty(producer, 60_000, TimestampMs::new(2_000))
        }
    }

    #[test]
    fn a_value_is_laid_out_as_kafkas_version_1() {
        let bytes = encode_value(&transaction());
        let mut expected = vec![0, 1];
        expected.extend(7_i64.to_be_bytes());
        expected.extend(3_i16.to_be_bytes());
        expected.extend(60_000_i32.to_be_bytes());
        expected.push(2);
        expected.push(3);
        expected.extend([2, b'a', 2, 0, 0, 0, 0, 0]);
        expected.extend([2, b'b', 3, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        expected.extend(2_000_i64.to_be_bytes());
        expected.extend(1_000_i64.to_be_bytes());
        expected.extend([4, 0, 8]);
        expected.extend(6_i64.to_be_bytes());
        expected.extend([1, 8]);
        expected.extend(8_i64.to_be_bytes());
        expected.extend([2, 2, 0, 2]);
        expected.extend([0x91, 0x4e, 2, 0, 2]);
        assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let whole = transaction();
        assert_eq!(decode_value(&encode_value(&whole)), Ok(whole.clone()));
        let empty = Transaction::empty(whole.producer, 1, TimestampMs::new(5));
        assert_eq!(decode_value(&encode_value(&empty)), Ok(empty));
        let id = TransactionalId::new("payments").unwrap();
        assert_eq!(decode_key(&encode_key(&id)), Ok(Some(id)));
    }

    #[test]
    fn a_value_of_version_0_is_read() {
        let mut bytes = vec![0, 0];
        bytes.extend(7_i64.to_be_bytes());
        bytes.extend([
            0, 3, 0, 0, 0xea, 0x60, 1, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 5,
        ]);
        bytes.extend(2_000_i64.to_be_bytes());
        bytes.extend(1_000_i64.to_be_bytes());
        let read = decode_value(&bytes).unwrap();
        assert_eq!(read.state, TransactionState::Ongoing);
        assert_eq!(read.timeout_ms, 60_000);
        assert_eq!(read.partitions.len(), 1);
        assert_eq!(read.version, TransactionVersion::V0);
    }

    #[test]
    fn a_cut_or_damaged_value_is_refused() {
        let bytes = encode_value(&transaction());
        for end in 0..bytes.len() {
            assert!(decode_value(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut dead = bytes.to_vec();
        dead[16] = 6;
        assert!(decode_value(&dead).is_err());
        let mut newer = bytes.to_vec();
        newer[1] = 2;
        assert!(decode_value(&newer).is_err());
    }
}
