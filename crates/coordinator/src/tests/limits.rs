use super::*;

#[test]
fn a_full_group_takes_no_more_members_but_keeps_those_it_has() {
    let mut host = Host::with_config(GroupConfig {
        max_group_size: 2,
        ..GroupConfig::default()
    });
    let (_, b, first) = host.stable_pair();
    let request = host.request("c");
    let token = host.join(request);
    assert_eq!(host.refused(token).error, GroupError::GroupMaxSizeReached);
    let request = JoinRequest {
        member_id: Some(b),
        ..host.request("b")
    };
    let token = host.join(request);
    assert_eq!(host.joined(token).generation, first);
}

#[test]
fn more_members_with_pending_ids_than_allowed_are_refused() {
    let mut host = Host::with_config(GroupConfig {
        max_pending_members: 2,
        ..GroupConfig::default()
    });
    let errors: Vec<_> = (0..3)
        .map(|_| {
            let request = host.request("c");
            let token = host.join(request);
            host.refused(token).error
        })
        .collect();
    assert_eq!(
        errors,
        [
            GroupError::MemberIdRequired,
            GroupError::MemberIdRequired,
            GroupError::GroupMaxSizeReached
        ]
    );
}

#[test]
fn more_groups_than_allowed_are_refused() {
    let mut host = Host::with_config(GroupConfig {
        max_groups: 1,
        ..GroupConfig::default()
    });
    host.commit(simple_commit(1));
    let request = JoinRequest {
        group_id: group("h"),
        ..host.request("c")
    };
    let join = host.join(request);
    assert_eq!(host.refused(join).error, GroupError::TooManyGroups);
    let commit = host.commit(CommitRequest {
        group_id: group("h"),
        ..simple_commit(1)
    });
    assert_eq!(host.committed(commit), Err(GroupError::TooManyGroups));
    let commit = host.commit(simple_commit(2));
    assert_eq!(host.committed(commit), Ok(vec![Ok(())]));
}

#[test]
fn a_member_with_too_much_metadata_is_refused() {
    let mut host = Host::with_config(GroupConfig {
        max_member_metadata_bytes: 10,
        ..GroupConfig::default()
    });
    let request = host.request("c");
    let token = host.join(request);
    assert_eq!(
        host.refused(token).error,
        GroupError::MemberMetadataTooLarge
    );
}

#[test]
fn names_that_no_record_can_carry_are_refused() {
    let mut host = Host::new();
    let request = JoinRequest {
        client_id: "c".repeat(40_000),
        ..host.request("c")
    };
    let token = host.join(request);
    assert_eq!(host.refused(token).error, GroupError::InvalidRequest);
}

#[test]
fn commits_are_refused_while_too_many_appends_are_open() {
    let mut host = Host::with_config(GroupConfig {
        max_pending_appends: 1,
        ..GroupConfig::default()
    });
    host.hold = true;
    host.commit(simple_commit(1));
    let token = host.commit(simple_commit(2));
    assert_eq!(
        host.committed(token),
        Err(GroupError::CoordinatorNotAvailable)
    );
    host.settle(Ok(()));
    assert_eq!(host.offset("t"), 1);
}

#[test]
fn a_rebalance_timeout_of_zero_does_not_spin() {
    let mut host = Host::new();
    let request = JoinRequest {
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 0,
        ..host.static_request("i")
    };
    let token = host.join(request);
    host.advance(3_000);
    let joined = host.joined(token);
    host.sync(&joined.member_id, joined.generation, &[]);
    let request = JoinRequest {
        api_version: 3,
        rebalance_timeout_ms: 0,
        ..host.request("x")
    };
    host.join(request);
    host.advance(10);
    assert!(
        host.coordinator
            .next_deadline()
            .is_some_and(|due| due > host.now_ms)
    );
}

#[test]
fn settings_that_can_not_work_are_named() {
    let config = GroupConfig {
        min_session_timeout_ms: 2,
        max_session_timeout_ms: 1,
        ..GroupConfig::default()
    };
    assert_eq!(
        config.validate().unwrap_err().setting,
        "group.min.session.timeout.ms"
    );
    let config = GroupConfig {
        max_group_size: 0,
        ..GroupConfig::default()
    };
    assert_eq!(config.validate().unwrap_err().setting, "group.max.size");
    assert_eq!(GroupConfig::default().validate(), Ok(()));
}
