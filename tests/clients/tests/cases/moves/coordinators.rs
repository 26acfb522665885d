//! What a client sees of a coordinator that moves, request by request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::OffsetCommitRequest;
use tidegate_harness::{Durability, RawClient};

use super::groups::{OFFSETS_TOPIC, coordinator, partition_of};
use super::{Arena, PATIENCE, PAUSE};
use crate::group_offsets::{commit_request, committed_offset};
use crate::groups::find_coordinator;
use crate::ops::Topic;
use crate::support::{errors, unique};

const MOVES: u32 = 12;

/// Commits one offset after the other, at whoever takes them.
struct Committer {
    addresses: [String; 2],
    group: String,
    topic: Topic,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI64>,
}

impl Committer {
    /// Commits until stopped. How often each code was answered.
    async fn run(self) -> Result<BTreeMap<i16, u32>> {
        let mut codes = BTreeMap::new();
        let mut clients = Vec::new();
        for address in &self.addresses {
            clients.push(RawClient::connect(address).await?);
        }
        let mut at = 0;
        for offset in 1.. {
            let request = commit_request(&self.group, &self.topic, offset);
            let deadline = Instant::now() + PATIENCE;
            loop {
                let code = answer(&mut clients[at], &request).await?;
                *codes.entry(code).or_insert(0) += 1;
                if code == errors::NONE {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "a commit is still answered {code}"
                );
                // No pause: whoever comes early is the one to be kept waiting.
                if code == errors::NOT_COORDINATOR {
                    at = 1 - at;
                }
            }
            self.acknowledged.store(offset, Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
        }
        Ok(codes)
    }
}

/// How many coordinators of groups a move had got ready, by a broker's metrics.
fn warm_starts(page: &str) -> u64 {
    page.lines()
        .filter(|line| line.contains("coordinator_load_duration_seconds_count"))
        .filter(|line| line.contains(r#"kind="group""#) && line.contains(r#"start="warm""#))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

async fn answer(client: &mut RawClient, request: &OffsetCommitRequest) -> Result<i16> {
    let answer = client.call(8, request).await?;
    let topic = answer.topics.first();
    let partition = topic.and_then(|topic| topic.partitions.first());
    Ok(partition.context("no answer for the partition")?.error_code)
}

async fn a_moving_coordinator_is_told_apart_only_by_where_it_is(
    durability: Durability,
) -> Result<()> {
    let mut arena = Arena::start(2, durability).await?;
    let topic = arena.create_topic(1, 1).await?;
    let group = unique("moved");
    let mut client = arena.client(1).await?;
    find_coordinator(&mut client, &group).await?;
    let mut at = coordinator(&mut client, &group).await?;
    let (stop, acknowledged) = <(Arc<AtomicBool>, Arc<AtomicI64>)>::default();
    let committer = Committer {
        addresses: [1, 2].map(|id| {
            let broker = arena.cluster.broker(id);
            broker.map(|broker| broker.bootstrap()).unwrap_or_default()
        }),
        group: group.clone(),
        topic: topic.clone(),
        stop: stop.clone(),
        acknowledged: acknowledged.clone(),
    };
    let committing = tokio::spawn(committer.run());
    for _ in 0..MOVES {
        let before = acknowledged.load(Ordering::SeqCst);
        at = 3 - at;
        arena
            .move_all(OFFSETS_TOPIC, &[(partition_of(&group), at)])
            .await?;
        let deadline = Instant::now() + PATIENCE;
        while acknowledged.load(Ordering::SeqCst) < before + 3 {
            ensure!(!committing.is_finished(), "the committer gave up");
            ensure!(
                Instant::now() < deadline,
                "nothing is committed after a move"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let codes = committing.await??;
    println!("codes: {codes:?}");
    let last = acknowledged.load(Ordering::SeqCst);
    let mut client = arena.client(at).await?;
    assert_eq!(committed_offset(&mut client, &group, &topic).await?, last);
    // A client that is told that the coordinator loads, or can't write, waits for longer than the move takes. A slow
    // machine may have one that isn't ready within a second.
    let refusals: u32 = codes
        .iter()
        .filter(|(code, _)| ![errors::NONE, errors::NOT_COORDINATOR].contains(code))
        .map(|(_, count)| *count)
        .sum();
    ensure!(refusals <= MOVES / 4, "after {MOVES} moves: {codes:?}");
    // Each had read the log by the time it led.
    let mut warm = 0;
    for id in [1, 2] {
        let page = arena.cluster.broker(id)?.admin_get("/metrics")?;
        warm += warm_starts(&page.body);
    }
    ensure!(
        warm * 4 >= u64::from(MOVES) * 3,
        "only {warm} coordinators were ready after {MOVES} moves"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_over_moves_of_their_coordinator_are_kept_and_hardly_ever_refused_local()
-> Result<()> {
    a_moving_coordinator_is_told_apart_only_by_where_it_is(Durability::Local).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_over_moves_of_their_coordinator_are_kept_and_hardly_ever_refused_object()
-> Result<()> {
    a_moving_coordinator_is_told_apart_only_by_where_it_is(Durability::Object).await
}
