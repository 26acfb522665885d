//! Whole objects: fences, and data objects that were read from end to end.

use bytes::Bytes;

use crate::error::{FormatError, Part};
use crate::frame::{
    FOOTER_BYTES, Footer, HEADER_BYTES, Header, ObjectKind, WriterIdentity, decode_footer,
    decode_header,
};
use crate::index::{ByteRange, ObjectIndex, decode_index, verify_block, verify_checkpoint};

/// What a whole object turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedObject {
    Data(DataObject),
    Fence { identity: WriterIdentity },
}

/// A data object, every part of which was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataObject {
    pub footer: Footer,
    pub index: ObjectIndex,
    bytes: Bytes,
}

impl DataObject {
    pub fn identity(&self) -> WriterIdentity {
        self.footer.identity
    }

    /// The bytes of a block, a segment or a checkpoint, sharing the object's memory. `None` outside the object.
    pub fn slice(&self, range: ByteRange) -> Option<Bytes> {
        slice(&self.bytes, range)
    }
}

/// Reads a whole object and checks every byte of it.
///
/// # Errors
/// When any part isn't sound; see [`FormatError`].
pub fn decode_whole(bytes: &Bytes) -> Result<DecodedObject, FormatError> {
    let footer = decode_footer(bytes)?;
    let found = bytes.len() as u64;
    if footer.size_bytes != found {
        return Err(FormatError::Size {
            stated: footer.size_bytes,
            found,
        });
    }
    let header = decode_header(bytes)?;
    if header.identity != footer.identity {
        return Err(FormatError::Identity {
            header: header.identity,
            footer: footer.identity,
        });
    }
    if header.kind != footer.kind {
        return Err(FormatError::Layout {
            part: Part::Header,
            rule: "header and footer are of one kind",
        });
    }
    match footer.kind {
        ObjectKind::Fence => Ok(DecodedObject::Fence {
            identity: footer.identity,
        }),
        ObjectKind::Data => {
            let index = decode_index(&slice(bytes, footer.index).unwrap_or_default(), &footer)?;
            for block in index.all_blocks() {
                let range = ByteRange {
                    position: block.position,
                    length: block.length.into(),
                };
                verify_block(block, &slice(bytes, range).unwrap_or_default())?;
            }
            for segment in index.segments() {
                let checkpoint = segment.checkpoint.and_then(|range| slice(bytes, range));
                verify_checkpoint(segment, &checkpoint.unwrap_or_default())?;
            }
            Ok(DecodedObject::Data(DataObject {
                footer,
                index,
                bytes: bytes.clone(),
            }))
        }
    }
}

fn slice(bytes: &Bytes, range: ByteRange) -> Option<Bytes> {
    let start = usize::try_from(range.position).ok()?;
    let end = usize::try_from(range.end()).ok()?;
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}

/// An object without data, that takes the place of one which a dead writer might still create.
pub fn encode_fence(identity: WriterIdentity) -> Bytes {
    let header = Header {
        kind: ObjectKind::Fence,
        identity,
    };
    let footer = Footer {
        kind: ObjectKind::Fence,
        identity,
        index: ByteRange {
            position: HEADER_BYTES as u64,
            length: 0,
        },
        index_crc32c: 0,
        size_bytes: (HEADER_BYTES + FOOTER_BYTES) as u64,
    };
    [&header.encode()[..], &footer.encode()].concat().into()
}
