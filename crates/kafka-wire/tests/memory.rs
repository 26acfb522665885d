//! Damaged requests of every API: no panic, and no more memory than allowed. The allocator of this test
//! binary counts, so the file has nothing else in it.

#![allow(
    unsafe_code,
    reason = "a counting allocator has to implement GlobalAlloc; it forwards to the system's"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::{BufMut, BytesMut};
use support::Rng;
use tidegate_kafka_wire::api::Advertised;
use tidegate_kafka_wire::bounds::{DecodeLimits, check_body};
use tidegate_kafka_wire::messages::ApiKey;
use tidegate_kafka_wire::request::{RequestError, decode_request};
use tidegate_kafka_wire::schema::{self, RequestSchema};

struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // While the thread ends its cells are gone; nothing is measured then.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` returns and the most memory it held beyond what was held before.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

fn frame(schema: &RequestSchema, version: i16, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(16 + body.len());
    frame.put_i16(schema.api_key as i16);
    frame.put_i16(version);
    frame.put_i32(7);
    frame.put_i16(-1);
    if schema.is_flexible(version) {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    frame
}

fn everything() -> Advertised {
    Advertised::new(schema::all().map(|schema| schema.api_key)).expect("all are decodable")
}

/// Beyond the charged memory: the request itself, boxed; the shared handle of the frame; an error's text.
const SLACK_BYTES: usize = 4096;

#[test]
fn a_decoded_request_takes_no_more_memory_than_its_check_says() {
    let advertised = everything();
    let limits = DecodeLimits::default();
    for schema in schema::all() {
        for version in schema.min_version..=schema.max_version {
            for seed in 0..20 {
                let body = support::wide_body(schema, version, 500, &mut Rng::new(seed));
                let checked = check_body(schema, version, &body, &limits).expect("generated");
                let frame = frame(schema, version, &body);
                let (request, peak) = measured(|| decode_request(frame, &advertised, &limits));
                let context = format!("{:?} version {version} seed {seed}", schema.api_key);
                request.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                let allowed = checked.decoded_bytes + SLACK_BYTES;
                assert!(
                    peak <= allowed,
                    "{context}: {peak} bytes, {allowed} allowed"
                );
            }
        }
    }
}

#[test]
fn damaged_requests_neither_panic_nor_take_more_memory_than_allowed() {
    let advertised = everything();
    let limits = DecodeLimits {
        max_decoded_bytes: 16 << 10,
    };
    let (mut refused, mut decoded) = (0, 0);
    for schema in schema::all() {
        for version in schema.min_version..=schema.max_version {
            for seed in 0..200 {
                let mut rng = Rng::new(seed);
                let mut body = support::body(schema, version, &mut rng);
                support::damage(&mut body, &mut rng);
                let frame = frame(schema, version, &body);
                let (request, peak) = measured(|| decode_request(frame, &advertised, &limits));
                let context = format!("{:?} version {version} seed {seed}", schema.api_key);
                let allowed = limits.max_decoded_bytes + SLACK_BYTES;
                assert!(
                    peak <= allowed,
                    "{context}: {peak} bytes, {allowed} allowed"
                );
                match request {
                    Ok(_) => decoded += 1,
                    Err(RequestError::Malformed { .. } | RequestError::Header { .. }) => {
                        refused += 1;
                    }
                    Err(other) => panic!("{context}: {other:?}"),
                }
            }
        }
    }
    assert!(refused > 5_000 && decoded > 5_000, "{refused} {decoded}");
}

#[test]
fn a_count_of_two_thousand_million_allocates_nothing() {
    let advertised = everything();
    for api in [ApiKey::Produce, ApiKey::Fetch, ApiKey::DescribeGroups] {
        let schema = schema::of(api).expect("known");
        let version = schema.min_version;
        // Zeros up to the first array of each, then its count.
        let zeros = match api {
            ApiKey::Produce => 8,
            ApiKey::Fetch => 17,
            _ => 0,
        };
        let mut body = vec![0; zeros];
        body.extend_from_slice(&i32::MAX.to_be_bytes());
        body.resize(body.len() + 64, 0);
        let frame = frame(schema, version, &body);
        let (request, peak) =
            measured(|| decode_request(frame, &advertised, &DecodeLimits::default()));
        assert!(
            matches!(request, Err(RequestError::Malformed { .. })),
            "{api:?}: {request:?}"
        );
        assert!(peak <= SLACK_BYTES, "{api:?}: {peak} bytes");
    }
}
