//! Offsets by time, and the rules of size and waiting.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tidegate_harness::{
    Broker, BrokerOptions, RawClient, S3Server, Setting, Store, TestBatch, TestCodec,
    decode_batches, wait_for,
};

use crate::ops::{create_topic, fetch_request, fetched, list_offset, produce_ok};
use crate::support::{connect, errors, is_kafka, now_ms};

/// O-FE-01. Isolation needs transactions and comes with them.
#[tokio::test]
async fn a_time_between_records_finds_the_next_record_and_a_time_after_the_last_finds_none()
-> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "times", 1, &[("retention.ms", "-1")]).await?;
    for timestamp in [2, 4, 6, 8] {
        produce_ok(
            &mut client,
            &topic,
            0,
            TestBatch::of_timestamps([timestamp]).encode(),
        )
        .await?;
    }
    for (asked, offset, timestamp) in [(1, 0, 2), (2, 0, 2), (3, 1, 4), (8, 3, 8), (9, -1, -1)] {
        let answer = list_offset(&mut client, 7, &topic, 0, asked).await?;
        let got = (answer.error_code, answer.offset, answer.timestamp);
        assert_eq!(
            got,
            (errors::NONE, offset, timestamp),
            "asked for time {asked}"
        );
    }
    // The same inside one batch.
    let topic = create_topic(&mut client, "times", 1, &[("retention.ms", "-1")]).await?;
    let batch = TestBatch::of_timestamps([2, 4, 6, 8]).with_codec(TestCodec::Gzip);
    produce_ok(&mut client, &topic, 0, batch.encode()).await?;
    for (asked, offset) in [(1, 0), (3, 1), (8, 3), (9, -1)] {
        let answer = list_offset(&mut client, 7, &topic, 0, asked).await?;
        assert_eq!(
            (answer.error_code, answer.offset),
            (errors::NONE, offset),
            "asked for time {asked}"
        );
    }
    Ok(())
}

/// O-FE-01.
#[tokio::test]
async fn the_max_timestamp_is_found_inside_a_compressed_batch() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "max-time", 1, &[("retention.ms", "-1")]).await?;
    let batch = TestBatch::of_timestamps([10, 30, 20]).with_codec(TestCodec::Gzip);
    produce_ok(&mut client, &topic, 0, batch.encode()).await?;
    produce_ok(
        &mut client,
        &topic,
        0,
        TestBatch::of_timestamps([25]).encode(),
    )
    .await?;
    let answer = list_offset(&mut client, 7, &topic, 0, -3).await?;
    assert_eq!(
        (answer.error_code, answer.offset, answer.timestamp),
        (errors::NONE, 1, 30)
    );
    Ok(())
}

/// O-FE-01.
#[tokio::test]
async fn an_empty_partition_starts_and_ends_at_0_and_has_no_time() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "empty", 1, &[]).await?;
    for (asked, offset) in [(-2, 0), (-1, 0), (5, -1), (-3, -1)] {
        let answer = list_offset(&mut client, 7, &topic, 0, asked).await?;
        assert_eq!(
            (answer.error_code, answer.offset),
            (errors::NONE, offset),
            "asked for {asked}"
        );
    }
    Ok(())
}

fn big_batch(bytes: usize) -> Bytes {
    TestBatch::of_values(now_ms(), [Bytes::from(vec![7_u8; bytes])]).encode()
}

/// O-FE-02.
#[tokio::test]
async fn a_batch_above_every_limit_comes_whole_from_the_first_partition_only() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "big", 2, &[]).await?;
    for partition in [0, 1] {
        produce_ok(&mut client, &topic, partition, big_batch(300_000)).await?;
    }
    let mut request = fetch_request(11, &topic, &[(0, 0), (1, 0)]);
    request.max_bytes = 1;
    for partition in &mut request.topics[0].partitions {
        partition.partition_max_bytes = 1;
    }
    let partitions = fetched(client.call(11, &request).await?);
    assert_eq!(partitions.len(), 2);
    for data in &partitions {
        assert_eq!(
            data.error_code,
            errors::NONE,
            "partition {}",
            data.partition_index
        );
    }
    let batches = decode_batches(partitions[0].records.clone().context("no records")?)?;
    assert_eq!(batches.len(), 1);
    assert_eq!(
        batches[0].records[0].value.as_ref().map(Bytes::len),
        Some(300_000)
    );
    ensure!(
        partitions[1].records.as_ref().is_none_or(Bytes::is_empty),
        "the second partition came too"
    );
    Ok(())
}

/// O-FE-02.
#[tokio::test]
async fn waiting_ends_with_data_at_once_and_without_at_max_wait() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "wait", 1, &[]).await?;
    let mut request = fetch_request(11, &topic, &[(0, 0)]);
    request.min_bytes = 1;
    request.max_wait_ms = 2_000;
    let start = Instant::now();
    client.call(11, &request).await?;
    let waited = start.elapsed();
    ensure!(
        waited >= Duration::from_millis(1_950),
        "answered after {waited:?}, before max_wait"
    );
    ensure!(waited < Duration::from_secs(4), "answered after {waited:?}");

    request.max_wait_ms = 20_000;
    let start = Instant::now();
    let correlation_id = client.send(11, &request).await?;
    let mut producer = connect().await?;
    produce_ok(
        &mut producer,
        &topic,
        0,
        TestBatch::of_values(now_ms(), ["v"]).encode(),
    )
    .await?;
    let answer = client
        .receive::<kafka_protocol::messages::FetchRequest>(11, correlation_id)
        .await?;
    ensure!(
        start.elapsed() < Duration::from_secs(5),
        "data came and the fetch went on waiting"
    );
    ensure!(
        fetched(answer)[0]
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty()),
        "no records"
    );
    Ok(())
}

/// O-FE-02. "Cold" is data that only the store has: the broker was stopped, and its cache with it.
#[tokio::test]
async fn cold_data_counts_towards_min_bytes() -> Result<()> {
    let s3 = S3Server::start_with_bucket("cold")?;
    let store = Store::S3 {
        endpoint: s3.address(),
        bucket: "cold".into(),
        prefix: "cluster".into(),
    };
    let options = BrokerOptions::default()
        .store(store)
        .set(Setting::UploadSizeBytes, 4 << 20)
        .set(Setting::UploadAgeMs, 500);
    let mut broker = Broker::start(options)?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let topic = create_topic(&mut client, "cold", 1, &[]).await?;
    for _ in 0..25 {
        produce_ok(&mut client, &topic, 0, big_batch(800_000)).await?;
    }
    if !is_kafka() {
        wait_for("everything to be uploaded", Duration::from_secs(30), || {
            s3.stored_bytes("cold", "cluster/segments/")
                .is_ok_and(|bytes| bytes >= 20_000_000)
                .then_some(())
        })?;
    }
    broker.crash_and_restart()?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let mut request = fetch_request(11, &topic, &[(0, 0)]);
    request.min_bytes = 10 << 20;
    request.max_wait_ms = 20_000;
    let start = Instant::now();
    let partitions = loop {
        let partitions = fetched(client.call(11, &request).await?);
        if partitions[0].error_code == errors::NONE {
            break partitions;
        }
        ensure!(
            start.elapsed() < Duration::from_secs(15),
            "fetch answers {}",
            partitions[0].error_code
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    ensure!(
        start.elapsed() < Duration::from_secs(15),
        "the fetch waited although the data is there"
    );
    let bytes = partitions[0].records.as_ref().map_or(0, Bytes::len);
    ensure!(bytes >= 10 << 20, "{bytes} bytes came, min_bytes is 10 MiB");
    Ok(())
}
