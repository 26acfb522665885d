use super::*;
use crate::{ControlMarker, MarkerError, first_at_or_after, max_timestamp_record};

fn timed(codec: Codec, timestamps: &[i64]) -> StoredBatch {
    let mut builder = BatchBuilder::new(offset(100), codec, TimestampType::CreateTime, None, false);
    for timestamp in timestamps {
        builder.push(TimestampMs::new(*timestamp), None, Some(b"v"), &[]);
    }
    stored(builder.finish().unwrap())
}

fn at(offset_: i64, timestamp: i64) -> Option<(Offset, TimestampMs)> {
    Some((offset(offset_), TimestampMs::new(timestamp)))
}

#[test]
fn a_time_lookup_finds_the_first_record_at_or_after_in_every_codec() {
    for codec in Codec::ALL {
        let batch = timed(codec, &[2, 4, 6, 8]);
        let find =
            |t: i64| first_at_or_after(&batch, TimestampMs::new(t), Offset::ZERO, LIMIT).unwrap();
        assert_eq!(find(1), at(100, 2));
        assert_eq!(find(3), at(101, 4));
        assert_eq!(find(8), at(103, 8));
        assert_eq!(find(9), None);
    }
}

#[test]
fn a_time_lookup_leaves_out_what_lies_before_the_start() {
    let batch = timed(Codec::Zstd, &[10, 30, 20]);
    let find = |t: i64, from: i64| {
        first_at_or_after(&batch, TimestampMs::new(t), offset(from), LIMIT).unwrap()
    };
    assert_eq!(find(15, 100), at(101, 30));
    assert_eq!(find(15, 102), at(102, 20));
    assert_eq!(find(15, 103), None);
}

#[test]
fn the_greatest_timestamp_is_found_inside_a_compressed_batch() {
    for codec in Codec::ALL {
        assert_eq!(
            max_timestamp_record(&timed(codec, &[10, 30, 20]), LIMIT).unwrap(),
            at(101, 30)
        );
        assert_eq!(
            max_timestamp_record(&timed(codec, &[30, 30]), LIMIT).unwrap(),
            at(100, 30),
            "the first of equals"
        );
        assert_eq!(
            max_timestamp_record(&timed(codec, &[-1]), LIMIT).unwrap(),
            None
        );
    }
}

#[test]
fn log_append_time_is_every_records_time() {
    let mut builder = BatchBuilder::new(
        offset(5),
        Codec::Gzip,
        TimestampType::LogAppendTime,
        None,
        false,
    );
    builder
        .push(TimestampMs::new(1), None, None, &[])
        .push(TimestampMs::new(50), None, None, &[]);
    let batch = stored(builder.finish().unwrap());
    assert_eq!(
        first_at_or_after(&batch, TimestampMs::new(20), Offset::ZERO, LIMIT).unwrap(),
        at(5, 50)
    );
    assert_eq!(max_timestamp_record(&batch, LIMIT).unwrap(), at(5, 50));
}

#[test]
fn markers_round_trip() {
    let identity = producer(77, 3, -1);
    for commit in [true, false] {
        let marker = ControlMarker {
            commit,
            coordinator_epoch: 12,
        };
        let batch = stored(marker.encode(identity.id, identity.epoch, NOW));
        assert!(batch.header().is_control() && batch.header().is_transactional());
        assert_eq!(batch.header().producer(), Some(identity));
        assert_eq!(ControlMarker::decode(&batch).unwrap(), marker);
    }
}

#[test]
fn a_marker_has_kafkas_bytes() {
    let marker = ControlMarker {
        commit: true,
        coordinator_epoch: 0x0102_0304,
    };
    let identity = producer(77, 3, -1);
    let bytes = marker.encode(identity.id, identity.epoch, NOW);
    // Length, attributes, deltas; key: version 0, type 1; value: version 0, epoch; no headers.
    let record = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 1, 2, 3, 4, 0];
    assert_eq!(bytes[HEADER_BYTES..], record);
}

#[test]
fn other_batches_are_no_markers() {
    assert!(matches!(
        ControlMarker::decode(&stored(sample(Codec::None, 1))),
        Err(MarkerError::NotControl)
    ));
    let control = |key: &[u8], value: &[u8]| {
        let mut builder = BatchBuilder::new(
            offset(0),
            Codec::None,
            TimestampType::CreateTime,
            None,
            false,
        )
        .control();
        builder.push(NOW, Some(key), Some(value), &[]);
        ControlMarker::decode(&stored(builder.finish().unwrap()))
    };
    assert!(matches!(
        control(&[0, 0, 0, 2], &[0; 6]),
        Err(MarkerError::OtherType { kind: 2 })
    ));
    assert!(matches!(
        control(&[0, 0, 0], &[0; 6]),
        Err(MarkerError::Malformed { part: "key" })
    ));
    assert!(matches!(
        control(&[0, 0, 0, 1], &[0; 5]),
        Err(MarkerError::Malformed { part: "value" })
    ));
    assert!(matches!(
        control(&[0xff, 0xff, 0, 1], &[0; 6]),
        Err(MarkerError::Malformed { part: "key" })
    ));
    // A later version may add fields behind those known.
    assert!(
        control(&[0, 1, 0, 1, 9], &[0, 1, 0, 0, 0, 7, 9])
            .is_ok_and(|m| m.commit && m.coordinator_epoch == 7)
    );
}
