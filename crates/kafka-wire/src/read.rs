//! Reading primitive values off a request, with every length checked against the bytes that are there.

use bytes::{Buf, BytesMut};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// Why a request can't be decoded. Positions count bytes from the start of the part being read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A value reaches past the end of the request.
    #[error("{field} at position {position} needs {needed} bytes and {remaining} remain")]
    Truncated {
        field: &'static str,
        position: usize,
        needed: usize,
        remaining: usize,
    },
    /// A length below -1, or above what the protocol allows.
    #[error("{field} at position {position} has length {length}")]
    BadLength {
        field: &'static str,
        position: usize,
        length: i64,
    },
    /// Null where the version doesn't allow it.
    #[error("{field} at position {position} is null")]
    Null {
        field: &'static str,
        position: usize,
    },
    /// An array that claims more elements than the remaining bytes can hold.
    #[error(
        "{field} at position {position} claims {count} elements and at most {possible} fit in what remains"
    )]
    TooManyElements {
        field: &'static str,
        position: usize,
        count: usize,
        possible: usize,
    },
    /// The decoded request would take more memory than allowed.
    #[error("{field} at position {position} makes the decoded request exceed {limit_bytes} bytes")]
    TooLarge {
        field: &'static str,
        position: usize,
        limit_bytes: usize,
    },
    /// A variable-length integer that doesn't fit 32 bits.
    #[error("{field} at position {position} isn't a 32-bit variable-length integer")]
    BadVarint {
        field: &'static str,
        position: usize,
    },
    /// A string that isn't UTF-8.
    #[error("{field} at position {position} isn't UTF-8")]
    NotUtf8 {
        field: &'static str,
        position: usize,
    },
    /// A value the field can't have, where decoding can't go on or would have to guess.
    #[error("{field} at position {position} has value {value}")]
    BadValue {
        field: &'static str,
        position: usize,
        value: i8,
    },
    /// A known tagged field whose announced size isn't the size of its value.
    #[error("{field} at position {position} is announced with {announced} bytes and takes {taken}")]
    TagSize {
        field: &'static str,
        position: usize,
        announced: usize,
        taken: usize,
    },
    /// The decoder of `kafka-protocol` refused what passed the checks.
    #[error("not decodable: {reason}")]
    Refused { reason: String },
}

/// The memory a request may still take when decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    limit_bytes: usize,
    left_bytes: usize,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            left_bytes: limit_bytes,
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.limit_bytes - self.left_bytes
    }
}

/// A cursor over a request's bytes. Never allocates, never panics.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    base: usize,
    pub(crate) budget: Budget,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], budget: Budget) -> Self {
        Self {
            bytes,
            position: 0,
            base: 0,
            budget,
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.base + self.position
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Steps over `count` bytes and returns them.
    pub(crate) fn take(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.position..];
        let Some(taken) = rest.get(..count) else {
            return Err(Malformed::Truncated {
                field,
                position: self.position(),
                needed: count,
                remaining: rest.len(),
            });
        };
        self.position += count;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(field, N)?);
        Ok(value)
    }

    pub(crate) fn int8(&mut self, field: &'static str) -> Result<i8, Malformed> {
        self.fixed(field).map(i8::from_be_bytes)
    }

    pub(crate) fn int16(&mut self, field: &'static str) -> Result<i16, Malformed> {
        self.fixed(field).map(i16::from_be_bytes)
    }

    pub(crate) fn int32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        self.fixed(field).map(i32::from_be_bytes)
    }

    pub(crate) fn int64(&mut self, field: &'static str) -> Result<i64, Malformed> {
        self.fixed(field).map(i64::from_be_bytes)
    }

    pub(crate) fn uuid(&mut self, field: &'static str) -> Result<Uuid, Malformed> {
        self.fixed(field).map(Uuid::from_bytes)
    }

    /// An unsigned variable-length integer of at most 32 bits, so of at most five bytes.
    pub(crate) fn unsigned_varint(&mut self, field: &'static str) -> Result<usize, Malformed> {
        let position = self.position();
        let mut value: u64 = 0;
        for index in 0..5 {
            let [byte] = self.fixed(field)?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return u32::try_from(value)
                    .ok()
                    .and_then(|value| usize::try_from(value).ok())
                    .ok_or(Malformed::BadVarint { field, position });
            }
        }
        Err(Malformed::BadVarint { field, position })
    }

    /// A length or count: `short` says whether the classic form has 2 bytes (strings) or 4.
    fn length(
        &mut self,
        field: &'static str,
        flexible: bool,
        short: bool,
    ) -> Result<Option<usize>, Malformed> {
        let position = self.position();
        if flexible {
            return Ok(self.unsigned_varint(field)?.checked_sub(1));
        }
        let length = if short {
            i64::from(self.int16(field)?)
        } else {
            i64::from(self.int32(field)?)
        };
        if length == -1 {
            return Ok(None);
        }
        usize::try_from(length)
            .map(Some)
            .map_err(|_| Malformed::BadLength {
                field,
                position,
                length,
            })
    }

    /// The length of a string whose bytes follow and are all there. None is null.
    pub(crate) fn string_length(
        &mut self,
        field: &'static str,
        flexible: bool,
    ) -> Result<Option<usize>, Malformed> {
        let position = self.position();
        let length = self.length(field, flexible, true)?;
        if let Some(length) = length
            && length > MAX_STRING_BYTES
        {
            return Err(Malformed::BadLength {
                field,
                position,
                length: i64::try_from(length).unwrap_or(i64::MAX),
            });
        }
        self.present(field, length)
    }

    /// The length of a byte field whose bytes follow and are all there. None is null.
    pub(crate) fn bytes_length(
        &mut self,
        field: &'static str,
        flexible: bool,
    ) -> Result<Option<usize>, Malformed> {
        let length = self.length(field, flexible, false)?;
        self.present(field, length)
    }

    fn present(
        &self,
        field: &'static str,
        length: Option<usize>,
    ) -> Result<Option<usize>, Malformed> {
        match length {
            Some(needed) if needed > self.remaining() => Err(Malformed::Truncated {
                field,
                position: self.position(),
                needed,
                remaining: self.remaining(),
            }),
            Some(_) | None => Ok(length),
        }
    }

    /// The element count of an array: at least `wire_bytes` of each element must still be there, and
    /// `memory_bytes` for each are charged to the budget. None is null.
    pub(crate) fn array_count(
        &mut self,
        field: &'static str,
        flexible: bool,
        wire_bytes: usize,
        memory_bytes: usize,
    ) -> Result<Option<usize>, Malformed> {
        let position = self.position();
        let Some(count) = self.length(field, flexible, false)? else {
            return Ok(None);
        };
        let possible = self.remaining() / wire_bytes.max(1);
        if count > possible {
            return Err(Malformed::TooManyElements {
                field,
                position,
                count,
                possible,
            });
        }
        self.charge(field, count.saturating_mul(memory_bytes))?;
        Ok(Some(count))
    }

    /// Reads an array whose elements are plain values, each of at least `wire_bytes`. It isn't null.
    pub(crate) fn array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        wire_bytes: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let position = self.position();
        let count = self.array_count(field, flexible, wire_bytes, size_of::<T>())?;
        let count = required(field, position, count)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Charges memory to the budget.
    pub(crate) fn charge(&mut self, field: &'static str, bytes: usize) -> Result<(), Malformed> {
        match self.budget.left_bytes.checked_sub(bytes) {
            Some(left_bytes) => {
                self.budget.left_bytes = left_bytes;
                Ok(())
            }
            None => Err(Malformed::TooLarge {
                field,
                position: self.position(),
                limit_bytes: self.budget.limit_bytes,
            }),
        }
    }

    /// Reads a tagged section (KIP-482) and hands each field's tag and reader to `visit`, which returns
    /// whether it has read the value; if not, the value is stepped over.
    pub(crate) fn tagged(
        &mut self,
        mut visit: impl FnMut(&mut Self, usize) -> Result<Visited, Malformed>,
    ) -> Result<(), Malformed> {
        const FIELD: &str = "tagged fields";
        let count = self.unsigned_varint(FIELD)?;
        for _ in 0..count {
            let tag = self.unsigned_varint(FIELD)?;
            let announced = self.unsigned_varint(FIELD)?;
            self.present(FIELD, Some(announced))?;
            let position = self.position();
            match visit(self, tag)? {
                Visited::Skipped => {
                    self.take(FIELD, announced)?;
                }
                Visited::Read(field) => {
                    let taken = self.position() - position;
                    if taken != announced {
                        return Err(Malformed::TagSize {
                            field,
                            position,
                            announced,
                            taken,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Steps over a tagged section in which no tag is known.
    pub(crate) fn skip_tagged(&mut self, flexible: bool) -> Result<(), Malformed> {
        if flexible {
            self.tagged(|_, _| Ok(Visited::Skipped))
        } else {
            Ok(())
        }
    }
}

/// What became of one tagged field.
pub(crate) enum Visited {
    /// Its value was read, as the field of this name.
    Read(&'static str),
    /// The tag isn't known.
    Skipped,
}

/// No string on the wire is longer, whatever the encoding of its length.
const MAX_STRING_BYTES: usize = 0x7fff;

/// Turns null into an error.
pub(crate) fn required<T>(
    field: &'static str,
    position: usize,
    value: Option<T>,
) -> Result<T, Malformed> {
    value.ok_or(Malformed::Null { field, position })
}

/// Takes a request apart: what it hands out are pieces of the request's own allocation.
#[derive(Debug)]
pub(crate) struct Splitter {
    bytes: BytesMut,
    taken: usize,
    budget: Budget,
}

impl Splitter {
    pub(crate) fn new(bytes: BytesMut, budget: Budget) -> Self {
        Self {
            bytes,
            taken: 0,
            budget,
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.taken
    }

    /// Reads values at the current position and steps over what was read.
    pub(crate) fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let mut reader = Reader {
            bytes: &self.bytes,
            position: 0,
            base: self.taken,
            budget: self.budget,
        };
        let value = read(&mut reader)?;
        let stepped = reader.position;
        self.budget = reader.budget;
        self.bytes.advance(stepped);
        self.taken += stepped;
        Ok(value)
    }

    pub(crate) fn string(
        &mut self,
        field: &'static str,
        flexible: bool,
    ) -> Result<Option<StrBytes>, Malformed> {
        let Some(length) = self.read(|reader| reader.string_length(field, flexible))? else {
            return Ok(None);
        };
        if length == 0 {
            return Ok(Some(StrBytes::new()));
        }
        let position = self.taken;
        StrBytes::from_utf8(self.split(length).freeze())
            .map(Some)
            .map_err(|_| Malformed::NotUtf8 { field, position })
    }

    pub(crate) fn bytes(
        &mut self,
        field: &'static str,
        flexible: bool,
    ) -> Result<Option<BytesMut>, Malformed> {
        let length = self.read(|reader| reader.bytes_length(field, flexible))?;
        Ok(length.map(|length| self.split(length)))
    }

    /// Reads an array whose elements hold pieces of the request, each of at least `wire_bytes`. It isn't null.
    pub(crate) fn array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        wire_bytes: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let position = self.taken;
        let count =
            self.read(|reader| reader.array_count(field, flexible, wire_bytes, size_of::<T>()))?;
        let count = required(field, position, count)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Splits off bytes whose presence was checked when their length was read.
    fn split(&mut self, length: usize) -> BytesMut {
        self.taken += length;
        self.bytes.split_to(length)
    }

    /// What hasn't been read.
    pub(crate) fn into_rest(self) -> BytesMut {
        self.bytes
    }
}
