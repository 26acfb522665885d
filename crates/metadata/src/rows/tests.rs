use std::fmt::Debug;

use tidegate_types::{PartitionId, PartitionIndex, TopicId};

use super::stored::{Stored, leader_epoch};
use super::*;
use crate::envelope;
use crate::keys::{self, SegmentKey, Table};

/// One row per line: key and value in hexadecimal. Rows that release 1 wrote; never to be changed.
const GOLDEN: &str = include_str!("../../testdata/rows-v1.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn offset_of(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

fn object_of() -> StoredObjectKey {
    StoredObjectKey::new("data/3/12/4711").unwrap()
}

/// Writes the row as a line, and checks that it reads back as it was.
fn line<R: Row + PartialEq + Debug>(lines: &mut Vec<String>, key: &[u8], row: &R) {
    let value = row.seal(key);
    assert_eq!(&R::open(key, &value).unwrap(), row);
    lines.push(format!("{} {}", hex(key), hex(&value)));
}

fn partition_row() -> PartitionRow {
    PartitionRow {
        leader: BrokerId::new(3).ok(),
        leader_epoch: leader_epoch(5).unwrap(),
        epochs: vec![
            EpochStart {
                epoch: leader_epoch(2).unwrap(),
                start: offset_of(10),
            },
            EpochStart {
                epoch: leader_epoch(5).unwrap(),
                start: offset_of(900),
            },
        ],
        placement: vec![BrokerId::new(3).unwrap(), BrokerId::new(0).unwrap()],
        log_start: offset_of(12),
        committed_end: offset_of(1_000),
        checkpoint: Some(CheckpointRef {
            object: object_of(),
            span: ByteSpan {
                position: 77,
                length: 88,
            },
            as_of: offset_of(1_000),
        }),
        segment_count: 4,
        segment_bytes: 123_456,
        cleaned_end: Offset::ZERO,
        swaps: 0,
        trim_pending: true,
        wal: Some(Uuid::from_u128(0xABC)),
        target: None,
    }
}

fn broker_row() -> BrokerRow {
    BrokerRow {
        broker_epoch: BrokerEpoch::new(12),
        incarnation: Uuid::from_u128(0x1234),
        kafka: Endpoint {
            host: "kafka.example".into(),
            port: 9092,
        },
        internal: Some(Endpoint {
            host: "10.0.0.3".into(),
            port: 9093,
        }),
        rack: Some("a".into()),
        writer: Some(WriterState {
            broker_epoch: BrokerEpoch::new(11),
            next_wal_sequence: 42,
        }),
        wal: Some(Uuid::from_u128(0xABC)),
        draining: false,
        unregistered: false,
    }
}

#[test]
fn rows_are_written_as_release_1_wrote_them() {
    let topic = TopicId::new(Uuid::from_u128(0x1111_2222)).unwrap();
    let partition = PartitionId {
        topic,
        index: PartitionIndex::new(7).unwrap(),
    };
    let time = TimestampMs::new(1_700_000_000_000);
    let configs: Configs = [("retention.ms".to_owned(), "1".to_owned())].into();
    let name = TopicName::new("t").unwrap();
    let mut lines = Vec::new();
    let l = &mut lines;
    let cluster = ClusterRow {
        id: "AAECAwQFBgcICQoLDA0ODw".into(),
        format: 1,
        created_at: time,
    };
    line(l, &keys::single(Table::Cluster), &cluster);
    let controller = ControllerEpochRow {
        epoch: ControllerEpoch::new(9),
        instance: Uuid::from_u128(0x77),
        broker: BrokerId::new(3).unwrap(),
    };
    line(l, &keys::single(Table::ControllerEpoch), &controller);
    line(
        l,
        &keys::single(Table::ProducerIds),
        &ProducerIdsRow { next: 5_000 },
    );
    let broker = BrokerId::new(3).unwrap();
    line(l, &keys::broker(broker), &broker_row());
    let stored = ConfigsRow {
        configs: configs.clone(),
    };
    line(l, &keys::configs(None), &stored);
    line(l, &keys::configs(Some(broker)), &stored);
    let topic_row = TopicRow {
        name: name.clone(),
        configs,
        partition_count: 8,
        replication_factor: 3,
    };
    line(l, &keys::topic(Table::Topic, topic), &topic_row);
    let deleted = DeletedTopicRow {
        name,
        deleted_at: time,
    };
    line(l, &keys::topic(Table::DeletedTopic, topic), &deleted);
    line(l, &keys::partition(partition), &partition_row());
    let segment = SegmentRow {
        start: offset_of(900),
        leader_epoch: leader_epoch(5).unwrap(),
        object: object_of(),
        span: ByteSpan {
            position: 64,
            length: 8 << 20,
        },
        index: ByteSpan {
            position: 9 << 20,
            length: 4_000,
        },
        max_timestamp: time,
        record_count: 100,
        committed_at: time,
    };
    let segment_key = SegmentKey {
        partition,
        end: offset_of(1_000),
    };
    line(l, &keys::segment(segment_key), &segment);
    let object = ObjectRow {
        size_bytes: 9 << 20,
        references: 0,
        dropped_at: Some(time),
    };
    line(l, &keys::object(&object_of()), &object);
    line(l, &keys::dropped(time, &object_of()), &DroppedRow);
    let written = lines.join("\n") + "\n";
    assert_eq!(written, GOLDEN, "written now:\n{written}");
}

#[test]
fn quotas_are_written_as_their_first_release_wrote_them() {
    use crate::api::{QuotaEntity, QuotaLimit, QuotaName};
    let entity = QuotaEntity {
        user: Some(QuotaName::Named("al/ice".into())),
        client_id: Some(QuotaName::Default),
        ip: None,
    };
    let address = QuotaEntity {
        ip: Some(QuotaName::Named("10.0.0.3".into())),
        ..QuotaEntity::default()
    };
    let row = QuotasRow {
        limits: [(
            "producer_byte_rate".to_owned(),
            QuotaLimit::try_from(1024.5).unwrap(),
        )]
        .into(),
    };
    let mut lines = Vec::new();
    for entity in [entity, address] {
        let key = keys::quotas(&entity);
        assert_eq!(keys::parse_quotas(&key).unwrap(), entity);
        for cut in 2..key.len() {
            assert_ne!(keys::parse_quotas(&key[..cut]).ok().as_ref(), Some(&entity));
        }
        line(&mut lines, &key, &row);
    }
    let written = lines.join("\n") + "\n";
    let golden = include_str!("../../testdata/quotas-v1.txt");
    assert_eq!(written, golden, "written now:\n{written}");
    let key = keys::quotas(&QuotaEntity::default());
    let none = message::Quotas {
        limits: [("x".to_owned(), f64::NAN)].into(),
    };
    assert!(QuotasRow::open(&key, &envelope::seal(&key, &none)).is_err());
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let key = keys::object(&object_of());
    let both = message::Object {
        size_bytes: 1,
        references: 1,
        dropped_at_ms: Some(1),
    };
    assert!(ObjectRow::open(&key, &envelope::seal(&key, &both)).is_err());
    let mut falling = message::Partition::from_row(&partition_row());
    falling.epochs.reverse();
    assert!(PartitionRow::open(&key, &envelope::seal(&key, &falling)).is_err());
}

#[test]
fn what_release_1_did_not_know_is_read_back_and_takes_no_room_when_it_is_not_set() {
    let mut partition = partition_row();
    let key = keys::broker(BrokerId::new(3).unwrap());
    let without = partition.seal(&key).len();
    partition.target = Some(Target {
        to: BrokerId::new(7).unwrap(),
        placement: vec![BrokerId::new(7).unwrap(), BrokerId::new(0).unwrap()],
    });
    partition.cleaned_end = offset_of(700);
    partition.swaps = 3;
    let sealed = partition.seal(&key);
    assert_eq!(PartitionRow::open(&key, &sealed).unwrap(), partition);
    assert!(sealed.len() > without);
    for (draining, unregistered) in [(true, false), (false, true)] {
        let broker = BrokerRow {
            draining,
            unregistered,
            ..broker_row()
        };
        assert_eq!(BrokerRow::open(&key, &broker.seal(&key)).unwrap(), broker);
    }
}
