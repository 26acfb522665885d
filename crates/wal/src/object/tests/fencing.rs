//! Writers that are fenced, and those who fence them.

use std::time::Duration;

use bytes::Bytes;
use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch, ScriptedStore};

use super::{Process, broker, entry, key, name, offsets, recover, sleep_ms, start, storage};
use crate::object::RecoveryError;
use crate::{AppendRefused, Wal, WalFailure};

/// A writer with `count` objects stored and acknowledged.
async fn written(store: &ScriptedStore, count: u64) -> Process {
    let process = start(store);
    for start in 0..count {
        process.append(0, start);
        process
            .until_durable(usize::try_from(start).unwrap() + 1)
            .await;
    }
    process
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_is_collected_and_the_writer_ends() {
    let store = ScriptedStore::new();
    let process = written(&store, 40).await;
    let fenced = recover(&store, 2).await.unwrap();
    assert_eq!(fenced.fenced_at, 40);
    assert_eq!(offsets(&fenced, 0), (0..40).collect::<Vec<_>>());
    assert_eq!(store.seen(Operation::List), [], "listings may be stale");
    process.append(0, 40);
    sleep_ms(100).await;
    assert_eq!(process.durable().len(), 40);
    assert_eq!(process.fenced(), [40]);
    let refused = process.append_entry(entry(0, 41, 100));
    let fenced = |failure: &WalFailure| matches!(failure, WalFailure::Fenced { sequence: 40, .. });
    assert!(matches!(refused, Err(AppendRefused::Failed(failure)) if fenced(&failure)));
    assert!(process.wal.failure().borrow().as_ref().is_some_and(fenced));
    assert_eq!(process.wal.pending_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn recovery_may_run_again_and_by_several_at_once_with_one_result() {
    let store = ScriptedStore::new();
    let process = written(&store, 20).await;
    let (a, b, c) = tokio::join!(recover(&store, 2), recover(&store, 3), recover(&store, 4));
    let first = a.unwrap();
    assert_eq!(first.objects.len(), 20);
    assert_eq!(first, b.unwrap());
    assert_eq!(first, c.unwrap());
    assert_eq!(first, recover(&store, 5).await.unwrap());
    drop(process);
}

#[tokio::test(start_paused = true)]
async fn a_recovery_whose_own_fence_lost_its_reply_is_done() {
    let store = ScriptedStore::new();
    let _process = written(&store, 2).await;
    store.next(Operation::Put, "00002", [Fault::LostReply]);
    let fenced = recover(&store, 2).await.unwrap();
    assert_eq!((fenced.fenced_at, fenced.objects.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_never_wrote_is_fenced_at_its_first_number() {
    let store = ScriptedStore::new();
    let fenced = recover(&store, 2).await.unwrap();
    assert_eq!((fenced.fenced_at, fenced.objects.len()), (0, 0));
    let process = start(&store);
    process.append(0, 0);
    sleep_ms(100).await;
    assert_eq!(process.durable(), Vec::<u64>::new());
    assert_eq!(process.fenced(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_writer_paused_before_its_put_arrived_acknowledges_nothing_when_it_wakes() {
    let store = ScriptedStore::new();
    let process = written(&store, 3).await;
    // Its PUT is on the way and its process stands still.
    store.next(Operation::Put, "00003", [Fault::Late]);
    process.append(0, 3);
    sleep_ms(10).await;
    process.append(0, 4);
    let fenced = recover(&store, 2).await.unwrap();
    assert_eq!(offsets(&fenced, 0), [0, 1, 2]);
    assert_eq!(store.deliver_late().await, 0, "the fence was first");
    sleep_ms(30_000).await;
    assert_eq!(process.durable(), [0, 1, 2]);
    assert_eq!(process.fenced(), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_late_write_that_beats_the_fence_is_taken_in_and_acknowledged_and_the_next_isnt() {
    let store = ScriptedStore::new();
    let process = written(&store, 3).await;
    let latch = Latch::new();
    store.next(
        Operation::Put,
        "00003",
        [Fault::Late, Fault::Held(latch.clone())],
    );
    process.append(0, 3);
    sleep_ms(10).await;
    let recovery = tokio::task::spawn({
        let store = store.clone();
        async move { recover(&store, 2).await }
    });
    // The recovery has found nothing at 3 and its fence is on the way.
    sleep_ms(100).await;
    assert_eq!(store.deliver_late().await, 1);
    latch.open();
    let fenced = recovery.await.unwrap().unwrap();
    assert_eq!(offsets(&fenced, 0), [0, 1, 2, 3]);
    assert_eq!(fenced.fenced_at, 4);
    // The writer repeats its PUT, finds its own object and may say so.
    process.until_durable(4).await;
    process.append(0, 4);
    sleep_ms(100).await;
    assert_eq!(process.durable(), [0, 1, 2, 3]);
    assert_eq!(process.fenced(), [4]);
}

#[tokio::test(start_paused = true)]
async fn objects_behind_a_missing_number_are_neither_acknowledged_nor_collected() {
    let store = ScriptedStore::new();
    let process = written(&store, 2).await;
    store.always(Some(Operation::Put), "00002", Fault::InternalError);
    for start in 2..6 {
        process.append(0, start);
        sleep_ms(60).await;
    }
    let later = storage(&store, 9);
    assert!(
        later.head(&key(name(4))).await.unwrap().is_some(),
        "4 is stored"
    );
    assert_eq!(process.durable(), [0, 1]);
    store.heal();
    // Before the writer repeats 2, somebody fences it.
    let fenced = recover(&store, 2).await.unwrap();
    sleep_ms(30_000).await;
    let collected = offsets(&fenced, 0);
    assert_eq!(
        process.durable(),
        collected,
        "acknowledged is exactly what was collected"
    );
    match fenced.fenced_at {
        2 => assert_eq!(process.fenced(), [2, 3, 4, 5]),
        // The writer's repetition won the race for 2: then all that follows counts.
        other => assert_eq!((other, collected.len()), (6, 6)),
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_rides_out_throttling() {
    let store = ScriptedStore::new();
    let _process = written(&store, 5).await;
    store.always(None, "", Fault::SlowDown);
    let recovery = tokio::task::spawn({
        let store = store.clone();
        async move {
            loop {
                match recover(&store, 2).await {
                    Ok(fenced) => return fenced,
                    Err(error) => assert!(error.is_retriable(), "{error}"),
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.heal();
    assert_eq!(recovery.await.unwrap().objects.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn what_isnt_an_object_of_the_writer_stops_recovery() {
    let store = ScriptedStore::new();
    let _process = written(&store, 2).await;
    let raw = storage(&store, 9);
    let copy = raw.get(&key(name(1))).await.unwrap();
    raw.put_create(&key(name(2)), vec![copy]).await.unwrap();
    let error = recover(&store, 2).await.unwrap_err();
    assert!(matches!(error, RecoveryError::Foreign { .. }), "{error}");
    assert!(!error.is_retriable());
    let other = ScriptedStore::new();
    let garbage = vec![Bytes::from(vec![0; 1000])];
    storage(&other, 9)
        .put_create(&key(name(0)), garbage)
        .await
        .unwrap();
    let error = recover(&other, 2).await.unwrap_err();
    assert!(matches!(error, RecoveryError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&broker(1).to_string()));
}

#[tokio::test(start_paused = true)]
async fn an_index_longer_than_the_first_read_is_read_whole() {
    let store = ScriptedStore::new();
    let latch = Latch::new();
    store.next(Operation::Put, "", [Fault::Held(latch.clone())]);
    let process = start(&store);
    process.append(0, 0);
    sleep_ms(1).await;
    for index in 0..1500 {
        process
            .append_entry(entry(index, u64::from(index == 0), 10))
            .unwrap();
    }
    latch.open();
    process.until_durable(2).await;
    let fenced = recover(&store, 2).await.unwrap();
    assert_eq!(fenced.objects.len(), 2);
    assert!(fenced.objects[1].index.length > 64 * 1024);
    assert_eq!(fenced.objects[1].segments.len(), 1500);
}
