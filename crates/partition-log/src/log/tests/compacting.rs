//! What a log does when compaction has put other segments in the place of a part of it.

use std::sync::Arc;

use tidegate_metadata::ControllerApi;
use tidegate_metadata::StoredObjectKey;
use tidegate_metadata::api::{SwapInput, SwapOutcome, SwapSegments};
use tidegate_object_storage::{ObjectKey, ObjectStorage, StoreOptions, StoreSeams};
use tidegate_record_batch::{Batches, StoredBatch, filler, records};
use tidegate_runtime::{Random, SystemClock};
use tidegate_segment_format::{ObjectBuilder, WriterIdentity};
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::{LeaderEpoch, Offset, OffsetRange, PartitionId, TimestampMs};

use super::rig::*;
use super::transactions::{end, marker, transact};
use crate::log::Isolation;
use crate::{SegmentObject, object_commit, segment_of};

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(offset(start), offset(end)).unwrap()
}

/// What a compaction that keeps `kept` leaves of batches of one record each.
fn thinned(range: OffsetRange, kept: &[u64]) -> Vec<StoredBatch> {
    let placed = |at: u64| {
        let spec = Spec::tagged(at, 1, 100).build();
        spec.place(offset(at), LeaderEpoch::FIRST)
    };
    let mut batches: Vec<StoredBatch> = kept.iter().map(|at| placed(*at)).collect();
    let last = range.end().get() - 1;
    if kept.last() != Some(&last) {
        batches.push(filler(placed(last).header()));
    }
    batches
}

/// Stores `batches` in the place of all segments of `range`, as compaction does.
async fn compact(
    rig: &Rig,
    id: PartitionId,
    range: OffsetRange,
    batches: &[StoredBatch],
    cleaned_end: Option<Offset>,
) {
    let life = rig.life();
    let log = rig.log(id);
    let sequence = range.start().get() + 1;
    let (broker, broker_epoch) = (life.writer.broker, life.writer.broker_epoch);
    let identity = WriterIdentity {
        broker,
        broker_epoch,
        sequence,
        nonce: 1,
    };
    let bytes: Vec<u8> = batches.iter().flat_map(|b| b.bytes().to_vec()).collect();
    let mut builder = ObjectBuilder::new(identity, 1024);
    let count = batches.iter().map(|b| u64::from(b.header().record_count()));
    builder.add_batches(
        id,
        log.leader_epoch(),
        range,
        bytes.into(),
        TimestampMs::new(0),
        count.sum(),
    );
    let built = builder.finish();
    let key = ObjectKey::compacted(broker, broker_epoch, sequence);
    let seams = StoreSeams {
        clock: SystemClock::shared(),
        random: Random::seeded(9),
        tasks: life.tasks.clone(),
    };
    let storage = ObjectStorage::from_store(
        Arc::new(rig.store.clone()),
        "rig",
        StoreOptions::default(),
        &seams,
        &mut prometheus_client::registry::Registry::default(),
    );
    storage
        .put_create(&key, built.payload.clone())
        .await
        .unwrap();
    let inputs = log.segments();
    let inputs = inputs
        .iter()
        .filter(|s| s.range.start() >= range.start() && s.range.end() <= range.end());
    let request = SwapSegments {
        broker,
        broker_epoch,
        partition: id,
        leader_epoch: log.leader_epoch(),
        inputs: inputs
            .map(|s| SwapInput {
                range: s.range,
                object: StoredObjectKey::new(s.object.key.as_str()).unwrap(),
            })
            .collect(),
        outputs: vec![object_commit(
            &key,
            built.size_bytes,
            built.index,
            None,
            &built.segments,
        )],
        cleaned_end,
    };
    let outcome = again(|| life.controller.swap_segments(request.clone())).await;
    assert_eq!(outcome, SwapOutcome::Swapped);
    let object = Arc::new(SegmentObject {
        key,
        size_bytes: built.size_bytes,
        index: built.index,
    });
    let now = TimestampMs::new(WALL_MS);
    let segments = built.segments.iter().map(|s| segment_of(&object, s, now));
    log.compacted(Some((range, segments.collect())), cleaned_end);
}

/// All that a reader gets from an offset on, `(offset, tag)`; holes are allowed. Which transactions were named as
/// aborted comes with it, by their first offsets.
async fn read_from(rig: &Rig, id: PartitionId, from: u64) -> (Vec<(u64, u64)>, Vec<u64>) {
    let log = rig.log(id);
    let (mut next, mut tags, mut aborted) = (offset(from), Vec::new(), Vec::new());
    loop {
        let read = rig.read(&log, next, 1_000, Isolation::ReadCommitted).await;
        aborted.extend(read.aborted.iter().map(|t| t.start.get()));
        let before = next;
        for batch in read.batches.into_iter().flat_map(Batches::with_crc) {
            let batch = batch.unwrap();
            assert!(batch.header().end_offset() > next);
            for record in records(&batch, 1 << 20).unwrap() {
                if record.offset >= next && !batch.header().is_control() {
                    let tag = super::spec::tag_of(&record.value.unwrap());
                    tags.push((record.offset.get(), tag));
                }
            }
            next = batch.header().end_offset();
        }
        if next == before {
            aborted.dedup();
            return (tags, aborted);
        }
    }
}

#[test]
fn the_tail_gives_up_what_was_compacted_and_nothing_else() {
    for mode in [Local, Object] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(mode).await;
            let log = rig.log(id);
            fill(&log, 20, 100).await;
            rig.all_uploaded().await;
            // More than the checkpoint and the segments of the run.
            fill(&log, 40, 100).await;
            rig.all_uploaded().await;
            fill(&log, 10, 100).await;
            assert_eq!(log.state.lock().tail.start(), Some(offset(0)));
            compact(
                &rig,
                id,
                range(0, 20),
                &thinned(range(0, 20), &[5, 7]),
                None,
            )
            .await;
            let held = {
                let state = log.state.lock();
                assert_eq!(state.tail.start(), Some(offset(20)), "{mode:?}");
                state.tail.memory_bytes()
            };
            assert_eq!(rig.life().context.tail_budget.used_bytes(), held);
            let left = |from: u64| {
                let kept = [(5, 5), (7, 7)]
                    .into_iter()
                    .filter(move |(at, _)| *at >= from);
                kept.chain(numbered(20..70)).collect::<Vec<_>>()
            };
            for from in [0, 5, 6, 8, 19] {
                assert_eq!(read_from(&rig, id, from).await.0, left(from), "{from}");
            }
            rig.restart(Crash::Power).await;
            assert_eq!(read_from(&rig, id, 0).await.0, left(0));
        });
    }
}

#[test]
fn the_tail_keeps_what_is_not_stored_whatever_is_called_compacted() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        fill(&log, 10, 100).await;
        rig.all_uploaded().await;
        fill(&log, 10, 100).await;
        // Up to the middle of a batch, and beyond what is stored.
        append(&log, &Spec::tagged(20, 10, 100)).await;
        log.compacted(None, Some(offset(25)));
        assert_eq!(log.state.lock().tail.start(), Some(offset(10)));
        assert_eq!(read_from(&rig, id, 0).await.0, numbered(0..30));
        rig.all_uploaded().await;
        log.compacted(None, Some(offset(25)));
        assert_eq!(log.state.lock().tail.start(), Some(offset(20)));
        assert_eq!(read_from(&rig, id, 0).await.0, numbered(0..30));
    });
}

#[test]
fn aborted_records_leave_the_tail_when_nobody_is_told_of_them_any_more() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        append(&log, &Spec::tagged(0, 1, 100)).await;
        transact(&log, &Spec::tagged(1, 1, 100).by(7, 0, 0)).await;
        append(&log, &Spec::tagged(2, 1, 100)).await;
        end(&log, marker(7, 0, false)).await;
        rig.all_uploaded().await;
        append(&log, &Spec::tagged(4, 1, 100)).await;
        // The aborted record is given with the word that it is.
        let all = [(0, 0), (1, 1), (2, 2), (4, 4)];
        assert_eq!(read_from(&rig, id, 0).await, (all.to_vec(), vec![1]));
        let left = thinned(range(0, 4), &[0, 2]);
        compact(&rig, id, range(0, 4), &left, Some(offset(4))).await;
        let committed = [(0, 0), (2, 2), (4, 4)];
        assert_eq!(read_from(&rig, id, 0).await, (committed.to_vec(), vec![]));
        rig.restart(Crash::Power).await;
        assert_eq!(read_from(&rig, id, 0).await, (committed.to_vec(), vec![]));
    });
}
