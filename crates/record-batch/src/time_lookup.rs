//! Finding records by timestamp within one batch (KIP-79, KIP-734).

use tidegate_types::{Offset, TimestampMs};

use crate::header::TimestampType;
use crate::record::{RecordsError, Walk, offset_of, uncompressed_body};
use crate::stored::StoredBatch;

/// The first record, in the order of offsets, that lies at `from` or behind and whose timestamp is at least
/// `timestamp`. Nothing is decompressed if the header's max timestamp rules it out.
///
/// # Errors
/// When the records can't be read; see [`RecordsError`].
pub fn first_at_or_after(
    batch: &StoredBatch,
    timestamp: TimestampMs,
    from: Offset,
    max_uncompressed_bytes: usize,
) -> Result<Option<(Offset, TimestampMs)>, RecordsError> {
    let header = batch.header();
    if header.max_timestamp() < timestamp || header.end_offset() <= from {
        return Ok(None);
    }
    find(batch, max_uncompressed_bytes, |offset, found| {
        offset >= from && found >= timestamp
    })
}

/// The first record that carries the batch's max timestamp; `None` if the batch has no timestamps or no records.
///
/// # Errors
/// When the records can't be read; see [`RecordsError`].
pub fn max_timestamp_record(
    batch: &StoredBatch,
    max_uncompressed_bytes: usize,
) -> Result<Option<(Offset, TimestampMs)>, RecordsError> {
    let greatest = batch.header().max_timestamp();
    if greatest == TimestampMs::NONE {
        return Ok(None);
    }
    find(batch, max_uncompressed_bytes, |_, found| found == greatest)
}

fn find(
    batch: &StoredBatch,
    max_uncompressed_bytes: usize,
    wanted: impl Fn(Offset, TimestampMs) -> bool,
) -> Result<Option<(Offset, TimestampMs)>, RecordsError> {
    let header = batch.header();
    let body = uncompressed_body(batch, max_uncompressed_bytes)?;
    let mut walk = Walk::new(header, &body);
    while let Some((index, record)) = walk.next()? {
        let timestamp = match header.timestamp_type() {
            TimestampType::LogAppendTime => header.max_timestamp(),
            TimestampType::CreateTime => record
                .timestamp(header.base_timestamp())
                .map_err(|fault| RecordsError::Record { index, fault })?,
        };
        let offset = offset_of(header, record.offset_delta);
        if wanted(offset, timestamp) {
            return Ok(Some((offset, timestamp)));
        }
    }
    Ok(None)
}
