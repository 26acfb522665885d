//! The table's rules, one by one.

use bytes::BytesMut;
use tidegate_record_batch::{BatchBuilder, Codec, ControlMarker, ProducerIdentity, TimestampType};

use super::*;

fn header(id: i64, epoch: i16, first: i32, count: usize) -> BatchHeader {
    let identity = ProducerIdentity {
        id: ProducerId::from_wire(id).unwrap(),
        epoch: ProducerEpoch::from_wire(epoch).unwrap(),
        first_sequence: Sequence::from_wire(first),
    };
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::None,
        TimestampType::CreateTime,
        Some(identity),
        false,
    );
    for _ in 0..count {
        builder.push(TimestampMs::new(1), None, Some(b"v"), &[]);
    }
    let bytes: BytesMut = builder.finish().unwrap();
    BatchHeader::parse(&bytes).unwrap()
}

fn range(start: u64, count: u64) -> OffsetRange {
    OffsetRange::new(
        Offset::new(start).unwrap(),
        Offset::new(start + count).unwrap(),
    )
    .unwrap()
}

fn admit(
    table: &Producers,
    header: &BatchHeader,
    never_written: bool,
) -> Result<Admission, SequenceError> {
    let circumstances = Circumstances {
        never_written,
        verifications: &Verifications::default(),
        ticket: None,
    };
    table.admit(header, circumstances)
}

fn apply(table: &mut Producers, h: &BatchHeader, start: u64) {
    let r = range(start, u64::from(h.record_count()));
    table.apply_data(h, r, TimestampMs::new(0));
}

#[test]
fn a_retry_of_one_of_the_last_five_batches_gets_its_first_offsets() {
    let mut table = Producers::default();
    for i in 0..6 {
        let h = header(1, 0, i, 1);
        assert_eq!(admit(&table, &h, i == 0), Ok(Admission::Append));
        apply(&mut table, &h, i.cast_unsigned().into());
    }
    for i in 1..6 {
        let answer = admit(&table, &header(1, 0, i, 1), false).unwrap();
        assert_eq!(
            answer,
            Admission::Duplicate {
                range: range(i.cast_unsigned().into(), 1),
                timestamp: TimestampMs::new(1)
            }
        );
    }
    assert!(matches!(
        admit(&table, &header(1, 0, 0, 1), false),
        Err(SequenceError::OutOfOrder { .. })
    ));
}

#[test]
fn an_unknown_producer_must_start_at_zero_only_on_a_partition_never_written() {
    let table = Producers::default();
    assert!(matches!(
        admit(&table, &header(1, 0, 17, 1), true),
        Err(SequenceError::OutOfOrder { .. })
    ));
    assert_eq!(
        admit(&table, &header(1, 0, 7, 1), false),
        Ok(Admission::Append)
    );
}

#[test]
fn sequences_wrap_and_gaps_are_refused() {
    let mut table = Producers::default();
    apply(&mut table, &header(1, 0, 2_147_483_646, 3), 0);
    assert_eq!(
        admit(&table, &header(1, 0, 1, 1), false),
        Ok(Admission::Append)
    );
    assert!(matches!(
        admit(&table, &header(1, 0, 3, 1), false),
        Err(SequenceError::OutOfOrder { .. })
    ));
}

#[test]
fn a_lower_epoch_is_fenced_and_a_higher_one_starts_at_zero() {
    let mut table = Producers::default();
    apply(&mut table, &header(1, 3, 0, 1), 0);
    assert!(matches!(
        admit(&table, &header(1, 2, 1, 1), false),
        Err(SequenceError::Fenced { .. })
    ));
    assert!(matches!(
        admit(&table, &header(1, 4, 1, 1), false),
        Err(SequenceError::OutOfOrder { .. })
    ));
    assert_eq!(
        admit(&table, &header(1, 4, 0, 1), false),
        Ok(Admission::Append)
    );
}

#[test]
fn an_idle_producer_is_forgotten_but_not_while_its_transaction_is_open() {
    let mut table = Producers::default();
    apply(&mut table, &header(1, 0, 0, 1), 0);
    apply(&mut table, &header(2, 0, 0, 1), 1);
    table
        .entries
        .get_mut(&ProducerId::from_wire(2).unwrap())
        .unwrap()
        .transaction_start = Some(Offset::ZERO);
    assert_eq!(table.expire(TimestampMs::new(10)), 1);
    assert!(
        table
            .entries
            .contains_key(&ProducerId::from_wire(2).unwrap())
    );
}

#[test]
fn a_search_for_aborted_transactions_ends_where_later_ones_cannot_reach() {
    let mut table = Producers::default();
    let now = TimestampMs::new(0);
    let abort = ControlMarker {
        commit: false,
        coordinator_epoch: 0,
    };
    let producer = |id| ProducerId::from_wire(id).unwrap();
    let at = |offset| Offset::new(offset).unwrap();
    let open = |table: &mut Producers, id: i64, start: u64| {
        table.open.insert(at(start), producer(id));
        let entry = ProducerEntry::new(ProducerEpoch::FIRST, now);
        let entry = table.entries.entry(producer(id)).or_insert(entry);
        entry.transaction_start = Some(at(start));
    };
    let end = |table: &mut Producers, id: i64, marker: u64| {
        table.apply_marker(producer(id), ProducerEpoch::FIRST, abort, at(marker), now);
    };
    // One is open from 1 to 9; two ends three times meanwhile; three is far behind.
    open(&mut table, 1, 1);
    for start in [2, 4, 6] {
        open(&mut table, 2, start);
        end(&mut table, 2, start + 1);
    }
    end(&mut table, 1, 9);
    open(&mut table, 3, 20);
    end(&mut table, 3, 21);
    let starts = |from: u64, to: u64| -> Vec<u64> {
        let range = OffsetRange::new(at(from), at(to)).unwrap();
        let found = table.aborted_in(range);
        found.iter().map(|t| t.start.get()).collect()
    };
    assert_eq!(starts(0, 3), [1, 2]);
    assert_eq!(starts(1, 2), [1]);
    assert_eq!(starts(5, 6), [1, 4]);
    assert_eq!(starts(8, 20), [1]);
    assert_eq!(starts(8, 21), [1, 20]);
    assert_eq!(starts(10, 20), [0; 0]);
    let stable_after = |marker| table.aborted[&at(marker)].stable_after.get();
    assert_eq!([3, 5, 7, 9].map(stable_after), [1, 1, 1, 10]);
}
