use tidegate_record_batch::Codec;
use tidegate_types::DurabilityMode::Local;
use tidegate_types::{PartitionId, TimestampMs};

use super::rig::*;
use crate::TimedOffset;
use crate::log::Isolation;

async fn first(rig: &Rig, id: PartitionId, timestamp: i64) -> Option<(u64, i64)> {
    let at = TimestampMs::new(timestamp);
    let log = rig.log(id);
    let reader = &rig.life().reader;
    let found = reader
        .first_at_or_after(&log, at, Isolation::ReadUncommitted)
        .await;
    plain(found.unwrap())
}

async fn greatest(rig: &Rig, id: PartitionId) -> Option<(u64, i64)> {
    let log = rig.log(id);
    plain(rig.life().reader.max_timestamp(&log).await.unwrap())
}

fn plain(found: Option<TimedOffset>) -> Option<(u64, i64)> {
    found.map(|f| (f.offset.get(), f.timestamp.get()))
}

/// Batches of three records each; their times go up and down.
const TIMES: [[i64; 3]; 8] = [
    [10, 30, 20],
    [40, 15, 16],
    [17, 18, 19],
    [50, 45, 60],
    [5, 6, 7],
    [90, 55, 56],
    [90, 1, 2],
    [70, 80, 85],
];

async fn append_times(rig: &Rig, id: PartitionId, batches: std::ops::Range<usize>) {
    for at in batches {
        let codec = [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd][at % 4];
        let spec = Spec::tagged(at as u64 * 3, 3, 400)
            .at(&TIMES[at])
            .codec(codec);
        append(&rig.log(id), &spec).await;
    }
}

/// What a look at all records would find.
fn expected(start: u64, wanted: impl Fn(i64) -> bool) -> Option<(u64, i64)> {
    let all = TIMES.concat();
    let from = usize::try_from(start).unwrap();
    let found = (from..all.len()).find(|at| wanted(all[*at]))?;
    Some((found as u64, all[found]))
}

fn expected_greatest(start: u64) -> Option<(u64, i64)> {
    let all = TIMES.concat();
    let greatest = *all[usize::try_from(start).unwrap()..].iter().max()?;
    expected(start, |time| time == greatest)
}

/// How much of the log is only in the store, uploaded and in memory, and only in the WAL.
const LAYOUTS: [(usize, usize); 5] = [(0, 0), (8, 8), (3, 6), (0, 8), (6, 6)];

#[test]
fn a_search_by_time_finds_the_first_record_wherever_it_lies() {
    for (cold, uploaded) in LAYOUTS {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(Local).await;
            append_times(&rig, id, 0..cold).await;
            rig.all_uploaded().await;
            rig.restart(Crash::Process).await;
            append_times(&rig, id, cold..uploaded).await;
            rig.all_uploaded().await;
            append_times(&rig, id, uploaded..8).await;
            // 4 lies within a batch, 13 too, 15 at the start of one.
            for start in [0, 4, 13, 15, 22, 23] {
                rig.delete_records(id, start).await;
                for timestamp in 0..92 {
                    assert_eq!(
                        first(&rig, id, timestamp).await,
                        expected(start, |time| time >= timestamp),
                        "{timestamp} from {start}, {cold} {uploaded}"
                    );
                }
                assert_eq!(
                    greatest(&rig, id).await,
                    expected_greatest(start),
                    "the greatest from {start}, {cold} {uploaded}"
                );
            }
            rig.delete_records(id, 24).await;
            assert_eq!(first(&rig, id, 0).await, None);
            assert_eq!(greatest(&rig, id).await, None);
        });
    }
}

#[test]
fn a_search_by_time_does_not_see_what_is_not_durable() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        append_times(&rig, id, 0..2).await;
        let log = rig.log(id);
        let late = log.append(Spec::tagged(6, 1, 8).at(&[500]).build());
        let reader = rig.life().reader.clone();
        // Nothing else runs: these reads are from memory and don't wait.
        let timestamp = TimestampMs::new(400);
        let found = reader.first_at_or_after(&log, timestamp, Isolation::ReadUncommitted);
        assert_eq!(plain(found.await.unwrap()), None);
        let found = reader.max_timestamp(&log).await.unwrap();
        assert_eq!(plain(found), Some((3, 40)));
        durable(late.unwrap()).await;
        assert_eq!(greatest(&rig, id).await, Some((6, 500)));
    });
}

#[test]
fn a_search_by_time_hides_nothing_from_readers() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        append_times(&rig, id, 0..8).await;
        rig.all_uploaded().await;
        rig.restart(Crash::Process).await;
        // One block is fetched for the search, the same and more for the reads.
        assert_eq!(first(&rig, id, 10).await, expected(0, |time| time >= 10));
        for from in [20, 0, 10] {
            let tags = rig
                .read_tags(id, from, 700, Isolation::ReadUncommitted)
                .await;
            assert_eq!(tags, numbered(from..24));
        }
    });
}
