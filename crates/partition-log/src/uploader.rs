//! Uploading the tails of `local` partitions: cut, store, commit, trim.
//!
//! What is cut at one moment goes into as few objects as possible: a partition with enough bytes gets its own,
//! the rest share. Several uploads fly at once; they are committed in the order of their cuts, because a segment
//! must start where the one before ended. A store or a controller that can't be reached makes this wait and try
//! again; it never gives up and never drops a cut.
//!
//! What was sealed by a former leader may be committed by that one, or by this broker, whoever comes first. Who
//! comes second takes the other's segments into its map and goes on behind them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tidegate_metadata::api::{
    CommitObjects, CommitObjectsError, CommitRefused, ObjectOutcome, SegmentOutcome,
    StaleBrokerEpoch,
};
use tidegate_metadata::{ByteSpan, ControllerApi, ObjectCommit, SegmentCommit, StoredObjectKey};
use tidegate_object_storage::{ObjectKey, ObjectStorage, PutOutcome};
use tidegate_runtime::SharedClock;
use tidegate_segment_format::{BuiltObject, ByteRange, ObjectBuilder, SegmentInfo, WriterIdentity};
use tidegate_types::{BrokerEpoch, BrokerId, Offset, PartitionId, TimestampMs};
use tidegate_wal::WalPosition;
use tidegate_wal::local::LocalWal;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::fetch::LogReader;
use crate::incoming::mapped_end;
use crate::log::{LogContext, PartitionLog, ReadError, UploadCut};
use crate::metrics::UploadMetrics;
use crate::open::segments_from;
use crate::segments::{Segment, SegmentObject};
use crate::set::LogSet;
use crate::tail::WalNeed;

/// How often the age of waiting bytes is looked at.
const TICK: Duration = Duration::from_millis(250);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Segment maps completed at once.
const MAPS_AT_ONCE: usize = 16;

/// When and how much is uploaded.
#[derive(Debug, Clone, Copy)]
pub struct UploadLimits {
    /// A cut is due when so many bytes wait, over all partitions; also the size of a shared object.
    pub size_bytes: u64,
    /// A partition with so many waiting bytes gets an object of its own.
    pub own_object_bytes: u64,
    /// A cut is due when bytes have waited for so long.
    pub age: Duration,
    /// Uploads under way at once.
    pub in_flight: usize,
    /// Blocks are cut at about this size.
    pub block_bytes: usize,
}

/// Who writes: this registration of this broker.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    pub broker: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// Random per process: tells an own lost reply from somebody else's object.
    pub nonce: u64,
}

/// This broker may commit no more: another process has its identity, or an invariant is broken.
#[derive(Debug, thiserror::Error)]
pub enum UploadStopped {
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    #[error("object {0} exists already with other contents")]
    KeyTaken(ObjectKey),
    #[error("what {partition} has in the local WAL can't be read back")]
    WalUnreadable {
        partition: PartitionId,
        source: ReadError,
    },
}

impl UploadStopped {
    /// This broker's registration was replaced: the broker may register anew.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::StaleBrokerEpoch(_))
    }
}

/// Uploads what the local WAL holds.
pub struct Uploader {
    pub context: Arc<LogContext>,
    pub logs: Arc<LogSet>,
    pub storage: ObjectStorage,
    pub controller: Arc<dyn ControllerApi>,
    pub reader: LogReader,
    pub local_wal: Arc<LocalWal>,
    pub writer: Writer,
    pub limits: UploadLimits,
    pub clock: SharedClock,
    pub metrics: UploadMetrics,
}

pub(crate) struct Uploaded {
    cuts: Vec<UploadCut>,
    commit: ObjectCommit,
    object: Arc<SegmentObject>,
    segments: Vec<SegmentInfo>,
}

impl Uploader {
    /// Runs until cancelled. What is in the local WAL then stays there for the next start.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), UploadStopped> {
        let mut sequence = 0u64;
        let mut groups: VecDeque<Vec<UploadCut>> = VecDeque::new();
        let mut flights = FuturesOrdered::new();
        loop {
            if groups.is_empty() {
                groups = self.due_groups();
            }
            while flights.len() < self.limits.in_flight
                && let Some(group) = groups.pop_front()
            {
                sequence += 1;
                flights.push_back(self.upload(group, sequence));
            }
            // Every branch is cancel-safe: a flight that wasn't ready stays in the set, the bell keeps its
            // permit and a tick carries nothing.
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                Some(uploaded) = flights.next(), if !flights.is_empty() => {
                    if let Some(uploaded) = uploaded? {
                        tokio::select! {
                            () = cancel.cancelled() => return Ok(()),
                            committed = self.commit(uploaded) => committed?,
                        }
                    }
                }
                () = self.context.upload_bell.notified() => {}
                // What isn't needed any more may be so without a commit: its topic is gone, or a crash came
                // between the commit and the trim.
                () = tokio::time::sleep(TICK) => {
                    tokio::select! {
                        () = cancel.cancelled() => return Ok(()),
                        () = self.complete_maps() => {}
                    }
                    self.trim();
                }
            }
        }
    }

    /// Cuts what is due and sorts it into objects.
    fn due_groups(&self) -> VecDeque<Vec<UploadCut>> {
        let waiting = self.context.unstored_bytes.load(Ordering::Relaxed);
        self.metrics
            .waiting_bytes
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        if waiting == 0 {
            return VecDeque::new();
        }
        let now = self.clock.now();
        let logs: Vec<(Arc<PartitionLog>, Instant)> = self
            .logs
            .all()
            .into_iter()
            .filter_map(|log| log.waiting_since(now).map(|since| (log, since)))
            .collect();
        let old = |since: Instant, age: Duration| now.saturating_duration_since(since) >= age;
        let by_size = waiting >= self.limits.size_bytes;
        // Appends wait for a switch.
        let by_age = logs
            .iter()
            .any(|(log, since)| old(*since, self.limits.age) || log.switching());
        if !by_size && !by_age {
            return VecDeque::new();
        }
        // A cut takes along what is nearly due, so that small partitions share objects.
        let cuts = logs
            .into_iter()
            .filter(|(log, since)| by_size || log.switching() || old(*since, self.limits.age / 2))
            .filter_map(|(log, _)| log.cut());
        let mut groups = VecDeque::new();
        let mut shared = Vec::new();
        let mut shared_bytes = 0;
        for cut in cuts {
            if cut.bytes >= self.limits.own_object_bytes {
                groups.push_back(vec![cut]);
                continue;
            }
            shared_bytes += cut.bytes;
            shared.push(cut);
            if shared_bytes >= self.limits.size_bytes {
                groups.push_back(std::mem::take(&mut shared));
                shared_bytes = 0;
            }
        }
        if !shared.is_empty() {
            groups.push_back(shared);
        }
        groups
    }

    /// Stores one object. `None` if all its logs are closed meanwhile.
    pub(crate) async fn upload(
        &self,
        mut cuts: Vec<UploadCut>,
        sequence: u64,
    ) -> Result<Option<Uploaded>, UploadStopped> {
        let Writer {
            broker,
            broker_epoch,
            nonce,
        } = self.writer;
        let identity = WriterIdentity {
            broker,
            broker_epoch,
            sequence,
            nonce,
        };
        let mut builder = ObjectBuilder::new(identity, self.limits.block_bytes);
        let mut kept = Vec::with_capacity(cuts.len());
        for mut cut in cuts.drain(..) {
            // An error means that the log was closed or its WAL failed: then nothing of the cut was promised,
            // or it is found again by recovery.
            if (&mut cut.durable).await.is_ok() && self.add(&mut builder, &cut).await? {
                kept.push(cut);
            }
        }
        if kept.is_empty() {
            return Ok(None);
        }
        let built = builder.finish();
        let key = ObjectKey::upload(broker, broker_epoch, sequence);
        self.put(&key, &built).await?;
        self.metrics.objects.inc();
        self.metrics.bytes.inc_by(built.size_bytes);
        let commit = object_commit(&key, built.size_bytes, built.index, None, &built.segments);
        let object = Arc::new(SegmentObject {
            key,
            size_bytes: built.size_bytes,
            index: built.index,
        });
        Ok(Some(Uploaded {
            cuts: kept,
            commit,
            object,
            segments: built.segments,
        }))
    }

    /// Adds a cut whole or not at all: a segment that ends before its checkpoint must never be stored. `false` if
    /// its log is closed, whose part of the WAL may be trimmed already.
    async fn add(
        &self,
        builder: &mut ObjectBuilder,
        cut: &UploadCut,
    ) -> Result<bool, UploadStopped> {
        let partition = cut.log.id();
        let mut batches = cut.log.cut_batches(cut.range);
        for batch in &mut batches {
            if batch.bytes.is_none() {
                let extent = batch
                    .wal
                    .expect("bytes are dropped only once the WAL holds them");
                match self.reader.spilled(extent).await {
                    Ok(bytes) => batch.bytes = Some(bytes),
                    Err(_) if cut.log.is_closed() => return Ok(false),
                    Err(source) => {
                        return Err(UploadStopped::WalUnreadable { partition, source });
                    }
                }
            }
        }
        for batch in batches {
            let Some(bytes) = batch.bytes else { continue };
            builder.add_batches(
                partition,
                cut.leader_epoch,
                batch.range,
                bytes,
                batch.max_timestamp,
                u64::from(batch.record_count),
            );
        }
        builder.set_checkpoint(partition, cut.checkpoint.clone());
        Ok(true)
    }

    /// Stores the object, however long it takes.
    async fn put(&self, key: &ObjectKey, built: &BuiltObject) -> Result<(), UploadStopped> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.storage.put_create(key, built.payload.clone()).await {
                Ok(PutOutcome::Created) => return Ok(()),
                Ok(PutOutcome::AlreadyExists) => {
                    return match self.is_ours(key, built).await {
                        true => Ok(()),
                        false => Err(UploadStopped::KeyTaken(key.clone())),
                    };
                }
                Err(error) => {
                    warn!(object = %key, error = &error as &dyn std::error::Error, "upload failed and is tried again");
                }
            }
            self.metrics.retries.inc();
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Whether an object that exists is this very one, stored by an attempt whose reply was lost.
    async fn is_ours(&self, key: &ObjectKey, built: &BuiltObject) -> bool {
        let mut pause = FIRST_RETRY;
        loop {
            match self
                .storage
                .get_tail(key, tidegate_segment_format::FOOTER_BYTES as u64)
                .await
            {
                Ok((tail, size)) => {
                    let stored = tidegate_segment_format::decode_footer(&tail);
                    return size == built.size_bytes
                        && stored.is_ok_and(|footer| {
                            tidegate_segment_format::same_object(&footer, &built.footer)
                        });
                }
                Err(error) => {
                    warn!(object = %key, error = &error as &dyn std::error::Error, "reading an upload back failed and is tried again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Commits an object, however long it takes, without the segments that metadata doesn't take.
    pub(crate) async fn commit(&self, uploaded: Uploaded) -> Result<(), UploadStopped> {
        let Uploaded {
            mut cuts,
            mut commit,
            object,
            segments,
        } = uploaded;
        let outcomes = loop {
            cuts.retain(|cut| cut.log.is_current(cut));
            commit
                .segments
                .retain(|s| cuts.iter().any(|cut| cut.log.id() == s.partition));
            // Without segments, too: so metadata knows that the object may be deleted.
            let committed = commit_until_answered(
                &*self.controller,
                self.writer,
                vec![commit.clone()],
                &self.metrics,
            );
            match committed.await? {
                Ok(mut outcomes) => break outcomes.pop().map(|o| o.segments).unwrap_or_default(),
                Err(refused) => self.refused(&refused, &mut cuts),
            }
        };
        let outcomes: HashMap<PartitionId, SegmentOutcome> = commit
            .segments
            .iter()
            .map(|s| s.partition)
            .zip(outcomes)
            .collect();
        for cut in &cuts {
            let id = cut.log.id();
            let info = segments.iter().find(|info| info.partition == id);
            if let (Some(info), Some(outcome)) = (info, outcomes.get(&id)) {
                self.committed(
                    &cut.log,
                    segment_of(&object, info, self.clock.wall()),
                    *outcome,
                );
            }
        }
        self.complete_maps().await;
        self.trim();
        Ok(())
    }

    /// Takes in what became of one segment.
    fn committed(&self, log: &PartitionLog, segment: Segment, outcome: SegmentOutcome) {
        match outcome {
            SegmentOutcome::Committed { committed_end } => {
                // Of a sealed range nobody knows whose object it was.
                if !log.was_sealed(segment.range.start()) {
                    log.stored(segment);
                }
                log.uploaded(committed_end);
            }
            SegmentOutcome::Overtaken { committed_end } => {
                self.restart(log, Some(committed_end), None);
            }
            SegmentOutcome::TopicDeleted => log.close(),
            SegmentOutcome::Superseded { sealed_end } => {
                warn!(partition = %log.id(), sealed_end = %sealed_end, "another broker has sealed this partition");
                log.close();
            }
        }
    }

    /// Takes the partition that a commit was refused for out of it; its log cuts anew.
    fn refused(&self, refused: &CommitRefused, cuts: &mut Vec<UploadCut>) {
        let hold_until = Some(self.clock.now() + LAST_RETRY);
        let (partition, committed_end, hold_until) = match refused {
            CommitRefused::NotContiguous {
                partition,
                committed_end,
                ..
            } => (Some(*partition), Some(*committed_end), None),
            CommitRefused::NotLeader { partition, .. }
            | CommitRefused::UnknownLeaderEpoch { partition, .. } => {
                (Some(*partition), None, hold_until)
            }
            CommitRefused::SequenceGap { .. }
            | CommitRefused::ObjectDropped { .. }
            | CommitRefused::Malformed { .. } => (None, None, hold_until),
        };
        warn!(partition = ?partition, error = refused as &dyn std::error::Error, "metadata refused an upload");
        cuts.retain(|cut| {
            let concerns = partition.is_none_or(|partition| partition == cut.log.id());
            if concerns {
                self.restart(&cut.log, committed_end, hold_until);
            }
            !concerns
        });
    }

    fn restart(
        &self,
        log: &PartitionLog,
        committed_end: Option<Offset>,
        hold_until: Option<Instant>,
    ) {
        if log.is_closed() || log.restart_uploads(committed_end, hold_until) {
            return;
        }
        error!(partition = %log.id(), committed_end = ?committed_end, "metadata has lost a part of this partition that was committed");
        log.fail("metadata has lost a part of it".into());
    }

    /// Completes the segment maps of logs of which other brokers committed a part.
    async fn complete_maps(&self) {
        let behind = self.logs.all().into_iter().filter_map(|log| {
            let missing = log.unmapped()?;
            Some((log, missing))
        });
        let behind: Vec<_> = behind.collect();
        let mut completed = futures::stream::iter(behind)
            .map(async |(log, missing)| {
                let more = segments_from(&*self.controller, log.id(), missing.start()).await;
                (log, missing, more)
            })
            .buffer_unordered(MAPS_AT_ONCE);
        while let Some((log, missing, more)) = completed.next().await {
            match more {
                Ok(segments) => {
                    let end = mapped_end(&segments, missing.end());
                    log.mapped(segments, end);
                }
                Err(error) => {
                    warn!(partition = %log.id(), error = &error as &dyn std::error::Error, "the segment map is completed later");
                }
            }
        }
    }

    /// Frees the WAL below everything that some log still needs.
    fn trim(&self) {
        // Read first: what becomes durable from here on lies behind them.
        let observed = WalPosition::new(self.context.observed_wal.load(Ordering::Acquire));
        let mut floor = self.local_wal.durable_end();
        let mut needed = WalPosition::new(self.context.pinned_wal.load(Ordering::Acquire));
        for log in self.logs.all_with_incoming() {
            match log.wal_need() {
                WalNeed::Nothing => {}
                WalNeed::From(position) => needed = needed.min(position),
                // Its entry may be durable without its log having been told.
                WalNeed::Pending => floor = floor.min(observed),
            }
        }
        self.local_wal.trim(needed.min(floor));
    }
}

/// The segment that a stored object holds of one partition.
pub fn segment_of(
    object: &Arc<SegmentObject>,
    info: &SegmentInfo,
    stored_at: TimestampMs,
) -> Segment {
    Segment {
        range: info.range,
        object: object.clone(),
        position: info.position,
        length: info.length,
        max_timestamp: info.max_timestamp,
        stored_at,
    }
}

/// The commit of a stored object.
pub fn object_commit(
    key: &ObjectKey,
    size_bytes: u64,
    index: ByteRange,
    wal_sequence: Option<u64>,
    segments: &[SegmentInfo],
) -> ObjectCommit {
    let span = |range: ByteRange| ByteSpan {
        position: range.position,
        length: range.length,
    };
    ObjectCommit {
        key: StoredObjectKey::new(key.as_str()).expect("object keys are short printable ASCII"),
        size_bytes,
        index: span(index),
        wal_sequence,
        segments: segments
            .iter()
            .map(|s| SegmentCommit {
                partition: s.partition,
                leader_epoch: s.leader_epoch,
                range: s.range,
                span: ByteSpan {
                    position: s.position,
                    length: s.length,
                },
                max_timestamp: s.max_timestamp,
                record_count: s.record_count,
                checkpoint: s.checkpoint.map(span),
            })
            .collect(),
    }
}

/// Commits objects, however long the controller takes to be reached. The inner error: it refused them, and may
/// take others.
pub(crate) async fn commit_until_answered(
    controller: &dyn ControllerApi,
    writer: Writer,
    objects: Vec<ObjectCommit>,
    metrics: &UploadMetrics,
) -> Result<Result<Vec<ObjectOutcome>, CommitRefused>, StaleBrokerEpoch> {
    let request = CommitObjects {
        broker: writer.broker,
        broker_epoch: writer.broker_epoch,
        objects,
    };
    let mut pause = FIRST_RETRY;
    loop {
        match controller.commit_objects(request.clone()).await {
            Ok(outcomes) => {
                metrics.commits.inc();
                return Ok(Ok(outcomes));
            }
            Err(CommitObjectsError::Unavailable(cause)) => {
                warn!(
                    error = &cause as &dyn std::error::Error,
                    "commit of objects is tried again"
                );
            }
            Err(CommitObjectsError::StaleBrokerEpoch(stale)) => return Err(stale),
            Err(CommitObjectsError::Refused(refused)) => return Ok(Err(refused)),
        }
        metrics.retries.inc();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
}
