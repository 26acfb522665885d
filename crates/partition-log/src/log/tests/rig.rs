//! A broker's storage without its network.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tidegate_metadata::api::{
    AdvanceLogStart, CreateTopicError, CreateTopics, DURABILITY_CONFIG, DeleteTopics, NewTopic,
    RegisterBroker, SetAlive, TakeLeadership, TopicLayout,
};
use tidegate_metadata::store::MemoryOpener;
use tidegate_metadata::{
    Controller, ControllerApi, ControllerHandle, ControllerMetrics, ControllerOptions, Endpoint,
    PartitionState,
};
use tidegate_object_storage::testing::ScriptedStore;
use tidegate_object_storage::{ObjectStorage, RequestClass, StoreOptions, StoreSeams};
use tidegate_record_batch::{Batches, records};
use tidegate_runtime::{Clock, OnExit, Random, SharedClock, SimDisk, Tasks};
use tidegate_types::{
    BrokerEpoch, BrokerId, DurabilityMode, Offset, PartitionId, PartitionIndex, TimestampMs,
    TopicId, TopicName,
};
use tidegate_wal::local::{LocalWal, LocalWalMetrics, LocalWalOptions, LocalWalSeams, Workers};
use tidegate_wal::object::{
    LogWriter, ObjectWal, ObjectWalMetrics, ObjectWalOptions, ObjectWalSeams, fence_and_collect,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::spec::tag_of;
use crate::log::{Appended, Durability, Isolation, LogContext, PartitionLog};
use crate::{
    LogOpener, LogReader, LogSet, ObjectBacklog, ObjectCommitter, ObjectLog, OpenError,
    OpenRequest, ReadMetrics, ReadRequest, ReadResult, ReaderLimits, RecoveredBatch, SegmentReader,
    TailBudget, UploadLimits, UploadMetrics, Uploader, Writer, recovered_commit, recovered_end,
};

pub(super) use super::spec::Spec;

pub(super) const AGE: Duration = Duration::from_secs(5);
pub(super) const WALL_MS: i64 = 1_700_000_000_000;
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
const WAL_DIR: &str = "/wal";

/// Both clocks follow tokio's time, which tests pause.
struct SimClock {
    start: Instant,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> TimestampMs {
        let elapsed = self.now().saturating_duration_since(self.start);
        TimestampMs::new(WALL_MS + elapsed.as_millis() as i64)
    }
}

#[derive(Clone)]
pub(super) struct RigOptions {
    pub(super) seed: u64,
    pub(super) tail_bytes: u64,
    pub(super) wal_capacity_bytes: u64,
    pub(super) upload: UploadLimits,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            tail_bytes: 1 << 20,
            wal_capacity_bytes: 64 * 16 * 1024,
            upload: UploadLimits {
                size_bytes: 1 << 20,
                own_object_bytes: 1 << 19,
                age: AGE,
                in_flight: 3,
                block_bytes: 1024,
            },
        }
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crash {
    /// What the disk didn't sync is lost, in part.
    Power,
    /// The disk has all that was written.
    Process,
    /// The disk is gone.
    DiskLost,
}

/// One process.
pub(super) struct Life {
    pub(super) tasks: Tasks,
    pub(super) controller: ControllerHandle,
    pub(super) local_wal: LocalWal,
    pub(super) context: Arc<LogContext>,
    pub(super) logs: Arc<LogSet>,
    pub(super) reader: LogReader,
    pub(super) opener: LogOpener,
    pub(super) writer: Writer,
    pub(super) backlog: Arc<ObjectBacklog>,
    /// What ended a background task that must not end.
    pub(super) stopped: Arc<Mutex<Vec<String>>>,
}

/// What outlives processes.
pub(super) struct Rig {
    pub(super) disk: SimDisk,
    pub(super) store: ScriptedStore,
    pub(super) meta: MemoryOpener,
    pub(super) options: RigOptions,
    pub(super) modes: HashMap<TopicId, (TopicName, DurabilityMode)>,
    pub(super) broker: BrokerId,
    clock: SharedClock,
    lives: u64,
    wal: u128,
    /// A registration whose process is dead without the controller being able to know.
    dead: Option<BrokerEpoch>,
    /// A controller that outlives this broker; without, each life has its own.
    host: Option<ControllerHandle>,
    life: Option<Life>,
}

pub(super) fn offset(at: u64) -> Offset {
    Offset::new(at).unwrap()
}

/// Asks until it is answered, for at most so long as a controller needs to open its store again.
pub(super) async fn again<T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    ask: impl Fn() -> F,
) -> T {
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(tries < 20, "{error:?}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A runtime whose time moves only when nothing else can.
pub(super) fn paused<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(RigOptions::default()).await
    }

    pub(super) async fn with(options: RigOptions) -> Self {
        let mut rig = Self::idle(options, 1);
        rig.start().await;
        rig
    }

    fn idle(options: RigOptions, broker: u32) -> Self {
        Self {
            disk: SimDisk::new(options.seed * 7 + u64::from(broker)),
            store: ScriptedStore::new(),
            meta: MemoryOpener::new(),
            options,
            modes: HashMap::new(),
            broker: BrokerId::new(broker).unwrap(),
            clock: Arc::new(SimClock {
                start: Instant::now(),
            }),
            lives: 0,
            wal: 0xAA << 32 | u128::from(broker),
            dead: None,
            host: None,
            life: None,
        }
    }

    /// Brokers of one cluster, whose controller is none of them.
    pub(super) async fn cluster(options: RigOptions, brokers: u32) -> (Tasks, Vec<Self>) {
        let first = Self::idle(options.clone(), 1);
        let tasks = Tasks::new("host");
        let host = first.open_controller(&tasks).await;
        let mut rigs = Vec::new();
        for broker in 1..=brokers {
            let mut rig = Self {
                store: first.store.clone(),
                meta: first.meta.clone(),
                clock: first.clock.clone(),
                host: Some(host.clone()),
                ..Self::idle(options.clone(), broker)
            };
            rig.start().await;
            rigs.push(rig);
        }
        (tasks, rigs)
    }

    pub(super) fn life(&self) -> &Life {
        self.life.as_ref().expect("the process runs")
    }

    /// The process, if it runs.
    pub(super) fn has_life(&self) -> Option<&Life> {
        self.life.as_ref()
    }

    pub(super) fn wal_number(&self) -> u128 {
        self.wal
    }

    pub(super) fn log(&self, id: PartitionId) -> Arc<PartitionLog> {
        self.life().logs.get(id).expect("the log is open")
    }

    pub(super) async fn topic(
        &mut self,
        mode: DurabilityMode,
        partitions: u32,
    ) -> Vec<PartitionId> {
        let name = format!("topic-{}-{}", self.broker, self.modes.len());
        let name = TopicName::new(&name).unwrap();
        let new = NewTopic {
            name: name.clone(),
            layout: TopicLayout::Assigned(vec![vec![self.broker]; partitions as usize]),
            configs: [(DURABILITY_CONFIG.to_owned(), mode.as_str().to_owned())].into(),
        };
        let request = CreateTopics {
            topics: vec![new],
            validate_only: false,
        };
        let controller = &self.life().controller;
        let created = again(|| controller.create_topics(request.clone())).await;
        let topic = match &created[0] {
            Ok(created) => created.id.unwrap(),
            // The answer to the first try was lost.
            Err(CreateTopicError::Exists { id, .. }) => *id,
            Err(other) => panic!("{other}"),
        };
        self.modes.insert(topic, (name, mode));
        let ids: Vec<PartitionId> = (0..partitions)
            .map(|index| PartitionId {
                topic,
                index: PartitionIndex::new(index).unwrap(),
            })
            .collect();
        for state in self.states(&ids).await {
            self.open(state, Vec::new()).await.unwrap();
        }
        ids
    }

    pub(super) async fn one(&mut self, mode: DurabilityMode) -> PartitionId {
        self.topic(mode, 1).await[0]
    }

    pub(super) async fn states(&self, ids: &[PartitionId]) -> Vec<PartitionState> {
        let controller = &self.life().controller;
        let states = again(|| controller.partition_states(ids.to_vec())).await;
        states.into_iter().flatten().collect()
    }

    pub(super) async fn open(
        &self,
        state: PartitionState,
        recovered: Vec<RecoveredBatch>,
    ) -> Result<(), OpenError> {
        let (topic, durability) = self.modes[&state.partition.topic].clone();
        let request = OpenRequest {
            topic,
            durability,
            state,
            recovered,
        };
        let log = loop {
            match self.life().opener.open(request.clone()).await {
                Err(error) if error.is_retriable() => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                opened => break opened?,
            }
        };
        self.life().logs.insert(log);
        Ok(())
    }

    pub(super) async fn delete_topic(&mut self, topic: TopicId) {
        let request = DeleteTopics {
            topics: vec![topic],
        };
        let controller = &self.life().controller;
        again(|| controller.delete_topics(request.clone())).await;
        self.modes.remove(&topic);
        for log in self.life().logs.all() {
            if log.id().topic == topic {
                self.life().logs.remove(log.id());
            }
        }
    }

    pub(super) async fn delete_records(&self, id: PartitionId, below: u64) {
        let log = self.log(id);
        let request = AdvanceLogStart {
            broker: self.broker,
            broker_epoch: self.life().writer.broker_epoch,
            partition: id,
            leader_epoch: log.leader_epoch(),
            new_start: offset(below),
        };
        let controller = &self.life().controller;
        let start = again(|| controller.advance_log_start(request.clone())).await;
        log.advance_log_start(start);
    }

    /// Ends the process, and starts the next one when what was lost is lost.
    pub(super) async fn restart(&mut self, crash: Crash) {
        self.kill(crash).await;
        self.start().await;
    }

    pub(super) async fn kill(&mut self, crash: Crash) {
        let life = self.life.take().expect("the process runs");
        match crash {
            Crash::Power => self.disk.power_cut(),
            Crash::Process => {}
            Crash::DiskLost => {
                self.disk.power_cut();
                self.disk = SimDisk::new(self.options.seed + self.lives);
                self.wal += 1 << 32;
                self.dead = Some(life.writer.broker_epoch);
            }
        }
        self.disk = self.disk.restart();
        life.tasks.token().cancel();
        drop(life);
        settle().await;
    }

    pub(super) async fn start(&mut self) {
        let (life, states, mut recovered) = self.begin().await;
        self.life = Some(life);
        let oldest: Vec<_> = recovered
            .iter()
            .filter_map(|(id, batches)| Some((*id, batches.first()?.position)))
            .collect();
        for state in states {
            let batches = recovered.remove(&state.partition).unwrap_or_default();
            self.open(state, batches).await.unwrap();
        }
        for (id, position) in oldest {
            assert!(
                self.life().logs.get(id).is_some()
                    || !self.modes.contains_key(&id.topic)
                    || self.host.is_some(),
                "{id} at {position} isn't led"
            );
        }
        self.run_background();
    }

    /// Everything up to taking leadership, in the order of the broker's start-up.
    pub(super) async fn begin(
        &mut self,
    ) -> (
        Life,
        Vec<PartitionState>,
        HashMap<PartitionId, Vec<RecoveredBatch>>,
    ) {
        self.lives += 1;
        let clock = self.clock.clone();
        let tasks = Tasks::new("life");
        let broker = u64::from(self.broker.get());
        let random = Random::seeded(self.options.seed * 1_000 + broker * 100_000_000 + self.lives);
        let mut recovered: HashMap<PartitionId, Vec<RecoveredBatch>> = HashMap::new();
        let wal_options = LocalWalOptions {
            file_bytes: 16 * 1024,
            capacity_bytes: self.options.wal_capacity_bytes,
            pending_bytes: 1 << 20,
            workers: Workers::Tasks,
        };
        let wal_seams = LocalWalSeams {
            disk: self.disk.shared(),
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
            metrics: LocalWalMetrics::default(),
        };
        let (local_wal, _) =
            LocalWal::open(Path::new(WAL_DIR), &wal_options, wal_seams, &mut |e| {
                for batch in Batches::with_crc(e.entry.batches.clone()) {
                    let batch =
                        RecoveredBatch::new(&batch.unwrap(), e.entry.leader_epoch, e.position);
                    recovered.entry(e.entry.partition).or_default().push(batch);
                }
            })
            .unwrap();
        let seams = StoreSeams {
            clock: clock.clone(),
            random: random.clone(),
            tasks: tasks.clone(),
        };
        let storage = ObjectStorage::from_store(
            Arc::new(self.store.clone()),
            "rig",
            StoreOptions::default(),
            &seams,
            &mut Registry::default(),
        );
        let controller = match &self.host {
            Some(host) => host.clone(),
            None => self.open_controller(&tasks).await,
        };
        if let Some(broker_epoch) = self.dead.take() {
            let request = SetAlive {
                broker: self.broker,
                broker_epoch,
                alive: false,
            };
            again(|| controller.set_alive(request)).await;
        }
        let registration = RegisterBroker {
            broker: Some(self.broker),
            incarnation: Uuid::from_u128(
                u128::from(self.broker.get()) << 64 | u128::from(self.lives),
            ),
            kafka: Endpoint {
                host: "b1".to_owned(),
                port: 9092,
            },
            internal: None,
            rack: None,
            wal: Some(Uuid::from_u128(self.wal)),
        };
        let registered = again(|| controller.register_broker(registration.clone())).await;
        let mut found = Vec::new();
        if let Some(former) = registered.former_writer {
            let me = tidegate_segment_format::WriterIdentity {
                broker: self.broker,
                broker_epoch: registered.broker_epoch,
                sequence: 0,
                nonce: random.next_u64(),
            };
            let store = ObjectLog::new(storage.with_class(RequestClass::Read));
            let fenced = fence_and_collect(
                &store,
                self.broker,
                former.broker_epoch,
                former.next_wal_sequence,
                me,
            )
            .await
            .unwrap();
            found = fenced.objects.iter().map(recovered_commit).collect();
        }
        let holds: Vec<PartitionId> = recovered.keys().copied().collect();
        let states = again(|| controller.partition_states(holds.clone())).await;
        let ends = states
            .iter()
            .flatten()
            .filter_map(|state| recovered_end(state, &recovered[&state.partition]))
            .collect();
        let taking = TakeLeadership {
            broker: self.broker,
            broker_epoch: registered.broker_epoch,
            wal: Some(Uuid::from_u128(self.wal)),
            fenced_writer: registered.former_writer.map(|w| w.broker_epoch),
            recovered: found,
            ends,
            accept_loss: false,
        };
        let taken = again(|| controller.take_leadership(taking.clone())).await;
        assert_eq!(taken.withheld, [], "nothing acknowledged is missing");
        let writer = Writer {
            broker: self.broker,
            broker_epoch: registered.broker_epoch,
            nonce: random.next_u64(),
        };
        let life = self.build(tasks, controller, local_wal, storage, writer, random);
        (life, taken.partitions, recovered)
    }

    async fn open_controller(&self, tasks: &Tasks) -> ControllerHandle {
        let salt = u128::from(self.lives) << 64;
        let mut ids = 0xA000_0000_u128;
        let (controller, task) = loop {
            ids += 1 << 20;
            let mut ids = ids;
            let opened = Controller::open(
                Arc::new(self.meta.clone()),
                ControllerOptions::new(self.broker),
                self.clock.clone(),
                Box::new(move || {
                    ids += 1;
                    Uuid::from_u128(salt + ids)
                }),
                ControllerMetrics::register(&mut Registry::default()),
            )
            .await;
            match opened {
                Ok(opened) => break opened,
                Err(error) => assert!(error.is_retriable(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let token = tasks.token().clone();
        tasks.spawn("controller", OnExit::StopProcess, async move {
            task.run(token.cancelled_owned()).await;
        });
        controller
    }

    fn build(
        &self,
        tasks: Tasks,
        controller: ControllerHandle,
        local_wal: LocalWal,
        storage: ObjectStorage,
        writer: Writer,
        random: Random,
    ) -> Life {
        let clock = self.clock.clone();
        let logs = Arc::new(LogSet::default());
        let limits = ReaderLimits {
            block_cache_bytes: 64 * 1024,
            index_cache_bytes: 64 * 1024,
            in_flight_bytes: 1 << 20,
        };
        let segments = SegmentReader::new(
            storage.with_class(RequestClass::Read),
            limits,
            tasks.clone(),
            ReadMetrics::default(),
        );
        let backlog = Arc::new(ObjectBacklog::new(logs.clone(), clock.clone()));
        let object_wal = ObjectWal::start(
            LogWriter {
                broker: self.broker,
                broker_epoch: writer.broker_epoch,
                first_sequence: 0,
            },
            ObjectWalOptions {
                block_target_bytes: 1024,
                ..ObjectWalOptions::default()
            },
            backlog.clone(),
            ObjectWalSeams {
                store: Arc::new(ObjectLog::new(storage.with_class(RequestClass::Wal))),
                clock: clock.clone(),
                random,
                tasks: tasks.clone(),
                metrics: ObjectWalMetrics::default(),
            },
        )
        .unwrap();
        let context = Arc::new(LogContext {
            clock: clock.clone(),
            local_wal: Arc::new(local_wal.clone()),
            object_wal: Arc::new(object_wal.clone()),
            tail_budget: Arc::new(TailBudget::new(self.options.tail_bytes)),
            producer_expiration: Duration::from_secs(86_400),
            upload_bell: Notify::new(),
            upload_size_bytes: self.options.upload.size_bytes,
            unstored_bytes: AtomicU64::new(0),
            observed_wal: AtomicU64::new(0),
            pinned_wal: AtomicU64::new(u64::MAX),
        });
        let shared: Arc<dyn ControllerApi> = Arc::new(controller.clone());
        let opener = LogOpener {
            context: context.clone(),
            controller: shared.clone(),
            reader: segments.clone(),
            clock: clock.clone(),
        };
        let reader = LogReader::new(segments, Arc::new(local_wal.clone()));
        let stopped: Arc<Mutex<Vec<String>>> = Arc::default();
        let life = Life {
            tasks,
            controller,
            local_wal: local_wal.clone(),
            context: context.clone(),
            logs: logs.clone(),
            reader: reader.clone(),
            opener,
            writer,
            backlog: backlog.clone(),
            stopped,
        };
        let committer = ObjectCommitter {
            backlog,
            logs: logs.clone(),
            wal: object_wal,
            controller: shared.clone(),
            writer,
            interval: COMMIT_INTERVAL,
            metrics: UploadMetrics::default(),
        };
        let token = life.tasks.token().clone();
        life.watch("object-commit", async move { committer.run(token).await });
        life
    }

    /// Starts to upload.
    pub(super) fn run_background(&self) {
        let life = self.life();
        let uploader = self.uploader();
        let token = life.tasks.token().clone();
        life.watch("upload", async move { uploader.run(token).await });
    }

    pub(super) fn uploader(&self) -> Uploader {
        let life = self.life();
        let seams = StoreSeams {
            clock: self.clock.clone(),
            random: Random::seeded(self.lives + 1_000 * u64::from(self.broker.get())),
            tasks: life.tasks.clone(),
        };
        let storage = ObjectStorage::from_store(
            Arc::new(self.store.clone()),
            "rig",
            StoreOptions::default(),
            &seams,
            &mut Registry::default(),
        );
        Uploader {
            context: life.context.clone(),
            logs: life.logs.clone(),
            storage,
            controller: Arc::new(life.controller.clone()),
            reader: life.reader.clone(),
            local_wal: Arc::new(life.local_wal.clone()),
            writer: life.writer,
            limits: self.options.upload,
            clock: self.clock.clone(),
            metrics: UploadMetrics::default(),
        }
    }

    /// Waits until everything appended to open logs is in metadata.
    pub(super) async fn all_uploaded(&self) {
        for _ in 0..200 {
            self.assert_running();
            let done = self.life().logs.all().iter().all(|log| {
                let state = log.state.lock();
                state.uploaded_end == state.log_end
            });
            if done {
                return settle().await;
            }
            tokio::time::sleep(AGE / 5).await;
        }
        panic!("uploads never finish");
    }

    pub(super) fn assert_running(&self) {
        assert_eq!(*self.life().stopped.lock(), Vec::<String>::new());
    }

    /// One answer of the reader, as to a client's fetch.
    pub(super) async fn read(
        &self,
        log: &Arc<PartitionLog>,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
    ) -> ReadResult {
        let request = ReadRequest {
            offset: from,
            max_bytes,
            first_whole: true,
            isolation,
        };
        self.life().reader.read(log, request).await.unwrap()
    }

    /// Everything visible from an offset on, read in steps of `max_bytes`: `(offset, tag)` of each record.
    pub(super) async fn read_tags(
        &self,
        id: PartitionId,
        from: u64,
        max_bytes: usize,
        isolation: Isolation,
    ) -> Vec<(u64, u64)> {
        let log = self.log(id);
        let mut next = offset(from);
        let mut tags = Vec::new();
        loop {
            let read = self.read(&log, next, max_bytes, isolation).await;
            let sum: usize = read.batches.iter().map(|b| b.len()).sum();
            assert_eq!(sum, read.bytes);
            let before = next;
            let mut first = true;
            for piece in read.batches {
                for batch in Batches::with_crc(piece) {
                    let batch = batch.unwrap();
                    let header = *batch.header();
                    assert!(
                        header.base_offset() == next || (first && header.base_offset() < next),
                        "{} follows {next}",
                        header.base_offset()
                    );
                    assert!(header.end_offset() > next);
                    assert!(header.end_offset() <= read.watermarks.visible_end(isolation));
                    assert!(first || sum <= max_bytes, "only one batch may be too large");
                    for record in records(&batch, 1 << 20).unwrap() {
                        if record.offset >= next && !header.is_control() {
                            tags.push((record.offset.get(), tag_of(&record.value.unwrap())));
                        }
                    }
                    next = header.end_offset();
                    first = false;
                }
            }
            if next == before {
                return tags;
            }
        }
    }

    pub(super) async fn all_tags(&self, id: PartitionId) -> Vec<(u64, u64)> {
        let start = self.log(id).watermarks().unwrap().log_start.get();
        self.read_tags(id, start, 10_000, Isolation::ReadUncommitted)
            .await
    }
}

impl Life {
    fn watch<E: std::error::Error + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let stopped = self.stopped.clone();
        self.tasks.spawn(name, OnExit::Expected, async move {
            if let Err(error) = task.await {
                let cause = error.source().map(ToString::to_string);
                stopped.lock().push(format!("{name}: {error}: {cause:?}"));
            }
        });
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.context.unstored_bytes.load(Ordering::Relaxed)
    }
}

/// Lets everything run that can without time passing.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits for an append to be durable.
pub(super) async fn durable(appended: Appended) -> (u64, u64) {
    let range = (appended.range.start().get(), appended.range.end().get());
    if let Durability::Pending(done) = appended.durability {
        done.await.expect("it becomes durable");
    }
    range
}

pub(super) async fn append(log: &Arc<PartitionLog>, spec: &Spec) -> (u64, u64) {
    durable(log.append(spec.build()).unwrap()).await
}

/// Appends `batches` batches of one record each, tagged by their offsets.
pub(super) async fn fill(log: &Arc<PartitionLog>, batches: u64, value_bytes: usize) {
    for _ in 0..batches {
        let tag = log.watermarks().unwrap().log_end.get();
        append(log, &Spec::tagged(tag, 1, value_bytes)).await;
    }
}

/// What [`fill`] leaves.
pub(super) fn numbered(range: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    range.map(|at| (at, at)).collect()
}
