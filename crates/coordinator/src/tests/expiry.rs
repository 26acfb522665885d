use super::*;

/// Retention of 60 s, checked every second.
fn short_retention() -> Host {
    Host::with_config(GroupConfig {
        offsets_retention_minutes: 1,
        offsets_retention_check_interval_ms: 1_000,
        ..GroupConfig::default()
    })
}

fn stay_alive(host: &mut Host, id: &MemberId, generation: Generation, ms: u64) {
    for _ in 0..ms / 5_000 {
        host.advance(5_000);
        let _ = host.heartbeat(id, generation);
    }
}

#[test]
fn offsets_of_an_empty_group_expire_a_retention_after_it_emptied() {
    let mut host = short_retention();
    let (a, first) = host.stable();
    host.commit(CommitRequest {
        api_version: 2,
        ..member_commit(&a, first, 1)
    });
    stay_alive(&mut host, &a, first, 50_000);
    host.leave(vec![leaving(&a)]);
    host.advance(30_000);
    assert_eq!(
        host.offset("t"),
        1,
        "80 s after the commit, but 30 s after the group emptied"
    );
    host.advance(31_000);
    assert_eq!(host.offset("t"), -1);
    assert_eq!(
        host.state(),
        None,
        "a group without members and offsets goes too"
    );
    host.restart();
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn offsets_of_a_group_with_an_idle_member_are_kept() {
    let mut host = short_retention();
    let (a, first) = host.stable();
    host.commit(member_commit(&a, first, 1));
    stay_alive(&mut host, &a, first, 180_000);
    assert_eq!(host.offset("t"), 1);
}

#[test]
fn a_live_group_loses_the_offsets_of_topics_it_no_longer_reads() {
    let mut host = short_retention();
    let (a, first) = host.stable();
    let offsets = vec![to_commit("t", 1), to_commit("unread", 2)];
    host.commit(CommitRequest {
        offsets,
        ..member_commit(&a, first, 0)
    });
    stay_alive(&mut host, &a, first, 65_000);
    assert_eq!((host.offset("t"), host.offset("unread")), (1, -1));
}

#[test]
fn nothing_expires_while_the_group_rebalances() {
    let mut host = short_retention();
    let (a, first) = host.stable();
    let offsets = vec![to_commit("t", 1), to_commit("unread", 2)];
    host.commit(CommitRequest {
        offsets,
        ..member_commit(&a, first, 0)
    });
    let request = JoinRequest {
        api_version: 3,
        rebalance_timeout_ms: 600_000,
        ..host.request("b")
    };
    host.join(request);
    stay_alive(&mut host, &a, first, 180_000);
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    assert_eq!((host.offset("t"), host.offset("unread")), (1, 2));
}

#[test]
fn the_offsets_of_a_simple_consumer_expire_a_retention_after_the_last_commit() {
    let mut host = short_retention();
    host.commit(simple_commit(1));
    host.advance(50_000);
    host.commit(simple_commit(2));
    host.advance(59_000);
    assert_eq!(host.offset("t"), 2);
    host.advance(2_000);
    assert_eq!(host.offset("t"), -1);
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn a_retention_asked_for_with_the_commit_comes_first() {
    let mut host = short_retention();
    let offsets = vec![to_commit("short", 1)];
    host.commit(CommitRequest {
        api_version: 4,
        retention_ms: 10_000,
        offsets,
        ..simple_commit(0)
    });
    let offsets = vec![to_commit("long", 2)];
    host.commit(CommitRequest {
        api_version: 4,
        retention_ms: 100_000,
        offsets,
        ..simple_commit(0)
    });
    host.restart();
    host.advance(11_000);
    assert_eq!((host.offset("short"), host.offset("long")), (-1, 2));
    host.advance(80_000);
    assert_eq!(host.offset("long"), 2);
    host.advance(10_000);
    assert_eq!(host.offset("long"), -1);
}

#[test]
fn expiry_goes_on_by_the_time_in_the_log_after_a_restart() {
    let mut host = short_retention();
    let (a, first) = host.stable();
    host.commit(member_commit(&a, first, 1));
    host.leave(vec![leaving(&a)]);
    host.advance(40_000);
    host.restart();
    host.advance(15_000);
    assert_eq!(host.offset("t"), 1);
    host.advance(6_000);
    assert_eq!(host.offset("t"), -1);
}

#[test]
fn a_group_whose_tombstones_can_not_be_stored_comes_back_and_is_tried_again() {
    let mut host = short_retention();
    host.commit(simple_commit(1));
    host.hold = true;
    host.advance(60_000);
    assert_eq!(host.offset("t"), 1, "not durable yet");
    assert_eq!(host.coordinator.group_count(), 0);
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(host.coordinator.group_count(), 1);
    host.hold = false;
    host.advance(1_000);
    assert_eq!(host.offset("t"), -1);
}

#[test]
fn a_group_that_a_member_is_about_to_join_is_kept() {
    let mut host = short_retention();
    let request = JoinRequest {
        session_timeout_ms: 100_000,
        ..host.request("c")
    };
    let first = host.join(request.clone());
    let id = host.refused(first).member_id;
    host.advance(5_000);
    let token = host.join(JoinRequest {
        member_id: id,
        ..request
    });
    host.advance(3_000);
    assert_eq!(host.joined(token).generation, generation(1));
}

#[test]
fn many_tombstones_go_in_batches() {
    let mut host = Host::with_config(GroupConfig {
        offsets_retention_minutes: 1,
        offsets_retention_check_interval_ms: 1_000,
        max_cleanup_batch_records: 10,
        ..GroupConfig::default()
    });
    let offsets = (0..25)
        .map(|number| to_commit(&format!("t{number}"), 1))
        .collect();
    host.commit(CommitRequest {
        offsets,
        ..simple_commit(0)
    });
    host.hold = true;
    host.advance(60_000);
    let sizes: Vec<usize> = host.held.iter().map(|(_, records)| records.len()).collect();
    assert_eq!(sizes, [10, 10, 6]);
    host.release();
    assert_eq!(host.offset("t0"), -1);
}
