//! Moves of which a party dies, is slow, or loses a message: each ends, and nothing acknowledged is lost.

use std::time::Duration;

use tidegate_metadata::store::Fault as StoreFault;

use super::world::{Fault, Step};
use super::*;
use crate::admin::{ClusterAdmin, MoveError, MoveRequest};

const WAIT: Duration = Duration::from_secs(60);

fn to(partition: PartitionId, id: u32) -> MoveRequest {
    MoveRequest {
        partition,
        to: broker(id),
    }
}

/// Brokers 1, 2 and 3, and a partition led by broker 1 with three records.
async fn cluster(durability: DurabilityMode) -> (Rig, PartitionId) {
    let mut rig = Rig::new(durability).await;
    rig.start_all(1..=3).await;
    let p = partition(rig.topic("t", &[1]).await, 0);
    for _ in 0..3 {
        assert!(rig.world.append(p));
    }
    (rig, p)
}

/// Nothing is wanted any more, exactly one broker serves, and it goes on where the log ended.
async fn assert_settled(rig: &Rig, p: PartitionId) {
    let listed = rig.conductor().list_reassignments(None).await.unwrap();
    assert_eq!(listed, []);
    assert_eq!(rig.world.serves(p).len(), 1, "{:?}", rig.world.serves(p));
    let before = rig.world.acknowledged(p);
    assert!(rig.world.append(p));
    assert_eq!(rig.world.acknowledged(p), before + 1);
    assert_eq!(rig.metric("conductor_seals_to_undo"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_of_any_step_delays_a_move_and_no_more() {
    let faults = [
        Fault::LoseReply,
        Fault::LoseOrder,
        Fault::Refuse,
        Fault::Late(Duration::from_millis(700)),
        Fault::Late(Duration::from_secs(8)),
    ];
    for durability in [DurabilityMode::Local, DurabilityMode::Object] {
        for fault in faults {
            for step in [Step::Prepare, Step::Seal, Step::Hold] {
                let (rig, p) = cluster(durability).await;
                let at = if step == Step::Seal { 1 } else { 2 };
                rig.world.fault(broker(at), step, fault);
                // The way back is bad too.
                rig.world.fault(broker(1), Step::Unseal, fault);
                rig.world.fault(broker(2), Step::Discard, fault);
                let ends = rig.conductor().reassign(vec![to(p, 2)], WAIT * 2).await;
                let end = ends.unwrap().remove(0);
                assert!(end.is_ok(), "{fault:?} at {step:?}: {end:?}");
                tokio::time::sleep(Duration::from_secs(10)).await;
                assert_eq!(rig.world.serves(p), [broker(2)], "{fault:?} at {step:?}");
                assert_settled(&rig, p).await;
                rig.stop().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_target_dies_at_any_step_the_source_goes_on_and_the_wish_is_given_up() {
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for step in [Step::Prepare, Step::Hold] {
            let (rig, p) = cluster(DurabilityMode::Local).await;
            rig.world.fault(broker(2), step, fault);
            let ends = rig.conductor().reassign(vec![to(p, 2)], WAIT).await;
            let end = ends.unwrap().remove(0);
            assert_eq!(
                end,
                Err(MoveError::BrokerNotAlive(broker(2))),
                "{fault:?} at {step:?}"
            );
            assert_eq!(rig.world.serves(p), [broker(1)]);
            assert_settled(&rig, p).await;
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_comes_back_in_time_gets_the_partition() {
    for step in [Step::Prepare, Step::Hold] {
        let (mut rig, p) = cluster(DurabilityMode::Local).await;
        rig.world.fault(broker(2), step, Fault::DieAfter);
        let conductor = rig.conductor().clone();
        let moving = tokio::spawn(async move { conductor.reassign(vec![to(p, 2)], WAIT).await });
        tokio::time::sleep(Duration::from_secs(6)).await;
        rig.start(2).await;
        let end = moving.await.unwrap().unwrap().remove(0);
        assert!(end.is_ok(), "{step:?}: {end:?}");
        settle().await;
        assert_eq!(rig.world.serves(p), [broker(2)]);
        assert_settled(&rig, p).await;
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_local_source_dies_the_move_waits_for_its_return() {
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        let (mut rig, p) = cluster(DurabilityMode::Local).await;
        rig.world.fault(broker(1), Step::Seal, fault);
        let conductor = rig.conductor().clone();
        let moving = tokio::spawn(async move { conductor.reassign(vec![to(p, 2)], WAIT).await });
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!moving.is_finished());
        assert_eq!(rig.leader(p), None);
        let status = rig.conductor().cluster_status().await.unwrap();
        assert_eq!(status.offline_count, 1);
        assert_eq!(status.offline[0].waits_for, Some(broker(1)));
        rig.start(1).await;
        let end = moving.await.unwrap().unwrap().remove(0);
        assert!(end.is_ok(), "{fault:?}: {end:?}");
        settle().await;
        assert_eq!(rig.world.serves(p), [broker(2)]);
        assert_settled(&rig, p).await;
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_only_cut_off_is_unsealed_when_it_is_back() {
    let (rig, p) = cluster(DurabilityMode::Local).await;
    rig.world.fault(broker(1), Step::Seal, Fault::DieAfter);
    rig.world.fault(broker(2), Step::Hold, Fault::DieBefore);
    let conductor = rig.conductor().clone();
    let moving = tokio::spawn(async move { conductor.reassign(vec![to(p, 2)], WAIT).await });
    tokio::time::sleep(Duration::from_secs(20)).await;
    rig.world.wake(broker(1));
    let end = moving.await.unwrap().unwrap().remove(0);
    assert_eq!(end, Err(MoveError::BrokerNotAlive(broker(2))));
    rig.until(Duration::from_secs(5), "it is unsealed", |rig| {
        rig.world.serves(p) == [broker(1)]
    })
    .await;
    assert_settled(&rig, p).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_commit_has_no_answer_is_neither_lost_nor_taken_back_wrongly() {
    for fault in [StoreFault::Before, StoreFault::After] {
        let (rig, p) = cluster(DurabilityMode::Local).await;
        // Long enough for the fault to be set in time: the next write is the commit.
        let slow = Fault::Slow(Duration::from_millis(100));
        rig.world.fault(broker(2), Step::Hold, slow);
        let conductor = rig.conductor().clone();
        let moving = tokio::spawn(async move { conductor.reassign(vec![to(p, 2)], WAIT).await });
        rig.until(Duration::from_secs(5), "sealed", |rig| {
            rig.world.serves(p).is_empty()
        })
        .await;
        rig.opener.inject(fault);
        let end = moving.await.unwrap().unwrap().remove(0);
        assert!(end.is_ok(), "{fault:?}: {end:?}");
        settle().await;
        assert_eq!(rig.world.serves(p), [broker(2)]);
        assert_settled(&rig, p).await;
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_controller_goes_on_wherever_the_one_before_was() {
    for after_ms in [1, 3, 5, 6, 7, 8, 9, 10, 12, 15] {
        for step in [None, Some(Step::Hold), Some(Step::Seal)] {
            let (mut rig, p) = cluster(DurabilityMode::Local).await;
            if let Some(step) = step {
                let at = if step == Step::Seal { 1 } else { 2 };
                rig.world.fault(broker(at), step, Fault::LoseOrder);
            }
            let conductor = rig.conductor().clone();
            let moving =
                tokio::spawn(async move { conductor.reassign(vec![to(p, 2)], WAIT).await });
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            rig.drop_controller();
            let _ = moving.await.unwrap();
            rig.open().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            // The wish is carried out, unless the controller died before it was stored.
            let serving = rig.world.serves(p);
            assert!(
                serving == [broker(2)] || (serving == [broker(1)] && after_ms < 3),
                "{serving:?} after {after_ms} ms, {step:?}"
            );
            assert_settled(&rig, p).await;
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_partition_that_cant_catch_up_doesnt_hold_up_the_others_for_long() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    let topic = rig.topic("t", &[1; 40]).await;
    // The whole first order fails.
    rig.world.fault(broker(2), Step::Prepare, Fault::LoseOrder);
    let moves = (0..40).map(|i| to(partition(topic, i), 2)).collect();
    let ends = rig.conductor().reassign(moves, WAIT).await.unwrap();
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    // The second try went in smaller orders.
    assert!(rig.world.orders_given(Step::Prepare) >= 6);
    rig.stop().await;
}
