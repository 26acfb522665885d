//! What an epoch ended with is answered the same by every later leader.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    BrokerId, GroupId, OffsetFetchRequest, OffsetForLeaderEpochRequest,
};
use tidegate_harness::{Durability, RawClient, TestBatch};

use super::{Arena, PATIENCE, PAUSE};
use crate::group_offsets::{commit, commit_request};
use crate::groups::find_coordinator;
use crate::ops::Topic;
use crate::support::{errors, now_ms, text, unique};

/// FENCED_LEADER_EPOCH.
const FENCED: i16 = 74;
/// UNKNOWN_LEADER_EPOCH.
const UNKNOWN: i16 = 75;

/// (error code, epoch, end offset) that a broker answers about an epoch.
async fn end_of_epoch(
    client: &mut RawClient,
    topic: &Topic,
    epoch: i32,
    current: i32,
) -> Result<(i16, i32, i64)> {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic.wire_name())
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic]);
    let answer = client.call(4, &request).await?;
    let topics = answer.topics.into_iter();
    let partition = topics.flat_map(|topic| topic.partitions).next();
    let partition = partition.context("no answer for the partition")?;
    Ok((
        partition.error_code,
        partition.leader_epoch,
        partition.end_offset,
    ))
}

fn hundred() -> Bytes {
    let values = (0..100).map(|number| format!("v{number}").into_bytes());
    TestBatch::of_values(now_ms(), values).encode()
}

/// The leader epoch committed with the offset of partition 0.
async fn committed_epoch(client: &mut RawClient, group: &str, topic: &Topic) -> Result<i32> {
    find_coordinator(client, group).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let wanted = OffsetFetchRequestTopics::default()
            .with_name(topic.wire_name())
            .with_partition_indexes(vec![0]);
        let wanted = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(text(group)))
            .with_topics(Some(vec![wanted]));
        let request = OffsetFetchRequest::default().with_groups(vec![wanted]);
        let answer = client.call(8, &request).await?;
        let group = answer.groups.first().context("no answer for the group")?;
        let passing = [
            errors::COORDINATOR_LOAD_IN_PROGRESS,
            errors::NOT_COORDINATOR,
        ];
        if !passing.contains(&group.error_code) {
            ensure!(group.error_code == errors::NONE, "{}", group.error_code);
            let mut partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
            let partition = partitions.next().context("no committed offset")?;
            assert_eq!(partition.committed_offset, 150);
            return Ok(partition.committed_leader_epoch);
        }
        ensure!(Instant::now() < deadline, "the coordinator stays away");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the admin API says that nothing of a partition waits to be uploaded.
async fn uploaded(arena: &mut Arena, topic: &Topic) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let path = format!("/v1/topics/{}/partitions/0", topic.name);
    loop {
        let answer = arena.cluster.broker(1)?.admin_get(&path)?;
        if answer.body.contains(r#""not_uploaded_bytes":0"#)
            && answer.body.contains(r#""uploaded_end":200"#)
        {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not uploaded: {}", answer.body);
        tokio::time::sleep(PAUSE).await;
    }
}

/// O-FO-05.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn epochs_end_where_they_ended_after_moves_and_after_a_cold_restart() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let (_, first) = arena.led_by(&topic, 0, |id| id == 1).await?;
    assert_eq!(arena.produce(&topic, 0, &hundred()).await?.base_offset, 0);
    arena.move_to(&topic, 0, 2).await?;
    let (_, second) = arena.led_by(&topic, 0, |id| id == 2).await?;
    ensure!(second > first, "epoch {second} came after {first}");
    assert_eq!(arena.produce(&topic, 0, &hundred()).await?.base_offset, 100);

    let mut client = arena.client(2).await?;
    let ask = async |client: &mut RawClient, epoch, current| {
        end_of_epoch(client, &topic, epoch, current).await
    };
    assert_eq!(ask(&mut client, first, second).await?, (0, first, 100));
    assert_eq!(ask(&mut client, second, second).await?, (0, second, 200));
    assert_eq!(ask(&mut client, second, first).await?.0, FENCED);
    assert_eq!(ask(&mut client, second, second + 1).await?.0, UNKNOWN);
    // Who doesn't lead any more doesn't answer.
    let mut former = arena.client(1).await?;
    assert_eq!(
        ask(&mut former, first, second).await?.0,
        errors::NOT_LEADER_OR_FOLLOWER
    );

    let group = unique("epochs");
    find_coordinator(&mut client, &group).await?;
    let mut request = commit_request(&group, &topic, 150);
    request.topics[0].partitions[0].committed_leader_epoch = second;
    let coordinator = super::groups::coordinator(&mut client, &group).await?;
    let mut at_coordinator = arena.client(coordinator).await?;
    let code = commit(&mut at_coordinator, 8, &request).await?;
    assert_eq!(code, errors::NONE);

    uploaded(&mut arena, &topic).await?;
    for id in [1, 2] {
        arena.cluster.broker(id)?.kill()?;
    }
    for id in [1, 2] {
        arena.cluster.broker(id)?.launch()?;
    }
    for id in [1, 2] {
        arena.cluster.broker(id)?.wait_ready(PATIENCE)?;
    }
    let (leader, third) = arena.led_by(&topic, 0, |_| true).await?;
    ensure!(third >= second, "the epoch went back to {third}");
    let mut client = arena.client(leader).await?;
    assert_eq!(ask(&mut client, first, third).await?, (0, first, 100));
    assert_eq!(ask(&mut client, second, third).await?, (0, second, 200));
    assert_eq!(ask(&mut client, second, first).await?.0, FENCED);
    assert_eq!(ask(&mut client, second, third + 1).await?.0, UNKNOWN);

    let coordinator = super::groups::coordinator(&mut client, &group).await?;
    let mut at_coordinator = arena.client(coordinator).await?;
    let epoch = committed_epoch(&mut at_coordinator, &group, &topic).await?;
    assert_eq!(epoch, second, "the committed leader epoch");
    Ok(())
}
