//! Header and footer. Their byte tables are on the crate's page.

use std::fmt;

use bytes::{Buf, BufMut};
use tidegate_record_batch::crc32c;
use tidegate_types::{BrokerEpoch, BrokerId};

use crate::error::{FormatError, Part};
use crate::index::ByteRange;

/// The version that is written, and the only one so far.
pub const FORMAT_VERSION: u16 = 1;

/// Bytes of the header. The first block begins here.
pub const HEADER_BYTES: usize = 44;

/// Bytes of the footer: what to read of an object first.
pub const FOOTER_BYTES: usize = 72;

const HEADER_MAGIC: &[u8; 8] = b"TGOBJHDR";
const FOOTER_MAGIC: &[u8; 8] = b"TGOBJFTR";
const CRC_BYTES: usize = 4;

/// Who wrote an object, and which of its objects it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriterIdentity {
    pub broker: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// Counts the writer's objects.
    pub sequence: u64,
    /// Random; tells two processes apart that (by a fault) have the same broker epoch.
    pub nonce: u64,
}

impl fmt::Display for WriterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            broker,
            broker_epoch,
            sequence,
            nonce,
        } = self;
        write!(
            f,
            "broker {broker} epoch {broker_epoch} sequence {sequence} nonce {nonce:016x}"
        )
    }
}

/// What an object is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Batches, checkpoints and an index.
    Data,
    /// Nothing: it only takes the place of an object that a dead writer might still have created.
    Fence,
}

impl ObjectKind {
    fn id(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Fence => 2,
        }
    }

    fn from_id(id: u8) -> Option<Self> {
        [Self::Data, Self::Fence]
            .into_iter()
            .find(|kind| kind.id() == id)
    }
}

/// An object's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: ObjectKind,
    pub identity: WriterIdentity,
}

/// An object's last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    pub kind: ObjectKind,
    pub identity: WriterIdentity,
    /// Where the index lies. Empty in a fence.
    pub index: ByteRange,
    pub index_crc32c: u32,
    /// Bytes of the whole object.
    pub size_bytes: u64,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        let mut out = &mut bytes[..];
        put_start(&mut out, FOOTER_MAGIC, self.kind, self.identity);
        out.put_u64_le(self.index.position);
        out.put_u64_le(self.index.length);
        out.put_u32_le(self.index_crc32c);
        out.put_u64_le(self.size_bytes);
        seal(&mut bytes);
        bytes
    }

    fn check_layout(&self) -> Result<(), FormatError> {
        let layout = |rule| FormatError::Layout {
            part: Part::Footer,
            rule,
        };
        let index_end = self.index.position.checked_add(self.index.length);
        if index_end.and_then(|end| end.checked_add(FOOTER_BYTES as u64)) != Some(self.size_bytes) {
            return Err(layout("the index must end where the footer begins"));
        }
        if self.index.position < HEADER_BYTES as u64 {
            return Err(layout("the index lies behind the header"));
        }
        let empty = self.index.position == HEADER_BYTES as u64
            && self.index.length == 0
            && self.index_crc32c == 0;
        if self.kind == ObjectKind::Fence && !empty {
            return Err(layout("a fence has no data"));
        }
        Ok(())
    }
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put_start(&mut &mut bytes[..], HEADER_MAGIC, self.kind, self.identity);
        seal(&mut bytes);
        bytes
    }
}

/// Reads the header at the front of an object's first bytes.
///
/// # Errors
/// When there are fewer than [`HEADER_BYTES`], or they aren't a sound header.
pub fn decode_header(first_bytes: &[u8]) -> Result<Header, FormatError> {
    let bytes: &[u8; HEADER_BYTES] = first_bytes.first_chunk().ok_or(FormatError::Length {
        part: Part::Header,
        expected: HEADER_BYTES as u64,
        found: first_bytes.len() as u64,
    })?;
    check_seal(bytes, Part::Header, HEADER_MAGIC)?;
    let (kind, identity) = take_start(&mut &bytes[..], Part::Header)?;
    Ok(Header { kind, identity })
}

/// Reads the footer at the end of an object's last bytes, of which there may be more.
///
/// # Errors
/// When there are fewer than [`FOOTER_BYTES`], or they aren't a sound footer.
pub fn decode_footer(last_bytes: &[u8]) -> Result<Footer, FormatError> {
    let bytes: &[u8; FOOTER_BYTES] = last_bytes.last_chunk().ok_or(FormatError::Length {
        part: Part::Footer,
        expected: FOOTER_BYTES as u64,
        found: last_bytes.len() as u64,
    })?;
    check_seal(bytes, Part::Footer, FOOTER_MAGIC)?;
    let mut input = &bytes[..];
    let (kind, identity) = take_start(&mut input, Part::Footer)?;
    let footer = Footer {
        kind,
        identity,
        index: ByteRange {
            position: input.get_u64_le(),
            length: input.get_u64_le(),
        },
        index_crc32c: input.get_u32_le(),
        size_bytes: input.get_u64_le(),
    };
    footer.check_layout()?;
    Ok(footer)
}

/// Whether two footers are of the same object: same writer, same nonce, same contents.
///
/// It answers the question after a create-only write that found the key taken: is what lies there our own
/// write, whose reply was lost? The index's CRC covers the CRCs of all blocks and checkpoints.
pub fn same_object(a: &Footer, b: &Footer) -> bool {
    a == b
}

fn put_start(out: &mut impl BufMut, magic: &[u8; 8], kind: ObjectKind, identity: WriterIdentity) {
    out.put_slice(magic);
    out.put_u16_le(FORMAT_VERSION);
    out.put_u8(kind.id());
    out.put_u8(0);
    out.put_u32_le(identity.broker.get());
    out.put_u64_le(identity.broker_epoch.get());
    out.put_u64_le(identity.sequence);
    out.put_u64_le(identity.nonce);
}

/// Writes the CRC of everything before it into the last four bytes.
fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - CRC_BYTES;
    let crc = crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

/// Magic and version come first: they say how to read the rest, and where the CRC is.
fn check_seal<const N: usize>(
    bytes: &[u8; N],
    part: Part,
    magic: &[u8; 8],
) -> Result<(), FormatError> {
    if !bytes.starts_with(magic) {
        return Err(FormatError::Magic { part });
    }
    let version = (&bytes[magic.len()..]).get_u16_le();
    if version != FORMAT_VERSION {
        return Err(FormatError::Version { part, version });
    }
    let (covered, mut crc) = bytes.split_at(N - CRC_BYTES);
    let (stored, computed) = (crc.get_u32_le(), crc32c(covered));
    if stored != computed {
        return Err(FormatError::Checksum {
            part,
            stored,
            computed,
        });
    }
    Ok(())
}

/// Takes the 40 bytes that header and footer share; the caller passes at least as many.
fn take_start(input: &mut &[u8], part: Part) -> Result<(ObjectKind, WriterIdentity), FormatError> {
    let layout = |rule| FormatError::Layout { part, rule };
    input.advance(10);
    let kind = ObjectKind::from_id(input.get_u8()).ok_or(layout("the kind is 1 or 2"))?;
    if input.get_u8() != 0 {
        return Err(layout("the reserved byte is 0"));
    }
    let broker =
        BrokerId::new(input.get_u32_le()).map_err(|_| layout("a broker id has 31 bits"))?;
    let identity = WriterIdentity {
        broker,
        broker_epoch: BrokerEpoch::new(input.get_u64_le()),
        sequence: input.get_u64_le(),
        nonce: input.get_u64_le(),
    };
    Ok((kind, identity))
}
