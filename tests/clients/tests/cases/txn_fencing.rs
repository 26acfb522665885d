//! Producers that were fenced or come back, and the codes that tell them so.

use std::time::Duration;

use anyhow::Result;

use crate::ops::{create_topic, end_offset};
use crate::support::{connect, errors, unique};
use crate::txn_ops::{
    BOTH, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, Producer, Protocol, init,
    list_isolated, read, until,
};

const SOON: Duration = Duration::from_secs(20);

/// O-TX-05 (a).
#[tokio::test]
async fn a_producer_whose_place_was_taken_is_told_so_and_its_transaction_is_aborted() -> Result<()>
{
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "fence", 1, &[]).await?;
        let id = unique("x");
        let mut first = Producer::begin(&mut client, &id, protocol).await?;
        first.write(&mut client, &topic, 0, &["a"]).await?;
        let mut second = Producer::begin(&mut client, &id, protocol).await?;
        assert_eq!(second.id, first.id);
        assert!(second.epoch > first.epoch);
        until("the old transaction is aborted", SOON, async || {
            Ok(list_isolated(&mut client, &topic, -1, true).await? == 2)
        })
        .await?;

        let late = first.batch(&topic, 0, &["late"]);
        let answer = first.send(&mut client, &topic, 0, late).await?;
        assert_eq!(answer.error_code, INVALID_PRODUCER_EPOCH, "{protocol:?}");
        for (version, code) in [(1, INVALID_PRODUCER_EPOCH), (3, PRODUCER_FENCED)] {
            let added = first
                .add_partitions(&mut client, version, &topic, &[0])
                .await?;
            assert_eq!(added, code, "AddPartitionsToTxn {version}");
            let ended = first.end_once(&mut client, version, true).await?;
            assert_eq!(ended, code, "EndTxn {version}");
        }
        second.write(&mut client, &topic, 0, &["b"]).await?;
        second.end(&mut client, true).await?;
        until("the new transaction is committed", SOON, async || {
            Ok(list_isolated(&mut client, &topic, -1, true).await? == 4)
        })
        .await?;
        let committed = read(&mut client, &topic, 0, true, Duration::ZERO).await?;
        assert_eq!(committed.valid, ["b"]);
        assert_eq!(end_offset(&mut client, &topic, 0).await?, 4);
    }
    Ok(())
}

/// O-TX-05 (b): Flink commits, from a checkpoint, what a process that is gone prepared.
#[tokio::test]
async fn a_saved_transaction_can_be_committed_by_another_process_and_once_more() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "flink", 1, &[]).await?;
    let mut producer = Producer::begin(&mut client, &unique("x"), Protocol::First).await?;
    producer.write(&mut client, &topic, 0, &["a"]).await?;
    let mut restored = producer.clone();
    drop(client);
    let mut client = connect().await?;
    restored.end(&mut client, true).await?;
    until("it is committed", SOON, async || {
        Ok(list_isolated(&mut client, &topic, -1, true).await? == 2)
    })
    .await?;
    restored.end(&mut client, true).await?;
    let committed = read(&mut client, &topic, 0, true, Duration::ZERO).await?;
    assert_eq!(committed.valid, ["a"]);
    // To abort what is committed is an explicit error.
    let code = restored.end_once(&mut client, 3, false).await?;
    assert_eq!(code, INVALID_TXN_STATE);
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 2);
    Ok(())
}

/// O-TX-05 (b): the checkpoint is restored after the transaction's time was up.
#[tokio::test]
async fn a_saved_transaction_that_timed_out_is_an_explicit_error() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "flink-late", 1, &[]).await?;
    let mut producer =
        Producer::with_timeout(&mut client, &unique("x"), Protocol::First, 3_000).await?;
    producer.write(&mut client, &topic, 0, &["a"]).await?;
    until("it is aborted", Duration::from_secs(30), async || {
        Ok(list_isolated(&mut client, &topic, -1, true).await? == 2)
    })
    .await?;
    let code = producer.end_once(&mut client, 3, true).await?;
    assert!(
        [PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE].contains(&code),
        "EndTxn answered {code}"
    );
    let committed = read(&mut client, &topic, 0, true, Duration::ZERO).await?;
    assert!(committed.valid.is_empty());
    Ok(())
}

/// O-TX-05 (c).
#[tokio::test]
async fn a_time_out_above_the_most_is_refused() -> Result<()> {
    let mut client = connect().await?;
    let answer = init(&mut client, &unique("x"), 24 * 3600 * 1000).await?;
    assert_eq!(answer.error_code, 50, "INVALID_TRANSACTION_TIMEOUT");
    let answer = init(&mut client, &unique("x"), 0).await?;
    assert_eq!(answer.error_code, 50, "INVALID_TRANSACTION_TIMEOUT");
    let answer = init(&mut client, &unique("x"), 60_000).await?;
    assert_eq!(answer.error_code, errors::NONE);
    Ok(())
}
