//! Commits, log starts, deletion: what refers to an object and what no longer does.

use super::*;

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
async fn a_gap_refuses_the_whole_commit() {
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
    let commit = vec![object(
        "o2",
        vec![segment(p1, 0, range(0, 5)), segment(p0, 0, range(11, 20))],
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
    assert_eq!(run.state(p1).await.committed_end, Offset::ZERO);
    let statuses = run.handle.object_statuses(vec![key("o2")]).await.unwrap();
    assert_eq!(statuses, [ObjectStatus::Unknown]);
}

#[tokio::test]
async fn a_range_whose_beginning_is_committed_is_skipped_and_the_rest_of_the_commit_stands() {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let topic = run.create("t", 2).await;
    let (p0, p1) = (partition(topic, 0), partition(topic, 1));
    let first = vec![object("o1", vec![segment(p0, 0, range(0, 10))])];
    run.commit(broker_epoch, first).await.unwrap();
    let commit = vec![object(
        "o2",
        vec![segment(p0, 0, range(5, 20)), segment(p1, 0, range(0, 5))],
    )];
    let outcome = run.commit(broker_epoch, commit).await.unwrap();
    assert_eq!(
        outcome[0].segments,
        [
            SegmentOutcome::Overtaken {
                committed_end: offset(10)
            },
            SegmentOutcome::Committed {
                committed_end: offset(5)
            }
        ]
    );
    assert_eq!(run.ranges(p0).await, [range(0, 10)]);
    assert_eq!(run.ranges(p1).await, [range(0, 5)]);
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
