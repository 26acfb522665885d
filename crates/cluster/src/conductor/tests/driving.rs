//! Moves when nothing fails: how they go, and that many of them end.

use std::time::Duration;

use super::world::Step;
use super::*;
use crate::admin::{
    ClusterAdmin, ElectError, ElectionKind, MoveError, MoveRequest, PlacementChange, PlacementError,
};

const WAIT: Duration = Duration::from_secs(60);

fn to(partition: PartitionId, id: u32) -> MoveRequest {
    MoveRequest {
        partition,
        to: broker(id),
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_is_reported_with_its_sealed_end_and_the_time_of_each_step() {
    for durability in [DurabilityMode::Local, DurabilityMode::Object] {
        let mut rig = Rig::new(durability).await;
        rig.start_all(1..=2).await;
        let p = partition(rig.topic("t", &[1]).await, 0);
        for _ in 0..7 {
            assert!(rig.world.append(p));
        }
        let reports = rig.conductor().reassign(vec![to(p, 2)], WAIT).await;
        let report = reports.unwrap().remove(0).unwrap();
        assert_eq!((report.from, report.to), (broker(1), broker(2)));
        assert_eq!(report.sealed_end_offset.get(), 7);
        assert_eq!(report.leader_epoch.get(), 1);
        assert_eq!(report.topic.as_str(), "t");
        assert!(report.prepare_ms >= 1.0 && report.seal_ms >= 1.0 && report.hold_ms >= 1.0);
        assert!(report.total_ms >= report.prepare_ms + report.seal_ms + report.commit_ms);
        settle().await;
        assert_eq!(rig.world.serves(p), [broker(2)]);
        assert!(rig.world.append(p));
        assert_eq!(rig.state(p).await.placement, [broker(2)]);
        let listed = rig.conductor().list_reassignments(None).await.unwrap();
        assert_eq!(listed, []);
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cant_be_moved_is_answered_at_once() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=3).await;
    let topic = rig.topic("t", &[1]).await;
    let p = partition(topic, 0);
    rig.conductor().drain(broker(3)).await.unwrap();
    let missing = partition(topic, 9);
    let moves = vec![to(p, 1), to(missing, 2), to(p, 9), to(p, 3)];
    let ends = rig.conductor().reassign(moves, WAIT).await.unwrap();
    assert!(matches!(ends[0], Err(MoveError::AlreadyThere { leader, .. }) if leader == broker(1)));
    assert_eq!(ends[1], Err(MoveError::UnknownPartition(missing)));
    assert_eq!(ends[2], Err(MoveError::UnknownBroker(broker(9))));
    assert_eq!(ends[3], Err(MoveError::Draining(broker(3))));
    assert_eq!(rig.world.orders_given(Step::Prepare), 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crosswise_swap_of_500_partitions_ends() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    let leaders: Vec<u32> = (0..1_000).map(|i| 1 + i % 2).collect();
    let topic = rig.topic("t", &leaders).await;
    let moves = (0..1_000).map(|i| to(partition(topic, i), 2 - u32::try_from(i % 2).unwrap()));
    let ends = rig
        .conductor()
        .reassign(moves.collect(), WAIT)
        .await
        .unwrap();
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    settle().await;
    for i in 0..1_000 {
        let p = partition(topic, i);
        let other = broker(2 - u32::try_from(i % 2).unwrap());
        assert_eq!(rig.world.serves(p), [other], "{p}");
    }
    // Orders are shared, and bounded.
    assert_eq!(rig.world.largest_order(), 64);
    assert!(rig.world.orders_given(Step::Prepare) < 60);
    // So are changes of the metadata.
    assert!(rig.metric("conductor_moves_per_commit_count") < 30.0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_1000_partitions_ends_and_spreads_them_evenly() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=3).await;
    rig.topic("t", &[1; 1_000]).await;
    let status = rig.conductor().drain(broker(1)).await.unwrap();
    assert!(status.draining && !status.is_done());
    assert_eq!((status.led_partitions, status.blocked), (1_000, None));
    let begun = tokio::time::Instant::now();
    rig.until(Duration::from_secs(30), "the drain is done", |rig| {
        !rig.leaders().contains_key(&1)
    })
    .await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(rig.leaders(), BTreeMap::from([(2, 500), (3, 500)]));
    let status = rig.conductor().drain_status(broker(1)).await.unwrap();
    assert!(status.is_done());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_another_broker_says_so_and_goes_on_when_one_comes() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start(1).await;
    rig.topic("t", &[1; 5]).await;
    let status = rig.conductor().drain(broker(1)).await.unwrap();
    assert!(status.blocked.unwrap().contains("no other broker"));
    rig.start(2).await;
    rig.until(Duration::from_secs(5), "the drain is done", |rig| {
        rig.leaders() == BTreeMap::from([(2, 5)])
    })
    .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_taker_dies_turns_to_another_one() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=3).await;
    rig.topic("t", &[1; 200]).await;
    rig.world
        .fault(broker(2), Step::Prepare, world::Fault::DieBefore);
    rig.conductor().drain(broker(1)).await.unwrap();
    rig.until(Duration::from_secs(8), "the drain is done", |rig| {
        !rig.leaders().contains_key(&1)
    })
    .await;
    assert_eq!(rig.leaders(), BTreeMap::from([(3, 200)]));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_taken_back_leaves_what_hasnt_moved() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    rig.topic("t", &[1; 5]).await;
    for _ in 0..9 {
        rig.world
            .fault(broker(2), Step::Prepare, world::Fault::Refuse);
    }
    rig.conductor().drain(broker(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let status = rig.conductor().undrain(broker(1)).await.unwrap();
    assert!(!status.draining);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.leaders(), BTreeMap::from([(1, 5)]));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_broker_gets_its_share_within_10_s_and_then_nothing_moves() {
    let mut rig = Rig::unopened(DurabilityMode::Local);
    rig.options.balance.enabled = true;
    rig.open().await;
    rig.start_all(1..=2).await;
    let leaders: Vec<u32> = (0..1_000).map(|i| 1 + i % 2).collect();
    rig.topic("t", &leaders).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.world.orders_given(Step::Prepare), 0);
    rig.start(3).await;
    rig.until(Duration::from_secs(10), "even", |rig| {
        let leaders = rig.leaders();
        leaders.len() == 3 && leaders.values().all(|count| (333..=334).contains(count))
    })
    .await;
    let given = rig.world.orders_given(Step::Prepare);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.world.orders_given(Step::Prepare), given);
    assert_eq!(rig.metric("conductor_balance_moves_total"), 333.0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn balance_leaves_an_operators_moves_alone_and_can_be_switched_off() {
    let mut rig = Rig::unopened(DurabilityMode::Local);
    rig.options.balance.enabled = true;
    rig.open().await;
    rig.start_all(1..=2).await;
    let topic = rig.topic("t", &[1, 1, 1, 1, 2, 2, 2, 2]).await;
    let moves = (4..8).map(|i| to(partition(topic, i), 1)).collect();
    rig.conductor().reassign(moves, WAIT).await.unwrap();
    assert_eq!(rig.leaders(), BTreeMap::from([(1, 8)]));
    // Those that nobody asked for move; those that were asked for stay.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for i in 4..8 {
        assert_eq!(rig.leader(partition(topic, i)), Some(broker(1)));
    }
    assert_eq!(rig.leaders(), BTreeMap::from([(1, 4), (2, 4)]));
    assert!(rig.conductor().set_balance(false).await.unwrap());
    let moves = (0..4).map(|i| to(partition(topic, i), 1)).collect();
    rig.conductor().reassign(moves, WAIT).await.unwrap();
    tokio::time::sleep(rig.options.operator_pin * 2).await;
    assert_eq!(rig.leaders(), BTreeMap::from([(1, 8)]));
    // After a while an operator's moves are like any others.
    assert!(!rig.conductor().set_balance(true).await.unwrap());
    rig.until(Duration::from_secs(10), "even", |rig| {
        rig.leaders() == BTreeMap::from([(1, 4), (2, 4)])
    })
    .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_joined_replaced_and_cancelled() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=3).await;
    let p = partition(rig.topic("t", &[1]).await, 0);
    for _ in 0..3 {
        rig.world
            .fault(broker(2), Step::Prepare, world::Fault::Refuse);
    }
    let conductor = rig.conductor().clone();
    let (first, joined, replacing) = tokio::join!(
        conductor.reassign(vec![to(p, 2)], WAIT),
        conductor.reassign(vec![to(p, 2)], WAIT),
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            conductor.reassign(vec![to(p, 3)], WAIT).await
        }
    );
    assert_eq!(first.unwrap()[0], Err(MoveError::Replaced));
    assert_eq!(joined.unwrap()[0], Err(MoveError::Replaced));
    assert_eq!(replacing.unwrap()[0].as_ref().unwrap().to, broker(3));

    rig.world.kill(broker(2));
    let change = |placement| PlacementChange {
        partition: p,
        placement,
    };
    // Broker 2 isn't known to be dead yet.
    let placed = conductor
        .alter_placements(vec![change(Some(vec![broker(2)]))])
        .await
        .unwrap();
    assert_eq!(placed, [Ok(())]);
    let listed = conductor.list_reassignments(Some(vec![p])).await.unwrap();
    assert_eq!(
        (listed.len(), listed[0].to, listed[0].leader),
        (1, broker(2), Some(broker(3)))
    );
    let cancelled = conductor
        .alter_placements(vec![change(None)])
        .await
        .unwrap();
    assert_eq!(cancelled, [Ok(())]);
    let cancelled = conductor
        .alter_placements(vec![change(None)])
        .await
        .unwrap();
    assert_eq!(cancelled, [Err(PlacementError::NoneInProgress)]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.world.serves(p), [broker(3)]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_election_moves_to_the_first_of_the_placement() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    let topic = rig.topic("t", &[1, 1]).await;
    let (p, q) = (partition(topic, 0), partition(topic, 1));
    let conductor = rig.conductor().clone();
    let placed = conductor
        .alter_placements(vec![PlacementChange {
            partition: p,
            placement: Some(vec![broker(2), broker(1)]),
        }])
        .await
        .unwrap();
    assert_eq!(placed, [Ok(())]);
    assert_eq!(
        rig.leader(p),
        Some(broker(1)),
        "the leader stays while it is in the placement"
    );
    let kind = ElectionKind::Preferred;
    let elected = conductor
        .elect_leaders(kind, Some(vec![p, q]), WAIT)
        .await
        .unwrap();
    assert_eq!(elected[0].result, Ok(broker(2)));
    assert_eq!(elected[1].result, Err(ElectError::NotNeeded));
    assert_eq!(conductor.elect_leaders(kind, None, WAIT).await.unwrap(), []);
    rig.world.kill(broker(1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let unclean = ElectionKind::Unclean;
    let elected = conductor
        .elect_leaders(unclean, Some(vec![q, p]), WAIT)
        .await
        .unwrap();
    assert_eq!(elected[0].result, Err(ElectError::NoneEligible));
    assert_eq!(elected[1].result, Err(ElectError::NotNeeded));
    rig.stop().await;
}
