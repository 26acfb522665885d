//! Fetch sessions (KIP-227).

use std::time::Duration;

use anyhow::{Result, ensure};
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::ForgottenTopic;
use tidegate_harness::{Broker, BrokerOptions, RawClient, TestBatch};

use crate::ops::{Topic, create_topic, fetch_request, fetched, produce_ok};
use crate::support::{connect, errors, is_kafka, now_ms};

fn session(topic: &Topic, partitions: &[(i32, i64)], id: i32, epoch: i32) -> FetchRequest {
    let mut request = fetch_request(11, topic, partitions);
    if partitions.is_empty() {
        request.topics.clear();
    }
    request.with_session_id(id).with_session_epoch(epoch)
}

/// O-FE-03.
#[tokio::test]
async fn incremental_answers_carry_only_what_changed() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "session", 2, &[]).await?;
    let batch = || TestBatch::of_values(now_ms(), ["v"]).encode();

    let full = client
        .call(11, &session(&topic, &[(0, 0), (1, 0)], 0, 0))
        .await?;
    let id = full.session_id;
    ensure!(id > 0, "no session: {id}");
    assert_eq!(fetched(full).len(), 2);

    let quiet = client.call(11, &session(&topic, &[], id, 1)).await?;
    assert_eq!((quiet.error_code, quiet.session_id), (errors::NONE, id));
    assert!(fetched(quiet).is_empty(), "nothing changed");

    produce_ok(&mut client, &topic, 1, batch()).await?;
    let changed = fetched(client.call(11, &session(&topic, &[], id, 2)).await?);
    assert_eq!(changed.len(), 1);
    assert_eq!(
        (
            changed[0].partition_index,
            changed[0].high_watermark,
            changed[0].last_stable_offset
        ),
        (1, 1, 1)
    );
    ensure!(
        changed[0]
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty()),
        "no records"
    );

    // Partition 0 is forgotten, partition 1 goes on behind its record.
    let mut forget = session(&topic, &[(1, 1)], id, 3);
    forget.forgotten_topics_data = vec![
        ForgottenTopic::default()
            .with_topic(topic.wire_name())
            .with_partitions(vec![0]),
    ];
    let answer = client.call(11, &forget).await?;
    assert_eq!(answer.error_code, errors::NONE);
    produce_ok(&mut client, &topic, 0, batch()).await?;
    produce_ok(&mut client, &topic, 1, batch()).await?;
    let after: Vec<i32> = fetched(client.call(11, &session(&topic, &[], id, 4)).await?)
        .iter()
        .map(|data| data.partition_index)
        .collect();
    assert_eq!(after, [1], "a forgotten partition stays away");
    Ok(())
}

/// O-FE-03.
#[tokio::test]
async fn wrong_epochs_unknown_ids_and_closing_are_told_apart() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "session", 1, &[]).await?;
    let id = client
        .call(11, &session(&topic, &[(0, 0)], 0, 0))
        .await?
        .session_id;
    ensure!(id > 0, "no session");

    let wrong_epoch = client.call(11, &session(&topic, &[], id, 5)).await?;
    assert_eq!(wrong_epoch.error_code, errors::INVALID_FETCH_SESSION_EPOCH);
    let unknown = client
        .call(11, &session(&topic, &[], id ^ 0x0055_5555, 1))
        .await?;
    assert_eq!(unknown.error_code, errors::FETCH_SESSION_ID_NOT_FOUND);

    let closing = client.call(11, &session(&topic, &[(0, 0)], id, -1)).await?;
    assert_eq!((closing.error_code, closing.session_id), (errors::NONE, 0));
    assert_eq!(fetched(closing).len(), 1, "the closing fetch is a full one");
    let closed = client.call(11, &session(&topic, &[], id, 1)).await?;
    assert_eq!(closed.error_code, errors::FETCH_SESSION_ID_NOT_FOUND);

    let sessionless = client.call(11, &session(&topic, &[(0, 0)], 0, -1)).await?;
    assert_eq!(
        (sessionless.error_code, sessionless.session_id),
        (errors::NONE, 0)
    );
    Ok(())
}

/// O-FE-03. Its own broker: the session cache ends full.
#[tokio::test]
async fn ten_thousand_sessions_on_one_connection_take_bounded_memory() -> Result<()> {
    let mut broker = Broker::start(BrokerOptions::default())?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let topic = create_topic(&mut client, "session", 1, &[]).await?;
    for _ in 0..100 {
        client.call(11, &session(&topic, &[(0, 0)], 0, 0)).await?;
    }
    let before = broker.process()?.resident_bytes()?;
    // Pipelined in groups: ten thousand round trips would only measure the loopback.
    for _ in 0..100 {
        let mut sent = Vec::new();
        for _ in 0..100 {
            sent.push(client.send(11, &session(&topic, &[(0, 0)], 0, 0)).await?);
        }
        for correlation_id in sent {
            let answer = client.receive::<FetchRequest>(11, correlation_id).await?;
            assert_eq!(answer.error_code, errors::NONE);
            assert_eq!(
                fetched(answer).len(),
                1,
                "with a session or without, the data comes"
            );
        }
    }
    if !is_kafka() {
        let grown = broker.process()?.resident_bytes()?.saturating_sub(before);
        ensure!(grown < 32 << 20, "sessions took {grown} bytes");
    }
    // Whoever asks after that is still served.
    let mut other = RawClient::connect(&broker.bootstrap()).await?;
    let answer = tokio::time::timeout(
        Duration::from_secs(10),
        other.call(11, &session(&topic, &[(0, 0)], 0, 0)),
    )
    .await??;
    assert_eq!(answer.error_code, errors::NONE);
    Ok(())
}
