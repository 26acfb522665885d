//! One value of each kind that goes over the wire, with every field set to something.

use bytes::Bytes;
use tidegate_metadata::*;
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, OffsetRange, PartitionId,
    PartitionIndex, TimestampMs, TopicId, TopicName,
};
use uuid::Uuid;

use crate::orders::Orders;

pub(super) fn broker(id: u32) -> BrokerId {
    BrokerId::new(id).unwrap()
}

pub(super) fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(super) fn epoch(epoch: u32) -> LeaderEpoch {
    LeaderEpoch::new(epoch).unwrap()
}

pub(super) fn broker_epoch() -> BrokerEpoch {
    BrokerEpoch::new(7)
}

pub(super) fn topic() -> TopicId {
    TopicId::new(Uuid::from_u128(0xfeed)).unwrap()
}

pub(super) fn name(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

pub(super) fn partition(index: u32) -> PartitionId {
    PartitionId {
        topic: topic(),
        index: PartitionIndex::new(index).unwrap(),
    }
}

pub(super) fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: "broker.example".to_owned(),
        port,
    }
}

pub(super) fn key(text: &str) -> StoredObjectKey {
    StoredObjectKey::new(text).unwrap()
}

pub(super) fn configs() -> Configs {
    [("retention.ms".to_owned(), "1".to_owned())].into()
}

pub(super) fn range() -> OffsetRange {
    OffsetRange::new(offset(3), offset(9)).unwrap()
}

fn span(position: u64) -> ByteSpan {
    ByteSpan {
        position,
        length: u64::MAX,
    }
}

pub(super) fn object() -> ObjectCommit {
    ObjectCommit {
        key: key("data/1/7/42"),
        size_bytes: 1 << 40,
        index: span(1),
        wal_sequence: Some(42),
        segments: vec![SegmentCommit {
            partition: partition(3),
            leader_epoch: epoch(2),
            range: range(),
            span: span(2),
            max_timestamp: TimestampMs::new(-1),
            record_count: 6,
            checkpoint: Some(span(3)),
        }],
    }
}

pub(super) fn segment() -> SegmentEntry {
    SegmentEntry {
        range: range(),
        leader_epoch: epoch(2),
        object: key("data/1/7/42"),
        span: span(2),
        index: span(1),
        max_timestamp: TimestampMs::new(i64::MAX),
        record_count: 6,
        committed_at: TimestampMs::new(1),
    }
}

pub(super) fn state() -> PartitionState {
    PartitionState {
        partition: partition(3),
        leader: Some(broker(1)),
        leader_epoch: epoch(2),
        epochs: vec![EpochStart {
            epoch: epoch(2),
            start: offset(3),
        }],
        placement: vec![broker(1), broker(2)],
        log_start: offset(0),
        committed_end: offset(9),
        checkpoint: Some(CheckpointRef {
            object: key("data/1/7/42"),
            span: span(3),
            as_of: offset(9),
        }),
        segment_count: 1,
        segment_bytes: 2,
        cleaned_end: offset(4),
        swaps: 1,
    }
}

pub(super) fn orders<T>(item: T) -> Orders<T> {
    Orders {
        controller_epoch: ControllerEpoch::new(5),
        items: vec![item],
    }
}

pub(super) fn bytes(length: usize) -> Bytes {
    (0..length).map(|i| i as u8).collect::<Vec<u8>>().into()
}
