use super::*;

#[test]
fn a_loading_coordinator_says_so_except_to_heartbeats() {
    let mut host = Host::new();
    host.coordinator = GroupCoordinator::new(GroupConfig::default());
    let loading = GroupError::CoordinatorLoadInProgress;
    let request = host.request("c");
    let token = host.join(request);
    assert_eq!(host.refused(token).error, loading);
    let token = host.commit(simple_commit(1));
    assert_eq!(host.committed(token), Err(loading.clone()));
    let fetch = FetchRequest {
        group_id: group("g"),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::All,
    };
    assert_eq!(host.coordinator.fetch_offsets(&fetch), Err(loading.clone()));
    assert_eq!(
        host.coordinator.describe_group(&group("g")),
        Err(loading.clone())
    );
    assert_eq!(
        host.coordinator.list_groups(&GroupFilter::default()),
        Err(loading)
    );
    let member = MemberId::from_wire("m").unwrap();
    assert_eq!(host.heartbeat(&member, generation(1)), Ok(()));
}

#[test]
fn members_go_on_after_a_restart_without_a_rebalance() {
    let mut host = Host::new();
    let (a, b, first) = host.stable_pair();
    host.advance(9_000);
    host.restart();
    // The sessions start afresh: 9 s of silence before the restart don't count.
    host.advance(9_000);
    assert_eq!(host.heartbeat(&a, first), Ok(()));
    assert_eq!(host.heartbeat(&b, first), Ok(()));
    assert_eq!(host.state(), Some(GroupState::Stable));
    let sync = host.sync(&b, first, &[]);
    assert_eq!(host.synced(sync), Ok(Bytes::from_static(b"B")));
    let described = host.coordinator.describe_group(&group("g")).unwrap();
    assert_eq!(described.protocol_name, "range");
    assert_eq!(described.members.len(), 2);
}

#[test]
fn silent_members_are_removed_after_a_restart() {
    let mut host = Host::new();
    host.stable();
    host.restart();
    host.advance(10_000);
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn a_loaded_group_above_the_limit_rebalances() {
    let mut host = Host::new();
    let (a, _, first) = host.stable_pair();
    host.coordinator.config.max_group_size = 1;
    host.restart();
    assert_eq!(
        host.heartbeat(&a, first),
        Err(GroupError::RebalanceInProgress)
    );
}

#[test]
fn tombstones_remove_what_came_before() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.commit(member_commit(&a, first, 3));
    host.leave(vec![leaving(&a)]);
    let token = host.token();
    let effects = host
        .coordinator
        .delete_groups(host.now(), token, vec![group("g")]);
    host.carry_out(effects);
    assert_eq!(
        host.replies[&token],
        Reply::DeleteGroups(vec![(group("g"), Ok(()))])
    );
    host.restart();
    assert_eq!(host.coordinator.group_count(), 0);
    assert_eq!(host.offset("t"), -1);
    assert!(host.coordinator.export().is_empty());
}

#[test]
fn records_of_unknown_types_are_skipped_and_counted() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    coordinator
        .replay(&[0, 11, 0, 1, b'g'], Some(&[0, 0]))
        .unwrap();
    coordinator.replay(&[0, 99], None).unwrap();
    assert_eq!(coordinator.skipped_records(), 2);
}

#[test]
fn damaged_records_end_the_loading() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    assert!(coordinator.replay(&[0], None).is_err());
    let key = [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 0];
    assert!(matches!(
        coordinator.replay(&key, Some(&[0, 5])),
        Err(RecordError::UnsupportedVersion { version: 5, .. })
    ));
    assert!(matches!(
        coordinator.replay(&key, Some(&[0, 3, 0])),
        Err(RecordError::Truncated { .. })
    ));
    coordinator
        .replay(&[0, 2, 0, 1, b'g'], Some(&[0, 3, 0]))
        .unwrap();
    assert!(coordinator.loaded(Host::new().now()).is_err());
    assert_eq!(
        coordinator.list_groups(&GroupFilter::default()),
        Err(GroupError::CoordinatorLoadInProgress)
    );
}

#[test]
fn an_export_does_not_hold_what_is_not_durable() {
    let mut host = Host::new();
    host.commit(simple_commit(1));
    let before = host.coordinator.export();
    host.hold = true;
    host.commit(simple_commit(2));
    assert_eq!(host.coordinator.export(), before);
    host.settle(Ok(()));
    assert_ne!(host.coordinator.export(), before);
}
