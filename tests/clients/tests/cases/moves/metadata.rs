//! What every broker says about a partition while it changes hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};
use tidegate_harness::{Durability, RawClient, TestBatch};

use super::{Arena, PASSING, PATIENCE, PAUSE, metadata_of};
use crate::ops::{Topic, produce};
use crate::support::{errors, now_ms};

const MOVES: u32 = 10;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// Answers without an error that each broker must have given, so that the case says anything.
const ENOUGH: u64 = 20;

/// What the writer and the watchers share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The end of what is acknowledged.
    acknowledged: AtomicI64,
    offsets_answered: AtomicU64,
}

/// ListOffsets of partition 0: code and offset. `epoch`: what the client takes for the present leader epoch.
async fn ask_offset(
    client: &mut RawClient,
    topic: &Topic,
    timestamp: i64,
    epoch: i32,
) -> Result<(i16, i64)> {
    let partition = ListOffsetsPartition::default()
        .with_current_leader_epoch(epoch)
        .with_timestamp(timestamp);
    let wanted = ListOffsetsTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![wanted]);
    let answer = client.call(7, &request).await?;
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let partition = partitions.last().context("no answer for the partition")?;
    Ok((partition.error_code, partition.offset))
}

/// LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE.
const NO_OFFSET: [i16; 3] = [5, errors::NOT_LEADER_OR_FOLLOWER, 78];

/// Asks one broker again and again.
async fn watch(bootstrap: String, topic: Topic, shared: Arc<Shared>) -> Result<u64> {
    let mut client = RawClient::connect(&bootstrap).await?;
    let (mut last_epoch, mut seen) = (-1, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        let found = metadata_of(&mut client, &topic, 0).await?;
        let epoch = found.leader_epoch;
        if epoch >= 0 {
            ensure!(
                epoch >= last_epoch,
                "{bootstrap}: epoch {epoch} after {last_epoch}"
            );
            last_epoch = epoch;
            seen += 1;
        }
        // What was acknowledged before the question must be in the answer.
        let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
        let (code, offset) = ask_offset(&mut client, &topic, LATEST, -1).await?;
        match code {
            errors::NONE => {
                ensure!(
                    offset >= acknowledged,
                    "{bootstrap}: end offset {offset}, and {acknowledged} was acknowledged"
                );
                shared.offsets_answered.fetch_add(1, Ordering::Relaxed);
            }
            code => ensure!(
                NO_OFFSET.contains(&code) && offset == -1,
                "{bootstrap}: latest offset {offset}, code {code}"
            ),
        }
        let (code, offset) = ask_offset(&mut client, &topic, EARLIEST, -1).await?;
        let right = match code {
            errors::NONE => offset == 0,
            code => NO_OFFSET.contains(&code) && offset == -1,
        };
        ensure!(right, "{bootstrap}: earliest offset {offset}, code {code}");
    }
    Ok(seen)
}

/// Writes to whoever leads, one record after another.
async fn write(bootstraps: Vec<String>, topic: Topic, shared: Arc<Shared>) -> Result<()> {
    let mut clients = Vec::new();
    for bootstrap in &bootstraps {
        clients.push(RawClient::connect(bootstrap).await?);
    }
    let batch = TestBatch::of_values(now_ms(), ["v"]).encode();
    let mut at = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let answer = produce(&mut clients[at], 9, &topic, 0, batch.clone()).await?;
        match answer.error_code {
            errors::NONE => shared
                .acknowledged
                .store(answer.base_offset + 1, Ordering::SeqCst),
            code => {
                ensure!(PASSING.contains(&code), "produce was answered {code}");
                at = (at + 1) % clients.len();
            }
        }
    }
    Ok(())
}

/// O-FO-04.
#[tokio::test]
async fn epochs_never_go_back_and_no_end_offset_is_too_small_while_a_partition_moves() -> Result<()>
{
    let mut arena = Arena::start(3, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let (_, first_epoch) = arena.led_by(&topic, 0, |id| id == 1).await?;
    let shared = Arc::new(Shared::default());
    let bootstraps: Vec<String> = arena
        .cluster
        .brokers()
        .iter()
        .map(tidegate_harness::Broker::bootstrap)
        .collect();
    let watching: Vec<_> = bootstraps
        .iter()
        .map(|bootstrap| tokio::spawn(watch(bootstrap.clone(), topic.clone(), shared.clone())))
        .collect();
    let writing = tokio::spawn(write(bootstraps, topic.clone(), shared.clone()));
    let mut moved = Ok(());
    for number in 0..MOVES {
        moved = arena.move_to(&topic, 0, (number + 1) % 3 + 1).await;
        if moved.is_err() {
            break;
        }
        // Somebody has written and asked since, so that each leader is heard.
        let (acknowledged, answered) = (
            shared.acknowledged.load(Ordering::SeqCst),
            shared.offsets_answered.load(Ordering::Relaxed),
        );
        let deadline = Instant::now() + PATIENCE;
        while shared.acknowledged.load(Ordering::SeqCst) <= acknowledged
            || shared.offsets_answered.load(Ordering::Relaxed) <= answered
        {
            if watching.iter().any(tokio::task::JoinHandle::is_finished) || writing.is_finished() {
                break;
            }
            ensure!(Instant::now() < deadline, "nothing goes on after a move");
            tokio::time::sleep(PAUSE).await;
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    for watcher in watching {
        let seen = watcher.await??;
        ensure!(seen >= ENOUGH, "a broker told only {seen} epochs");
    }
    writing.await??;
    moved?;
    let (_, last_epoch) = arena.led_by(&topic, 0, |_| true).await?;
    ensure!(
        last_epoch >= first_epoch + MOVES.cast_signed(),
        "epoch {last_epoch} after {MOVES} moves from {first_epoch}"
    );
    Ok(())
}

/// Asks one broker for the leader, and that leader at once whether it serves. One that doesn't must have given the
/// partition up since; it may not be a leader that is named too early.
async fn watch_names(
    bootstraps: Vec<String>,
    at: usize,
    topic: Topic,
    stop: Arc<AtomicBool>,
) -> Result<u64> {
    let mut own = RawClient::connect(&bootstraps[at]).await?;
    let mut leaders = Vec::new();
    for bootstrap in &bootstraps {
        leaders.push(RawClient::connect(bootstrap).await?);
    }
    let mut served = 0;
    while !stop.load(Ordering::Relaxed) {
        let named = metadata_of(&mut own, &topic, 0).await?;
        let Ok(leader) = usize::try_from(named.leader_id.0 - 1) else {
            continue;
        };
        let deadline = Instant::now() + PATIENCE;
        let mut refused = None;
        loop {
            let asked = ask_offset(&mut leaders[leader], &topic, LATEST, named.leader_epoch);
            match asked.await?.0 {
                errors::NONE => match refused {
                    None => break served += 1,
                    Some(code) => bail!(
                        "broker {} named {} under epoch {}, which answered {code} before it served",
                        at + 1,
                        leader + 1,
                        named.leader_epoch
                    ),
                },
                // FENCED_LEADER_EPOCH: it leads again, under a later epoch.
                74 => break,
                code => refused = Some(code),
            }
            let now = metadata_of(&mut own, &topic, 0).await?;
            if now.leader_epoch > named.leader_epoch {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "broker {} doesn't serve, and goes on being named",
                leader + 1
            );
        }
    }
    Ok(served)
}

/// O-FO-02: metadata never names a broker that can't serve yet.
#[tokio::test]
async fn a_leader_that_is_named_serves() -> Result<()> {
    let mut arena = Arena::start(3, Durability::Local).await?;
    let topic = arena.create_topic(1, 1).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let bootstraps: Vec<String> = arena
        .cluster
        .brokers()
        .iter()
        .map(tidegate_harness::Broker::bootstrap)
        .collect();
    let watching: Vec<_> = (0..bootstraps.len())
        .map(|at| {
            tokio::spawn(watch_names(
                bootstraps.clone(),
                at,
                topic.clone(),
                stop.clone(),
            ))
        })
        .collect();
    let mut moved = Ok(());
    for number in 0..MOVES {
        moved = arena.move_to(&topic, 0, (number + 1) % 3 + 1).await;
        tokio::time::sleep(PAUSE).await;
        if moved.is_err() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for watcher in watching {
        let served = watcher.await??;
        ensure!(served > 0, "a broker named nobody who serves");
    }
    moved
}
