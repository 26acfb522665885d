use std::sync::mpsc::channel;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch};
use tidegate_runtime::Random;
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::{PartitionId, ProducerId, TimestampMs};
use tidegate_wal::Wal;

use super::rig::*;
use super::transactions::{aborted, end, marker, transact};
use crate::fetch::last_end;
use crate::log::{Isolation, ReadError};
use crate::producers::AbortedTransaction;
use crate::{ReadRequest, UploadLimits};

/// A log of `0..90`: a third each in the store, spilled to the WAL, and in memory.
async fn three_parts(rig: &mut Rig) -> PartitionId {
    let id = rig.one(Local).await;
    fill(&rig.log(id), 30, 300).await;
    rig.all_uploaded().await;
    rig.restart(Crash::Process).await;
    let log = rig.log(id);
    fill(&log, 30, 300).await;
    log.evict(offset(60));
    fill(&log, 30, 300).await;
    let state = log.state.lock();
    assert_eq!(state.tail.start(), Some(offset(30)));
    assert_eq!(state.stored_end, offset(30));
    assert!(state.tail.memory_bytes() < 30 * 500);
    drop(state);
    id
}

#[test]
fn a_read_over_store_wal_and_memory_gives_every_batch_once_and_in_order() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = three_parts(&mut rig).await;
        let random = Random::seeded(5);
        for _ in 0..60 {
            let from = random.below(90);
            let max_bytes = random.below(4_000) as usize;
            let tags = rig
                .read_tags(id, from, max_bytes, Isolation::ReadUncommitted)
                .await;
            assert_eq!(tags, numbered(from..90), "{from} {max_bytes}");
        }
    });
}

#[test]
fn a_first_batch_above_the_limit_comes_whole_only_if_asked() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = three_parts(&mut rig).await;
        let log = rig.log(id);
        for at in [5, 35, 65] {
            for first_whole in [true, false] {
                let request = ReadRequest {
                    offset: offset(at),
                    max_bytes: 10,
                    first_whole,
                    isolation: Isolation::ReadUncommitted,
                };
                let read = rig.life().reader.read(&log, request).await.unwrap();
                assert_eq!(read.bytes > 0, first_whole, "at {at}");
                assert!(read.batches.len() <= 1);
            }
        }
    });
}

#[test]
fn offsets_outside_the_log_are_refused_and_its_end_is_not() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = three_parts(&mut rig).await;
        rig.delete_records(id, 10).await;
        let log = rig.log(id);
        for (at, inside) in [(9, false), (10, true), (90, true), (91, false)] {
            let request = ReadRequest {
                offset: offset(at),
                max_bytes: 1_000,
                first_whole: true,
                isolation: Isolation::ReadUncommitted,
            };
            match rig.life().reader.read(&log, request).await {
                Ok(_) => assert!(inside, "{at}"),
                Err(ReadError::OutOfRange { .. }) => assert!(!inside, "{at}"),
                Err(other) => panic!("{other}"),
            }
        }
    });
}

#[test]
fn read_committed_stops_at_the_oldest_open_transaction_also_after_a_restart() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        // 0: plain. 1: seven's first, aborted at 3. 4: eight's, stays open. 5: plain.
        append(&log, &Spec::tagged(0, 1, 8)).await;
        transact(&log, &Spec::tagged(1, 1, 8).by(7, 0, 0)).await;
        append(&log, &Spec::tagged(2, 1, 8)).await;
        let open = log.watermarks().unwrap();
        assert_eq!(open.last_stable, offset(1));
        end(&log, marker(7, 0, false)).await;
        transact(&log, &Spec::tagged(4, 1, 8).by(8, 0, 0)).await;
        append(&log, &Spec::tagged(5, 1, 8)).await;
        drop(log);
        let seven = AbortedTransaction {
            producer: ProducerId::from_wire(7).unwrap(),
            start: offset(1),
            marker: offset(3),
            stable_after: offset(4),
        };
        for upload in [false, false, true, false] {
            if upload {
                rig.all_uploaded().await;
            }
            let watermarks = rig.log(id).watermarks().unwrap();
            assert_eq!(watermarks.last_stable, offset(4));
            assert_eq!(watermarks.high_watermark, offset(6));
            let committed = rig.read_tags(id, 0, 90, Isolation::ReadCommitted).await;
            assert_eq!(committed, numbered(0..3));
            assert_eq!(aborted(&rig, id, 0).await, [seven]);
            assert_eq!(aborted(&rig, id, 3).await, [seven]);
            assert_eq!(aborted(&rig, id, 4).await, []);
            rig.restart(Crash::Power).await;
        }
        end(&rig.log(id), marker(8, 0, true)).await;
        let committed = rig.read_tags(id, 4, 90, Isolation::ReadCommitted).await;
        assert_eq!(committed, [(4, 4), (5, 5)]);
    });
}

#[test]
fn the_tail_budget_bounds_memory_and_what_is_spilled_stays_readable() {
    paused(async {
        let mut rig = Rig::with(RigOptions {
            tail_bytes: 8 * 1024,
            ..RigOptions::default()
        })
        .await;
        let ids = rig.topic(Local, 3).await;
        for _ in 0..60 {
            for id in &ids {
                fill(&rig.log(*id), 1, 200).await;
                let held: u64 = ids
                    .iter()
                    .map(|id| rig.log(*id).state.lock().tail.memory_bytes())
                    .sum();
                assert_eq!(rig.life().context.tail_budget.used_bytes(), held);
                assert!(held <= 8 * 1024 + 300, "{held}");
            }
        }
        for id in &ids {
            assert_eq!(rig.all_tags(*id).await, numbered(0..60));
        }
        let logs = rig.life().logs.clone();
        ids.iter().for_each(|id| drop(logs.remove(*id)));
        settle().await;
        assert_eq!(rig.life().context.tail_budget.used_bytes(), 0);
    });
}

#[test]
fn batches_that_wait_for_a_silent_store_do_not_keep_others_in_memory() {
    paused(async {
        let mut rig = Rig::with(RigOptions {
            tail_bytes: 8 * 1024,
            ..RigOptions::default()
        })
        .await;
        let stuck = rig.one(Object).await;
        let local = rig.one(Local).await;
        let latch = Latch::new();
        rig.store
            .always(Some(Operation::Put), "data/", Fault::Held(latch.clone()));
        let log = rig.log(stuck);
        let acks: Vec<_> = (0..10)
            .map(|tag| log.append(Spec::tagged(tag, 1, 200).build()).unwrap())
            .collect();
        fill(&rig.log(local), 100, 200).await;
        let used = rig.life().context.tail_budget.used_bytes();
        assert!(used <= 8 * 1024 + 300, "{used}");
        latch.open();
        for ack in acks {
            durable(ack).await;
        }
        assert_eq!(rig.all_tags(stuck).await, numbered(0..10));
        assert_eq!(rig.all_tags(local).await, numbered(0..100));
    });
}

#[test]
fn what_was_spilled_is_read_from_the_store_once_the_wal_is_trimmed() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        fill(&log, 200, 300).await;
        log.evict(offset(200));
        let full = rig.life().local_wal.available_bytes();
        rig.all_uploaded().await;
        assert!(rig.life().local_wal.available_bytes() > full);
        assert_eq!(log.state.lock().tail.start(), None);
        assert_eq!(rig.all_tags(id).await, numbered(0..200));
        // Also where an upload leaves a part of the tail in memory.
        fill(&log, 10, 300).await;
        log.evict(offset(205));
        rig.all_uploaded().await;
        assert_eq!(log.state.lock().tail.start(), Some(offset(205)));
        assert_eq!(rig.all_tags(id).await, numbered(0..210));
    });
}

/// One thread for blocking reads, so that a test can keep it busy.
fn one_blocking_thread<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(1)
        .build()
        .unwrap()
        .block_on(test)
}

#[test]
fn a_read_that_loses_its_batches_to_a_trim_goes_on_in_the_store() {
    one_blocking_thread(async {
        let mut options = RigOptions::default();
        options.upload.age = std::time::Duration::from_millis(50);
        let mut rig = Rig::with(options).await;
        let latch = Latch::new();
        rig.store
            .always(Some(Operation::Put), "", Fault::Held(latch.clone()));
        let id = rig.one(Local).await;
        let log = rig.log(id);
        fill(&log, 200, 300).await;
        log.evict(offset(200));
        // The object is built, which reads the WAL, and waits at the store.
        while rig.store.seen(Operation::Put).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let (release, released) = channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let reader = rig.life().reader.clone();
        let (for_read, for_time) = (log.clone(), log.clone());
        let request = ReadRequest {
            offset: offset(3),
            max_bytes: 1_000,
            first_whole: true,
            isolation: Isolation::ReadUncommitted,
        };
        let (by_time, by_max) = (reader.clone(), reader.clone());
        let for_max = log.clone();
        let read = tokio::spawn(async move { reader.read(&for_read, request).await });
        let time = tokio::spawn(async move {
            let at = TimestampMs::new(0);
            by_time
                .first_at_or_after(&for_time, at, Isolation::ReadUncommitted)
                .await
        });
        let max = tokio::spawn(async move { by_max.max_timestamp(&for_max).await });
        settle().await;
        latch.open();
        while log.state.lock().uploaded_end < offset(200) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        settle().await;
        let trimmed = rig
            .life()
            .local_wal
            .read(tidegate_wal::WalPosition::new(4096), 371);
        assert!(trimmed.is_err(), "the test needs the WAL to be trimmed");
        release.send(()).unwrap();
        let _ = busy.await.unwrap();
        assert_eq!(
            read.await.unwrap().unwrap().watermarks.high_watermark,
            offset(200)
        );
        let first = time.await.unwrap().unwrap().unwrap();
        assert_eq!(first.offset, offset(0));
        let first = max.await.unwrap().unwrap().unwrap();
        assert_eq!(first.offset, offset(0));
    });
}

#[test]
fn the_next_segment_is_fetched_while_the_last_span_of_one_is_read() {
    paused(async {
        let limits = RigOptions::default().upload;
        let mut rig = Rig::with(RigOptions {
            tail_bytes: 8 << 20,
            wal_capacity_bytes: 16 << 20,
            upload: UploadLimits {
                size_bytes: 8 << 20,
                own_object_bytes: 8 << 20,
                ..limits
            },
            ..RigOptions::default()
        })
        .await;
        let id = rig.one(Local).await;
        for _ in 0..2 {
            fill(&rig.log(id), 200, 8_000).await;
            rig.all_uploaded().await;
        }
        rig.restart(Crash::Process).await;
        let log = rig.log(id);
        let segments = log.segments_from(offset(0), u64::MAX, 10);
        let [first, second] = &segments[..] else {
            panic!("{} segments", segments.len());
        };
        assert_eq!(first.range.end(), offset(200));
        // The start reads in the newest object, too.
        let at_start = rig.store.seen(Operation::Get).len();
        let fetched = |rig: &Rig| {
            let gets = rig.store.seen(Operation::Get);
            gets.iter()
                .skip(at_start)
                .any(|get| get.key.ends_with(second.object.key.as_str()))
        };
        let mut next = offset(0);
        let mut early = false;
        loop {
            let read = rig
                .read(&log, next, 200_000, Isolation::ReadUncommitted)
                .await;
            next = read.batches.last().and_then(|b| last_end(b)).unwrap();
            if next >= first.range.end() {
                break;
            }
            settle().await;
            early = fetched(&rig);
        }
        assert!(early, "its first span was fetched when it was needed");
        assert!(fetched(&rig));
    });
}

#[test]
fn a_sequential_reader_fetches_each_small_object_once() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        for _ in 0..6 {
            fill(&rig.log(id), 10, 1_000).await;
            rig.all_uploaded().await;
        }
        rig.restart(Crash::Process).await;
        let segments = rig.log(id).segments_from(offset(0), u64::MAX, 10);
        assert_eq!(segments.len(), 6);
        let at_start = rig.store.seen(Operation::Get).len();
        let tags = rig
            .read_tags(id, 0, 4_000, Isolation::ReadUncommitted)
            .await;
        assert_eq!(tags, numbered(0..60));
        settle().await;
        let gets = rig.store.seen(Operation::Get);
        for segment in &segments {
            let key = segment.object.key.as_str();
            let later = gets.iter().skip(at_start);
            let of_object = later.filter(|get| get.key.ends_with(key));
            assert_eq!(of_object.count(), 1, "{key}");
        }
    });
}
