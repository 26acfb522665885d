//! Kafka record batches, format version ("magic") 2: reading, checking, placing and building them.
//!
//! A batch is the unit that producers send, that the log assigns offsets to, and that Kafka's CRC covers.
//! Its layout comes from KIP-98; all integers are big-endian:
//!
//! | position | bytes | field | remarks |
//! |---:|---:|---|---|
//! | 0 | 8 | base offset | i64; outside the CRC, so the log writes it without touching the checksum |
//! | 8 | 4 | batch length | i32; bytes after this field |
//! | 12 | 4 | leader epoch | i32; outside the CRC |
//! | 16 | 1 | magic | 2 |
//! | 17 | 4 | CRC32C | u32; over everything from position 21 to the end |
//! | 21 | 2 | attributes | bits 0–2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon |
//! | 23 | 4 | last offset delta | i32 |
//! | 27 | 8 | base timestamp | i64, milliseconds |
//! | 35 | 8 | max timestamp | i64, milliseconds |
//! | 43 | 8 | producer id | i64; −1: none |
//! | 51 | 2 | producer epoch | i16 |
//! | 53 | 4 | base sequence | i32; −1: none |
//! | 57 | 4 | record count | i32 |
//! | 61 | … | records | compressed as one stream if a codec is set |
//!
//! A batch goes through types that say what was checked: [`ProducedBatch`] (came from outside, obeys the rules
//! of the edge, has no offsets yet) becomes a [`StoredBatch`] (has its offsets) by [`ProducedBatch::place`].
//!
//! **Promises.** Any bytes may be passed to any function that reads: the answer is an error, never a panic, and
//! memory is bounded by what the input holds or by the limit that the caller gives (so a decompression bomb is
//! an error). Validating an uncompressed batch, placing it and iterating over headers neither copy nor allocate.
//!
//! **What it doesn't know.** Kafka's error codes and requests (the broker maps [`ProduceError`]), who leads a
//! partition, whether a sequence number is the next one, and where batches are stored.
//!
//! **Known difference from Apache Kafka.** A compressed batch is decompressed at the edge only where keys are
//! required. Elsewhere its records aren't inspected: the CRC, the counts and the header's timestamps are.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod builder;
mod compaction;
mod compression;
mod crc;
mod header;
mod marker;
mod produce;
mod record;
mod stored;
mod time_lookup;
mod varint;

pub use builder::{BatchBuilder, BuildError};
pub use compaction::{
    DeleteHorizon, KeyedRecord, ThinError, Thinned, filler, thin_out, visit_keys, without_records,
};
pub use compression::{DecompressError, compress, decompress};
pub use crc::{Crc32c, crc32c};
pub use header::{BatchHeader, Codec, HEADER_BYTES, HeaderError, ProducerIdentity, TimestampType};
pub use marker::{ControlMarker, MarkerError};
pub use produce::{ProduceError, ProduceRules, ProducedBatch};
pub use record::{Record, RecordFault, Records, RecordsError, records};
pub use stored::{BatchError, Batches, StoredBatch};
pub use time_lookup::{first_at_or_after, max_timestamp_record};

#[cfg(test)]
mod tests;
