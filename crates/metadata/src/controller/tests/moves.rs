//! Moves, failover and brokers that come and go.

use tidegate_types::ControllerEpoch;

use super::*;

/// Registers a broker and takes leadership on its local WAL.
async fn join(run: &Running, id: u32, incarnation: u128) -> BrokerEpoch {
    join_in(run, id, incarnation, None).await
}

async fn join_in(run: &Running, id: u32, incarnation: u128, rack: Option<&str>) -> BrokerEpoch {
    let request = RegisterBroker {
        rack: rack.map(str::to_owned),
        ..registration(id, incarnation)
    };
    let registered = run.handle.register_broker(request).await.unwrap();
    let take = TakeLeadership {
        broker: broker(id),
        wal: Some(wal_of(id)),
        ..taking(&registered)
    };
    run.handle.take_leadership(take).await.unwrap();
    registered.broker_epoch
}

async fn start_object() -> Running {
    Running::start_with(Arc::new(MemoryOpener::new()), object_mode(), 0).await
}

async fn create_rf(run: &Running, topic: &str, partitions: u32, factor: u16) -> TopicId {
    let mut new = new_topic(topic, partitions);
    new.layout = TopicLayout::Count {
        partitions,
        replication_factor: factor,
    };
    run.create_all(vec![new]).await[0]
}

async fn assigned(run: &Running, topic: &str, placement: &[u32]) -> PartitionId {
    let mut new = new_topic(topic, 1);
    new.layout = TopicLayout::Assigned(vec![placement.iter().map(|id| broker(*id)).collect()]);
    partition(run.create_all(vec![new]).await[0], 0)
}

fn wanted(partition: PartitionId, to: u32) -> SetTargets {
    SetTargets {
        moves: vec![WantedMove {
            partition,
            to: broker(to),
            prefer: true,
        }],
    }
}

async fn want(run: &Running, partition: PartitionId, to: u32) -> Result<Wish, WishRefused> {
    let answers = run.handle.set_targets(wanted(partition, to)).await.unwrap();
    answers.into_iter().next().unwrap()
}

fn sealed(partition: PartitionId, leader_epoch: u32, end: u64, from: u32, to: u32) -> CommitMove {
    CommitMove {
        partition,
        leader_epoch: epoch(leader_epoch),
        sealed_end: offset(end),
        from: broker(from),
        to: broker(to),
        to_broker_epoch: BrokerEpoch::new(1),
        held_in: Some(wal_of(to)),
    }
}

fn controller_epoch(run: &Running) -> ControllerEpoch {
    run.handle.image().borrow().version().controller_epoch
}

/// Carries the move out under the present controller and the new leader's present registration.
async fn commit_move(run: &Running, moved: CommitMove) -> Result<PartitionState, MoveRefused> {
    let moved = CommitMove {
        to_broker_epoch: view(run, moved.to.get()).await.broker_epoch,
        ..moved
    };
    commit_as_sealed(run, moved).await
}

async fn commit_as_sealed(run: &Running, moved: CommitMove) -> Result<PartitionState, MoveRefused> {
    let request = CommitMoves {
        controller_epoch: controller_epoch(run),
        objects: vec![],
        moves: vec![moved],
    };
    let mut answer = run.handle.commit_moves(request).await.unwrap();
    answer.moves.remove(0)
}

async fn commit_as(
    run: &Running,
    id: u32,
    broker_epoch: BrokerEpoch,
    objects: Vec<ObjectCommit>,
) -> Vec<SegmentOutcome> {
    let request = CommitObjects {
        broker: broker(id),
        broker_epoch,
        objects,
    };
    let outcomes = run.handle.commit_objects(request).await.unwrap();
    outcomes.into_iter().flat_map(|o| o.segments).collect()
}

async fn fail_over(run: &Running, id: u32, accept_loss: bool) -> FailedOver {
    let brokers = run.handle.brokers().await.unwrap();
    let view = brokers.iter().find(|view| view.id == broker(id)).unwrap();
    let request = FailOver {
        broker: view.id,
        broker_epoch: view.broker_epoch,
        fenced_writer: view.writer.map(|w| w.broker_epoch),
        recovered: vec![],
        accept_loss,
    };
    run.handle.fail_over(request).await.unwrap()
}

async fn view(run: &Running, id: u32) -> BrokerView {
    let brokers = run.handle.brokers().await.unwrap();
    brokers.into_iter().find(|v| v.id == broker(id)).unwrap()
}

fn epochs(state: &PartitionState) -> Vec<(u32, u64)> {
    let epochs = state.epochs.iter();
    epochs.map(|e| (e.epoch.get(), e.start.get())).collect()
}

#[tokio::test]
async fn a_moved_partition_goes_on_at_its_sealed_end_under_the_next_epoch() {
    let run = Running::start(&MemoryOpener::new()).await;
    let first = join(&run, 1, 1).await;
    let second = join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1]).await;
    let wish = want(&run, p, 2).await.unwrap();
    assert!(matches!(wish, Wish::Pending(ref pending) if pending.new_placement == [broker(2)]));
    assert_eq!(run.handle.pending_moves().await.unwrap().len(), 1);
    assert_eq!(
        run.state(p).await.placement,
        [broker(1)],
        "not before the move"
    );
    let moved = commit_move(&run, sealed(p, 0, 40, 1, 2)).await.unwrap();
    assert_eq!(
        (moved.leader, moved.committed_end),
        (Some(broker(2)), offset(0))
    );
    assert_eq!(epochs(&moved), [(0, 0), (1, 40)]);
    assert_eq!(moved.placement, [broker(2)]);
    assert_eq!(run.handle.pending_moves().await.unwrap(), []);
    // A lost answer: the repetition finds it done.
    assert_eq!(
        commit_move(&run, sealed(p, 0, 40, 1, 2)).await.unwrap(),
        moved
    );
    // Both may upload the sealed range; the new leader then goes on under its own epoch.
    let late = vec![object("a", vec![segment(p, 0, range(0, 40))])];
    commit_as(&run, 1, first, late).await;
    let overtaken = vec![object("b", vec![segment(p, 1, range(0, 55))])];
    let outcome = commit_as(&run, 2, second, overtaken).await;
    let committed_end = offset(40);
    assert_eq!(outcome, [SegmentOutcome::Overtaken { committed_end }]);
    let cut_anew = vec![object("c", vec![segment(p, 1, range(40, 55))])];
    commit_as(&run, 2, second, cut_anew).await;
    assert_eq!(run.ranges(p).await, [range(0, 40), range(40, 55)]);
    // What the former leader wrote behind the end was never acknowledged.
    let stray = vec![object("d", vec![segment(p, 0, range(40, 50))])];
    let sealed_end = offset(40);
    let outcome = commit_as(&run, 1, first, stray).await;
    assert_eq!(outcome, [SegmentOutcome::Superseded { sealed_end }]);
}

#[tokio::test]
async fn the_sources_objects_and_the_move_are_one_change() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener.clone()), object_mode(), 0).await;
    let first = join(&run, 1, 1).await;
    join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1]).await;
    want(&run, p, 2).await.unwrap();
    let wal_object = |sequence, segments| ObjectCommit {
        wal_sequence: Some(sequence),
        ..object(&format!("w{sequence}"), segments)
    };
    let moved = CommitMove {
        held_in: None,
        ..sealed(p, 0, 30, 1, 2)
    };
    let request = |objects| CommitMoves {
        controller_epoch: controller_epoch(&run),
        objects: vec![SourceObjects {
            broker: broker(1),
            broker_epoch: first,
            objects,
        }],
        moves: vec![moved],
    };
    // Half of the sealed range isn't enough, and a gap in the sequence refuses the source.
    let half = request(vec![wal_object(0, vec![segment(p, 0, range(0, 10))])]);
    let answer = run.handle.commit_moves(half).await.unwrap();
    assert_eq!(
        answer.moves,
        [Err(MoveRefused::NotHeld {
            committed_end: offset(10),
            sealed_end: offset(30)
        })]
    );
    let gap = request(vec![
        wal_object(1, vec![segment(p, 0, range(10, 20))]),
        wal_object(3, vec![segment(p, 0, range(20, 30))]),
    ]);
    let answer = run.handle.commit_moves(gap).await.unwrap();
    assert!(answer.objects[0].is_err() && answer.moves[0].is_err());
    assert_eq!(run.state(p).await.committed_end, offset(10), "all or none");
    let batches = opener.batches();
    let whole = request(vec![
        wal_object(1, vec![segment(p, 0, range(10, 20))]),
        wal_object(2, vec![segment(p, 0, range(20, 30))]),
    ]);
    let answer = run.handle.commit_moves(whole).await.unwrap();
    assert_eq!(opener.batches(), batches + 1);
    let state = answer.moves[0].clone().unwrap();
    assert_eq!(
        (state.leader, state.committed_end),
        (Some(broker(2)), offset(30))
    );
    assert_eq!(view(&run, 1).await.writer.unwrap().next_wal_sequence, 3);
    assert_eq!(
        run.handle.partitions_of(broker(2)).await.unwrap()[0].bound_to,
        None
    );
}

#[tokio::test]
async fn a_move_of_the_past_or_to_nobody_is_refused() {
    let run = Running::start(&MemoryOpener::new()).await;
    join(&run, 1, 1).await;
    join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1]).await;
    let unwanted = commit_move(&run, sealed(p, 0, 5, 1, 2)).await;
    assert_eq!(unwanted, Err(MoveRefused::Withdrawn));
    want(&run, p, 2).await.unwrap();
    let cancel = CancelTargets {
        partitions: vec![CancelTarget {
            partition: p,
            to: None,
        }],
    };
    for there in [true, false] {
        let withdrawn = run.handle.cancel_targets(cancel.clone()).await.unwrap();
        assert_eq!(withdrawn, [there]);
    }
    let withdrawn = commit_move(&run, sealed(p, 0, 5, 1, 2)).await;
    assert_eq!(withdrawn, Err(MoveRefused::Withdrawn));
    want(&run, p, 2).await.unwrap();
    let not_held = CommitMove {
        held_in: Some(wal_of(1)),
        ..sealed(p, 0, 5, 1, 2)
    };
    let refused = commit_move(&run, not_held).await;
    assert!(matches!(refused, Err(MoveRefused::NotHeld { .. })));
    run.lose(2).await;
    let refused = commit_move(&run, sealed(p, 0, 5, 1, 2)).await;
    assert_eq!(refused, Err(MoveRefused::TargetUnavailable(broker(2))));
    assert_eq!(
        want(&run, p, 2).await,
        Err(WishRefused::NotAlive(broker(2)))
    );
    assert_eq!(
        want(&run, p, 7).await,
        Err(WishRefused::UnknownBroker(broker(7)))
    );
    join(&run, 2, 2).await;
    // It started anew, and holds nothing any more of what it held.
    let refused = commit_as_sealed(&run, sealed(p, 0, 5, 1, 2)).await;
    assert_eq!(refused, Err(MoveRefused::TargetUnavailable(broker(2))));
    commit_move(&run, sealed(p, 0, 5, 1, 2)).await.unwrap();
    // Broker 1 was sealed under epoch 0, which is over.
    want(&run, p, 1).await.unwrap();
    let stale = commit_move(&run, sealed(p, 0, 5, 2, 1)).await;
    assert!(matches!(stale, Err(MoveRefused::Stale { .. })), "{stale:?}");
    let low = commit_move(&run, sealed(p, 1, 4, 2, 1)).await;
    assert!(
        matches!(low, Err(MoveRefused::SealedTooLow { .. })),
        "{low:?}"
    );
}

#[tokio::test]
async fn a_seal_under_an_earlier_opening_moves_nothing_but_a_repetition_is_answered() {
    let run = Running::start(&MemoryOpener::new()).await;
    join(&run, 1, 1).await;
    join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1]).await;
    want(&run, p, 2).await.unwrap();
    let sealed_under = ControllerEpoch::new(0);
    let request = CommitMoves {
        controller_epoch: sealed_under,
        objects: vec![],
        moves: vec![sealed(p, 0, 5, 1, 2)],
    };
    let answer = run.handle.commit_moves(request.clone()).await.unwrap();
    assert_eq!(
        answer.moves,
        [Err(MoveRefused::StaleController { sealed_under })]
    );
    let moved = commit_move(&run, sealed(p, 0, 5, 1, 2)).await.unwrap();
    let answer = run.handle.commit_moves(request).await.unwrap();
    assert_eq!(answer.moves, [Ok(moved)]);
}

#[tokio::test]
async fn a_placement_holds_at_once_or_from_the_move_on() {
    let run = Running::start(&MemoryOpener::new()).await;
    for id in [1, 2, 3] {
        join(&run, id, 1).await;
    }
    let p = assigned(&run, "t", &[1, 2]).await;
    let set = |placement: &[u32]| SetPlacements {
        placements: vec![(p, placement.iter().map(|id| broker(*id)).collect())],
    };
    let answer = run.handle.set_placements(set(&[3, 1])).await.unwrap();
    assert!(matches!(answer[0], Ok(Wish::Fulfilled { .. })));
    assert_eq!(run.state(p).await.placement, [broker(3), broker(1)]);
    run.lose(2).await;
    let answer = run.handle.set_placements(set(&[2, 3])).await.unwrap();
    assert!(matches!(&answer[0], Ok(Wish::Pending(pending)) if pending.to == broker(3)));
    let moved = commit_move(&run, sealed(p, 0, 1, 1, 3)).await.unwrap();
    assert_eq!(moved.placement, [broker(2), broker(3)]);
    for (placement, refusal) in [
        (vec![], WishRefused::EmptyPlacement),
        (vec![3, 3], WishRefused::RepeatedBroker(broker(3))),
        (vec![3, 9], WishRefused::UnknownBroker(broker(9))),
        (vec![2], WishRefused::NotAlive(broker(2))),
    ] {
        let answer = run.handle.set_placements(set(&placement)).await.unwrap();
        assert_eq!(answer, [Err(refusal)]);
    }
}

#[tokio::test]
async fn a_move_that_is_not_preferred_keeps_the_order_of_the_placement() {
    let run = Running::start(&MemoryOpener::new()).await;
    for id in [1, 2, 3] {
        join(&run, id, 1).await;
    }
    let p = assigned(&run, "t", &[1, 2]).await;
    for (to, expected) in [(2, [1, 2]), (3, [3, 2])] {
        let mut request = wanted(p, to);
        request.moves[0].prefer = false;
        let answer = run.handle.set_targets(request).await.unwrap();
        let Ok(Wish::Pending(pending)) = &answer[0] else {
            panic!("{answer:?}")
        };
        assert_eq!(pending.new_placement, expected.map(broker));
    }
}

#[tokio::test]
async fn a_dead_brokers_object_partitions_go_to_survivors_evenly() {
    let run = start_object().await;
    for id in [1, 2, 3, 4] {
        join(&run, id, 1).await;
    }
    let topics = [
        create_rf(&run, "one", 40, 1).await,
        create_rf(&run, "three", 48, 3).await,
    ];
    let led = view(&run, 1).await.leaders;
    assert_eq!(led, 22, "leaders were spread evenly");
    run.lose(1).await;
    let outcome = fail_over(&run, 1, false).await;
    assert_eq!(outcome.moved.len() as u64, led);
    let mut counts = Vec::new();
    for id in [2, 3, 4] {
        counts.push(view(&run, id).await.leaders);
    }
    assert!(counts.iter().all(|n| (28..=31).contains(n)), "{counts:?}");
    for topic in topics {
        let image = run.handle.image().borrow().clone();
        for partition in &image.topic_by_id(topic).unwrap().partitions {
            let leader = partition.leader.unwrap();
            assert!(leader != broker(1) && partition.placement.contains(&leader));
        }
    }
}

#[tokio::test]
async fn a_failover_commits_what_was_acknowledged_and_retires_the_dead() {
    let run = start_object().await;
    let first = join(&run, 1, 1).await;
    join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1, 2]).await;
    let request = FailOver {
        broker: broker(1),
        broker_epoch: first,
        fenced_writer: Some(first),
        recovered: vec![ObjectCommit {
            wal_sequence: Some(0),
            ..object("w0", vec![segment(p, 0, range(0, 25))])
        }],
        accept_loss: false,
    };
    let alive = run.handle.fail_over(request.clone()).await;
    assert_eq!(alive, Err(FailOverError::Alive(broker(1))));
    run.lose(1).await;
    let unfenced = FailOver {
        fenced_writer: None,
        ..request.clone()
    };
    let refused = run.handle.fail_over(unfenced).await;
    assert_eq!(
        refused,
        Err(FailOverError::WriterNotFenced { expected: first })
    );
    let outcome = run.handle.fail_over(request.clone()).await.unwrap();
    assert_eq!(epochs(&outcome.moved[0]), [(0, 0), (1, 25)]);
    assert_eq!(outcome.moved[0].leader, Some(broker(2)));
    let again = run.handle.fail_over(request).await;
    assert!(matches!(again, Err(FailOverError::StaleBrokerEpoch(_))));
    // The dead process wakes up.
    let late = CommitObjects {
        broker: broker(1),
        broker_epoch: first,
        objects: vec![object("late", vec![segment(p, 0, range(25, 30))])],
    };
    assert!(matches!(
        run.handle.commit_objects(late).await,
        Err(CommitObjectsError::StaleBrokerEpoch(_))
    ));
    let repeated = run
        .handle
        .register_broker(registration(1, 1))
        .await
        .unwrap();
    assert!(repeated.broker_epoch > outcome.broker_epoch);
    assert_eq!(repeated.former_writer, None, "nothing is left to fence");
}

#[tokio::test]
async fn a_local_partition_waits_for_its_disk_until_the_loss_is_accepted() {
    let run = Running::start(&MemoryOpener::new()).await;
    let first = join(&run, 1, 1).await;
    join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1, 2]).await;
    let uploaded = vec![object("o", vec![segment(p, 0, range(0, 10))])];
    commit_as(&run, 1, first, uploaded).await;
    run.lose(1).await;
    let outcome = fail_over(&run, 1, false).await;
    assert_eq!((outcome.moved.len(), outcome.waiting), (0, vec![p]));
    assert_eq!(run.state(p).await.leader, None);
    // Its disk comes back and leads again.
    let back = run
        .handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    let take = TakeLeadership {
        ends: vec![RecoveredEnd {
            partition: p,
            leader_epoch: epoch(0),
            end: offset(15),
        }],
        ..taking(&back)
    };
    let taken = run.handle.take_leadership(take).await.unwrap();
    assert_eq!(epochs(&taken.partitions[0]), [(0, 0), (1, 15)]);
    // It is lost for good.
    run.lose(1).await;
    let outcome = fail_over(&run, 1, true).await;
    assert_eq!(
        outcome.lost,
        [Loss {
            partition: p,
            from: offset(10),
            known_to: Some(offset(15))
        }]
    );
    assert_eq!(outcome.moved[0].leader, Some(broker(2)));
    assert_eq!(outcome.moved[0].leader_epoch_start(), offset(10));
}

#[tokio::test]
async fn without_survivors_a_failover_can_be_finished_later() {
    let run = start_object().await;
    join(&run, 1, 1).await;
    let p = assigned(&run, "t", &[1]).await;
    run.lose(1).await;
    assert_eq!(fail_over(&run, 1, false).await.stranded, [p]);
    join(&run, 2, 1).await;
    assert_eq!(
        fail_over(&run, 1, false).await.moved[0].leader,
        Some(broker(2))
    );
    assert_eq!(run.state(p).await.placement, [broker(2)]);
}

#[tokio::test]
async fn a_second_process_under_one_number_is_refused_unless_it_holds_the_same_disk() {
    let run = Running::start(&MemoryOpener::new()).await;
    let first = join(&run, 1, 1).await;
    let other_disk = RegisterBroker {
        wal: Some(Uuid::from_u128(0xD15C)),
        ..registration(1, 2)
    };
    let refused = run.handle.register_broker(other_disk.clone()).await;
    assert!(matches!(
        refused,
        Err(RegisterBrokerError::Duplicate { .. })
    ));
    let restarted = run
        .handle
        .register_broker(registration(1, 3))
        .await
        .unwrap();
    assert!(restarted.broker_epoch > first);
    run.lose(1).await;
    run.handle.register_broker(other_disk).await.unwrap();
}

#[tokio::test]
async fn numbers_are_given_out_once_and_kept_by_disk_and_incarnation() {
    let run = Running::start(&MemoryOpener::new()).await;
    let anonymous = |incarnation, wal: u128| RegisterBroker {
        broker: None,
        wal: Some(Uuid::from_u128(wal)),
        ..registration(0, incarnation)
    };
    run.handle
        .register_broker(registration(2, 1))
        .await
        .unwrap();
    let register = async |request| run.handle.register_broker(request).await.unwrap().broker;
    assert_eq!(register(anonymous(10, 0xA)).await, broker(1));
    assert_eq!(register(anonymous(10, 0xA)).await, broker(1));
    assert_eq!(register(anonymous(11, 0xA)).await, broker(1));
    assert_eq!(register(anonymous(12, 0xB)).await, broker(3));
    run.lose(3).await;
    let unregister = UnregisterBroker { broker: broker(3) };
    run.handle.unregister_broker(unregister).await.unwrap();
    assert_eq!(register(anonymous(13, 0xC)).await, broker(4));
}

#[tokio::test]
async fn a_draining_broker_gets_nothing_until_it_registers_anew() {
    let run = start_object().await;
    let first = join(&run, 1, 1).await;
    let second = join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[2]).await;
    let drain = |draining, broker_epoch| SetDraining {
        broker: broker(1),
        broker_epoch,
        draining,
    };
    run.handle.set_draining(drain(true, first)).await.unwrap();
    assert!(
        run.handle
            .image()
            .borrow()
            .broker(broker(1))
            .unwrap()
            .draining
    );
    assert_eq!(
        want(&run, p, 1).await,
        Err(WishRefused::Draining(broker(1)))
    );
    create_rf(&run, "new", 10, 1).await;
    assert_eq!(view(&run, 1).await.leaders, 0);
    let restarted = join(&run, 1, 2).await;
    assert!(!view(&run, 1).await.draining);
    let stale = run.handle.set_draining(drain(true, first)).await;
    assert!(matches!(stale, Err(BrokerChangeError::StaleBrokerEpoch(_))));
    // Better a draining broker than none.
    run.handle
        .set_draining(drain(true, restarted))
        .await
        .unwrap();
    run.lose(2).await;
    let dead = run.handle.set_alive(SetAlive {
        broker: broker(2),
        broker_epoch: second,
        alive: false,
    });
    dead.await.unwrap();
    assert_eq!(fail_over(&run, 2, false).await.stranded, []);
    assert_eq!(run.state(p).await.leader, Some(broker(1)));
}

#[tokio::test]
async fn a_broker_is_forgotten_only_when_nothing_needs_it_and_its_epochs_are_never_used_again() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener.clone()), object_mode(), 0).await;
    join(&run, 1, 1).await;
    let second = join(&run, 2, 1).await;
    let p = assigned(&run, "t", &[1, 2]).await;
    let forget = UnregisterBroker { broker: broker(2) };
    let alive = run.handle.unregister_broker(forget).await;
    assert_eq!(alive, Err(UnregisterBrokerError::Alive(broker(2))));
    run.lose(2).await;
    let unrecovered = run.handle.unregister_broker(forget).await;
    assert!(matches!(
        unrecovered,
        Err(UnregisterBrokerError::NotRecovered { .. })
    ));
    let retired = fail_over(&run, 2, false).await.broker_epoch;
    run.handle.unregister_broker(forget).await.unwrap();
    assert_eq!(run.state(p).await.placement, [broker(1)]);
    assert!(run.handle.image().borrow().broker(broker(2)).is_none());
    run.lose(1).await;
    fail_over(&run, 1, false).await;
    let needed = run
        .handle
        .unregister_broker(UnregisterBroker { broker: broker(1) })
        .await;
    assert!(matches!(
        needed,
        Err(UnregisterBrokerError::Needed { partitions: 1, .. })
    ));
    run.stop().await;
    let run = Running::start_with(Arc::new(opener), object_mode(), 1).await;
    assert!(run.handle.image().borrow().broker(broker(2)).is_none());
    let back = join(&run, 2, 1).await;
    assert!(back > retired && retired > second);
}

#[tokio::test]
async fn placements_respect_racks_and_spread_leaders_and_followers() {
    let run = start_object().await;
    for (id, rack) in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c")] {
        join_in(&run, id, 1, Some(rack)).await;
    }
    let topic = create_rf(&run, "t", 30, 3).await;
    let more = CreatePartitions {
        topics: vec![MorePartitions {
            topic,
            total: 60,
            assignments: None,
        }],
        validate_only: false,
    };
    run.handle.create_partitions(more).await.unwrap()[0]
        .as_ref()
        .unwrap();
    let image = run.handle.image().borrow().clone();
    let mut firsts = BTreeMap::new();
    let mut seconds = BTreeMap::new();
    for partition in &image.topic_by_id(topic).unwrap().partitions {
        let rack = |id: &BrokerId| (id.get() - 1) / 2;
        let racks: std::collections::BTreeSet<_> = partition.placement.iter().map(rack).collect();
        assert_eq!(racks.len(), 3, "{:?}", partition.placement);
        let (first, second) = (partition.placement[0], partition.placement[1]);
        *firsts.entry(first).or_insert(0) += 1;
        *seconds.entry((first, second)).or_insert(0) += 1;
    }
    assert!(
        firsts.values().all(|n| *n == 10) && firsts.len() == 6,
        "{firsts:?}"
    );
    // Each leader's partitions would spread over the four brokers of the other racks.
    assert_eq!(seconds.len(), 24, "{seconds:?}");
    assert!(seconds.values().all(|n| (2..=3).contains(n)), "{seconds:?}");
}
