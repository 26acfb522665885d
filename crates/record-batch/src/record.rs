//! The records of a batch.
//!
//! A record is a varint length, then: attributes (one byte, unused), timestamp delta (varint, 64 bits), offset
//! delta (varint), key length (varint, −1 for null) and key, value likewise, the number of headers (varint),
//! and for each header its key's length and key (never null) and its value's length and value. KIP-98.

use bytes::Bytes;
use tidegate_types::{Offset, TimestampMs};

use crate::compression::{DecompressError, decompress};
use crate::header::{BatchHeader, Codec, TimestampType};
use crate::stored::StoredBatch;
use crate::varint::{take_i32, take_i64};

/// One record, owning slices of its batch (or of the decompressed copy).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    /// The broker's time if the batch has one, else the producer's.
    pub timestamp: TimestampMs,
    pub key: Option<Bytes>,
    /// `None` is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

/// What is wrong with the layout of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordFault {
    #[error("a number is cut or too wide")]
    Number,
    #[error("the {part} of {length} bytes doesn't fit the {available} that are left")]
    Length {
        part: &'static str,
        length: i64,
        available: usize,
    },
    #[error("{extra} bytes follow the last part of it")]
    TrailingBytes { extra: usize },
    #[error("its offset delta is {found}, expected was {expected} or (after compaction) more")]
    OffsetDelta { expected: u32, found: i32 },
    #[error("its timestamp leaves the 64-bit range")]
    Timestamp,
}

/// Why the records of a batch can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    #[error("record {index} of the batch is malformed: {fault}")]
    Record { index: u32, fault: RecordFault },
    #[error("{extra} bytes follow the last of {record_count} records")]
    TrailingBytes { record_count: u32, extra: usize },
}

/// A record in place; nothing is copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordView<'a> {
    pub(crate) offset_delta: u32,
    pub(crate) timestamp_delta: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    header_count: u32,
    headers: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Takes one record off the front of `input`. `lowest_delta` is the smallest offset delta it may have.
    #[inline]
    pub(crate) fn take(input: &mut &'a [u8], lowest_delta: u32) -> Result<Self, RecordFault> {
        let length = take_i32(input).ok_or(RecordFault::Number)?;
        let mut body = take_part(input, "record", length)?;
        let input = &mut body;
        *input = input.get(1..).ok_or(RecordFault::Length {
            part: "attributes",
            length: 1,
            available: 0,
        })?;
        let timestamp_delta = take_i64(input).ok_or(RecordFault::Number)?;
        let found = take_i32(input).ok_or(RecordFault::Number)?;
        let offset_delta = match u32::try_from(found) {
            Ok(delta) if delta >= lowest_delta => delta,
            Ok(_) | Err(_) => {
                return Err(RecordFault::OffsetDelta {
                    expected: lowest_delta,
                    found,
                });
            }
        };
        let key = take_nullable(input, "key")?;
        let value = take_nullable(input, "value")?;
        let header_count = take_i32(input).ok_or(RecordFault::Number)?;
        let header_count = u32::try_from(header_count).map_err(|_| RecordFault::Length {
            part: "list of headers",
            length: i64::from(header_count),
            available: input.len(),
        })?;
        let headers = *input;
        for _ in 0..header_count {
            take_header(input)?;
        }
        if !input.is_empty() {
            return Err(RecordFault::TrailingBytes { extra: input.len() });
        }
        Ok(Self {
            offset_delta,
            timestamp_delta,
            key,
            value,
            header_count,
            headers,
        })
    }

    /// The record's own timestamp, as the producer wrote it.
    pub(crate) fn timestamp(&self, base: TimestampMs) -> Result<TimestampMs, RecordFault> {
        base.get()
            .checked_add(self.timestamp_delta)
            .map(TimestampMs::new)
            .ok_or(RecordFault::Timestamp)
    }
}

fn take_part<'a>(
    input: &mut &'a [u8],
    part: &'static str,
    length: i32,
) -> Result<&'a [u8], RecordFault> {
    let wanted = usize::try_from(length).ok();
    match wanted.and_then(|wanted| input.split_at_checked(wanted)) {
        Some((taken, rest)) => {
            *input = rest;
            Ok(taken)
        }
        None => Err(RecordFault::Length {
            part,
            length: i64::from(length),
            available: input.len(),
        }),
    }
}

fn take_nullable<'a>(
    input: &mut &'a [u8],
    part: &'static str,
) -> Result<Option<&'a [u8]>, RecordFault> {
    match take_i32(input).ok_or(RecordFault::Number)? {
        -1 => Ok(None),
        length => take_part(input, part, length).map(Some),
    }
}

fn take_header<'a>(input: &mut &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), RecordFault> {
    let length = take_i32(input).ok_or(RecordFault::Number)?;
    let key = take_part(input, "header key", length)?;
    Ok((key, take_nullable(input, "header value")?))
}

/// Goes through a decompressed body, checking layout and that offsets rise within the batch.
pub(crate) struct Walk<'a> {
    rest: &'a [u8],
    index: u32,
    record_count: u32,
    lowest_delta: u32,
    last_offset_delta: u32,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(header: &BatchHeader, body: &'a [u8]) -> Self {
        Self {
            rest: body,
            index: 0,
            record_count: header.record_count(),
            lowest_delta: 0,
            last_offset_delta: header.last_offset_delta(),
        }
    }

    /// Bytes that weren't walked over yet.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next record with its number in the batch; `None` after the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, RecordView<'a>)>, RecordsError> {
        let index = self.index;
        if index == self.record_count {
            return match self.rest.len() {
                0 => Ok(None),
                extra => Err(RecordsError::TrailingBytes {
                    record_count: self.record_count,
                    extra,
                }),
            };
        }
        let fault = |fault| RecordsError::Record { index, fault };
        let record = RecordView::take(&mut self.rest, self.lowest_delta).map_err(fault)?;
        if record.offset_delta > self.last_offset_delta {
            let found = i32::try_from(record.offset_delta).expect("it was read as 31 bits");
            return Err(fault(RecordFault::OffsetDelta {
                expected: self.lowest_delta,
                found,
            }));
        }
        self.lowest_delta = record.offset_delta + 1;
        self.index += 1;
        Ok(Some((index, record)))
    }
}

/// The records of a batch, all of them checked before the first is given out.
#[derive(Debug, Clone)]
pub struct Records {
    header: BatchHeader,
    body: Bytes,
    position: usize,
    left: u32,
}

/// Reads the records of a batch, decompressing at most `max_uncompressed_bytes`.
///
/// Keys and values are slices: of the batch itself if it isn't compressed, else of one decompressed copy.
///
/// # Errors
/// When decompressing fails or exceeds the limit, or any record is malformed.
pub fn records(
    batch: &StoredBatch,
    max_uncompressed_bytes: usize,
) -> Result<Records, RecordsError> {
    let header = *batch.header();
    let body = uncompressed_body(batch, max_uncompressed_bytes)?;
    let mut walk = Walk::new(&header, &body);
    while let Some((index, record)) = walk.next()? {
        record
            .timestamp(header.base_timestamp())
            .map_err(|fault| RecordsError::Record { index, fault })?;
    }
    Ok(Records {
        header,
        body,
        position: 0,
        left: header.record_count(),
    })
}

pub(crate) fn uncompressed_body(
    batch: &StoredBatch,
    limit_bytes: usize,
) -> Result<Bytes, DecompressError> {
    let body = batch.body();
    match batch.header().codec() {
        Codec::None => Ok(body),
        codec => decompress(codec, &body, limit_bytes).map(Bytes::from),
    }
}

impl Records {
    /// The bytes of the records, decompressed.
    pub fn uncompressed_bytes(&self) -> usize {
        self.body.len()
    }

    fn owned(&self, view: &RecordView<'_>) -> Record {
        let slice = |part: &[u8]| self.body.slice_ref(part);
        let timestamp = match self.header.timestamp_type() {
            TimestampType::CreateTime => view
                .timestamp(self.header.base_timestamp())
                .expect("checked by records()"),
            TimestampType::LogAppendTime => self.header.max_timestamp(),
        };
        let mut rest = view.headers;
        let headers = (0..view.header_count)
            .map(|_| {
                let (key, value) = take_header(&mut rest).expect("checked by records()");
                (slice(key), value.map(slice))
            })
            .collect();
        Record {
            offset: offset_of(&self.header, view.offset_delta),
            timestamp,
            key: view.key.map(slice),
            value: view.value.map(slice),
            headers,
        }
    }
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.left = self.left.checked_sub(1)?;
        let mut rest = &self.body[self.position..];
        let view = RecordView::take(&mut rest, 0).expect("checked by records()");
        let record = self.owned(&view);
        self.position = self.body.len() - rest.len();
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Records {}

pub(crate) fn offset_of(header: &BatchHeader, offset_delta: u32) -> Offset {
    header
        .base_offset()
        .checked_add(i64::from(offset_delta))
        .expect("the delta is at most the last one, and the header's end offset fits")
}
