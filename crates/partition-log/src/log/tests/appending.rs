use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch};
use tidegate_types::DurabilityMode::{self, Local, Object};
use tokio::sync::Notify;

use super::rig::*;
use crate::log::{AppendError, Durability, Isolation, ReadError};
use crate::producers::SequenceError;

fn pending(appended: &crate::Appended) -> bool {
    matches!(appended.durability, Durability::Pending(_))
}

#[test]
fn a_batch_is_visible_only_once_it_is_durable() {
    for mode in [Local, Object] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(mode).await;
            let log = rig.log(id);
            // Nothing else runs before the first await.
            let appended = log.append(Spec::tagged(0, 3, 8).build()).unwrap();
            let before = log.watermarks().unwrap();
            assert_eq!(before.log_end, offset(3));
            assert_eq!(before.high_watermark, offset(0));
            assert_eq!(rig.all_tags(id).await, []);
            assert_eq!(durable(appended).await, (0, 3));
            assert_eq!(log.watermarks().unwrap().high_watermark, offset(3));
            assert_eq!(rig.all_tags(id).await, numbered(0..3));
        });
    }
}

#[test]
fn in_object_mode_nothing_is_visible_or_acknowledged_while_the_store_is_silent() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Object).await;
        let latch = Latch::new();
        rig.store
            .next(Operation::Put, "data/", [Fault::Held(latch.clone())]);
        let log = rig.log(id);
        let mut acks = Vec::new();
        for tag in 0..5 {
            let appended = log.append(Spec::tagged(tag, 1, 100).build()).unwrap();
            let Durability::Pending(ack) = appended.durability else {
                panic!("it can't be durable yet");
            };
            acks.push(ack);
            // The later ones are in later objects, which are stored.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(log.watermarks().unwrap().high_watermark, offset(0));
        assert_eq!(rig.all_tags(id).await, []);
        assert!(acks.iter_mut().all(|ack| ack.try_recv().is_err()));
        latch.open();
        for ack in acks {
            ack.await.unwrap();
        }
        assert_eq!(rig.all_tags(id).await, numbered(0..5));
    });
}

#[test]
fn acknowledgements_come_in_the_order_of_the_offsets() {
    for mode in [Local, Object] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(mode).await;
            let log = rig.log(id);
            let mut acks: Vec<_> = (0..50)
                .map(|tag| log.append(Spec::tagged(tag, 1, 700).build()).unwrap())
                .map(|appended| match appended.durability {
                    Durability::Pending(ack) => ack,
                    Durability::Durable => panic!("it can't be durable yet"),
                })
                .collect();
            let mut acknowledged = 0;
            while acknowledged < acks.len() {
                tokio::task::yield_now().await;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                let now = acks[acknowledged..]
                    .iter_mut()
                    .map(|ack| ack.try_recv().is_ok())
                    .collect::<Vec<_>>();
                let run = now.iter().take_while(|done| **done).count();
                assert!(now[run..].iter().all(|done| !done), "{now:?}");
                acknowledged += run;
                let high_watermark = log.watermarks().unwrap().high_watermark;
                assert!(high_watermark >= offset(acknowledged as u64));
            }
        });
    }
}

#[test]
fn a_retry_before_the_first_copy_is_durable_waits_for_it() {
    for mode in [Local, Object] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(mode).await;
            let log = rig.log(id);
            let spec = Spec::tagged(0, 2, 20).by(7, 0, 0);
            let first = log.append(spec.build()).unwrap();
            let next = log.append(Spec::tagged(2, 1, 20).by(7, 0, 2).build());
            let retry = log.append(spec.build()).unwrap();
            assert!(pending(&first) && pending(&retry));
            assert_eq!(durable(retry).await, (0, 2));
            assert_eq!(durable(first).await, (0, 2));
            assert_eq!(durable(next.unwrap()).await, (2, 3));
            let again = log.append(spec.build()).unwrap();
            assert!(!pending(&again));
            assert_eq!(rig.all_tags(id).await, numbered(0..3));
        });
    }
}

async fn retries_after_a_restart(mode: DurabilityMode, upload_first: u64) {
    let mut rig = Rig::new().await;
    let id = rig.one(mode).await;
    for at in 0..8 {
        if at == upload_first {
            rig.all_uploaded().await;
        }
        append(&rig.log(id), &Spec::tagged(at, 1, 50).by(7, 0, at as i32)).await;
    }
    for crash in [Crash::Power, Crash::Process, Crash::Power] {
        rig.restart(crash).await;
        let log = rig.log(id);
        for at in 3..8 {
            let retry = Spec::tagged(at, 1, 50).by(7, 0, at as i32);
            assert_eq!(append(&log, &retry).await, (at, at + 1));
        }
        let gap = log.append(Spec::tagged(9, 1, 50).by(7, 0, 9).build());
        assert!(matches!(
            gap,
            Err(AppendError::Sequence(SequenceError::OutOfOrder { .. }))
        ));
    }
    append(&rig.log(id), &Spec::tagged(8, 1, 50).by(7, 0, 8)).await;
    assert_eq!(rig.all_tags(id).await, numbered(0..9));
}

#[test]
fn a_retry_after_a_restart_is_answered_with_its_first_offsets() {
    for mode in [Local, Object] {
        // Nothing, a part, and all of it uploaded: state from replay, from both, and from the checkpoint.
        for upload_first in [99, 1, 6] {
            paused(retries_after_a_restart(mode, upload_first));
        }
    }
}

#[test]
fn closing_releases_everybody_who_waits() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Object).await;
        rig.store.always(Some(Operation::Put), "data/", Fault::Hang);
        let log = rig.log(id);
        let first = log.append(Spec::tagged(0, 1, 8).by(7, 0, 0).build());
        let retry = log.append(Spec::tagged(0, 1, 8).by(7, 0, 0).build());
        let bell = std::sync::Arc::new(Notify::new());
        assert!(log.watch(offset(0), Isolation::ReadUncommitted, &bell));
        rig.life().logs.remove(id);
        for appended in [first, retry] {
            let Durability::Pending(ack) = appended.unwrap().durability else {
                panic!("it can't be durable yet");
            };
            assert!(ack.await.is_err());
        }
        bell.notified().await;
        assert!(matches!(log.watermarks(), Err(ReadError::NotLeader)));
        let late = log.append(Spec::tagged(1, 1, 8).build());
        assert!(matches!(late, Err(AppendError::NotLeader)));
        assert!(!log.watch(offset(0), Isolation::ReadUncommitted, &bell));
    });
}

#[test]
fn a_failed_disk_acknowledges_nothing_more_and_what_was_stays_readable() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        fill(&log, 3, 100).await;
        rig.disk.fail_sync_in(0);
        let appended = log.append(Spec::tagged(3, 1, 100).build()).unwrap();
        let Durability::Pending(ack) = appended.durability else {
            panic!("it can't be durable yet");
        };
        assert!(ack.await.is_err());
        let refused = log.append(Spec::tagged(4, 1, 100).build());
        assert!(matches!(refused, Err(AppendError::Failed(_))));
        assert_eq!(log.watermarks().unwrap().high_watermark, offset(3));
        assert_eq!(rig.all_tags(id).await, numbered(0..3));
        rig.restart(Crash::Power).await;
        // The failed one may be there.
        let tags = rig.all_tags(id).await;
        assert!(tags == numbered(0..3) || tags == numbered(0..4), "{tags:?}");
    });
}
