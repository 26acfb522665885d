//! Random failures of everything, while producers append: nothing acknowledged is lost, and when the failures
//! end, so do the moves.

use std::time::Duration;

use tidegate_metadata::store::Fault as StoreFault;
use tidegate_runtime::Random;

use super::*;
use crate::admin::{ClusterAdmin, MoveRequest};

async fn storm(seed: u64, durability: DurabilityMode, deserted: bool) {
    let random = Random::seeded(seed);
    let mut rig = Rig::new(durability).await;
    rig.start_all(1..=3).await;
    let leaders: Vec<u32> = (0..12).map(|i| 1 + i % 3).collect();
    let topic = rig.topic("t", &leaders).await;
    let world = Arc::clone(&rig.world);
    let producer = tokio::spawn({
        let random = Random::seeded(seed + 1);
        async move {
            loop {
                let index = usize::try_from(random.below(12)).unwrap();
                world.append(partition(topic, index));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    if deserted {
        // Whoever loses its session is taken for dead at once, wrongly: it lives and goes on.
        (1..=3).for_each(|id| rig.world.desert(broker(id)));
    }
    rig.world.chaos(Some((Random::seeded(seed + 2), 25)));
    for _ in 0..25 {
        let moves = (0..4)
            .map(|_| MoveRequest {
                partition: partition(topic, usize::try_from(random.below(12)).unwrap()),
                to: broker(1 + u32::try_from(random.below(3)).unwrap()),
            })
            .collect();
        let wait = Duration::from_millis(random.below(1_500));
        let _ = rig.conductor().reassign(moves, wait).await;
        match random.below(8) {
            0 => rig.opener.inject(StoreFault::Before),
            1 => rig.opener.inject(StoreFault::After),
            2 => {
                rig.drop_controller();
                tokio::time::sleep(Duration::from_millis(random.below(300))).await;
                rig.open().await;
            }
            // In object mode it would be failed over, and what becomes of its appends is for its WAL to decide, which
            // these brokers haven't got.
            3 if durability == DurabilityMode::Local => {
                // Cut off for less than a session time-out, or for more.
                let id = broker(1 + u32::try_from(random.below(3)).unwrap());
                rig.world.kill(id);
                tokio::time::sleep(Duration::from_millis(random.below(6_000))).await;
                rig.world.wake(id);
            }
            _ => {}
        }
    }
    rig.world.chaos(None);
    let healed = tokio::time::Instant::now();
    loop {
        let listed = rig.conductor().list_reassignments(None).await;
        let served = (0..12).all(|i| rig.world.serves(partition(topic, i)).len() == 1);
        if listed.as_ref().is_ok_and(Vec::is_empty)
            && served
            && rig.conductor().core.moves.len() == 0
        {
            break;
        }
        assert!(
            healed.elapsed() < Duration::from_secs(60),
            "seed {seed}: {listed:?}, {:?}",
            rig.world.violations()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    producer.abort();
    for i in 0..12 {
        assert!(rig.world.append(partition(topic, i)), "seed {seed}");
    }
    assert_eq!(rig.metric("conductor_seals_to_undo"), 0.0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_acknowledged_is_lost_and_every_move_ends_whatever_fails() {
    for seed in 0..24 {
        storm(seed * 1_000, DurabilityMode::Local, seed % 2 == 1).await;
        storm(seed * 1_000 + 500, DurabilityMode::Object, false).await;
    }
}
