//! MessagePack as a gRPC message: structs are maps of named fields, so that a field that the reader doesn't know is
//! skipped and one that it misses gets its default; enums are named variants; bytes are one run of bytes.
//!
//! Types are erased here: the transport is compiled once, not once per method.

use std::fmt;
use std::io;

use bytes::{Buf, BufMut, Bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Spent on each stream at once, so small; a message that is known to be large reserves its size.
const BUFFERS: (usize, usize) = (1 << 10, 32 << 10);

/// What every value on the wire is.
trait Encodable: Send + Sync {
    fn write_to(&self, out: &mut dyn io::Write) -> Result<(), rmp_serde::encode::Error>;
}

impl<T: Serialize + Send + Sync> Encodable for T {
    fn write_to(&self, out: &mut dyn io::Write) -> Result<(), rmp_serde::encode::Error> {
        self.serialize(&mut rmp_serde::Serializer::new(out).with_struct_map())
    }
}

/// A value on its way out; encoded when the transport has room for it.
pub(super) struct Outgoing {
    value: Box<dyn Encodable>,
    expected_bytes: usize,
}

impl Outgoing {
    pub(super) fn new(value: impl Serialize + Send + Sync + 'static) -> Self {
        Self::sized(value, 0)
    }

    /// A value that holds about `bytes` bytes: saves the growing of buffers.
    pub(super) fn sized(value: impl Serialize + Send + Sync + 'static, bytes: usize) -> Self {
        Self {
            value: Box::new(value),
            expected_bytes: bytes,
        }
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outgoing")
    }
}

/// An encoded value that came in.
#[derive(Debug)]
pub(super) struct Incoming(Bytes);

/// Why a value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Undecodable {
    /// It names a variant that came after this version.
    #[error("{0}")]
    UnknownVariant(String),
    /// Anything else.
    #[error("{0}")]
    Malformed(String),
}

impl Incoming {
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, Undecodable> {
        // Reading from a slice never allocates more than the slice holds, whatever lengths it claims.
        rmp_serde::from_slice(&self.0).map_err(|error| {
            let text = error.to_string();
            if text.starts_with("unknown variant") {
                Undecodable::UnknownVariant(text)
            } else {
                Undecodable::Malformed(text)
            }
        })
    }
}

#[cfg(test)]
impl Outgoing {
    pub(super) fn to_incoming(&self) -> Incoming {
        let mut bytes = Vec::new();
        self.value.write_to(&mut bytes).unwrap();
        Incoming(bytes.into())
    }
}

#[cfg(test)]
impl Incoming {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The codec of every method.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MessagePack;

impl Codec for MessagePack {
    type Encode = Outgoing;
    type Decode = Incoming;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for MessagePack {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, item: Outgoing, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(item.expected_bytes);
        item.value
            .write_to(&mut into.writer())
            .map_err(|error| Status::internal(format!("a message can't be encoded: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}

impl Decoder for MessagePack {
    type Item = Incoming;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Incoming>, Status> {
        Ok(Some(Incoming(from.copy_to_bytes(from.remaining()))))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFERS.0, BUFFERS.1)
    }
}
