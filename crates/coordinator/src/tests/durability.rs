use super::*;

#[test]
fn a_commit_is_answered_and_seen_only_when_durable() {
    let mut host = Host::new();
    host.hold = true;
    let token = host.commit(simple_commit(5));
    assert!(!host.replies.contains_key(&token));
    assert_eq!(host.offset("t"), -1);
    assert_eq!(host.state(), None, "its group isn't stored either");
    host.settle(Ok(()));
    assert_eq!(host.committed(token), Ok(vec![Ok(())]));
    assert_eq!(host.offset("t"), 5);
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn a_commit_that_fails_leaves_no_trace() {
    let mut host = Host::new();
    host.commit(CommitRequest {
        group_id: group("other"),
        ..simple_commit(1)
    });
    for (failure, error) in [
        (
            AppendFailure::Unavailable,
            GroupError::CoordinatorNotAvailable,
        ),
        (AppendFailure::NotLeader, GroupError::NotCoordinator),
        (AppendFailure::TooLarge, GroupError::UnknownServerError),
    ] {
        host.hold = true;
        let token = host.commit(simple_commit(5));
        host.settle(Err(failure));
        assert_eq!(host.committed(token), Err(error));
        assert_eq!(host.offset("t"), -1);
        assert_eq!(host.coordinator.group_count(), 1);
    }
}

#[test]
fn a_failed_commit_leaves_the_earlier_and_the_later_one() {
    let mut host = Host::new();
    host.commit(simple_commit(1));
    host.hold = true;
    host.commit(simple_commit(2));
    host.commit(simple_commit(3));
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(host.offset("t"), 1);
    host.settle(Ok(()));
    assert_eq!(host.offset("t"), 3);
}

#[test]
fn a_commit_that_takes_too_long_is_answered_and_may_still_succeed() {
    let mut host = Host::new();
    host.hold = true;
    let token = host.commit(simple_commit(5));
    host.advance(4_999);
    assert!(!host.replies.contains_key(&token));
    host.advance(1);
    assert_eq!(
        host.committed(token),
        Err(GroupError::CoordinatorNotAvailable)
    );
    assert_eq!(host.coordinator.pending_append_count(), 1);
    host.settle(Ok(()));
    assert_eq!(host.offset("t"), 5);
}

#[test]
fn an_assignment_is_given_out_only_when_durable() {
    let mut host = Host::new();
    let (a, token) = host.join_dynamic("c");
    host.advance(3_000);
    let first = host.joined(token).generation;
    host.hold = true;
    let sync = host.sync(&a, first, &[(&a, "A")]);
    assert!(!host.replies.contains_key(&sync));
    assert_eq!(host.state(), Some(GroupState::CompletingRebalance));
    host.settle(Ok(()));
    assert_eq!(host.synced(sync), Ok(Bytes::from_static(b"A")));
    assert_eq!(host.state(), Some(GroupState::Stable));
}

#[test]
fn an_assignment_that_can_not_be_stored_sends_the_members_back() {
    for (failure, error) in [
        (
            AppendFailure::Unavailable,
            GroupError::CoordinatorNotAvailable,
        ),
        (AppendFailure::NotLeader, GroupError::NotCoordinator),
    ] {
        let mut host = Host::new();
        let (a, a_join) = host.join_dynamic("a");
        let (b, _) = host.join_dynamic("b");
        host.advance(10_000);
        let first = host.joined(a_join).generation;
        host.hold = true;
        let b_sync = host.sync(&b, first, &[]);
        let a_sync = host.sync(&a, first, &[(&a, "A"), (&b, "B")]);
        host.settle(Err(failure));
        assert_eq!(host.synced(a_sync), Err(error.clone()));
        assert_eq!(host.synced(b_sync), Err(error));
        assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    }
}

#[test]
fn an_assignment_that_is_stored_after_a_new_rebalance_began_is_not_given_out() {
    let mut host = Host::new();
    let (a, token) = host.join_dynamic("c");
    host.advance(3_000);
    let first = host.joined(token).generation;
    host.hold = true;
    let sync = host.sync(&a, first, &[(&a, "A")]);
    let request = JoinRequest {
        api_version: 3,
        ..host.request("b")
    };
    host.join(request);
    assert_eq!(host.synced(sync), Err(GroupError::RebalanceInProgress));
    host.settle(Ok(()));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn an_assignment_that_takes_too_long_sends_the_members_back() {
    let mut host = Host::new();
    let (a, token) = host.join_dynamic("c");
    host.advance(3_000);
    let first = host.joined(token).generation;
    host.hold = true;
    let sync = host.sync(&a, first, &[(&a, "A")]);
    host.advance(5_000);
    assert_eq!(host.synced(sync), Err(GroupError::CoordinatorNotAvailable));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    host.settle(Ok(()));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn a_group_that_can_not_be_created_is_forgotten_and_its_members_are_told() {
    let mut host = Host::new();
    host.hold = true;
    let request = JoinRequest {
        api_version: 3,
        ..host.request("c")
    };
    let token = host.join(request);
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(
        host.refused(token).error,
        GroupError::CoordinatorNotAvailable
    );
    assert_eq!(host.coordinator.group_count(), 0);
    host.hold = false;
    host.advance(600_000);
    assert!(host.log.is_empty());
}

#[test]
fn the_answer_to_the_last_member_that_leaves_waits_for_the_record() {
    let mut host = Host::new();
    let (a, _) = host.stable();
    host.hold = true;
    let token = host.leave(vec![leaving(&a)]);
    assert!(!host.replies.contains_key(&token));
    host.settle(Err(AppendFailure::NotLeader));
    assert_eq!(
        host.replies[&token],
        Reply::Leave(Err(GroupError::NotCoordinator))
    );
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn a_deleted_group_whose_tombstone_fails_is_back_with_its_offsets() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.commit(member_commit(&a, first, 3));
    host.leave(vec![leaving(&a)]);
    let before = host.coordinator.describe_group(&group("g")).unwrap();
    host.hold = true;
    let token = host.token();
    let effects = host
        .coordinator
        .delete_groups(host.now(), token, vec![group("g")]);
    host.carry_out(effects);
    assert!(!host.replies.contains_key(&token));
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(
        host.replies[&token],
        Reply::DeleteGroups(vec![(group("g"), Err(GroupError::CoordinatorNotAvailable))])
    );
    assert_eq!(host.coordinator.describe_group(&group("g")), Ok(before));
    assert_eq!(host.offset("t"), 3);
}

#[test]
fn unloading_answers_everyone_who_waits() {
    let mut host = Host::new();
    let (a, a_join) = host.join_dynamic("a");
    let (b, _) = host.join_dynamic("b");
    host.advance(10_000);
    let first = host.joined(a_join).generation;
    let sync = host.sync(&b, first, &[]);
    host.hold = true;
    let elsewhere = JoinRequest {
        api_version: 3,
        group_id: group("h"),
        ..host.request("h")
    };
    let join = host.join(elsewhere);
    let commit = host.commit(CommitRequest {
        group_id: group("s"),
        ..simple_commit(1)
    });
    let effects = host.coordinator.unload(host.now());
    host.carry_out(effects);
    assert_eq!(host.synced(sync), Err(GroupError::NotCoordinator));
    assert_eq!(host.refused(join).error, GroupError::NotCoordinator);
    assert_eq!(host.committed(commit), Err(GroupError::NotCoordinator));
    assert_eq!(host.coordinator.next_deadline(), None);
    assert_eq!(host.heartbeat(&a, first), Err(GroupError::NotCoordinator));
    let late = host.commit(simple_commit(1));
    assert_eq!(host.committed(late), Err(GroupError::NotCoordinator));
}

#[test]
fn a_group_is_shown_once_a_member_was_told_that_it_joined() {
    let mut host = Host::with_config(GroupConfig {
        initial_rebalance_delay_ms: 0,
        ..GroupConfig::default()
    });
    host.hold = true;
    let request = JoinRequest {
        api_version: 3,
        ..host.request("a")
    };
    let token = host.join(request);
    host.advance(0);
    host.joined(token);
    assert_eq!(host.held.len(), 1, "the group isn't stored yet");
    assert_eq!(host.state(), Some(GroupState::CompletingRebalance));
}
