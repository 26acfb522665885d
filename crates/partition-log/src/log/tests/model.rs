//! Random operations against a plain model: the records by offset, and what each producer was told. Two brokers
//! move the partitions between them.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_metadata::store::Fault as MetaFault;
use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::Fault;
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::PartitionId;

use super::pair::{Copy, Pair};
use super::rig::*;
use crate::log::{AppendError, Durability};

const PARTITIONS: usize = 4;
const PRODUCERS: usize = 2;
const BROKERS: usize = 2;

/// How a move ends.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Done,
    TakenBack,
    /// A broker dies when the move is committed and nobody has seen it.
    SourceDies,
    TargetDies,
}

#[derive(Debug, Clone)]
enum Op {
    Append {
        partition: usize,
        producer: usize,
        count: u64,
        value_bytes: usize,
    },
    Retry {
        partition: usize,
        producer: usize,
        back: usize,
    },
    Wait(u64),
    Evict(usize),
    Read {
        partition: usize,
        from: u64,
        max_bytes: usize,
    },
    DeleteRecords {
        partition: usize,
        part: u64,
    },
    StoreFault(u8),
    MetaFault(bool),
    /// Another topic comes, gets records and goes.
    ShortLivedTopic,
    Restart(usize, Crash),
    /// The other broker begins to copy.
    Prepare(usize),
    Move(usize, Fate),
}

fn op() -> impl Strategy<Value = Op> {
    let partition = 0..PARTITIONS;
    let producer = 0..PRODUCERS;
    prop_oneof![
        12 => (partition.clone(), producer.clone(), 1..4u64, 8..600usize).prop_map(
            |(partition, producer, count, value_bytes)| Op::Append {
                partition, producer, count, value_bytes
            }
        ),
        4 => (partition.clone(), producer, 0..5usize).prop_map(
            |(partition, producer, back)| Op::Retry { partition, producer, back }
        ),
        5 => prop_oneof![Just(0), 1..500u64, 5_000..15_000u64].prop_map(Op::Wait),
        2 => partition.clone().prop_map(Op::Evict),
        4 => (partition.clone(), any::<u64>(), 0..3_000usize).prop_map(
            |(partition, from, max_bytes)| Op::Read { partition, from, max_bytes }
        ),
        1 => (partition.clone(), 0..100u64).prop_map(
            |(partition, part)| Op::DeleteRecords { partition, part }
        ),
        2 => any::<u8>().prop_map(Op::StoreFault),
        1 => any::<bool>().prop_map(Op::MetaFault),
        1 => Just(Op::ShortLivedTopic),
        2 => (0..BROKERS, prop_oneof![Just(Crash::Power), Just(Crash::Process)])
            .prop_map(|(broker, crash)| Op::Restart(broker, crash)),
        3 => partition.clone().prop_map(Op::Prepare),
        4 => (partition, prop_oneof![
            4 => Just(Fate::Done),
            2 => Just(Fate::TakenBack),
            1 => Just(Fate::SourceDies),
            1 => Just(Fate::TargetDies),
        ]).prop_map(|(partition, fate)| Op::Move(partition, fate)),
    ]
}

/// A batch that a producer sent.
#[derive(Debug)]
struct Sent {
    spec: Spec,
    range: (u64, u64),
    /// `None` once it was acknowledged.
    ack: Option<tokio::sync::oneshot::Receiver<()>>,
}

#[derive(Default)]
struct ModelProducer {
    next_sequence: i32,
    sent: Vec<Sent>,
}

#[derive(Default)]
struct ModelPartition {
    tags: Vec<u64>,
    log_start: u64,
    /// Everything below was acknowledged or seen by a reader.
    promised: u64,
    producers: Vec<ModelProducer>,
}

struct Model {
    pair: Pair,
    ids: Vec<PartitionId>,
    partitions: Vec<ModelPartition>,
    /// What is being copied, by partition.
    copies: Vec<Option<Copy>>,
    next_tag: u64,
}

impl Model {
    async fn new(seed: u64) -> Self {
        let mut options = RigOptions {
            seed,
            tail_bytes: 6_000,
            wal_capacity_bytes: 6 * 16 * 1024,
            ..RigOptions::default()
        };
        options.upload.size_bytes = 20_000;
        options.upload.own_object_bytes = 4_000;
        let mut pair = Pair::with(options).await;
        let mut ids = pair.topic(Local, 3).await;
        ids.extend(pair.topic(Object, 1).await);
        let partitions = (0..PARTITIONS)
            .map(|_| ModelPartition {
                producers: (0..PRODUCERS).map(|_| ModelProducer::default()).collect(),
                ..ModelPartition::default()
            })
            .collect();
        Self {
            pair,
            ids,
            partitions,
            copies: (0..PARTITIONS).map(|_| None).collect(),
            next_tag: 0,
        }
    }

    async fn run(&mut self, op: &Op) {
        match *op {
            Op::Append {
                partition,
                producer,
                count,
                value_bytes,
            } => {
                let spec = self.next_spec(partition, producer, count, value_bytes);
                let _taken = self.send(partition, producer, spec);
            }
            Op::Retry {
                partition,
                producer,
                back,
            } => self.retry(partition, producer, back),
            Op::Wait(ms) => {
                settle().await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Op::Evict(partition) => {
                let log = self.pair.log(self.ids[partition]);
                log.evict(log.watermarks().unwrap().log_end);
            }
            Op::Read {
                partition,
                from,
                max_bytes,
            } => self.read(partition, from, max_bytes).await,
            Op::DeleteRecords { partition, part } => self.delete_records(partition, part).await,
            Op::StoreFault(which) => {
                let fault = match which % 4 {
                    0 => Fault::LostReply,
                    1 => Fault::SlowDown,
                    2 => Fault::HangAfter,
                    _ => Fault::Delay(Duration::from_millis(300)),
                };
                self.pair.rigs[0].store.next(Operation::Put, "", [fault]);
            }
            Op::MetaFault(after) => self.pair.rigs[0].meta.inject(match after {
                true => MetaFault::After,
                false => MetaFault::Before,
            }),
            Op::ShortLivedTopic => {
                let id = self.pair.one(Local).await;
                for tag in 0..5 {
                    // It may be refused for lack of room, which is no matter here.
                    let _ = self.pair.log(id).append(Spec::tagged(tag, 1, 700).build());
                }
                self.pair.delete_topic(id.topic).await;
            }
            Op::Restart(broker, crash) => self.restart(broker, crash).await,
            Op::Prepare(partition) => {
                let id = self.ids[partition];
                let to = 1 - self.pair.homes[&id];
                self.copies[partition] = Some(self.pair.prepare(id, to).await);
            }
            Op::Move(partition, fate) => self.change_leader(partition, fate).await,
        }
        self.hear();
        self.pair.assert_running();
    }

    fn next_spec(&mut self, at: usize, producer: usize, count: u64, value_bytes: usize) -> Spec {
        let id = (at * PRODUCERS + producer) as i64;
        let sequence = self.partitions[at].producers[producer].next_sequence;
        let spec = Spec::tagged(self.next_tag, count, value_bytes).by(id, 0, sequence);
        self.next_tag += count;
        spec
    }

    /// Sends a batch that the log doesn't hold, as long as its producer may have one more under way. Answers
    /// whether it was taken.
    fn send(&mut self, at: usize, producer: usize, spec: Spec) -> bool {
        let partition = &mut self.partitions[at];
        let state = &mut partition.producers[producer];
        if state.sent.iter().filter(|s| s.ack.is_some()).count() >= 5 {
            return false;
        }
        let appended = match self.pair.log(self.ids[at]).append(spec.build()) {
            Ok(appended) => appended,
            Err(AppendError::Full(_)) => return false,
            Err(other) => panic!("{other}"),
        };
        let range = (appended.range.start().get(), appended.range.end().get());
        assert_eq!(range.0, partition.tags.len() as u64);
        let tags = spec.first_tag..spec.first_tag + spec.count;
        partition.tags.extend(tags);
        state.next_sequence += i32::try_from(spec.count).unwrap();
        let Durability::Pending(ack) = appended.durability else {
            panic!("a new batch can't be durable yet");
        };
        state.sent.push(Sent {
            spec,
            range,
            ack: Some(ack),
        });
        true
    }

    /// Repeats one of the last five batches.
    fn retry(&mut self, at: usize, producer: usize, back: usize) {
        let sent = &self.partitions[at].producers[producer].sent;
        let Some(known) = sent.len().checked_sub(back + 1).map(|i| &sent[i]) else {
            return;
        };
        if known.range.1 <= self.partitions[at].log_start {
            // Deleted, and with it perhaps what opening could have known of it.
            return;
        }
        let log = self.pair.log(self.ids[at]);
        let again = log.append(known.spec.build()).unwrap();
        let range = (again.range.start().get(), again.range.end().get());
        assert_eq!(range, known.range, "a duplicate has its first offsets");
        if let Durability::Durable = again.durability {
            let high_watermark = log.watermarks().unwrap().high_watermark.get();
            assert!(range.1 <= high_watermark);
        }
    }

    /// Notes what was acknowledged.
    fn hear(&mut self) {
        for (id, partition) in self.ids.iter().zip(&mut self.partitions) {
            // In the middle of a move nobody leads, and everything has been heard.
            let Some(log) = self.pair.rig(*id).life().logs.get(*id) else {
                continue;
            };
            let high_watermark = log.watermarks().unwrap().high_watermark.get();
            for sent in partition.producers.iter_mut().flat_map(|p| &mut p.sent) {
                if sent.ack.as_mut().is_some_and(|ack| ack.try_recv().is_ok()) {
                    sent.ack = None;
                    assert!(sent.range.1 <= high_watermark);
                    partition.promised = partition.promised.max(sent.range.1);
                }
            }
        }
    }

    async fn read(&mut self, at: usize, from: u64, max_bytes: usize) {
        let log = self.pair.log(self.ids[at]);
        let before = log.watermarks().unwrap();
        let partition = &mut self.partitions[at];
        let span = before.high_watermark.get() - partition.log_start + 1;
        let from = partition.log_start + from % span;
        let read = self.pair.read_tags(self.ids[at], from, max_bytes).await;
        let end = from + read.len() as u64;
        assert!(end >= before.high_watermark.get());
        let expected: Vec<_> = (from..end)
            .map(|o| (o, partition.tags[usize::try_from(o).unwrap()]))
            .collect();
        assert_eq!(read, expected);
        partition.promised = partition.promised.max(end);
    }

    async fn delete_records(&mut self, at: usize, part: u64) {
        let partition = &mut self.partitions[at];
        let high_watermark = self.pair.log(self.ids[at]).watermarks().unwrap();
        let span = high_watermark.high_watermark.get() - partition.log_start;
        let below = partition.log_start + span * part / 100;
        partition.log_start = below;
        let id = self.ids[at];
        self.pair.rig(id).delete_records(id, below).await;
    }

    async fn restart(&mut self, broker: usize, crash: Crash) {
        self.hear();
        for copy in &mut self.copies {
            copy.take_if(|copy| copy.from == broker || copy.to == broker);
        }
        self.pair.restart(broker, crash).await;
        for at in 0..PARTITIONS {
            if self.pair.homes[&self.ids[at]] == broker {
                self.recovered(at).await;
            }
        }
    }

    /// Compares a log that was opened anew: what nobody was told of may be gone.
    async fn recovered(&mut self, at: usize) {
        let log = self.pair.log(self.ids[at]);
        let watermarks = log.watermarks().unwrap();
        let partition = &mut self.partitions[at];
        let end = watermarks.log_end.get();
        assert!(end >= partition.promised, "{end} of {}", partition.promised);
        assert!(end <= partition.tags.len() as u64);
        assert_eq!(watermarks.high_watermark.get(), end);
        assert_eq!(watermarks.log_start.get(), partition.log_start);
        partition.tags.truncate(usize::try_from(end).unwrap());
        partition.promised = end;
        for producer in 0..PRODUCERS {
            self.send_again(at, producer, end);
        }
        self.read(at, 0, 2_000).await;
    }

    async fn change_leader(&mut self, at: usize, fate: Fate) {
        let id = self.ids[at];
        let to = 1 - self.pair.homes[&id];
        let copy = match self.copies[at].take() {
            Some(copy) => copy,
            None => self.pair.prepare(id, to).await,
        };
        let sealed = self.pair.seal(id).await.unwrap();
        assert_eq!(sealed.end.get(), self.partitions[at].tags.len() as u64);
        self.hear();
        // What was admitted is promised now.
        self.partitions[at].promised = sealed.end.get();
        assert_eq!(copy.incoming.held().await.unwrap(), sealed.end);
        if let Fate::TakenBack = fate {
            let order = self.pair.next_order();
            let log = self.pair.log(id);
            log.unseal(log.leader_epoch(), order).unwrap();
            return;
        }
        let state = self.pair.commit(id, &copy, &sealed).await;
        if let Fate::TargetDies = fate {
            self.pair.rigs[copy.from].life().logs.remove(id);
            self.pair.homes.insert(id, to);
            drop(copy);
            self.restart(to, Crash::Power).await;
            return;
        }
        if let Fate::SourceDies = fate {
            let from = copy.from;
            self.pair.homes.insert(id, to);
            self.restart(from, Crash::Power).await;
        }
        self.pair.activate(id, &copy, &state).await;
        let watermarks = self.pair.log(id).watermarks().unwrap();
        assert_eq!(watermarks.log_start.get(), self.partitions[at].log_start);
        assert_eq!(watermarks.high_watermark, sealed.end);
        assert_eq!(watermarks.log_end, sealed.end);
        self.read(at, 0, 2_000).await;
    }

    /// A producer that heard nothing sends again, in order: what the log holds is a duplicate, the rest new.
    fn send_again(&mut self, at: usize, producer: usize, end: u64) {
        let state = &mut self.partitions[at].producers[producer];
        let held = state.sent.iter().take_while(|s| s.range.1 <= end).count();
        let lost = state.sent.split_off(held);
        assert!(lost.iter().all(|s| s.ack.is_some()));
        if let Some(first) = lost.first() {
            state.next_sequence = first.spec.producer.unwrap().2;
        }
        let unheard: Vec<Spec> = state
            .sent
            .iter_mut()
            .filter_map(|s| s.ack.take().map(|_| s.spec.clone()))
            .collect();
        for back in (0..unheard.len()).rev() {
            self.retry(at, producer, back);
        }
        for sent in lost {
            if !self.send(at, producer, sent.spec) {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_log_does_what_a_list_of_records_would(
        seed in any::<u32>(),
        ops in prop::collection::vec(op(), 1..70),
    ) {
        paused(async {
            let mut model = Model::new(u64::from(seed)).await;
            for op in &ops {
                model.run(op).await;
            }
            model.pair.rigs[0].store.heal();
            model.pair.all_uploaded().await;
            for broker in 0..BROKERS {
                model.restart(broker, Crash::Power).await;
            }
        });
    }
}
