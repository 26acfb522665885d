//! From a response to a frame.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ResponseHeader, ResponseKind};
use kafka_protocol::protocol::{Encodable, HeaderVersion};

use crate::api::response_header_version;
use crate::frame::LENGTH_BYTES;
use crate::write::EncodeError;

/// Encodes a response of any API: length prefix, header of the right version, body.
///
/// `response` must be of the API that `api_key` says. A field that is set and that the version hasn't got is
/// an error for some fields and silently left out for others, as Kafka's schemas have it.
pub fn encode_response(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &ResponseKind,
) -> Result<Bytes, EncodeError> {
    let header_version = response_header_version(api_key, version);
    encode_frame(
        || format!("{api_key:?}"),
        version,
        correlation_id,
        header_version,
        256,
        |out| response.encode(out, version),
    )
}

/// Encodes one response of a known type, into a buffer of exactly its size.
pub fn encode_message<R: Encodable + HeaderVersion>(
    version: i16,
    correlation_id: i32,
    response: &R,
) -> Result<Bytes, EncodeError> {
    let header_version = R::header_version(version);
    let body_bytes = response.compute_size(version).unwrap_or(0);
    encode_frame(
        || std::any::type_name::<R>().to_owned(),
        version,
        correlation_id,
        header_version,
        body_bytes,
        |out| response.encode(out, version),
    )
}

fn encode_frame<E: std::fmt::Display>(
    api: impl Fn() -> String,
    version: i16,
    correlation_id: i32,
    header_version: i16,
    body_bytes: usize,
    encode_body: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<Bytes, EncodeError> {
    let refused = |reason: String| EncodeError::Refused {
        api: api(),
        version,
        reason,
    };
    // Length, correlation id, and at most one byte of tagged fields.
    let mut out = BytesMut::with_capacity(LENGTH_BYTES + 5 + body_bytes);
    out.put_bytes(0, LENGTH_BYTES);
    ResponseHeader::default()
        .with_correlation_id(correlation_id)
        .encode(&mut out, header_version)
        .map_err(|error| refused(error.to_string()))?;
    encode_body(&mut out).map_err(|error| refused(error.to_string()))?;
    let length = out.len() - LENGTH_BYTES;
    let prefix = i32::try_from(length).map_err(|_| EncodeError::TooLong {
        field: "response",
        length,
    })?;
    out[..LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes());
    Ok(out.freeze())
}
