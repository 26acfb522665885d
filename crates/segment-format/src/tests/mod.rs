//! Shared by the tests: a sample object, and its bytes in one piece.

mod build;
mod damage;
mod properties;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_record_batch::{BatchBuilder, Codec, TimestampType};
use tidegate_types::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex,
    TimestampMs, TopicId,
};

use crate::{BuiltObject, DataObject, DecodedObject, ObjectBuilder, WriterIdentity, decode_whole};

pub(crate) const BLOCK_TARGET: usize = 400;

pub(crate) fn identity() -> WriterIdentity {
    WriterIdentity {
        broker: BrokerId::new(3).unwrap(),
        broker_epoch: BrokerEpoch::new(9),
        sequence: 17,
        nonce: 0xfeed_beef,
    }
}

pub(crate) fn partition(topic: u8, index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId::from_bytes([topic; 16]).unwrap(),
        index: PartitionIndex::new(index).unwrap(),
    }
}

pub(crate) fn epoch(value: u32) -> LeaderEpoch {
    LeaderEpoch::new(value).unwrap()
}

pub(crate) fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(Offset::new(start).unwrap(), Offset::new(end).unwrap()).unwrap()
}

/// One batch at `start` of `records` records whose values have `value_bytes`.
pub(crate) fn batch(start: u64, records: u64, value_bytes: usize) -> Bytes {
    let base = Offset::new(start).unwrap();
    let mut builder = BatchBuilder::new(base, Codec::None, TimestampType::CreateTime, None, false);
    for i in 0..records {
        let timestamp = i64::try_from(1000 + start + i).unwrap();
        builder.push(
            TimestampMs::new(timestamp),
            None,
            Some(&vec![b'v'; value_bytes]),
            &[],
        );
    }
    builder.finish().unwrap().freeze()
}

/// Adds one such batch.
pub(crate) fn add(
    builder: &mut ObjectBuilder,
    to: PartitionId,
    start: u64,
    records: u64,
    value_bytes: usize,
) -> Bytes {
    let bytes = batch(start, records, value_bytes);
    let greatest = TimestampMs::new(i64::try_from(1000 + start + records - 1).unwrap());
    builder.add_batches(
        to,
        epoch(4),
        range(start, start + records),
        bytes.clone(),
        greatest,
        records,
    );
    bytes
}

/// Three partitions; several blocks in one of them, checkpoints in two.
pub(crate) fn sample() -> BuiltObject {
    let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
    add(&mut builder, partition(2, 0), 500, 3, 20);
    for i in 0..6 {
        add(&mut builder, partition(1, 1), 10 + 2 * i, 2, 40);
    }
    add(&mut builder, partition(1, 0), 0, 1, 1);
    builder.set_checkpoint(partition(1, 1), Bytes::from_static(b"state of one"));
    builder.set_checkpoint(partition(2, 0), Bytes::from_static(b"state of two"));
    builder.finish()
}

pub(crate) fn joined(built: &BuiltObject) -> Bytes {
    let mut bytes = BytesMut::new();
    for piece in &built.payload {
        bytes.put_slice(piece);
    }
    bytes.freeze()
}

pub(crate) fn data(bytes: &Bytes) -> DataObject {
    match decode_whole(bytes).unwrap() {
        DecodedObject::Data(object) => object,
        DecodedObject::Fence { .. } => panic!("it should be a data object"),
    }
}
