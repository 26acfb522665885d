//! Checks a request's body before anything is allocated for it.
//!
//! The decoders of `kafka-protocol` reserve as many elements as an array claims, so eight bytes could claim
//! gigabytes. [`check_body`] walks the body along its [`crate::schema`] first, allocating nothing:
//!
//! - every string, byte field and tagged field lies within the body;
//! - an array claims no more elements than the remaining bytes can hold, and the elements of all arrays
//!   together, decoded, stay under [`DecodeLimits::max_decoded_bytes`], since a decoded element takes many
//!   times its bytes on the wire;
//! - nesting is the schema's, so it is bounded;
//! - a known tagged field takes exactly the bytes announced for it.
//!
//! Bytes after the last field are ignored, as Apache Kafka ignores them: [`Checked::body_bytes`] tells how
//! many were used.

use crate::read::{Budget, Malformed, Reader, Visited};
use crate::schema::{Field, Kind, RequestSchema};

/// What decoding one request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Upper bound on the memory of the decoded request, beyond the frame itself.
    pub max_decoded_bytes: usize,
}

impl Default for DecodeLimits {
    /// 64 MiB: a quarter of a million partitions in one request.
    fn default() -> Self {
        Self {
            max_decoded_bytes: 64 << 20,
        }
    }
}

/// A body that passed the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Bytes of the body that its fields take. The rest is ignored.
    pub body_bytes: usize,
    /// Upper bound on the memory the decoded request takes beyond the frame.
    pub decoded_bytes: usize,
}

/// Charged for each structure in an array: no structure of `kafka-protocol` is larger.
const STRUCTURE_BYTES: usize = 256;
/// Charged for each tagged field. The first unknown one allocates a whole tree node.
const TAGGED_FIELD_BYTES: usize = 512;

/// Checks that `body` is a request of this schema and version.
///
/// The version must be one that the schema covers; others are a caller's error and are walked like the
/// nearest version.
pub fn check_body(
    schema: &RequestSchema,
    version: i16,
    body: &[u8],
    limits: &DecodeLimits,
) -> Result<Checked, Malformed> {
    let mut walk = Walk {
        reader: Reader::new(body, Budget::new(limits.max_decoded_bytes)),
        version,
        flexible: schema.is_flexible(version),
    };
    walk.fields(schema.fields)?;
    Ok(Checked {
        body_bytes: walk.reader.position(),
        decoded_bytes: walk.reader.budget.used_bytes(),
    })
}

struct Walk<'a> {
    reader: Reader<'a>,
    version: i16,
    flexible: bool,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &'static [Field]) -> Result<(), Malformed> {
        for field in fields {
            if field.tag.is_none() && field.exists_in(self.version) {
                self.field(field)?;
            }
        }
        if self.flexible {
            self.tagged_fields(fields)?;
        }
        Ok(())
    }

    fn tagged_fields(&mut self, fields: &'static [Field]) -> Result<(), Malformed> {
        let Self {
            version, flexible, ..
        } = *self;
        self.reader.tagged(|reader, tag| {
            reader.charge("tagged fields", TAGGED_FIELD_BYTES)?;
            let known = fields.iter().find(|field| {
                field.exists_in(version)
                    && field
                        .tag
                        .is_some_and(|known| usize::try_from(known) == Ok(tag))
            });
            let Some(field) = known else {
                return Ok(Visited::Skipped);
            };
            // The walk borrows the reader for the one value and hands it back.
            let budget = reader.budget;
            let mut walk = Walk {
                reader: std::mem::replace(reader, Reader::new(&[], budget)),
                version,
                flexible,
            };
            let outcome = walk.field(field);
            *reader = walk.reader;
            outcome.map(|()| Visited::Read(field.name))
        })
    }

    fn field(&mut self, field: &'static Field) -> Result<(), Malformed> {
        let nullable = field.is_nullable_in(self.version);
        self.value(field.name, &field.kind, nullable)
    }

    fn value(
        &mut self,
        name: &'static str,
        kind: &'static Kind,
        nullable: bool,
    ) -> Result<(), Malformed> {
        let position = self.reader.position();
        let null = match kind {
            Kind::Bool
            | Kind::Int8
            | Kind::Int16
            | Kind::Int32
            | Kind::Int64
            | Kind::Float64
            | Kind::Uuid => {
                self.reader
                    .take(name, smallest_bytes(kind, self.version, self.flexible))?;
                false
            }
            Kind::String => {
                let length = self.reader.string_length(name, self.flexible)?;
                self.reader.take(name, length.unwrap_or(0))?;
                length.is_none()
            }
            Kind::Bytes => {
                let length = self.reader.bytes_length(name, self.flexible)?;
                self.reader.take(name, length.unwrap_or(0))?;
                length.is_none()
            }
            Kind::Structure(fields) => self.structure(name, fields, nullable)?,
            Kind::Array(element) => {
                self.array(name, element, |walk| walk.value(name, element, false))?
            }
            Kind::Structures(fields) => self.array(name, kind, |walk| walk.fields(fields))?,
        };
        if null && !nullable {
            return Err(Malformed::Null {
                field: name,
                position,
            });
        }
        Ok(())
    }

    fn structure(
        &mut self,
        name: &'static str,
        fields: &'static [Field],
        nullable: bool,
    ) -> Result<bool, Malformed> {
        if nullable {
            let position = self.reader.position();
            match self.reader.int8(name)? {
                1 => {}
                -1 => return Ok(true),
                value => {
                    return Err(Malformed::BadValue {
                        field: name,
                        position,
                        value,
                    });
                }
            }
        }
        self.fields(fields)?;
        Ok(false)
    }

    fn array(
        &mut self,
        name: &'static str,
        element: &'static Kind,
        mut walk_element: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<bool, Malformed> {
        let wire_bytes = smallest_element_bytes(element, self.version, self.flexible);
        let memory_bytes = decoded_element_bytes(element);
        let count = self
            .reader
            .array_count(name, self.flexible, wire_bytes, memory_bytes)?;
        for _ in 0..count.unwrap_or(0) {
            walk_element(self)?;
        }
        Ok(count.is_none())
    }
}

/// The fewest bytes an element of an array takes on the wire; at least one, so that it bounds the count.
fn smallest_element_bytes(element: &Kind, version: i16, flexible: bool) -> usize {
    let bytes = match element {
        Kind::Structures(fields) | Kind::Structure(fields) => {
            smallest_fields_bytes(fields, version, flexible)
        }
        other => smallest_bytes(other, version, flexible),
    };
    bytes.max(1)
}

fn smallest_fields_bytes(fields: &[Field], version: i16, flexible: bool) -> usize {
    let fields: usize = fields
        .iter()
        .filter(|field| field.tag.is_none() && field.exists_in(version))
        .map(|field| smallest_bytes(&field.kind, version, flexible))
        .sum();
    fields + usize::from(flexible)
}

fn smallest_bytes(kind: &Kind, version: i16, flexible: bool) -> usize {
    match kind {
        Kind::Bool | Kind::Int8 => 1,
        Kind::Int16 => 2,
        Kind::Int32 => 4,
        Kind::Int64 | Kind::Float64 => 8,
        Kind::Uuid => 16,
        Kind::String if !flexible => 2,
        Kind::Bytes | Kind::Array(_) | Kind::Structures(_) if !flexible => 4,
        Kind::String | Kind::Bytes | Kind::Array(_) | Kind::Structures(_) => 1,
        // If it may be null, only the presence byte is sure.
        Kind::Structure(fields) => smallest_fields_bytes(fields, version, flexible).min(1),
    }
}

/// The memory one element of a decoded array takes in its vector.
fn decoded_element_bytes(element: &Kind) -> usize {
    match element {
        Kind::Bool | Kind::Int8 => 1,
        Kind::Int16 => 2,
        Kind::Int32 => 4,
        Kind::Int64 | Kind::Float64 => 8,
        Kind::Uuid => 16,
        Kind::String | Kind::Bytes => 40,
        Kind::Structure(_) | Kind::Array(_) | Kind::Structures(_) => STRUCTURE_BYTES,
    }
}
