use tidegate_metadata::ControllerApi;
use tidegate_metadata::api::SegmentQuery;
use tidegate_metadata::store::Fault as MetaFault;
use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch};
use tidegate_types::DurabilityMode::Local;
use tidegate_types::PartitionId;
use tidegate_wal::FullCause;

use super::rig::*;
use crate::log::AppendError;

async fn stored_ranges(rig: &Rig, id: PartitionId) -> Vec<(u64, u64)> {
    let query = SegmentQuery {
        partition: id,
        from: offset(0),
        limit: 1_000,
    };
    let page = rig.life().controller.segments(query).await.unwrap();
    let ranges = page.segments.iter().map(|s| s.range);
    ranges.map(|r| (r.start().get(), r.end().get())).collect()
}

#[test]
fn the_segments_of_a_partition_follow_each_other_and_a_checkpoint_ends_each() {
    paused(async {
        let mut rig = Rig::new().await;
        let ids = rig.topic(Local, 3).await;
        for round in 1..5 {
            for id in &ids {
                fill(&rig.log(*id), round, 100).await;
            }
            rig.all_uploaded().await;
            for state in rig.states(&ids).await {
                assert_eq!(state.checkpoint.unwrap().as_of, state.committed_end);
            }
        }
        for id in &ids {
            let ranges = stored_ranges(&rig, *id).await;
            assert_eq!(ranges, [(0, 1), (1, 3), (3, 6), (6, 10)]);
        }
        // What is due together shares an object.
        assert_eq!(rig.store.seen(Operation::Put).len(), 4);
    });
}

#[test]
fn several_uploads_at_once_are_committed_in_order() {
    paused(async {
        let mut options = RigOptions::default();
        options.upload.size_bytes = 4_000;
        options.upload.own_object_bytes = 2_000;
        let mut rig = Rig::with(options).await;
        let id = rig.one(Local).await;
        // The first PUT is the slowest.
        let slow = std::time::Duration::from_secs(4);
        rig.store.next(Operation::Put, "", [Fault::Delay(slow)]);
        for _ in 0..10 {
            fill(&rig.log(id), 20, 300).await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        rig.all_uploaded().await;
        let ranges = stored_ranges(&rig, id).await;
        assert!(ranges.len() > 2);
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(rig.all_tags(id).await, numbered(0..200));
    });
}

#[test]
fn a_failing_store_delays_an_upload_and_loses_nothing() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        for (round, fault) in [
            Fault::SlowDown,
            Fault::InternalError,
            Fault::Denied,
            Fault::BucketMissing,
            Fault::LostReply,
            Fault::HangAfter,
            Fault::Conflict,
        ]
        .into_iter()
        .enumerate()
        {
            rig.store.next(Operation::Put, "", [fault.clone(), fault]);
            fill(&rig.log(id), 10, 100).await;
            rig.all_uploaded().await;
            rig.assert_running();
            assert_eq!(stored_ranges(&rig, id).await.len(), round + 1);
        }
        rig.restart(Crash::Power).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..70));
    });
}

#[test]
fn a_commit_without_an_answer_is_repeated_until_it_is_known() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        for fault in [MetaFault::Before, MetaFault::After] {
            fill(&rig.log(id), 10, 100).await;
            rig.meta.inject(fault);
            rig.all_uploaded().await;
            rig.assert_running();
        }
        assert_eq!(stored_ranges(&rig, id).await, [(0, 10), (10, 20)]);
    });
}

#[test]
fn a_crash_between_storing_and_committing_loses_and_doubles_nothing() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 10, 100).await;
        rig.meta.set_unreachable(true);
        tokio::time::sleep(AGE * 3).await;
        assert_eq!(rig.store.seen(Operation::Put).len(), 1);
        rig.kill(Crash::Power).await;
        rig.meta.set_unreachable(false);
        rig.start().await;
        assert_eq!(rig.all_tags(id).await, numbered(0..10));
        rig.all_uploaded().await;
        assert_eq!(rig.all_tags(id).await, numbered(0..10));
        assert_eq!(stored_ranges(&rig, id).await, [(0, 10)]);
    });
}

/// Waits until an upload is committed without the uploader knowing.
async fn commit_without_answer(rig: &Rig) {
    let before = rig.meta.batches();
    rig.meta.inject(MetaFault::After);
    while rig.meta.batches() == before {
        tokio::time::sleep(AGE / 500).await;
    }
}

#[test]
fn a_crash_between_committing_and_trimming_loses_and_doubles_nothing() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 10, 100).await;
        commit_without_answer(&rig).await;
        assert_eq!(rig.log(id).state.lock().uploaded_end, offset(0));
        rig.kill(Crash::Power).await;
        rig.start().await;
        assert_eq!(rig.log(id).state.lock().uploaded_end, offset(10));
        assert_eq!(rig.all_tags(id).await, numbered(0..10));
        fill(&rig.log(id), 5, 100).await;
        rig.all_uploaded().await;
        assert_eq!(rig.all_tags(id).await, numbered(0..15));
    });
}

/// Appends until the WAL is full of what can't be uploaded.
async fn fill_wal(rig: &Rig, id: PartitionId) -> u64 {
    let log = rig.log(id);
    loop {
        let tag = log.watermarks().unwrap().log_end.get();
        match log.append(Spec::tagged(tag, 1, 1_000).build()) {
            Ok(appended) => {
                durable(appended).await;
            }
            Err(AppendError::Full(FullCause::Capacity)) => return tag,
            Err(other) => panic!("{other}"),
        }
    }
}

fn small_wal() -> RigOptions {
    RigOptions {
        wal_capacity_bytes: 4 * 16 * 1024,
        ..RigOptions::default()
    }
}

#[test]
fn a_wal_that_was_full_at_a_crash_takes_appends_again_after_uploads() {
    paused(async {
        let mut rig = Rig::with(small_wal()).await;
        let id = rig.one(Local).await;
        rig.store.always(Some(Operation::Put), "", Fault::SlowDown);
        let count = fill_wal(&rig, id).await;
        rig.kill(Crash::Power).await;
        rig.store.heal();
        rig.start().await;
        rig.all_uploaded().await;
        tokio::time::sleep(AGE).await;
        fill(&rig.log(id), 20, 1_000).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..count + 20));
    });
}

#[test]
fn a_wal_full_of_what_is_uploaded_already_is_freed_after_a_restart() {
    paused(async {
        let mut rig = Rig::with(small_wal()).await;
        let id = rig.one(Local).await;
        let latch = Latch::new();
        rig.store
            .always(Some(Operation::Put), "", Fault::Held(latch.clone()));
        let count = fill_wal(&rig, id).await;
        latch.open();
        commit_without_answer(&rig).await;
        rig.restart(Crash::Power).await;
        assert_eq!(rig.log(id).state.lock().uploaded_end, offset(count));
        tokio::time::sleep(AGE).await;
        fill(&rig.log(id), 20, 1_000).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..count + 20));
    });
}

#[test]
fn the_wal_of_a_deleted_topic_is_freed_without_another_upload() {
    paused(async {
        let mut rig = Rig::with(small_wal()).await;
        let gone = rig.one(Local).await;
        let stays = rig.one(Local).await;
        fill(&rig.log(stays), 3, 100).await;
        rig.all_uploaded().await;
        // Before an upload is due.
        fill_wal(&rig, gone).await;
        rig.delete_topic(gone.topic).await;
        tokio::time::sleep(AGE / 5).await;
        fill(&rig.log(stays), 20, 1_000).await;
        assert_eq!(rig.life().logs.len(), 1);
        rig.all_uploaded().await;
        assert_eq!(rig.life().spilled_bytes(), 0);
    });
}

#[test]
fn deleting_a_topic_while_its_spilled_tail_is_uploaded_stops_nobody() {
    paused(async {
        let mut rig = Rig::new().await;
        let gone = rig.one(Local).await;
        let stays = rig.one(Local).await;
        fill(&rig.log(gone), 200, 300).await;
        rig.log(gone).evict(offset(200));
        // Its cut waits for nothing but its turn to read the WAL.
        let cut = rig.log(gone).cut().unwrap();
        rig.delete_topic(gone.topic).await;
        fill(&rig.log(stays), 200, 300).await;
        rig.all_uploaded().await;
        let uploader = rig.uploader();
        assert!(uploader.upload(vec![cut], 1_000).await.unwrap().is_none());
        rig.assert_running();
        fill(&rig.log(stays), 10, 300).await;
        rig.all_uploaded().await;
        rig.restart(Crash::Power).await;
        assert_eq!(rig.all_tags(stays).await, numbered(0..210));
    });
}

#[test]
fn an_idle_partition_does_not_hold_the_wal_and_loses_nothing_to_others() {
    paused(async {
        let mut rig = Rig::with(small_wal()).await;
        let idle = rig.one(Local).await;
        let busy = rig.one(Local).await;
        fill(&rig.log(idle), 3, 100).await;
        for _ in 0..20 {
            fill(&rig.log(busy), 10, 1_000).await;
            rig.all_uploaded().await;
        }
        rig.restart(Crash::Power).await;
        assert_eq!(rig.all_tags(idle).await, numbered(0..3));
        assert_eq!(rig.all_tags(busy).await, numbered(0..200));
    });
}
