use tidegate_types::{LeaderEpoch, TopicId};

use super::*;

fn fetch(host: &Host, selection: OffsetSelection) -> Vec<FetchedOffset> {
    host.coordinator
        .fetch_offsets(&FetchRequest {
            group_id: group("g"),
            member_id: None,
            member_epoch: None,
            selection,
        })
        .unwrap()
}

fn delete(host: &mut Host, topics: &[&str]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
    let token = host.token();
    let request = DeleteOffsetsRequest {
        group_id: group("g"),
        targets: topics.iter().map(|topic| target(topic)).collect(),
    };
    let effects = host.coordinator.delete_offsets(host.now(), token, &request);
    host.carry_out(effects);
    match &host.replies[&token] {
        Reply::DeleteOffsets(reply) => reply.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_to_no_group_without_generation_makes_a_simple_group() {
    let mut host = Host::new();
    let token = host.commit(simple_commit(5));
    assert_eq!(host.committed(token), Ok(vec![Ok(())]));
    assert_eq!(host.offset("t"), 5);
    assert_eq!(host.state(), Some(GroupState::Empty));
}

#[test]
fn a_commit_to_no_group_with_a_generation_is_refused_by_version() {
    let mut host = Host::new();
    let request = CommitRequest {
        generation: Some(generation(1)),
        ..simple_commit(5)
    };
    let old = host.commit(CommitRequest {
        api_version: 8,
        ..request.clone()
    });
    assert_eq!(host.committed(old), Err(GroupError::IllegalGeneration));
    let new = host.commit(CommitRequest {
        api_version: 9,
        ..request
    });
    assert_eq!(host.committed(new), Err(GroupError::GroupIdNotFound));
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn a_commit_by_nobody_to_a_stable_group_is_refused() {
    let mut host = Host::new();
    host.stable();
    let token = host.commit(simple_commit(5));
    assert_eq!(host.committed(token), Err(GroupError::UnknownMemberId));
    assert_eq!(host.offset("t"), -1);
}

#[test]
fn a_commit_of_an_old_generation_is_refused() {
    let mut host = Host::new();
    let (a, _) = host.stable();
    let token = host.commit(member_commit(&a, generation(0), 5));
    assert_eq!(host.committed(token), Err(GroupError::IllegalGeneration));
}

#[test]
fn a_commit_while_preparing_is_accepted_and_while_completing_refused() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.join_dynamic("b");
    let preparing = host.commit(member_commit(&a, first, 5));
    assert_eq!(host.committed(preparing), Ok(vec![Ok(())]));
    let request = JoinRequest {
        member_id: Some(a.clone()),
        ..host.request("c")
    };
    let rejoined = host.join(request);
    let second = host.joined(rejoined).generation;
    let completing = host.commit(member_commit(&a, second, 6));
    assert_eq!(
        host.committed(completing),
        Err(GroupError::RebalanceInProgress)
    );
    assert_eq!(host.offset("t"), 5);
}

#[test]
fn an_empty_commit_gets_an_empty_answer_and_makes_no_group() {
    let mut host = Host::new();
    let token = host.commit(CommitRequest {
        offsets: Vec::new(),
        ..simple_commit(0)
    });
    assert_eq!(host.committed(token), Ok(Vec::new()));
    assert_eq!(host.coordinator.group_count(), 0);
    assert!(host.log.is_empty());
}

#[test]
fn too_long_metadata_refuses_its_partition_only() {
    let mut host = Host::new();
    let long = OffsetToCommit {
        metadata: Some("m".repeat(5_000)),
        ..to_commit("t", 1)
    };
    let limit = OffsetToCommit {
        metadata: Some("m".repeat(4_096)),
        ..to_commit("u", 2)
    };
    // 4096 UTF-16 units are 12288 bytes here, which Kafka accepts.
    let wide = OffsetToCommit {
        metadata: Some("\u{20AC}".repeat(4_096)),
        ..to_commit("v", 3)
    };
    let token = host.commit(CommitRequest {
        offsets: vec![long, limit, wide],
        ..simple_commit(0)
    });
    assert_eq!(
        host.committed(token),
        Ok(vec![
            Err(GroupError::OffsetMetadataTooLarge),
            Ok(()),
            Ok(())
        ])
    );
    assert_eq!(
        (host.offset("t"), host.offset("u"), host.offset("v")),
        (-1, 2, 3)
    );
}

#[test]
fn an_idle_group_stays_visible_with_its_type_and_offsets() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.commit(member_commit(&a, first, 7));
    host.leave(vec![leaving(&a)]);
    let listed = host
        .coordinator
        .list_groups(&GroupFilter::default())
        .unwrap();
    assert_eq!(listed[0].state, "Empty");
    assert_eq!(listed[0].protocol_type, "consumer");
    assert_eq!(fetch(&host, OffsetSelection::All).len(), 1);
}

#[test]
fn fetching_gives_what_was_committed_and_nothing_for_the_rest() {
    let mut host = Host::new();
    let offset = OffsetToCommit {
        leader_epoch: LeaderEpoch::new(4),
        metadata: Some("note".to_owned()),
        ..to_commit("t", 5)
    };
    host.commit(CommitRequest {
        offsets: vec![offset],
        ..simple_commit(0)
    });
    let fetched = fetch(
        &host,
        OffsetSelection::Partitions(vec![(target("t"), None), (target("u"), None)]),
    );
    let committed = fetched[0].committed.clone().unwrap().unwrap();
    assert_eq!(committed.offset.to_wire(), 5);
    assert_eq!(committed.leader_epoch, LeaderEpoch::new(4));
    assert_eq!(&*committed.metadata, "note");
    assert_eq!(fetched[1].committed, Ok(None));
    let unknown = FetchRequest {
        group_id: group("unknown"),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::All,
    };
    assert_eq!(host.coordinator.fetch_offsets(&unknown), Ok(Vec::new()));
}

#[test]
fn an_offset_of_the_topic_before_it_was_recreated_is_not_returned() {
    let mut host = Host::new();
    let id = |number| Some(TopicId::new(Uuid::from_u128(number)).unwrap());
    let offset = OffsetToCommit {
        topic_id: id(1),
        ..to_commit("t", 100)
    };
    host.commit(CommitRequest {
        offsets: vec![offset],
        ..simple_commit(0)
    });
    host.restart();
    for (asked, expected) in [(id(1), true), (id(2), false), (None, true)] {
        let fetched = fetch(
            &host,
            OffsetSelection::Partitions(vec![(target("t"), asked)]),
        );
        assert_eq!(
            fetched[0].committed.clone().unwrap().is_some(),
            expected,
            "{asked:?}"
        );
    }
}

#[test]
fn the_offsets_of_a_deleted_topic_go_but_not_those_of_its_successor() {
    let mut host = Host::new();
    let id = |number| Some(TopicId::new(Uuid::from_u128(number)).unwrap());
    let offsets = vec![
        OffsetToCommit {
            topic_id: id(1),
            ..to_commit("t", 1)
        },
        OffsetToCommit {
            topic_id: id(3),
            ..to_commit("u", 2)
        },
        to_commit("v", 3),
    ];
    host.commit(CommitRequest {
        offsets,
        ..simple_commit(0)
    });
    let name = |topic: &str| TopicName::new(topic).unwrap();
    let deleted = [(name("t"), id(1)), (name("u"), id(2)), (name("v"), id(4))];
    let effects = host.coordinator.topics_deleted(host.now(), &deleted);
    host.carry_out(effects);
    assert_eq!(
        (host.offset("t"), host.offset("u"), host.offset("v")),
        (-1, 2, -1)
    );
    host.restart();
    assert_eq!(
        (host.offset("t"), host.offset("u"), host.offset("v")),
        (-1, 2, -1)
    );
}

#[test]
fn offsets_of_subscribed_topics_can_not_be_deleted() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let offsets = vec![to_commit("t", 1), to_commit("u", 2)];
    host.commit(CommitRequest {
        offsets,
        ..member_commit(&a, first, 0)
    });
    assert_eq!(
        delete(&mut host, &["t", "u"]),
        Ok(vec![Err(GroupError::GroupSubscribedToTopic), Ok(())])
    );
    assert_eq!((host.offset("t"), host.offset("u")), (1, -1));
}

#[test]
fn offsets_of_an_active_group_of_another_kind_can_not_be_deleted() {
    let mut host = Host::new();
    let request = JoinRequest {
        api_version: 3,
        protocol_type: "connect".to_owned(),
        ..host.request("c")
    };
    host.join(request);
    assert_eq!(delete(&mut host, &["t"]), Err(GroupError::NonEmptyGroup));
}

#[test]
fn offset_delete_needs_a_group() {
    let mut host = Host::new();
    assert_eq!(delete(&mut host, &["t"]), Err(GroupError::GroupIdNotFound));
}

#[test]
fn a_consumer_group_with_unreadable_metadata_counts_as_subscribed_to_all() {
    let mut host = Host::new();
    let garbage = vec![Protocol {
        name: "range".into(),
        metadata: Bytes::from_static(&[0, 1, 0x7f]),
    }];
    let request = JoinRequest {
        api_version: 3,
        protocols: garbage,
        ..host.request("c")
    };
    host.join(request);
    host.advance(3_000);
    assert_eq!(
        delete(&mut host, &["t"]),
        Ok(vec![Err(GroupError::GroupSubscribedToTopic)])
    );
}

#[test]
fn a_stable_fetch_waits_for_the_commits_before_it() {
    let mut host = Host::new();
    host.commit(simple_commit(1));
    host.hold = true;
    host.commit(simple_commit(2));
    assert_eq!(
        host.offset("t"),
        1,
        "an ordinary fetch sees only what is durable"
    );
    let token = host.token();
    let request = FetchRequest {
        group_id: group("g"),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::All,
    };
    let effects = host
        .coordinator
        .fetch_stable_offsets(host.now(), token, &request);
    host.carry_out(effects);
    assert!(!host.replies.contains_key(&token));
    host.settle(Ok(()));
    let Reply::FetchOffsets(Ok(fetched)) = &host.replies[&token] else {
        panic!("fetch failed")
    };
    assert_eq!(
        fetched[0]
            .committed
            .clone()
            .unwrap()
            .unwrap()
            .offset
            .to_wire(),
        2
    );
}

#[test]
fn a_stable_fetch_behind_an_append_that_timed_out_is_answered_in_its_own_time() {
    let mut host = Host::new();
    host.hold = true;
    host.commit(simple_commit(2));
    host.advance(6_000);
    let token = host.token();
    let request = FetchRequest {
        group_id: group("g"),
        member_id: None,
        member_epoch: None,
        selection: OffsetSelection::All,
    };
    let effects = host
        .coordinator
        .fetch_stable_offsets(host.now(), token, &request);
    host.carry_out(effects);
    host.advance(4_999);
    assert!(!host.replies.contains_key(&token));
    host.advance(1);
    // Not COORDINATOR_NOT_AVAILABLE, which old consumers don't expect here.
    assert_eq!(
        host.replies[&token],
        Reply::FetchOffsets(Err(GroupError::NotCoordinator))
    );
}
