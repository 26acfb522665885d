//! The fixed part of a batch.

use bytes::BufMut;
use tidegate_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Bytes of the fixed part, up to the first record.
pub const HEADER_BYTES: usize = 61;

/// Bytes up to and including the batch length field: what the length doesn't count.
pub(crate) const PREFIX_BYTES: u32 = 12;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
/// Where the part that the CRC covers begins.
pub(crate) const ATTRIBUTES_AT: usize = 21;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;

pub(crate) const MAGIC: i8 = 2;

const CODEC_MASK: i16 = 0b111;
pub(crate) const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
pub(crate) const TRANSACTIONAL_BIT: i16 = 1 << 4;
pub(crate) const CONTROL_BIT: i16 = 1 << 5;
pub(crate) const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The number in the attributes' low three bits.
    pub fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.id() == id)
    }

    /// The name that `compression.type` uses; `none` for [`Codec::None`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Who set the timestamps of a batch (KIP-32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer, record by record.
    CreateTime,
    /// The broker: every record has the batch's max timestamp.
    LogAppendTime,
}

/// The idempotent producer that a batch comes from (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    pub id: ProducerId,
    pub epoch: ProducerEpoch,
    /// The first record's sequence number. `None` in control batches.
    pub first_sequence: Option<Sequence>,
}

/// A header whose fields contradict each other or the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeaderError {
    #[error("a batch header takes {needed} bytes, of which {available} are there")]
    Truncated { needed: usize, available: usize },
    #[error("magic {magic} isn't 2")]
    UnsupportedMagic { magic: i8 },
    #[error("a batch length of {batch_length} doesn't even hold the header")]
    Length { batch_length: i32 },
    #[error("no codec has the number {id}")]
    UnknownCodec { id: u8 },
    #[error(
        "base offset {base_offset} with last offset delta {last_offset_delta} leaves the range of offsets"
    )]
    Offsets {
        base_offset: i64,
        last_offset_delta: i32,
    },
    #[error("record count {record_count} is negative")]
    RecordCount { record_count: i32 },
    #[error("producer id {producer_id} comes with epoch {producer_epoch}")]
    Producer {
        producer_id: i64,
        producer_epoch: i16,
    },
}

/// The fields of a batch's fixed part. Small and `Copy`: it outlives the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub(crate) base_offset: Offset,
    pub(crate) end_offset: Offset,
    pub(crate) total_bytes: u32,
    pub(crate) leader_epoch: i32,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) codec: Codec,
    pub(crate) last_offset_delta: u32,
    pub(crate) base_timestamp: TimestampMs,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) producer: Option<ProducerIdentity>,
    pub(crate) record_count: u32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, which may be shorter or longer than the batch.
    ///
    /// Neither the CRC nor the records are looked at.
    ///
    /// # Errors
    /// When `bytes` is shorter than a header or a field can't be; see [`HeaderError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let total_bytes = parse_total_bytes(bytes)?;
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Truncated {
            needed: HEADER_BYTES,
            available: bytes.len(),
        })?;
        let attributes = i16::from_be_bytes(field(header, ATTRIBUTES_AT));
        let codec_id = u8::try_from(attributes & CODEC_MASK).expect("three bits fit a byte");
        let codec = Codec::from_id(codec_id).ok_or(HeaderError::UnknownCodec { id: codec_id })?;
        let (base_offset, end_offset, last_offset_delta) = parse_offsets(header)?;
        let record_count = i32::from_be_bytes(field(header, 57));
        Ok(Self {
            base_offset,
            end_offset,
            total_bytes,
            leader_epoch: i32::from_be_bytes(field(header, LEADER_EPOCH_AT)),
            crc: u32::from_be_bytes(field(header, CRC_AT)),
            attributes,
            codec,
            last_offset_delta,
            base_timestamp: TimestampMs::new(i64::from_be_bytes(field(header, 27))),
            max_timestamp: TimestampMs::new(i64::from_be_bytes(field(header, MAX_TIMESTAMP_AT))),
            producer: parse_producer(header)?,
            record_count: u32::try_from(record_count)
                .map_err(|_| HeaderError::RecordCount { record_count })?,
        })
    }

    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// The offset of the last record the batch had when it was written; compaction may have removed it since.
    pub fn last_offset(&self) -> Offset {
        self.base_offset
            .checked_add(i64::from(self.last_offset_delta))
            .expect("parsing checked that the end offset fits")
    }

    /// The last offset + 1.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// Bytes of the whole batch, header included.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes as usize
    }

    /// The epoch of the leader that placed the batch; −1 before.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// The CRC32C that the batch carries.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    pub fn codec(&self) -> Codec {
        self.codec
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// When compaction may drop the tombstones and markers of this batch, if it has said so already. The base
    /// timestamp's field holds it (KIP-534).
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    pub fn last_offset_delta(&self) -> u32 {
        self.last_offset_delta
    }

    /// What the records' timestamps count from.
    pub fn base_timestamp(&self) -> TimestampMs {
        self.base_timestamp
    }

    pub fn max_timestamp(&self) -> TimestampMs {
        self.max_timestamp
    }

    /// The greatest timestamp of records that readers see: [`TimestampMs::NONE`] of a control batch, so that look-ups
    /// by time, and the age of data, don't take a transaction marker for a record.
    pub fn max_record_timestamp(&self) -> TimestampMs {
        if self.is_control() {
            TimestampMs::NONE
        } else {
            self.max_timestamp
        }
    }

    pub fn producer(&self) -> Option<ProducerIdentity> {
        self.producer
    }

    /// The sequence number of the last record, if the batch comes from an idempotent producer.
    pub fn last_sequence(&self) -> Option<Sequence> {
        let first = self.producer?.first_sequence?;
        Some(first.advance(self.last_offset_delta))
    }

    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Writes the header's fields in front of the records. `bytes` must hold [`HEADER_BYTES`].
    pub(crate) fn write(&self, mut bytes: &mut [u8]) {
        let length = self.total_bytes.saturating_sub(PREFIX_BYTES);
        let (id, epoch, sequence) = match self.producer {
            Some(p) => (
                p.id.to_wire(),
                p.epoch.to_wire(),
                p.first_sequence.map_or(-1, Sequence::to_wire),
            ),
            None => (-1, -1, -1),
        };
        bytes.put_i64(self.base_offset.to_wire());
        bytes.put_u32(length);
        bytes.put_i32(self.leader_epoch);
        bytes.put_i8(MAGIC);
        bytes.put_u32(self.crc);
        bytes.put_i16(self.attributes);
        bytes.put_u32(self.last_offset_delta);
        bytes.put_i64(self.base_timestamp.get());
        bytes.put_i64(self.max_timestamp.get());
        bytes.put_i64(id);
        bytes.put_i16(epoch);
        bytes.put_i32(sequence);
        bytes.put_u32(self.record_count);
    }

    /// The same batch at another place. `None` if its end leaves the range of offsets.
    pub(crate) fn placed(mut self, base: Offset, epoch: LeaderEpoch) -> Option<Self> {
        self.end_offset = base
            .checked_add(i64::from(self.last_offset_delta) + 1)
            .ok()?;
        self.base_offset = base;
        self.leader_epoch = epoch.to_wire();
        Some(self)
    }
}

/// Checks magic and length, which come before everything else: older formats have other headers.
pub(crate) fn parse_total_bytes(bytes: &[u8]) -> Result<u32, HeaderError> {
    let start: &[u8; MAGIC_AT + 1] = bytes.first_chunk().ok_or(HeaderError::Truncated {
        needed: HEADER_BYTES,
        available: bytes.len(),
    })?;
    let magic = i8::from_be_bytes(field(start, MAGIC_AT));
    if magic != MAGIC {
        return Err(HeaderError::UnsupportedMagic { magic });
    }
    let batch_length = i32::from_be_bytes(field(start, 8));
    match u32::try_from(batch_length) {
        Ok(length) if length as usize >= HEADER_BYTES - PREFIX_BYTES as usize => {
            Ok(length + PREFIX_BYTES)
        }
        Ok(_) | Err(_) => Err(HeaderError::Length { batch_length }),
    }
}

fn parse_offsets(header: &[u8; HEADER_BYTES]) -> Result<(Offset, Offset, u32), HeaderError> {
    let base_offset = i64::from_be_bytes(field(header, 0));
    let last_offset_delta = i32::from_be_bytes(field(header, 23));
    let invalid = HeaderError::Offsets {
        base_offset,
        last_offset_delta,
    };
    let delta = u32::try_from(last_offset_delta).map_err(|_| invalid)?;
    let base = Offset::from_wire(base_offset).ok_or(invalid)?;
    let end = base
        .checked_add(i64::from(delta) + 1)
        .map_err(|_| invalid)?;
    Ok((base, end, delta))
}

fn parse_producer(header: &[u8; HEADER_BYTES]) -> Result<Option<ProducerIdentity>, HeaderError> {
    let producer_id = i64::from_be_bytes(field(header, 43));
    let producer_epoch = i16::from_be_bytes(field(header, 51));
    if producer_id == -1 {
        return Ok(None);
    }
    let invalid = HeaderError::Producer {
        producer_id,
        producer_epoch,
    };
    Ok(Some(ProducerIdentity {
        id: ProducerId::from_wire(producer_id).ok_or(invalid)?,
        epoch: ProducerEpoch::from_wire(producer_epoch).ok_or(invalid)?,
        first_sequence: Sequence::from_wire(i32::from_be_bytes(field(header, 53))),
    }))
}

/// `N` bytes at a constant position of a buffer whose size the type fixes.
fn field<const N: usize, const SIZE: usize>(bytes: &[u8; SIZE], at: usize) -> [u8; N] {
    *bytes[at..]
        .first_chunk()
        .expect("every field lies within the header")
}
