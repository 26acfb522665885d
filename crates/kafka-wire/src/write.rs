//! Writing primitive values of a response.

use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::LENGTH_BYTES;

/// Why a response can't be encoded. All are the broker's mistakes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More than a length on the wire can say.
    #[error("{field} of length {length} can't be encoded")]
    TooLong { field: &'static str, length: usize },
    /// A field is set that the version hasn't got, or the API has no such version.
    #[error("{api} response can't be encoded in version {version}: {reason}")]
    Refused {
        api: String,
        version: i16,
        reason: String,
    },
}

/// A response being written. A length that can't be written is remembered and reported at the end, so that
/// the encoders read as a plain list of fields.
#[derive(Debug)]
pub(crate) struct Writer {
    out: BytesMut,
    flexible: bool,
    too_long: Option<EncodeError>,
}

impl std::ops::Deref for Writer {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.out
    }
}

impl std::ops::DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.out
    }
}

impl Writer {
    /// Begins a response: room for the length prefix, then the header. `flexible` also selects the
    /// response header's version, which holds for every API but ApiVersions.
    pub(crate) fn begin(capacity: usize, correlation_id: i32, flexible: bool) -> Self {
        let mut out = BytesMut::with_capacity(capacity);
        out.put_bytes(0, LENGTH_BYTES);
        out.put_i32(correlation_id);
        let mut writer = Self {
            out,
            flexible,
            too_long: None,
        };
        writer.no_tagged();
        writer
    }

    pub(crate) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            let [low, ..] = value.to_le_bytes();
            self.out.put_u8(low | 0x80);
            value >>= 7;
        }
        let [low, ..] = value.to_le_bytes();
        self.out.put_u8(low);
    }

    fn give_up(&mut self, field: &'static str, length: usize) {
        self.too_long
            .get_or_insert(EncodeError::TooLong { field, length });
    }

    /// The element count of an array, or the length of a byte field. No count is null.
    pub(crate) fn optional_count(&mut self, count: Option<usize>) {
        let wire = count.map_or(Ok(-1), i32::try_from);
        match wire {
            Ok(wire) if self.flexible => self.unsigned_varint((wire + 1).unsigned_abs()),
            Ok(wire) => self.out.put_i32(wire),
            Err(_) => self.give_up("array", count.unwrap_or(0)),
        }
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.optional_count(Some(count));
    }

    pub(crate) fn string(&mut self, value: Option<&str>) {
        let length = value.map_or(Ok(-1), |value| i16::try_from(value.len()));
        match length {
            Ok(length) if self.flexible => {
                self.unsigned_varint(u32::from((length + 1).unsigned_abs()));
            }
            Ok(length) => self.out.put_i16(length),
            Err(_) => return self.give_up("string", value.map_or(0, str::len)),
        }
        self.out.put_slice(value.unwrap_or("").as_bytes());
    }

    /// An empty tagged section, in flexible versions.
    pub(crate) fn no_tagged(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    /// The number of tagged fields that follow.
    pub(crate) fn tagged_count(&mut self, count: usize) {
        self.unsigned_varint(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// One tagged field with the value that `write` writes.
    pub(crate) fn tagged(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        self.unsigned_varint(tag);
        let mut value = Self {
            out: BytesMut::new(),
            flexible: self.flexible,
            too_long: None,
        };
        write(&mut value);
        match u32::try_from(value.out.len()) {
            Ok(length) => self.unsigned_varint(length),
            Err(_) => self.give_up("tagged field", value.out.len()),
        }
        self.out.put_slice(&value.out);
        if let Some(error) = value.too_long {
            self.too_long.get_or_insert(error);
        }
    }

    /// Ends the response, of which `elsewhere` bytes were not written here: fills in the length prefix.
    pub(crate) fn finish(mut self, elsewhere: usize) -> Result<Bytes, EncodeError> {
        let length = self.out.len() - LENGTH_BYTES + elsewhere;
        match i32::try_from(length) {
            Ok(prefix) => self.out[..LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes()),
            Err(_) => self.give_up("response", length),
        }
        match self.too_long {
            Some(error) => Err(error),
            None => Ok(self.out.freeze()),
        }
    }
}
