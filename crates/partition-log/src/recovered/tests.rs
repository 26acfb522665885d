use proptest::prelude::*;
use tidegate_metadata::EpochStart;
use tidegate_record_batch::{BatchBuilder, Codec, ProducedBatch, TimestampType};
use tidegate_types::{BrokerId, PartitionIndex, TimestampMs, TopicId};
use uuid::Uuid;

use super::*;

fn epoch(e: u32) -> LeaderEpoch {
    LeaderEpoch::new(e).unwrap()
}

fn offset(o: u64) -> Offset {
    Offset::new(o).unwrap()
}

fn batch(e: u32, start: u64, end: u64, position: u64) -> RecoveredBatch {
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::None,
        TimestampType::CreateTime,
        None,
        false,
    );
    for _ in start..end {
        builder.push(TimestampMs::new(0), None, Some(b"v"), &[]);
    }
    let placed = ProducedBatch::from_broker(builder.finish().unwrap())
        .unwrap()
        .place(offset(start), epoch(e));
    RecoveredBatch::new(&placed, epoch(e), WalPosition::new(position))
}

fn state(committed_end: u64, log_start: u64, epochs: &[(u32, u64)]) -> PartitionState {
    let current = epochs.last().map_or(0, |(e, _)| *e);
    PartitionState {
        partition: tidegate_types::PartitionId {
            topic: TopicId::new(Uuid::from_u128(7)).unwrap(),
            index: PartitionIndex::new(0).unwrap(),
        },
        leader: BrokerId::new(1).ok(),
        leader_epoch: epoch(current),
        epochs: epochs
            .iter()
            .map(|(e, start)| EpochStart {
                epoch: epoch(*e),
                start: offset(*start),
            })
            .collect(),
        placement: Vec::new(),
        log_start: offset(log_start),
        committed_end: offset(committed_end),
        checkpoint: None,
        segment_count: 0,
        segment_bytes: 0,
        cleaned_end: Offset::ZERO,
        swaps: 0,
    }
}

/// `(epoch, start, end, position)` of each batch of the run.
fn run(state: &PartitionState, found: &[RecoveredBatch]) -> Vec<(u32, u64, u64, u64)> {
    let run = RecoveredRun::of(state, found);
    let batches = run.batches.into_iter();
    batches
        .map(|b| {
            let range = b.range();
            let (start, end) = (range.start().get(), range.end().get());
            (b.leader_epoch.get(), start, end, b.position.get())
        })
        .collect()
}

#[test]
fn copies_come_back_in_the_order_of_offsets_each_once_and_the_newest() {
    let state = state(4, 0, &[(0, 0), (1, 6), (2, 8)]);
    let found = [
        batch(0, 0, 4, 100),
        batch(0, 4, 6, 200),
        batch(2, 8, 9, 900),
        batch(0, 4, 6, 700),
        batch(1, 6, 8, 800),
    ];
    assert_eq!(
        run(&state, &found),
        [(0, 4, 6, 700), (1, 6, 8, 800), (2, 8, 9, 900)]
    );
}

#[test]
fn what_a_later_leader_did_not_take_over_is_cut() {
    let state = state(0, 0, &[(0, 0), (3, 4)]);
    let found = [
        batch(0, 0, 4, 100),
        // Behind the end at which the next leader began, and across it.
        batch(0, 4, 6, 200),
        batch(0, 2, 6, 250),
        // Of a leader epoch that left no records.
        batch(2, 4, 5, 300),
        // Of a leader epoch that was never given out.
        batch(4, 4, 5, 400),
    ];
    assert_eq!(run(&state, &found), [(0, 0, 4, 100)]);
    assert_eq!(recovered_end(&state, &found).unwrap().end, offset(4));
}

#[test]
fn a_hole_is_reported_and_not_skipped() {
    let state = state(0, 0, &[(0, 0)]);
    let found = [batch(0, 0, 2, 1), batch(0, 4, 5, 2), batch(0, 5, 7, 3)];
    let run = RecoveredRun::of(&state, &found);
    assert_eq!(run.batches.len(), 1);
    assert_eq!(run.beyond, OffsetRange::new(offset(4), offset(7)));
    assert_eq!(recovered_end(&state, &found).unwrap().end, offset(7));
}

#[test]
fn what_is_committed_has_no_end_to_tell() {
    let state = state(6, 0, &[(0, 0)]);
    assert_eq!(recovered_end(&state, &[batch(0, 0, 6, 1)]), None);
}

#[test]
fn epochs_that_were_deleted_with_their_records_still_order_what_waits_for_its_upload() {
    // The log start has passed the committed end, so metadata forgot epochs 0 and 1.
    let state = state(5, 20, &[(2, 15)]);
    let found = [
        batch(2, 15, 25, 4),
        batch(0, 5, 10, 1),
        batch(0, 10, 12, 2),
        batch(1, 10, 15, 3),
    ];
    assert_eq!(
        run(&state, &found),
        [(0, 5, 10, 1), (1, 10, 15, 3), (2, 15, 25, 4)]
    );
}

/// The true log: for each leader epoch its batches' lengths, and what that leader lost when it ended.
#[derive(Debug, Clone)]
struct Leadership {
    lengths: Vec<u64>,
    /// Appended under this epoch and never acknowledged: behind where the next one began.
    lost: Vec<u64>,
}

fn leaderships() -> impl Strategy<Value = Vec<Leadership>> {
    let lengths = || prop::collection::vec(1..5u64, 0..5);
    let one = (lengths(), lengths()).prop_map(|(lengths, lost)| Leadership { lengths, lost });
    prop::collection::vec(one, 1..6)
}

proptest! {
    #[test]
    fn recovery_finds_exactly_what_was_acknowledged(
        leaderships in leaderships(),
        // Which true batch the WAL holds, in the order of its positions; several times, in any order.
        copies in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        lost_copies in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        committed in any::<prop::sample::Index>(),
    ) {
        let mut history: Vec<(u32, u64)> = Vec::new();
        let mut truth: Vec<(u32, u64, u64)> = Vec::new();
        let mut lost: Vec<(u32, u64, u64)> = Vec::new();
        let mut end = 0;
        for (e, leadership) in (0u32..).zip(&leaderships) {
            history.retain(|(_, start)| *start < end);
            history.push((e, end));
            for length in &leadership.lengths {
                truth.push((e, end, end + length));
                end += length;
            }
            let last = usize::try_from(e).unwrap() + 1 == leaderships.len();
            let mut lost_end = end;
            for length in leadership.lost.iter().filter(|_| !last) {
                lost.push((e, lost_end, lost_end + length));
                lost_end += length;
            }
        }
        // An epoch without records whose successors have none either leaves what it lost indistinguishable from
        // nothing: it isn't in the history, and neither may its batches count.
        let mut found = Vec::new();
        let mut position = 0;
        let mut add = |(e, start, end): (u32, u64, u64)| {
            position += 100;
            found.push(batch(e, start, end, position));
        };
        if !lost.is_empty() {
            lost_copies.iter().for_each(|i| add(lost[i.index(lost.len())]));
        }
        if !truth.is_empty() {
            copies.iter().for_each(|i| add(truth[i.index(truth.len())]));
        }
        let committed = committed.index(truth.len() + 1);
        let committed_end = committed.checked_sub(1).map_or(0, |i| truth[i].2);
        let state = state(committed_end, 0, &history);

        let held = |t: &(u32, u64, u64)| found.iter().any(|b| {
            b.leader_epoch.get() == t.0 && b.range().start().get() == t.1
        });
        let wanted = &truth[committed..];
        let expected: Vec<_> = wanted.iter().copied().take_while(|t| held(t)).collect();
        let got: Vec<_> = run(&state, &found).into_iter().map(|(e, s, t, _)| (e, s, t)).collect();
        prop_assert_eq!(&got, &expected);
        let furthest = wanted.iter().filter(|t| held(t)).map(|t| t.2).max();
        let told = recovered_end(&state, &found).map(|e| e.end.get());
        prop_assert_eq!(told, furthest);
    }
}
