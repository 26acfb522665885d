//! The broker that shall have a partition dies before it has it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, BrokerId, ListPartitionReassignmentsRequest,
};
use tidegate_harness::{Durability, RawClient, TestBatch};

use super::{Arena, PATIENCE, PAUSE, number_in};
use crate::ops::{Topic, read_all};
use crate::support::{errors, now_ms};

fn one(number: usize) -> Bytes {
    TestBatch::of_values(now_ms(), [format!("v{number}").into_bytes()]).encode()
}

/// Produces records with these numbers, each acknowledged before the next.
async fn produce_all(
    arena: &mut Arena,
    topic: &Topic,
    numbers: std::ops::Range<usize>,
) -> Result<()> {
    for number in numbers {
        let answer = arena.produce(topic, 0, &one(number)).await?;
        assert_eq!(answer.error_code, errors::NONE, "record {number}");
    }
    Ok(())
}

/// What is stored is each acknowledged record; one that was sent again without idempotence may be there twice.
async fn expect_all(arena: &mut Arena, topic: &Topic, count: usize) -> Result<()> {
    let (leader, _) = arena.led_by(topic, 0, |_| true).await?;
    let mut client = arena.client(leader).await?;
    let records = read_all(&mut client, topic, 0).await?;
    let mut values: Vec<Option<Bytes>> = records.into_iter().map(|record| record.value).collect();
    values.dedup();
    let expected: Vec<Option<Bytes>> = (0..count)
        .map(|number| Some(Bytes::from(format!("v{number}"))))
        .collect();
    assert_eq!(values, expected);
    Ok(())
}

/// Asks for a placement by Kafka's own request; `None` cancels. Gives the partition's error code.
async fn alter(client: &mut RawClient, topic: &Topic, placement: Option<&[u32]>) -> Result<i16> {
    let replicas = placement.map(|ids| ids.iter().map(|id| BrokerId(id.cast_signed())).collect());
    let partition = ReassignablePartition::default()
        .with_partition_index(0)
        .with_replicas(replicas);
    let wanted = ReassignableTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    let request = AlterPartitionReassignmentsRequest::default()
        .with_topics(vec![wanted])
        .with_timeout_ms(30_000);
    let answer = client.call(0, &request).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "the request as a whole was answered {}",
        answer.error_code
    );
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let partition = partitions.last().context("no answer for the partition")?;
    Ok(partition.error_code)
}

/// Whether the partition is listed as being reassigned.
async fn is_listed(client: &mut RawClient, topic: &Topic) -> Result<bool> {
    let request = ListPartitionReassignmentsRequest::default()
        .with_topics(None)
        .with_timeout_ms(30_000);
    let answer = client.call(0, &request).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "listing was answered {}",
        answer.error_code
    );
    Ok(answer
        .topics
        .iter()
        .any(|listed| listed.name == topic.wire_name()))
}

async fn until_unlisted(client: &mut RawClient, topic: &Topic) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while is_listed(client, topic).await? {
        ensure!(Instant::now() < deadline, "the reassignment stays listed");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// A broker's epoch as the admin API of another one has it.
fn broker_epoch(arena: &mut Arena, id: u32, asked: u32) -> Result<u32> {
    let path = format!("/v1/brokers/{id}");
    let page = arena.cluster.broker(asked)?.admin_get(&path)?;
    number_in(&page.body, "broker_epoch")
}

/// Three brokers and a partition: who leads it, and who shall. The one that shall die isn't the controller, whose
/// death would be another case.
async fn begin(durability: Durability) -> Result<(Arena, Topic, u32, u32)> {
    let mut arena = Arena::start(3, durability).await?;
    let leader = arena.controller()?;
    let topic = arena.create_topic(1, leader).await?;
    Ok((arena, topic, leader, leader % 3 + 1))
}

/// O-FO-01. The target stands still from before it is asked, so it dies with the assignment and without the partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_target_that_dies_in_the_middle_of_a_move_costs_nothing() -> Result<()> {
    let (mut arena, topic, leader, target) = begin(Durability::Object).await?;
    produce_all(&mut arena, &topic, 0..20).await?;
    let mut client = arena.client(leader).await?;

    arena.cluster.broker(target)?.pause()?;
    let code = alter(&mut client, &topic, Some(&[target])).await?;
    assert_eq!(code, errors::NONE);
    ensure!(
        is_listed(&mut client, &topic).await?,
        "a move that can't be done isn't listed"
    );
    arena.cluster.broker(target)?.kill()?;

    // Nobody else may lead by that placement, so the former leader must go on.
    let (leader, _) = arena.led_by(&topic, 0, |id| id != target).await?;
    produce_all(&mut arena, &topic, 20..40).await?;
    until_unlisted(&mut client, &topic).await?;
    expect_all(&mut arena, &topic, 40).await?;
    ensure!(arena.running().contains(&leader), "a dead broker leads");
    Ok(())
}

/// O-FO-01: a move that waits for its dead target can be taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_move_to_a_dead_target_can_be_cancelled() -> Result<()> {
    let (mut arena, topic, leader, target) = begin(Durability::Local).await?;
    produce_all(&mut arena, &topic, 0..5).await?;
    let mut client = arena.client(leader).await?;
    arena.cluster.broker(target)?.pause()?;
    let code = alter(&mut client, &topic, Some(&[target])).await?;
    assert_eq!(code, errors::NONE);
    arena.cluster.broker(target)?.kill()?;
    let code = alter(&mut client, &topic, None).await?;
    // It may have been given up by itself meanwhile.
    let fine = [errors::NONE, errors::NO_REASSIGNMENT_IN_PROGRESS];
    ensure!(fine.contains(&code), "cancelling was answered {code}");
    until_unlisted(&mut client, &topic).await?;
    produce_all(&mut arena, &topic, 5..10).await?;
    expect_all(&mut arena, &topic, 10).await
}

/// O-FO-01, variant: the target comes back at once and dies again while it recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_target_that_dies_again_in_its_recovery_is_known_by_its_newest_epoch() -> Result<()> {
    let (mut arena, topic, leader, target) = begin(Durability::Object).await?;
    produce_all(&mut arena, &topic, 0..20).await?;
    // It has written under its epoch, so that there is something to recover.
    arena.move_to(&topic, 0, target).await?;
    arena.led_by(&topic, 0, |id| id == target).await?;
    produce_all(&mut arena, &topic, 20..40).await?;
    arena.move_to(&topic, 0, leader).await?;
    let mut client = arena.client(leader).await?;
    let before = broker_epoch(&mut arena, target, leader)?;

    arena.cluster.broker(target)?.pause()?;
    let code = alter(&mut client, &topic, Some(&[target])).await?;
    assert_eq!(code, errors::NONE);
    arena.cluster.broker(target)?.kill()?;
    arena.cluster.broker(target)?.launch()?;
    // It lives and isn't ready yet, most likely: it recovers.
    let deadline = Instant::now() + PATIENCE;
    while !arena.cluster.broker(target)?.is_alive() {
        ensure!(Instant::now() < deadline, "the broker doesn't come up");
    }
    arena.cluster.broker(target)?.kill()?;
    arena.led_by(&topic, 0, |id| id != target).await?;
    produce_all(&mut arena, &topic, 40..60).await?;

    arena.cluster.broker(target)?.launch()?;
    arena.cluster.broker(target)?.wait_ready(PATIENCE)?;
    let after = broker_epoch(&mut arena, target, leader)?;
    ensure!(before < after, "broker epoch {after} came after {before}");
    // Wherever the move stands, the partition can be led by the broker's new life, and by others after that.
    arena.move_to(&topic, 0, target).await?;
    arena.led_by(&topic, 0, |id| id == target).await?;
    produce_all(&mut arena, &topic, 60..80).await?;
    arena.cluster.broker(target)?.kill()?;
    arena.led_by(&topic, 0, |id| id != target).await?;
    produce_all(&mut arena, &topic, 80..100).await?;
    until_unlisted(&mut client, &topic).await?;
    expect_all(&mut arena, &topic, 100).await
}
