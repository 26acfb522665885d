//! A topic deleted and recreated under a running consumer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest};
use tidegate_harness::{RawClient, TestBatch};

use crate::group_offsets::{commit_offset, committed_offset};
use crate::ops::{
    Topic, create_named_topic, create_topic, fetch, fetch_request, fetched, produce_ok,
    topic_metadata,
};
use crate::support::{connect, errors, now_ms, unique};

async fn delete_topic(client: &mut RawClient, topic: &Topic) -> Result<()> {
    let state = DeleteTopicState::default().with_name(Some(topic.wire_name()));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![state])
        .with_timeout_ms(30_000);
    let answer = client.call(6, &request).await?;
    let code = answer
        .responses
        .first()
        .context("no answer for the topic")?
        .error_code;
    ensure!(code == errors::NONE, "deleting answered {code}");
    Ok(())
}

async fn recreate(client: &mut RawClient, topic: &Topic) -> Result<Topic> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match create_named_topic(client, &topic.name, 1, &[]).await {
            Ok(recreated) => return Ok(recreated),
            Err(error) => ensure!(Instant::now() < deadline, "can't recreate: {error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn fill(client: &mut RawClient, topic: &Topic, count: usize) -> Result<()> {
    let values = (0..count).map(|number| format!("v{number}").into_bytes());
    produce_ok(
        client,
        topic,
        0,
        TestBatch::of_values(now_ms(), values).encode(),
    )
    .await?;
    Ok(())
}

/// O-FE-04. OffsetCommit by topic id (version 10) waits for the codec.
#[tokio::test]
async fn a_recreated_topic_is_a_different_topic() -> Result<()> {
    let mut client = connect().await?;
    let old = create_topic(&mut client, "reborn", 1, &[]).await?;
    fill(&mut client, &old, 100).await?;
    let group = unique("reborn-group");
    commit_offset(&mut client, &group, &old, 100).await?;
    assert_eq!(committed_offset(&mut client, &group, &old).await?, 100);

    let mut full = fetch_request(13, &old, &[(0, 100)]);
    full.session_epoch = 0;
    let session_id = client.call(13, &full).await?.session_id;
    ensure!(session_id > 0, "no session");

    delete_topic(&mut client, &old).await?;
    let new = recreate(&mut client, &old).await?;
    ensure!(new.id != old.id, "the topic id was used again");
    fill(&mut client, &new, 5).await?;

    let by_old_id = fetch(&mut client, 13, &old, 0, 100).await?;
    assert_eq!(by_old_id.error_code, errors::UNKNOWN_TOPIC_ID);

    let next = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_session_id(session_id)
        .with_session_epoch(1);
    let next = client.call(13, &next.with_replica_id((-1).into())).await?;
    let codes: Vec<i16> = std::iter::once(next.error_code)
        .chain(fetched(next).iter().map(|data| data.error_code))
        .collect();
    let loud = [errors::UNKNOWN_TOPIC_ID, errors::INCONSISTENT_TOPIC_ID];
    ensure!(
        codes.iter().any(|code| loud.contains(code)),
        "the session stayed silent: {codes:?}"
    );

    let by_name = fetch(&mut client, 12, &new, 0, 100).await?;
    assert_eq!(by_name.error_code, errors::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        topic_metadata(&mut client, &new.name).await?.topic_id,
        new.id
    );

    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let offset = committed_offset(&mut client, &group, &new).await?;
        if offset == -1 {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the old topic's committed offset {offset} lives on"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
