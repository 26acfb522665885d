//! Registration, topics and configs: done once, twice, late, and by a stale broker.

use super::*;

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
            resource.clone(),
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
