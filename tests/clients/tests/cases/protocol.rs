//! Versions and frames.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Buf;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Message, Request};
use tidegate_harness::RawClient;

use crate::support::{connect, errors, is_kafka, shared, text};

async fn advertised(client: &mut RawClient) -> Result<Vec<(i16, i16, i16)>> {
    let answer = client.call(0, &ApiVersionsRequest::default()).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "ApiVersions answered {}",
        answer.error_code
    );
    Ok(answer
        .api_keys
        .iter()
        .map(|row| (row.api_key, row.min_version, row.max_version))
        .collect())
}

async fn max_version(client: &mut RawClient, key: i16) -> Result<i16> {
    let rows = advertised(client).await?;
    let row = rows
        .into_iter()
        .find(|row| row.0 == key)
        .with_context(|| format!("key {key} isn't advertised"))?;
    Ok(row.2)
}

/// O-PC-01.
#[tokio::test]
async fn api_versions_newer_than_the_broker_is_answered_in_version_0_layout() -> Result<()> {
    let mut client = connect().await?;
    let correlation_id = client
        .send_by_hand(18, 99, b"\x00\x05name\x04v1\x00")
        .await?;
    let mut frame = client.receive_frame().await?;
    assert_eq!(frame.get_i32(), correlation_id);
    assert_eq!(frame.get_i16(), errors::UNSUPPORTED_VERSION);
    let mut offered = None;
    for _ in 0..frame.get_i32() {
        let (key, _min, max) = (frame.get_i16(), frame.get_i16(), frame.get_i16());
        if key == 18 {
            offered = Some(max);
        }
    }
    assert!(
        !frame.has_remaining(),
        "bytes are left after the version 0 layout"
    );
    let offered = offered
        .context("the row for ApiVersions is missing")?
        .min(ApiVersionsRequest::VERSIONS.max);
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1"));
    let answer = client.call(offered, &request).await?;
    assert_eq!(answer.error_code, errors::NONE);
    Ok(())
}

/// O-PC-01. The answer's header has no tagged fields, even where the request's has (KIP-511): the raw client decodes
/// with a version-0 header and refuses bytes left over.
#[tokio::test]
async fn api_versions_answers_have_the_version_0_header_at_every_version() -> Result<()> {
    let mut client = connect().await?;
    let max = max_version(&mut client, 18)
        .await?
        .min(ApiVersionsRequest::VERSIONS.max);
    ensure!(max >= 3, "ApiVersions is offered up to {max} only");
    for version in 0..=max {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request = request
                .with_client_software_name(text("test"))
                .with_client_software_version(text("1"));
        }
        let answer = client.call(version, &request).await?;
        assert_eq!(answer.error_code, errors::NONE, "version {version}");
    }
    Ok(())
}

/// O-PC-01.
#[tokio::test]
async fn an_illegal_software_name_is_an_invalid_request() -> Result<()> {
    let mut client = connect().await?;
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("bad name!"))
        .with_client_software_version(text("1"));
    let answer = client.call(3, &request).await?;
    assert_eq!(answer.error_code, errors::INVALID_REQUEST);
    Ok(())
}

/// O-PC-01.
#[tokio::test]
async fn a_version_above_the_maximum_or_an_unknown_key_closes_the_connection_and_is_logged()
-> Result<()> {
    let max = max_version(&mut connect().await?, MetadataRequest::KEY).await?;
    for (key, version) in [(MetadataRequest::KEY, max + 1), (9_999, 0)] {
        let mut client = connect().await?;
        client.send_by_hand(key, version, &[0; 16]).await?;
        client
            .expect_closed(Duration::from_secs(10))
            .await
            .with_context(|| format!("key {key}"))?;
        if !is_kafka() {
            let log = shared().log();
            let line = log.lines().find(|line| {
                line.contains("raw-test-client")
                    && line.contains(&key.to_string())
                    && line.contains(&version.to_string())
            });
            ensure!(
                line.is_some(),
                "no log line names client id, key {key} and version {version}"
            );
        }
    }
    Ok(())
}

/// O-PC-01, and invariant I8: what is advertised works. An empty request of every version of every API is answered
/// in the form that this version has, and the connection stays open.
#[tokio::test]
async fn every_advertised_version_of_every_api_is_answered() -> Result<()> {
    let mut rows = advertised(&mut connect().await?).await?;
    macro_rules! try_api {
        ($($request:expr),* $(,)?) => { $( try_versions(&mut rows, &$request).await?; )* };
    }
    try_api!(
        ProduceRequest::default().with_acks(-1),
        FetchRequest::default().with_session_epoch(-1),
        ListOffsetsRequest::default(),
        MetadataRequest::default().with_topics(Some(Vec::new())),
        OffsetCommitRequest::default(),
        OffsetFetchRequest::default().with_topics(Some(Vec::new())),
        FindCoordinatorRequest::default(),
        JoinGroupRequest::default(),
        HeartbeatRequest::default(),
        LeaveGroupRequest::default(),
        SyncGroupRequest::default(),
        DescribeGroupsRequest::default(),
        ListGroupsRequest::default(),
        SaslHandshakeRequest::default(),
        ApiVersionsRequest::default(),
        CreateTopicsRequest::default(),
        DeleteTopicsRequest::default(),
        DeleteRecordsRequest::default(),
        InitProducerIdRequest::default(),
        OffsetForLeaderEpochRequest::default(),
        AddPartitionsToTxnRequest::default(),
        AddOffsetsToTxnRequest::default(),
        EndTxnRequest::default(),
        WriteTxnMarkersRequest::default(),
        TxnOffsetCommitRequest::default(),
        any_acl(),
        CreateAclsRequest::default(),
        DeleteAclsRequest::default(),
        DescribeConfigsRequest::default(),
        AlterConfigsRequest::default(),
        DescribeLogDirsRequest::default(),
        CreatePartitionsRequest::default(),
        DeleteGroupsRequest::default(),
        ElectLeadersRequest::default(),
        IncrementalAlterConfigsRequest::default(),
        AlterPartitionReassignmentsRequest::default(),
        ListPartitionReassignmentsRequest::default(),
        OffsetDeleteRequest::default(),
        DescribeClientQuotasRequest::default(),
        AlterClientQuotasRequest::default(),
        DescribeUserScramCredentialsRequest::default(),
        UpdateFeaturesRequest::default(),
        UnregisterBrokerRequest::default().with_broker_id(9_999.into()),
        AlterUserScramCredentialsRequest::default(),
        DescribeClusterRequest::default(),
        DescribeProducersRequest::default(),
        DescribeTransactionsRequest::default(),
        ListTransactionsRequest::default(),
        ConsumerGroupHeartbeatRequest::default(),
        ConsumerGroupDescribeRequest::default(),
        ListConfigResourcesRequest::default(),
        DescribeTopicPartitionsRequest::default(),
    );
    if !is_kafka() {
        ensure!(
            rows.is_empty(),
            "keys advertised that this test can't try: {rows:?}"
        );
    }
    Ok(())
}

/// A filter for every ACL.
fn any_acl() -> DescribeAclsRequest {
    const ANY: i8 = 1;
    DescribeAclsRequest::default()
        .with_resource_type_filter(ANY)
        .with_pattern_type_filter(ANY)
        .with_resource_name_filter(None)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY)
}

/// Tries one API's advertised versions, as far as the codec has them, and takes its row out.
async fn try_versions<R: Request>(rows: &mut Vec<(i16, i16, i16)>, request: &R) -> Result<()> {
    let Some(at) = rows.iter().position(|row| row.0 == R::KEY) else {
        return Ok(());
    };
    let (key, min, max) = rows.remove(at);
    let (lowest, highest) = (min.max(R::VERSIONS.min), max.min(R::VERSIONS.max));
    if !is_kafka() && max > highest {
        bail!("key {key} is advertised up to {max}, and the codec ends at {highest}");
    }
    let mut client = connect().await?;
    // Kafka never answers an AddPartitionsToTxn of version 4 or later without transactions.
    let highest = if is_kafka() && key == AddPartitionsToTxnRequest::KEY {
        highest.min(3)
    } else {
        highest
    };
    for version in lowest..=highest {
        client
            .call(version, request)
            .await
            .with_context(|| format!("key {key}, version {version}"))?;
    }
    Ok(())
}

/// Bounded frames: a length that lies costs no memory and no panic.
#[tokio::test]
async fn array_counts_that_lie_close_the_connection_and_cost_no_memory() -> Result<()> {
    // Metadata v1 with 2^31 − 1 topics, CreateTopics v2 with as many, a string that is longer than the frame.
    let lies: [(i16, i16, &[u8]); 3] = [
        (3, 1, &[0x7f, 0xff, 0xff, 0xff]),
        (19, 2, &[0x7f, 0xff, 0xff, 0xff]),
        (10, 0, &[0x7f, 0xff, b'x']),
    ];
    for (key, version, body) in lies {
        let mut client = connect().await?;
        client.send_by_hand(key, version, body).await?;
        client
            .expect_closed(Duration::from_secs(10))
            .await
            .with_context(|| format!("key {key}"))?;
    }
    let answer = connect()
        .await?
        .call(1, &MetadataRequest::default().with_topics(Some(Vec::new())))
        .await?;
    assert_eq!(answer.brokers.len(), 1, "the broker still answers");
    Ok(())
}
