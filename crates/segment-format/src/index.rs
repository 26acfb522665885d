//! The index: the directory of an object's segments and blocks.
//!
//! | position | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `TGIX` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | 0 |
//! | 8 | 4 | number of segments, *s* |
//! | 12 | 4 | number of blocks, *b* |
//! | 16 | 96 *s* | segment entries, ordered by topic id (as bytes), then partition |
//! | 16 + 96 *s* | 24 *b* | block entries, in the order of the segments |
//!
//! Segment entry:
//!
//! | position | bytes | field |
//! |---:|---:|---|
//! | 0 | 16 | topic id |
//! | 16 | 4 | partition index |
//! | 20 | 4 | leader epoch |
//! | 24 | 8 | first offset |
//! | 32 | 8 | end offset, exclusive |
//! | 40 | 8 | position of the first block |
//! | 48 | 8 | length of all blocks |
//! | 56 | 8 | max timestamp, i64 milliseconds |
//! | 64 | 8 | number of records |
//! | 72 | 8 | position of the checkpoint; 0 without one |
//! | 80 | 4 | length of the checkpoint; 0 without one |
//! | 84 | 4 | CRC32C of the checkpoint; 0 without one |
//! | 88 | 4 | number of blocks |
//! | 92 | 4 | 0 |
//!
//! Block entry; a block begins where the one before it ends, in bytes and in offsets, so only ends are written:
//!
//! | position | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | length |
//! | 4 | 4 | CRC32C of the block |
//! | 8 | 8 | end offset, exclusive |
//! | 16 | 8 | max timestamp, i64 milliseconds |
//!
//! Segments follow each other from the end of the header on; checkpoints follow the last segment in the order of
//! their segments; the index follows the last checkpoint.

use bytes::{Buf, BufMut};
use tidegate_record_batch::crc32c;
use tidegate_types::{
    LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex, TimestampMs, TopicId,
};

use crate::error::{FormatError, Part};
use crate::frame::{FORMAT_VERSION, Footer, HEADER_BYTES, ObjectKind};

const MAGIC: &[u8; 4] = b"TGIX";
const START_BYTES: usize = 16;
const SEGMENT_ENTRY_BYTES: usize = 96;
const BLOCK_ENTRY_BYTES: usize = 24;

/// A range of an object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    pub position: u64,
    pub length: u64,
}

impl ByteRange {
    /// The position behind the last byte. Ranges out of a decoded object lie within it.
    pub fn end(self) -> u64 {
        self.position.saturating_add(self.length)
    }
}

/// One partition's contiguous slice of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    pub partition: PartitionId,
    pub leader_epoch: LeaderEpoch,
    /// Never empty.
    pub range: OffsetRange,
    /// Where its first batch begins.
    pub position: u64,
    /// Bytes of all its batches.
    pub length: u64,
    pub max_timestamp: TimestampMs,
    pub record_count: u64,
    /// The partition's derived state, as of `range.end()` unless its contents say otherwise.
    pub checkpoint: Option<ByteRange>,
    /// For [`verify_checkpoint`]; 0 without a checkpoint.
    pub checkpoint_crc32c: u32,
}

/// Whole batches of one partition that are read and checked together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEntry {
    pub position: u64,
    pub length: u32,
    /// Never empty.
    pub range: OffsetRange,
    pub max_timestamp: TimestampMs,
    pub crc32c: u32,
}

/// The directory of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectIndex {
    segments: Vec<SegmentInfo>,
    /// Of all segments, in their order.
    blocks: Vec<BlockEntry>,
    /// For each segment, where its blocks end in `blocks`.
    block_ends: Vec<usize>,
}

impl ObjectIndex {
    pub(crate) fn new() -> Self {
        Self {
            segments: Vec::new(),
            blocks: Vec::new(),
            block_ends: Vec::new(),
        }
    }

    /// The callers add segments in order, with blocks that cover them.
    pub(crate) fn add(
        &mut self,
        segment: SegmentInfo,
        blocks: impl IntoIterator<Item = BlockEntry>,
    ) {
        self.segments.push(segment);
        self.blocks.extend(blocks);
        self.block_ends.push(self.blocks.len());
    }

    pub(crate) fn set_checkpoint(&mut self, segment: usize, range: ByteRange, crc32c: u32) {
        if let Some(segment) = self.segments.get_mut(segment) {
            segment.checkpoint = Some(range);
            segment.checkpoint_crc32c = crc32c;
        }
    }

    /// Every segment, ordered by partition; one per partition.
    pub fn segments(&self) -> &[SegmentInfo] {
        &self.segments
    }

    /// The segment of one partition, if the object has one.
    pub fn segment(&self, partition: PartitionId) -> Option<&SegmentInfo> {
        self.segments.get(self.place_of(partition)?)
    }

    /// The blocks of one partition in order; none if the object has none of it.
    pub fn blocks(&self, partition: PartitionId) -> &[BlockEntry] {
        self.place_of(partition)
            .map_or(&[], |place| self.blocks_at(place))
    }

    /// The block that holds an offset of a partition.
    pub fn block_containing(&self, partition: PartitionId, offset: Offset) -> Option<&BlockEntry> {
        let blocks = self.blocks(partition);
        let found = blocks.get(blocks.partition_point(|block| block.range.end() <= offset))?;
        found.range.contains(offset).then_some(found)
    }

    /// Every block of the object, in the order of their positions.
    pub fn all_blocks(&self) -> &[BlockEntry] {
        &self.blocks
    }

    /// About how much memory this index takes, for caches that are limited in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.segments.capacity() * size_of::<SegmentInfo>()
            + self.blocks.capacity() * size_of::<BlockEntry>()
            + self.block_ends.capacity() * size_of::<usize>()
    }

    fn place_of(&self, partition: PartitionId) -> Option<usize> {
        self.segments
            .binary_search_by_key(&partition, |segment| segment.partition)
            .ok()
    }

    fn blocks_at(&self, place: usize) -> &[BlockEntry] {
        let start = place
            .checked_sub(1)
            .map_or(0, |before| self.block_ends[before]);
        &self.blocks[start..self.block_ends[place]]
    }

    pub(crate) fn encoded_bytes(&self) -> usize {
        START_BYTES
            + self.segments.len() * SEGMENT_ENTRY_BYTES
            + self.blocks.len() * BLOCK_ENTRY_BYTES
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(MAGIC);
        out.put_u16_le(FORMAT_VERSION);
        out.put_u16_le(0);
        out.put_u32_le(count(self.segments.len()));
        out.put_u32_le(count(self.blocks.len()));
        for (place, segment) in self.segments.iter().enumerate() {
            encode_segment(segment, count(self.blocks_at(place).len()), out);
        }
        for block in &self.blocks {
            out.put_u32_le(block.length);
            out.put_u32_le(block.crc32c);
            out.put_u64_le(block.range.end().get());
            out.put_i64_le(block.max_timestamp.get());
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("an object holds far fewer than 2^32 segments or blocks")
}

fn encode_segment(segment: &SegmentInfo, block_count: u32, out: &mut impl BufMut) {
    let checkpoint = segment.checkpoint.unwrap_or(ByteRange {
        position: 0,
        length: 0,
    });
    out.put_slice(segment.partition.topic.as_bytes());
    out.put_u32_le(segment.partition.index.get());
    out.put_u32_le(segment.leader_epoch.get());
    out.put_u64_le(segment.range.start().get());
    out.put_u64_le(segment.range.end().get());
    out.put_u64_le(segment.position);
    out.put_u64_le(segment.length);
    out.put_i64_le(segment.max_timestamp.get());
    out.put_u64_le(segment.record_count);
    out.put_u64_le(checkpoint.position);
    out.put_u32_le(
        u32::try_from(checkpoint.length).expect("the builder limits checkpoints to 32 bits"),
    );
    out.put_u32_le(segment.checkpoint_crc32c);
    out.put_u32_le(block_count);
    out.put_u32_le(0);
}

fn layout(rule: &'static str) -> FormatError {
    FormatError::Layout {
        part: Part::Index,
        rule,
    }
}

/// Reads the index of the object that `footer` ends. `bytes` are those at [`Footer::index`].
///
/// # Errors
/// When they aren't a sound index; see [`FormatError`].
pub fn decode_index(bytes: &[u8], footer: &Footer) -> Result<ObjectIndex, FormatError> {
    if footer.kind == ObjectKind::Fence {
        return Err(layout("a fence has no index"));
    }
    let found = bytes.len() as u64;
    if found != footer.index.length {
        return Err(FormatError::Length {
            part: Part::Index,
            expected: footer.index.length,
            found,
        });
    }
    let computed = crc32c(bytes);
    if computed != footer.index_crc32c {
        return Err(FormatError::Checksum {
            part: Part::Index,
            stored: footer.index_crc32c,
            computed,
        });
    }
    let (segments, blocks) = split_tables(bytes)?;
    let mut index = ObjectIndex {
        segments: Vec::with_capacity(segments.len() / SEGMENT_ENTRY_BYTES),
        blocks: Vec::with_capacity(blocks.len() / BLOCK_ENTRY_BYTES),
        block_ends: Vec::with_capacity(segments.len() / SEGMENT_ENTRY_BYTES),
    };
    let mut blocks = blocks;
    let mut position = HEADER_BYTES as u64;
    for entry in segments.chunks_exact(SEGMENT_ENTRY_BYTES) {
        let (segment, block_count) = decode_segment(entry)?;
        if segment.position != position {
            return Err(layout("segments follow each other from the header on"));
        }
        if index
            .segments
            .last()
            .is_some_and(|last| last.partition >= segment.partition)
        {
            return Err(layout("segments are ordered by partition, one for each"));
        }
        decode_blocks(&segment, block_count, &mut blocks, &mut index.blocks)?;
        position = position
            .checked_add(segment.length)
            .ok_or(layout("positions have 64 bits"))?;
        index.segments.push(segment);
        index.block_ends.push(index.blocks.len());
    }
    if !blocks.is_empty() {
        return Err(layout("every block belongs to a segment"));
    }
    check_checkpoints(&index.segments, position, footer)?;
    Ok(index)
}

/// Checks the start and cuts the two tables out. Their lengths must add up, so nothing that is allocated for
/// them is larger than a small multiple of the input.
fn split_tables(bytes: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
    let (start, tables) = bytes
        .split_at_checked(START_BYTES)
        .ok_or(FormatError::Length {
            part: Part::Index,
            expected: START_BYTES as u64,
            found: bytes.len() as u64,
        })?;
    let mut start = start
        .strip_prefix(MAGIC)
        .ok_or(FormatError::Magic { part: Part::Index })?;
    let version = start.get_u16_le();
    if version != FORMAT_VERSION {
        return Err(FormatError::Version {
            part: Part::Index,
            version,
        });
    }
    if start.get_u16_le() != 0 {
        return Err(layout("the reserved bytes are 0"));
    }
    let segment_bytes = u64::from(start.get_u32_le()) * SEGMENT_ENTRY_BYTES as u64;
    let block_bytes = u64::from(start.get_u32_le()) * BLOCK_ENTRY_BYTES as u64;
    let expected = START_BYTES as u64 + segment_bytes + block_bytes;
    let found = bytes.len() as u64;
    match usize::try_from(segment_bytes)
        .ok()
        .and_then(|at| tables.split_at_checked(at))
    {
        Some(split) if expected == found => Ok(split),
        Some(_) | None => Err(FormatError::Length {
            part: Part::Index,
            expected,
            found,
        }),
    }
}

fn decode_segment(mut entry: &[u8]) -> Result<(SegmentInfo, u32), FormatError> {
    let mut topic = [0; 16];
    entry.copy_to_slice(&mut topic);
    let topic = TopicId::from_bytes(topic).map_err(|_| layout("a topic id isn't zero"))?;
    let index = PartitionIndex::new(entry.get_u32_le())
        .map_err(|_| layout("a partition index has 31 bits"))?;
    let leader_epoch =
        LeaderEpoch::new(entry.get_u32_le()).ok_or(layout("a leader epoch has 31 bits"))?;
    let range = take_range(entry.get_u64_le(), entry.get_u64_le())?;
    let (position, length) = (entry.get_u64_le(), entry.get_u64_le());
    let max_timestamp = TimestampMs::new(entry.get_i64_le());
    let record_count = entry.get_u64_le();
    let checkpoint = ByteRange {
        position: entry.get_u64_le(),
        length: entry.get_u32_le().into(),
    };
    let checkpoint_crc32c = entry.get_u32_le();
    let block_count = entry.get_u32_le();
    if entry.get_u32_le() != 0 {
        return Err(layout("the reserved bytes are 0"));
    }
    let none = checkpoint.length == 0;
    if none && (checkpoint.position != 0 || checkpoint_crc32c != 0) {
        return Err(layout("an absent checkpoint is all zeros"));
    }
    let segment = SegmentInfo {
        partition: PartitionId { topic, index },
        leader_epoch,
        range,
        position,
        length,
        max_timestamp,
        record_count,
        checkpoint: (!none).then_some(checkpoint),
        checkpoint_crc32c,
    };
    Ok((segment, block_count))
}

/// A range that isn't empty.
fn take_range(start: u64, end: u64) -> Result<OffsetRange, FormatError> {
    let offset = |value| Offset::new(value).ok_or(layout("an offset has 63 bits"));
    OffsetRange::new(offset(start)?, offset(end)?)
        .filter(|range| !range.is_empty())
        .ok_or(layout("a segment and a block hold at least one offset"))
}

/// Takes a segment's blocks off `input`; they must cover it exactly.
fn decode_blocks(
    segment: &SegmentInfo,
    block_count: u32,
    input: &mut &[u8],
    blocks: &mut Vec<BlockEntry>,
) -> Result<(), FormatError> {
    let mut position = segment.position;
    let mut start = segment.range.start();
    let mut max_timestamp: Option<TimestampMs> = None;
    for _ in 0..block_count {
        let (mut entry, rest) = input
            .split_at_checked(BLOCK_ENTRY_BYTES)
            .ok_or(layout("the segments have more blocks than there are"))?;
        *input = rest;
        let (length, crc32c) = (entry.get_u32_le(), entry.get_u32_le());
        let range = take_range(start.get(), entry.get_u64_le())?;
        let block = BlockEntry {
            position,
            length,
            range,
            max_timestamp: TimestampMs::new(entry.get_i64_le()),
            crc32c,
        };
        if length == 0 {
            return Err(layout("a block isn't empty"));
        }
        position = position
            .checked_add(length.into())
            .ok_or(layout("positions have 64 bits"))?;
        start = range.end();
        max_timestamp = max_timestamp.max(Some(block.max_timestamp));
        blocks.push(block);
    }
    if position - segment.position != segment.length || start != segment.range.end() {
        return Err(layout("the blocks of a segment cover it"));
    }
    if max_timestamp != Some(segment.max_timestamp) {
        return Err(layout(
            "a segment's max timestamp is the greatest of its blocks'",
        ));
    }
    Ok(())
}

fn check_checkpoints(
    segments: &[SegmentInfo],
    segments_end: u64,
    footer: &Footer,
) -> Result<(), FormatError> {
    let mut position = segments_end;
    for checkpoint in segments.iter().filter_map(|segment| segment.checkpoint) {
        if checkpoint.position != position {
            return Err(layout("checkpoints follow the segments, in their order"));
        }
        position = position
            .checked_add(checkpoint.length)
            .ok_or(layout("positions have 64 bits"))?;
    }
    if position != footer.index.position {
        return Err(layout("the index follows the checkpoints"));
    }
    Ok(())
}

/// Checks the bytes of a block against its entry.
///
/// # Errors
/// When the length or the CRC differs.
pub fn verify_block(block: &BlockEntry, bytes: &[u8]) -> Result<(), FormatError> {
    verify(
        Part::Block {
            position: block.position,
        },
        block.length.into(),
        block.crc32c,
        bytes,
    )
}

/// Checks the bytes of a segment's checkpoint. A segment without one has no bytes.
///
/// # Errors
/// When the length or the CRC differs.
pub fn verify_checkpoint(segment: &SegmentInfo, bytes: &[u8]) -> Result<(), FormatError> {
    let range = segment.checkpoint.unwrap_or(ByteRange {
        position: 0,
        length: 0,
    });
    verify(
        Part::Checkpoint {
            position: range.position,
        },
        range.length,
        segment.checkpoint_crc32c,
        bytes,
    )
}

fn verify(part: Part, expected: u64, stored: u32, bytes: &[u8]) -> Result<(), FormatError> {
    let found = bytes.len() as u64;
    if found != expected {
        return Err(FormatError::Length {
            part,
            expected,
            found,
        });
    }
    let computed = crc32c(bytes);
    if computed != stored {
        return Err(FormatError::Checksum {
            part,
            stored,
            computed,
        });
    }
    Ok(())
}
