use bytes::BufMut;
use kafka_protocol::messages::{ApiVersionsResponse, MetadataResponse, ResponseKind};

use super::*;
use crate::response::encode_response;

fn advertised() -> Advertised {
    let keys = [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::Produce];
    Advertised::new(keys).expect("decodable")
}

fn frame(api_key: i16, version: i16, rest: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(99);
    frame.put_i16(2);
    frame.put_slice(b"me");
    frame.put_slice(rest);
    frame
}

fn decode(frame: BytesMut) -> Result<Request, RequestError> {
    decode_request(frame, &advertised(), &DecodeLimits::default())
}

fn header(api_key: ApiKey, version: i16) -> RequestHeader {
    RequestHeader {
        api_key,
        version,
        correlation_id: 99,
        client_id: Some(StrBytes::from_static_str("me")),
    }
}

#[test]
fn a_request_is_decoded_with_its_header() {
    let request = decode(frame(3, 1, &[0, 0, 0, 1, 0, 1, b't'])).expect("valid");
    assert_eq!(request.header, header(ApiKey::Metadata, 1));
    let RequestBody::Other(kind) = request.body else {
        panic!("{request:?}");
    };
    let RequestKind::Metadata(metadata) = *kind else {
        panic!("{kind:?}");
    };
    let topics = metadata.topics.expect("not null");
    assert_eq!(topics[0].name.as_ref().map(|name| name.as_str()), Some("t"));
}

#[test]
fn tagged_fields_of_the_header_are_stepped_over() {
    // One tag of two bytes in the header; then a null array, three booleans, no tags.
    let rest = [1, 200, 1, 2, 0xaa, 0xbb, 0, 0, 0, 0, 0];
    let request = decode(frame(3, 9, &rest)).expect("valid");
    assert_eq!(request.header, header(ApiKey::Metadata, 9));
}

#[test]
fn an_absent_client_id_is_not_an_empty_one() {
    let absent = [0, 3, 0, 1, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let request = decode(BytesMut::from(&absent[..])).expect("valid");
    assert_eq!(request.header.client_id, None);
    let empty = [0, 3, 0, 1, 0, 0, 0, 5, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let request = decode(BytesMut::from(&empty[..])).expect("valid");
    assert_eq!(request.header.client_id, Some(StrBytes::new()));
}

#[test]
fn api_versions_that_are_too_new_are_told_apart() {
    for version in [99, 5, -1, i16::MAX] {
        // Whatever follows the client id isn't looked at: its layout isn't known.
        assert_eq!(
            decode(frame(18, version, &[0xff; 3])),
            Err(RequestError::ApiVersionsUnsupported {
                header: header(ApiKey::ApiVersions, version)
            })
        );
    }
}

#[test]
fn a_version_that_is_not_accepted_is_named_with_those_that_are() {
    let error = decode(frame(3, 14, &[])).expect_err("too new");
    assert_eq!(
        error,
        RequestError::UnsupportedVersion {
            header: header(ApiKey::Metadata, 14),
            supported: VersionRange { min: 0, max: 13 },
        }
    );
    assert_eq!(
        error.to_string(),
        "Metadata version 14 isn't supported; 0–13 are"
    );
}

#[test]
fn the_listed_versions_of_produce_below_3_are_refused() {
    for version in 0..3 {
        assert!(
            matches!(
                decode(frame(0, version, &[0; 10])),
                Err(RequestError::UnsupportedVersion { .. })
            ),
            "{version}"
        );
    }
    assert!(decode(frame(0, 3, &[0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])).is_ok());
}

#[test]
fn apis_that_do_not_exist_or_are_not_offered_are_unknown() {
    for api_key in [999, -1, ApiKey::Fetch as i16, ApiKey::Vote as i16] {
        assert_eq!(
            decode(frame(api_key, 4, &[])),
            Err(RequestError::UnknownApi {
                header: RawHeader {
                    api_key,
                    version: 4,
                    correlation_id: 99,
                    client_id: Some(StrBytes::from_static_str("me")),
                }
            })
        );
    }
}

#[test]
fn an_incomplete_header_is_unreadable_at_every_length() {
    let whole = frame(3, 9, &[0]);
    for length in 0..whole.len() {
        let cut = BytesMut::from(&whole[..length]);
        assert!(
            matches!(decode(cut), Err(RequestError::Header { .. })),
            "{length}"
        );
    }
}

#[test]
fn a_client_id_longer_than_the_frame_is_unreadable() {
    let bytes = [0, 3, 0, 1, 0, 0, 0, 5, 0x7f, 0xff, b'x'];
    assert_eq!(
        decode(BytesMut::from(&bytes[..])),
        Err(RequestError::Header {
            cause: Malformed::Truncated {
                field: "client id",
                position: 10,
                needed: 0x7fff,
                remaining: 1,
            }
        })
    );
}

#[test]
fn a_malformed_body_is_reported_with_its_header_and_cause() {
    let error = decode(frame(3, 1, &[0, 0, 0, 9])).expect_err("nine topics in no bytes");
    assert_eq!(
        error,
        RequestError::Malformed {
            header: header(ApiKey::Metadata, 1),
            cause: Malformed::TooManyElements {
                field: "topics",
                position: 0,
                count: 9,
                possible: 0,
            }
        }
    );
}

#[test]
fn text_that_is_not_utf8_is_malformed() {
    let error = decode(frame(3, 1, &[0, 0, 0, 1, 0, 1, 0xff])).expect_err("not UTF-8");
    assert!(
        matches!(
            error,
            RequestError::Malformed {
                cause: Malformed::Refused { .. },
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn responses_to_api_versions_have_header_0_in_every_version() {
    for version in 0..=4 {
        let response = ResponseKind::ApiVersions(ApiVersionsResponse::default());
        let encoded = encode_response(ApiKey::ApiVersions, version, 99, &response).expect("valid");
        let length = i32::try_from(encoded.len() - 4).expect("short");
        assert_eq!(encoded[..4], length.to_be_bytes());
        assert_eq!(encoded[4..8], 99_i32.to_be_bytes());
        // The error code follows at once.
        assert_eq!(encoded[8..10], [0, 0]);
        let array = if version >= 3 { &[1][..] } else { &[0; 4][..] };
        assert_eq!(&encoded[10..10 + array.len()], array, "version {version}");
    }
}

#[test]
fn responses_to_flexible_requests_have_header_1() {
    let response = ResponseKind::Metadata(MetadataResponse::default());
    let classic = encode_response(ApiKey::Metadata, 8, 99, &response).expect("valid");
    // Throttle time, then the brokers.
    assert_eq!(classic[8..16], [0; 8]);
    let flexible = encode_response(ApiKey::Metadata, 9, 99, &response).expect("valid");
    // No tagged fields, throttle time, no brokers.
    assert_eq!(flexible[8..14], [0, 0, 0, 0, 0, 1]);
}
