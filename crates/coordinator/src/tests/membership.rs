use super::*;

#[test]
fn a_silent_member_is_removed_when_its_session_ends() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.advance(9_999);
    assert_eq!(host.heartbeat(&a, first), Ok(()));
    host.advance(9_999);
    assert_eq!(host.state(), Some(GroupState::Stable));
    host.advance(1);
    assert_eq!(host.state(), Some(GroupState::Empty));
    assert_eq!(host.heartbeat(&a, first), Err(GroupError::UnknownMemberId));
}

#[test]
fn an_offset_commit_keeps_the_session_alive() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    for offset in 0..5 {
        host.advance(9_000);
        let token = host.commit(member_commit(&a, first, offset));
        assert_eq!(host.committed(token), Ok(vec![Ok(())]));
    }
    assert_eq!(host.state(), Some(GroupState::Stable));
}

#[test]
fn heartbeats_check_member_generation_and_group() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    assert_eq!(
        host.heartbeat(&a, generation(9)),
        Err(GroupError::IllegalGeneration)
    );
    let stranger = MemberId::from_wire("stranger").unwrap();
    assert_eq!(
        host.heartbeat(&stranger, first),
        Err(GroupError::UnknownMemberId)
    );
    let elsewhere = HeartbeatRequest {
        group_id: group("other"),
        member_id: Some(a),
        instance_id: None,
        generation: Some(first),
    };
    assert_eq!(
        host.coordinator.heartbeat(host.now(), &elsewhere),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn the_last_member_that_leaves_empties_the_group() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let token = host.leave(vec![leaving(&a)]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    assert_eq!(left[0].result, Ok(()));
    assert_eq!(host.state(), Some(GroupState::Empty));
    let described = host.coordinator.describe_group(&group("g")).unwrap();
    assert_eq!(described.generation, generation(first.to_wire() + 1));
    assert_eq!(described.protocol_type, "consumer");
}

#[test]
fn leaving_many_members_answers_each() {
    let mut host = Host::new();
    let (a, b, _) = host.stable_pair();
    let stranger = MemberId::from_wire("stranger").unwrap();
    let token = host.leave(vec![leaving(&b), leaving(&stranger), leaving(&b)]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    let results: Vec<_> = left.iter().map(|member| member.result.clone()).collect();
    assert_eq!(
        results,
        [
            Ok(()),
            Err(GroupError::UnknownMemberId),
            Err(GroupError::UnknownMemberId)
        ]
    );
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    let described = host.coordinator.describe_group(&group("g")).unwrap();
    assert_eq!(described.members[0].member_id, a);
}

#[test]
fn leaving_an_unknown_group_says_so_per_member() {
    let mut host = Host::new();
    let stranger = MemberId::from_wire("stranger").unwrap();
    let token = host.leave(vec![leaving(&stranger)]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    assert_eq!(left[0].result, Err(GroupError::UnknownMemberId));
}

#[test]
fn a_member_with_a_given_id_can_leave_before_it_joins() {
    let mut host = Host::new();
    host.stable();
    let request = host.request("p");
    let first = host.join(request);
    let id = host.refused(first).member_id.unwrap();
    let token = host.leave(vec![leaving(&id)]);
    let Reply::Leave(Ok(left)) = &host.replies[&token] else {
        panic!("leave failed")
    };
    assert_eq!(left[0].result, Ok(()));
}

#[test]
fn a_member_that_is_removed_while_it_waits_for_its_assignment_gets_an_answer() {
    let mut host = Host::new();
    let (_, a_join) = host.join_dynamic("a");
    let (b, _) = host.join_dynamic("b");
    host.advance(10_000);
    let first = host.joined(a_join).generation;
    let b_sync = host.sync(&b, first, &[]);
    host.leave(vec![leaving(&b)]);
    assert_eq!(host.synced(b_sync), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_group_that_was_empty_starts_over_with_the_next_generation() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.leave(vec![leaving(&a)]);
    let (_, token) = host.join_dynamic("b");
    host.advance(3_000);
    assert_eq!(
        host.joined(token).generation,
        generation(first.to_wire() + 2)
    );
}
