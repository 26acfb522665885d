//! Version 1 of the object format.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_record_batch::{BatchBuilder, Codec, TimestampType, records};
use tidegate_record_batch::{Batches, StoredBatch};
use tidegate_segment_format::{
    ByteRange, DataObject, DecodedObject, ObjectBuilder, WriterIdentity, decode_whole, encode_fence,
};
use tidegate_tests_formats::{assert_golden, golden};
use tidegate_types::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex,
    TimestampMs, TopicId,
};

const OBJECT: &str = "object-v1.bin";
const FENCE: &str = "fence-v1.bin";

fn identity() -> WriterIdentity {
    WriterIdentity {
        broker: BrokerId::new(7).unwrap(),
        broker_epoch: BrokerEpoch::new(0x0102_0304_0506),
        sequence: 42,
        nonce: 0x1122_3344_5566_7788,
    }
}

fn partition(index: u32) -> PartitionId {
    let topic: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap() + 0xa0);
    PartitionId {
        topic: TopicId::from_bytes(topic).unwrap(),
        index: PartitionIndex::new(index).unwrap(),
    }
}

fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(offset(start), offset(end)).unwrap()
}

/// Uncompressed, so that no library's release can change the bytes.
fn batch(base: u64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(
        offset(base),
        Codec::None,
        TimestampType::CreateTime,
        None,
        false,
    )
    .leader_epoch(epoch());
    for (at, value) in (base..).zip(values) {
        let timestamp = TimestampMs::new(1_700_000_000_000 + i64::try_from(at).unwrap());
        builder.push(timestamp, Some(b"key"), Some(value.as_bytes()), &[]);
    }
    builder.finish().unwrap().freeze()
}

fn epoch() -> LeaderEpoch {
    LeaderEpoch::new(5).unwrap()
}

fn encode() -> Bytes {
    let mut builder = ObjectBuilder::new(identity(), 100);
    let add = |builder: &mut ObjectBuilder, index, start: u64, values: &[&str]| {
        let end = start + values.len() as u64;
        let greatest = TimestampMs::new(1_700_000_000_000 + i64::try_from(end).unwrap() - 1);
        let (bytes, count) = (batch(start, values), values.len() as u64);
        builder.add_batches(
            partition(index),
            epoch(),
            range(start, end),
            bytes,
            greatest,
            count,
        );
    };
    add(&mut builder, 1, 1_000_000, &["first", "second"]);
    add(&mut builder, 0, 0, &["zero"]);
    add(&mut builder, 1, 1_000_002, &["third"]);
    builder.set_checkpoint(partition(1), Bytes::from_static(b"checkpoint of one"));
    let mut bytes = BytesMut::new();
    for piece in builder.finish().payload {
        bytes.put_slice(&piece);
    }
    bytes.freeze()
}

fn stored() -> DataObject {
    match decode_whole(&golden(OBJECT).into()).unwrap() {
        DecodedObject::Data(object) => object,
        DecodedObject::Fence { .. } => panic!("it is a data object"),
    }
}

#[test]
fn the_encoder_writes_objects_of_version_1() {
    assert_golden(OBJECT, &encode());
}

#[test]
fn the_encoder_writes_fences_of_version_1() {
    assert_golden(FENCE, &encode_fence(identity()));
}

#[test]
fn a_fence_of_version_1_is_read() {
    assert_eq!(
        decode_whole(&golden(FENCE).into()),
        Ok(DecodedObject::Fence {
            identity: identity()
        })
    );
}

#[test]
fn an_object_of_version_1_is_read() {
    let object = stored();
    assert_eq!(object.identity(), identity());
    let [zero, one] = object.index.segments() else {
        panic!("it has two segments")
    };
    assert_eq!(
        (zero.partition, zero.range, zero.position),
        (partition(0), range(0, 1), 44)
    );
    assert_eq!(
        (one.partition, one.range),
        (partition(1), range(1_000_000, 1_000_003))
    );
    assert_eq!((one.record_count, one.leader_epoch), (3, epoch()));
    assert_eq!(one.max_timestamp.get(), 1_700_001_000_002);
    assert_eq!(
        object.slice(one.checkpoint.unwrap()).unwrap(),
        "checkpoint of one"
    );
    assert_eq!(zero.checkpoint, None);
    let blocks: Vec<_> = object
        .index
        .blocks(partition(1))
        .iter()
        .map(|block| block.range)
        .collect();
    assert_eq!(
        blocks,
        [range(1_000_000, 1_000_002), range(1_000_002, 1_000_003)]
    );
}

#[test]
fn the_records_of_an_object_of_version_1_are_read() {
    let object = stored();
    let segment = object.index.segment(partition(1)).unwrap();
    let bytes = object
        .slice(ByteRange {
            position: segment.position,
            length: segment.length,
        })
        .unwrap();
    let batches: Vec<StoredBatch> = Batches::with_crc(bytes).map(Result::unwrap).collect();
    let found: Vec<_> = batches
        .iter()
        .flat_map(|batch| records(batch, 0).unwrap())
        .map(|record| (record.offset.get(), record.value.unwrap()))
        .collect();
    let expected = [
        (1_000_000, "first"),
        (1_000_001, "second"),
        (1_000_002, "third"),
    ];
    assert_eq!(found, expected.map(|(at, value)| (at, Bytes::from(value))));
}
