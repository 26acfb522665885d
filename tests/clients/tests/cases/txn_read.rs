//! What readers see of transactions.

use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_harness::{Broker, BrokerOptions, Durability, RawClient, TestBatch};

use crate::ops::{Topic, create_topic, end_offset, produce_ok};
use crate::support::{connect, errors, is_kafka, now_ms, unique};
use crate::txn_ops::{
    BOTH, INVALID_TXN_STATE, Producer, Protocol, list_isolated, read, send_as, transactional_batch,
    until,
};

const AT_ONCE: Duration = Duration::ZERO;

/// Markers are written behind the answer to EndTxn.
async fn settled(client: &mut RawClient, topic: &Topic, end: i64) -> Result<()> {
    until(
        "the markers are written",
        Duration::from_secs(20),
        async || Ok(list_isolated(client, topic, -1, true).await? == end),
    )
    .await
}

/// O-TX-03 (a).
#[tokio::test]
async fn of_an_open_transaction_at_the_very_start_nothing_is_committed() -> Result<()> {
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "open-at-0", 1, &[]).await?;
        // The partition is empty, and so is the range.
        let nothing = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!((nothing.last_stable, nothing.position), (0, 0));
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        producer.write(&mut client, &topic, 0, &["a", "b"]).await?;
        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.last_stable, 0);
        assert_eq!(committed.high_watermark, 2);
        assert!(committed.records.is_empty());
        assert_eq!(committed.aborted.unwrap_or_default(), []);
        let all = read(&mut client, &topic, 0, false, AT_ONCE).await?;
        assert_eq!(all.valid, ["a", "b"]);
        assert_eq!(all.aborted, None);
        assert_eq!(list_isolated(&mut client, &topic, -1, true).await?, 0);
        assert_eq!(list_isolated(&mut client, &topic, -1, false).await?, 2);
        // By time, too, the record isn't there yet.
        assert_eq!(list_isolated(&mut client, &topic, 0, true).await?, -1);
        assert_eq!(list_isolated(&mut client, &topic, 0, false).await?, 0);
        producer.end(&mut client, true).await?;
        settled(&mut client, &topic, 3).await?;
        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.valid, ["a", "b"]);
        assert_eq!(committed.position, 3);
    }
    Ok(())
}

/// O-TX-03 (b).
#[tokio::test]
async fn aborted_records_are_named_to_readers_of_committed_ones_and_shown_to_others() -> Result<()>
{
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "abort-commit", 1, &[]).await?;
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        producer
            .write(&mut client, &topic, 0, &["a1", "a2", "a3"])
            .await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        producer.end(&mut client, false).await?;
        producer
            .write(&mut client, &topic, 0, &["c1", "c2"])
            .await?;
        producer.end(&mut client, true).await?;
        let plain = TestBatch::of_values(now_ms(), ["plain"]).encode();
        settled(&mut client, &topic, 7).await?;
        produce_ok(&mut client, &topic, 0, plain).await?;

        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.valid, ["c1", "c2", "plain"]);
        assert_eq!(committed.aborted, Some(vec![(producer.id, 0)]));
        assert_eq!((committed.last_stable, committed.position), (8, 8));
        let all = read(&mut client, &topic, 0, false, AT_ONCE).await?;
        assert_eq!(all.valid, ["a1", "a2", "a3", "c1", "c2", "plain"]);
        assert_eq!(end_offset(&mut client, &topic, 0).await?, 8);
        // From the marker on, and behind it.
        let from_marker = read(&mut client, &topic, 3, true, AT_ONCE).await?;
        assert_eq!(from_marker.valid, ["c1", "c2", "plain"]);
        let behind = read(&mut client, &topic, 4, true, AT_ONCE).await?;
        assert_eq!(behind.aborted.unwrap_or_default(), []);
        assert_eq!(behind.valid, ["c1", "c2", "plain"]);
    }
    Ok(())
}

/// O-TX-03, beyond it: what is known of transactions is as durable as their records.
#[tokio::test]
async fn what_readers_see_of_transactions_survives_a_crash() -> Result<()> {
    for durability in [Durability::Local, Durability::Object] {
        let mut broker = Broker::start(BrokerOptions::default().durability(durability))?;
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        let topic = create_topic(&mut client, "crash", 1, &[]).await?;
        let mut one = Producer::begin(&mut client, &unique("one"), Protocol::Second).await?;
        let mut two = Producer::begin(&mut client, &unique("two"), Protocol::Second).await?;
        one.write(&mut client, &topic, 0, &["aborted"]).await?;
        one.end(&mut client, false).await?;
        settled(&mut client, &topic, 2).await?;
        two.write(&mut client, &topic, 0, &["open"]).await?;
        one.write(&mut client, &topic, 0, &["committed"]).await?;
        one.end(&mut client, true).await?;
        until(
            "the marker is written",
            Duration::from_secs(20),
            async || Ok(end_offset(&mut client, &topic, 0).await? == 5),
        )
        .await?;
        broker.crash_and_restart()?;
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        until(
            "the partition is led",
            Duration::from_secs(30),
            async || Ok(list_isolated(&mut client, &topic, -1, true).await.is_ok()),
        )
        .await?;
        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.last_stable, 2, "two's transaction is open");
        assert_eq!(committed.aborted, Some(vec![(one.id, 0)]));
        two.write(&mut client, &topic, 0, &["goes on"]).await?;
        two.end(&mut client, true).await?;
        settled(&mut client, &topic, 7).await?;
        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.valid, ["open", "committed", "goes on"]);
        if is_kafka() {
            return Ok(());
        }
    }
    Ok(())
}

/// O-TX-03, beyond it: the wait of a fetch counts what its reader may see.
#[tokio::test]
async fn a_waiting_reader_is_woken_by_the_commit_and_not_by_the_record() -> Result<()> {
    let mut client = connect().await?;
    let mut reader = connect().await?;
    let topic = create_topic(&mut client, "waiting", 1, &[]).await?;
    let mut producer = Producer::begin(&mut client, &unique("x"), Protocol::Second).await?;
    let waits = Duration::from_secs(20);
    let reading = tokio::spawn({
        let topic = topic.clone();
        async move {
            let began = Instant::now();
            let read = read(&mut reader, &topic, 0, true, waits).await;
            (began.elapsed(), read)
        }
    });
    producer.write(&mut client, &topic, 0, &["a"]).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!reading.is_finished(), "nothing is committed");
    producer.end(&mut client, true).await?;
    let (took, found) = reading.await?;
    assert_eq!(found?.valid, ["a"]);
    assert!(took < waits / 2, "{took:?}");
    Ok(())
}

/// O-TX-01 in a transaction.
#[tokio::test]
async fn batches_of_a_transaction_sent_again_keep_their_offsets() -> Result<()> {
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "lost-acks", 1, &[]).await?;
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        producer.write(&mut client, &topic, 0, &["v0"]).await?;
        let values = ["v1", "v2", "v3", "v4", "v5"];
        let batches: Vec<_> = values
            .iter()
            .map(|value| producer.batch(&topic, 0, &[value]))
            .collect();
        let mut lost = connect().await?;
        for batch in &batches {
            // The answer is thrown away.
            producer.send(&mut lost, &topic, 0, batch.clone()).await?;
        }
        drop(lost);
        for (batch, offset) in batches.iter().zip(1..) {
            let answer = producer.send(&mut client, &topic, 0, batch.clone()).await?;
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (errors::NONE, offset)
            );
        }
        producer.end(&mut client, true).await?;
        settled(&mut client, &topic, 7).await?;
        let committed = read(&mut client, &topic, 0, true, AT_ONCE).await?;
        assert_eq!(committed.valid, ["v0", "v1", "v2", "v3", "v4", "v5"]);
    }
    Ok(())
}

/// KIP-890: what comes after its transaction is refused, and leaves nothing open.
#[tokio::test]
async fn records_that_come_after_their_transaction_open_no_other() -> Result<()> {
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "late", 2, &[]).await?;
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        producer.write(&mut client, &topic, 0, &["a"]).await?;
        let late = producer.clone();
        producer.end(&mut client, true).await?;
        settled(&mut client, &topic, 2).await?;
        // To the partition it wrote to, and to one it never added.
        for partition in [0, 1] {
            let sequence = 1 - partition;
            let batch = transactional_batch(&["late"], (late.id, late.epoch, sequence));
            let version = late.produce_version();
            let id = &late.transactional_id;
            let answer = send_as(&mut client, id, version, &topic, partition, batch).await?;
            let refused = match protocol {
                Protocol::First => answer.error_code == INVALID_TXN_STATE,
                // The epoch of the transaction is over.
                Protocol::Second => answer.error_code == crate::txn_ops::INVALID_PRODUCER_EPOCH,
            };
            assert!(refused, "{protocol:?} {partition}: {}", answer.error_code);
        }
        // Nor do transactional records without a transactional id.
        let batch = transactional_batch(&["nobody's"], (late.id, late.epoch, 1));
        let answer = crate::ops::produce(&mut client, 9, &topic, 0, batch).await?;
        assert_eq!(
            answer.error_code, 53,
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        );
        assert_eq!(list_isolated(&mut client, &topic, -1, true).await?, 2);
        assert_eq!(end_offset(&mut client, &topic, 0).await?, 2);
    }
    Ok(())
}
