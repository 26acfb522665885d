//! Random sequences of requests, in random batches: after each batch the stored rows give the same state that
//! is in memory, and the invariants hold over all rows.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_types::ControllerEpoch;

use super::*;
use crate::controller::opening::read_state;
use crate::controller::overlay::Overlay;
use crate::keys::{SegmentKey, Table};
use crate::rows::{ObjectRow, PartitionRow, Row, SegmentRow};
use crate::state::cleaning::{CleanTopic, TrimPartition};
use crate::state::picture::Picture;
use crate::state::{Command, Environment, Facts, State};
use crate::store::MetadataStore;

#[derive(Debug, Clone)]
enum Step {
    Create {
        topic: u8,
        partitions: u8,
    },
    Delete {
        topic: u8,
    },
    Enlarge {
        topic: u8,
        total: u8,
    },
    Restart {
        recovered: u8,
        fence: bool,
    },
    /// `start` 0: at the committed end; else off by one.
    Commit {
        parts: Vec<(u8, u8, u8)>,
        again: bool,
    },
    Advance {
        topic: u8,
        partition: u8,
        by: u8,
    },
    Forget,
    Clean,
    /// Ends the batch.
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3u8, 1..4u8).prop_map(|(topic, partitions)| Step::Create { topic, partitions }),
        1 => (0..3u8).prop_map(|topic| Step::Delete { topic }),
        1 => (0..3u8, 1..6u8).prop_map(|(topic, total)| Step::Enlarge { topic, total }),
        1 => (0..3u8, prop::bool::weighted(0.9))
            .prop_map(|(recovered, fence)| Step::Restart { recovered, fence }),
        8 => (prop::collection::vec((0..3u8, 0..3u8, 0..10u8), 1..4), any::<bool>())
            .prop_map(|(parts, again)| Step::Commit { parts, again }),
        3 => (0..3u8, 0..3u8, 0..30u8)
            .prop_map(|(topic, partition, by)| Step::Advance { topic, partition, by }),
        1 => Just(Step::Forget),
        3 => Just(Step::Clean),
        4 => Just(Step::Write),
    ]
}

pub(super) struct World {
    store: Arc<dyn MetadataStore>,
    opener: MemoryOpener,
    pub(super) state: State,
    overlay: Overlay,
    ids: RandomIds,
    objects: u64,
    incarnation: u128,
    broker_epoch: BrokerEpoch,
    last_commit: Vec<ObjectCommit>,
    /// The highest log start and committed end ever seen.
    heights: HashMap<PartitionId, (Offset, Offset)>,
}

fn empty_state() -> State {
    let limits = Limits {
        segments_per_drop: 2,
        ..Limits::default()
    };
    let picture = Picture::new("c", broker(1), ControllerEpoch::new(1));
    State::new(DurabilityMode::Object, limits, picture)
}

impl World {
    async fn new() -> Self {
        let mut world = Self::empty().await;
        world.restart(0, true).await;
        world
    }

    /// Without brokers.
    pub(super) async fn empty() -> Self {
        let opener = MemoryOpener::new();
        Self {
            store: opener.open().await.unwrap(),
            opener,
            state: empty_state(),
            overlay: Overlay::default(),
            ids: counted_ids(),
            objects: 0,
            incarnation: 0,
            broker_epoch: BrokerEpoch::new(0),
            last_commit: Vec::new(),
            heights: HashMap::new(),
        }
    }

    pub(super) async fn run<C: Command>(&mut self, command: C) -> Result<C::Output, C::Error> {
        let mut facts = Facts::default();
        loop {
            let needs = command.needs(&self.state, &facts);
            if needs.is_empty() {
                break;
            }
            for need in needs {
                let fact = self
                    .overlay
                    .resolve(self.store.as_ref(), &need)
                    .await
                    .unwrap();
                facts.insert(need, fact);
            }
        }
        let mut environment = Environment {
            now: NOW,
            random_id: &mut self.ids,
        };
        let decision = command.decide(&self.state, &facts, &mut environment)?;
        for change in &decision.changes {
            self.state.absorb(change).unwrap();
            self.overlay.put(change);
        }
        Ok(decision.output)
    }

    fn topic(&self, index: u8) -> Option<TopicId> {
        self.state.topic_named(&name(&format!("t{index}")))
    }

    fn partition(&self, topic: u8, index: u8) -> Option<(PartitionId, PartitionRow)> {
        let id = partition(self.topic(topic)?, u32::from(index));
        Some((id, self.state.partition(id)?.clone()))
    }

    fn object(&mut self, segments: Vec<SegmentCommit>) -> ObjectCommit {
        self.objects += 1;
        object(&format!("o{}", self.objects), segments)
    }

    async fn restart(&mut self, recovered: u8, fence: bool) {
        self.incarnation += 1;
        let registered = self.run(registration(1, self.incarnation)).await.unwrap();
        self.broker_epoch = registered.broker_epoch;
        let mut objects = Vec::new();
        if let Some(writer) = registered.former_writer.filter(|_| recovered > 0) {
            let mut segments = Vec::new();
            for topic in 0..3 {
                if let Some((id, row)) = self.partition(topic, 0)
                    && row.leader.is_some()
                {
                    let start = row.committed_end.get();
                    let end = start + u64::from(recovered);
                    segments.push(segment(id, row.leader_epoch.get(), range(start, end)));
                }
            }
            let mut commit = self.object(segments);
            commit.wal_sequence = Some(writer.next_wal_sequence);
            objects.push(commit);
        }
        let take = TakeLeadership {
            recovered: objects,
            fenced_writer: registered
                .former_writer
                .map(|w| w.broker_epoch)
                .filter(|_| fence),
            ..taking(&registered)
        };
        // DeleteRecords may have gone past what is uploaded; the records behind it are lost here.
        let _ = self.run(take).await;
    }

    async fn commit(&mut self, parts: &[(u8, u8, u8)], again: bool) {
        if again {
            let objects = self.last_commit.clone();
            let request = CommitObjects {
                broker: broker(1),
                broker_epoch: self.broker_epoch,
                objects,
            };
            let before = self.ends();
            let _ = self.run(request).await;
            assert_eq!(self.ends(), before, "a repetition moved an end");
            return;
        }
        let mut segments: Vec<SegmentCommit> = Vec::new();
        for &(topic, index, kind) in parts {
            let Some((id, row)) = self.partition(topic, index) else {
                continue;
            };
            if segments.iter().any(|s| s.partition == id) {
                continue;
            }
            // Mostly contiguous, at times with a gap.
            let start = row.committed_end.get() + u64::from(kind == 9);
            let mut part = segment(id, row.leader_epoch.get(), range(start, start + 5));
            part.checkpoint = part.checkpoint.filter(|_| kind % 2 == 0);
            segments.push(part);
        }
        let commit = self.object(segments);
        let request = CommitObjects {
            broker: broker(1),
            broker_epoch: self.broker_epoch,
            objects: vec![commit.clone()],
        };
        if self.run(request).await.is_ok() {
            self.last_commit = vec![commit];
        }
    }

    fn ends(&self) -> BTreeMap<PartitionId, Offset> {
        self.state
            .topics_by_id()
            .into_iter()
            .flat_map(|(id, topic)| {
                topic
                    .partition_ids(id)
                    .zip(&topic.partitions)
                    .map(|(id, row)| (id, row.committed_end))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Create { topic, partitions } => {
                let request = CreateTopics {
                    topics: vec![new_topic(&format!("t{topic}"), u32::from(*partitions))],
                    validate_only: false,
                };
                let _ = self.run(request).await.unwrap();
            }
            Step::Delete { topic } => {
                let topics = self.topic(*topic).into_iter().collect();
                let _ = self.run(DeleteTopics { topics }).await.unwrap();
            }
            Step::Enlarge { topic, total } => {
                if let Some(topic) = self.topic(*topic) {
                    let request = CreatePartitions {
                        topics: vec![MorePartitions {
                            topic,
                            total: u32::from(*total),
                            assignments: None,
                        }],
                        validate_only: false,
                    };
                    let _ = self.run(request).await.unwrap();
                }
            }
            Step::Restart { recovered, fence } => self.restart(*recovered, *fence).await,
            Step::Commit { parts, again } => self.commit(parts, *again).await,
            Step::Advance {
                topic,
                partition,
                by,
            } => {
                if let Some((id, row)) = self.partition(*topic, *partition) {
                    let request = AdvanceLogStart {
                        broker: broker(1),
                        broker_epoch: self.broker_epoch,
                        partition: id,
                        leader_epoch: row.leader_epoch,
                        new_start: offset(row.log_start.get() + u64::from(*by)),
                    };
                    let _ = self.run(request).await;
                }
            }
            Step::Forget => {
                let query = DeletableQuery {
                    dropped_before: NOW,
                    limit: 3,
                };
                let found = self.run(query).await.unwrap();
                let keys = found.into_iter().map(|object| object.key).collect();
                self.run(crate::state::cleaning::ForgetObjects(keys))
                    .await
                    .unwrap();
            }
            Step::Clean => {
                if let Some(partition) = self.state.next_trim() {
                    self.run(TrimPartition(partition)).await.unwrap();
                } else if let Some(topic) = self.state.next_cleaning() {
                    self.run(CleanTopic(topic)).await.unwrap();
                }
            }
            Step::Write => self.write().await,
        }
    }

    pub(super) async fn write(&mut self) {
        let batch = std::mem::take(&mut self.overlay).into_batch();
        self.store.apply(batch).await.unwrap();
        self.check().await;
    }

    /// What a crash right now would leave.
    async fn check(&mut self) {
        let mut reread = empty_state();
        read_state(self.store.as_ref(), &mut reread).await.unwrap();
        assert_eq!(reread.snapshot(), self.state.snapshot());
        let rows = Rows::read(&self.opener.rows());
        rows.check_references();
        for (id, topic) in self.state.topics_by_id() {
            for (id, row) in topic.partition_ids(id).zip(&topic.partitions) {
                rows.check_map(id, row);
                let (log_start, end) = self.heights.entry(id).or_default();
                assert!(row.log_start >= *log_start, "a log start went back");
                assert!(row.committed_end >= *end, "a committed end went back");
                *log_start = row.log_start;
                *end = row.committed_end;
            }
        }
    }
}

/// All rows that aren't held in memory.
struct Rows {
    segments: BTreeMap<SegmentKey, SegmentRow>,
    objects: BTreeMap<StoredObjectKey, ObjectRow>,
    partitions: Vec<PartitionRow>,
    dropped: BTreeMap<StoredObjectKey, TimestampMs>,
}

impl Rows {
    fn read(rows: &BTreeMap<Bytes, Bytes>) -> Self {
        let table = |table: Table| {
            rows.iter()
                .filter(move |(key, _)| key[0] == table.tag())
                .map(|(key, value)| (key.clone(), value.clone()))
        };
        Self {
            segments: table(Table::Segment)
                .map(|(key, value)| {
                    let row = SegmentRow::open(&key, &value).unwrap();
                    assert!(value.len() <= 120, "a segment takes {} bytes", value.len());
                    (crate::keys::parse_segment(&key).unwrap(), row)
                })
                .collect(),
            objects: table(Table::Object)
                .map(|(k, value)| {
                    let row = ObjectRow::open(&k, &value).unwrap();
                    (key(std::str::from_utf8(&k[1..]).unwrap()), row)
                })
                .collect(),
            partitions: table(Table::Partition)
                .map(|(key, value)| PartitionRow::open(&key, &value).unwrap())
                .collect(),
            dropped: table(Table::Dropped)
                .map(|(key, _)| {
                    let (at, object) = crate::keys::parse_dropped(&key).unwrap();
                    (object, at)
                })
                .collect(),
        }
    }

    fn check_references(&self) {
        let mut counted: BTreeMap<&StoredObjectKey, u64> = BTreeMap::new();
        for segment in self.segments.values() {
            *counted.entry(&segment.object).or_default() += 1;
        }
        for checkpoint in self.partitions.iter().filter_map(|p| p.checkpoint.as_ref()) {
            *counted.entry(&checkpoint.object).or_default() += 1;
        }
        for (key, row) in &self.objects {
            let references = counted.remove(key).unwrap_or(0);
            assert_eq!(
                row.references, references,
                "{key} counts its references wrongly"
            );
            assert_eq!(
                row.dropped_at,
                self.dropped.get(key).copied(),
                "{key} and the list of dropped objects disagree"
            );
        }
        assert!(counted.is_empty(), "referred to but unknown: {counted:?}");
        for key in self.dropped.keys() {
            assert!(
                self.objects.contains_key(key),
                "{key} is listed but unknown"
            );
        }
    }

    fn check_map(&self, id: PartitionId, row: &PartitionRow) {
        let map: Vec<_> = self
            .segments
            .iter()
            .filter(|(key, _)| key.partition == id)
            .collect();
        assert_eq!(map.len() as u64, row.segment_count);
        let bytes: u64 = map.iter().map(|(_, segment)| segment.span.length).sum();
        assert_eq!(bytes, row.segment_bytes);
        // Only what lies below the log start may be missing.
        for pair in map.windows(2) {
            let (end, next) = (pair[0].0.end, pair[1].1.start);
            assert!(
                end == next || (end < next && next <= row.log_start),
                "a hole or an overlap in {id}: {end} to {next}"
            );
        }
        if let Some((last, _)) = map.last() {
            assert!(last.end == row.committed_end || last.end <= row.log_start);
        }
        if let Some((first, segment)) = map.first() {
            assert!(
                segment.start <= row.log_start,
                "readable records of {id} are missing"
            );
            assert!(row.trim_pending || first.end > row.log_start);
        } else {
            assert!(
                row.log_start >= row.committed_end,
                "readable records of {id} are missing"
            );
        }
        for pair in row.epochs.windows(2) {
            assert!(pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start);
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_keeps_the_invariants_and_can_crash_after_any_batch(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in &steps {
                world.step(step).await;
            }
            world.write().await;
            // In the end all that is gone is dropped.
            while world.state.next_trim().is_some() || world.state.next_cleaning().is_some() {
                world.step(&Step::Clean).await;
            }
            world.write().await;
        });
    }
}
