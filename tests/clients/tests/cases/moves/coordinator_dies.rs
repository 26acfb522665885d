//! `kill -9` of the broker that coordinates a group and transactions.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kafka_protocol::messages::FindCoordinatorRequest;
use tidegate_harness::{Durability, RawClient};

use super::groups::{OFFSETS_TOPIC, partition_of};
use super::{Arena, PATIENCE, PAUSE};
use crate::group_offsets::{commit, commit_offset, commit_request, committed_offset};
use crate::groups::{Member, find_coordinator};
use crate::ops::Topic;
use crate::support::{errors, text, unique};
use crate::txn_ops::{
    BOTH, Producer, Protocol, find_transaction_coordinator, read, stable_offset, until,
};

const TRANSACTIONS_TOPIC: &str = "__transaction_state";
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Transactions in every state that a crash can find, by one of the two protocols.
struct Transactions {
    protocol: Protocol,
    group: String,
    /// Its commit is answered right before the crash.
    decided: Producer,
    /// Its client goes on after the crash.
    open: Producer,
}

/// Writes one record to each topic, in the producer's transaction.
async fn write(
    arena: &mut Arena,
    topics: &[(Topic, u32); 2],
    coordinator: u32,
    producer: &mut Producer,
    value: &str,
) -> Result<()> {
    for (topic, leader) in topics {
        if producer.produce_version() < 12 {
            let mut client = arena.client(coordinator).await?;
            let added = producer.add_partitions(&mut client, 3, topic, &[0]).await?;
            ensure!(added == errors::NONE, "AddPartitionsToTxn answered {added}");
        }
        let batch = producer.batch(topic, 0, &[value]);
        let mut client = arena.client(*leader).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = producer
                .send(&mut client, topic, 0, batch.clone())
                .await?
                .error_code;
            if answer == errors::NONE {
                break;
            }
            ensure!(Instant::now() < deadline, "Produce answered {answer}");
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// The broker that coordinates a key, as soon as the broker that is asked names one that runs.
async fn living_coordinator(arena: &mut Arena, asked: u32, kind: i8, key: &str) -> Result<u32> {
    let deadline = Instant::now() + PATIENCE;
    let mut client = arena.client(asked).await?;
    loop {
        let request = FindCoordinatorRequest::default()
            .with_key(text(key))
            .with_key_type(kind);
        let answer = client.call(3, &request).await?;
        if answer.error_code == errors::NONE {
            let named = u32::try_from(answer.node_id.0)?;
            if arena.running().contains(&named) {
                return Ok(named);
            }
        }
        ensure!(Instant::now() < deadline, "{key} has no coordinator");
        tokio::time::sleep(PAUSE).await;
    }
}

/// A heartbeat's code once the coordinator has its group.
async fn heartbeat_code(client: &mut RawClient, member: &Member) -> Result<i16> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let code = member.heartbeat_code(client).await?;
        let passing = [
            errors::COORDINATOR_LOAD_IN_PROGRESS,
            errors::NOT_COORDINATOR,
        ];
        if !passing.contains(&code) || Instant::now() > deadline {
            return Ok(code);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The values that readers of committed records see, once nothing is open any more.
async fn committed_values(client: &mut RawClient, topic: &Topic) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let whole = read(client, topic, 0, true, Duration::ZERO).await?;
        if whole.last_stable == whole.high_watermark {
            let mut values = whole.valid;
            values.sort();
            return Ok(values);
        }
        ensure!(
            Instant::now() < deadline,
            "a transaction hangs in {}",
            topic.name
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// The partitions of a coordinators' topic that keep these keys.
fn places(keys: &[String], broker: u32) -> Vec<(i32, u32)> {
    let mut partitions: Vec<i32> = keys.iter().map(|key| partition_of(key)).collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
        .into_iter()
        .map(|index| (index, broker))
        .collect()
}

async fn coordinator_dies(durability: Durability) -> Result<()> {
    let mut arena = Arena::start(3, durability).await?;
    let controller = arena.controller()?;
    let (victim, third) = (controller % 3 + 1, (controller + 1) % 3 + 1);
    let topics = [
        (arena.create_topic(1, controller).await?, controller),
        (arena.create_topic(1, third).await?, third),
    ];
    let group = unique("group");
    let keys = |what: &str| BOTH.map(|protocol| unique(&format!("{what}-{protocol:?}")));
    let (decided, open, dead) = (keys("decided"), keys("open"), keys("dead"));
    let groups = keys("offsets");
    let mut client = arena.client(controller).await?;
    find_coordinator(&mut client, &group).await?;
    find_transaction_coordinator(&mut client, &decided[0]).await?;
    let all_groups = [&[group.clone()][..], &groups].concat();
    let moves = places(&all_groups, victim);
    arena.move_all(OFFSETS_TOPIC, &moves).await?;
    let all_ids = [&decided[..], &open, &dead].concat();
    let moves = places(&all_ids, victim);
    arena.move_all(TRANSACTIONS_TOPIC, &moves).await?;

    let mut client = arena.client(victim).await?;
    let topic = topics[0].0.clone();
    let mut member = Member::new(&group, &topic.name, Some("i"));
    member.session_timeout_ms = 30_000;
    let member = member.joined_alone(&mut client).await?;
    for group in &groups {
        commit_offset(&mut client, group, &topic, 5).await?;
    }
    let mut all = Vec::new();
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let mut transactions = Transactions {
            protocol,
            group: groups[at].clone(),
            decided: Producer::begin(&mut client, &decided[at], protocol).await?,
            open: Producer::begin(&mut client, &open[at], protocol).await?,
        };
        let mut dead = Producer::with_timeout(&mut client, &dead[at], protocol, 6_000).await?;
        write(
            &mut arena,
            &topics,
            victim,
            &mut transactions.decided,
            "decided",
        )
        .await?;
        let decided = &transactions.decided;
        decided
            .commit_offset(&mut client, &groups[at], &topic, 7)
            .await?;
        write(&mut arena, &topics, victim, &mut transactions.open, "open").await?;
        write(&mut arena, &topics, victim, &mut dead, "dead").await?;
        all.push(transactions);
    }
    for transactions in &mut all {
        transactions.decided.end(&mut client, true).await?;
    }
    arena.cluster.broker(victim)?.kill()?;
    if durability == Durability::Local {
        // Its partitions are on its disk.
        let broker = arena.cluster.broker(victim)?;
        broker.launch()?;
        broker.wait_ready(PATIENCE)?;
    }

    // The group goes on with the members and the generation that it had, and no offset is lost.
    let now = living_coordinator(&mut arena, controller, GROUP, &group).await?;
    let mut client = arena.client(now).await?;
    assert_eq!(heartbeat_code(&mut client, &member).await?, errors::NONE);
    let request = commit_request(&group, &topic, 9)
        .with_generation_id_or_member_epoch(member.generation)
        .with_member_id(text(&member.id))
        .with_group_instance_id(Some(text("i")));
    assert_eq!(commit(&mut client, 8, &request).await?, errors::NONE);
    assert_eq!(committed_offset(&mut client, &group, &topic).await?, 9);

    for transactions in &mut all {
        let group = &transactions.group;
        let now = living_coordinator(&mut arena, controller, GROUP, group).await?;
        let mut client = arena.client(now).await?;
        until("the decided transaction's offset", PATIENCE, async || {
            let stable = stable_offset(&mut client, group, &topic).await?;
            Ok(stable == (errors::NONE, 7))
        })
        .await?;
        let id = transactions.open.transactional_id.clone();
        let now = living_coordinator(&mut arena, controller, TRANSACTION, &id).await?;
        let mut client = arena.client(now).await?;
        let ended = transactions.open.end(&mut client, true).await;
        ensure!(ended.is_ok(), "{:?}: {ended:?}", transactions.protocol);
    }
    for (topic, leader) in &topics {
        let mut client = arena.client(*leader).await?;
        assert_eq!(
            committed_values(&mut client, topic).await?,
            ["decided", "decided", "open", "open"]
        );
    }
    Ok(())
}

/// Other brokers take its partitions over.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_coordinator_that_is_killed_loses_no_offset_and_tears_no_transaction() -> Result<()> {
    coordinator_dies(Durability::Object).await
}

/// It comes back with its disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_coordinator_that_is_killed_and_returns_goes_on_where_it_was() -> Result<()> {
    coordinator_dies(Durability::Local).await
}
