//! The one format of Tidegate's objects: batches of many partitions, their checkpoints, and an index over both.
//!
//! Uploaded objects and the object WAL's objects have the same format; a *fence* is such an object without data.
//! `docs/formats/object.md` holds the same tables with the rules for readers of other versions. All integers are
//! little-endian, every part has a magic, a version and a CRC32C, and no byte lies outside a part:
//!
//! ```text
//! header · blocks of partition 1 · blocks of partition 2 · … · checkpoints · index · footer
//! ```
//!
//! | part | bytes | checked by |
//! |---|---|---|
//! | header | [`HEADER_BYTES`] | its own CRC |
//! | block: whole batches of one partition | about the builder's target; a larger batch is a block of its own | its CRC in the index |
//! | checkpoint | as given | its CRC in the index |
//! | index | 16 + 96 a segment + 24 a block | its CRC in the footer |
//! | footer | [`FOOTER_BYTES`] | its own CRC |
//!
//! Header (magic `TGOBJHDR`) and footer (magic `TGOBJFTR`) begin alike, 40 bytes:
//!
//! | position | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic |
//! | 8 | 2 | version, 1 |
//! | 10 | 1 | kind: 1 data, 2 fence |
//! | 11 | 1 | 0 |
//! | 12 | 4 | broker id |
//! | 16 | 8 | broker epoch |
//! | 24 | 8 | sequence |
//! | 32 | 8 | nonce |
//!
//! The header ends with the CRC32C of these at 40. The footer goes on:
//!
//! | position | bytes | field |
//! |---:|---:|---|
//! | 40 | 8 | position of the index |
//! | 48 | 8 | length of the index |
//! | 56 | 4 | CRC32C of the index |
//! | 60 | 8 | size of the object, footer included |
//! | 68 | 4 | CRC32C of the footer's first 68 bytes |
//!
//! The index's tables are at the top of `index.rs`.
//!
//! Two small reads open an object whose size is known: the footer, then the index; or one, if the position of
//! the index is known too (index and footer are neighbours). One more reads any block, and a whole segment is
//! one range.
//!
//! **Promises.** Reading arbitrary bytes never panics and never allocates more than a small multiple of the
//! bytes read. A decoded index is consistent: segments and blocks cover the object without gap or overlap, and
//! offsets within a segment without gap. Changing any single byte of an object is detected by the check of the
//! part it lies in. The builder never copies batches. The same calls build the same bytes.
//!
//! **What it doesn't know.** Object keys, stores, metadata; whether batches are sound (their own CRC tells).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod builder;
mod error;
mod frame;
mod index;
mod object;

pub use builder::{BuiltObject, ObjectBuilder};
pub use error::{FormatError, Part};
pub use frame::{
    FOOTER_BYTES, FORMAT_VERSION, Footer, HEADER_BYTES, Header, ObjectKind, WriterIdentity,
};
pub use frame::{decode_footer, decode_header, same_object};
pub use index::{
    BlockEntry, ByteRange, ObjectIndex, SegmentInfo, decode_index, verify_block, verify_checkpoint,
};
pub use object::{DataObject, DecodedObject, decode_whole, encode_fence};

#[cfg(test)]
mod tests;
