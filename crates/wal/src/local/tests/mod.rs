//! Tests of the local WAL, over the simulated disk and, where it matters, the real one.

mod contract;
mod crash;
mod damage;
mod faults;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use tidegate_runtime::{Disk, Random, SimDisk, SystemClock, Tasks};
use tidegate_types::{
    LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex, TimestampMs, TopicId,
};

use super::*;
use crate::{AppendRefused, Appended, FullCause, Location};

/// Longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn dir() -> PathBuf {
    PathBuf::from("/wal")
}

/// Small files, so that a few entries fill one.
fn options() -> LocalWalOptions {
    LocalWalOptions {
        file_bytes: 16 * 1024,
        capacity_bytes: 8 * 16 * 1024,
        pending_bytes: 64 * 1024,
        workers: Workers::Threads,
    }
}

fn seams(disk: Arc<dyn Disk>) -> LocalWalSeams {
    LocalWalSeams {
        disk,
        clock: SystemClock::shared(),
        random: Random::from_system(),
        tasks: Tasks::new("test"),
        metrics: LocalWalMetrics::default(),
    }
}

/// An entry that carries its id, `length` bytes long, the rest made from the id.
fn entry(id: u64, length: usize) -> Entry {
    let mut batches = id.to_le_bytes().to_vec();
    batches.extend((8..length).map(|at| (id as usize * 31 + at * 7) as u8));
    let start = Offset::new(id * 10).unwrap();
    Entry {
        partition: PartitionId {
            topic: TopicId::from_bytes([1; 16]).unwrap(),
            index: PartitionIndex::new((id % 3) as u32).unwrap(),
        },
        leader_epoch: LeaderEpoch::new(5).unwrap(),
        range: OffsetRange::new(start, start.checked_add(10).unwrap()).unwrap(),
        batches: batches.into(),
        max_timestamp: TimestampMs::new(1_000 + id as i64),
        record_count: 10,
        checkpoint: None,
    }
}

fn id_of(batches: &[u8]) -> u64 {
    u64::from_le_bytes(batches[..8].try_into().unwrap())
}

/// What was said of an entry.
#[derive(Debug, Clone)]
enum Said {
    Durable(WalPosition),
    Failed,
}

struct Observer {
    id: u64,
    length: u32,
    said: Sender<(u64, Said)>,
}

impl AppendObserver for Observer {
    fn durable(&self, appended: Appended) {
        let Location::Local { position, length } = appended.location else {
            panic!("a local WAL names a local place");
        };
        assert_eq!(appended.range.start().get(), self.id * 10);
        assert_eq!(length, self.length);
        self.said.send((self.id, Said::Durable(position))).ok();
    }

    fn failed(&self, _failure: &WalFailure) {
        self.said.send((self.id, Said::Failed)).ok();
    }
}

/// A WAL and all that was said by it.
struct Life {
    wal: LocalWal,
    recovered: Vec<RecoveredEntry>,
    summary: Recovered,
    sender: Sender<(u64, Said)>,
    receiver: Receiver<(u64, Said)>,
    said: BTreeMap<u64, Said>,
    order: Vec<u64>,
}

impl Life {
    fn open(disk: Arc<dyn Disk>, dir: &Path, options: &LocalWalOptions) -> Result<Self, OpenError> {
        let mut recovered = Vec::new();
        let (wal, summary) = LocalWal::open(dir, options, seams(disk), &mut |entry| {
            recovered.push(entry);
        })?;
        let (sender, receiver) = channel();
        Ok(Self {
            wal,
            recovered,
            summary,
            sender,
            receiver,
            said: BTreeMap::new(),
            order: Vec::new(),
        })
    }

    fn sim(disk: &SimDisk) -> Self {
        Self::open(disk.shared(), &dir(), &options()).unwrap()
    }

    fn append(&self, id: u64, length: usize) -> Result<(), AppendRefused> {
        let said = self.sender.clone();
        self.wal.append(
            entry(id, length),
            Arc::new(Observer {
                id,
                length: length as u32,
                said,
            }),
        )
    }

    fn hear(&mut self) {
        let (id, said) = self.receiver.recv_timeout(PATIENCE).expect("an answer");
        assert!(self.said.insert(id, said).is_none(), "{id} answered twice");
        self.order.push(id);
    }

    fn hear_of(&mut self, id: u64) -> Said {
        while !self.said.contains_key(&id) {
            self.hear();
        }
        self.said[&id].clone()
    }

    fn append_durably(&mut self, id: u64, length: usize) -> WalPosition {
        self.append(id, length).unwrap();
        match self.hear_of(id) {
            Said::Durable(position) => position,
            Said::Failed => panic!("{id} failed"),
        }
    }

    fn recovered_ids(&self) -> Vec<u64> {
        self.recovered
            .iter()
            .map(|found| id_of(&found.entry.batches))
            .collect()
    }

    fn close(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(self.wal.close(PATIENCE)).unwrap();
    }
}

/// Waits for what another thread does soon.
fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !check() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

fn assert_same(found: &RecoveredEntry, length: usize) {
    let id = id_of(&found.entry.batches);
    let wanted = entry(id, length);
    assert_eq!(found.entry.batches, wanted.batches);
    assert_eq!(found.entry.partition, wanted.partition);
    assert_eq!(found.entry.leader_epoch, wanted.leader_epoch);
    assert_eq!(found.entry.range, wanted.range);
    assert_eq!(found.entry.max_timestamp, wanted.max_timestamp);
    assert_eq!(found.entry.record_count, wanted.record_count);
}

/// The path of the file that holds `position`, and the byte in it.
fn place(position: WalPosition) -> (PathBuf, u64) {
    let file_bytes = options().file_bytes;
    let sequence = position.get() / file_bytes + 1;
    let path = dir().join(recovery::file_name(sequence));
    (path, position.get() % file_bytes)
}

fn bytes_of(id: u64, length: usize) -> Bytes {
    entry(id, length).batches
}
