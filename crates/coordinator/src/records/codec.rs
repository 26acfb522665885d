//! Reading and writing the primitive fields of Kafka's messages.

use bytes::{BufMut, Bytes, BytesMut};

use crate::RecordError;

/// A cursor over one key or value; `record` names it in errors. Never panics on any input.
pub(crate) struct Reader<'a> {
    record: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(record: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            record,
            rest: bytes,
        }
    }

    pub(crate) fn invalid(&self, field: &'static str) -> RecordError {
        RecordError::Invalid {
            record: self.record,
            field,
        }
    }

    pub(crate) fn unsupported(&self, version: i16) -> RecordError {
        RecordError::UnsupportedVersion {
            record: self.record,
            version,
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], RecordError> {
        match self.rest.split_at_checked(count) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(RecordError::Truncated {
                record: self.record,
                field,
            }),
        }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], RecordError> {
        let bytes = self.take(N, field)?;
        Ok(bytes
            .try_into()
            .expect("take returns as many bytes as asked for"))
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, RecordError> {
        Ok(i16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, RecordError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, RecordError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn unsigned_varint(&mut self, field: &'static str) -> Result<u32, RecordError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| self.invalid(field));
            }
        }
        Err(self.invalid(field))
    }

    /// A length, or `None` for null. In a flexible version it is a varint of the length plus one.
    fn length(
        &mut self,
        wide: bool,
        flexible: bool,
        field: &'static str,
    ) -> Result<Option<usize>, RecordError> {
        if flexible {
            let plus_one = self.unsigned_varint(field)?;
            return Ok(plus_one.checked_sub(1).map(|length| length as usize));
        }
        let length = if wide {
            self.i32(field)?
        } else {
            i32::from(self.i16(field)?)
        };
        match length {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| self.invalid(field)),
        }
    }

    pub(crate) fn nullable_string(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<Option<&'a str>, RecordError> {
        let Some(length) = self.length(false, flexible, field)? else {
            return Ok(None);
        };
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes)
            .map(Some)
            .map_err(|_| self.invalid(field))
    }

    pub(crate) fn string(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<&'a str, RecordError> {
        self.nullable_string(flexible, field)?
            .ok_or_else(|| self.invalid(field))
    }

    pub(crate) fn bytes(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<Bytes, RecordError> {
        let length = self
            .length(true, flexible, field)?
            .ok_or_else(|| self.invalid(field))?;
        Ok(Bytes::copy_from_slice(self.take(length, field)?))
    }

    /// The count of an array that may not be null. Bounded by the bytes left, so that it can size a `Vec`.
    pub(crate) fn array_length(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<usize, RecordError> {
        self.nullable_array_length(flexible, field)?
            .ok_or_else(|| self.invalid(field))
    }

    /// The count of an array, or `None` for null. Bounded by the bytes left.
    pub(crate) fn nullable_array_length(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<Option<usize>, RecordError> {
        let length = self.length(true, flexible, field)?;
        if length > Some(self.remaining()) {
            return Err(RecordError::Truncated {
                record: self.record,
                field,
            });
        }
        Ok(length)
    }

    /// Reads a tag section; `known` gets the tag and the bytes of each field. Nothing outside flexible versions.
    pub(crate) fn tags(
        &mut self,
        flexible: bool,
        mut known: impl FnMut(u32, &'a [u8]) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        if !flexible {
            return Ok(());
        }
        for _ in 0..self.unsigned_varint("tag count")? {
            let tag = self.unsigned_varint("tag")?;
            let size = self.unsigned_varint("tag size")? as usize;
            known(tag, self.take(size, "tagged field")?)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), RecordError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(RecordError::TrailingBytes {
            record: self.record,
            bytes: self.rest.len(),
        })
    }
}

/// Writes a non-flexible string. Callers hold strings to 32767 bytes at the edge; a longer one is cut at a
/// character, because a wrong length would make the whole partition unreadable.
pub(crate) fn put_string(out: &mut BytesMut, value: &str) {
    let mut end = value.len().min(i16::MAX as usize);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let length = i16::try_from(end).expect("the length was just limited to 32767");
    out.put_i16(length);
    out.put_slice(&value.as_bytes()[..end]);
}

pub(crate) fn put_nullable_string(out: &mut BytesMut, value: Option<&str>) {
    match value {
        Some(value) => put_string(out, value),
        None => out.put_i16(-1),
    }
}

pub(crate) fn put_bytes(out: &mut BytesMut, value: &[u8]) {
    let length = i32::try_from(value.len()).expect("requests are smaller than 2 GiB");
    out.put_i32(length);
    out.put_slice(value);
}

pub(crate) fn put_unsigned_varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

pub(crate) fn put_compact_string(out: &mut BytesMut, value: &str) {
    let plus_one = u32::try_from(value.len() + 1).expect("requests are smaller than 2 GiB");
    put_unsigned_varint(out, plus_one);
    out.put_slice(value.as_bytes());
}

pub(crate) fn put_nullable_compact_string(out: &mut BytesMut, value: Option<&str>) {
    match value {
        Some(value) => put_compact_string(out, value),
        None => put_unsigned_varint(out, 0),
    }
}

/// The length of a compact array or of compact bytes.
pub(crate) fn put_compact_length(out: &mut BytesMut, length: usize) {
    let plus_one = u32::try_from(length + 1).expect("requests are smaller than 2 GiB");
    put_unsigned_varint(out, plus_one);
}
