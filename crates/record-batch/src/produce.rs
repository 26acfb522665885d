//! What a broker checks before it accepts a batch.

use bytes::BytesMut;
use tidegate_types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

use crate::compression::{DecompressError, decompress};
use crate::crc::crc32c;
use crate::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, Codec, DELETE_HORIZON_BIT, HEADER_BYTES, HeaderError,
    LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, MAX_TIMESTAMP_AT, TimestampType, parse_total_bytes,
};
use crate::record::{RecordFault, RecordsError, Walk};
use crate::stored::{BatchError, StoredBatch, verify_crc};

/// The rules of a topic that a batch must obey.
#[derive(Debug, Clone, Copy)]
pub struct ProduceRules {
    /// The largest batch, as sent, header included (`max.message.bytes`).
    pub max_batch_bytes: u32,
    /// Who sets timestamps (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// How far behind `now` a producer's timestamp may be (`message.timestamp.before.max.ms`).
    pub before_max_ms: i64,
    /// How far ahead of `now` it may be (`message.timestamp.after.max.ms`, KIP-937).
    pub after_max_ms: i64,
    pub now: TimestampMs,
    /// Whether each record must have a key: the topic is compacted.
    pub keys_required: bool,
    /// False for Produce requests below version 7 (KIP-110).
    pub zstd_allowed: bool,
    /// The most that a compressed batch may grow to where it has to be decompressed, which is where keys are
    /// required.
    pub max_uncompressed_bytes: usize,
}

/// Why a batch is refused. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    /// There are no bytes at all.
    #[error("there is no batch")]
    Empty,
    /// Magic 0 and 1 are of clients from before Kafka 0.11.
    #[error("the batch has magic {magic}; only 2 is accepted")]
    UnsupportedMagic { magic: i8 },
    /// The bytes end before the batch does.
    #[error("a batch of {needed} bytes is cut after {available}")]
    Truncated { needed: usize, available: usize },
    #[error("a batch length of {batch_length} doesn't even hold the header")]
    Length { batch_length: i32 },
    #[error("{extra} bytes follow the first batch; one batch is accepted per partition")]
    MoreThanOneBatch { extra: usize },
    #[error("the batch takes {batch_bytes} bytes; the topic accepts {limit_bytes}")]
    TooLarge { batch_bytes: u32, limit_bytes: u32 },
    #[error("the batch says its CRC32C is {stored:#010x}, its bytes give {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("no codec has the number {id}")]
    UnknownCodec { id: u8 },
    #[error("zstd needs Produce version 7")]
    ZstdNotAllowed,
    /// A field of the header can't be.
    #[error("the batch has a bad header")]
    Header(#[source] HeaderError),
    #[error("the base offset is {base_offset}; a producer must send 0")]
    BaseOffset { base_offset: Offset },
    #[error("the batch holds no records")]
    NoRecords,
    #[error(
        "the batch says it holds {record_count} records, its last offset delta is {last_offset_delta}"
    )]
    RecordCount {
        record_count: u32,
        last_offset_delta: u32,
    },
    #[error("a client must not write control records")]
    ControlBatch,
    /// The bit that only compaction sets.
    #[error("a client must not set a delete horizon")]
    DeleteHorizon,
    /// It has a producer id, but its base sequence is negative.
    #[error("the batch of producer {producer_id} has no sequence number")]
    NoSequence { producer_id: ProducerId },
    #[error("a transactional batch needs a producer id")]
    TransactionalWithoutProducer,
    #[error("a client must not set the timestamp type to LogAppendTime")]
    TimestampType,
    /// Record `record_index` (from 0) is out of bounds; unknown for compressed batches, of which only the
    /// header was compared.
    #[error("timestamp {timestamp} isn't within {earliest} and {latest}")]
    Timestamp {
        record_index: Option<u32>,
        timestamp: TimestampMs,
        earliest: TimestampMs,
        latest: TimestampMs,
    },
    #[error("record {record_index} has no key, which a compacted topic requires")]
    NoKey { record_index: u32 },
    #[error("record {record_index} is malformed")]
    Record {
        record_index: u32,
        source: RecordFault,
    },
    #[error("{extra} bytes follow the last record")]
    TrailingBytes { extra: usize },
    /// It had to be decompressed, which failed or went above the limit.
    #[error("the records can't be decompressed")]
    Decompress(#[source] DecompressError),
}

impl From<HeaderError> for ProduceError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Truncated { needed, available } => Self::Truncated { needed, available },
            HeaderError::UnsupportedMagic { magic } => Self::UnsupportedMagic { magic },
            HeaderError::Length { batch_length } => Self::Length { batch_length },
            HeaderError::UnknownCodec { id } => Self::UnknownCodec { id },
            HeaderError::Offsets { .. }
            | HeaderError::RecordCount { .. }
            | HeaderError::Producer { .. } => Self::Header(error),
        }
    }
}

impl From<BatchError> for ProduceError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Truncated { needed, available } => Self::Truncated { needed, available },
            BatchError::TrailingBytes { extra } => Self::MoreThanOneBatch { extra },
            BatchError::Crc { stored, computed } => Self::Crc { stored, computed },
            BatchError::Header(error) => error.into(),
        }
    }
}

impl From<RecordsError> for ProduceError {
    fn from(error: RecordsError) -> Self {
        match error {
            RecordsError::Decompress(error) => Self::Decompress(error),
            RecordsError::Record { index, fault } => Self::Record {
                record_index: index,
                source: fault,
            },
            RecordsError::TrailingBytes { extra, .. } => Self::TrailingBytes { extra },
        }
    }
}

/// A batch that may be appended. It has no offsets yet.
#[derive(Debug)]
pub struct ProducedBatch {
    header: BatchHeader,
    bytes: BytesMut,
}

impl ProducedBatch {
    /// Checks a client's batch against the format and the topic's rules.
    ///
    /// Where the topic stamps records itself, `rules.now` is written into the batch here, so that placing stays
    /// a few stores under the partition's lock. An uncompressed batch whose header gives another max timestamp
    /// than its records is put right, as Apache Kafka does.
    ///
    /// # Errors
    /// See [`ProduceError`]. The first fault found counts; damage (length, CRC) is looked for before fields are
    /// judged, so that flipped bits aren't blamed on the client.
    pub fn validate(bytes: BytesMut, rules: &ProduceRules) -> Result<Self, ProduceError> {
        let header = checked_frame(&bytes, rules.max_batch_bytes)?;
        check_origin(&header, rules)?;
        let mut batch = Self { header, bytes };
        let max_timestamp = batch.check_records(rules)?;
        match rules.timestamp_type {
            TimestampType::LogAppendTime => batch.stamp(TimestampType::LogAppendTime, rules.now),
            TimestampType::CreateTime if max_timestamp != header.max_timestamp() => {
                batch.stamp(TimestampType::CreateTime, max_timestamp);
            }
            TimestampType::CreateTime => {}
        }
        Ok(batch)
    }

    /// Takes a batch that this broker built itself: a coordinator's records or a transaction marker. Only its
    /// frame, its counts and its CRC are checked.
    ///
    /// # Errors
    /// When it isn't exactly one whole batch; see [`ProduceError`].
    pub fn from_broker(bytes: BytesMut) -> Result<Self, ProduceError> {
        let header = checked_frame(&bytes, u32::MAX)?;
        check_counts(&header)?;
        Ok(Self { header, bytes })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The size of the batch in bytes.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the batch its place: writes base offset and leader epoch, which lie outside the CRC.
    ///
    /// # Panics
    /// When the batch would end above offset 2^63−1: check the log's end before.
    pub fn place(mut self, base: Offset, epoch: LeaderEpoch) -> StoredBatch {
        let header = self
            .header
            .placed(base, epoch)
            .expect("a log has fewer than 2^63 offsets");
        self.bytes[..8].copy_from_slice(&base.to_wire().to_be_bytes());
        self.bytes[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4]
            .copy_from_slice(&epoch.to_wire().to_be_bytes());
        StoredBatch::assume(header, self.bytes.freeze())
    }

    /// Checks the records as far as the rules ask for and gives the true max timestamp.
    fn check_records(&self, rules: &ProduceRules) -> Result<TimestampMs, ProduceError> {
        let header = &self.header;
        let body = &self.bytes[HEADER_BYTES..];
        match header.codec() {
            Codec::None => walk_records(header, body, rules),
            codec if rules.keys_required => {
                let records = decompress(codec, body, rules.max_uncompressed_bytes)
                    .map_err(ProduceError::Decompress)?;
                walk_records(header, &records, rules)
            }
            Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd => {
                check_timestamp(header.base_timestamp(), None, rules)?;
                check_timestamp(header.max_timestamp(), None, rules)?;
                Ok(header.max_timestamp())
            }
        }
    }

    /// Writes max timestamp and timestamp type, and the CRC that they change.
    fn stamp(&mut self, timestamp_type: TimestampType, max_timestamp: TimestampMs) {
        let attributes = match timestamp_type {
            TimestampType::CreateTime => self.header.attributes & !LOG_APPEND_TIME_BIT,
            TimestampType::LogAppendTime => self.header.attributes | LOG_APPEND_TIME_BIT,
        };
        self.bytes[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
        self.bytes[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8]
            .copy_from_slice(&max_timestamp.get().to_be_bytes());
        let crc = crc32c(&self.bytes[ATTRIBUTES_AT..]);
        self.bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        self.header.attributes = attributes;
        self.header.max_timestamp = max_timestamp;
        self.header.crc = crc;
    }
}

/// Exactly one whole, undamaged batch with a sound header.
fn checked_frame(bytes: &[u8], limit_bytes: u32) -> Result<BatchHeader, ProduceError> {
    if bytes.is_empty() {
        return Err(ProduceError::Empty);
    }
    let batch_bytes = parse_total_bytes(bytes)?;
    let (needed, available) = (batch_bytes as usize, bytes.len());
    if needed > available {
        return Err(ProduceError::Truncated { needed, available });
    }
    if needed < available {
        return Err(ProduceError::MoreThanOneBatch {
            extra: available - needed,
        });
    }
    if batch_bytes > limit_bytes {
        return Err(ProduceError::TooLarge {
            batch_bytes,
            limit_bytes,
        });
    }
    verify_crc(bytes)?;
    Ok(BatchHeader::parse(bytes)?)
}

fn check_counts(header: &BatchHeader) -> Result<(), ProduceError> {
    let (record_count, last_offset_delta) = (header.record_count(), header.last_offset_delta());
    if record_count == 0 {
        return Err(ProduceError::NoRecords);
    }
    if record_count - 1 != last_offset_delta {
        return Err(ProduceError::RecordCount {
            record_count,
            last_offset_delta,
        });
    }
    Ok(())
}

/// What a client may say of its batch.
fn check_origin(header: &BatchHeader, rules: &ProduceRules) -> Result<(), ProduceError> {
    if header.base_offset() != Offset::ZERO {
        return Err(ProduceError::BaseOffset {
            base_offset: header.base_offset(),
        });
    }
    check_counts(header)?;
    if header.is_control() {
        return Err(ProduceError::ControlBatch);
    }
    if header.attributes & DELETE_HORIZON_BIT != 0 {
        return Err(ProduceError::DeleteHorizon);
    }
    match header.producer() {
        Some(producer) if producer.first_sequence.is_none() => {
            return Err(ProduceError::NoSequence {
                producer_id: producer.id,
            });
        }
        None if header.is_transactional() => {
            return Err(ProduceError::TransactionalWithoutProducer);
        }
        Some(_) | None => {}
    }
    if header.codec() == Codec::Zstd && !rules.zstd_allowed {
        return Err(ProduceError::ZstdNotAllowed);
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ProduceError::TimestampType);
    }
    Ok(())
}

fn walk_records(
    header: &BatchHeader,
    body: &[u8],
    rules: &ProduceRules,
) -> Result<TimestampMs, ProduceError> {
    let mut max_timestamp = TimestampMs::NONE;
    let mut walk = Walk::new(header, body);
    while let Some((record_index, record)) = walk.next()? {
        let fault = |source| ProduceError::Record {
            record_index,
            source,
        };
        // Deltas rise and the last is the count - 1, so the only ones that don't leave a gap are these; a gap
        // before the end would be caught later, but is better told where it is.
        if record.offset_delta != record_index {
            let found = i32::try_from(record.offset_delta).unwrap_or(i32::MAX);
            return Err(fault(RecordFault::OffsetDelta {
                expected: record_index,
                found,
            }));
        }
        if rules.keys_required && record.key.is_none() {
            return Err(ProduceError::NoKey { record_index });
        }
        let timestamp = record.timestamp(header.base_timestamp()).map_err(fault)?;
        check_timestamp(timestamp, Some(record_index), rules)?;
        max_timestamp = max_timestamp.max(timestamp);
    }
    Ok(max_timestamp)
}

#[inline]
fn check_timestamp(
    timestamp: TimestampMs,
    record_index: Option<u32>,
    rules: &ProduceRules,
) -> Result<(), ProduceError> {
    if rules.timestamp_type == TimestampType::LogAppendTime || timestamp == TimestampMs::NONE {
        return Ok(());
    }
    let earliest = rules.now.get().saturating_sub(rules.before_max_ms);
    let latest = rules.now.get().saturating_add(rules.after_max_ms);
    if (earliest..=latest).contains(&timestamp.get()) {
        return Ok(());
    }
    Err(ProduceError::Timestamp {
        record_index,
        timestamp,
        earliest: TimestampMs::new(earliest),
        latest: TimestampMs::new(latest),
    })
}
