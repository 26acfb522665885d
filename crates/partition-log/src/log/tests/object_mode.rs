use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::Fault;
use tidegate_runtime::Random;
use tidegate_types::DurabilityMode::Object;

use super::rig::*;
use crate::log::Durability;

#[test]
fn every_acknowledged_record_survives_the_loss_of_the_disk_at_any_moment() {
    for seed in 0..12 {
        paused(async {
            let mut rig = Rig::with(RigOptions {
                seed,
                ..RigOptions::default()
            })
            .await;
            let ids = rig.topic(Object, 3).await;
            let random = Random::seeded(seed);
            let mut kept: Vec<u64> = vec![0; ids.len()];
            for _ in 0..4 {
                for _ in 0..random.below(4) {
                    let fault = match random.below(4) {
                        0 => Fault::LostReply,
                        1 => Fault::SlowDown,
                        2 => Fault::Conflict,
                        _ => Fault::Delay(std::time::Duration::from_millis(random.below(400))),
                    };
                    rig.store.next(Operation::Put, "data/", [fault]);
                }
                let mut acks = Vec::new();
                for _ in 0..random.below(40) {
                    let at = random.below(3) as usize;
                    let log = rig.log(ids[at]);
                    let tag = log.watermarks().unwrap().log_end.get();
                    let spec = Spec::tagged(tag, 1, 100).by(at as i64, 0, tag as i32);
                    acks.push((at, log.append(spec.build()).unwrap()));
                    if random.below(3) == 0 {
                        let ms = random.below(300);
                        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                    }
                }
                for (at, appended) in &mut acks {
                    let Durability::Pending(ack) = &mut appended.durability else {
                        continue;
                    };
                    if ack.try_recv().is_ok() {
                        kept[*at] = kept[*at].max(appended.range.end().get());
                    }
                }
                rig.restart(Crash::DiskLost).await;
                for (at, id) in ids.iter().enumerate() {
                    let tags = rig.all_tags(*id).await;
                    assert!(tags.len() as u64 >= kept[at], "{at}: {}", kept[at]);
                    assert_eq!(tags, numbered(0..tags.len() as u64));
                    // What recovery found is promised from now on.
                    kept[at] = tags.len() as u64;
                    if let Some(last) = kept[at].checked_sub(1) {
                        let retry = Spec::tagged(last, 1, 100).by(at as i64, 0, last as i32);
                        assert_eq!(append(&rig.log(*id), &retry).await, (last, last + 1));
                    }
                }
            }
            rig.assert_running();
        });
    }
}

#[test]
fn the_second_life_of_a_broker_fences_what_the_first_still_writes() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Object).await;
        fill(&rig.log(id), 3, 100).await;
        rig.store.next(Operation::Put, "data/", [Fault::Late]);
        let mut late = rig.log(id).append(Spec::tagged(3, 1, 100).build()).unwrap();
        settle().await;
        rig.restart(Crash::DiskLost).await;
        rig.store.deliver_late().await;
        settle().await;
        let Durability::Pending(ack) = &mut late.durability else {
            panic!("it can't be durable yet");
        };
        assert!(ack.try_recv().is_err());
        fill(&rig.log(id), 3, 100).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..6));
        rig.restart(Crash::DiskLost).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..6));
    });
}

#[test]
fn a_producer_goes_on_after_a_restart_although_its_last_batches_were_deleted() {
    for deleted in [11, 12, 20] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(Object).await;
            for at in 0..20 {
                let spec = Spec::tagged(at, 1, 100).by(7, 0, at as i32);
                append(&rig.log(id), &spec).await;
                if at % 4 == 0 {
                    rig.all_uploaded().await;
                }
                if at == 4 {
                    // The next append brings a checkpoint that knows the producer.
                    rig.restart(Crash::Power).await;
                }
            }
            rig.all_uploaded().await;
            rig.delete_records(id, deleted).await;
            rig.restart(Crash::Power).await;
            let next = Spec::tagged(20, 1, 100).by(7, 0, 20);
            assert_eq!(append(&rig.log(id), &next).await, (20, 21));
            assert_eq!(rig.all_tags(id).await, numbered(deleted..21));
        });
    }
}

#[test]
fn a_retry_of_a_deleted_batch_is_recognised_once_another_batch_followed() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Object).await;
        for at in 0..6 {
            append(&rig.log(id), &Spec::tagged(at, 1, 100).by(7, 0, at as i32)).await;
        }
        rig.all_uploaded().await;
        rig.delete_records(id, 6).await;
        append(&rig.log(id), &Spec::tagged(6, 1, 100).by(8, 0, 0)).await;
        rig.restart(Crash::Power).await;
        let retry = Spec::tagged(5, 1, 100).by(7, 0, 5);
        assert_eq!(append(&rig.log(id), &retry).await, (5, 6));
    });
}

#[test]
fn replay_is_bounded_by_a_checkpoint_about_every_megabyte() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Object).await;
        for at in 0..60 {
            let spec = Spec::tagged(at, 1, 60_000).by(7, 0, at as i32);
            append(&rig.log(id), &spec).await;
        }
        rig.all_uploaded().await;
        let state = rig.states(&[id]).await.remove(0);
        let (as_of, _) = rig.life().opener.checkpoint(&state).await.unwrap();
        assert!(as_of >= offset(40), "{as_of}");
        rig.restart(Crash::DiskLost).await;
        let retry = Spec::tagged(58, 1, 60_000).by(7, 0, 58);
        assert_eq!(append(&rig.log(id), &retry).await, (58, 59));
    });
}
