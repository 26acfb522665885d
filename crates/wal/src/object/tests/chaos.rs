//! Random faults from a seed: whatever happens, what was acknowledged is what a recovery finds.

use std::time::Duration;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, ScriptedStore};
use tidegate_runtime::Random;

use super::{Heard, Process, entry, offsets, recover, sleep_ms, start_with};
use crate::object::ObjectWalOptions;

const PARTITIONS: u32 = 3;

fn some_faults(random: &Random, count: usize) -> Vec<Fault> {
    let one = |_| match random.below(12) {
        0 => Fault::SlowDown,
        1 => Fault::InternalError,
        2 => Fault::Conflict,
        3 => Fault::LostReply,
        4 => Fault::HangAfter,
        5 => Fault::Hang,
        6 => Fault::Late,
        7..9 => Fault::Delay(Duration::from_millis(random.below(400))),
        _ => Fault::None,
    };
    (0..count).map(one).collect()
}

/// Acknowledged first offsets of a partition, in the order heard.
fn acknowledged(process: &Process, wanted: u32) -> Vec<u64> {
    let of_one = |heard: Heard| match heard {
        Heard::Durable {
            partition, start, ..
        } if partition == wanted => Some(start),
        _ => None,
    };
    process.heard().into_iter().filter_map(of_one).collect()
}

async fn one_life(seed: u64) {
    let random = Random::seeded(seed);
    let store = ScriptedStore::new();
    store.next(Operation::Put, "data/", some_faults(&random, 60));
    store.next(Operation::Get, "data/", some_faults(&random, 30));
    let options = ObjectWalOptions {
        max_object_bytes: 2000,
        ..ObjectWalOptions::default()
    };
    let process = start_with(&store, options, seed);
    let mut next = [0; PARTITIONS as usize];
    let mut append_some = async |count: u64| {
        for _ in 0..count {
            let partition = u32::try_from(random.below(u64::from(PARTITIONS))).unwrap();
            let start = &mut next[partition as usize];
            if process.append_entry(entry(partition, *start, 300)).is_ok() {
                *start += 1;
            }
            sleep_ms(random.below(20)).await;
        }
    };
    append_some(100).await;
    // Two brokers think that the writer is dead; it goes on, and its late writes arrive.
    let recoveries = async {
        let run = async |who| loop {
            match recover(&store, who).await {
                Ok(fenced) => return fenced,
                Err(error) => assert!(error.is_retriable(), "seed {seed}: {error}"),
            }
        };
        tokio::join!(run(2), run(3))
    };
    let late = async {
        sleep_ms(random.below(300)).await;
        store.deliver_late().await;
    };
    let ((first, second), (), _) = tokio::join!(recoveries, append_some(60), late);
    assert_eq!(first, second, "seed {seed}");
    store.heal();
    store.deliver_late().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let third = recover(&store, 4).await.unwrap();
    assert_eq!(first, third, "seed {seed}");
    for partition in 0..PARTITIONS {
        let acknowledged = acknowledged(&process, partition);
        let collected = offsets(&first, partition);
        let without_gap: Vec<_> = (0..collected.len() as u64).collect();
        assert_eq!(
            collected, without_gap,
            "seed {seed}: a hole in partition {partition}"
        );
        assert!(
            collected.starts_with(&acknowledged),
            "seed {seed}: partition {partition} acknowledged {acknowledged:?}, collected {collected:?}"
        );
    }
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_the_faults_everything_acknowledged_is_collected_without_a_hole() {
    for seed in 0..150 {
        one_life(seed).await;
    }
}
