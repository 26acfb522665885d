//! A log that is appended to, compacted, interrupted and cut at random, against what was written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tidegate_record_batch::{
    BatchBuilder, Codec, ControlMarker, ProducedBatch, ProducerIdentity, StoredBatch,
    TimestampType, records,
};
use tidegate_types::{
    LeaderEpoch, Offset, OffsetRange, ProducerEpoch, ProducerId, Sequence, TimestampMs,
};

use super::*;
use crate::retention::StoredSegment;

const RETENTION: Duration = Duration::from_millis(1_000);

fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

#[derive(Debug, Clone)]
enum Act {
    /// Key and value of each record; no producer.
    Plain(Vec<(u8, Option<u8>)>),
    /// Of a producer, within its transaction.
    Transactional(u8, Vec<(u8, Option<u8>)>),
    End {
        producer: u8,
        commit: bool,
    },
    /// A new segment begins.
    Store,
    /// A pass with a map of so many kilobytes, interrupted after so many runs of so many segments.
    Compact {
        map: usize,
        runs: usize,
        run_segments: usize,
    },
    Wait(u16),
    /// The log start goes on by so many offsets at most.
    Delete(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let record = || (0u8..30, proptest::option::weighted(0.7, any::<u8>()));
    // A large one may have more keys than the smallest map holds.
    let batch = move || {
        prop_oneof![
            6 => proptest::collection::vec(record(), 1..6),
            1 => proptest::collection::vec(record(), 20..60),
        ]
    };
    let act = prop_oneof![
        4 => batch().prop_map(Act::Plain),
        4 => (0u8..3, batch()).prop_map(|(p, b)| Act::Transactional(p, b)),
        3 => (0u8..3, any::<bool>()).prop_map(|(producer, commit)| Act::End { producer, commit }),
        4 => Just(Act::Store),
        4 => (prop_oneof![Just(0usize), Just(1024)], prop_oneof![Just(usize::MAX), 0usize..3], 1usize..4)
            .prop_map(|(map, runs, run_segments)| Act::Compact { map, runs, run_segments }),
        2 => (0u16..1500).prop_map(Act::Wait),
        1 => (0u8..10).prop_map(Act::Delete),
    ];
    proptest::collection::vec(act, 1..80)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    /// Which transaction, by its first offset.
    transaction: Option<(u8, u64)>,
}

#[derive(Debug, Default)]
struct Log {
    now: i64,
    next: u64,
    log_start: u64,
    cleaned_end: u64,
    stored_end: u64,
    /// Stored segments by their end, and the tail.
    segments: Vec<(OffsetRange, Vec<StoredBatch>)>,
    tail: Vec<StoredBatch>,
    written: BTreeMap<u64, Written>,
    open: BTreeMap<u8, u64>,
    committed: HashMap<(u8, u64), bool>,
    listed: Vec<AbortedRange>,
    sequences: HashMap<u8, i32>,
    last_batch_end: HashMap<u8, u64>,
    /// Of the last map.
    map_bytes: usize,
}

fn producer_id(producer: u8) -> ProducerId {
    ProducerId::from_wire(i64::from(producer)).unwrap()
}

fn epoch() -> ProducerEpoch {
    ProducerEpoch::from_wire(0).unwrap()
}

impl Log {
    fn append(&mut self, producer: Option<u8>, batch: &[(u8, Option<u8>)]) {
        let base = self.next;
        let identity = producer.map(|producer| {
            let sequence = self.sequences.entry(producer).or_default();
            let first = *sequence;
            *sequence += i32::try_from(batch.len()).unwrap();
            ProducerIdentity {
                id: producer_id(producer),
                epoch: epoch(),
                first_sequence: Sequence::from_wire(first),
            }
        });
        let codec = Codec::from_id(u8::try_from(base % 5).unwrap()).unwrap();
        let transactional = producer.is_some();
        let mut builder = BatchBuilder::new(
            offset(base),
            codec,
            TimestampType::CreateTime,
            identity,
            transactional,
        )
        .leader_epoch(LeaderEpoch::FIRST);
        let transaction = producer.map(|p| (p, *self.open.entry(p).or_insert(base)));
        for (key, value) in batch {
            let (key, value) = (vec![*key; 3], value.map(|v| vec![v; 5]));
            builder.push(
                TimestampMs::new(self.now),
                Some(&key),
                value.as_deref(),
                &[],
            );
            let written = Written {
                key,
                value,
                transaction,
            };
            self.written.insert(self.next, written);
            self.next += 1;
        }
        if let Some(producer) = producer {
            self.last_batch_end.insert(producer, self.next);
        }
        let batch = StoredBatch::check(builder.finish().unwrap().freeze()).unwrap();
        self.tail.push(batch);
    }

    fn end(&mut self, producer: u8, commit: bool) {
        let marker = ControlMarker {
            commit,
            coordinator_epoch: 1,
        };
        let bytes = marker.encode(producer_id(producer), epoch(), TimestampMs::new(self.now));
        let batch = ProducedBatch::from_broker(bytes).unwrap();
        let at = offset(self.next);
        self.tail.push(batch.place(at, LeaderEpoch::FIRST));
        if let Some(start) = self.open.remove(&producer) {
            self.committed.insert((producer, start), commit);
            if !commit {
                self.listed.push(AbortedRange {
                    producer: producer_id(producer),
                    start: offset(start),
                    marker: at,
                });
            }
        }
        self.next += 1;
    }

    fn store(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let range = OffsetRange::new(offset(self.stored_end), offset(self.next)).unwrap();
        self.stored_end = self.next;
        self.segments.push((range, std::mem::take(&mut self.tail)));
    }

    fn last_stable(&self) -> u64 {
        self.open.values().copied().min().unwrap_or(self.next)
    }

    fn compact(&mut self, map: usize, runs: usize, run_segments: usize) {
        let now = TimestampMs::new(self.now);
        let stored = self.segments.iter().map(|(range, batches)| StoredSegment {
            range: *range,
            bytes: batches.iter().map(|b| b.bytes().len() as u64).sum(),
            max_timestamp: now,
            stored_at: now,
        });
        let policy = CompactionPolicy {
            min_dirty_ratio: -1.0,
            min_lag: Duration::ZERO,
            max_lag: None,
            min_dirty_bytes: 0,
        };
        let stored: Vec<_> = stored.collect();
        let cleaned = offset(self.cleaned_end.max(self.log_start));
        let limit = offset(self.last_stable());
        let due = plan_compaction(&stored, cleaned, limit, &policy, now);
        let CompactionDue::Now(plan) = due else {
            return;
        };
        let bytes_of = |batches: &[StoredBatch]| {
            let mut bytes = BytesMut::new();
            batches
                .iter()
                .for_each(|b| bytes.extend_from_slice(b.bytes()));
            bytes.freeze()
        };
        let map = KeyMap::new(map << 10);
        let mut mapper = Mapper::new(map, Transactions::new(self.listed.clone()), plan.dirty);
        for (_, batches) in self
            .segments
            .iter()
            .filter(|(r, _)| r.end() > plan.dirty.start())
        {
            if mapper.take(bytes_of(batches)).unwrap() == MapEnd::Reached {
                break;
            }
        }
        let (map, map_end) = mapper.finish();
        self.map_bytes = map.memory_bytes();
        assert!(map_end > plan.dirty.start() && map_end <= limit);
        let producers = self.last_batch_end.iter().map(|(producer, end)| {
            let end = offset(*end);
            (producer_id(*producer), LastRecord::Data { end })
        });
        let rules = FilterRules {
            now,
            delete_retention: RETENTION,
            producers: producers.collect(),
        };
        let transactions = Transactions::new(self.listed.clone());
        let mut filter = Filter::new(map, map_end, transactions, rules);
        let count = self
            .segments
            .iter()
            .take_while(|(r, _)| r.start() < map_end)
            .count();
        let mut rewritten: Vec<(OffsetRange, Vec<StoredBatch>)> = Vec::new();
        let mut taken = 0;
        let inputs: Vec<_> = self.segments[..count].to_vec();
        for run in inputs.chunks(run_segments).take(runs) {
            let mut kept = Vec::new();
            for (_, batches) in run {
                filter.take(bytes_of(batches), |b| kept.push(b)).unwrap();
            }
            kept.extend(filter.end_segment());
            let before: Vec<StoredBatch> = run.iter().flat_map(|(_, b)| b.clone()).collect();
            assert_eq!(filter.take_changed(), kept != before);
            let range = OffsetRange::new(run[0].0.start(), run[run.len() - 1].0.end()).unwrap();
            rewritten.push((range, kept));
            taken += run.len();
        }
        let all = taken == count;
        self.segments.splice(..taken, rewritten);
        if all {
            self.cleaned_end = map_end.get();
            self.listed.retain(|range| range.marker >= map_end);
        }
    }

    /// As many passes as it takes; each comes further.
    fn compact_all(&mut self, map: usize) {
        while self.cleaned_end.max(self.log_start) < self.stored_end {
            let before = self.cleaned_end;
            self.compact(map, usize::MAX, 3);
            self.check();
            assert!(self.cleaned_end > before, "a pass came no further");
        }
    }

    fn delete(&mut self, by: u64) {
        self.log_start = (self.log_start + by).min(self.last_stable());
        let log_start = offset(self.log_start);
        self.segments.retain(|(range, _)| range.end() > log_start);
        self.listed.retain(|range| range.marker >= log_start);
    }

    fn batches(&self) -> impl Iterator<Item = &StoredBatch> {
        let stored = self.segments.iter().flat_map(|(_, batches)| batches);
        stored.chain(&self.tail)
    }

    /// What a read-committed client gets: by the list, as clients do it (KIP-98).
    fn read_committed(&self) -> BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)> {
        let mut seen = BTreeMap::new();
        let mut ahead = self.listed.clone();
        ahead.sort_by_key(|r| r.start);
        let mut ahead = std::collections::VecDeque::from(ahead);
        let mut aborting: Vec<ProducerId> = Vec::new();
        for batch in self.batches() {
            let header = batch.header();
            if header.end_offset().get() > self.last_stable() {
                break;
            }
            while let Some(next) = ahead.pop_front_if(|r| r.start <= header.last_offset()) {
                aborting.push(next.producer);
            }
            let producer = header.producer().map(|p| p.id);
            if header.is_control() {
                if ControlMarker::decode(batch).is_ok_and(|m| !m.commit) {
                    aborting.retain(|p| Some(*p) != producer);
                }
                continue;
            }
            if header.is_transactional() && producer.is_some_and(|p| aborting.contains(&p)) {
                continue;
            }
            for record in records(batch, 1 << 20).unwrap() {
                if record.offset.get() >= self.log_start {
                    let value = record.value.map(|v| v.to_vec());
                    seen.insert(record.offset.get(), (record.key.unwrap().to_vec(), value));
                }
            }
        }
        seen
    }

    fn committed_writes(&self) -> impl Iterator<Item = (&u64, &Written)> {
        let visible = self.written.range(self.log_start..self.last_stable());
        visible.filter(|(_, w)| w.transaction.is_none_or(|t| self.committed[&t]))
    }

    fn check(&self) {
        let mut end = None;
        for (range, batches) in &self.segments {
            assert!(end.is_none_or(|end| end == range.start()));
            end = Some(range.end());
            let mut last = range.start();
            for batch in batches {
                StoredBatch::check(batch.bytes().clone()).unwrap();
                assert!(batch.header().base_offset() >= last);
                last = batch.header().end_offset();
            }
            assert_eq!(last, range.end(), "a segment ends with its last batch");
        }
        let read = self.read_committed();
        let mut expected = BTreeMap::new();
        for (_, w) in self.committed_writes() {
            match &w.value {
                Some(value) => expected.insert(&w.key, value),
                None => expected.remove(&w.key),
            };
        }
        let mut folded = BTreeMap::new();
        for (key, value) in read.values() {
            match value {
                Some(value) => folded.insert(key, value),
                None => folded.remove(key),
            };
        }
        assert_eq!(folded, expected);
        for (at, (key, value)) in &read {
            let written = &self.written[at];
            assert_eq!((&written.key, &written.value), (key, value), "at {at}");
            assert!(
                written.transaction.is_none_or(|t| self.committed[&t]),
                "an aborted record is seen at {at}"
            );
        }
        self.check_markers();
        self.check_sequences();
    }

    /// No record stands without the marker of its transaction, no listed transaction without its marker.
    fn check_markers(&self) {
        let markers: Vec<_> = self
            .batches()
            .filter(|b| b.header().is_control() && b.header().record_count() > 0)
            .map(|b| b.header().base_offset())
            .collect();
        for listed in &self.listed {
            assert!(markers.contains(&listed.marker), "{listed:?}");
        }
    }

    /// The last sequence number of each producer can be read, unless the log start is behind it.
    fn check_sequences(&self) {
        for (producer, end) in &self.last_batch_end {
            let stands = self.batches().any(|b| {
                b.header().end_offset().get() == *end
                    && b.header()
                        .producer()
                        .is_some_and(|p| p.id == producer_id(*producer))
                    && b.header().last_sequence()
                        == Sequence::from_wire(self.sequences[producer] - 1)
            });
            assert!(stands || *end <= self.log_start, "producer {producer}");
        }
    }
}

fn run(acts: Vec<Act>) -> Log {
    let mut log = Log {
        now: 1_000_000,
        ..Log::default()
    };
    for act in acts {
        match act {
            Act::Plain(batch) => log.append(None, &batch),
            Act::Transactional(producer, batch) => log.append(Some(producer), &batch),
            Act::End { producer, commit } => log.end(producer, commit),
            Act::Store => log.store(),
            Act::Compact {
                map,
                runs,
                run_segments,
            } => log.compact(map, runs, run_segments),
            Act::Wait(ms) => log.now += i64::from(ms),
            Act::Delete(by) => log.delete(by.into()),
        }
        log.check();
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_the_last_committed_value_of_every_key_whatever_compaction_did(acts in acts()) {
        run(acts);
    }

    #[test]
    fn in_the_end_only_the_last_value_of_each_key_is_left(
        acts in acts(),
        map in prop_oneof![Just(0usize), Just(1024)],
    ) {
        let mut log = run(acts);
        for producer in 0..3 {
            if log.open.contains_key(&producer) {
                log.end(producer, false);
            }
        }
        // Twice for what was aborted and for horizons to be set, once to drop what they let go.
        for _ in 0..4 {
            log.append(None, &[(200, Some(1))]);
            log.store();
            log.compact_all(map);
            log.now += 2_000;
        }
        let left: Vec<_> = log.read_committed().into_values().collect();
        let mut keys: Vec<_> = left.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        let count = keys.len();
        keys.dedup();
        prop_assert_eq!(keys.len(), count);
        // A tombstone goes when its horizon has passed.
        prop_assert!(left.iter().all(|(_, value)| value.is_some()));
        let aborted = log.batches().filter(|b| b.header().is_control()).count();
        let transactional = log.batches().filter(|b| b.header().is_transactional() && !b.header().is_control()).count();
        prop_assert!(aborted <= transactional, "markers of nothing are gone: {aborted} {transactional}");
        prop_assert_eq!(log.listed.len(), 0);
    }
}

#[test]
fn a_batch_with_more_keys_than_the_map_holds_is_compacted_piece_by_piece() {
    let mut log = Log::default();
    let keys = |keys: std::ops::Range<u8>, value: Option<u8>| -> Vec<(u8, Option<u8>)> {
        keys.map(|key| (key, value)).collect()
    };
    log.append(None, &keys(0..50, Some(1)));
    log.store();
    // Each key twice, the last of them with tombstones.
    let twice = [keys(0..50, Some(2)), keys(0..50, Some(3))].concat();
    log.append(None, &twice);
    log.store();
    log.append(None, &[keys(100..150, Some(1)), keys(0..25, None)].concat());
    log.store();
    let smallest = KeyMap::new(0).memory_bytes();
    let mut passes = 0;
    while log.cleaned_end < log.stored_end {
        let before = log.cleaned_end;
        log.compact(0, usize::MAX, 1);
        log.check();
        assert!(log.cleaned_end > before, "a pass came no further");
        assert_eq!(log.map_bytes, smallest);
        // Tombstones whose time is over must not go before the values that they remove.
        log.now += 2_000;
        passes += 1;
    }
    assert!(passes > 225 / 16, "{passes}");
    log.append(None, &[(200, Some(1))]);
    log.store();
    log.compact_all(0);
    let left = log.read_committed();
    assert_eq!(left.len(), 25 + 50 + 1);
    assert!(left.values().all(|(_, value)| value.is_some()));
}

#[test]
fn a_wrong_count_of_records_takes_no_memory() {
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::Zstd,
        TimestampType::CreateTime,
        None,
        false,
    );
    builder.push(TimestampMs::new(1), Some(b"k"), Some(b"v"), &[]);
    let mut bytes = builder.finish().unwrap();
    // The records count; nobody looked into compressed batches before the topic was compacted.
    bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let dirty = OffsetRange::new(Offset::ZERO, offset(1)).unwrap();
    let mut mapper = Mapper::new(KeyMap::new(1 << 16), Transactions::new(Vec::new()), dirty);
    mapper.take(bytes.freeze()).unwrap();
    let (map, end) = mapper.finish();
    assert_eq!((map.len(), end), (0, offset(1)));
    assert!(map.memory_bytes() <= 1 << 16);
}

#[test]
fn an_unreadable_batch_stays_and_replaces_nothing() {
    let good = |base: u64, codec| {
        let mut builder =
            BatchBuilder::new(offset(base), codec, TimestampType::CreateTime, None, false);
        builder.push(TimestampMs::new(1), Some(b"k"), Some(b"v"), &[]);
        builder.finish().unwrap()
    };
    let mut bad = good(1, Codec::Zstd);
    let end = bad.len();
    bad[end - 6..].fill(0xff);
    let bytes: Bytes = [good(0, Codec::None), bad.clone()].concat().into();
    let dirty = OffsetRange::new(Offset::ZERO, offset(2)).unwrap();
    let mut mapper = Mapper::new(KeyMap::new(1 << 16), Transactions::new(Vec::new()), dirty);
    assert_eq!(mapper.take(bytes.clone()).unwrap(), MapEnd::Reached);
    let (map, end) = mapper.finish();
    let rules = FilterRules {
        now: TimestampMs::new(5),
        delete_retention: RETENTION,
        producers: HashMap::new(),
    };
    let mut filter = Filter::new(map, end, Transactions::new(Vec::new()), rules);
    let mut kept = Vec::new();
    filter
        .take(bytes.clone(), |b| kept.extend_from_slice(b.bytes()))
        .unwrap();
    assert_eq!(kept, bytes);
    assert!(!filter.take_changed());
    assert_eq!(filter.stats().unreadable_batches, 1);
}
