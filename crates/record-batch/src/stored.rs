//! Batches that have their offsets.

use bytes::Bytes;

use crate::crc::crc32c;
use crate::header::{ATTRIBUTES_AT, BatchHeader, HEADER_BYTES, HeaderError};

/// Bytes that aren't the batch they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BatchError {
    /// The bytes end within the batch: the end of what was read, perhaps, and no damage.
    #[error("a batch of {needed} bytes is cut after {available}")]
    Truncated { needed: usize, available: usize },
    #[error("{extra} bytes follow the batch")]
    TrailingBytes { extra: usize },
    #[error("the batch says its CRC32C is {stored:#010x}, its bytes give {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error(transparent)]
    Header(HeaderError),
}

impl From<HeaderError> for BatchError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Truncated { needed, available } => Self::Truncated { needed, available },
            HeaderError::UnsupportedMagic { .. }
            | HeaderError::Length { .. }
            | HeaderError::UnknownCodec { .. }
            | HeaderError::Offsets { .. }
            | HeaderError::RecordCount { .. }
            | HeaderError::Producer { .. } => Self::Header(error),
        }
    }
}

/// One whole batch at its place in the log. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl StoredBatch {
    /// Takes bytes that must be exactly one batch, and verifies its CRC.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        let length = bytes.len();
        let batch = Self::first_of(&bytes)?;
        if batch.bytes.len() != length {
            return Err(BatchError::TrailingBytes {
                extra: length - batch.bytes.len(),
            });
        }
        verify_crc(&batch.bytes)?;
        Ok(batch)
    }

    /// `header` must be what `bytes` begin with.
    pub(crate) fn assume(header: BatchHeader, bytes: Bytes) -> Self {
        debug_assert_eq!(header.total_bytes(), bytes.len());
        Self { header, bytes }
    }

    /// The first batch of `bytes`, its CRC not verified.
    fn first_of(bytes: &Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let needed = header.total_bytes();
        if bytes.len() < needed {
            return Err(BatchError::Truncated {
                needed,
                available: bytes.len(),
            });
        }
        Ok(Self {
            header,
            bytes: bytes.slice(..needed),
        })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The records as they are stored: one compressed stream if the header names a codec.
    pub(crate) fn body(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }
}

/// Verifies the CRC of one whole batch, which must be at least as long as a header.
pub(crate) fn verify_crc(batch: &[u8]) -> Result<(), BatchError> {
    let stored = stored_crc(batch);
    let computed = crc32c(&batch[ATTRIBUTES_AT..]);
    if stored == computed {
        Ok(())
    } else {
        Err(BatchError::Crc { stored, computed })
    }
}

fn stored_crc(batch: &[u8]) -> u32 {
    let field = batch[crate::header::CRC_AT..]
        .first_chunk()
        .expect("callers pass a whole header");
    u32::from_be_bytes(*field)
}

/// Goes through batches that follow each other.
///
/// The first error ends it, because nothing tells where the next batch would begin. A last batch that is cut
/// short is [`BatchError::Truncated`]; everything before it was whole.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    position: usize,
    verify: bool,
}

impl Batches {
    /// Verifies every batch's CRC.
    pub fn with_crc(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            position: 0,
            verify: true,
        }
    }

    /// Looks at headers only: for bytes whose checksum was verified otherwise.
    pub fn headers_only(bytes: Bytes) -> Self {
        Self {
            rest: bytes,
            position: 0,
            verify: false,
        }
    }

    /// Where the batch begins that comes next or that was refused: the bytes of the batches given out so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl Iterator for Batches {
    type Item = Result<StoredBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = StoredBatch::first_of(&self.rest).and_then(|batch| {
            if self.verify {
                verify_crc(&batch.bytes)?;
            }
            Ok(batch)
        });
        match &batch {
            Ok(batch) => {
                self.position += batch.bytes.len();
                self.rest = self.rest.slice(batch.bytes.len()..);
            }
            Err(_) => self.rest = Bytes::new(),
        }
        Some(batch)
    }
}

impl std::iter::FusedIterator for Batches {}
