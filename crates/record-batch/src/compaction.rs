//! What compaction by key does to one batch: reading keys, and taking records out.
//!
//! What is left of a batch keeps its base offset, its last offset delta and its producer's fields, so neither an
//! offset nor a sequence number is lost. Records that stay are copied as they are, unless the batch is given a
//! delete horizon: that takes the base timestamp's place, so the records' timestamp deltas change (KIP-534).

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{Offset, TimestampMs};

use crate::builder::BuildError;
use crate::compression::compress;
use crate::crc::crc32c;
use crate::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, Codec, DELETE_HORIZON_BIT, HEADER_BYTES, PREFIX_BYTES,
    TimestampType,
};
use crate::record::{RecordFault, RecordsError, Walk, offset_of, uncompressed_body};
use crate::stored::StoredBatch;
use crate::varint::{length_i64, put_i32, put_i64, take_i32, take_i64};

/// What decides about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRecord<'a> {
    pub offset: Offset,
    pub key: Option<&'a [u8]>,
    /// It has no value: it removes its key.
    pub is_tombstone: bool,
}

/// When the tombstones and markers that a batch keeps may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeleteHorizon {
    /// For a batch that has no delete horizon yet.
    pub at: TimestampMs,
    /// Also without tombstones: the batch is a marker whose transaction has no records left.
    pub always: bool,
}

/// What is left of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thinned {
    /// It stays as it is.
    Unchanged,
    Rewritten(StoredBatch),
    /// No record stays.
    Emptied,
}

/// Why a batch can't be thinned out.
#[derive(Debug, thiserror::Error)]
pub enum ThinError {
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("what is left of the batch can't be written")]
    Build(#[from] BuildError),
}

/// Shows the key of every record, in order.
///
/// # Errors
/// When the records can't be read; see [`RecordsError`]. Of a compressed batch no key was shown then: an
/// uncompressed one was checked when it was produced.
pub fn visit_keys(
    batch: &StoredBatch,
    max_uncompressed_bytes: usize,
    mut visit: impl FnMut(KeyedRecord<'_>),
) -> Result<(), RecordsError> {
    let header = batch.header();
    let body = uncompressed_body(batch, max_uncompressed_bytes)?;
    if header.codec() != Codec::None {
        let mut check = Walk::new(header, &body);
        while check.next()?.is_some() {}
    }
    let mut walk = Walk::new(header, &body);
    while let Some((_, record)) = walk.next()? {
        visit(KeyedRecord {
            offset: offset_of(header, record.offset_delta),
            key: record.key,
            is_tombstone: record.value.is_none(),
        });
    }
    Ok(())
}

/// Takes the records out that `keep` refuses. A batch that keeps tombstones is given the delete horizon, unless it
/// has one or there is none to give.
///
/// # Errors
/// When the records can't be read, or what is left can't be written.
pub fn thin_out(
    batch: &StoredBatch,
    max_uncompressed_bytes: usize,
    horizon: Option<DeleteHorizon>,
    mut keep: impl FnMut(KeyedRecord<'_>) -> bool,
) -> Result<Thinned, ThinError> {
    let header = batch.header();
    let body = uncompressed_body(batch, max_uncompressed_bytes).map_err(RecordsError::from)?;
    let mut walk = Walk::new(header, &body);
    let mut kept = Kept::default();
    let mut start = 0;
    while let Some((index, record)) = walk.next()? {
        let end = body.len() - walk.remaining();
        let seen = KeyedRecord {
            offset: offset_of(header, record.offset_delta),
            key: record.key,
            is_tombstone: record.value.is_none(),
        };
        if keep(seen) {
            let timestamp = record
                .timestamp(header.base_timestamp())
                .map_err(|fault| RecordsError::Record { index, fault })?;
            kept.add(start..end, timestamp, seen.is_tombstone);
        }
        start = end;
    }
    if kept.count == 0 {
        return Ok(Thinned::Emptied);
    }
    let horizon = horizon
        .filter(|horizon| horizon.always || kept.tombstones)
        .filter(|_| header.delete_horizon().is_none());
    if horizon.is_none() && kept.count == header.record_count() {
        return Ok(Thinned::Unchanged);
    }
    let mut left = *header;
    left.record_count = kept.count;
    if header.timestamp_type() == TimestampType::CreateTime {
        left.max_timestamp = kept.max_timestamp;
    }
    let records = match horizon {
        Some(horizon) => {
            left.attributes |= DELETE_HORIZON_BIT;
            left.base_timestamp = horizon.at;
            kept.rebased(&body, header.base_timestamp(), horizon.at)
                .map_err(|fault| RecordsError::Record { index: 0, fault })?
        }
        None => kept.copied(&body),
    };
    Ok(Thinned::Rewritten(written(left, &records)?))
}

/// The batch without any record: what keeps its last offset and its producer's last sequence number in the log.
pub fn without_records(header: &BatchHeader) -> StoredBatch {
    let mut left = *header;
    left.record_count = 0;
    left.attributes &= !DELETE_HORIZON_BIT;
    left.base_timestamp = TimestampMs::NONE;
    // Nobody may look for a record of that timestamp here.
    left.max_timestamp = TimestampMs::NONE;
    placeholder(left)
}

/// A batch that only holds the place of `header`'s offsets: without records, producer or kind.
pub fn filler(header: &BatchHeader) -> StoredBatch {
    let mut left = *header;
    left.record_count = 0;
    left.attributes = 0;
    left.codec = Codec::None;
    left.producer = None;
    left.base_timestamp = TimestampMs::NONE;
    left.max_timestamp = TimestampMs::NONE;
    placeholder(left)
}

fn placeholder(mut left: BatchHeader) -> StoredBatch {
    // An empty body is no stream of any codec.
    left.attributes &= !0b111;
    left.codec = Codec::None;
    written(left, &[]).expect("a header alone is neither compressed nor too large")
}

/// Writes header and records, compressed as the header says.
fn written(mut header: BatchHeader, records: &[u8]) -> Result<StoredBatch, BuildError> {
    let compressed;
    let body = if header.codec == Codec::None {
        records
    } else {
        compressed = compress(header.codec, records)?;
        &compressed
    };
    let total = HEADER_BYTES + body.len();
    let length = i32::try_from(total - PREFIX_BYTES as usize).map_err(|_| BuildError::TooLarge)?;
    header.total_bytes = length.cast_unsigned() + PREFIX_BYTES;
    let mut bytes = BytesMut::with_capacity(total);
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(body);
    header.write(&mut bytes[..HEADER_BYTES]);
    header.crc = crc32c(&bytes[ATTRIBUTES_AT..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&header.crc.to_be_bytes());
    Ok(StoredBatch::assume(header, bytes.freeze()))
}

/// Where in the body the records lie that stay.
#[derive(Debug)]
struct Kept {
    /// Neighbours are joined.
    runs: Vec<Range<usize>>,
    count: u32,
    bytes: usize,
    max_timestamp: TimestampMs,
    tombstones: bool,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            count: 0,
            bytes: 0,
            max_timestamp: TimestampMs::NONE,
            tombstones: false,
        }
    }
}

impl Kept {
    fn add(&mut self, record: Range<usize>, timestamp: TimestampMs, is_tombstone: bool) {
        self.count += 1;
        self.bytes += record.len();
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.tombstones |= is_tombstone;
        match self.runs.last_mut() {
            Some(last) if last.end == record.start => last.end = record.end,
            Some(_) | None => self.runs.push(record),
        }
    }

    fn copied(&self, body: &Bytes) -> Vec<u8> {
        let mut records = Vec::with_capacity(self.bytes);
        for run in &self.runs {
            records.extend_from_slice(&body[run.clone()]);
        }
        records
    }

    /// The records with timestamp deltas from `to` instead of `from`.
    fn rebased(
        &self,
        body: &Bytes,
        from: TimestampMs,
        to: TimestampMs,
    ) -> Result<Vec<u8>, RecordFault> {
        // The base moves by days, the deltas take some bytes more.
        let mut records = Vec::with_capacity(self.bytes + 8 * self.count as usize);
        for run in &self.runs {
            let mut rest = &body[run.clone()];
            while !rest.is_empty() {
                rebase_record(&mut rest, from, to, &mut records)?;
            }
        }
        Ok(records)
    }
}

/// Takes a record off the front of `input`, which was walked over before, and writes it on another base.
fn rebase_record(
    input: &mut &[u8],
    from: TimestampMs,
    to: TimestampMs,
    output: &mut Vec<u8>,
) -> Result<(), RecordFault> {
    let length = take_i32(input).ok_or(RecordFault::Number)?;
    let length = usize::try_from(length).map_err(|_| RecordFault::Number)?;
    let (mut record, rest) = input.split_at_checked(length).ok_or(RecordFault::Number)?;
    *input = rest;
    let (attributes, after) = record.split_first().ok_or(RecordFault::Number)?;
    record = after;
    let delta = take_i64(&mut record).ok_or(RecordFault::Number)?;
    let delta = from
        .get()
        .checked_add(delta)
        .and_then(|timestamp| timestamp.checked_sub(to.get()))
        .ok_or(RecordFault::Timestamp)?;
    let length = 1 + length_i64(delta) + record.len();
    put_i32(
        output,
        i32::try_from(length).map_err(|_| RecordFault::Number)?,
    );
    output.put_u8(*attributes);
    put_i64(output, delta);
    output.extend_from_slice(record);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_types::{ProducerEpoch, ProducerId, Sequence};

    use super::*;
    use crate::{BatchBuilder, ProducerIdentity, Record, records};

    const LIMIT: usize = 1 << 20;
    const HORIZON: DeleteHorizon = DeleteHorizon {
        at: TimestampMs::new(1_700_000_000_000),
        always: false,
    };
    const GIVEN: Option<DeleteHorizon> = Some(HORIZON);

    fn offset(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    /// Record `i` has key `k<i>`, timestamp `1000 + 7i`, and is a tombstone if `tombstones` says so.
    fn batch(count: u64, codec: Codec, tombstones: impl Fn(u64) -> bool) -> StoredBatch {
        let producer = ProducerIdentity {
            id: ProducerId::from_wire(5).unwrap(),
            epoch: ProducerEpoch::from_wire(2).unwrap(),
            first_sequence: Sequence::from_wire(40),
        };
        let mut builder = BatchBuilder::new(
            offset(100),
            codec,
            TimestampType::CreateTime,
            Some(producer),
            false,
        );
        for i in 0..count {
            let (key, value) = (format!("k{i}"), format!("value {i}"));
            let value = (!tombstones(i)).then_some(value.as_bytes());
            let timestamp = TimestampMs::new(1000 + 7 * i.cast_signed());
            builder.push(
                timestamp,
                Some(key.as_bytes()),
                value,
                &[(b"h", Some(b"x"))],
            );
        }
        StoredBatch::check(builder.finish().unwrap().freeze()).unwrap()
    }

    fn all(batch: &StoredBatch) -> Vec<Record> {
        records(batch, LIMIT).unwrap().collect()
    }

    fn rewritten(thinned: Thinned) -> StoredBatch {
        match thinned {
            Thinned::Rewritten(batch) => {
                assert_eq!(StoredBatch::check(batch.bytes().clone()).unwrap(), batch);
                batch
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_same_record_at_the_same_offset(
            keep in proptest::collection::vec(any::<bool>(), 1..40),
            tombstones in proptest::collection::vec(any::<bool>(), 40),
            codec in 0u8..5,
        ) {
            let codec = Codec::from_id(codec).unwrap();
            let before = batch(keep.len() as u64, codec, |i| tombstones[usize::try_from(i).unwrap()]);
            let stays = |o: Offset| keep[usize::try_from(o.get() - 100).unwrap()];
            let expected: Vec<Record> = all(&before).into_iter().filter(|r| stays(r.offset)).collect();
            let thinned = thin_out(&before, LIMIT, GIVEN, |r| stays(r.offset)).unwrap();
            let has_tombstone = expected.iter().any(|r| r.value.is_none());
            match thinned {
                Thinned::Emptied => prop_assert!(expected.is_empty()),
                Thinned::Unchanged => {
                    prop_assert!(expected.len() == keep.len() && !has_tombstone);
                }
                Thinned::Rewritten(after) => {
                    prop_assert_eq!(&StoredBatch::check(after.bytes().clone()).unwrap(), &after);
                    prop_assert_eq!(all(&after), expected.clone());
                    let (b, a) = (before.header(), after.header());
                    prop_assert_eq!(
                        (a.base_offset(), a.last_offset(), a.producer(), a.last_sequence(), a.codec()),
                        (b.base_offset(), b.last_offset(), b.producer(), b.last_sequence(), b.codec())
                    );
                    prop_assert_eq!(Some(a.max_timestamp()), expected.iter().map(|r| r.timestamp).max());
                    prop_assert_eq!(a.delete_horizon(), has_tombstone.then_some(HORIZON.at));
                }
            }
        }
    }

    #[test]
    fn a_delete_horizon_is_given_once_and_keeps_the_timestamps() {
        let before = batch(3, Codec::Lz4, |i| i == 1);
        let marked = rewritten(thin_out(&before, LIMIT, GIVEN, |_| true).unwrap());
        assert_eq!(marked.header().delete_horizon(), Some(HORIZON.at));
        assert_eq!(all(&marked), all(&before));
        let later = Some(DeleteHorizon {
            at: TimestampMs::new(9_999_999_999_999),
            always: true,
        });
        assert_eq!(
            thin_out(&marked, LIMIT, later, |_| true).unwrap(),
            Thinned::Unchanged
        );
        let thinner = rewritten(thin_out(&marked, LIMIT, later, |r| r.is_tombstone).unwrap());
        assert_eq!(thinner.header().delete_horizon(), Some(HORIZON.at));
        assert_eq!(all(&thinner), all(&before)[1..2]);
    }

    #[test]
    fn a_batch_that_is_given_no_delete_horizon_loses_records_all_the_same() {
        let before = batch(3, Codec::None, |i| i == 1);
        let whole = thin_out(&before, LIMIT, None, |_| true).unwrap();
        assert_eq!(whole, Thinned::Unchanged);
        let thinned = thin_out(&before, LIMIT, None, |r| r.offset > offset(100)).unwrap();
        let thinned = rewritten(thinned);
        assert_eq!(thinned.header().delete_horizon(), None);
        assert_eq!(all(&thinned), all(&before)[1..]);
    }

    #[test]
    fn a_batch_without_records_keeps_its_offsets_and_its_sequence() {
        let before = batch(4, Codec::Zstd, |_| false);
        let empty = without_records(before.header());
        assert_eq!(StoredBatch::check(empty.bytes().clone()).unwrap(), empty);
        assert_eq!(empty.bytes().len(), HEADER_BYTES);
        assert_eq!(all(&empty), []);
        assert_eq!(empty.header().end_offset(), offset(104));
        assert_eq!(
            empty.header().last_sequence(),
            before.header().last_sequence()
        );
        assert_eq!(empty.header().max_timestamp(), TimestampMs::NONE);
        let place = filler(before.header());
        assert_eq!(StoredBatch::check(place.bytes().clone()).unwrap(), place);
        assert_eq!(
            (place.header().base_offset(), place.header().end_offset()),
            (offset(100), offset(104))
        );
        assert_eq!(place.header().producer(), None);
    }

    #[test]
    fn keys_are_shown_in_order() {
        let batch = batch(3, Codec::Gzip, |i| i == 2);
        let mut seen = Vec::new();
        visit_keys(&batch, LIMIT, |r| {
            seen.push((r.offset.get(), r.key.unwrap().to_vec(), r.is_tombstone));
        })
        .unwrap();
        let expected = [
            (100, b"k0".to_vec(), false),
            (101, b"k1".to_vec(), false),
            (102, b"k2".to_vec(), true),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_would_grow_too_large_is_an_error() {
        let batch = batch(30, Codec::Zstd, |_| false);
        assert!(visit_keys(&batch, 20, |_| {}).is_err());
        assert!(thin_out(&batch, 20, GIVEN, |_| true).is_err());
    }
}
