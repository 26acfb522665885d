use std::sync::Arc;
use std::time::Duration;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::Fault;
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::PartitionId;

use super::rig::*;
use crate::log::{AppendError, PartitionLog};

/// Appends the next batch, however long the switch takes. Answers how often it was refused.
async fn append_through(log: &Arc<PartitionLog>) -> usize {
    for refused in 0.. {
        let tag = log.watermarks().unwrap().log_end.get();
        match log.append(Spec::tagged(tag, 1, 100).build()) {
            Ok(appended) => {
                durable(appended).await;
                return refused;
            }
            Err(AppendError::Switching) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

fn set(rig: &mut Rig, id: PartitionId, mode: tidegate_types::DurabilityMode) {
    rig.modes.get_mut(&id.topic).unwrap().1 = mode;
    rig.log(id).set_durability(mode);
}

#[test]
fn switching_the_durability_there_and_back_keeps_order_and_loses_nothing() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let mut count = 0;
        for mode in [Object, Local, Object, Local] {
            for at in 0..12 {
                if at == 5 {
                    set(&mut rig, id, mode);
                }
                append_through(&rig.log(id)).await;
                count += 1;
            }
            assert_eq!(rig.log(id).state.lock().durability, mode);
            rig.assert_running();
            assert_eq!(rig.all_tags(id).await, numbered(0..count));
            rig.restart(Crash::Power).await;
            assert_eq!(rig.all_tags(id).await, numbered(0..count));
        }
        rig.all_uploaded().await;
        rig.assert_running();
    });
}

#[test]
fn a_switch_does_not_wait_for_the_age_of_an_upload() {
    paused(async {
        let mut options = RigOptions::default();
        options.upload.age = Duration::from_secs(3_600);
        let mut rig = Rig::with(options).await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 10, 100).await;
        set(&mut rig, id, Object);
        let refused = append_through(&rig.log(id)).await;
        assert!(refused < 20, "refused for {refused} × 50 ms");
        assert_eq!(rig.log(id).state.lock().durability, Object);
    });
}

#[test]
fn a_switch_that_a_crash_interrupts_keeps_the_local_tail() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 10, 100).await;
        rig.store.always(Some(Operation::Put), "", Fault::SlowDown);
        set(&mut rig, id, Object);
        rig.kill(Crash::Power).await;
        rig.store.heal();
        rig.start().await;
        assert_eq!(rig.all_tags(id).await, numbered(0..10));
        // Others move the WAL on.
        let other = rig.one(Local).await;
        for _ in 0..4 {
            fill(&rig.log(other), 60, 1_000).await;
            append_through(&rig.log(id)).await;
            tokio::time::sleep(AGE * 2).await;
        }
        rig.assert_running();
        assert_eq!(rig.log(id).state.lock().durability, Object);
        rig.restart(Crash::Power).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..14));
    });
}

#[test]
fn a_switch_taken_back_takes_appends_at_once() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 3, 100).await;
        rig.store.always(Some(Operation::Put), "", Fault::SlowDown);
        set(&mut rig, id, Object);
        let refused = rig.log(id).append(Spec::tagged(3, 1, 100).build());
        assert!(matches!(refused, Err(AppendError::Switching)));
        set(&mut rig, id, Local);
        fill(&rig.log(id), 3, 100).await;
        assert_eq!(rig.all_tags(id).await, numbered(0..6));
    });
}
