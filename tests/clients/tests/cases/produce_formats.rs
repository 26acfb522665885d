//! Codecs and message formats that old clients meet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiVersionsRequest;
use tidegate_harness::{TestBatch, TestCodec, decode_batches};

use crate::ops::{
    Topic, create_topic, end_offset, fetch, produce, produce_ok, produce_request, read_all,
};
use crate::support::{connect, errors, is_kafka, now_ms};

/// O-PR-03.
#[tokio::test]
async fn zstd_is_refused_below_produce_7_for_that_partition_only() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "zstd", 2, &[]).await?;
    let plain = TestBatch::of_values(now_ms(), ["plain"]).encode();
    let zstd = || {
        TestBatch::of_values(now_ms(), ["squeezed"])
            .with_codec(TestCodec::Zstd)
            .encode()
    };
    let request = produce_request(6, &topic, -1, vec![(0, plain), (1, zstd())]);
    let answer = client.call(6, &request).await?;
    let mut codes: Vec<(i32, i16)> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|partition| (partition.index, partition.error_code))
        .collect();
    codes.sort_unstable();
    assert_eq!(
        codes,
        [(0, errors::NONE), (1, errors::UNSUPPORTED_COMPRESSION_TYPE)]
    );
    assert_eq!(end_offset(&mut client, &topic, 1).await?, 0);
    let answer = produce(&mut client, 7, &topic, 1, zstd()).await?;
    assert_eq!(answer.error_code, errors::NONE);
    Ok(())
}

/// O-PR-03. (Kafka 4.4 serves it to everyone; the case's right answer is what old clients understand.)
#[tokio::test]
async fn zstd_is_refused_below_fetch_10_and_served_from_there() -> Result<()> {
    let mut client = connect().await?;
    let by_topic: &[(&str, &str)] = &[("compression.type", "zstd")];
    for configs in [by_topic, &[]] {
        let topic = create_topic(&mut client, "zstd", 1, configs).await?;
        let batch = TestBatch::of_values(now_ms(), ["squeezed"])
            .with_codec(TestCodec::Zstd)
            .encode();
        produce_ok(&mut client, &topic, 0, batch).await?;
        for version in if is_kafka() { vec![] } else { vec![4, 9] } {
            let data = fetch(&mut client, version, &topic, 0, 0).await?;
            assert_eq!(
                data.error_code,
                errors::UNSUPPORTED_COMPRESSION_TYPE,
                "fetch version {version}"
            );
        }
        let data = fetch(&mut client, 10, &topic, 0, 0).await?;
        assert_eq!(data.error_code, errors::NONE);
        let batches = decode_batches(data.records.context("no records")?)?;
        assert_eq!(
            batches[0].records[0].value.as_deref(),
            Some(&b"squeezed"[..])
        );
    }
    Ok(())
}

/// O-PR-03. The topic's codec may be applied (Kafka) or left to the producer; the bytes never lie about their codec.
#[tokio::test]
async fn a_topic_codec_never_makes_bytes_that_lie_about_their_codec() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "recoded", 1, &[("compression.type", "zstd")]).await?;
    let batch = TestBatch::of_values(now_ms(), ["a", "b"])
        .with_codec(TestCodec::Gzip)
        .encode();
    produce_ok(&mut client, &topic, 0, batch).await?;
    let data = fetch(&mut client, 11, &topic, 0, 0).await?;
    let batches = decode_batches(data.records.context("no records")?)?;
    ensure!(
        [1, 4].contains(&(batches[0].attributes & 7)),
        "codec {}",
        batches[0].attributes & 7
    );
    let values: Vec<_> = batches[0]
        .records
        .iter()
        .filter_map(|record| record.value.clone())
        .collect();
    assert_eq!(values, ["a", "b"]);
    Ok(())
}

/// A message of format 1 (before KIP-98): offset, size, CRC32, magic, attributes, timestamp, key, value.
fn format_1_message(offset: i64, attributes: i8, value: &[u8]) -> Bytes {
    let mut checked = BytesMut::new();
    checked.put_i8(1);
    checked.put_i8(attributes);
    checked.put_i64(now_ms());
    checked.put_i32(-1);
    checked.put_i32(i32::try_from(value.len()).expect("a short value"));
    checked.put_slice(value);
    let mut message = BytesMut::new();
    message.put_i64(offset);
    message.put_i32(i32::try_from(checked.len() + 4).expect("a short message"));
    message.put_u32(crc32(&checked));
    message.put_slice(&checked);
    message.freeze()
}

/// The message sets of O-PR-04, each of two records: plain, and a gzip wrapper with relative inner offsets.
fn format_1_sets() -> Result<[(&'static str, Bytes); 2]> {
    const GZIP: i8 = 1;
    let inner = [
        format_1_message(0, 0, b"old"),
        format_1_message(1, 0, b"older"),
    ]
    .concat();
    let wrapper = format_1_message(1, GZIP, &TestCodec::Gzip.compress(&inner)?);
    Ok([("plain", inner.into()), ("gzip wrapper", wrapper)])
}

/// CRC-32 (ISO-HDLC), the checksum of the old formats.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

fn produce_2_body(topic: &Topic, message_set: &[u8]) -> Bytes {
    let mut body = BytesMut::new();
    body.put_i16(-1);
    body.put_i32(30_000);
    body.put_i32(1);
    body.put_i16(i16::try_from(topic.name.len()).expect("a short name"));
    body.put_slice(topic.name.as_bytes());
    body.put_i32(1);
    body.put_i32(0);
    body.put_i32(i32::try_from(message_set.len()).expect("a short set"));
    body.put_slice(message_set);
    body.freeze()
}

/// O-PR-04. Produce 0–2 are listed, since librdkafka reads them as the sign that compression works, and refused.
/// (That kcat still compresses is checked with kcat.)
#[tokio::test]
async fn produce_0_to_2_are_listed_and_refused_and_nothing_is_stored() -> Result<()> {
    let mut client = connect().await?;
    let versions = client.call(0, &ApiVersionsRequest::default()).await?;
    let produce_row = versions
        .api_keys
        .iter()
        .find(|row| row.api_key == 0)
        .context("Produce isn't advertised")?;
    assert_eq!(produce_row.min_version, 0);

    let topic = create_topic(&mut client, "old-format", 1, &[]).await?;
    for (set, bytes) in format_1_sets()? {
        let mut old = connect().await?;
        old.send_by_hand(0, 2, &produce_2_body(&topic, &bytes))
            .await?;
        // Refused by an error or by closing, never by silence.
        let refusal = tokio::time::timeout(Duration::from_secs(10), old.receive_frame()).await?;
        if let Ok(frame) = refusal {
            // Correlation id, one topic, its name, one partition, its index, then the code.
            let at = 4 + 4 + 2 + topic.name.len() + 4 + 4;
            let code = frame
                .get(at..at + 2)
                .map(|two| i16::from_be_bytes([two[0], two[1]]));
            let refusals = [
                errors::UNSUPPORTED_VERSION,
                errors::UNSUPPORTED_FOR_MESSAGE_FORMAT,
            ];
            ensure!(
                code.is_some_and(|code| refusals.contains(&code)),
                "{set}: answered {code:?}"
            );
        }
        assert_eq!(end_offset(&mut client, &topic, 0).await?, 0, "{set}");
    }
    Ok(())
}

/// O-PR-04. The last of the sets has a producer's id and sequence where the newer format has them.
#[tokio::test]
async fn format_1_in_a_new_produce_version_is_refused_and_nothing_is_stored() -> Result<()> {
    const MAGIC_AT: usize = 16;
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "old-format", 1, &[]).await?;
    let idempotent = TestBatch::of_values(now_ms(), ["old"]).with_producer(4711, 0, 0);
    let mut idempotent = BytesMut::from(&idempotent.encode()[..]);
    idempotent[MAGIC_AT] = 1;
    let sets = format_1_sets()?
        .into_iter()
        .chain([("idempotent", idempotent.freeze())]);
    for (set, bytes) in sets {
        for version in [3, 9] {
            let answer = produce(&mut client, version, &topic, 0, bytes.clone()).await?;
            let refusals = [
                errors::INVALID_RECORD,
                errors::UNSUPPORTED_FOR_MESSAGE_FORMAT,
            ];
            ensure!(
                refusals.contains(&answer.error_code),
                "{set}, version {version}: answered {}",
                answer.error_code
            );
            assert_eq!(end_offset(&mut client, &topic, 0).await?, 0, "{set}");
        }
    }
    produce_ok(
        &mut client,
        &topic,
        0,
        TestBatch::of_values(now_ms(), ["new"]).encode(),
    )
    .await?;
    assert_eq!(read_all(&mut client, &topic, 0).await?.len(), 1);
    Ok(())
}
