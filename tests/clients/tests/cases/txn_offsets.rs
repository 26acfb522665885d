//! Offsets in transactions, and clients that die in the middle.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, ProducerId, TransactionalId, WriteTxnMarkersRequest,
};
use tidegate_harness::{Broker, BrokerOptions, RawClient};

use crate::group_offsets::{commit_offset, committed_offset};
use crate::groups::find_coordinator;
use crate::ops::{Topic, create_topic, end_offset};
use crate::support::{connect, errors, text, unique};
use crate::txn_ops::{
    BOTH, INVALID_PRODUCER_EPOCH, Producer, Protocol, UNSTABLE_OFFSET_COMMIT, list_isolated,
    stable_offset, until,
};

/// How long until a marker is where it belongs.
const SOON: Duration = Duration::from_secs(20);
/// A transaction's time-out of five seconds, and the longest that Kafka takes to see it.
const TIMED_OUT: Duration = Duration::from_secs(30);

async fn is_stable(
    client: &mut RawClient,
    group: &str,
    topic: &Topic,
    offset: i64,
) -> Result<bool> {
    Ok(stable_offset(client, group, topic).await? == (errors::NONE, offset))
}

#[tokio::test]
async fn offsets_of_a_transaction_count_from_its_commit_and_never_after_an_abort() -> Result<()> {
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "offsets", 1, &[]).await?;
        let group = unique("g");
        commit_offset(&mut client, &group, &topic, 5).await?;
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        for (commit, offset, after) in [(true, 7, 7), (false, 9, 7)] {
            producer
                .commit_offset(&mut client, &group, &topic, offset)
                .await?;
            let before = committed_offset(&mut client, &group, &topic).await?;
            ensure!(before != offset, "it isn't committed yet");
            let unstable = stable_offset(&mut client, &group, &topic).await?;
            assert_eq!(unstable, (UNSTABLE_OFFSET_COMMIT, -1));
            producer.end(&mut client, commit).await?;
            until("the offset is stable", SOON, async || {
                is_stable(&mut client, &group, &topic, after).await
            })
            .await?;
            assert_eq!(committed_offset(&mut client, &group, &topic).await?, after);
        }
    }
    Ok(())
}

/// O-TX-04: a client dies with records and offsets in an open transaction.
#[tokio::test]
async fn a_dead_client_blocks_partition_and_group_only_until_its_time_is_up() -> Result<()> {
    for protocol in BOTH {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "dead", 1, &[]).await?;
        let group = unique("g");
        find_coordinator(&mut client, &group).await?;
        let mut producer =
            Producer::with_timeout(&mut client, &unique("x"), protocol, 5_000).await?;
        producer.write(&mut client, &topic, 0, &["a"]).await?;
        producer
            .commit_offset(&mut client, &group, &topic, 3)
            .await?;
        let unstable = stable_offset(&mut client, &group, &topic).await?;
        assert_eq!(unstable.0, UNSTABLE_OFFSET_COMMIT);
        assert_eq!(list_isolated(&mut client, &topic, -1, true).await?, 0);
        until("both are free", TIMED_OUT, async || {
            let stable = stable_offset(&mut client, &group, &topic).await?;
            Ok(stable == (errors::NONE, -1)
                && list_isolated(&mut client, &topic, -1, true).await? == 2)
        })
        .await?;
        // The producer comes back to life: its transaction is over.
        let late = producer.batch(&topic, 0, &["late"]);
        let answer = producer.send(&mut client, &topic, 0, late).await?;
        assert_eq!(answer.error_code, INVALID_PRODUCER_EPOCH);
        assert_eq!(end_offset(&mut client, &topic, 0).await?, 2);
    }
    Ok(())
}

/// O-TX-04: the coordinator restarts between TxnOffsetCommit and EndTxn.
#[tokio::test]
async fn an_offset_in_an_open_transaction_survives_a_restart_of_the_coordinator() -> Result<()> {
    for protocol in BOTH {
        let mut broker = Broker::start(BrokerOptions::default())?;
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        let topic = create_topic(&mut client, "restart", 1, &[]).await?;
        let group = unique("g");
        commit_offset(&mut client, &group, &topic, 5).await?;
        let mut producer = Producer::begin(&mut client, &unique("x"), protocol).await?;
        producer
            .commit_offset(&mut client, &group, &topic, 7)
            .await?;
        broker.crash_and_restart()?;
        let mut client = RawClient::connect(&broker.bootstrap()).await?;
        find_coordinator(&mut client, &group).await?;
        until("the group is loaded", SOON, async || {
            let found = stable_offset(&mut client, &group, &topic).await?;
            ensure!(found.0 != errors::NONE, "the open transaction is forgotten");
            Ok(found.0 == UNSTABLE_OFFSET_COMMIT)
        })
        .await?;
        assert_eq!(committed_offset(&mut client, &group, &topic).await?, 5);
        producer.end(&mut client, true).await?;
        until("the offset is stable", SOON, async || {
            is_stable(&mut client, &group, &topic, 7).await
        })
        .await?;
    }
    Ok(())
}

/// KIP-447.
#[tokio::test]
async fn members_that_were_replaced_cant_commit_in_a_transaction() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "fenced", 1, &[]).await?;
    let group = unique("g");
    find_coordinator(&mut client, &group).await?;
    let producer = Producer::begin(&mut client, &unique("x"), Protocol::Second).await?;
    let plain = || producer.offsets_request(&group, &topic, 7);
    let stranger = plain()
        .with_member_id(text("stranger"))
        .with_generation_id(3);
    let code = producer.commit_as(&mut client, 5, &stranger).await?;
    assert_eq!(code, errors::ILLEGAL_GENERATION, "there is no such group");
    commit_offset(&mut client, &group, &topic, 5).await?;
    for version in [3, 5] {
        if version < 5 {
            assert_eq!(producer.add_offsets(&mut client, &group).await?, 0);
        }
        let code = producer.commit_as(&mut client, version, &stranger).await?;
        assert_eq!(code, errors::UNKNOWN_MEMBER_ID);
    }
    // A member of an older epoch of the producer.
    let mut zombie = producer.clone();
    zombie.epoch -= 1;
    if zombie.epoch >= 0 {
        let request = zombie.offsets_request(&group, &topic, 9);
        let code = zombie.commit_as(&mut client, 5, &request).await?;
        assert_eq!(code, INVALID_PRODUCER_EPOCH);
    }
    let code = producer.commit_as(&mut client, 5, &plain()).await?;
    assert_eq!(code, errors::NONE);
    let unknown = plain().with_transactional_id(TransactionalId(text(&unique("nobody"))));
    let code = producer.commit_as(&mut client, 3, &unknown).await?;
    assert_eq!(code, errors::NONE, "the transaction is open here already");
    Ok(())
}

async fn producers(client: &mut RawClient, topic: &Topic) -> Result<Vec<ProducerState>> {
    let wanted = TopicRequest::default()
        .with_name(topic.wire_name())
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
    let answer = client.call(0, &request).await?;
    let topic = answer.topics.into_iter().next();
    let partition = topic.and_then(|t| t.partitions.into_iter().next());
    let partition = partition.context("no answer for the partition")?;
    ensure!(
        partition.error_code == errors::NONE,
        "DescribeProducers answered {}",
        partition.error_code
    );
    Ok(partition.active_producers)
}

async fn abort(client: &mut RawClient, topic: &Topic, of: &ProducerState) -> Result<i16> {
    let topics = WritableTxnMarkerTopic::default()
        .with_name(topic.wire_name())
        .with_partition_indexes(vec![0]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(of.producer_id.0))
        .with_producer_epoch(i16::try_from(of.producer_epoch)?)
        .with_coordinator_epoch(of.coordinator_epoch.max(0))
        .with_transaction_result(false)
        .with_topics(vec![topics]);
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let answer = client.call(1, &request).await?;
    let marker = answer.markers.into_iter().next();
    let topic = marker.and_then(|m| m.topics.into_iter().next());
    let partition = topic.and_then(|t| t.partitions.into_iter().next());
    Ok(partition.context("no answer for the partition")?.error_code)
}

/// O-TX-04: what `kafka-transactions.sh` asks and does (KIP-664).
#[tokio::test]
async fn an_operator_sees_open_transactions_and_ends_one_that_hangs() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "hanging", 1, &[]).await?;
    assert_eq!(producers(&mut client, &topic).await?, []);
    let mut producer = Producer::begin(&mut client, &unique("x"), Protocol::First).await?;
    producer.write(&mut client, &topic, 0, &["a"]).await?;
    producer.end(&mut client, true).await?;
    until("the marker is written", SOON, async || {
        Ok(list_isolated(&mut client, &topic, -1, true).await? == 2)
    })
    .await?;
    let known = producers(&mut client, &topic).await?;
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].producer_id.0, producer.id);
    assert_eq!(known[0].current_txn_start_offset, -1);
    assert!(known[0].coordinator_epoch >= 0);

    producer.write(&mut client, &topic, 0, &["b", "c"]).await?;
    let open = producers(&mut client, &topic).await?.remove(0);
    assert_eq!(open.current_txn_start_offset, 2);
    assert_eq!(open.producer_epoch, i32::from(producer.epoch));
    assert_eq!(open.last_sequence, 2);
    // Of a former coordinator, or an epoch that is over: nothing happens.
    let mut former = open.clone();
    former.producer_epoch -= 1;
    if former.producer_epoch >= 0 {
        assert_eq!(
            abort(&mut client, &topic, &former).await?,
            INVALID_PRODUCER_EPOCH
        );
    }
    assert_eq!(list_isolated(&mut client, &topic, -1, true).await?, 2);
    assert_eq!(abort(&mut client, &topic, &open).await?, errors::NONE);
    assert_eq!(list_isolated(&mut client, &topic, -1, true).await?, 5);
    let ended = producers(&mut client, &topic).await?.remove(0);
    assert_eq!(ended.current_txn_start_offset, -1);
    Ok(())
}
