//! Idempotence. Transactions are in `txn_read.rs`, `txn_offsets.rs` and `txn_fencing.rs`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::InitProducerIdRequest;
use tidegate_harness::{RawClient, TestBatch};

use crate::ops::{create_topic, end_offset, produce, produce_request};
use crate::support::{connect, errors, now_ms};

pub(crate) async fn producer_id(client: &mut RawClient) -> Result<(i64, i16)> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let answer = client.call(4, &request).await?;
        if answer.error_code == errors::NONE {
            return Ok((answer.producer_id.0, answer.producer_epoch));
        }
        ensure!(
            Instant::now() < deadline,
            "InitProducerId answered {}",
            answer.error_code
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// O-TX-01. The answers are lost with their connection, which is closed unread once all five batches are stored.
#[tokio::test]
async fn batches_sent_again_after_lost_answers_keep_their_offsets() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "lost-acks", 1, &[]).await?;
    let (id, epoch) = producer_id(&mut client).await?;
    let batch = |sequence: i32| -> Bytes {
        TestBatch::of_values(1_700_000_000_000, [format!("v{sequence}").into_bytes()])
            .with_producer(id, epoch, sequence)
            .encode()
    };
    let mut lost = connect().await?;
    for sequence in 0..5 {
        lost.send(
            9,
            &produce_request(9, &topic, -1, vec![(0, batch(sequence))]),
        )
        .await?;
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while end_offset(&mut client, &topic, 0).await? < 5 {
        ensure!(Instant::now() < deadline, "the batches aren't stored");
    }
    drop(lost);

    for sequence in 0..5 {
        let answer = produce(&mut client, 9, &topic, 0, batch(sequence)).await?;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (errors::NONE, i64::from(sequence))
        );
    }
    let sixth = produce(&mut client, 9, &topic, 0, batch(5)).await?;
    assert_eq!((sixth.error_code, sixth.base_offset), (errors::NONE, 5));
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 6);

    // The remembered five are now 1..=5: the first is forgotten, and refused instead of stored again.
    let forgotten = produce(&mut client, 9, &topic, 0, batch(0)).await?;
    let refusals = [
        errors::OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors::DUPLICATE_SEQUENCE_NUMBER,
    ];
    ensure!(
        refusals.contains(&forgotten.error_code),
        "a forgotten batch was answered {}",
        forgotten.error_code
    );
    let gap = produce(&mut client, 9, &topic, 0, batch(7)).await?;
    assert_eq!(gap.error_code, errors::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 6);
    Ok(())
}

/// O-TX-01, beyond it: producer ids are never given twice, and an epoch that went back is fenced.
#[tokio::test]
async fn producer_ids_are_unique_and_an_older_epoch_is_fenced() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "fenced", 1, &[]).await?;
    let (first, _) = producer_id(&mut client).await?;
    let (second, _) = producer_id(&mut client).await?;
    ensure!(first != second, "producer id {first} was given twice");
    let batch = |epoch: i16| {
        TestBatch::of_values(now_ms(), ["v"])
            .with_producer(first, epoch, 0)
            .encode()
    };
    let newer = produce(&mut client, 9, &topic, 0, batch(1)).await?;
    assert_eq!(newer.error_code, errors::NONE);
    let older = produce(&mut client, 9, &topic, 0, batch(0)).await?;
    assert_eq!(older.error_code, 47, "INVALID_PRODUCER_EPOCH");
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 1);
    Ok(())
}
