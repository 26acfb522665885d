use bytes::Bytes;
use tidegate_types::{LeaderEpoch, Offset, TimestampMs};

use super::*;
use crate::{DecompressError, Record, RecordsError, compress, crc32c, decompress, records};

/// The records of [`KNOWN_BATCH`] as `lz4` 1.9 and `zstd` 1.5 compress them.
const KNOWN_LZ4: &str = "04224d186440a72b000000ff0614000000046b3104763100aa0100e80702018c0178010032f0000402680231026e010c000d040001000000000012d446f9";
const KNOWN_ZSTD: &str = "28b52ffd24695d0100440214000000046b3104763100aa0100e80702018c01780402680231026e010c000d04000100010005054cbb0dfb0f";
/// … and as Python's `zlib` does.
const KNOWN_GZIP: &str = "1f8b08000000000002031361606060c9366429336458c5c8f0829d89b187b1822a80852983c990298f918781978581910100e57e81f069000000";

fn known_body() -> Vec<u8> {
    unhex(KNOWN_BATCH).split_off(HEADER_BYTES)
}

/// A Snappy block that compresses nothing: its length, a literal's tag, the bytes.
fn snappy_literal(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!((61..128).contains(&length));
    [&[length, 60 << 2, length - 1], bytes].concat()
}

fn xerial(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in blocks {
        stream.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
        stream.extend_from_slice(block);
    }
    stream
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn the_builder_writes_what_an_independent_writer_wrote() {
    let mut builder = BatchBuilder::new(
        offset(1000),
        Codec::None,
        TimestampType::CreateTime,
        Some(producer(4242, 7, i32::MAX)),
        true,
    )
    .leader_epoch(LeaderEpoch::new(3).unwrap());
    let at = |delta| TimestampMs::new(NOW.get() + delta);
    builder
        .push(at(0), Some(b"k1"), Some(b"v1"), &[])
        .push(
            at(500),
            None,
            Some(&[b'x'; 70]),
            &[(b"h", Some(b"1")), (b"n", None)],
        )
        .push(at(-7), Some(b""), None, &[]);
    assert_eq!(builder.finish().unwrap(), unhex(KNOWN_BATCH));
}

#[test]
fn a_batch_by_an_independent_writer_is_read_in_full() {
    let batch = StoredBatch::check(unhex(KNOWN_BATCH).into()).unwrap();
    let header = batch.header();
    assert_eq!(
        (
            header.base_offset(),
            header.last_offset(),
            header.end_offset()
        ),
        (offset(1000), offset(1002), offset(1003))
    );
    assert_eq!(header.leader_epoch(), 3);
    assert!(header.is_transactional() && !header.is_control());
    assert_eq!(header.producer(), Some(producer(4242, 7, i32::MAX)));
    assert_eq!(header.last_sequence().map(|s| s.to_wire()), Some(1));
    assert_eq!(header.max_timestamp().get(), NOW.get() + 500);
    let found: Vec<Record> = records(&batch, 0).unwrap().collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found[1].offset, offset(1001));
    assert_eq!(found[1].timestamp.get(), NOW.get() + 500);
    assert_eq!(found[1].key, None);
    assert_eq!(
        found[1].headers,
        vec![
            (Bytes::from("h"), Some(Bytes::from("1"))),
            (Bytes::from("n"), None)
        ]
    );
    assert_eq!(
        (found[2].key.as_deref(), &found[2].value),
        (Some(&b""[..]), &None)
    );
    assert_eq!(found[2].timestamp.get(), NOW.get() - 7);
}

#[test]
fn streams_of_other_implementations_are_read() {
    let body = known_body();
    for (codec, stream) in [
        (Codec::Gzip, unhex(KNOWN_GZIP)),
        (Codec::Lz4, unhex(KNOWN_LZ4)),
        (Codec::Zstd, unhex(KNOWN_ZSTD)),
        (Codec::Snappy, snappy_literal(&body)),
        (Codec::Snappy, xerial(&[snappy_literal(&body)])),
    ] {
        assert_eq!(
            decompress(codec, &stream, body.len()).unwrap(),
            body,
            "{codec:?}"
        );
    }
}

#[test]
fn joined_streams_of_the_java_snappy_client_are_read_as_one() {
    let body = [b'a'; 80];
    let stream = [
        xerial(&[snappy_literal(&body), snappy_literal(&body)]),
        xerial(&[snappy_literal(&body)]),
    ]
    .concat();
    assert_eq!(
        decompress(Codec::Snappy, &stream, LIMIT).unwrap(),
        vec![b'a'; 240]
    );
}

#[test]
fn snappy_is_written_in_the_java_clients_framing() {
    let stream = compress(Codec::Snappy, &[7; 100_000]).unwrap();
    assert!(stream.starts_with(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"));
    assert_eq!(
        decompress(Codec::Snappy, &stream, 100_000).unwrap(),
        vec![7; 100_000]
    );
}

#[test]
fn lz4_is_written_as_frames_of_independent_64_kib_blocks() {
    let stream = compress(Codec::Lz4, &[7; 200_000]).unwrap();
    assert_eq!(&stream[..4], &0x184d_2204u32.to_le_bytes());
    // Version 1, independent, no checksums, no size; block size 4.
    assert_eq!(stream[4..6], [0x60, 0x40]);
    assert_eq!(
        decompress(Codec::Lz4, &stream, 200_000).unwrap(),
        vec![7; 200_000]
    );
}

#[test]
fn output_at_the_limit_passes_and_one_byte_more_is_an_error() {
    let body = vec![0; 300_000];
    for codec in Codec::ALL {
        let stream = compress(codec, &body).unwrap();
        assert_eq!(decompress(codec, &stream, body.len()).unwrap(), body);
        let error = decompress(codec, &stream, body.len() - 1).unwrap_err();
        assert!(
            matches!(
                error,
                DecompressError::TooLarge {
                    limit_bytes: 299_999
                }
            ),
            "{codec:?}: {error}"
        );
    }
}

#[test]
fn a_decompression_bomb_is_an_error_and_not_memory() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd, Codec::Snappy] {
        let bomb = compress(codec, &vec![0; 64 << 20]).unwrap();
        let batch = stored(with_body(&sample(codec, 3), &bomb));
        let error = records(&batch, LIMIT).unwrap_err();
        assert!(
            matches!(
                error,
                RecordsError::Decompress(DecompressError::TooLarge { .. })
            ),
            "{codec:?}: {error}"
        );
    }
    // Raw Snappy states its size, so a lie of 4 GiB must not be believed.
    let lie = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(matches!(
        decompress(Codec::Snappy, &lie, LIMIT),
        Err(DecompressError::TooLarge { .. })
    ));
}

#[test]
fn cut_streams_are_errors() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Zstd, Codec::Lz4] {
        let mut cut = sample(codec, 200);
        cut.truncate(cut.len() - 9);
        let batch = stored(with_body(&cut.clone(), &cut[HEADER_BYTES..]));
        assert!(records(&batch, LIMIT).is_err(), "{codec:?}");
    }
}

#[test]
fn a_batch_without_records_needs_an_end_to_keep() {
    let empty = || {
        BatchBuilder::new(
            Offset::ZERO,
            Codec::None,
            TimestampType::CreateTime,
            None,
            false,
        )
    };
    assert!(empty().finish().is_err());
    let kept = stored(empty().keep_end(offset(5)).finish().unwrap());
    assert_eq!(
        (kept.header().record_count(), kept.header().end_offset()),
        (0, offset(5))
    );
    assert_eq!(records(&kept, 0).unwrap().count(), 0);
}

#[test]
fn gaps_that_compaction_leaves_keep_offsets() {
    let mut builder = BatchBuilder::new(
        offset(10),
        Codec::Zstd,
        TimestampType::CreateTime,
        None,
        false,
    );
    builder
        .push_at(offset(12), NOW, Some(b"a"), None, &[])
        .push_at(offset(19), NOW, Some(b"b"), None, &[]);
    let batch = stored(builder.keep_end(offset(30)).finish().unwrap());
    assert_eq!(batch.header().end_offset(), offset(30));
    let offsets: Vec<_> = records(&batch, LIMIT).unwrap().map(|r| r.offset).collect();
    assert_eq!(offsets, [offset(12), offset(19)]);
}

#[test]
fn records_out_of_order_cannot_be_built() {
    let mut builder = BatchBuilder::new(
        offset(10),
        Codec::None,
        TimestampType::CreateTime,
        None,
        false,
    );
    builder
        .push(NOW, None, None, &[])
        .push_at(offset(10), NOW, None, None, &[]);
    assert!(matches!(
        builder.finish(),
        Err(crate::BuildError::OffsetOrder { .. })
    ));
}
