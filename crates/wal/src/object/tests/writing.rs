//! A writer that nobody fences.

use std::time::Duration;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch, ScriptedStore};
use tidegate_types::LeaderEpoch;
use tokio::time::Instant;

use super::{Heard, Process, entry, puts, sleep_ms, start, start_with};
use crate::object::{GaveUp, ObjectWalOptions};
use crate::{AppendRefused, FullCause, Wal};

#[tokio::test(start_paused = true)]
async fn an_entry_that_comes_when_idle_is_sent_at_once_without_any_read() {
    let store = ScriptedStore::new();
    store.always(
        Some(Operation::Put),
        "",
        Fault::Delay(Duration::from_millis(70)),
    );
    let process = start(&store);
    for start in 0..3 {
        let appended = Instant::now();
        process.append(0, start);
        process
            .until_durable(usize::try_from(start).unwrap() + 1)
            .await;
        let took = appended.elapsed();
        assert!(
            took <= Duration::from_millis(72),
            "{took:?} for a PUT of 70 ms"
        );
    }
    for operation in [Operation::Get, Operation::Head, Operation::List] {
        assert_eq!(store.seen(operation), []);
    }
    let written: Vec<_> = process.heard().into_iter().step_by(2).collect();
    assert_eq!(
        written,
        [Heard::Written(0), Heard::Written(1), Heard::Written(2)]
    );
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn under_load_objects_grow_and_waiting_adds_little() {
    let store = ScriptedStore::new();
    store.always(
        Some(Operation::Put),
        "",
        Fault::Delay(Duration::from_millis(80)),
    );
    let process = start(&store);
    let mut worst = Duration::ZERO;
    for round in 0..10_u64 {
        let started = Instant::now();
        for start in round * 100..(round + 1) * 100 {
            process.append(0, start);
            sleep_ms(1).await;
        }
        let sent = started.elapsed();
        process
            .until_durable(usize::try_from((round + 1) * 100).unwrap())
            .await;
        worst = worst.max(started.elapsed() - sent);
    }
    // A linger of 20 ms: 100 entries, 1 ms apart, make some five objects.
    let puts = puts(&store);
    assert!(
        (30..=80).contains(&puts),
        "{puts} PUTs for 1,000 entries in a second"
    );
    assert!(worst <= Duration::from_millis(104), "{worst:?}");
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_fills_objects_up_to_their_size_and_keeps_the_order() {
    let store = ScriptedStore::new();
    store.always(
        Some(Operation::Put),
        "",
        Fault::Delay(Duration::from_millis(50)),
    );
    let process = start(&store);
    for start in 0..40 {
        process.append_entry(entry(0, start, 1024 * 1024)).unwrap();
    }
    process.until_durable(40).await;
    let puts = puts(&store);
    assert_eq!(puts, 10, "40 MiB in objects of 4 MiB");
    assert_eq!(process.durable(), (0..40).collect::<Vec<_>>());
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn later_objects_that_finish_first_wait_for_the_earlier() {
    let store = ScriptedStore::new();
    let latch = Latch::new();
    store.next(Operation::Put, "000000", [Fault::Held(latch.clone())]);
    let process = start(&store);
    for start in 0..3 {
        process.append(0, start);
        process.append(1, start);
        sleep_ms(30).await;
    }
    sleep_ms(500).await;
    assert_eq!(store.seen(Operation::Put).len(), 3);
    assert_eq!(process.heard(), [], "objects 1 and 2 are stored, 0 isn't");
    latch.open();
    process.until_durable(3).await;
    let mut expected = Vec::new();
    for sequence in 0..3 {
        expected.push(Heard::Written(sequence));
        for partition in 0..2 {
            let start = sequence;
            expected.push(Heard::Durable {
                partition,
                start,
                sequence,
            });
        }
    }
    assert_eq!(process.heard(), expected);
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_recognised_as_our_own_object() {
    for fault in [Fault::LostReply, Fault::HangAfter] {
        let store = ScriptedStore::new();
        store.next(
            Operation::Put,
            "",
            [fault.clone(), Fault::None, fault.clone()],
        );
        let process = start(&store);
        process.append(0, 0);
        process.until_durable(1).await;
        process.append(0, 1);
        process.until_durable(2).await;
        let written: Vec<_> = process
            .heard()
            .into_iter()
            .filter(|heard| matches!(heard, Heard::Written(_)))
            .collect();
        assert_eq!(written, [Heard::Written(0), Heard::Written(1)], "{fault:?}");
        process.check_locations().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_503_acknowledges_nothing_grows_nothing_and_then_all_is_acknowledged() {
    let store = ScriptedStore::new();
    let options = ObjectWalOptions {
        max_object_bytes: 100_000,
        pending_bytes: 1_000_000,
        ..ObjectWalOptions::default()
    };
    let process = start_with(&store, options, 1);
    process.append_entry(entry(0, 0, 1000)).unwrap();
    process.until_durable(1).await;
    store.always(None, "", Fault::SlowDown);
    let before = puts(&store);
    let outage = Instant::now();
    let mut next = 1;
    let mut refused = 0;
    while outage.elapsed() < Duration::from_secs(60) {
        match process.append_entry(entry(0, next, 1000)) {
            Ok(()) => next += 1,
            Err(AppendRefused::Full(FullCause::Pending)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(process.wal.pending_bytes() <= 1_000_000);
        sleep_ms(10).await;
    }
    assert_eq!(process.durable(), [0], "nothing was stored");
    assert!(
        (700..800).contains(&next) && refused > 5000,
        "{next} taken, {refused} refused"
    );
    assert!(
        puts(&store) - before < 300,
        "{} PUTs",
        puts(&store) - before
    );
    store.heal();
    let count = usize::try_from(next).unwrap();
    process.until_durable(count).await;
    assert_eq!(process.durable(), (0..next).collect::<Vec<_>>());
    assert_eq!(process.wal.pending_bytes(), 0);
    assert_eq!(process.wal.available_bytes(), 1_000_000);
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_comes_back_is_used_at_once() {
    let store = ScriptedStore::new();
    let process = start(&store);
    store.always(None, "", Fault::BucketMissing);
    process.append(0, 0);
    sleep_ms(60_000).await;
    assert_eq!(process.durable(), Vec::<u64>::new());
    let puts = puts(&store);
    assert!(puts < 120, "{puts} PUTs in a minute without a bucket");
    store.heal();
    process.until_durable(1).await;
}

#[tokio::test(start_paused = true)]
async fn another_leader_epoch_of_a_partition_begins_another_object() {
    let store = ScriptedStore::new();
    let latch = Latch::new();
    store.next(Operation::Put, "", [Fault::Held(latch.clone())]);
    let process = start(&store);
    process.append(0, 0);
    sleep_ms(1).await;
    process.append(0, 1);
    let mut next_epoch = entry(0, 2, 100);
    next_epoch.leader_epoch = LeaderEpoch::FIRST.next();
    process.append_entry(next_epoch).unwrap();
    process.append(1, 0);
    sleep_ms(1).await;
    latch.open();
    process.until_durable(3).await;
    sleep_ms(10).await;
    let sequence_of = |wanted: (u32, u64)| {
        let mut heard = process.heard().into_iter();
        heard.find_map(|heard| match heard {
            Heard::Durable {
                partition,
                start,
                sequence,
            } if (partition, start) == wanted => Some(sequence),
            _ => None,
        })
    };
    assert_eq!(sequence_of((0, 1)), Some(1));
    assert_eq!(sequence_of((0, 2)), Some(2));
    assert_eq!(sequence_of((1, 0)), Some(2));
    process.check_locations().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_metadata_doesnt_commit_refuse_appends_until_it_does() {
    let store = ScriptedStore::new();
    let options = ObjectWalOptions {
        max_uncommitted_objects: 2,
        ..ObjectWalOptions::default()
    };
    let process = start_with(&store, options, 1);
    for start in 0..2 {
        process.append(0, start);
        process
            .until_durable(usize::try_from(start).unwrap() + 1)
            .await;
    }
    let refused = process.append_entry(entry(0, 2, 100));
    assert!(matches!(
        refused,
        Err(AppendRefused::Full(FullCause::Capacity))
    ));
    assert_eq!(process.wal.available_bytes(), 0);
    process.wal.committed(1);
    process.append(0, 2);
    process.until_durable(3).await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_above_the_limit_is_refused_for_good() {
    let store = ScriptedStore::new();
    let process = start(&store);
    let refused = process.append_entry(entry(0, 0, 65 * 1024 * 1024));
    assert!(matches!(refused, Err(AppendRefused::TooLarge { .. })));
}

#[tokio::test(start_paused = true)]
async fn closing_makes_durable_what_was_taken_and_takes_no_more() {
    let store = ScriptedStore::new();
    store.always(
        Some(Operation::Put),
        "",
        Fault::Delay(Duration::from_millis(50)),
    );
    let process = start(&store);
    for start in 0..5 {
        process.append(0, start);
    }
    process.wal.close(Duration::from_secs(10)).await.unwrap();
    assert_eq!(process.durable(), [0, 1, 2, 3, 4]);
    let refused = process.append_entry(entry(0, 5, 100));
    assert!(matches!(refused, Err(AppendRefused::Closed)));
}

#[tokio::test(start_paused = true)]
async fn closing_over_a_dead_store_tells_every_observer_and_ends() {
    let store = ScriptedStore::new();
    store.always(None, "", Fault::Hang);
    let process = start(&store);
    process.append(0, 0);
    sleep_ms(1).await;
    process.append(0, 1);
    let closed = process.wal.close(Duration::from_secs(10)).await;
    assert!(
        matches!(closed, Err(GaveUp { bytes }) if bytes > 200),
        "{closed:?}"
    );
    let closed = |start| Heard::Closed {
        partition: 0,
        start,
    };
    assert_eq!(process.heard(), [closed(0), closed(1)]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_writes_what_was_taken() {
    let store = ScriptedStore::new();
    store.always(
        Some(Operation::Put),
        "",
        Fault::Delay(Duration::from_millis(50)),
    );
    let Process { wal, ear, storage } = {
        let process = start(&store);
        process.append(0, 0);
        process.append(0, 1);
        process
    };
    drop(wal);
    sleep_ms(200).await;
    let durable = ear.heard.lock().len();
    assert!(durable >= 3, "{:?}", ear.heard.lock());
    drop(storage);
}
