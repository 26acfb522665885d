//! What an idempotent producer relies on goes with the partition.

use anyhow::{Result, ensure};
use bytes::Bytes;
use tidegate_harness::{Durability, RawClient, TestBatch};

use super::Arena;
use crate::ops::{Topic, end_offset, produce, produce_request, read_all};
use crate::support::{errors, now_ms};
use crate::txn::producer_id;

/// `count` records with the sequence numbers from `first`.
fn batch((id, epoch): (i64, i16), first: i32, count: i32) -> Bytes {
    let values = (first..first + count).map(|number| format!("v{number}").into_bytes());
    TestBatch::of_values(now_ms(), values)
        .with_producer(id, epoch, first)
        .encode()
}

/// (a) a retry, (b) what comes next, (c) a gap, at the new leader.
async fn goes_on(arena: &mut Arena, topic: &Topic, producer: (i64, i16)) -> Result<()> {
    let retry = arena.produce(topic, 0, &batch(producer, 0, 10)).await?;
    assert_eq!((retry.error_code, retry.base_offset), (errors::NONE, 0));
    let (leader, _) = arena.led_by(topic, 0, |_| true).await?;
    let mut client = arena.client(leader).await?;
    assert_eq!(
        end_offset(&mut client, topic, 0).await?,
        10,
        "the retry was stored a second time"
    );
    let next = arena.produce(topic, 0, &batch(producer, 10, 10)).await?;
    assert_eq!((next.error_code, next.base_offset), (errors::NONE, 10));
    let gap = arena.produce(topic, 0, &batch(producer, 30, 1)).await?;
    assert_eq!(gap.error_code, errors::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(end_offset(&mut client, topic, 0).await?, 20);
    Ok(())
}

async fn begin(arena: &mut Arena) -> Result<(Topic, (i64, i16))> {
    let topic = arena.create_topic(1, 1).await?;
    let mut client = arena.client(1).await?;
    let producer = producer_id(&mut client).await?;
    let first = arena.produce(&topic, 0, &batch(producer, 0, 10)).await?;
    assert_eq!((first.error_code, first.base_offset), (errors::NONE, 0));
    Ok((topic, producer))
}

/// O-FO-03.
#[tokio::test]
async fn the_new_leader_knows_the_producers_of_the_old_one() -> Result<()> {
    for durability in [Durability::Local, Durability::Object] {
        let mut arena = Arena::start(2, durability).await?;
        let (topic, producer) = begin(&mut arena).await?;
        arena.move_to(&topic, 0, 2).await?;
        arena.led_by(&topic, 0, |id| id == 2).await?;
        goes_on(&mut arena, &topic, producer).await?;
    }
    Ok(())
}

/// O-FO-03, with a crash of the leader instead of a move.
#[tokio::test]
async fn a_leader_by_failover_knows_the_producers_of_the_dead_one() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Object).await?;
    let (topic, producer) = begin(&mut arena).await?;
    arena.cluster.broker(1)?.kill()?;
    arena.led_by(&topic, 0, |id| id == 2).await?;
    goes_on(&mut arena, &topic, producer).await
}

/// The number of the first record of each of five batches in flight, from `first`.
fn five(first: i32) -> impl Iterator<Item = i32> {
    first..first + 5
}

async fn send_unread(
    client: &mut RawClient,
    topic: &Topic,
    producer: (i64, i16),
    first: i32,
) -> Result<()> {
    for sequence in five(first) {
        let request = produce_request(9, topic, -1, vec![(0, batch(producer, sequence, 1))]);
        client.send(9, &request).await?;
    }
    Ok(())
}

/// O-TX-01 over a move: all five answers are lost, and the retries meet another broker.
#[tokio::test]
async fn batches_sent_again_to_the_new_leader_keep_their_offsets() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let mut client = arena.client(1).await?;
    let producer = producer_id(&mut client).await?;
    let mut lost = arena.client(1).await?;
    send_unread(&mut lost, &topic, producer, 0).await?;
    // Requests of one connection are carried out in order: when the fifth is answered, all are stored.
    let mut stored = 0;
    while stored < 5 {
        stored = end_offset(&mut client, &topic, 0).await?;
    }
    drop(lost);
    arena.move_to(&topic, 0, 2).await?;
    arena.led_by(&topic, 0, |id| id == 2).await?;

    for sequence in five(0) {
        let again = arena
            .produce(&topic, 0, &batch(producer, sequence, 1))
            .await?;
        assert_eq!(
            (again.error_code, again.base_offset),
            (errors::NONE, i64::from(sequence))
        );
    }
    let sixth = arena.produce(&topic, 0, &batch(producer, 5, 1)).await?;
    assert_eq!((sixth.error_code, sixth.base_offset), (errors::NONE, 5));
    let mut client = arena.client(2).await?;
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 6);
    // The remembered five are now 1 to 5.
    let forgotten = produce(&mut client, 9, &topic, 0, batch(producer, 0, 1)).await?;
    let refusals = [
        errors::OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors::DUPLICATE_SEQUENCE_NUMBER,
    ];
    ensure!(
        refusals.contains(&forgotten.error_code),
        "a forgotten batch was answered {}",
        forgotten.error_code
    );
    assert_eq!(end_offset(&mut client, &topic, 0).await?, 6);
    Ok(())
}

/// O-TX-01, with the move in the middle of the batches: whichever of them were stored, none is stored twice.
#[tokio::test]
async fn batches_in_flight_while_the_partition_moves_are_stored_once() -> Result<()> {
    const ROUNDS: i32 = 10;
    let mut arena = Arena::start(2, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let mut client = arena.client(1).await?;
    let producer = producer_id(&mut client).await?;
    for round in 0..ROUNDS {
        let (from, _) = arena.led_by(&topic, 0, |_| true).await?;
        let mut lost = arena.client(from).await?;
        let first = round * 5;
        let (sent, moved) = tokio::join!(
            send_unread(&mut lost, &topic, producer, first),
            arena.move_to(&topic, 0, 3 - from)
        );
        sent?;
        moved?;
        // The answers are lost.
        drop(lost);
        for sequence in five(first) {
            let answer = arena
                .produce(&topic, 0, &batch(producer, sequence, 1))
                .await?;
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (errors::NONE, i64::from(sequence)),
                "sequence {sequence} in round {round}"
            );
        }
    }
    let (leader, _) = arena.led_by(&topic, 0, |_| true).await?;
    let mut client = arena.client(leader).await?;
    let records = read_all(&mut client, &topic, 0).await?;
    let values: Vec<Option<Bytes>> = records.into_iter().map(|record| record.value).collect();
    let expected: Vec<Option<Bytes>> = (0..ROUNDS * 5)
        .map(|number| Some(Bytes::from(format!("v{number}"))))
        .collect();
    assert_eq!(values, expected);
    Ok(())
}
