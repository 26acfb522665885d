//! Size limits, acks=0, timestamps.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::MetadataRequest;
use tidegate_harness::{Broker, BrokerOptions, RawClient, Setting, TestBatch, TestCodec};

use crate::ops::{
    create_topic, end_offset, list_offset, produce, produce_ok, produce_request, read_all,
};
use crate::support::{connect, errors, is_kafka, now_ms};

fn value(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

/// Bytes that don't compress.
fn noise(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// O-PR-01 (a), (b).
#[tokio::test]
async fn the_size_limit_is_on_the_batch_as_sent_and_the_connection_stays() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "limit", 1, &[("max.message.bytes", "1000")]).await?;
    let too_large = TestBatch::of_values(now_ms(), [noise(1500)]).encode();
    let answer = produce(&mut client, 9, &topic, 0, too_large).await?;
    assert_eq!(answer.error_code, errors::MESSAGE_TOO_LARGE);

    let compressed = TestBatch::of_values(now_ms(), [value(5000)])
        .with_codec(TestCodec::Gzip)
        .encode();
    ensure!(
        compressed.len() <= 900,
        "the test's batch is {} bytes",
        compressed.len()
    );
    let answer = produce(&mut client, 9, &topic, 0, compressed).await?;
    assert_eq!(answer.error_code, errors::NONE);
    assert_eq!(read_all(&mut client, &topic, 0).await?.len(), 1);
    Ok(())
}

/// O-PR-01 (c).
#[tokio::test]
async fn an_error_with_acks_0_closes_the_connection_without_an_answer() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "limit", 1, &[("max.message.bytes", "1000")]).await?;
    let batch = TestBatch::of_values(now_ms(), [noise(1500)]).encode();
    client
        .send(9, &produce_request(9, &topic, 0, vec![(0, batch)]))
        .await?;
    client.expect_closed(Duration::from_secs(10)).await?;
    assert_eq!(end_offset(&mut connect().await?, &topic, 0).await?, 0);
    Ok(())
}

/// O-PR-01 (d). Its own broker, so that memory can be measured.
#[tokio::test]
async fn a_frame_above_the_limit_closes_the_connection_and_takes_no_memory() -> Result<()> {
    let mut broker = Broker::start(BrokerOptions::default())?;
    let before = broker.process()?.resident_bytes()?;
    let mut clients = Vec::new();
    for length in [i32::MAX, 1_500_000_000, -1] {
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        // In one piece: the broker may close after the length.
        let frame = [&length.to_be_bytes()[..], &[0, 3, 0, 1]].concat();
        client.send_bytes(&frame).await?;
        clients.push((length, client));
    }
    for (length, client) in &mut clients {
        client
            .expect_closed(Duration::from_secs(60))
            .await
            .with_context(|| format!("frame length {length}"))?;
    }
    // A length within the limit whose bytes never come: memory follows what arrives, not what is announced.
    // (Kafka takes the memory at once: two such frames are enough for its heap here.)
    let mut promising = Vec::new();
    for _ in 0..if is_kafka() { 0 } else { 20 } {
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        client.send_bytes(&90_000_000_i32.to_be_bytes()).await?;
        client.send_bytes(&[0, 3, 0, 1]).await?;
        promising.push(client);
    }
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let metadata = MetadataRequest::default().with_topics(Some(Vec::new()));
    assert_eq!(client.call(1, &metadata).await?.brokers.len(), 1);
    // What they have announced doesn't hold back who sends.
    let topic = create_topic(
        &mut client,
        "meanwhile",
        1,
        &[("max.message.bytes", "30000000")],
    )
    .await?;
    let large = TestBatch::of_values(now_ms(), [vec![b'v'; 20_000_000]]).encode();
    assert_eq!(produce_ok(&mut client, &topic, 0, large).await?, 0);
    if !is_kafka() {
        let grown = broker.process()?.resident_bytes()?.saturating_sub(before);
        // 1.8 GB were announced; the rest is what a broker takes for itself in its first seconds.
        ensure!(grown < 512 << 20, "announced frames took {grown} bytes");
    }
    Ok(())
}

/// O-PR-01 (e).
#[tokio::test]
async fn acks_0_is_silent_and_later_requests_are_answered_in_order() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "acks0", 1, &[]).await?;
    let batch = || TestBatch::of_values(now_ms(), ["v"]).encode();
    client
        .send(9, &produce_request(9, &topic, 0, vec![(0, batch())]))
        .await?;
    let metadata = MetadataRequest::default().with_topics(Some(Vec::new()));
    let first = client.send(1, &metadata).await?;
    client
        .send(9, &produce_request(9, &topic, 0, vec![(0, batch())]))
        .await?;
    let second = client.send(1, &metadata).await?;
    client.receive::<MetadataRequest>(1, first).await?;
    client.receive::<MetadataRequest>(1, second).await?;
    client.expect_silence(Duration::from_millis(300)).await?;
    // acks=0 promises nothing but order: a later produce on this connection lies behind both.
    assert_eq!(produce_ok(&mut client, &topic, 0, batch()).await?, 2);
    Ok(())
}

/// O-PR-02.
#[tokio::test]
async fn a_timestamp_too_far_ahead_is_refused_with_the_record_named() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(
        &mut client,
        "clock",
        1,
        &[("message.timestamp.after.max.ms", "3600000")],
    )
    .await?;
    let now = now_ms();
    let batch = TestBatch::of_timestamps([now, now + 86_400_000]).encode();
    let answer = produce(&mut client, 8, &topic, 0, batch).await?;
    assert_eq!(answer.error_code, errors::INVALID_TIMESTAMP);
    let named: Vec<i32> = answer
        .record_errors
        .iter()
        .map(|error| error.batch_index)
        .collect();
    assert_eq!(named, [1]);
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 0);
    Ok(())
}

/// O-PR-02. Kafka keeps such a segment for ten years: there it counts by its greatest timestamp.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_record_ten_years_ahead_holds_back_no_time_retention() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let options = BrokerOptions::default()
        .set(Setting::UploadAgeMs, 200)
        .set(Setting::RetentionCheckMs, 200);
    let broker = Broker::start(options)?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let no_limit = i64::MAX.to_string();
    let configs = [
        ("message.timestamp.after.max.ms", &*no_limit),
        ("retention.ms", "4000"),
    ];
    let topic = create_topic(&mut client, "clock", 1, &configs).await?;
    let ten_years_ms = 3650 * 86_400_000;
    let wild = TestBatch::of_timestamps([now_ms() + ten_years_ms]).encode();
    assert_eq!(produce_ok(&mut client, &topic, 0, wild).await?, 0);
    for offset in 1..6 {
        let batch = TestBatch::of_timestamps([now_ms()]).encode();
        assert_eq!(produce_ok(&mut client, &topic, 0, batch).await?, offset);
    }
    assert_eq!(
        read_all(&mut client, &topic, 0).await?.len(),
        6,
        "before its time"
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while list_offset(&mut client, 7, &topic, 0, -2).await?.offset != 6 {
        ensure!(Instant::now() < deadline, "the log was never reclaimed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let batch = TestBatch::of_timestamps([now_ms()]).encode();
    assert_eq!(produce_ok(&mut client, &topic, 0, batch).await?, 6);
    Ok(())
}

/// O-PR-02.
#[tokio::test]
async fn create_time_answers_minus_one_and_log_append_time_answers_and_stores_the_brokers_time()
-> Result<()> {
    let mut client = connect().await?;
    let old = now_ms() - 3_600_000;
    let topic = create_topic(&mut client, "create-time", 1, &[]).await?;
    let answer = produce(
        &mut client,
        9,
        &topic,
        0,
        TestBatch::of_timestamps([old, old + 1]).encode(),
    )
    .await?;
    assert_eq!(
        (answer.error_code, answer.log_append_time_ms),
        (errors::NONE, -1)
    );
    let timestamps: Vec<i64> = read_all(&mut client, &topic, 0)
        .await?
        .iter()
        .map(|record| record.timestamp_ms)
        .collect();
    assert_eq!(timestamps, [old, old + 1]);

    let topic = create_topic(
        &mut client,
        "append-time",
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    )
    .await?;
    let before = now_ms();
    let answer = produce(
        &mut client,
        9,
        &topic,
        0,
        TestBatch::of_timestamps([old, old + 1]).encode(),
    )
    .await?;
    assert_eq!(answer.error_code, errors::NONE);
    ensure!(
        (before - 1000..=now_ms() + 1000).contains(&answer.log_append_time_ms),
        "log append time {} isn't now",
        answer.log_append_time_ms
    );
    for record in read_all(&mut client, &topic, 0).await? {
        assert_eq!(record.timestamp_ms, answer.log_append_time_ms);
    }
    Ok(())
}
