//! Random transactions on a partition that moves and crashes, against the list of what was appended: read-committed
//! readers see exactly what the list says, and nothing is decided that a crash could take back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_record_batch::Batches;
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::{DurabilityMode, Offset, PartitionId};

use super::pair::Pair;
use super::rig::*;
use super::transactions::{marker, send};
use crate::log::{AppendError, Isolation};
use crate::producers::Marker;

const PRODUCERS: i64 = 3;

#[derive(Debug, Clone)]
enum Op {
    /// Of a producer's transaction; it opens one if none is open.
    Write(i64, u64),
    Plain(u64),
    End(i64, bool),
    /// A marker that was sent before comes once more.
    Late(usize),
    Wait(u64),
    Read,
    Restart(Crash),
    Move,
    DeleteRecords(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..PRODUCERS, 1..4u64).prop_map(|(p, n)| Op::Write(p, n)),
        2 => (1..3u64).prop_map(Op::Plain),
        6 => (0..PRODUCERS, any::<bool>()).prop_map(|(p, commit)| Op::End(p, commit)),
        2 => any::<usize>().prop_map(Op::Late),
        3 => prop_oneof![Just(0), 1..300u64, 5_000..9_000u64].prop_map(Op::Wait),
        4 => Just(Op::Read),
        1 => prop_oneof![Just(Crash::Power), Just(Crash::Process)].prop_map(Op::Restart),
        1 => Just(Op::Move),
        1 => (0..100u64).prop_map(Op::DeleteRecords),
    ]
}

/// One batch of the log.
#[derive(Debug, Clone)]
enum Batch {
    Plain,
    Data(i64),
    Marker(i64, bool),
}

#[derive(Default, Clone)]
struct Producer {
    /// The epoch of the next transaction, or of the open one.
    epoch: i16,
    sequence: i32,
}

struct Model {
    pair: Pair,
    id: PartitionId,
    /// By first offset.
    log: BTreeMap<u64, (u64, Batch)>,
    producers: Vec<Producer>,
    sent: Vec<Marker>,
    /// What read-committed readers have been told: a decision of it is for ever.
    stable: u64,
    log_start: u64,
    /// Records were deleted and the log was opened anew since.
    forgotten: bool,
}

/// What the list says of everything below `end`.
struct Truth {
    /// Where the oldest open transaction begins.
    first_open: Option<u64>,
    /// The records of open transactions.
    undecided: Vec<u64>,
    /// All others that weren't aborted.
    valid: Vec<u64>,
}

impl Truth {
    fn of(log: &BTreeMap<u64, (u64, Batch)>, end: u64) -> Self {
        let mut open: BTreeMap<i64, u64> = BTreeMap::new();
        // With the transaction that each belongs to.
        let mut records: BTreeMap<u64, Option<(i64, u64)>> = BTreeMap::new();
        for (at, (count, batch)) in log.iter().take_while(|(at, (count, _))| *at + count <= end) {
            let of = match batch {
                Batch::Plain => None,
                Batch::Data(producer) => Some((*producer, *open.entry(*producer).or_insert(*at))),
                Batch::Marker(producer, commit) => {
                    let ended = open.remove(producer).map(|start| (*producer, start));
                    if ended.is_some() && !commit {
                        records.retain(|_, of| *of != ended);
                    }
                    continue;
                }
            };
            records.extend((*at..at + count).map(|record| (record, of)));
        }
        let is_open = |of: &Option<(i64, u64)>| of.is_some_and(|(p, s)| open.get(&p) == Some(&s));
        let (undecided, valid): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|(_, of)| is_open(of));
        Self {
            first_open: open.values().copied().min(),
            undecided: undecided.into_iter().map(|(at, _)| at).collect(),
            valid: valid.into_iter().map(|(at, _)| at).collect(),
        }
    }
}

impl Model {
    async fn new(mode: DurabilityMode) -> Self {
        let mut pair = Pair::new().await;
        let id = pair.one(mode).await;
        Self {
            pair,
            id,
            log: BTreeMap::new(),
            producers: vec![Producer::default(); PRODUCERS as usize],
            sent: Vec::new(),
            stable: 0,
            log_start: 0,
            forgotten: false,
        }
    }

    fn end(&self) -> u64 {
        let last = self.log.last_key_value();
        last.map_or(0, |(at, (count, _))| at + count)
    }

    fn is_open(&self, producer: i64) -> bool {
        let of = |batch: &Batch| match batch {
            Batch::Data(p) if *p == producer => Some(true),
            Batch::Marker(p, _) if *p == producer => Some(false),
            _ => None,
        };
        let newest = self.log.values().rev().find_map(|(_, batch)| of(batch));
        newest.unwrap_or(false)
    }

    async fn run(&mut self, op: &Op) {
        match *op {
            Op::Write(producer, count) => {
                let known = &mut self.producers[producer as usize];
                let log = self.pair.log(self.id);
                let at = log.watermarks().unwrap().log_end.get();
                let spec = Spec::tagged(at, count, 40).by(producer, known.epoch, known.sequence);
                known.sequence += count as i32;
                let appended = send(&log, &spec).unwrap();
                assert_eq!(appended.range.start().get(), self.end());
                self.log.insert(at, (count, Batch::Data(producer)));
            }
            Op::Plain(count) => {
                let log = self.pair.log(self.id);
                let at = log.watermarks().unwrap().log_end.get();
                log.append(Spec::tagged(at, count, 40).build()).unwrap();
                self.log.insert(at, (count, Batch::Plain));
            }
            Op::End(producer, commit) => {
                let known = &mut self.producers[producer as usize];
                known.epoch += 1;
                known.sequence = 0;
                let end = Marker {
                    epoch_rises: true,
                    ..marker(producer, known.epoch, commit)
                };
                self.mark(end);
                self.sent.push(end);
            }
            Op::Late(which) => {
                if !self.sent.is_empty() {
                    let late = self.sent[which % self.sent.len()];
                    self.late(late);
                }
            }
            Op::Wait(ms) => {
                settle().await;
                tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            }
            Op::Read => self.read().await,
            Op::Restart(crash) => {
                let broker = self.pair.homes[&self.id];
                self.pair.restart(broker, crash).await;
                self.recovered();
                self.read().await;
            }
            Op::Move => {
                let to = 1 - self.pair.homes[&self.id];
                self.pair.move_to(self.id, to).await;
                self.read().await;
            }
            Op::DeleteRecords(part) => {
                let watermarks = self.pair.log(self.id).watermarks().unwrap();
                let span = watermarks.high_watermark.get() - self.log_start;
                self.log_start += span * part / 100;
                let rig = self.pair.rig(self.id);
                rig.delete_records(self.id, self.log_start).await;
            }
        }
    }

    fn mark(&mut self, end: Marker) {
        let at = self.end();
        let log = self.pair.log(self.id);
        log.append_marker(end).unwrap();
        if log.watermarks().unwrap().log_end.get() > at {
            let batch = Batch::Marker(end.producer.to_wire(), end.commit);
            self.log.insert(at, (1, batch));
        }
    }

    /// A late marker is refused or changes nothing, unless a crash took the first one.
    fn late(&mut self, end: Marker) {
        let producer = end.producer.to_wire();
        let newest = self.producers[producer as usize].epoch;
        let log = self.pair.log(self.id);
        let before = log.watermarks().unwrap().log_end;
        match log.append_marker(end) {
            Ok(_) => {
                let after = log.watermarks().unwrap().log_end;
                if after > before {
                    let batch = Batch::Marker(producer, end.commit);
                    self.log.insert(before.get(), (1, batch));
                }
            }
            Err(AppendError::Marker(_)) => {
                let is_current = end.epoch.to_wire() == newest;
                assert!(!is_current || self.is_open(producer));
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// What wasn't durable may be gone. Producers begin anew with a higher epoch, as after a fencing.
    fn recovered(&mut self) {
        let end = self.pair.log(self.id).watermarks().unwrap().log_end.get();
        let _lost = self.log.split_off(&end);
        assert_eq!(self.end(), end, "no batch is cut in two");
        self.forgotten |= self.log_start > 0;
        for producer in 0..PRODUCERS {
            let known = &mut self.producers[producer as usize];
            known.epoch += 1;
            known.sequence = 0;
            let (epoch, commit) = (known.epoch, false);
            self.mark(Marker {
                epoch_rises: true,
                ..marker(producer, epoch, commit)
            });
        }
    }

    /// Reads as a client does: it drops what the aborted list names until it meets the marker.
    async fn read(&mut self) {
        let log = self.pair.log(self.id);
        let watermarks = log.watermarks().unwrap();
        let high_watermark = watermarks.high_watermark.get();
        let stable = watermarks.last_stable.get();
        let truth = Truth::of(&self.log, high_watermark);
        let should_be = truth
            .first_open
            .unwrap_or(high_watermark)
            .max(self.log_start);
        match self.forgotten {
            // Transactions whose records are all deleted may be forgotten.
            true => assert!(stable >= should_be),
            false => assert_eq!(stable, should_be),
        }
        let readable = |at: &&u64| (self.log_start..stable).contains(*at);
        assert_eq!(truth.undecided.iter().find(readable), None);
        assert!(stable >= self.stable, "{stable} was {} before", self.stable);
        self.stable = stable;
        let expected: Vec<u64> = truth.valid.iter().filter(readable).copied().collect();
        for max_bytes in [100, 1 << 20] {
            // More may have been decided while this reads.
            let seen = self.client_reads(max_bytes).await;
            assert!(seen.starts_with(&expected), "{seen:?} {expected:?}");
        }
    }

    async fn client_reads(&self, max_bytes: usize) -> Vec<u64> {
        let rig = self.pair.rig(self.id);
        let log = rig.log(self.id);
        let mut next = offset(self.log_start);
        let mut seen = Vec::new();
        loop {
            let committed = Isolation::ReadCommitted;
            let read = rig.read(&log, next, max_bytes, committed).await;
            let before = next;
            let mut waiting = read.aborted.clone();
            let mut dropping: Vec<i64> = Vec::new();
            for batch in read.batches.into_iter().flat_map(Batches::with_crc) {
                let batch = batch.unwrap();
                let header = batch.header();
                waiting.retain(|t| {
                    let begins = t.start < header.end_offset();
                    if begins {
                        dropping.push(t.producer.to_wire());
                    }
                    !begins
                });
                let producer = header.producer().map(|p| p.id.to_wire());
                if header.is_control() {
                    dropping.retain(|p| Some(*p) != producer);
                } else if !header.is_transactional()
                    || !dropping.iter().any(|p| Some(*p) == producer)
                {
                    let (start, end) = (header.base_offset().get(), header.end_offset().get());
                    let wanted = (start..end).filter(|at| *at >= before.get());
                    seen.extend(wanted);
                }
                next = next.max(Offset::new(header.end_offset().get()).unwrap());
            }
            if next == before {
                return seen;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn readers_of_committed_records_see_what_the_list_says(
        object in any::<bool>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        paused(async {
            let mode = if object { Object } else { Local };
            let mut model = Model::new(mode).await;
            for op in &ops {
                model.run(op).await;
            }
            for producer in 0..PRODUCERS {
                model.run(&Op::End(producer, true)).await;
            }
            model.run(&Op::Wait(10_000)).await;
            model.run(&Op::Read).await;
            let end = model.pair.log(model.id).watermarks().unwrap().log_end.get();
            assert_eq!(model.stable, end);
        });
    }
}
