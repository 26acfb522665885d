//! From a frame to a request.
//!
//! Decoding has two steps, so that a broker can look at the header (who is it, may they, is there room)
//! before it spends memory on the body: [`UndecodedRequest::new`], then [`UndecodedRequest::decode`].
//! [`decode_request`] is both.
//!
//! Strings and byte fields of the result are pieces of the frame. Whoever keeps one for longer than the
//! request must copy it, or it pins the whole frame; the records of a produce request are meant to be kept.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind};
use kafka_protocol::protocol::StrBytes;

use crate::api::{Advertised, VersionRange};
use crate::bounds::{DecodeLimits, check_body};
use crate::fetch::FetchRequest;
use crate::produce::ProduceRequest;
use crate::read::{Budget, Malformed, Splitter};
use crate::schema::{self, RequestSchema};

/// The header of a request whose API and version are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: ApiKey,
    pub version: i16,
    /// Chosen by the client, sent back with the response.
    pub correlation_id: i32,
    /// The client's name for itself. At most 32767 bytes; a piece of the frame.
    pub client_id: Option<StrBytes>,
}

/// A request's header as it stands on the wire, its API and version not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawHeader {
    pub api_key: i16,
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Option<StrBytes>,
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub header: RequestHeader,
    pub body: RequestBody,
}

/// A request's body. The two APIs that carry the data have types of their own.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestBody {
    Produce(ProduceRequest),
    Fetch(FetchRequest),
    /// Everything else. Never `RequestKind::Produce` or `RequestKind::Fetch`.
    Other(Box<RequestKind>),
}

/// Why there is no request. Only [`RequestError::ApiVersionsUnsupported`] has an answer; after the others
/// the connection is closed, as Apache Kafka closes it, since the client couldn't parse an answer of a version
/// it may not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not even the header can be read.
    #[error("unreadable request header")]
    Header {
        #[source]
        cause: Malformed,
    },
    /// The API doesn't exist or isn't offered here.
    #[error("unknown API key {}, version {}", header.api_key, header.version)]
    UnknownApi { header: RawHeader },
    /// The API is offered, in other versions.
    #[error("{:?} version {} isn't supported; {supported} are", header.api_key, header.version)]
    UnsupportedVersion {
        header: RequestHeader,
        supported: VersionRange,
    },
    /// ApiVersions in a version that isn't supported. The answer is a version 0 response with
    /// UNSUPPORTED_VERSION and the versions offered, and the connection goes on (KIP-511).
    #[error("ApiVersions version {} isn't supported", header.version)]
    ApiVersionsUnsupported { header: RequestHeader },
    /// The body isn't what its API and version say.
    #[error("malformed {:?} request, version {}", header.api_key, header.version)]
    Malformed {
        header: RequestHeader,
        #[source]
        cause: Malformed,
    },
}

/// A request whose header has been read.
#[derive(Debug)]
pub struct UndecodedRequest {
    header: RequestHeader,
    schema: &'static RequestSchema,
    body: BytesMut,
}

impl UndecodedRequest {
    /// Reads the header of a frame (without the length prefix).
    pub fn new(frame: BytesMut, advertised: &Advertised) -> Result<Self, RequestError> {
        let unreadable = |cause| RequestError::Header { cause };
        let mut splitter = Splitter::new(frame, Budget::new(0));
        let (raw_key, version, correlation_id) = splitter
            .read(|reader| {
                Ok((
                    reader.int16("api key")?,
                    reader.int16("api version")?,
                    reader.int32("correlation id")?,
                ))
            })
            .map_err(unreadable)?;
        // The header's versions 1 and 2 agree up to here, and no API offered has version 0.
        let client_id = splitter.string("client id", false).map_err(unreadable)?;
        let offered = ApiKey::try_from(raw_key).ok().and_then(|api_key| {
            let supported = advertised.accepted(api_key)?;
            Some((api_key, supported, schema::of(api_key)?))
        });
        let Some((api_key, supported, schema)) = offered else {
            return Err(RequestError::UnknownApi {
                header: RawHeader {
                    api_key: raw_key,
                    version,
                    correlation_id,
                    client_id,
                },
            });
        };
        let header = RequestHeader {
            api_key,
            version,
            correlation_id,
            client_id,
        };
        if !supported.contains(version) {
            return Err(match api_key {
                ApiKey::ApiVersions => RequestError::ApiVersionsUnsupported { header },
                _ => RequestError::UnsupportedVersion { header, supported },
            });
        }
        splitter
            .read(|reader| reader.skip_tagged(schema.is_flexible(version)))
            .map_err(unreadable)?;
        Ok(Self {
            header,
            schema,
            body: splitter.into_rest(),
        })
    }

    pub fn header(&self) -> &RequestHeader {
        &self.header
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Decodes the body, in bounded memory.
    pub fn decode(self, limits: &DecodeLimits) -> Result<Request, RequestError> {
        let Self {
            header,
            schema,
            body,
        } = self;
        let decoded = match header.api_key {
            ApiKey::Produce => {
                ProduceRequest::decode(body, header.version, limits).map(RequestBody::Produce)
            }
            ApiKey::Fetch => {
                FetchRequest::decode(body, header.version, limits).map(RequestBody::Fetch)
            }
            api_key => decode_other(api_key, header.version, schema, body.freeze(), limits)
                .map(|kind| RequestBody::Other(Box::new(kind))),
        };
        match decoded {
            Ok(body) => Ok(Request { header, body }),
            Err(cause) => Err(RequestError::Malformed { header, cause }),
        }
    }
}

fn decode_other(
    api_key: ApiKey,
    version: i16,
    schema: &RequestSchema,
    mut body: Bytes,
    limits: &DecodeLimits,
) -> Result<RequestKind, Malformed> {
    let checked = check_body(schema, version, &body, limits)?;
    body.truncate(checked.body_bytes);
    RequestKind::decode(api_key, &mut body, version).map_err(|error| Malformed::Refused {
        reason: format!("{error:#}"),
    })
}

/// Decodes a frame (without its length prefix) in bounded memory.
pub fn decode_request(
    frame: BytesMut,
    advertised: &Advertised,
    limits: &DecodeLimits,
) -> Result<Request, RequestError> {
    UndecodedRequest::new(frame, advertised)?.decode(limits)
}

#[cfg(test)]
mod tests;
