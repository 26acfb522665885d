use super::*;

fn instance(id: &str) -> Option<InstanceId> {
    Some(InstanceId::new(id).unwrap())
}

/// A stable group of one static member `i`.
fn stable_static(host: &mut Host) -> (MemberId, Generation) {
    let request = host.static_request("i");
    let token = host.join(request);
    host.advance(3_000);
    let joined = host.joined(token);
    let sync = host.sync(
        &joined.member_id,
        joined.generation,
        &[(&joined.member_id, "mine")],
    );
    assert_eq!(host.synced(sync), Ok(Bytes::from_static(b"mine")));
    (joined.member_id, joined.generation)
}

fn static_heartbeat(
    host: &mut Host,
    id: &MemberId,
    generation: Generation,
) -> Result<(), GroupError> {
    let request = HeartbeatRequest {
        group_id: group("g"),
        member_id: Some(id.clone()),
        instance_id: instance("i"),
        generation: Some(generation),
    };
    host.coordinator.heartbeat(host.now(), &request)
}

#[test]
fn a_static_member_needs_no_second_join() {
    let mut host = Host::new();
    let (id, _) = stable_static(&mut host);
    assert!(id.as_str().starts_with("i-"));
}

#[test]
fn a_static_member_that_comes_back_keeps_generation_and_assignment_even_over_a_restart() {
    let mut host = Host::new();
    let (m1, first) = stable_static(&mut host);
    let request = host.static_request("i");
    let token = host.join(request);
    let joined = host.joined(token);
    let m2 = joined.member_id.clone();
    assert_ne!(m1, m2);
    assert_eq!(joined.generation, first);
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, Some(m2.clone()));
    assert_eq!(host.state(), Some(GroupState::Stable));
    assert_eq!(
        static_heartbeat(&mut host, &m1, first),
        Err(GroupError::FencedInstanceId)
    );

    host.restart();
    assert_eq!(static_heartbeat(&mut host, &m2, first), Ok(()));
    assert_eq!(
        static_heartbeat(&mut host, &m1, first),
        Err(GroupError::FencedInstanceId)
    );
    let sync = host.sync(&m2, first, &[]);
    assert_eq!(host.synced(sync), Ok(Bytes::from_static(b"mine")));
    host.advance(10_000);
    assert_eq!(
        host.state(),
        Some(GroupState::Empty),
        "silence must remove static members too"
    );
}

#[test]
fn below_version_9_a_static_leader_that_comes_back_is_shown_its_old_id_as_leader() {
    let mut host = Host::new();
    let (m1, _) = stable_static(&mut host);
    let request = JoinRequest {
        api_version: 8,
        ..host.static_request("i")
    };
    let token = host.join(request);
    let joined = host.joined(token);
    assert_eq!(joined.leader, Some(m1));
    assert!(!joined.skip_assignment);
    assert!(joined.members.is_empty());
}

#[test]
fn the_answer_to_a_static_rejoin_waits_for_the_record() {
    let mut host = Host::new();
    stable_static(&mut host);
    host.hold = true;
    let request = host.static_request("i");
    let token = host.join(request);
    assert!(!host.replies.contains_key(&token));
    host.settle(Ok(()));
    assert!(host.joined(token).skip_assignment);
}

#[test]
fn a_static_rejoin_that_can_not_be_stored_puts_the_old_member_back() {
    let mut host = Host::new();
    let (m1, first) = stable_static(&mut host);
    host.hold = true;
    let request = host.static_request("i");
    let token = host.join(request);
    host.settle(Err(AppendFailure::NotLeader));
    assert_eq!(host.refused(token).error, GroupError::NotCoordinator);
    assert_eq!(static_heartbeat(&mut host, &m1, first), Ok(()));
}

#[test]
fn two_static_rejoins_of_which_none_can_be_stored_put_the_first_member_back() {
    let mut host = Host::new();
    let (m1, first) = stable_static(&mut host);
    host.hold = true;
    for _ in 0..2 {
        let request = host.static_request("i");
        host.join(request);
    }
    for _ in 0..2 {
        host.settle(Err(AppendFailure::Unavailable));
    }
    assert_eq!(static_heartbeat(&mut host, &m1, first), Ok(()));
}

#[test]
fn a_static_rejoin_whose_record_takes_too_long_keeps_the_new_id() {
    let mut host = Host::new();
    let (m1, first) = stable_static(&mut host);
    host.hold = true;
    let request = host.static_request("i");
    let token = host.join(request);
    host.advance(5_000);
    assert_eq!(
        host.refused(token).error,
        GroupError::CoordinatorNotAvailable
    );
    host.settle(Ok(()));
    assert_eq!(
        static_heartbeat(&mut host, &m1, first),
        Err(GroupError::FencedInstanceId)
    );
    host.hold = false;
    let request = host.static_request("i");
    let again = host.join(request);
    assert_eq!(host.joined(again).generation, first);
}

#[test]
fn a_second_static_rejoin_fences_the_first_one_that_still_waits() {
    let mut host = Host::new();
    stable_static(&mut host);
    host.hold = true;
    let request = host.static_request("i");
    let first = host.join(request);
    let request = host.static_request("i");
    let second = host.join(request);
    assert_eq!(host.refused(first).error, GroupError::FencedInstanceId);
    host.release();
    assert!(host.joined(second).skip_assignment);
}

#[test]
fn a_static_rejoin_in_completing_rebalance_starts_over_and_the_new_id_gets_the_assignment() {
    let mut host = Host::new();
    let request = host.static_request("i");
    let token = host.join(request);
    host.advance(3_000);
    let m1 = host.joined(token).member_id;
    let first = host.joined(token).generation;
    let request = host.static_request("i");
    let again = host.join(request);
    let joined = host.joined(again);
    let m2 = joined.member_id.clone();
    assert_eq!(joined.generation, generation(first.to_wire() + 1));
    let stale = host.sync(&m1, first, &[(&m1, "stale")]);
    assert_eq!(host.synced(stale), Err(GroupError::UnknownMemberId));
    let sync = host.sync(&m2, joined.generation, &[(&m2, "fresh")]);
    assert_eq!(host.synced(sync), Ok(Bytes::from_static(b"fresh")));
}

#[test]
fn a_waiting_old_incarnation_is_fenced_at_once() {
    let mut host = Host::new();
    let request = host.static_request("i");
    let old = host.join(request);
    let request = host.static_request("i");
    let new = host.join(request);
    assert_eq!(host.refused(old).error, GroupError::FencedInstanceId);
    host.advance(3_000);
    assert_eq!(host.joined(new).members.len(), 1);
}

#[test]
fn a_static_rejoin_that_changes_the_protocol_rebalances() {
    let mut host = Host::new();
    let both = vec![protocol("range", &["t"]), protocol("sticky", &["t"])];
    let request = JoinRequest {
        protocols: both,
        ..host.static_request("i")
    };
    let token = host.join(request);
    host.advance(3_000);
    let first = host.joined(token);
    host.sync(&first.member_id, first.generation, &[]);
    let request = JoinRequest {
        protocols: vec![protocol("sticky", &["t"])],
        ..host.static_request("i")
    };
    let again = host.join(request);
    let joined = host.joined(again);
    assert_eq!(joined.protocol_name.as_deref(), Some("sticky"));
    assert!(joined.generation > first.generation);
}

#[test]
fn static_members_survive_a_rebalance_that_they_miss() {
    let mut host = Host::new();
    let request = JoinRequest {
        session_timeout_ms: 200_000,
        ..host.static_request("i")
    };
    let token = host.join(request);
    host.advance(3_000);
    let first = host.joined(token);
    host.sync(&first.member_id, first.generation, &[]);
    let (_, b_join) = host.join_dynamic("b");
    host.advance(60_000);
    let joined = host.joined(b_join);
    assert_eq!(joined.members.len(), 2);
    assert_eq!(joined.leader, Some(joined.member_id.clone()));
}

#[test]
fn an_administrator_removes_a_static_member_by_its_instance_id() {
    let mut host = Host::new();
    stable_static(&mut host);
    let by_instance = |id: &str| LeavingMember {
        member_id: None,
        instance_id: instance(id),
        reason: None,
    };
    let token = host.leave(vec![by_instance("i"), by_instance("j")]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    assert_eq!(left[0].result, Ok(()));
    assert_eq!(left[1].result, Err(GroupError::UnknownMemberId));
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn leaving_with_a_stale_member_id_is_fenced() {
    let mut host = Host::new();
    let (m1, _) = stable_static(&mut host);
    let request = host.static_request("i");
    host.join(request);
    let token = host.leave(vec![LeavingMember {
        member_id: Some(m1),
        instance_id: instance("i"),
        reason: None,
    }]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    assert_eq!(left[0].result, Err(GroupError::FencedInstanceId));
    assert_eq!(host.state(), Some(GroupState::Stable));
}
