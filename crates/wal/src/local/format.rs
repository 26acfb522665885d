//! The layout of local WAL files. All integers are little endian; the byte tables, what each field is for and
//! the rules of recovery are in `docs/formats/wal.md`.
//!
//! File header, at byte 0, filled up with zeros to 4096 bytes:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `TIDEWAL` and a zero byte |
//! | 8..12 | version, 1 |
//! | 12..16 | zero |
//! | 16..32 | log id, random, the same in all files of a log |
//! | 32..40 | sequence of the file |
//! | 40..48 | salt, random, new with each use of the file |
//! | 48..56 | WAL position of byte 0 |
//! | 56..64 | length of the file |
//! | 64..72 | WAL position at which the log ended in the file before, or 2^64−1 |
//! | 72..76 | CRC32C of bytes 0..72 |
//!
//! Frame header, at a multiple of 8, followed by the body and zeros up to the next multiple of 8:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `TWFr` |
//! | 4..8 | CRC32C of bytes 8..96 |
//! | 8..16 | salt of the file |
//! | 16..24 | WAL position of the frame |
//! | 24..32 | WAL position below which everything was durable when the frame was written |
//! | 32..48 | topic id |
//! | 48..52 | partition index |
//! | 52..56 | leader epoch |
//! | 56..64 | first offset |
//! | 64..72 | last offset + 1 |
//! | 72..80 | largest timestamp |
//! | 80..84 | number of records |
//! | 84..88 | length of the body |
//! | 88..92 | CRC32C of the body |
//! | 92..96 | kind: 1 entry (the body is its batches), 2 mark (no body, bytes 32..84 are zero) |

use crc_fast::crc32_iscsi;
use tidegate_types::{
    LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex, TimestampMs, TopicId,
};

use crate::Entry;

pub(super) const FILE_HEADER_BYTES: u64 = 4096;
pub(super) const FRAME_HEADER_BYTES: usize = 96;
/// Frames start at multiples of this, so that a search for them needn't look at every byte.
pub(super) const ALIGNMENT: u64 = 8;
pub(super) const VERSION: u32 = 1;

const FILE_MAGIC: [u8; 8] = *b"TIDEWAL\0";
const FILE_CRC_AT: usize = 72;
const NO_PREVIOUS_END: u64 = u64::MAX;
const FRAME_MAGIC: [u8; 4] = *b"TWFr";
const KIND_ENTRY: u32 = 1;
const KIND_MARK: u32 = 2;

/// The bytes that a body of this length takes in a file: header, body and padding.
pub(super) fn frame_bytes(body_length: u64) -> u64 {
    (FRAME_HEADER_BYTES as u64 + body_length).next_multiple_of(ALIGNMENT)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub log_id: [u8; 16],
    pub sequence: u64,
    pub salt: u64,
    pub start: u64,
    pub file_bytes: u64,
    /// Set in the first file after a recovery: the file before is valid exactly up to here.
    pub previous_end: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileHeaderProblem {
    Invalid,
    Version(u32),
}

impl FileHeader {
    /// The whole header area, so that nothing of an earlier use stays in it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::try_from(FILE_HEADER_BYTES).unwrap_or(0));
        bytes.extend_from_slice(&FILE_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.log_id);
        for field in [self.sequence, self.salt, self.start, self.file_bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let previous_end = self.previous_end.unwrap_or(NO_PREVIOUS_END);
        bytes.extend_from_slice(&previous_end.to_le_bytes());
        let crc = crc32_iscsi(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(bytes.capacity(), 0);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FileHeaderProblem> {
        let mut reader = Reader(bytes);
        let invalid = FileHeaderProblem::Invalid;
        let covered = bytes.get(..FILE_CRC_AT).ok_or(FileHeaderProblem::Invalid)?;
        if reader.take::<8>() != Some(FILE_MAGIC) {
            return Err(invalid);
        }
        let version = reader.u32().ok_or(FileHeaderProblem::Invalid)?;
        if version != VERSION {
            return Err(FileHeaderProblem::Version(version));
        }
        let read = |mut reader: Reader<'_>| {
            reader.take::<4>()?;
            let header = Self {
                log_id: reader.take()?,
                sequence: reader.u64()?,
                salt: reader.u64()?,
                start: reader.u64()?,
                file_bytes: reader.u64()?,
                previous_end: Some(reader.u64()?).filter(|end| *end != NO_PREVIOUS_END),
            };
            (reader.u32()? == crc32_iscsi(covered)).then_some(header)
        };
        read(reader).ok_or(invalid)
    }
}

/// What a frame says of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryFields {
    pub partition: PartitionId,
    pub leader_epoch: LeaderEpoch,
    pub range: OffsetRange,
    pub max_timestamp: TimestampMs,
    pub record_count: u32,
}

impl EntryFields {
    pub fn of(entry: &Entry) -> Self {
        Self {
            partition: entry.partition,
            leader_epoch: entry.leader_epoch,
            range: entry.range,
            max_timestamp: entry.max_timestamp,
            record_count: entry.record_count,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub salt: u64,
    pub position: u64,
    pub durable_up_to: u64,
    /// `None` in a mark.
    pub entry: Option<EntryFields>,
    pub body_length: u32,
    pub body_crc: u32,
}

/// What lies where a frame header is looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoundFrame {
    Header(FrameHeader),
    /// Not a frame of this file's present use at this position.
    Nothing,
    /// The CRC is right and the contents can't be: no writer of this version made it.
    Nonsense,
}

impl FrameHeader {
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        bytes.extend_from_slice(&FRAME_MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        for field in [self.salt, self.position, self.durable_up_to] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        match &self.entry {
            Some(entry) => {
                bytes.extend_from_slice(entry.partition.topic.as_bytes());
                bytes.extend_from_slice(&entry.partition.index.get().to_le_bytes());
                bytes.extend_from_slice(&entry.leader_epoch.get().to_le_bytes());
                bytes.extend_from_slice(&entry.range.start().get().to_le_bytes());
                bytes.extend_from_slice(&entry.range.end().get().to_le_bytes());
                bytes.extend_from_slice(&entry.max_timestamp.get().to_le_bytes());
                bytes.extend_from_slice(&entry.record_count.to_le_bytes());
            }
            None => bytes.extend_from_slice(&[0; 52]),
        }
        let kind = if self.entry.is_some() {
            KIND_ENTRY
        } else {
            KIND_MARK
        };
        for field in [self.body_length, self.body_crc, kind] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32_iscsi(&bytes[at + 8..]);
        bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Looks at the first bytes of `bytes` for the frame that belongs at `position` of the file with `salt`.
    pub fn find(bytes: &[u8], salt: u64, position: u64) -> FoundFrame {
        let mut reader = Reader(bytes);
        let Some(covered) = bytes.get(8..FRAME_HEADER_BYTES) else {
            return FoundFrame::Nothing;
        };
        if reader.take() != Some(FRAME_MAGIC)
            || reader.u32() != Some(crc32_iscsi(covered))
            || reader.u64() != Some(salt)
            || reader.u64() != Some(position)
        {
            return FoundFrame::Nothing;
        }
        match Self::read(reader, salt, position) {
            Some(header) => FoundFrame::Header(header),
            None => FoundFrame::Nonsense,
        }
    }

    fn read(mut reader: Reader<'_>, salt: u64, position: u64) -> Option<Self> {
        let durable_up_to = reader.u64()?;
        let topic = reader.take::<16>()?;
        let (index, leader_epoch) = (reader.u32()?, reader.u32()?);
        let (start, end) = (reader.u64()?, reader.u64()?);
        let max_timestamp = TimestampMs::new(i64::from_le_bytes(reader.take()?));
        let record_count = reader.u32()?;
        let (body_length, body_crc, kind) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let entry = match kind {
            KIND_ENTRY => Some(EntryFields {
                partition: PartitionId {
                    topic: TopicId::from_bytes(topic).ok()?,
                    index: PartitionIndex::new(index).ok()?,
                },
                leader_epoch: LeaderEpoch::new(leader_epoch)?,
                range: OffsetRange::new(Offset::new(start)?, Offset::new(end)?)?,
                max_timestamp,
                record_count,
            }),
            KIND_MARK if body_length == 0 => None,
            _ => return None,
        };
        (durable_up_to <= position).then_some(Self {
            salt,
            position,
            durable_up_to,
            entry,
            body_length,
            body_crc,
        })
    }
}

/// Takes fields off the front; `None` at the end of the bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_header() -> FileHeader {
        FileHeader {
            log_id: *b"0123456789abcdef",
            sequence: 7,
            salt: 0x0102_0304_0506_0708,
            start: 0x1000,
            file_bytes: 0x10000,
            previous_end: Some(0x0ff0),
        }
    }

    fn frame_header() -> FrameHeader {
        FrameHeader {
            salt: 0x0102_0304_0506_0708,
            position: 0x2000,
            durable_up_to: 0x1f00,
            entry: Some(EntryFields {
                partition: PartitionId {
                    topic: TopicId::from_bytes([9; 16]).unwrap(),
                    index: PartitionIndex::new(3).unwrap(),
                },
                leader_epoch: LeaderEpoch::new(4).unwrap(),
                range: OffsetRange::new(Offset::new(10).unwrap(), Offset::new(15).unwrap())
                    .unwrap(),
                max_timestamp: TimestampMs::new(1_700_000_000_000),
                record_count: 5,
            }),
            body_length: 100,
            body_crc: 0xaabb_ccdd,
        }
    }

    #[test]
    fn every_flipped_byte_of_a_file_header_is_noticed() {
        let bytes = file_header().encode();
        assert_eq!(bytes.len() as u64, FILE_HEADER_BYTES);
        assert_eq!(FileHeader::decode(&bytes), Ok(file_header()));
        for at in 0..FILE_CRC_AT + 4 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(FileHeader::decode(&bytes).is_err(), "byte {at}");
        }
        assert!(FileHeader::decode(&bytes[..75]).is_err());
    }

    #[test]
    fn every_flipped_byte_of_a_frame_header_is_noticed() {
        let header = frame_header();
        let mut bytes = Vec::new();
        header.encode_to(&mut bytes);
        assert_eq!(bytes.len(), FRAME_HEADER_BYTES);
        let found = FrameHeader::find(&bytes, header.salt, header.position);
        assert_eq!(found, FoundFrame::Header(header));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let found = FrameHeader::find(&bytes, header.salt, header.position);
            assert_eq!(found, FoundFrame::Nothing, "byte {at}");
        }
    }

    #[test]
    fn a_frame_of_another_use_of_the_file_is_nothing() {
        let header = frame_header();
        let mut bytes = Vec::new();
        header.encode_to(&mut bytes);
        assert_eq!(
            FrameHeader::find(&bytes, header.salt + 1, header.position),
            FoundFrame::Nothing
        );
        assert_eq!(
            FrameHeader::find(&bytes, header.salt, header.position + 8),
            FoundFrame::Nothing
        );
    }

    /// The layout of version 1, byte for byte: a change here needs a new version.
    #[test]
    fn version_1_is_written_as_released() {
        let mut bytes = file_header().encode();
        bytes.truncate(76);
        frame_header().encode_to(&mut bytes);
        let mark = FrameHeader {
            entry: None,
            body_length: 0,
            body_crc: 0,
            ..frame_header()
        };
        mark.encode_to(&mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, include_str!("version-1.hex").trim());
    }
}
