use bytes::{Buf, BytesMut};
use tidegate_types::LeaderEpoch;

use super::*;
use crate::{ControlMarker, HeaderError, RecordFault, compress, records};

fn small_rules(max_batch_bytes: usize) -> ProduceRules {
    ProduceRules {
        max_batch_bytes: u32::try_from(max_batch_bytes).unwrap(),
        ..rules()
    }
}

#[test]
fn placing_changes_offset_and_leader_epoch_and_nothing_else() {
    for codec in Codec::ALL {
        let sent = sample(codec, 4);
        let batch = ProducedBatch::validate(sent.clone(), &rules()).unwrap();
        let placed = batch.place(offset(77), LeaderEpoch::new(5).unwrap());
        // The CRC still holds, although nobody computed it again.
        let again = StoredBatch::check(placed.bytes().clone()).unwrap();
        assert_eq!(again.header(), placed.header());
        assert_eq!(
            (again.header().base_offset(), again.header().end_offset()),
            (offset(77), offset(81))
        );
        assert_eq!(again.header().leader_epoch(), 5);
        assert_eq!(placed.bytes()[8..12], sent[8..12]);
        assert_eq!(placed.bytes()[16..], sent[16..]);
    }
}

#[test]
fn validating_and_placing_do_not_copy() {
    let sent = sample(Codec::None, 10);
    let address = sent.as_ptr();
    let placed = ProducedBatch::validate(sent, &rules())
        .unwrap()
        .place(offset(1), LeaderEpoch::FIRST);
    assert_eq!(placed.bytes().as_ptr(), address);
}

#[test]
fn log_append_time_is_stamped_into_every_codec_with_a_new_crc() {
    let now = TimestampMs::new(NOW.get() + 99_999);
    let stamping = ProduceRules {
        timestamp_type: TimestampType::LogAppendTime,
        now,
        after_max_ms: 0,
        ..rules()
    };
    for codec in Codec::ALL {
        let batch = ProducedBatch::validate(sample(codec, 3), &stamping).unwrap();
        assert_eq!(
            batch.header().timestamp_type(),
            TimestampType::LogAppendTime
        );
        let placed =
            StoredBatch::check(batch.place(offset(0), LeaderEpoch::FIRST).into_bytes()).unwrap();
        assert_eq!(placed.header().max_timestamp(), now);
        assert!(records(&placed, LIMIT).unwrap().all(|r| r.timestamp == now));
    }
}

#[test]
fn a_wrong_max_timestamp_of_an_uncompressed_batch_is_put_right() {
    let lying = edited(
        sample(Codec::None, 3),
        35,
        &(NOW.get() + 3_000_000).to_be_bytes(),
    );
    let batch = ProducedBatch::validate(lying, &rules()).unwrap();
    let placed =
        StoredBatch::check(batch.place(offset(0), LeaderEpoch::FIRST).into_bytes()).unwrap();
    assert_eq!(placed.header().max_timestamp().get(), NOW.get() + 2);
}

#[test]
fn nothing_cut_and_more_than_one_batch_are_told_apart() {
    assert!(matches!(
        refused(BytesMut::new(), &rules()),
        ProduceError::Empty
    ));
    let whole = sample(Codec::None, 2);
    for length in [1, 16, 17, 60, 61, whole.len() - 1] {
        let cut = refused(whole[..length].into(), &rules());
        assert!(
            matches!(cut, ProduceError::Truncated { available, .. } if available == length),
            "{cut}"
        );
    }
    let two = BytesMut::from(&[&whole[..], &whole].concat()[..]);
    assert!(
        matches!(refused(two, &rules()), ProduceError::MoreThanOneBatch { extra } if extra == whole.len())
    );
}

#[test]
fn older_magics_are_named_even_when_shorter_than_a_v2_header() {
    for magic in [0u8, 1] {
        let mut message = BytesMut::zeroed(34);
        message[16] = magic;
        assert!(
            matches!(refused(message, &rules()), ProduceError::UnsupportedMagic { magic: m } if m == magic.cast_signed())
        );
    }
}

#[test]
fn the_size_limit_counts_the_batch_as_sent() {
    let batch = sample(Codec::Gzip, 500);
    let size = batch.len();
    assert!(batch.len() < sample(Codec::None, 500).len() / 2);
    assert!(ProducedBatch::validate(batch.clone(), &small_rules(size)).is_ok());
    assert!(matches!(
        refused(batch, &small_rules(size - 1)),
        ProduceError::TooLarge { .. }
    ));
}

#[test]
fn a_length_field_below_the_header_is_refused() {
    for length in [-1i32, 0, 48] {
        let batch = edited(sample(Codec::None, 1), 8, &length.to_be_bytes());
        assert!(
            matches!(refused(batch, &rules()), ProduceError::Length { batch_length } if batch_length == length)
        );
    }
}

#[test]
fn flipped_bits_are_damage_and_not_a_bad_codec() {
    let mut batch = sample(Codec::None, 1);
    batch[22] |= 0b111;
    assert!(matches!(refused(batch, &rules()), ProduceError::Crc { .. }));
}

#[test]
fn unknown_codecs_and_zstd_for_old_clients_are_refused() {
    for id in 5..=7u8 {
        let batch = edited(sample(Codec::None, 1), 22, &[id]);
        assert!(
            matches!(refused(batch, &rules()), ProduceError::UnknownCodec { id: i } if i == id)
        );
    }
    let old = ProduceRules {
        zstd_allowed: false,
        ..rules()
    };
    assert!(matches!(
        refused(sample(Codec::Zstd, 1), &old),
        ProduceError::ZstdNotAllowed
    ));
    assert!(ProducedBatch::validate(sample(Codec::Lz4, 1), &old).is_ok());
}

#[test]
fn counts_that_disagree_are_refused() {
    let zero = edited(sample(Codec::Gzip, 2), 57, &0i32.to_be_bytes());
    assert!(matches!(refused(zero, &rules()), ProduceError::NoRecords));
    let fewer = edited(sample(Codec::Gzip, 2), 57, &1i32.to_be_bytes());
    assert!(matches!(
        refused(fewer, &rules()),
        ProduceError::RecordCount {
            record_count: 1,
            last_offset_delta: 1
        }
    ));
    let negative = edited(sample(Codec::Gzip, 2), 57, &(-1i32).to_be_bytes());
    assert!(matches!(
        refused(negative, &rules()),
        ProduceError::Header(HeaderError::RecordCount { .. })
    ));
    let delta = edited(sample(Codec::None, 2), 23, &(-1i32).to_be_bytes());
    assert!(matches!(
        refused(delta, &rules()),
        ProduceError::Header(HeaderError::Offsets { .. })
    ));
}

#[test]
fn a_producer_must_send_base_offset_zero() {
    let batch = edited(sample(Codec::None, 1), 0, &5i64.to_be_bytes());
    assert!(matches!(
        refused(batch, &rules()),
        ProduceError::BaseOffset { .. }
    ));
}

#[test]
fn clients_may_not_write_control_records_or_delete_horizons() {
    let marker = ControlMarker {
        commit: true,
        coordinator_epoch: 1,
    };
    let identity = producer(1, 0, -1);
    let bytes = marker.encode(identity.id, identity.epoch, NOW);
    assert!(matches!(
        refused(bytes.clone(), &rules()),
        ProduceError::ControlBatch
    ));
    let stored = ProducedBatch::from_broker(bytes)
        .unwrap()
        .place(offset(9), LeaderEpoch::FIRST);
    assert_eq!(ControlMarker::decode(&stored).unwrap(), marker);
    assert_eq!(stored.header().producer(), Some(identity));
    let horizon = edited(sample(Codec::None, 1), 22, &[1 << 6]);
    assert!(matches!(
        refused(horizon, &rules()),
        ProduceError::DeleteHorizon
    ));
}

#[test]
fn a_producer_id_needs_a_sequence_and_an_epoch() {
    let mut builder = BatchBuilder::new(
        offset(0),
        Codec::None,
        TimestampType::CreateTime,
        Some(producer(9, 0, 0)),
        false,
    );
    builder.push(NOW, None, None, &[]);
    let batch = builder.finish().unwrap();
    assert!(ProducedBatch::validate(batch.clone(), &rules()).is_ok());
    let negative = edited(batch.clone(), 53, &(-1i32).to_be_bytes());
    assert!(
        matches!(refused(negative, &rules()), ProduceError::NoSequence { producer_id } if producer_id.to_wire() == 9)
    );
    let no_epoch = edited(batch, 51, &(-1i16).to_be_bytes());
    assert!(matches!(
        refused(no_epoch, &rules()),
        ProduceError::Header(HeaderError::Producer { .. })
    ));
    let no_producer = edited(sample(Codec::None, 1), 22, &[1 << 4]);
    assert!(matches!(
        refused(no_producer, &rules()),
        ProduceError::TransactionalWithoutProducer
    ));
}

#[test]
fn timestamps_out_of_bounds_are_named_by_record() {
    let strict = ProduceRules {
        before_max_ms: 1000,
        after_max_ms: 1000,
        ..rules()
    };
    let with_third = |delta: i64| {
        let mut builder = BatchBuilder::new(
            offset(0),
            Codec::None,
            TimestampType::CreateTime,
            None,
            false,
        );
        builder
            .push(NOW, None, None, &[])
            .push(TimestampMs::NONE, None, None, &[]);
        builder.push(TimestampMs::new(NOW.get() + delta), None, None, &[]);
        builder.finish().unwrap()
    };
    for inside in [-1000, 0, 1000] {
        assert!(
            ProducedBatch::validate(with_third(inside), &strict).is_ok(),
            "{inside}"
        );
    }
    for outside in [-1001, 1001, 86_400_000] {
        let error = refused(with_third(outside), &strict);
        assert!(
            matches!(
                error,
                ProduceError::Timestamp {
                    record_index: Some(2),
                    ..
                }
            ),
            "{outside}: {error}"
        );
    }
}

#[test]
fn timestamps_of_compressed_batches_are_judged_by_the_header() {
    let strict = ProduceRules {
        before_max_ms: 1000,
        after_max_ms: 1000,
        ..rules()
    };
    assert!(ProducedBatch::validate(sample(Codec::Lz4, 3), &strict).is_ok());
    for now in [NOW.get() + 5000, NOW.get() - 5000] {
        let strict = ProduceRules {
            now: TimestampMs::new(now),
            ..strict
        };
        let error = refused(sample(Codec::Lz4, 3), &strict);
        assert!(
            matches!(
                error,
                ProduceError::Timestamp {
                    record_index: None,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn unlimited_bounds_accept_every_timestamp() {
    let open = ProduceRules {
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        ..rules()
    };
    for timestamp in [0, i64::MAX, NOW.get()] {
        let mut builder = BatchBuilder::new(
            offset(0),
            Codec::None,
            TimestampType::CreateTime,
            None,
            false,
        );
        builder.push(TimestampMs::new(timestamp), None, None, &[]);
        assert!(
            ProducedBatch::validate(builder.finish().unwrap(), &open).is_ok(),
            "{timestamp}"
        );
    }
}

#[test]
fn clients_may_not_say_log_append_time() {
    for topic in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let mut builder = BatchBuilder::new(
            offset(0),
            Codec::None,
            TimestampType::LogAppendTime,
            None,
            false,
        );
        builder.push(NOW, None, None, &[]);
        let error = refused(
            builder.finish().unwrap(),
            &ProduceRules {
                timestamp_type: topic,
                ..rules()
            },
        );
        assert!(matches!(error, ProduceError::TimestampType));
    }
}

#[test]
fn compacted_topics_find_the_record_without_a_key_in_every_codec() {
    let compacted = ProduceRules {
        keys_required: true,
        ..rules()
    };
    for codec in Codec::ALL {
        let mut builder =
            BatchBuilder::new(offset(0), codec, TimestampType::CreateTime, None, false);
        builder
            .push(NOW, Some(b""), None, &[])
            .push(NOW, None, Some(b"v"), &[]);
        let batch = builder.finish().unwrap();
        assert!(ProducedBatch::validate(batch.clone(), &rules()).is_ok());
        assert!(
            matches!(
                refused(batch, &compacted),
                ProduceError::NoKey { record_index: 1 }
            ),
            "{codec:?}"
        );
        assert!(ProducedBatch::validate(sample(codec, 5), &compacted).is_ok());
    }
}

#[test]
fn a_bomb_sent_to_a_compacted_topic_is_refused() {
    let compacted = ProduceRules {
        keys_required: true,
        max_uncompressed_bytes: 1000,
        ..rules()
    };
    let bomb = with_body(
        &sample(Codec::Zstd, 1),
        &compress(Codec::Zstd, &[0; 100_000]).unwrap(),
    );
    assert!(matches!(
        refused(bomb, &compacted),
        ProduceError::Decompress(_)
    ));
}

#[test]
fn malformed_records_are_named() {
    let whole = sample(Codec::None, 2);
    let body = &whole[HEADER_BYTES..];
    let first_length = (body[0] / 2 + 1) as usize;
    let (first, second) = body.split_at(first_length);
    let refuse = |body: &[u8]| refused(with_body(&whole, body), &rules());
    // The same offset delta twice.
    let twice = refuse(&[first, first].concat());
    let fault = RecordFault::OffsetDelta {
        expected: 1,
        found: 0,
    };
    assert!(
        matches!(twice, ProduceError::Record { record_index: 1, source } if source == fault),
        "{twice}"
    );
    // Starting at 1.
    assert!(matches!(
        refuse(&[second, first].concat()),
        ProduceError::Record {
            record_index: 0,
            ..
        }
    ));
    // A record less, and a byte more.
    assert!(matches!(
        refuse(first),
        ProduceError::Record {
            record_index: 1,
            source: RecordFault::Number
        }
    ));
    assert!(matches!(
        refuse(&[body, &[0]].concat()),
        ProduceError::TrailingBytes { extra: 1 }
    ));
    // A record that says to be longer than it is.
    let mut longer = body.to_vec();
    longer[0] += 2;
    assert!(matches!(
        refuse(&longer),
        ProduceError::Record {
            record_index: 0,
            source: RecordFault::TrailingBytes { .. }
        }
    ));
    // More headers than bytes.
    let mut headers = &first[first.len() - 4..];
    assert_eq!(headers.get_u8(), 2, "one header");
    let mut many = body.to_vec();
    many[first.len() - 4] = 100;
    assert!(matches!(
        refuse(&many),
        ProduceError::Record {
            record_index: 0,
            ..
        }
    ));
}
