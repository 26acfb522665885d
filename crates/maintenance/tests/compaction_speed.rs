//! How fast one core maps and filters. Run by hand, optimised:
//! `cargo test --release -p tidegate-maintenance --test compaction_speed -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tidegate_maintenance::{Filter, FilterRules, KeyMap, Mapper, Transactions};
use tidegate_record_batch::{BatchBuilder, Codec, TimestampType};
use tidegate_types::{Offset, OffsetRange, TimestampMs};

const INPUT_BYTES: usize = 128 << 20;
const SPAN_BYTES: usize = 1 << 20;

/// Spans of batches of about 64 KiB whose records have keys out of so many.
fn spans(codec: Codec, value_bytes: usize, keys: u64) -> (Vec<Bytes>, u64) {
    let mut spans = Vec::new();
    let mut span = BytesMut::new();
    let (mut offset, mut written) = (0u64, 0usize);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    while written < INPUT_BYTES {
        let base = Offset::new(offset).unwrap();
        let mut batch = BatchBuilder::new(base, codec, TimestampType::CreateTime, None, false);
        while batch.uncompressed_bytes() < 64 << 10 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = format!("user-{:012}", random % keys);
            let text: Vec<u8> = (0..value_bytes)
                .map(|i| b'a' + u8::try_from((random >> (i % 56)) & 15).unwrap())
                .collect();
            let now = TimestampMs::new(1_700_000_000_000 + offset.cast_signed());
            batch.push(now, Some(key.as_bytes()), Some(&text), &[]);
            offset += 1;
        }
        let bytes = batch.finish().unwrap();
        written += bytes.len();
        span.extend_from_slice(&bytes);
        if span.len() >= SPAN_BYTES {
            spans.push(std::mem::take(&mut span).freeze());
        }
    }
    (spans, offset)
}

#[test]
#[ignore = "a measurement"]
fn megabytes_per_second_of_input() {
    for (name, codec, value_bytes) in [
        ("none, 1 KiB values", Codec::None, 1024),
        ("none, 100 B values", Codec::None, 100),
        ("lz4, 1 KiB values", Codec::Lz4, 1024),
        ("zstd, 1 KiB values", Codec::Zstd, 1024),
    ] {
        let (spans, end) = spans(codec, value_bytes, 50_000);
        let bytes: usize = spans.iter().map(Bytes::len).sum();
        let end = Offset::new(end).unwrap();
        let none = || Transactions::new(Vec::new());
        let begun = Instant::now();
        let dirty = OffsetRange::new(Offset::ZERO, end).unwrap();
        let mut mapper = Mapper::new(KeyMap::new(64 << 20), none(), dirty);
        for span in &spans {
            mapper.take(span.clone()).unwrap();
        }
        let mapped = begun.elapsed();
        let (map, map_end) = mapper.finish();
        let rules = FilterRules {
            now: TimestampMs::new(1_800_000_000_000),
            delete_retention: Duration::from_secs(60),
            producers: HashMap::new(),
        };
        let keys = map.len();
        let mut filter = Filter::new(map, map_end, none(), rules);
        let mut kept = BytesMut::new();
        for span in &spans {
            filter
                .take(span.clone(), |batch| {
                    kept.extend_from_slice(batch.bytes());
                    if kept.len() > SPAN_BYTES {
                        kept.clear();
                    }
                })
                .unwrap();
        }
        let all = begun.elapsed();
        let megabytes = bytes as f64 / 1e6;
        println!(
            "{name}: {megabytes:.0} MB, {keys} keys; map {:.0} MB/s, both {:.0} MB/s; {:?}",
            megabytes / mapped.as_secs_f64(),
            megabytes / all.as_secs_f64(),
            filter.stats()
        );
    }
}
