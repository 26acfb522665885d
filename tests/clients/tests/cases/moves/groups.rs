//! A group whose coordinator moves.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kafka_protocol::messages::FindCoordinatorRequest;
use tidegate_harness::{Durability, RawClient};

use super::{Arena, PATIENCE, PAUSE};
use crate::groups::{Member, find_coordinator, group_state, removed_by_silence};
use crate::support::{errors, text, unique};

/// Partitions of `__consumer_offsets`, unless configured.
const OFFSETS_PARTITIONS: i32 = 50;
pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The broker that coordinates a group, as this broker says.
pub(super) async fn coordinator(client: &mut RawClient, group: &str) -> Result<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = FindCoordinatorRequest::default()
            .with_key(text(group))
            .with_key_type(0);
        let answer = client.call(3, &request).await?;
        if answer.error_code == errors::NONE {
            return Ok(u32::try_from(answer.node_id.0)?);
        }
        ensure!(
            Instant::now() < deadline,
            "FindCoordinator answers {}",
            answer.error_code
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// The partition of `__consumer_offsets` that keeps a group: the absolute value of Java's hash of its name. Clearing
/// the sign instead is right for half of all names only.
pub(super) fn partition_of(group: &str) -> i32 {
    let hash = group.bytes().fold(0_i32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(i32::from(byte))
    });
    hash.checked_abs().unwrap_or(0) % OFFSETS_PARTITIONS
}

/// Moves a group's coordinator to another broker, and waits until all know.
async fn move_coordinator(arena: &mut Arena, group: &str, to: u32) -> Result<()> {
    arena
        .move_all(OFFSETS_TOPIC, &[(partition_of(group), to)])
        .await?;
    let deadline = Instant::now() + PATIENCE;
    for id in arena.running() {
        let mut client = arena.client(id).await?;
        while coordinator(&mut client, group).await? != to {
            ensure!(
                Instant::now() < deadline,
                "broker {id} names another coordinator"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// A heartbeat's code once the coordinator has loaded.
async fn heartbeat_code(client: &mut RawClient, member: &Member) -> Result<i16> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let code = member.heartbeat_code(client).await?;
        if code != errors::COORDINATOR_LOAD_IN_PROGRESS {
            return Ok(code);
        }
        ensure!(Instant::now() < deadline, "the coordinator loads for ever");
        tokio::time::sleep(PAUSE).await;
    }
}

/// O-GR-01, with a move of the coordinator instead of a restart; twice, so that it also comes back.
#[tokio::test]
async fn a_static_member_that_rejoined_survives_a_move_of_its_coordinator() -> Result<()> {
    let mut arena = Arena::start(2, Durability::Local).await?;
    let group = unique("static");
    let mut client = arena.client(1).await?;
    find_coordinator(&mut client, &group).await?;
    let mut from = coordinator(&mut client, &group).await?;
    let mut client = arena.client(from).await?;
    let mut first = Member::new(&group, "t", Some("i"));
    // Moves take a fraction of it, also on a slow machine.
    first.session_timeout_ms = 20_000;
    let first = first.joined_alone(&mut client).await?;
    let mut second = Member {
        id: String::new(),
        ..first.clone()
    };
    second.join(&mut client).await?;
    ensure!(second.id != first.id, "the rejoin kept the member id");
    assert_eq!(second.generation, first.generation);
    assert_eq!(&second.sync(&mut client, &[]).await?[..], b"assignment");

    for _ in 0..2 {
        let to = 3 - from;
        move_coordinator(&mut arena, &group, to).await?;
        let mut former = arena.client(from).await?;
        // It hears of the move a moment after the commit; until then a heartbeat there changes nothing.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match second.heartbeat_code(&mut former).await? {
                errors::NOT_COORDINATOR => break,
                code => ensure!(
                    Instant::now() < deadline,
                    "the former coordinator still answers for the group: {code}"
                ),
            }
            tokio::time::sleep(PAUSE).await;
        }
        let mut client = arena.client(to).await?;
        assert_eq!(heartbeat_code(&mut client, &second).await?, errors::NONE);
        assert_eq!(
            heartbeat_code(&mut client, &first).await?,
            errors::FENCED_INSTANCE_ID
        );
        assert_eq!(
            group_state(&mut client, &group).await?,
            ("Stable".to_owned(), 1)
        );
        from = to;
    }

    // At its new coordinator too.
    let mut client = arena.client(from).await?;
    removed_by_silence(&mut client, &group, Duration::from_secs(10), PATIENCE).await
}
