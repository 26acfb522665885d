//! The move of a partition from one broker to another, and what may go wrong on the way.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::ControllerApi;
use tidegate_metadata::api::SegmentQuery;
use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch};
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::{ControllerEpoch, OffsetRange, PartitionId};

use super::pair::*;
use super::rig::*;
use crate::log::{AppendError, Ownership, PartitionLog, SealError, SealOrder};
use crate::{ActivateError, FollowError, MapPart, TailItem};

/// Appends the next batches of an idempotent producer, tagged and numbered by their offsets.
async fn produce(log: &Arc<PartitionLog>, batches: u64) {
    for _ in 0..batches {
        let tag = log.watermarks().unwrap().log_end.get();
        append(log, &Spec::tagged(tag, 1, 100).by(7, 0, tag as i32)).await;
    }
}

async fn assert_retry_is_known(log: &Arc<PartitionLog>, at: u64) {
    let retry = Spec::tagged(at, 1, 100).by(7, 0, at as i32);
    assert_eq!(append(log, &retry).await, (at, at + 1));
}

/// The map that the log reads by equals what metadata has.
async fn assert_map_is_true(pair: &Pair, id: PartitionId) {
    // What others committed comes into the map a little later.
    tokio::time::sleep(AGE / 10).await;
    let log = pair.log(id);
    let query = SegmentQuery {
        partition: id,
        from: log.watermarks().unwrap().log_start,
        limit: 1_000,
    };
    let controller = &pair.rig(id).life().controller;
    let page = again(|| controller.segments(query.clone())).await;
    let stored: Vec<(OffsetRange, String)> = page
        .segments
        .iter()
        .map(|s| (s.range, s.object.as_str().to_owned()))
        .collect();
    let known: Vec<(OffsetRange, String)> = log
        .segments()
        .iter()
        .map(|s| (s.range, s.object.key.as_str().to_owned()))
        .collect();
    assert_eq!(known, stored);
}

#[test]
fn a_partition_goes_there_and_back_with_what_its_producers_sent() {
    for mode in [Local, Object] {
        for uploaded in [false, true] {
            paused(async {
                let mut pair = Pair::new().await;
                let id = pair.one(mode).await;
                let mut count = 0;
                for to in [1, 0, 1, 0] {
                    produce(&pair.log(id), 5).await;
                    if uploaded {
                        pair.all_uploaded().await;
                        produce(&pair.log(id), 2).await;
                    }
                    count = pair.log(id).watermarks().unwrap().log_end.get();
                    let before = pair.log(id);
                    let sealed = pair.move_to(id, to).await;
                    assert_eq!(sealed.end, offset(count));
                    let log = pair.log(id);
                    assert_eq!(log.leader_epoch(), sealed.leader_epoch.next());
                    assert_eq!(
                        log.epoch_end(sealed.leader_epoch).unwrap(),
                        Some((sealed.leader_epoch, sealed.end))
                    );
                    assert_retry_is_known(&log, count - 1).await;
                    assert_retry_is_known(&log, count - 3).await;
                    let late = before.append(Spec::tagged(0, 1, 8).build());
                    assert!(matches!(late, Err(AppendError::NotLeader)));
                    assert_eq!(pair.all_tags(id).await, numbered(0..count));
                }
                pair.all_uploaded().await;
                assert_map_is_true(&pair, id).await;
                for broker in 0..2 {
                    pair.restart(broker, Crash::Power).await;
                }
                assert_eq!(pair.all_tags(id).await, numbered(0..count));
                assert_retry_is_known(&pair.log(id), count - 1).await;
                pair.assert_running();
            });
        }
    }
}

#[test]
fn the_source_tells_the_map_so_that_the_new_leader_has_all_of_it_when_it_begins() {
    for mode in [Local, Object] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(mode).await;
            // More segments than one item takes.
            for _ in 0..10 {
                produce(&pair.log(id), 2).await;
                pair.all_uploaded().await;
            }
            let copy = pair.prepare(id, 1).await;
            pair.caught_up(&copy).await;
            for _ in 0..10 {
                produce(&pair.log(id), 2).await;
                if mode == Local {
                    pair.all_uploaded().await;
                }
            }
            settle().await;
            let sealed = pair.seal(id).await.unwrap();
            copy.incoming.held().await.unwrap();
            let state = pair.commit(id, &copy, &sealed).await;
            assert_eq!(state.committed_end, sealed.end);
            pair.activate(id, &copy, &state).await;
            assert_eq!(pair.log(id).unmapped(), None, "nothing is left to be asked");
            assert!(pair.log(id).segments().len() >= 20);
            assert_map_is_true(&pair, id).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..40));
        });
    }
}

#[test]
fn the_new_leader_may_crash_right_after_it_began() {
    for (mode, crash) in [
        (Local, Crash::Power),
        (Local, Crash::Process),
        (Object, Crash::Power),
        (Object, Crash::DiskLost),
    ] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(mode).await;
            produce(&pair.log(id), 10).await;
            pair.move_to(id, 1).await;
            pair.restart(1, crash).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..10));
            assert_retry_is_known(&pair.log(id), 9).await;
            produce(&pair.log(id), 5).await;
            pair.restart(1, crash).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..15));
        });
    }
}

#[test]
fn nothing_of_a_moved_partition_depends_on_its_former_leader() {
    for mode in [Local, Object] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(mode).await;
            produce(&pair.log(id), 10).await;
            let copy = pair.prepare(id, 1).await;
            let sealed = pair.seal(id).await.unwrap();
            copy.incoming.held().await.unwrap();
            let source = &pair.rigs[0];
            let objects = source.life().backlog.uncommitted();
            assert_eq!(objects.is_empty(), mode == Local);
            let state = pair.commit(id, &copy, &sealed).await;
            // Its disk, too, is gone.
            pair.rigs[0].kill(Crash::DiskLost).await;
            pair.activate(id, &copy, &state).await;
            drop(copy);
            produce(&pair.log(id), 5).await;
            pair.rigs[1].all_uploaded().await;
            assert_map_is_true(&pair, id).await;
            pair.rigs[1].restart(Crash::Power).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..15));
        });
    }
}

#[test]
fn after_a_move_that_was_taken_back_the_old_leader_goes_on_and_a_second_move_succeeds() {
    for mode in [Local, Object] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(mode).await;
            produce(&pair.log(id), 6).await;
            let copy = pair.prepare(id, 1).await;
            pair.caught_up(&copy).await;
            pair.seal(id).await.unwrap();
            copy.incoming.held().await.unwrap();
            let order = pair.next_order();
            let log = pair.log(id);
            log.unseal(log.leader_epoch(), order).unwrap();
            copy.incoming.discard();
            assert!(copy.incoming.held().await.is_err());
            assert!(pair.rigs[1].life().logs.incoming(id).is_none());
            produce(&log, 6).await;
            pair.all_uploaded().await;
            produce(&log, 6).await;
            pair.move_to(id, 1).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..18));
            produce(&pair.log(id), 2).await;
            pair.restart(1, Crash::Power).await;
            assert_eq!(pair.all_tags(id).await, numbered(0..20));
            assert_retry_is_known(&pair.log(id), 17).await;
        });
    }
}

#[test]
fn what_a_former_leader_uploads_late_is_taken_into_the_new_ones_map() {
    // Which of the two is late, how much the old leader appended behind its upload, and the new one before its own.
    for (old_is_late, behind, more) in [
        (false, 5, 0),
        (false, 5, 7),
        // Both offer the same range.
        (false, 0, 0),
        (false, 0, 7),
        (true, 5, 0),
        (true, 5, 7),
        (true, 0, 0),
    ] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(Local).await;
            produce(&pair.log(id), 5).await;
            let latch = Latch::new();
            let held = Fault::Held(latch.clone());
            pair.rigs[0].store.next(Operation::Put, "", [held.clone()]);
            // The upload is cut and hangs.
            tokio::time::sleep(AGE * 2).await;
            produce(&pair.log(id), behind).await;
            pair.move_to(id, 1).await;
            produce(&pair.log(id), more).await;
            let count = 5 + behind + more;
            if !old_is_late {
                // The new leader cuts its first segment, and is overtaken while it stores it.
                let second = Latch::new();
                let held = Fault::Held(second.clone());
                pair.rigs[1].store.next(Operation::Put, "", [held]);
                tokio::time::sleep(AGE * 2).await;
                latch.open();
                tokio::time::sleep(AGE).await;
                assert_eq!(pair.state(id).await.committed_end, offset(5));
                second.open();
            }
            pair.rigs[1].all_uploaded().await;
            latch.open();
            tokio::time::sleep(AGE * 2).await;
            pair.assert_running();
            produce(&pair.log(id), 3).await;
            pair.rigs[1].all_uploaded().await;
            assert_map_is_true(&pair, id).await;
            // From the store only.
            let count = count + 3;
            pair.log(id).evict(offset(count));
            assert_eq!(pair.all_tags(id).await, numbered(0..count));
            for broker in 0..2 {
                assert_eq!(pair.rigs[broker].life().spilled_bytes(), 0);
            }
        });
    }
}

#[test]
fn a_seal_of_object_mode_answers_only_with_all_objects_that_hold_its_records() {
    for seed in 0..10 {
        paused(async {
            let mut pair = Pair::with(RigOptions {
                seed,
                ..RigOptions::default()
            })
            .await;
            let ids = pair.topic(Object, 2).await;
            // Not a whole second, after which all is committed.
            for round in 0..(3 + seed) {
                let delay = Fault::Delay(Duration::from_millis(40 * (round * 7 % 5)));
                pair.rigs[0].store.next(Operation::Put, "data/", [delay]);
                for id in &ids {
                    let tag = pair.log(*id).watermarks().unwrap().log_end.get();
                    let _in_flight = pair.log(*id).append(Spec::tagged(tag, 1, 100).build());
                }
                tokio::time::sleep(Duration::from_millis(20 + seed * 5)).await;
            }
            let copy = pair.prepare(ids[0], 1).await;
            let sealed = pair.seal(ids[0]).await.unwrap();
            let mut next = pair.state(ids[0]).await.committed_end;
            let objects = pair.rigs[0].life().backlog.uncommitted();
            let mut sequences = objects.iter().map(|o| o.wal_sequence.unwrap());
            let first = sequences.next().unwrap_or(0);
            assert!(sequences.zip(first + 1..).all(|(a, b)| a == b));
            for segment in objects.iter().flat_map(|o| &o.segments) {
                if segment.partition == ids[0] && segment.range.start() >= next {
                    assert_eq!(segment.range.start(), next);
                    next = segment.range.end();
                }
            }
            assert_eq!(next, sealed.end);
            copy.incoming.held().await.unwrap();
            let state = pair.commit(ids[0], &copy, &sealed).await;
            pair.activate(ids[0], &copy, &state).await;
            pair.restart(0, Crash::DiskLost).await;
            for (id, home) in [(ids[0], 1), (ids[1], 0)] {
                assert_eq!(pair.homes[&id], home);
                let count = pair.log(id).watermarks().unwrap().log_end.get();
                assert_eq!(count, 3 + seed);
                assert_eq!(pair.all_tags(id).await, numbered(0..count));
            }
        });
    }
}

#[test]
fn a_tail_larger_than_both_memories_is_moved_within_them() {
    paused(async {
        let mut pair = Pair::with(RigOptions {
            tail_bytes: 8_000,
            ..RigOptions::default()
        })
        .await;
        let id = pair.one(Local).await;
        pair.rigs[0]
            .store
            .always(Some(Operation::Put), "", Fault::SlowDown);
        produce(&pair.log(id), 1_000).await;
        pair.move_to(id, 1).await;
        for rig in &pair.rigs {
            let used = rig.life().context.tail_budget.used_bytes();
            assert!(used <= 8_000, "{used}");
        }
        assert_eq!(pair.all_tags(id).await, numbered(0..1_000));
        pair.rigs[0].store.heal();
        pair.restart(1, Crash::Power).await;
        assert_eq!(pair.all_tags(id).await, numbered(0..1_000));
        pair.all_uploaded().await;
        assert_eq!(pair.all_tags(id).await, numbered(0..1_000));
    });
}

#[test]
fn a_copy_waits_for_room_in_a_full_wal_and_then_goes_on() {
    paused(async {
        let mut pair = Pair::with(RigOptions {
            wal_capacity_bytes: 4 * 16 * 1024,
            ..RigOptions::default()
        })
        .await;
        let id = pair.one(Local).await;
        let busy = pair.rigs[1].one(Local).await;
        produce(&pair.log(id), 100).await;
        let latch = Latch::new();
        pair.rigs[1]
            .store
            .always(Some(Operation::Put), "", Fault::Held(latch.clone()));
        let log = pair.rigs[1].log(busy);
        while let Ok(appended) = log.append(Spec::tagged(0, 1, 2_000).build()) {
            durable(appended).await;
        }
        let mut copy = pair.prepare(id, 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(copy.ended.try_recv().is_err());
        assert!(copy.incoming.end() < offset(100));
        latch.open();
        pair.rigs[1].store.heal();
        pair.caught_up(&copy).await;
        let sealed = pair.seal(id).await.unwrap();
        copy.incoming.held().await.unwrap();
        let state = pair.commit(id, &copy, &sealed).await;
        pair.activate(id, &copy, &state).await;
        assert_eq!(pair.all_tags(id).await, numbered(0..100));
    });
}

#[test]
fn a_copy_is_of_no_use_to_a_later_leader_epoch_though_the_end_is_the_same() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        produce(&pair.log(id), 10).await;
        let copy = pair.prepare(id, 1).await;
        settle().await;
        let sealed = pair.seal(id).await.unwrap();
        copy.incoming.held().await.unwrap();
        let state = pair.commit(id, &copy, &sealed).await;
        // Somebody led in between, and wrote nothing.
        let mut later = state.clone();
        later.leader_epoch = state.leader_epoch.next();
        assert!(matches!(
            copy.incoming.activate(&later).await,
            Err(ActivateError::OtherEnd { .. })
        ));
        pair.activate(id, &copy, &state).await;
        assert_eq!(pair.all_tags(id).await, numbered(0..10));
    });
}

#[test]
fn a_discarded_copy_frees_memory_and_wal() {
    paused(async {
        let mut pair = Pair::with(RigOptions {
            wal_capacity_bytes: 4 * 16 * 1024,
            ..RigOptions::default()
        })
        .await;
        let id = pair.one(Local).await;
        let other = pair.rigs[1].one(Local).await;
        produce(&pair.log(id), 60).await;
        for _ in 0..10 {
            let copy = pair.prepare(id, 1).await;
            pair.caught_up(&copy).await;
            copy.incoming.discard();
            drop(copy);
            settle().await;
            assert_eq!(pair.rigs[1].life().context.tail_budget.used_bytes(), 0);
            tokio::time::sleep(AGE / 5).await;
        }
        fill(&pair.rigs[1].log(other), 20, 1_000).await;
        pair.rigs[1].all_uploaded().await;
        assert_eq!(pair.rigs[1].life().spilled_bytes(), 0);
    });
}

#[test]
fn a_copy_survives_what_is_trimmed_before_it_leads() {
    paused(async {
        let mut pair = Pair::with(RigOptions {
            wal_capacity_bytes: 4 * 16 * 1024,
            tail_bytes: 4_000,
            ..RigOptions::default()
        })
        .await;
        let id = pair.one(Local).await;
        let other = pair.rigs[1].one(Local).await;
        // The source uploads nothing meanwhile.
        let put = Some(Operation::Put);
        let store = &pair.rigs[0].store;
        store.always(put, "segments/1/", Fault::SlowDown);
        produce(&pair.log(id), 20).await;
        let copy = pair.prepare(id, 1).await;
        pair.caught_up(&copy).await;
        // The target's own partition fills and empties the WAL behind the copy.
        for _ in 0..4 {
            fill(&pair.rigs[1].log(other), 8, 1_000).await;
            pair.rigs[1].all_uploaded().await;
        }
        assert_eq!(pair.state(id).await.committed_end, offset(0));
        let sealed = pair.seal(id).await.unwrap();
        copy.incoming.held().await.unwrap();
        let state = pair.commit(id, &copy, &sealed).await;
        pair.activate(id, &copy, &state).await;
        assert_eq!(pair.all_tags(id).await, numbered(0..20));
    });
}

#[test]
fn a_follower_that_falls_behind_begins_again_at_what_is_uploaded() {
    paused(async {
        let mut pair = Pair::with(RigOptions {
            tail_bytes: 2_000,
            ..RigOptions::default()
        })
        .await;
        let id = pair.one(Local).await;
        produce(&pair.log(id), 5).await;
        let log = pair.log(id);
        let reader = pair.rigs[0].life().reader.clone();
        let mut follower = reader.follow(&log, log.leader_epoch()).unwrap();
        let first = follower.next().await.unwrap().unwrap();
        let from = offset(0);
        let high_watermark = offset(5);
        assert_eq!(
            first,
            TailItem::Start {
                from,
                high_watermark,
                map: None,
            }
        );
        produce(&log, 50).await;
        pair.all_uploaded().await;
        produce(&log, 5).await;
        let again = follower.next().await.unwrap().unwrap();
        let (from, high_watermark) = (offset(55), offset(60));
        let map = MapPart {
            from: offset(0),
            end: from,
            swaps: 0,
            segments: log.segments(),
        };
        assert_eq!(
            again,
            TailItem::Start {
                from,
                high_watermark,
                map: Some(map),
            }
        );
        let Some(Ok(TailItem::Batches { batches, .. })) = follower.next().await else {
            panic!("batches follow");
        };
        assert_eq!(batches.len(), 5);
        // A log that closes ends it at once.
        pair.rigs[0].life().logs.remove(id);
        assert_eq!(follower.next().await, Some(Err(FollowError::NotLeader)));
        assert_eq!(follower.next().await, None);
    });
}

#[test]
fn who_waits_for_a_sealed_log_learns_what_becomes_of_it() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        let log = pair.log(id);
        produce(&log, 3).await;
        assert_eq!(log.settled().await, Ownership::Leading);
        pair.seal(id).await.unwrap();
        let refused = log.append(Spec::tagged(3, 1, 100).build());
        assert!(matches!(refused, Err(AppendError::Sealed)));
        assert_eq!(pair.all_tags(id).await, numbered(0..3));
        let second = Duration::from_secs(1);
        let waits = tokio::time::timeout(second, log.settled()).await;
        assert!(waits.is_err());
        let order = pair.next_order();
        let (settled, unsealed) = tokio::join!(log.settled(), async {
            log.unseal(log.leader_epoch(), order)
        });
        unsealed.unwrap();
        assert_eq!(settled, Ownership::Leading);
        produce(&log, 2).await;

        // While it is prepared, who comes too early to the next leader can wait, too.
        let bell = Arc::new(tokio::sync::Notify::new());
        assert!(log.watch(offset(5), crate::Isolation::ReadUncommitted, &bell));
        let copy = pair.prepare(id, 1).await;
        let next = pair.rigs[1].life().logs.incoming(id).unwrap();
        assert!(next.append(Spec::tagged(5, 1, 100).build()).is_err());
        let sealed = pair.seal(id).await.unwrap();
        copy.incoming.held().await.unwrap();
        let state = pair.commit(id, &copy, &sealed).await;
        let (parked, early, ()) = tokio::join!(
            log.settled(),
            next.settled(),
            pair.activate(id, &copy, &state)
        );
        assert_eq!(parked, Ownership::Closed);
        assert_eq!(early, Ownership::Leading);
        bell.notified().await;
        assert!(log.watermarks().is_err());
    });
}

#[test]
fn orders_that_come_late_or_twice_change_nothing() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        let log = pair.log(id);
        produce(&log, 3).await;
        let epoch = log.leader_epoch();
        let order = |controller, number| SealOrder {
            controller_epoch: ControllerEpoch::new(controller),
            number,
        };
        assert_eq!(
            log.seal(epoch.next(), order(1, 1)).await,
            Err(SealError::NotLeader)
        );
        let sealed = log.seal(epoch, order(1, 5)).await.unwrap();
        assert_eq!(log.seal(epoch, order(1, 5)).await.unwrap(), sealed);
        let newest = order(1, 5);
        assert_eq!(
            log.unseal(epoch, order(1, 4)),
            Err(SealError::Superseded { newest })
        );
        log.unseal(epoch, order(1, 6)).unwrap();
        // The seal comes once more, late.
        let newest = order(1, 6);
        assert_eq!(
            log.seal(epoch, order(1, 5)).await,
            Err(SealError::Superseded { newest })
        );
        produce(&log, 1).await;
        // A later controller counts anew.
        log.seal(epoch, order(2, 1)).await.unwrap();
        assert!(log.unseal(epoch, order(1, 9)).is_err());
        log.unseal(epoch, order(2, 2)).unwrap();
        produce(&log, 1).await;
    });
}

#[test]
fn a_log_whose_durability_changes_is_sealed_when_that_is_done() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        let log = pair.log(id);
        produce(&log, 3).await;
        for rig in &mut pair.rigs {
            rig.modes.get_mut(&id.topic).unwrap().1 = Object;
        }
        log.set_durability(Object);
        assert_eq!(pair.seal(id).await, Err(SealError::NotYet));
        pair.all_uploaded().await;
        pair.move_to(id, 1).await;
        assert_eq!(pair.log(id).durability(), Object);
        produce(&pair.log(id), 3).await;

        // The other way: the change comes while it is sealed and waits for the end of that.
        pair.seal(id).await.unwrap();
        let log = pair.log(id);
        log.set_durability(Local);
        let refused = log.append(Spec::tagged(6, 1, 100).build());
        assert!(matches!(refused, Err(AppendError::Sealed)));
        let order = pair.next_order();
        log.unseal(log.leader_epoch(), order).unwrap();
        pair.all_uploaded().await;
        produce(&log, 3).await;
        assert_eq!(log.durability(), Local);
        assert_eq!(pair.all_tags(id).await, numbered(0..9));
    });
}

#[test]
fn a_seal_waits_for_what_was_admitted_and_fails_with_the_wal() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Object).await;
        let log = pair.log(id);
        produce(&log, 2).await;
        let latch = Latch::new();
        pair.rigs[0]
            .store
            .next(Operation::Put, "data/", [Fault::Held(latch.clone())]);
        let _pending = log.append(Spec::tagged(2, 1, 100).build()).unwrap();
        let order = pair.next_order();
        let epoch = log.leader_epoch();
        let early = tokio::time::timeout(Duration::from_millis(500), log.seal(epoch, order)).await;
        assert!(early.is_err());
        latch.open();
        assert_eq!(log.seal(epoch, order).await.unwrap().end, offset(3));

        let local = pair.one(Local).await;
        let log = pair.log(local);
        produce(&log, 2).await;
        pair.rigs[0].disk.fail_sync_in(0);
        let _pending = log.append(Spec::tagged(2, 1, 100).build()).unwrap();
        let order = pair.next_order();
        let failed = log.seal(log.leader_epoch(), order).await;
        assert!(matches!(failed, Err(SealError::Failed(_))), "{failed:?}");
    });
}

#[test]
fn a_partition_whose_commit_is_refused_stops_no_other() {
    paused(async {
        let mut pair = Pair::new().await;
        let ids = pair.topic(Local, 3).await;
        for id in &ids {
            produce(&pair.log(*id), 10).await;
        }
        // A hole, as nothing makes one.
        pair.log(ids[1]).state.lock().upload_cursor = offset(4);
        pair.all_uploaded().await;
        pair.assert_running();
        for id in &ids {
            assert_eq!(pair.state(*id).await.committed_end, offset(10));
            assert_map_is_true(&pair, *id).await;
            assert_eq!(pair.all_tags(*id).await, numbered(0..10));
        }
        assert_eq!(pair.rigs[0].life().spilled_bytes(), 0);
    });
}

#[test]
fn damaged_and_foreign_batches_are_not_copied() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        let log = pair.log(id);
        produce(&log, 3).await;
        let reader = pair.rigs[0].life().reader.clone();
        let mut follower = reader.follow(&log, log.leader_epoch()).unwrap();
        let start = follower.next().await.unwrap().unwrap();
        let Some(Ok(TailItem::Batches {
            leader_epoch,
            batches,
            high_watermark,
        })) = follower.next().await
        else {
            panic!("batches follow");
        };
        let item = |batches| TailItem::Batches {
            leader_epoch,
            batches,
            high_watermark,
        };
        let mut damaged = batches[0].to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        for wrong in [vec![damaged.into()], vec![batches[1].clone()]] {
            let copy = pair.prepare(id, 1).await;
            copy.incoming.discard();
            let target = pair.rigs[1].life();
            let request = crate::PrepareRequest {
                topic: log.topic().clone(),
                durability: Local,
                state: pair.state(id).await,
            };
            let incoming = crate::IncomingLog::prepare(&target.opener, &target.logs, request);
            incoming.push(start.clone()).await.unwrap();
            assert!(incoming.push(item(wrong)).await.is_err());
            assert_eq!(incoming.end(), offset(0));
            // What came already may come again.
            incoming.push(item(batches.clone())).await.unwrap();
            incoming.push(start.clone()).await.unwrap();
            incoming.push(item(batches[1..].to_vec())).await.unwrap();
            assert_eq!(incoming.end(), offset(3));
        }
    });
}
