//! Each request's rules: done once, twice, late, and by a stale broker.

use super::*;

const WAL_A: Uuid = Uuid::from_u128(0xA);
const WAL_B: Uuid = Uuid::from_u128(0xB);

#[tokio::test]
async fn a_repeated_registration_keeps_its_epoch_and_a_restart_raises_it() {
    let run = Running::start(&MemoryOpener::new()).await;
    let first = run
        .handle
        .register_broker(registration(1, 7))
        .await
        .unwrap();
    let again = run
        .handle
        .register_broker(registration(1, 7))
        .await
        .unwrap();
    assert_eq!(first, again);
    let restarted = run
        .handle
        .register_broker(registration(1, 8))
        .await
        .unwrap();
    assert!(restarted.broker_epoch > first.broker_epoch);
    assert_eq!(
        restarted.former_writer, None,
        "a process that never led has nothing to recover"
    );
}

#[tokio::test]
async fn a_stale_broker_epoch_can_do_nothing() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (old, _) = run.lead(1).await;
    let topic = run.create("t", 1).await;
    run.handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    let commit = run
        .commit(
            old,
            vec![object(
                "o",
                vec![segment(partition(topic, 0), 0, range(0, 5))],
            )],
        )
        .await;
    assert!(matches!(
        commit,
        Err(CommitObjectsError::StaleBrokerEpoch(_))
    ));
    let advance = AdvanceLogStart {
        broker: broker(1),
        broker_epoch: old,
        partition: partition(topic, 0),
        leader_epoch: epoch(0),
        new_start: offset(0),
    };
    assert!(matches!(
        run.handle.advance_log_start(advance).await,
        Err(AdvanceLogStartError::StaleBrokerEpoch(_))
    ));
    let ids = AllocateProducerIds {
        broker: broker(1),
        broker_epoch: old,
    };
    assert!(matches!(
        run.handle.allocate_producer_ids(ids).await,
        Err(AllocateProducerIdsError::StaleBrokerEpoch(_))
    ));
}

#[tokio::test]
async fn a_registered_broker_is_no_leader_until_it_takes_leadership() {
    let run = Running::start(&MemoryOpener::new()).await;
    run.lead(1).await;
    let topic = run.create("t", 1).await;
    let image = run.handle.image();
    let leader = |image: &watch::Receiver<Arc<ClusterImage>>| {
        image.borrow().topic_by_id(topic).unwrap().partitions[0].leader
    };
    assert_eq!(leader(&image), Some(broker(1)));
    let registered = run
        .handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    assert_eq!(leader(&image), None);
    let commit = run
        .commit(
            registered.broker_epoch,
            vec![object(
                "o",
                vec![segment(partition(topic, 0), 0, range(0, 5))],
            )],
        )
        .await;
    assert!(matches!(
        commit,
        Err(CommitObjectsError::StaleBrokerEpoch(_))
    ));
    run.handle
        .take_leadership(taking(&registered))
        .await
        .unwrap();
    assert_eq!(leader(&image), Some(broker(1)));
    assert_eq!(
        image.borrow().topic_by_id(topic).unwrap().partitions[0].leader_epoch,
        epoch(1)
    );
}

#[tokio::test]
async fn topics_are_created_each_by_itself() {
    let run = Running::start(&MemoryOpener::new()).await;
    let alone = CreateTopics {
        topics: vec![new_topic("early", 1)],
        validate_only: false,
    };
    let early = run.handle.create_topics(alone).await.unwrap();
    assert_eq!(early, [Err(CreateTopicError::NoBroker)]);
    run.lead(1).await;
    run.create("a.b", 1).await;
    let mut three = new_topic("rf3", 2);
    three.layout = TopicLayout::Count {
        partitions: 2,
        replication_factor: 3,
    };
    let mut zero = new_topic("rf0", 1);
    zero.layout = TopicLayout::Count {
        partitions: 1,
        replication_factor: 0,
    };
    let mut assigned = new_topic("assigned", 1);
    assigned.layout = TopicLayout::Assigned(vec![vec![broker(1)], vec![broker(9)]]);
    let request = CreateTopics {
        topics: vec![
            new_topic("a.b", 1),
            new_topic("a_b", 1),
            new_topic("none", 0),
            zero,
            assigned,
            new_topic("twice", 1),
            new_topic("twice", 1),
            three,
        ],
        validate_only: false,
    };
    let answers = run.handle.create_topics(request).await.unwrap();
    assert!(matches!(answers[0], Err(CreateTopicError::Exists { .. })));
    assert!(matches!(answers[1], Err(CreateTopicError::Collides { .. })));
    assert!(matches!(
        answers[2],
        Err(CreateTopicError::PartitionCount { .. })
    ));
    assert!(matches!(
        answers[3],
        Err(CreateTopicError::ReplicationFactor)
    ));
    assert!(matches!(
        answers[4],
        Err(CreateTopicError::Assignment(
            AssignmentFault::UnknownBroker { partition: 1, .. }
        ))
    ));
    assert!(matches!(answers[5], Err(CreateTopicError::Repeated { .. })));
    assert!(matches!(answers[6], Err(CreateTopicError::Repeated { .. })));
    let created = answers[7].as_ref().unwrap();
    assert_eq!(
        created.replication_factor, 3,
        "accepted and reported as asked for"
    );
    let image = run.handle.image().borrow().clone();
    assert_eq!(image.topics().len(), 2);
    assert_eq!(
        image.topic("rf3").unwrap().partitions[1].placement,
        [broker(1)]
    );
}

#[tokio::test]
async fn a_dry_run_reports_and_leaves_no_trace() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    let before = opener.rows();
    let request = CreateTopics {
        topics: vec![new_topic("t", 1), new_topic("none", 0)],
        validate_only: true,
    };
    let answers = run.handle.create_topics(request).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap().id, None);
    assert!(answers[1].is_err());
    let alter = AlterConfigs {
        changes: vec![(
            ConfigResource::BrokerDefault,
            ConfigChange::Replace(configs(&[("a", "1")])),
        )],
        validate_only: true,
    };
    run.handle.alter_configs(alter).await.unwrap();
    assert_eq!(opener.rows(), before);
}

#[tokio::test]
async fn partitions_only_become_more() {
    let run = Running::start(&MemoryOpener::new()).await;
    run.lead(1).await;
    let topic = run.create("t", 2).await;
    let more = |total, assignments| CreatePartitions {
        topics: vec![MorePartitions {
            topic,
            total,
            assignments,
        }],
        validate_only: false,
    };
    for total in [0, 1, 2] {
        let answers = run
            .handle
            .create_partitions(more(total, None))
            .await
            .unwrap();
        assert!(matches!(
            answers[0],
            Err(CreatePartitionsError::NotMore { current: 2, .. })
        ));
    }
    let wrong = more(4, Some(vec![vec![broker(1)]]));
    let answers = run.handle.create_partitions(wrong).await.unwrap();
    assert!(matches!(
        answers[0],
        Err(CreatePartitionsError::Assignment(
            AssignmentFault::WrongCount {
                given: 1,
                wanted: 2
            }
        ))
    ));
    run.handle.create_partitions(more(4, None)).await.unwrap()[0]
        .as_ref()
        .unwrap();
    assert_eq!(run.handle.led_by(broker(1)).await.unwrap().len(), 4);
    assert_eq!(run.state(partition(topic, 3)).await.leader, Some(broker(1)));
}

#[tokio::test]
async fn an_incremental_change_touches_only_its_key_and_a_replacement_all() {
    let run = Running::start(&MemoryOpener::new()).await;
    run.lead(1).await;
    let mut topic = new_topic("t", 1);
    topic.configs = configs(&[("cleanup.policy", "compact"), ("compression.type", "gzip")]);
    let id = run.create_all(vec![topic]).await[0];
    let resource = ConfigResource::Topic(id);
    let edit = AlterConfigs {
        changes: vec![(
            resource,
            ConfigChange::Edit(vec![
                ConfigEdit::Set {
                    name: "retention.ms".into(),
                    value: "1".into(),
                },
                ConfigEdit::Append {
                    name: "cleanup.policy".into(),
                    values: vec!["delete".into(), "compact".into()],
                    default: "delete".into(),
                },
            ]),
        )],
        validate_only: false,
    };
    let expected = configs(&[
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "gzip"),
        ("retention.ms", "1"),
    ]);
    // Twice: the second changes nothing more.
    for _ in 0..2 {
        let answers = run.handle.alter_configs(edit.clone()).await.unwrap();
        assert_eq!(answers[0].as_ref().unwrap(), &expected);
    }
    let replace = AlterConfigs {
        changes: vec![
            (
                resource,
                ConfigChange::Replace(configs(&[("retention.ms", "2")])),
            ),
            (
                ConfigResource::Topic(TopicId::new(Uuid::from_u128(99)).unwrap()),
                ConfigChange::Replace(configs(&[])),
            ),
        ],
        validate_only: false,
    };
    let answers = run.handle.alter_configs(replace).await.unwrap();
    assert!(
        answers[1].is_err(),
        "an unknown topic doesn't hinder the others"
    );
    let image = run.handle.image().borrow().clone();
    assert_eq!(
        image.topic("t").unwrap().configs,
        configs(&[("retention.ms", "2")])
    );
}

#[tokio::test]
async fn a_commit_done_twice_counts_once() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let topic = run.create("t", 2).await;
    let (p0, p1) = (partition(topic, 0), partition(topic, 1));
    let commit = vec![object(
        "o1",
        vec![segment(p0, 0, range(0, 10)), segment(p1, 0, range(0, 3))],
    )];
    let first = run.commit(broker_epoch, commit.clone()).await.unwrap();
    let again = run.commit(broker_epoch, commit).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(run.ranges(p0).await, [range(0, 10)]);
    let state = run.state(p0).await;
    assert_eq!((state.segment_count, state.segment_bytes), (1, 100));
    assert_eq!(state.checkpoint.as_ref().unwrap().as_of, offset(10));
    let statuses = run.handle.object_statuses(vec![key("o1")]).await.unwrap();
    assert_eq!(
        statuses,
        [ObjectStatus::Referenced { references: 4 }],
        "two segments and two checkpoints"
    );
}

#[tokio::test]
async fn a_gap_or_an_overlap_refuses_the_whole_commit() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let topic = run.create("t", 2).await;
    let (p0, p1) = (partition(topic, 0), partition(topic, 1));
    run.commit(
        broker_epoch,
        vec![object("o1", vec![segment(p0, 0, range(0, 10))])],
    )
    .await
    .unwrap();
    for start in [5, 11] {
        let commit = vec![object(
            "o2",
            vec![
                segment(p1, 0, range(0, 5)),
                segment(p0, 0, range(start, 20)),
            ],
        )];
        let refused = run.commit(broker_epoch, commit).await;
        assert!(
            matches!(
                refused,
                Err(CommitObjectsError::Refused(
                    CommitRefused::NotContiguous { .. }
                ))
            ),
            "{refused:?}"
        );
    }
    assert_eq!(run.state(p1).await.committed_end, Offset::ZERO);
    let statuses = run.handle.object_statuses(vec![key("o2")]).await.unwrap();
    assert_eq!(statuses, [ObjectStatus::Unknown]);
}

#[tokio::test]
async fn objects_of_one_commit_follow_each_other() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let commit = vec![
        object("o1", vec![segment(p, 0, range(0, 10))]),
        object("o2", vec![segment(p, 0, range(10, 12))]),
    ];
    run.commit(broker_epoch, commit).await.unwrap();
    assert_eq!(run.ranges(p).await, [range(0, 10), range(10, 12)]);
    let statuses = run
        .handle
        .object_statuses(vec![key("o1"), key("o2")])
        .await
        .unwrap();
    assert_eq!(
        statuses,
        [
            ObjectStatus::Referenced { references: 1 },
            ObjectStatus::Referenced { references: 2 }
        ],
        "only the newest checkpoint is held"
    );
}

#[tokio::test]
async fn malformed_objects_are_refused() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let good = segment(p, 0, range(0, 10));
    let mut beyond = good.clone();
    beyond.span.length = u64::MAX;
    let mut empty = good.clone();
    empty.range = range(0, 0);
    let future = segment(p, 7, range(0, 10));
    for segments in [
        vec![beyond],
        vec![empty],
        vec![future],
        vec![good.clone(), segment(p, 0, range(10, 20))],
    ] {
        let refused = run.commit(broker_epoch, vec![object("o", segments)]).await;
        assert!(
            matches!(refused, Err(CommitObjectsError::Refused(_))),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn wal_objects_commit_in_the_order_of_their_sequence() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener.clone()), object_mode(), 0).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let wal_object = |sequence: u64, range| ObjectCommit {
        wal_sequence: Some(sequence),
        ..object(&format!("w{sequence}"), vec![segment(p, 0, range)])
    };
    let early = run
        .commit(broker_epoch, vec![wal_object(1, range(0, 5))])
        .await;
    assert!(matches!(
        early,
        Err(CommitObjectsError::Refused(CommitRefused::SequenceGap {
            expected: 0,
            ..
        }))
    ));
    run.commit(
        broker_epoch,
        vec![wal_object(0, range(0, 5)), wal_object(1, range(5, 9))],
    )
    .await
    .unwrap();
    run.commit(broker_epoch, vec![wal_object(1, range(5, 9))])
        .await
        .expect("a repetition is no gap");
    let registered = run
        .handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    let former = registered.former_writer.unwrap();
    assert_eq!(
        (former.broker_epoch, former.next_wal_sequence),
        (broker_epoch, 2)
    );
}

#[tokio::test]
async fn recovery_commits_and_leads_in_one_change() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener.clone()), object_mode(), 0).await;
    let (old, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    run.commit(old, vec![object("o1", vec![segment(p, 0, range(0, 10))])])
        .await
        .unwrap();
    let registered = run
        .handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    let unfenced = TakeLeadership {
        fenced_writer: None,
        ..taking(&registered)
    };
    assert!(matches!(
        run.handle.take_leadership(unfenced).await,
        Err(TakeLeadershipError::WriterNotFenced { expected }) if expected == old
    ));
    let take = TakeLeadership {
        recovered: vec![ObjectCommit {
            wal_sequence: Some(0),
            ..object("w0", vec![segment(p, 0, range(10, 25))])
        }],
        ..taking(&registered)
    };
    let batches = opener.batches();
    let taken = run.handle.take_leadership(take.clone()).await.unwrap();
    assert_eq!(opener.batches(), batches + 1);
    let led = &taken.partitions[0];
    assert_eq!(
        (led.leader_epoch, led.leader_epoch_start()),
        (epoch(1), offset(25))
    );
    assert_eq!(led.committed_end, offset(25));
    let again = run.handle.take_leadership(take).await.unwrap();
    assert_eq!(
        again.partitions, taken.partitions,
        "a repetition raises nothing"
    );
    // The old writer's object arrives late, with records behind the sealed end.
    let late = vec![object("late", vec![segment(p, 0, range(25, 30))])];
    let outcome = run.commit(registered.broker_epoch, late).await.unwrap();
    assert_eq!(
        outcome[0].segments,
        [SegmentOutcome::Superseded {
            sealed_end: offset(25)
        }]
    );
    assert_eq!(run.ranges(p).await, [range(0, 10), range(10, 25)]);
}

/// Registers a new incarnation and takes leadership with the given WAL and recovered end.
async fn restart(
    run: &Running,
    incarnation: u128,
    wal: Uuid,
    ends: Vec<RecoveredEnd>,
    accept_loss: bool,
) -> (BrokerEpoch, LeadershipTaken) {
    let registered = run
        .handle
        .register_broker(registration(1, incarnation))
        .await
        .unwrap();
    let take = TakeLeadership {
        wal: Some(wal),
        ends,
        accept_loss,
        ..taking(&registered)
    };
    let taken = run.handle.take_leadership(take).await.unwrap();
    (registered.broker_epoch, taken)
}

fn recovered_end(partition: PartitionId, leader_epoch: u32, end: u64) -> RecoveredEnd {
    RecoveredEnd {
        partition,
        leader_epoch: epoch(leader_epoch),
        end: offset(end),
    }
}

#[tokio::test]
async fn a_local_partition_goes_on_behind_what_its_wal_held() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    let (second, taken) = restart(&run, 2, WAL_A, vec![recovered_end(p, 0, 40)], false).await;
    assert_eq!(taken.partitions[0].leader_epoch_start(), offset(40));
    assert_eq!(taken.partitions[0].committed_end, Offset::ZERO);
    // What was recovered is uploaded later, under the leader epochs it was written in.
    let commit = vec![
        object("o1", vec![segment(p, 0, range(0, 40))]),
        object("o2", vec![segment(p, 1, range(40, 50))]),
    ];
    run.commit(second, commit).await.unwrap();
    let (_, taken) = restart(&run, 3, WAL_A, vec![], false).await;
    let epochs: Vec<_> = taken.partitions[0]
        .epochs
        .iter()
        .map(|e| (e.epoch.get(), e.start.get()))
        .collect();
    assert_eq!(epochs, [(0, 0), (1, 40), (2, 50)]);
}

#[tokio::test]
async fn a_partition_on_a_lost_wal_stays_offline_until_the_loss_is_accepted() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    let (_, taken) = restart(&run, 2, WAL_B, vec![], false).await;
    assert_eq!(taken.partitions, []);
    assert_eq!(
        taken.withheld,
        [Withheld {
            partition: p,
            reason: WithheldReason::OtherWal { expected: WAL_A }
        }]
    );
    assert_eq!(run.state(p).await.leader, None);
    // The disk comes back.
    let (_, taken) = restart(&run, 3, WAL_A, vec![recovered_end(p, 0, 5)], false).await;
    assert_eq!(taken.partitions[0].leader_epoch_start(), offset(5));
    // It is lost for good.
    let (_, taken) = restart(&run, 4, WAL_B, vec![], true).await;
    assert_eq!(
        taken.lost,
        [Loss {
            partition: p,
            from: Offset::ZERO,
            known_to: Some(offset(5))
        }]
    );
    assert_eq!(taken.partitions[0].leader_epoch_start(), Offset::ZERO);
    assert!(taken.partitions[0].leader_epoch > epoch(1));
}

#[tokio::test]
async fn a_wal_that_holds_less_than_the_log_is_known_to_have_withholds_the_partition() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    restart(&run, 2, WAL_A, vec![recovered_end(p, 0, 40)], false).await;
    let (_, taken) = restart(&run, 3, WAL_A, vec![recovered_end(p, 0, 30)], false).await;
    assert_eq!(
        taken.withheld[0].reason,
        WithheldReason::Missing {
            missing: range(30, 40)
        }
    );
}

#[tokio::test]
async fn a_topic_that_becomes_local_is_bound_to_its_leaders_wal() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener), object_mode(), 0).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let topic = run.create("t", 1).await;
    let alter = AlterConfigs {
        changes: vec![(
            ConfigResource::Topic(topic),
            ConfigChange::Replace(configs(&[(DURABILITY_CONFIG, "local")])),
        )],
        validate_only: false,
    };
    run.handle.alter_configs(alter).await.unwrap();
    let (_, taken) = restart(&run, 2, WAL_B, vec![], false).await;
    assert_eq!(taken.withheld.len(), 1);
}

#[tokio::test]
async fn the_log_start_only_rises_and_drops_whole_segments() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let commit = (0..4)
        .map(|i| {
            object(
                &format!("o{i}"),
                vec![segment(p, 0, range(i * 10, i * 10 + 10))],
            )
        })
        .collect();
    run.commit(broker_epoch, commit).await.unwrap();
    let advance = |new_start, leader_epoch| {
        let request = AdvanceLogStart {
            broker: broker(1),
            broker_epoch,
            partition: p,
            leader_epoch: epoch(leader_epoch),
            new_start: offset(new_start),
        };
        run.handle.advance_log_start(request)
    };
    assert_eq!(advance(25, 0).await.unwrap(), offset(25));
    assert_eq!(advance(25, 0).await.unwrap(), offset(25));
    assert_eq!(advance(3, 0).await.unwrap(), offset(25));
    assert!(matches!(
        advance(30, 1).await,
        Err(AdvanceLogStartError::NotLeader { .. })
    ));
    assert_eq!(run.ranges(p).await, [range(20, 30), range(30, 40)]);
    assert_eq!(run.state(p).await.segment_count, 2);
    assert_eq!(
        run.deletable(NOW.get() - 1).await,
        [],
        "the grace period isn't over"
    );
    assert_eq!(run.deletable(NOW.get()).await, [key("o0"), key("o1")]);
    // All segments go, the newest checkpoint stays.
    advance(40, 0).await.unwrap();
    assert_eq!(run.ranges(p).await, []);
    assert_eq!(
        run.deletable(NOW.get()).await,
        [key("o0"), key("o1"), key("o2")]
    );
}

#[tokio::test]
async fn a_range_deleted_before_its_upload_needs_no_segment() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let request = AdvanceLogStart {
        broker: broker(1),
        broker_epoch,
        partition: p,
        leader_epoch: epoch(0),
        new_start: offset(15),
    };
    run.handle.advance_log_start(request).await.unwrap();
    let commit = vec![
        object("o0", vec![segment(p, 0, range(0, 10))]),
        object("o1", vec![segment(p, 0, range(10, 20))]),
    ];
    run.commit(broker_epoch, commit).await.unwrap();
    assert_eq!(run.ranges(p).await, [range(10, 20)]);
    assert_eq!(run.state(p).await.committed_end, offset(20));
    assert_eq!(run.deletable(NOW.get()).await, [key("o0")]);
}

#[tokio::test]
async fn a_long_trim_goes_on_in_bounded_steps() {
    let options = ControllerOptions {
        limits: Limits {
            segments_per_drop: 3,
            ..Limits::default()
        },
        ..ControllerOptions::new(broker(1))
    };
    let run = Running::start_with(Arc::new(MemoryOpener::new()), options, 0).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let commit = (0..10)
        .map(|i| object(&format!("o{i}"), vec![segment(p, 0, range(i, i + 1))]))
        .collect();
    run.commit(broker_epoch, commit).await.unwrap();
    let request = AdvanceLogStart {
        broker: broker(1),
        broker_epoch,
        partition: p,
        leader_epoch: epoch(0),
        new_start: offset(9),
    };
    run.handle.advance_log_start(request).await.unwrap();
    run.settle().await;
    assert_eq!(run.ranges(p).await, [range(9, 10)]);
    assert_eq!(run.state(p).await.segment_count, 1);
    assert_eq!(run.deletable(NOW.get()).await.len(), 9);
}

#[tokio::test]
async fn a_deleted_topic_frees_its_name_at_once_and_its_objects_later() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let ids = run
        .create_all(vec![new_topic("t1", 2), new_topic("t2", 1)])
        .await;
    let (p1, p2) = (partition(ids[0], 0), partition(ids[1], 0));
    let shared = object(
        "shared",
        vec![segment(p1, 0, range(0, 5)), segment(p2, 0, range(0, 5))],
    );
    let own = object("own", vec![segment(p1, 0, range(5, 9))]);
    run.commit(broker_epoch, vec![shared, own]).await.unwrap();
    let delete = DeleteTopics {
        topics: vec![ids[0], ids[0]],
    };
    let answers = run.handle.delete_topics(delete).await.unwrap();
    assert_eq!(answers, [Ok(name("t1")), Err(UnknownTopic(ids[0]))]);
    let again = run.create("t1", 1).await;
    assert_ne!(again, ids[0]);
    let fresh = run.state(partition(again, 0)).await;
    assert_eq!(fresh.committed_end, Offset::ZERO);
    let image = run.handle.image().borrow().clone();
    assert_eq!(image.topic("t1").unwrap().id, again);
    assert!(image.topic_by_id(ids[0]).is_none());
    run.settle().await;
    assert_eq!(run.deletable(NOW.get()).await, [key("own")]);
    assert_eq!(run.ranges(p1).await, []);
    assert_eq!(run.ranges(p2).await, [range(0, 5)]);
}

#[tokio::test]
async fn a_commit_for_a_deleted_topic_drops_its_part_without_an_error() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let ids = run
        .create_all(vec![new_topic("t1", 1), new_topic("t2", 1)])
        .await;
    let (p1, p2) = (partition(ids[0], 0), partition(ids[1], 0));
    run.handle
        .delete_topics(DeleteTopics {
            topics: vec![ids[0]],
        })
        .await
        .unwrap();
    let both = object(
        "both",
        vec![segment(p1, 0, range(0, 5)), segment(p2, 0, range(0, 5))],
    );
    let gone = object("gone", vec![segment(p1, 0, range(5, 6))]);
    let outcomes = run
        .commit(broker_epoch, vec![both, gone.clone()])
        .await
        .unwrap();
    assert_eq!(
        outcomes[0].segments,
        [
            SegmentOutcome::TopicDeleted,
            SegmentOutcome::Committed {
                committed_end: offset(5)
            }
        ]
    );
    assert_eq!(outcomes[1].segments, [SegmentOutcome::TopicDeleted]);
    assert_eq!(run.deletable(NOW.get()).await, [key("gone")]);
    run.commit(broker_epoch, vec![gone]).await.unwrap();
    run.handle
        .forget_objects(vec![key("gone"), key("both")])
        .await
        .unwrap();
    let statuses = run
        .handle
        .object_statuses(vec![key("gone"), key("both")])
        .await
        .unwrap();
    assert_eq!(
        statuses,
        [
            ObjectStatus::Unknown,
            ObjectStatus::Referenced { references: 2 }
        ],
        "only what nobody refers to is forgotten"
    );
}

#[tokio::test]
async fn a_dropped_object_is_never_referred_to_again() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let ids = run
        .create_all(vec![new_topic("t1", 1), new_topic("t2", 1)])
        .await;
    let mut only = segment(partition(ids[0], 0), 0, range(0, 5));
    only.checkpoint = None;
    run.commit(broker_epoch, vec![object("o", vec![only])])
        .await
        .unwrap();
    let request = AdvanceLogStart {
        broker: broker(1),
        broker_epoch,
        partition: partition(ids[0], 0),
        leader_epoch: epoch(0),
        new_start: offset(5),
    };
    run.handle.advance_log_start(request).await.unwrap();
    let revive = vec![object(
        "o",
        vec![segment(partition(ids[1], 0), 0, range(0, 5))],
    )];
    let refused = run.commit(broker_epoch, revive).await;
    assert!(matches!(
        refused,
        Err(CommitObjectsError::Refused(
            CommitRefused::ObjectDropped { .. }
        ))
    ));
}

#[tokio::test]
async fn producer_id_blocks_never_overlap_not_even_over_a_restart() {
    let opener = MemoryOpener::new();
    let mut seen = std::collections::BTreeSet::new();
    for incarnation in 1..4 {
        let run = Running::start(&opener).await;
        let (broker_epoch, _) = run.lead(incarnation).await;
        for _ in 0..3 {
            let request = AllocateProducerIds {
                broker: broker(1),
                broker_epoch,
            };
            let block = run.handle.allocate_producer_ids(request).await.unwrap();
            for id in 0..i64::from(block.count) {
                assert!(seen.insert(block.first.to_wire() + id), "handed out twice");
            }
        }
        run.stop().await;
    }
    assert_eq!(seen.len(), 9_000);
}

#[tokio::test]
async fn a_page_of_segments_tells_whether_more_follow() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let topic = run.create("t", 2).await;
    let (p, other) = (partition(topic, 0), partition(topic, 1));
    let commit = (0..4)
        .map(|i| {
            object(
                &format!("o{i}"),
                vec![segment(p, 0, range(i * 10, i * 10 + 10))],
            )
        })
        .chain([object("x", vec![segment(other, 0, range(0, 1))])])
        .collect();
    run.commit(broker_epoch, commit).await.unwrap();
    let page = |from, limit| {
        run.handle.segments(SegmentQuery {
            partition: p,
            from: offset(from),
            limit,
        })
    };
    let middle = page(10, 2).await.unwrap();
    assert_eq!(middle.segments[0].range, range(10, 20));
    assert_eq!(middle.segments[1].range, range(20, 30));
    assert!(middle.more);
    let inside = page(35, 2).await.unwrap();
    assert_eq!(inside.segments.len(), 1);
    assert_eq!(inside.segments[0].object, key("o3"));
    assert!(!inside.more);
    assert!(page(40, 2).await.unwrap().segments.is_empty());
}
