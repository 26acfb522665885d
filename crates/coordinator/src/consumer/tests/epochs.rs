//! Group epochs, member epochs, fencing, reconciliation.

use super::*;

#[test]
fn the_first_member_gets_every_partition_at_epoch_1() {
    let mut host = host(&[("t", 3)]);
    let mut a = Consumer::new("a", &["t"]);
    a.beat(&mut host).unwrap();
    assert_eq!(a.epoch.to_wire(), 1);
    assert_eq!(a.assigned, of("t", &[0, 1, 2]));
    assert_eq!(state(&host), ConsumerGroupState::Stable);
    let group = described(&host);
    assert_eq!(
        (group.epoch.to_wire(), group.assignment_epoch.to_wire()),
        (1, 1)
    );
    assert_eq!(group.assignor, "uniform");
}

#[test]
fn a_partition_is_given_to_the_second_member_only_after_the_first_has_given_it_up() {
    let mut host = host(&[("t", 4)]);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    assert_eq!(b.epoch.to_wire(), 2);
    assert!(b.assigned.is_empty());
    assert_eq!(state(&host), ConsumerGroupState::Reconciling);
    // Told to give up, it keeps its epoch, and what it must give up stays its own.
    a.beat(&mut host).unwrap();
    assert_eq!(a.epoch.to_wire(), 1);
    assert_eq!(a.assigned.len(), 2);
    a.beat(&mut host).unwrap();
    b.beat(&mut host).unwrap();
    assert!(b.assigned.is_empty(), "the first still owns them");
    a.follow();
    a.beat(&mut host).unwrap();
    assert_eq!(a.epoch.to_wire(), 2);
    b.beat(&mut host).unwrap();
    assert_eq!(b.assigned.len(), 2);
    assert!(!b.assigned.shares_any_with(&a.assigned));
    assert_eq!(state(&host), ConsumerGroupState::Stable);
}

#[test]
fn a_heartbeat_that_says_nothing_gives_nothing_up() {
    let mut host = host(&[("t", 2)]);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    a.beat(&mut host).unwrap();
    a.follow();
    let answer = send(&mut host, a.short_request()).unwrap();
    assert_eq!(answer.assignment, None);
    b.beat(&mut host).unwrap();
    assert!(b.assigned.is_empty());
}

#[test]
fn an_assignment_is_answered_only_when_it_changed_or_all_was_said() {
    let mut host = host(&[("t", 2)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    assert_eq!(send(&mut host, a.short_request()).unwrap().assignment, None);
    let full = send(&mut host, a.request()).unwrap();
    assert_eq!(full.assignment, Some(of("t", &[0, 1])));
}

#[test]
fn the_previous_epoch_is_accepted_once_the_answer_may_have_been_lost() {
    let mut host = host(&[("t", 2)]);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    a.beat(&mut host).unwrap();
    a.follow();
    let before = a.epoch;
    a.beat(&mut host).unwrap();
    assert_ne!(a.epoch, before);
    // The answer was lost: the client asks again as it was.
    let again = ConsumerHeartbeatRequest {
        member_epoch: before,
        ..a.request()
    };
    assert_eq!(
        send(&mut host, again.clone()).unwrap().member_epoch,
        a.epoch
    );
    let with_more = ConsumerHeartbeatRequest {
        owned: Some(of("t", &[0, 1])),
        ..again
    };
    assert_eq!(
        send(&mut host, with_more).map(|_| ()),
        Err(GroupError::FencedMemberEpoch)
    );
}

#[test]
fn epochs_that_are_not_the_members_are_fenced() {
    let mut host = host(&[("t", 2)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    for epoch in [a.epoch.to_wire() + 1, 7] {
        let request = ConsumerHeartbeatRequest {
            member_epoch: MemberEpoch::from_wire(epoch),
            ..a.short_request()
        };
        assert_eq!(
            send(&mut host, request).map(|_| ()),
            Err(GroupError::FencedMemberEpoch)
        );
    }
}

#[test]
fn who_is_not_in_the_group_is_told_so() {
    let mut host = host(&[("t", 2)]);
    let mut stranger = Consumer::new("x", &["t"]);
    stranger.epoch = MemberEpoch::from_wire(3);
    assert_eq!(
        stranger.clone().beat(&mut host),
        Err(GroupError::GroupIdNotFound)
    );
    Consumer::new("a", &["t"]).settle(&mut host);
    assert_eq!(stranger.beat(&mut host), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_member_that_leaves_frees_its_partitions() {
    let mut host = host(&[("t", 4)]);
    let mut both = [Consumer::new("a", &["t"]), Consumer::new("b", &["t"])];
    converge(&mut host, &mut both);
    let [mut a, mut b] = both;
    b.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    a.settle(&mut host);
    assert_eq!(a.assigned, of("t", &[0, 1, 2, 3]));
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(state(&host), ConsumerGroupState::Empty);
}

#[test]
fn a_silent_member_is_dropped_after_its_session() {
    let mut host = host(&[("t", 2)]);
    let mut both = [Consumer::new("a", &["t"]), Consumer::new("b", &["t"])];
    converge(&mut host, &mut both);
    let [mut a, mut b] = both;
    for _ in 0..4 {
        host.advance(15_000);
        a.beat(&mut host).unwrap();
    }
    a.settle(&mut host);
    assert_eq!(a.assigned, of("t", &[0, 1]));
    assert_eq!(b.beat(&mut host), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_member_that_does_not_give_up_in_time_is_dropped() {
    let mut host = host(&[("t", 2)]);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    a.beat(&mut host).unwrap();
    for _ in 0..10 {
        host.advance(29_000);
        let _ = send(&mut host, a.short_request());
        b.beat(&mut host).unwrap();
    }
    assert!(b.assigned.is_empty());
    host.advance(20_000);
    b.settle(&mut host);
    assert_eq!(b.assigned, of("t", &[0, 1]));
    assert_eq!(a.beat(&mut host), Err(GroupError::UnknownMemberId));
}

#[test]
fn the_session_time_of_the_group_lies_over_the_coordinators() {
    let mut host = Host::new();
    let mut cluster = Cluster::new(&[("t", 1)]);
    cluster.overrides = GroupOverrides {
        session_timeout_ms: Some(60_000),
        heartbeat_interval_ms: Some(7_000),
    };
    see(&mut host, &cluster);
    let mut a = Consumer::new("a", &["t"]);
    let answer = send(&mut host, a.request()).unwrap();
    assert_eq!(answer.heartbeat_interval_ms, 7_000);
    a.take(Ok(answer)).unwrap();
    host.advance(59_000);
    a.beat(&mut host).unwrap();
    host.advance(61_000);
    assert_eq!(a.beat(&mut host), Err(GroupError::UnknownMemberId));
}

#[test]
fn requests_that_say_too_little_or_too_much_are_refused() {
    let mut host = host(&[("t", 1)]);
    let a = Consumer::new("a", &["t"]);
    let full = a.request();
    let is_invalid = |request: ConsumerHeartbeatRequest, host: &mut Host| {
        matches!(send(host, request), Err(GroupError::InvalidHeartbeat(_)))
    };
    let wrong = [
        ConsumerHeartbeatRequest {
            group_id: group(" "),
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            member_id: None,
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            rebalance_timeout_ms: -1,
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            owned: None,
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            owned: Some(of("t", &[0])),
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            topics: None,
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            member_epoch: MemberEpoch::from_wire(-3),
            ..full.clone()
        },
        ConsumerHeartbeatRequest {
            member_epoch: MemberEpoch::LEFT_FOR_A_WHILE,
            ..full.clone()
        },
    ];
    for request in wrong {
        assert!(is_invalid(request.clone(), &mut host), "{request:?}");
    }
    let unknown_assignor = ConsumerHeartbeatRequest {
        server_assignor: Some("sticky".to_owned()),
        ..full.clone()
    };
    assert_eq!(
        send(&mut host, unknown_assignor).map(|_| ()),
        Err(GroupError::UnsupportedAssignor)
    );
    // In version 0 the coordinator makes the id.
    let old = ConsumerHeartbeatRequest {
        api_version: 0,
        member_id: None,
        ..full
    };
    assert!(send(&mut host, old).unwrap().member_id.is_some());
}

#[test]
fn a_full_group_takes_nobody_in() {
    let mut host = Host::with_config(GroupConfig {
        max_consumer_group_size: 1,
        ..GroupConfig::default()
    });
    see(&mut host, &Cluster::new(&[("t", 1)]));
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let refused = Consumer::new("b", &["t"]).beat(&mut host);
    assert_eq!(refused, Err(GroupError::GroupMaxSizeReached));
    a.beat(&mut host).unwrap();
}

#[test]
fn the_assignor_that_most_members_want_is_used() {
    let mut host = host(&[("t", 2), ("u", 2)]);
    let mut both = [
        Consumer::new("a", &["t", "u"]),
        Consumer::new("b", &["t", "u"]),
    ];
    for consumer in &mut both {
        consumer.assignor = Some("range".to_owned());
    }
    converge(&mut host, &mut both);
    assert_eq!(described(&host).assignor, "range");
    for (consumer, index) in both.iter().zip([0, 1]) {
        let mut expected = of("t", &[index]);
        expected.extend(of("u", &[index]).partitions());
        assert_eq!(consumer.assigned, expected);
    }
}

#[test]
fn an_answer_waits_until_what_it_says_is_durable() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    host.hold = true;
    let token = start(&mut host, a.request());
    assert_eq!(reply(&host, token), None);
    host.release();
    a.take(reply(&host, token).unwrap()).unwrap();
    assert_eq!(a.epoch.to_wire(), 1);
}

#[test]
fn a_join_that_is_not_stored_never_happened() {
    let mut host = host(&[("t", 2)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    host.hold = true;
    let token = start(&mut host, Consumer::new("b", &["t"]).request());
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(
        reply(&host, token),
        Some(Err(GroupError::CoordinatorNotAvailable))
    );
    host.release();
    assert_eq!(described(&host).members.len(), 1);
    a.settle(&mut host);
    assert_eq!(a.assigned, of("t", &[0, 1]));
}

#[test]
fn two_members_never_keep_one_partition_after_an_append_in_between_was_refused() {
    let mut host = host(&[("t", 2)]);
    let (mut a, mut b) = (Consumer::new("a", &["t"]), Consumer::new("b", &["t"]));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    a.beat(&mut host).unwrap();
    a.follow();
    host.hold = true;
    let gives_up = start(&mut host, a.request());
    let gets = start(&mut host, b.request());
    host.settle(Err(AppendFailure::Unavailable));
    host.settle(Ok(()));
    host.release();
    assert!(reply(&host, gives_up).unwrap().is_err());
    b.take(reply(&host, gets).unwrap()).unwrap();
    b.follow();
    assert_eq!(b.owned.len(), 1);
    host.coordinator.consumer_groups[&group("g")].assert_consistent();
    // What the refused record said holds all the same, here and after a restart.
    let before = described(&host);
    let (log, now) = (host.log.clone(), host.now());
    let loaded = crate::tests::reload(&host.coordinator.config, &log, now).0;
    loaded.consumer_groups[&group("g")].assert_consistent();
    assert_eq!(before.members[0].assignment[0].2.len(), 1);
    let mut all = [a, b];
    converge(&mut host, &mut all);
    assert_eq!(all[0].owned.len() + all[1].owned.len(), 2);
    let before = described(&host);
    host.restart();
    see(&mut host, &Cluster::new(&[("t", 2)]));
    assert_eq!(described(&host), before);
}

#[test]
fn a_restart_changes_nothing_for_the_members() {
    let mut host = host(&[("t", 4)]);
    let mut all = [Consumer::new("a", &["t"]), Consumer::new("b", &["t"])];
    converge(&mut host, &mut all);
    let before = described(&host);
    host.restart();
    see(&mut host, &Cluster::new(&[("t", 4)]));
    assert_eq!(described(&host), before);
    for consumer in &mut all {
        let answer = send(&mut host, consumer.short_request()).unwrap();
        assert_eq!(
            (answer.member_epoch, answer.assignment),
            (consumer.epoch, None)
        );
    }
    // Silence counts from the restart.
    host.advance(46_000);
    assert_eq!(all[0].beat(&mut host), Err(GroupError::UnknownMemberId));
}
