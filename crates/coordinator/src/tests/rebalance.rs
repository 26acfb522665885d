use super::*;

#[test]
fn a_newcomer_makes_the_members_join_again() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let (b, b_join) = host.join_dynamic("b");
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    assert_eq!(
        host.heartbeat(&a, first),
        Err(GroupError::RebalanceInProgress)
    );
    let request = JoinRequest {
        member_id: Some(a.clone()),
        ..host.request("c")
    };
    let a_join = host.join(request);
    // All are there: no waiting.
    let (a_joined, b_joined) = (host.joined(a_join), host.joined(b_join));
    assert_eq!(a_joined.generation, generation(2));
    assert_eq!(a_joined.leader, Some(a));
    assert_eq!(a_joined.members.len(), 2);
    assert_eq!(b_joined.member_id, b);
    assert!(
        b_joined.members.is_empty(),
        "only the leader sees the members"
    );
}

#[test]
fn members_that_do_not_rejoin_in_time_are_dropped_and_another_one_leads() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let (b, b_join) = host.join_dynamic("b");
    for _ in 0..20 {
        host.advance(2_999);
        assert_eq!(
            host.heartbeat(&a, first),
            Err(GroupError::RebalanceInProgress)
        );
        assert!(!host.replies.contains_key(&b_join));
    }
    host.advance(60_000 - 20 * 2_999);
    let joined = host.joined(b_join);
    assert_eq!(joined.leader, Some(b));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(host.heartbeat(&a, first), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_rebalance_to_which_nobody_comes_waits_until_the_sessions_end() {
    let mut host = Host::new();
    let request = JoinRequest {
        session_timeout_ms: 100_000,
        rebalance_timeout_ms: 5_000,
        ..host.static_request("i")
    };
    let token = host.join(request);
    host.advance(3_000);
    let leader = host.joined(token);
    let leader_id = leader.member_id.clone();
    host.sync(&leader_id, leader.generation, &[]);
    // A newcomer that starts a rebalance and leaves again.
    let request = JoinRequest {
        api_version: 3,
        rebalance_timeout_ms: 5_000,
        ..host.request("x")
    };
    let newcomer = host.join(request);
    let newcomer_id = MemberId::from_wire(&format!("x-{}", Uuid::from_u128(2))).unwrap();
    let left = host.leave(vec![leaving(&newcomer_id)]);
    assert!(matches!(host.replies[&left], Reply::Leave(Ok(_))));
    assert_eq!(host.refused(newcomer).error, GroupError::UnknownMemberId);
    host.advance(20_000);
    assert!(
        host.notices
            .contains(&Notice::NobodyRejoined { group: group("g") })
    );
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    host.advance(100_000);
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn the_leader_can_force_a_rebalance_and_a_follower_without_changes_can_not() {
    let mut host = Host::new();
    let (a, b, first) = host.stable_pair();
    let request = JoinRequest {
        member_id: Some(b.clone()),
        ..host.request("b")
    };
    let follower = host.join(request);
    assert_eq!(host.joined(follower).generation, first);
    assert_eq!(host.state(), Some(GroupState::Stable));

    let request = JoinRequest {
        member_id: Some(a),
        ..host.request("a")
    };
    let leader = host.join(request);
    assert!(!host.replies.contains_key(&leader));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn a_follower_with_new_metadata_forces_a_rebalance() {
    let mut host = Host::new();
    let (_, b, _) = host.stable_pair();
    let changed = JoinRequest {
        member_id: Some(b),
        protocols: vec![protocol("range", &["t", "u"])],
        ..host.request("b")
    };
    host.join(changed);
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn a_repeated_join_in_completing_rebalance_gets_the_same_generation_again() {
    let mut host = Host::new();
    let (a, token) = host.join_dynamic("c");
    host.advance(3_000);
    let first = host.joined(token);
    let request = JoinRequest {
        member_id: Some(a),
        ..host.request("c")
    };
    let again = host.join(request);
    assert_eq!(host.joined(again), first);
}

#[test]
fn a_changed_join_in_completing_rebalance_sends_the_waiting_members_back() {
    let mut host = Host::new();
    let (a, _) = host.join_dynamic("a");
    let (b, b_join) = host.join_dynamic("b");
    host.advance(10_000);
    let first = host.joined(b_join).generation;
    let b_sync = host.sync(&b, first, &[]);
    let changed = JoinRequest {
        member_id: Some(a),
        protocols: vec![protocol("range", &["u"])],
        ..host.request("a")
    };
    host.join(changed);
    assert_eq!(host.synced(b_sync), Err(GroupError::RebalanceInProgress));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn members_that_do_not_sync_in_time_are_dropped() {
    let mut host = Host::new();
    let (a, a_join) = host.join_dynamic("a");
    let (b, _) = host.join_dynamic("b");
    host.advance(10_000);
    let first = host.joined(a_join).generation;
    let a_sync = host.sync(&a, first, &[(&a, "A")]);
    assert_eq!(host.synced(a_sync), Ok(Bytes::from_static(b"A")));
    // The sync timer started when the join phase ended, at most 10 s ago.
    for _ in 0..30 {
        host.advance(2_000);
        let _ = host.heartbeat(&a, first);
        let _ = host.heartbeat(&b, first);
    }
    assert_eq!(host.heartbeat(&b, first), Err(GroupError::UnknownMemberId));
    assert_eq!(
        host.heartbeat(&a, first),
        Err(GroupError::RebalanceInProgress)
    );
}

#[test]
fn sync_checks_member_generation_and_protocol() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let good = SyncRequest {
        group_id: group("g"),
        member_id: Some(a.clone()),
        instance_id: None,
        generation: Some(first),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: Vec::new(),
    };
    let cases = [
        (good.clone(), None),
        (
            SyncRequest {
                member_id: None,
                ..good.clone()
            },
            Some(GroupError::UnknownMemberId),
        ),
        (
            SyncRequest {
                group_id: group("other"),
                ..good.clone()
            },
            Some(GroupError::UnknownMemberId),
        ),
        (
            SyncRequest {
                group_id: group(""),
                ..good.clone()
            },
            Some(GroupError::InvalidGroupId),
        ),
        (
            SyncRequest {
                generation: Some(generation(7)),
                ..good.clone()
            },
            Some(GroupError::IllegalGeneration),
        ),
        (
            SyncRequest {
                generation: None,
                ..good.clone()
            },
            Some(GroupError::IllegalGeneration),
        ),
        (
            SyncRequest {
                protocol_type: Some("connect".to_owned()),
                ..good.clone()
            },
            Some(GroupError::InconsistentGroupProtocol),
        ),
        (
            SyncRequest {
                protocol_name: Some("sticky".to_owned()),
                ..good
            },
            Some(GroupError::InconsistentGroupProtocol),
        ),
    ];
    for (request, error) in cases {
        let token = host.token();
        let effects = host.coordinator.sync(host.now(), token, request);
        host.carry_out(effects);
        assert_eq!(host.synced(token).err(), error);
    }
}

#[test]
fn members_whom_the_leader_forgot_get_an_empty_assignment() {
    let mut host = Host::new();
    let (a, a_join) = host.join_dynamic("a");
    let (b, _) = host.join_dynamic("b");
    host.advance(10_000);
    let first = host.joined(a_join).generation;
    let b_sync = host.sync(&b, first, &[]);
    host.sync(&a, first, &[(&a, "A")]);
    assert_eq!(host.synced(b_sync), Ok(Bytes::new()));
}

#[test]
fn sync_in_a_stable_group_gives_the_assignment_again() {
    let mut host = Host::new();
    let (_, b, first) = host.stable_pair();
    let again = host.sync(&b, first, &[]);
    assert_eq!(host.synced(again), Ok(Bytes::from_static(b"B")));
}
