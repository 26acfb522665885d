//! What can be wrong with an object's bytes.

use std::fmt;

use crate::frame::WriterIdentity;

/// A part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Header,
    /// The block at a byte position.
    Block {
        position: u64,
    },
    /// The checkpoint at a byte position.
    Checkpoint {
        position: u64,
    },
    Index,
    Footer,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Block { position } => write!(f, "block at position {position}"),
            Self::Checkpoint { position } => write!(f, "checkpoint at position {position}"),
            Self::Index => f.write_str("index"),
            Self::Footer => f.write_str("footer"),
        }
    }
}

/// Bytes that aren't the object, or the part of one, that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("the {part} takes {expected} bytes, not {found}")]
    Length {
        part: Part,
        expected: u64,
        found: u64,
    },
    #[error("the {part} doesn't begin with its magic")]
    Magic { part: Part },
    /// Written by a later release, or damaged.
    #[error("the {part} has version {version}, which this release can't read")]
    Version { part: Part, version: u16 },
    #[error("the {part} should have CRC32C {stored:#010x} and has {computed:#010x}")]
    Checksum {
        part: Part,
        stored: u32,
        computed: u32,
    },
    /// The checksum is right, but the fields contradict each other or the format.
    #[error("the {part} is inconsistent: {rule}")]
    Layout { part: Part, rule: &'static str },
    #[error("the object says it has {stated} bytes and has {found}")]
    Size { stated: u64, found: u64 },
    /// Header and footer are of different objects.
    #[error("the header is by {header}, the footer by {footer}")]
    Identity {
        header: WriterIdentity,
        footer: WriterIdentity,
    },
}
