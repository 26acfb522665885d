//! Swaps: compaction puts new segments in the place of those it read.

use super::*;

/// Three segments of `o0` to `o2`, 0..10..20..30, of a partition that broker 1 leads.
async fn three_segments() -> (Running, BrokerEpoch, PartitionId) {
    let run = Running::start(&MemoryOpener::new()).await;
    let (broker_epoch, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    let commit = (0..3)
        .map(|i| {
            object(
                &format!("o{i}"),
                vec![segment(p, 0, range(i * 10, i * 10 + 10))],
            )
        })
        .collect();
    run.commit(broker_epoch, commit).await.unwrap();
    (run, broker_epoch, p)
}

fn swap(
    broker_epoch: BrokerEpoch,
    p: PartitionId,
    inputs: &[(u64, u64, &str)],
    outputs: &[(u64, u64, &str)],
) -> SwapSegments {
    let new = |(start, end, key): &(u64, u64, &str)| {
        let segments = vec![SegmentCommit {
            checkpoint: None,
            ..segment(p, 0, range(*start, *end))
        }];
        object(key, segments)
    };
    SwapSegments {
        broker: broker(1),
        broker_epoch,
        partition: p,
        leader_epoch: epoch(0),
        inputs: inputs
            .iter()
            .map(|(start, end, object)| SwapInput {
                range: range(*start, *end),
                object: key(object),
            })
            .collect(),
        outputs: outputs.iter().map(new).collect(),
        cleaned_end: None,
    }
}

const BOTH: [(u64, u64, &str); 2] = [(0, 10, "o0"), (10, 20, "o1")];

async fn refusal(run: &Running, request: SwapSegments) -> SwapRefused {
    match run.handle.swap_segments(request).await.unwrap() {
        SwapOutcome::Refused(refused) => refused,
        SwapOutcome::Swapped => panic!("it was swapped"),
    }
}

#[tokio::test]
async fn a_swap_done_twice_counts_once_and_drops_what_it_replaced() {
    let (run, broker_epoch, p) = three_segments().await;
    let mut request = swap(broker_epoch, p, &BOTH, &[(0, 13, "c1"), (13, 20, "c2")]);
    request.cleaned_end = Some(offset(20));
    for _ in 0..2 {
        let outcome = run.handle.swap_segments(request.clone()).await.unwrap();
        assert_eq!(outcome, SwapOutcome::Swapped);
        assert_eq!(
            run.ranges(p).await,
            [range(0, 13), range(13, 20), range(20, 30)]
        );
        let state = run.state(p).await;
        assert_eq!((state.swaps, state.cleaned_end), (1, offset(20)));
        assert_eq!((state.segment_count, state.segment_bytes), (3, 300));
        assert_eq!(state.checkpoint.unwrap().as_of, offset(30));
        assert_eq!(run.deletable(NOW.get()).await, [key("o0"), key("o1")]);
    }
}

#[tokio::test]
async fn the_object_of_the_newest_checkpoint_outlives_its_segment() {
    let (run, broker_epoch, p) = three_segments().await;
    let inputs = [(0, 10, "o0"), (10, 20, "o1"), (20, 30, "o2")];
    let request = swap(broker_epoch, p, &inputs, &[(0, 30, "c1")]);
    let outcome = run.handle.swap_segments(request).await.unwrap();
    assert_eq!(outcome, SwapOutcome::Swapped);
    assert_eq!(run.deletable(NOW.get()).await, [key("o0"), key("o1")]);
}

#[tokio::test]
async fn a_refused_swap_changes_nothing_and_gives_its_objects_up() {
    let (run, broker_epoch, p) = three_segments().await;
    let of = |inputs: &[_], outputs: &[_]| swap(broker_epoch, p, inputs, outputs);
    let wrong_object = [(0, 10, "o0"), (10, 20, "o2")];
    let refused = refusal(&run, of(&wrong_object, &[(0, 20, "c1")])).await;
    assert_eq!(refused, SwapRefused::OtherSegments);
    let refused = refusal(&run, of(&[(0, 20, "o0")], &[(0, 20, "c2")])).await;
    assert_eq!(refused, SwapRefused::OtherSegments);
    let refused = refusal(
        &run,
        SwapSegments {
            leader_epoch: epoch(1),
            ..of(&BOTH, &[(0, 20, "c3")])
        },
    )
    .await;
    assert!(matches!(refused, SwapRefused::NotLeader { .. }));
    for (inputs, outputs) in [
        (&BOTH[..], &[(0, 19, "d")][..]),
        (&BOTH, &[(0, 5, "d"), (6, 20, "d")]),
        (&BOTH, &[]),
        (&[(0, 10, "o0"), (20, 30, "o2")], &[(0, 30, "d")]),
    ] {
        let refused = refusal(&run, of(inputs, outputs)).await;
        assert!(
            matches!(refused, SwapRefused::Malformed { .. }),
            "{refused:?}"
        );
    }
    let stale = SwapSegments {
        broker_epoch: BrokerEpoch::new(broker_epoch.get() + 1),
        ..of(&BOTH, &[(0, 20, "d")])
    };
    assert!(matches!(
        run.handle.swap_segments(stale).await,
        Err(SwapSegmentsError::StaleBrokerEpoch(_))
    ));
    let state = run.state(p).await;
    assert_eq!((state.swaps, state.segment_count), (0, 3));
    assert_eq!(
        run.deletable(NOW.get()).await,
        [key("c1"), key("c2"), key("c3")]
    );
    // What was given up once can't be used any more.
    let refused = refusal(&run, of(&BOTH, &[(0, 20, "c1")])).await;
    assert!(matches!(refused, SwapRefused::ObjectDropped { .. }));
}

#[tokio::test]
async fn retention_in_the_middle_refuses_a_swap() {
    let (run, broker_epoch, p) = three_segments().await;
    let advance = |new_start| AdvanceLogStart {
        broker: broker(1),
        broker_epoch,
        partition: p,
        leader_epoch: epoch(0),
        new_start: offset(new_start),
    };
    // Within a segment it's no obstacle.
    run.handle.advance_log_start(advance(5)).await.unwrap();
    let request = swap(broker_epoch, p, &BOTH, &[(0, 20, "c1")]);
    let outcome = run.handle.swap_segments(request).await.unwrap();
    assert_eq!(outcome, SwapOutcome::Swapped);
    run.handle.advance_log_start(advance(20)).await.unwrap();
    assert_eq!(run.ranges(p).await, [range(20, 30)]);
    let request = swap(broker_epoch, p, &[(0, 20, "c1")], &[(0, 20, "c2")]);
    let refused = refusal(&run, request).await;
    assert!(matches!(refused, SwapRefused::BelowLogStart { .. }));
}

#[tokio::test]
async fn what_the_checkpoint_does_not_cover_is_not_swapped() {
    let (run, broker_epoch, p) = three_segments().await;
    let bare = SegmentCommit {
        checkpoint: None,
        ..segment(p, 0, range(30, 40))
    };
    run.commit(broker_epoch, vec![object("o3", vec![bare])])
        .await
        .unwrap();
    let request = swap(broker_epoch, p, &[(30, 40, "o3")], &[(30, 40, "c1")]);
    let refused = refusal(&run, request).await;
    assert_eq!(
        refused,
        SwapRefused::NotCheckpointed {
            as_of: Some(offset(30))
        }
    );
    let mut only_the_end = swap(broker_epoch, p, &[], &[]);
    only_the_end.cleaned_end = Some(offset(40));
    let refused = refusal(&run, only_the_end.clone()).await;
    assert!(matches!(refused, SwapRefused::NotCheckpointed { .. }));
    only_the_end.cleaned_end = Some(offset(30));
    let outcome = run.handle.swap_segments(only_the_end).await.unwrap();
    assert_eq!(outcome, SwapOutcome::Swapped);
    assert_eq!(run.state(p).await.cleaned_end, offset(30));
}

#[tokio::test]
async fn a_deleted_topic_gives_its_compacted_objects_up() {
    let (run, broker_epoch, p) = three_segments().await;
    let deletion = DeleteTopics {
        topics: vec![p.topic],
    };
    run.handle.delete_topics(deletion).await.unwrap();
    let request = swap(broker_epoch, p, &BOTH, &[(0, 20, "c1")]);
    let refused = refusal(&run, request).await;
    assert_eq!(refused, SwapRefused::UnknownPartition(p));
    run.settle().await;
    assert!(run.deletable(NOW.get()).await.contains(&key("c1")));
}
