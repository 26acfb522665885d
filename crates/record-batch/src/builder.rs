//! Making batches: for coordinators, compaction, transaction markers and tests.

use bytes::{BufMut, BytesMut};
use tidegate_types::{LeaderEpoch, Offset, TimestampMs};

use crate::compression::compress;
use crate::crc::crc32c;
use crate::header::{
    ATTRIBUTES_AT, BatchHeader, CONTROL_BIT, CRC_AT, Codec, HEADER_BYTES, LOG_APPEND_TIME_BIT,
    PREFIX_BYTES, ProducerIdentity, TRANSACTIONAL_BIT, TimestampType,
};
use crate::varint::{length_i64, put_i32, put_i64};

/// Why a batch can't be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("a batch needs a record")]
    NoRecords,
    #[error("the batch or a part of it is longer than 2^31-1 bytes")]
    TooLarge,
    #[error("record at {offset} comes behind {last}")]
    OffsetOrder { offset: Offset, last: Offset },
    #[error("offset {offset} is too far from the batch's base offset {base_offset}")]
    OffsetSpan { base_offset: Offset, offset: Offset },
    #[error("timestamps {first} and {other} are too far apart")]
    TimestampSpan {
        first: TimestampMs,
        other: TimestampMs,
    },
    #[error("compressing failed")]
    Compress(#[from] std::io::Error),
}

/// Builds one batch. Faults are kept and reported by [`BatchBuilder::finish`].
#[derive(Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: i32,
    codec: Codec,
    attributes: i16,
    producer: Option<ProducerIdentity>,
    /// Room for the header, then the records.
    bytes: BytesMut,
    record_count: u32,
    last_offset: Option<Offset>,
    keep_end: Option<Offset>,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    fault: Option<BuildError>,
}

impl BatchBuilder {
    pub fn new(
        base_offset: Offset,
        codec: Codec,
        timestamp_type: TimestampType,
        producer: Option<ProducerIdentity>,
        transactional: bool,
    ) -> Self {
        let mut attributes = i16::from(codec.id());
        if timestamp_type == TimestampType::LogAppendTime {
            attributes |= LOG_APPEND_TIME_BIT;
        }
        if transactional {
            attributes |= TRANSACTIONAL_BIT;
        }
        Self {
            base_offset,
            leader_epoch: -1,
            codec,
            attributes,
            producer,
            bytes: BytesMut::zeroed(HEADER_BYTES),
            record_count: 0,
            last_offset: None,
            keep_end: None,
            base_timestamp: TimestampMs::NONE,
            max_timestamp: TimestampMs::NONE,
            fault: None,
        }
    }

    /// The leader epoch that the batch carries; −1 ("not placed yet") otherwise.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.leader_epoch = epoch.to_wire();
        self
    }

    pub(crate) fn control(mut self) -> Self {
        self.attributes |= CONTROL_BIT;
        self
    }

    /// Adds a record at the next offset.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut Self {
        let next = match self.last_offset {
            None => Ok(self.base_offset),
            Some(last) => last.checked_add(1).map_err(|_| last),
        };
        match next {
            Ok(offset) => self.push_at(offset, timestamp, key, value, headers),
            Err(offset) => self.refuse(BuildError::OffsetSpan {
                base_offset: self.base_offset,
                offset,
            }),
        }
    }

    /// Adds a record at an offset behind the last one, leaving a gap: what compaction leaves of a batch.
    pub fn push_at(
        &mut self,
        offset: Offset,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut Self {
        match self.write_record(offset, timestamp, key, value, headers) {
            Ok(()) => self,
            Err(fault) => self.refuse(fault),
        }
    }

    /// Makes the batch end at `end` (exclusive) even if its last records are gone, as compaction must: the log
    /// may not lose an end offset or a producer's last sequence number. Then it may hold no records at all.
    #[must_use]
    pub fn keep_end(mut self, end: Offset) -> Self {
        self.keep_end = Some(end);
        self
    }

    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// The batch's size so far, header included, before compression.
    pub fn uncompressed_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch, with its CRC.
    ///
    /// # Errors
    /// When any call before could not be carried out, or there is no record.
    pub fn finish(mut self) -> Result<BytesMut, BuildError> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let end_of_records = self.last_offset.map(|last| last.checked_add(1)).transpose();
        let span_error = |offset| BuildError::OffsetSpan {
            base_offset: self.base_offset,
            offset,
        };
        let end_of_records = end_of_records.map_err(|_| span_error(self.base_offset))?;
        let end_offset = end_of_records
            .max(self.keep_end)
            .ok_or(BuildError::NoRecords)?;
        let delta = end_offset.to_wire() - self.base_offset.to_wire() - 1;
        let last_offset_delta = i32::try_from(delta)
            .ok()
            .and_then(|d| u32::try_from(d).ok())
            .ok_or(span_error(end_offset))?;
        if self.codec != Codec::None {
            let body = compress(self.codec, &self.bytes[HEADER_BYTES..])?;
            self.bytes.truncate(HEADER_BYTES);
            self.bytes.extend_from_slice(&body);
        }
        let length = i32::try_from(self.bytes.len() - PREFIX_BYTES as usize)
            .map_err(|_| BuildError::TooLarge)?;
        let mut header = BatchHeader {
            base_offset: self.base_offset,
            end_offset,
            total_bytes: length.cast_unsigned() + PREFIX_BYTES,
            leader_epoch: self.leader_epoch,
            crc: 0,
            attributes: self.attributes,
            codec: self.codec,
            last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer: self.producer,
            record_count: self.record_count,
        };
        header.write(&mut self.bytes[..HEADER_BYTES]);
        header.crc = crc32c(&self.bytes[ATTRIBUTES_AT..]);
        self.bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&header.crc.to_be_bytes());
        Ok(self.bytes)
    }

    fn refuse(&mut self, fault: BuildError) -> &mut Self {
        self.fault.get_or_insert(fault);
        self
    }

    fn write_record(
        &mut self,
        offset: Offset,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), BuildError> {
        if let Some(last) = self.last_offset
            && offset <= last
        {
            return Err(BuildError::OffsetOrder { offset, last });
        }
        let offset_delta = i32::try_from(offset.to_wire() - self.base_offset.to_wire())
            .ok()
            .filter(|delta| *delta >= 0)
            .ok_or(BuildError::OffsetSpan {
                base_offset: self.base_offset,
                offset,
            })?;
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
        }
        let timestamp_delta = timestamp
            .get()
            .checked_sub(self.base_timestamp.get())
            .ok_or(BuildError::TimestampSpan {
                first: self.base_timestamp,
                other: timestamp,
            })?;
        let length = record_length(timestamp_delta, offset_delta, key, value, headers)?;
        put_i32(&mut self.bytes, length);
        self.bytes.put_u8(0);
        put_i64(&mut self.bytes, timestamp_delta);
        put_i32(&mut self.bytes, offset_delta);
        put_nullable(&mut self.bytes, key)?;
        put_nullable(&mut self.bytes, value)?;
        put_i32(&mut self.bytes, wire_length(headers.len())?);
        for (key, value) in headers {
            put_nullable(&mut self.bytes, Some(key))?;
            put_nullable(&mut self.bytes, *value)?;
        }
        self.record_count += 1;
        self.last_offset = Some(offset);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }
}

fn wire_length(length: usize) -> Result<i32, BuildError> {
    i32::try_from(length).map_err(|_| BuildError::TooLarge)
}

fn put_nullable(output: &mut BytesMut, part: Option<&[u8]>) -> Result<(), BuildError> {
    match part {
        None => put_i32(output, -1),
        Some(part) => {
            put_i32(output, wire_length(part.len())?);
            output.put_slice(part);
        }
    }
    Ok(())
}

/// The bytes of a record behind its length.
fn record_length(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[(&[u8], Option<&[u8]>)],
) -> Result<i32, BuildError> {
    let nullable = |part: Option<&[u8]>| match part {
        None => Ok(length_i64(-1)),
        Some(part) => Ok::<_, BuildError>(length_i64(wire_length(part.len())?.into()) + part.len()),
    };
    let mut length = 1 + length_i64(timestamp_delta) + length_i64(offset_delta.into());
    length += nullable(key)? + nullable(value)?;
    length += length_i64(wire_length(headers.len())?.into());
    for (key, value) in headers {
        length += nullable(Some(key))? + nullable(*value)?;
    }
    wire_length(length)
}
