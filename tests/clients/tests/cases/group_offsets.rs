//! Committed offsets: who may commit, what is answered, when they expire.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    DescribeGroupsRequest, FindCoordinatorRequest, GroupId, ListGroupsRequest, OffsetCommitRequest,
    OffsetFetchRequest,
};
use tidegate_harness::{Broker, BrokerOptions, RawClient, Setting};

use crate::groups::{Member, find_coordinator};
use crate::ops::{Topic, create_topic};
use crate::support::{connect, errors, text, unique};

/// A commit of one offset for partition 0, from outside the group unless the caller changes it.
pub(crate) fn commit_request(group: &str, topic: &Topic, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

/// The partition's error code in the answer to a commit, asked again while the coordinator loads.
pub(crate) async fn commit(
    client: &mut RawClient,
    version: i16,
    request: &OffsetCommitRequest,
) -> Result<i16> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = client.call(version, request).await?;
        let partition = answer
            .topics
            .first()
            .and_then(|topic| topic.partitions.first());
        let code = partition.context("no answer for the partition")?.error_code;
        let passing = [
            errors::COORDINATOR_LOAD_IN_PROGRESS,
            errors::NOT_COORDINATOR,
            15,
        ];
        if !passing.contains(&code) || Instant::now() > deadline {
            return Ok(code);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Commits from outside the group and expects success.
pub(crate) async fn commit_offset(
    client: &mut RawClient,
    group: &str,
    topic: &Topic,
    offset: i64,
) -> Result<()> {
    find_coordinator(client, group).await?;
    let code = commit(client, 8, &commit_request(group, topic, offset)).await?;
    ensure!(code == errors::NONE, "the commit was answered {code}");
    Ok(())
}

/// The committed offset of partition 0, or −1.
pub(crate) async fn committed_offset(
    client: &mut RawClient,
    group: &str,
    topic: &Topic,
) -> Result<i64> {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(topic.wire_name())
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(vec![wanted]));
    let answer = client.call(7, &request).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "OffsetFetch answered {}",
        answer.error_code
    );
    let partition = answer
        .topics
        .first()
        .and_then(|topic| topic.partitions.first());
    let partition = partition.context("no answer for the partition")?;
    ensure!(
        partition.error_code == errors::NONE,
        "OffsetFetch answered {}",
        partition.error_code
    );
    Ok(partition.committed_offset)
}

/// O-GR-04. Permissions (g4) come with ACLs, other coordinators (g5) with the second broker.
#[tokio::test]
async fn many_groups_are_fetched_at_once_each_with_its_own_result() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "batched", 1, &[]).await?;
    let other = create_topic(&mut client, "batched", 1, &[]).await?;
    let (g1, g2, g3) = (unique("g1"), unique("g2"), unique("g3"));
    commit_offset(&mut client, &g1, &topic, 11).await?;
    commit_offset(&mut client, &g2, &topic, 21).await?;
    commit_offset(&mut client, &g2, &other, 22).await?;

    let one_topic = || {
        OffsetFetchRequestTopics::default()
            .with_name(topic.wire_name())
            .with_partition_indexes(vec![0])
    };
    let group = |name: &str, topics| {
        OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(text(name)))
            .with_topics(topics)
    };
    let request = OffsetFetchRequest::default().with_groups(vec![
        group(&g1, Some(vec![one_topic()])),
        group(&g2, None),
        group(&g3, Some(vec![one_topic()])),
    ]);
    let answer = client.call(8, &request).await?;
    let mut got: Vec<(String, i16, Vec<i64>)> = answer
        .groups
        .iter()
        .map(|group| {
            let mut offsets: Vec<i64> = group
                .topics
                .iter()
                .flat_map(|topic| &topic.partitions)
                .map(|p| p.committed_offset)
                .collect();
            offsets.sort_unstable();
            (group.group_id.0.to_string(), group.error_code, offsets)
        })
        .collect();
    got.sort();
    assert_eq!(
        got,
        [
            (g1.clone(), 0, vec![11]),
            (g2.clone(), 0, vec![21, 22]),
            (g3.clone(), 0, vec![-1])
        ]
    );

    for version in [1, 7] {
        let wanted = OffsetFetchRequestTopic::default()
            .with_name(topic.wire_name())
            .with_partition_indexes(vec![0]);
        for (name, offset) in [(&g1, 11), (&g2, 21), (&g3, -1)] {
            let request = OffsetFetchRequest::default()
                .with_group_id(GroupId(text(name)))
                .with_topics(Some(vec![wanted.clone()]));
            let answer = client.call(version, &request).await?;
            assert_eq!(
                answer.topics[0].partitions[0].committed_offset, offset,
                "version {version}"
            );
        }
    }
    Ok(())
}

/// O-GR-04.
#[tokio::test]
async fn one_request_finds_the_coordinators_of_many_groups() -> Result<()> {
    let mut client = connect().await?;
    let keys = [unique("many"), unique("many"), unique("many")];
    find_coordinator(&mut client, &keys[0]).await?;
    let request = FindCoordinatorRequest::default()
        .with_key_type(0)
        .with_coordinator_keys(keys.iter().map(|key| text(key)).collect());
    let answer = client.call(4, &request).await?;
    let mut found: Vec<(String, i16)> = answer
        .coordinators
        .iter()
        .map(|found| (found.key.to_string(), found.error_code))
        .collect();
    found.sort();
    let mut wanted = keys.map(|key| (key, errors::NONE)).to_vec();
    wanted.sort();
    assert_eq!(found, wanted);
    Ok(())
}

/// O-GR-05 (a), (b), (e), (f).
#[tokio::test]
async fn commits_without_a_group_are_stored_or_refused_by_their_generation() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "commit", 1, &[]).await?;
    let simple = unique("simple");
    commit_offset(&mut client, &simple, &topic, 5).await?;
    assert_eq!(
        committed_offset(&mut client, &simple, &topic).await?,
        5,
        "(a)"
    );

    let absent = unique("absent");
    find_coordinator(&mut client, &absent).await?;
    for (version, wanted) in [
        (8, errors::ILLEGAL_GENERATION),
        (9, errors::GROUP_ID_NOT_FOUND),
    ] {
        let mut request = commit_request(&absent, &topic, 5);
        request.generation_id_or_member_epoch = 1;
        assert_eq!(
            commit(&mut client, version, &request).await?,
            wanted,
            "(b), version {version}"
        );
    }

    let mut empty = commit_request(&simple, &topic, 5);
    empty.topics.clear();
    assert!(client.call(8, &empty).await?.topics.is_empty(), "(e)");

    let mut wordy = commit_request(&simple, &topic, 6);
    wordy.topics[0].partitions[0].committed_metadata = Some(text(&"m".repeat(5 * 1024)));
    assert_eq!(
        commit(&mut client, 8, &wordy).await?,
        errors::OFFSET_METADATA_TOO_LARGE,
        "(f)"
    );
    assert_eq!(
        committed_offset(&mut client, &simple, &topic).await?,
        5,
        "(f)"
    );
    Ok(())
}

/// O-GR-05 (c), (d), (g).
#[tokio::test]
async fn only_members_of_the_present_generation_commit_and_an_idle_group_stays_visible()
-> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "commit", 1, &[]).await?;
    let group = unique("stable");
    let member = Member::join_alone(&mut client, &group, &topic.name).await?;

    assert_eq!(
        commit(&mut client, 8, &commit_request(&group, &topic, 5)).await?,
        errors::UNKNOWN_MEMBER_ID,
        "(c)"
    );
    let from_member = |generation| {
        let mut request = commit_request(&group, &topic, 7);
        request.member_id = text(&member.id);
        request.generation_id_or_member_epoch = generation;
        request
    };
    let old = commit(&mut client, 8, &from_member(member.generation - 1)).await?;
    assert_eq!(old, errors::ILLEGAL_GENERATION, "(d)");
    assert_eq!(
        commit(&mut client, 8, &from_member(member.generation)).await?,
        errors::NONE
    );

    member.leave(&mut client).await?;
    let listed = client.call(4, &ListGroupsRequest::default()).await?;
    let row = listed
        .groups
        .iter()
        .find(|row| row.group_id.0.as_str() == group)
        .context("(g): not listed")?;
    assert_eq!(
        (row.protocol_type.as_str(), row.group_state.as_str()),
        ("consumer", "Empty"),
        "(g)"
    );
    let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(&group))]);
    let described = client.call(5, &request).await?;
    assert_eq!(described.groups[0].group_state.as_str(), "Empty", "(g)");
    assert_eq!(
        described.groups[0].protocol_type.as_str(),
        "consumer",
        "(g)"
    );
    let all = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(&group)))
        .with_topics(None);
    let all = client.call(7, &all).await?;
    assert_eq!(all.topics[0].partitions[0].committed_offset, 7, "(g)");
    Ok(())
}

/// O-GR-03. Its own broker with the shortest retention there is, a minute. Takes a hundred seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn offsets_expire_a_retention_after_the_group_went_quiet_and_not_before() -> Result<()> {
    let broker = Broker::start(
        BrokerOptions::default()
            .set(Setting::OffsetsRetentionMinutes, 1)
            .set(Setting::OffsetsRetentionCheckIntervalMs, 1_000),
    )?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let topic = create_topic(&mut client, "expiry", 1, &[]).await?;

    // (b) a member that lives and doesn't commit; (c) a group kept rebalancing.
    let alive = Member::join_alone(&mut client, "alive", &topic.name).await?;
    let mut from_alive = commit_request("alive", &topic, 1);
    from_alive.member_id = text(&alive.id);
    from_alive.generation_id_or_member_epoch = alive.generation;
    assert_eq!(commit(&mut client, 8, &from_alive).await?, errors::NONE);
    let mut restless = Member::join_alone(&mut client, "restless", &topic.name).await?;
    let mut from_restless = commit_request("restless", &topic, 1);
    from_restless.member_id = text(&restless.id);
    from_restless.generation_id_or_member_epoch = restless.generation;
    assert_eq!(commit(&mut client, 8, &from_restless).await?, errors::NONE);

    // (a) an empty group that had a member; (d) commits from outside, in an old version with retention −1 and a new.
    let gone = Member::join_alone(&mut client, "emptied", &topic.name).await?;
    let mut from_gone = commit_request("emptied", &topic, 1);
    from_gone.member_id = text(&gone.id);
    from_gone.generation_id_or_member_epoch = gone.generation;
    assert_eq!(commit(&mut client, 8, &from_gone).await?, errors::NONE);
    gone.leave(&mut client).await?;
    find_coordinator(&mut client, "simple-v2").await?;
    let simple_2 = commit_request("simple-v2", &topic, 1).with_retention_time_ms(-1);
    assert_eq!(commit(&mut client, 2, &simple_2).await?, errors::NONE);
    commit_offset(&mut client, "simple-v8", &topic, 1).await?;

    let expiring = ["emptied", "simple-v2", "simple-v8"];
    let start = Instant::now();
    let mut gone_at = [None; 3];
    while start.elapsed() < Duration::from_secs(100) {
        alive.heartbeat(&mut client).await?;
        restless.rejoin(&mut client).await?;
        for (group, gone_at) in expiring.iter().zip(&mut gone_at) {
            if gone_at.is_none() && committed_offset(&mut client, group, &topic).await? == -1 {
                *gone_at = Some(start.elapsed());
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for (group, gone_at) in expiring.iter().zip(gone_at) {
        let gone_at = gone_at.with_context(|| format!("the offset of {group} never expired"))?;
        let right = Duration::from_secs(55)..Duration::from_secs(95);
        ensure!(
            right.contains(&gone_at),
            "the offset of {group} was gone after {gone_at:?}"
        );
    }
    assert_eq!(
        committed_offset(&mut client, "alive", &topic).await?,
        1,
        "(b)"
    );
    assert_eq!(
        committed_offset(&mut client, "restless", &topic).await?,
        1,
        "(c)"
    );
    Ok(())
}
