//! Building data objects without copying batches.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_record_batch::{BatchHeader, Crc32c, crc32c};
use tidegate_types::{LeaderEpoch, Offset, OffsetRange, PartitionId, TimestampMs};

use crate::frame::{FOOTER_BYTES, Footer, HEADER_BYTES, Header, ObjectKind, WriterIdentity};
use crate::index::{BlockEntry, ByteRange, ObjectIndex, SegmentInfo};

/// Collects batches and checkpoints of many partitions into one object.
#[derive(Debug)]
pub struct ObjectBuilder {
    identity: WriterIdentity,
    block_target_bytes: usize,
    /// Ordered, so that the same calls give the same bytes whatever order the partitions come in.
    parts: BTreeMap<PartitionId, PartitionPart>,
    checkpoints: BTreeMap<PartitionId, Bytes>,
    data_bytes: u64,
}

#[derive(Debug)]
struct PartitionPart {
    leader_epoch: LeaderEpoch,
    start: Offset,
    end: Offset,
    record_count: u64,
    chunks: Vec<Chunk>,
}

/// Batches that are kept together in one block.
#[derive(Debug)]
struct Chunk {
    end: Offset,
    max_timestamp: TimestampMs,
    bytes: Bytes,
}

/// An object, ready to be stored.
#[derive(Debug, Clone)]
pub struct BuiltObject {
    /// The object's bytes in order. The batches are those that were added, uncopied.
    pub payload: Vec<Bytes>,
    pub size_bytes: u64,
    /// One per partition, ordered by partition.
    pub segments: Vec<SegmentInfo>,
    /// Where the index lies; the footer follows it and ends the object.
    pub index: ByteRange,
    /// To tell this object from another at the same key; see [`crate::same_object`].
    pub footer: Footer,
}

impl ObjectBuilder {
    /// `block_target_bytes`: a block takes another batch as long as it stays within this (512 KiB is usual).
    pub fn new(identity: WriterIdentity, block_target_bytes: usize) -> Self {
        Self {
            identity,
            block_target_bytes,
            parts: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            data_bytes: 0,
        }
    }

    /// Whether batches of `partition` under `leader_epoch` that begin at `start` can go into this object: they
    /// must follow what it holds of the partition already, under the same leader epoch.
    pub fn accepts(
        &self,
        partition: PartitionId,
        leader_epoch: LeaderEpoch,
        start: Offset,
    ) -> bool {
        self.parts
            .get(&partition)
            .is_none_or(|part| part.leader_epoch == leader_epoch && part.end == start)
    }

    /// Adds consecutive batches of a partition: whole ones, covering `range`, the greatest of their timestamps
    /// and the number of their records. Bytes above the block target are cut between batches; then the batches'
    /// headers tell the timestamps.
    ///
    /// # Panics
    /// When `batches` or `range` is empty, or [`ObjectBuilder::accepts`] is false: an object with a hole must
    /// never be stored.
    pub fn add_batches(
        &mut self,
        partition: PartitionId,
        leader_epoch: LeaderEpoch,
        range: OffsetRange,
        batches: Bytes,
        max_timestamp: TimestampMs,
        record_count: u64,
    ) {
        assert!(
            !batches.is_empty() && !range.is_empty(),
            "batches hold bytes and offsets"
        );
        assert!(
            self.accepts(partition, leader_epoch, range.start()),
            "batches of {partition} don't follow what the object holds of it"
        );
        self.data_bytes += batches.len() as u64;
        let part = self
            .parts
            .entry(partition)
            .or_insert_with(|| PartitionPart {
                leader_epoch,
                start: range.start(),
                end: range.start(),
                record_count: 0,
                chunks: Vec::new(),
            });
        part.end = range.end();
        part.record_count += record_count;
        let whole = Chunk {
            end: range.end(),
            max_timestamp,
            bytes: batches,
        };
        if whole.bytes.len() <= self.block_target_bytes {
            part.chunks.push(whole);
            return;
        }
        match split_batches(&whole, range) {
            Some(chunks) => part.chunks.extend(chunks),
            None => part.chunks.push(whole),
        }
    }

    /// Sets the checkpoint of a partition, replacing an earlier one. One that is empty, or of a partition of
    /// which no batches are added, is left out: there is no segment to carry it.
    ///
    /// # Panics
    /// When it takes 4 GiB or more.
    pub fn set_checkpoint(&mut self, partition: PartitionId, checkpoint: Bytes) {
        assert!(
            u32::try_from(checkpoint.len()).is_ok(),
            "a checkpoint is shorter than 4 GiB"
        );
        self.checkpoints.insert(partition, checkpoint);
    }

    /// Bytes of the batches added so far.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Cuts blocks, computes checksums and writes header, index and footer.
    pub fn finish(mut self) -> BuiltObject {
        let header = Header {
            kind: ObjectKind::Data,
            identity: self.identity,
        };
        let mut payload = vec![Bytes::copy_from_slice(&header.encode())];
        let mut position = HEADER_BYTES as u64;
        let mut index = ObjectIndex::new();
        let mut checkpoints = Vec::new();
        for (partition, part) in std::mem::take(&mut self.parts) {
            checkpoints.push(self.checkpoints.remove(&partition).unwrap_or_default());
            let (segment, blocks) = cut_blocks(partition, &part, position, self.block_target_bytes);
            position += segment.length;
            index.add(segment, blocks);
            payload.extend(part.chunks.into_iter().map(|chunk| chunk.bytes));
        }
        for (place, checkpoint) in checkpoints
            .into_iter()
            .enumerate()
            .filter(|(_, c)| !c.is_empty())
        {
            let range = ByteRange {
                position,
                length: checkpoint.len() as u64,
            };
            index.set_checkpoint(place, range, crc32c(&checkpoint));
            position += range.length;
            payload.push(checkpoint);
        }
        self.finish_with(payload, position, &index)
    }

    fn finish_with(
        self,
        mut payload: Vec<Bytes>,
        position: u64,
        index: &ObjectIndex,
    ) -> BuiltObject {
        let mut tail = BytesMut::with_capacity(index.encoded_bytes() + FOOTER_BYTES);
        index.encode(&mut tail);
        let range = ByteRange {
            position,
            length: tail.len() as u64,
        };
        let footer = Footer {
            kind: ObjectKind::Data,
            identity: self.identity,
            index: range,
            index_crc32c: crc32c(&tail),
            size_bytes: range.end() + FOOTER_BYTES as u64,
        };
        tail.put_slice(&footer.encode());
        payload.push(tail.freeze());
        BuiltObject {
            payload,
            size_bytes: footer.size_bytes,
            segments: index.segments().to_vec(),
            index: range,
            footer,
        }
    }
}

/// Cuts a chunk into its batches. `None` if it doesn't consist of whole batches that end where the range does;
/// then it stays one block, and whoever reads it will find out what it is.
fn split_batches(whole: &Chunk, range: OffsetRange) -> Option<Vec<Chunk>> {
    let mut chunks = Vec::new();
    let mut rest = whole.bytes.clone();
    let mut start = range.start();
    while !rest.is_empty() {
        let header = BatchHeader::parse(&rest).ok()?;
        if header.total_bytes() > rest.len() || header.end_offset() <= start {
            return None;
        }
        start = header.end_offset();
        let bytes = rest.split_to(header.total_bytes());
        chunks.push(Chunk {
            end: start,
            max_timestamp: header.max_record_timestamp(),
            bytes,
        });
    }
    (start == range.end()).then_some(chunks)
}

/// A block in the making.
struct OpenBlock {
    length: usize,
    crc: Crc32c,
    end: Offset,
    max_timestamp: TimestampMs,
}

impl OpenBlock {
    fn begin(chunk: &Chunk) -> Self {
        let mut crc = Crc32c::new();
        crc.update(&chunk.bytes);
        Self {
            length: chunk.bytes.len(),
            crc,
            end: chunk.end,
            max_timestamp: chunk.max_timestamp,
        }
    }

    fn extend(&mut self, chunk: &Chunk) {
        self.length += chunk.bytes.len();
        self.crc.update(&chunk.bytes);
        self.end = chunk.end;
        self.max_timestamp = self.max_timestamp.max(chunk.max_timestamp);
    }

    fn close(self, position: u64, start: Offset) -> BlockEntry {
        BlockEntry {
            position,
            length: u32::try_from(self.length)
                .expect("a batch's length has 31 bits, and blocks join small ones"),
            range: OffsetRange::new(start, self.end).expect("chunks go forward"),
            max_timestamp: self.max_timestamp,
            crc32c: self.crc.finish(),
        }
    }
}

fn cut_blocks(
    partition: PartitionId,
    part: &PartitionPart,
    position: u64,
    target_bytes: usize,
) -> (SegmentInfo, Vec<BlockEntry>) {
    let mut blocks: Vec<BlockEntry> = Vec::new();
    let mut open: Option<OpenBlock> = None;
    let mut next_position = position;
    let mut next_start = part.start;
    let mut close = |block: OpenBlock| {
        let entry = block.close(next_position, next_start);
        next_position += u64::from(entry.length);
        next_start = entry.range.end();
        blocks.push(entry);
    };
    for chunk in &part.chunks {
        match &mut open {
            Some(block) if block.length + chunk.bytes.len() <= target_bytes => block.extend(chunk),
            Some(_) | None => {
                if let Some(full) = open.replace(OpenBlock::begin(chunk)) {
                    close(full);
                }
            }
        }
    }
    if let Some(last) = open {
        close(last);
    }
    let segment = SegmentInfo {
        partition,
        leader_epoch: part.leader_epoch,
        range: OffsetRange::new(part.start, part.end).expect("batches go forward"),
        position,
        length: next_position - position,
        max_timestamp: blocks
            .iter()
            .map(|block| block.max_timestamp)
            .max()
            .unwrap_or(TimestampMs::NONE),
        record_count: part.record_count,
        checkpoint: None,
        checkpoint_crc32c: 0,
    };
    (segment, blocks)
}
