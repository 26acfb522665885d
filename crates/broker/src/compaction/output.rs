//! What compaction writes: batches gathered into blocks, blocks into objects.

use bytes::{Bytes, BytesMut};
use tidegate_record_batch::{BatchHeader, StoredBatch};
use tidegate_segment_format::{BuiltObject, ObjectBuilder, WriterIdentity};
use tidegate_types::{LeaderEpoch, Offset, OffsetRange, PartitionId, TimestampMs};

/// Batches of about one block, which cover their range with holes.
#[derive(Debug)]
struct Chunk {
    end: Offset,
    max_timestamp: TimestampMs,
    record_count: u64,
    bytes: Bytes,
}

/// Gathers the batches of a run. It copies them: what stays of a block must not keep all of the block in memory.
#[derive(Debug)]
pub(super) struct Output {
    block_bytes: usize,
    /// Where the next object begins.
    start: Offset,
    chunks: Vec<Chunk>,
    chunk_bytes: u64,
    open: BytesMut,
    open_end: Offset,
    open_max_timestamp: TimestampMs,
    open_records: u64,
    leader_epoch: LeaderEpoch,
}

impl Output {
    /// The first object begins at `start`, wherever its first batch does.
    pub(super) fn new(start: Offset, block_bytes: usize) -> Self {
        Self {
            block_bytes,
            start,
            chunks: Vec::new(),
            chunk_bytes: 0,
            open: BytesMut::new(),
            open_end: start,
            open_max_timestamp: TimestampMs::NONE,
            open_records: 0,
            leader_epoch: LeaderEpoch::FIRST,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunk_bytes + self.open.len() as u64
    }

    /// Where the batches end.
    pub(super) fn end(&self) -> Offset {
        self.open_end
    }

    pub(super) fn push(&mut self, batch: &StoredBatch) {
        let header = batch.header();
        let length = batch.bytes().len();
        if !self.open.is_empty() && self.open.len() + length > self.block_bytes {
            self.close_chunk();
        }
        if self.open.is_empty() {
            self.open.reserve(self.block_bytes.max(length));
        }
        self.open.extend_from_slice(batch.bytes());
        self.open_end = header.end_offset();
        self.open_max_timestamp = self.open_max_timestamp.max(timestamp_of(header));
        self.open_records += u64::from(header.record_count());
        if let Some(epoch) = LeaderEpoch::from_wire(header.leader_epoch()) {
            self.leader_epoch = self.leader_epoch.max(epoch);
        }
    }

    fn close_chunk(&mut self) {
        let bytes = std::mem::take(&mut self.open).freeze();
        self.chunk_bytes += bytes.len() as u64;
        self.chunks.push(Chunk {
            end: self.open_end,
            max_timestamp: std::mem::replace(&mut self.open_max_timestamp, TimestampMs::NONE),
            record_count: std::mem::take(&mut self.open_records),
            bytes,
        });
    }

    /// Builds an object of what was gathered; `None` if that is nothing. The next one goes on behind it.
    pub(super) fn cut(
        &mut self,
        partition: PartitionId,
        identity: WriterIdentity,
    ) -> Option<BuiltObject> {
        if !self.open.is_empty() {
            self.close_chunk();
        }
        if self.chunks.is_empty() {
            return None;
        }
        let mut builder = ObjectBuilder::new(identity, self.block_bytes);
        for chunk in self.chunks.drain(..) {
            let range = OffsetRange::new(self.start, chunk.end).expect("batches go forward");
            builder.add_batches(
                partition,
                self.leader_epoch,
                range,
                chunk.bytes,
                chunk.max_timestamp,
                chunk.record_count,
            );
            self.start = chunk.end;
        }
        self.chunk_bytes = 0;
        Some(builder.finish())
    }
}

/// The timestamp by which a batch's records are looked for: of control batches and empty ones there is none.
fn timestamp_of(header: &BatchHeader) -> TimestampMs {
    if header.is_control() || header.record_count() == 0 {
        TimestampMs::NONE
    } else {
        header.max_timestamp()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_record_batch::{BatchBuilder, Codec, TimestampType, filler};
    use tidegate_segment_format::{DecodedObject, decode_whole};
    use tidegate_types::{BrokerEpoch, BrokerId, PartitionIndex, TopicId};
    use uuid::Uuid;

    use super::*;

    fn offset(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn batch(base: u64, value: usize) -> StoredBatch {
        let mut builder = BatchBuilder::new(
            offset(base),
            Codec::None,
            TimestampType::CreateTime,
            None,
            false,
        );
        builder.push(
            TimestampMs::new(base.cast_signed()),
            Some(b"k"),
            Some(&vec![7; value]),
            &[],
        );
        StoredBatch::check(builder.finish().unwrap().freeze()).unwrap()
    }

    #[test]
    fn objects_cover_the_run_without_a_gap_whatever_holes_the_batches_have() {
        let partition = PartitionId {
            topic: TopicId::new(Uuid::from_u128(5)).unwrap(),
            index: PartitionIndex::new(0).unwrap(),
        };
        let identity = WriterIdentity {
            broker: BrokerId::new(1).unwrap(),
            broker_epoch: BrokerEpoch::new(1),
            sequence: 1,
            nonce: 1,
        };
        let mut output = Output::new(offset(100), 1000);
        for base in [130, 140, 150] {
            output.push(&batch(base, 400));
        }
        let first = output.cut(partition, identity).unwrap();
        output.push(&filler(batch(199, 1).header()));
        let second = output.cut(partition, identity).unwrap();
        assert!(output.cut(partition, identity).is_none());
        let ranges: Vec<_> = [&first, &second]
            .iter()
            .map(|o| {
                (
                    o.segments[0].range.start().get(),
                    o.segments[0].range.end().get(),
                )
            })
            .collect();
        assert_eq!(ranges, [(100, 151), (151, 200)]);
        assert_eq!(first.segments[0].max_timestamp, TimestampMs::new(150));
        assert_eq!(second.segments[0].max_timestamp, TimestampMs::NONE);
        let whole: Vec<u8> = first.payload.concat();
        let DecodedObject::Data(object) = decode_whole(&Bytes::from(whole)).unwrap() else {
            panic!("it is a data object");
        };
        let blocks: Vec<_> = object
            .index
            .blocks(partition)
            .iter()
            .map(|b| (b.range.start().get(), b.range.end().get()))
            .collect();
        assert_eq!(blocks, [(100, 141), (141, 151)]);
    }
}
