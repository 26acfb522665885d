//! Registering the objects of the object WAL in metadata, about once a second.
//!
//! A WAL object is durable and acknowledged before metadata knows of it; recovery would find it by its number.
//! The commit only bounds how far recovery has to walk, and lets other brokers see the segments. The WAL itself
//! refuses appends when too many objects wait for their commit.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_metadata::api::{CommitRefused, ObjectOutcome, SegmentOutcome};
use tidegate_metadata::{ControllerApi, ObjectCommit};
use tidegate_types::{PartitionId, TimestampMs};
use tidegate_wal::object::{LogObjectName, ObjectWal, RecoveredObject, WrittenObject, WrittenSink};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::metrics::UploadMetrics;
use crate::object_log_store::log_object_key;
use crate::segments::SegmentObject;
use crate::set::LogSet;
use crate::uploader::{UploadStopped, Writer, commit_until_answered, object_commit, segment_of};
use tidegate_runtime::SharedClock;

/// So many objects don't wait for the second to end.
const EARLY: usize = 128;
/// Objects in one commit.
const CHUNK: usize = 256;
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Takes in what the object WAL has written.
pub struct ObjectBacklog {
    logs: Arc<LogSet>,
    clock: SharedClock,
    written: Mutex<Vec<WrittenObject>>,
    bell: Notify,
}

impl ObjectBacklog {
    pub fn new(logs: Arc<LogSet>, clock: SharedClock) -> Self {
        Self {
            logs,
            clock,
            written: Mutex::new(Vec::new()),
            bell: Notify::new(),
        }
    }

    /// Commits what waits without waiting for the second to end: a partition is about to be handed over, and the
    /// commit of its move, for which its clients wait, shall have little left to bring.
    pub fn hurry(&self) {
        self.bell.notify_one();
    }

    /// The WAL's objects that no commit is known to cover, in the order of their numbers. They hold everything
    /// durable in `object` mode that metadata may not have: an object is here before the logs hear that their
    /// entries in it are durable, so before a seal answers.
    pub fn uncommitted(&self) -> Vec<ObjectCommit> {
        self.written.lock().iter().map(written_commit).collect()
    }
}

fn name_of(object: &WrittenObject) -> LogObjectName {
    let written = &object.object;
    LogObjectName {
        broker: written.broker,
        broker_epoch: written.broker_epoch,
        sequence: written.sequence,
    }
}

impl WrittenSink for ObjectBacklog {
    fn written(&self, object: WrittenObject) {
        let shared = Arc::new(SegmentObject {
            key: log_object_key(name_of(&object)),
            size_bytes: object.object.size_bytes,
            index: object.index,
        });
        let now: TimestampMs = self.clock.wall();
        for info in &object.segments {
            if let Some(log) = self.logs.get(info.partition) {
                log.stored(segment_of(&shared, info, now));
            }
        }
        let mut written = self.written.lock();
        written.push(object);
        if written.len() >= EARLY {
            self.bell.notify_one();
        }
    }
}

/// Commits the backlog.
pub struct ObjectCommitter {
    pub backlog: Arc<ObjectBacklog>,
    pub logs: Arc<LogSet>,
    pub wal: ObjectWal,
    pub controller: Arc<dyn ControllerApi>,
    pub writer: Writer,
    pub interval: Duration,
    pub metrics: UploadMetrics,
}

impl ObjectCommitter {
    /// Runs until cancelled; what isn't committed then is found by recovery.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), UploadStopped> {
        loop {
            // Cancel-safe: nothing is taken from the backlog before the select is over.
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                () = self.backlog.bell.notified() => {}
                () = tokio::time::sleep(self.interval) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                done = self.commit_all() => done?,
            }
        }
    }

    /// Commits everything written so far.
    async fn commit_all(&self) -> Result<(), UploadStopped> {
        loop {
            let chunk: Vec<WrittenObject> = {
                let written = self.backlog.written.lock();
                written.iter().take(CHUNK).cloned().collect()
            };
            let Some(last) = chunk.last() else {
                return Ok(());
            };
            self.commit(&chunk).await?;
            self.wal.committed(last.object.sequence + 1);
            let mut written = self.backlog.written.lock();
            written.drain(..chunk.len());
            self.metrics
                .uncommitted_objects
                .set(i64::try_from(written.len()).unwrap_or(i64::MAX));
        }
    }

    /// Commits objects, however long it takes.
    async fn commit(&self, objects: &[WrittenObject]) -> Result<(), UploadStopped> {
        let mut commits: Vec<ObjectCommit> = objects.iter().map(written_commit).collect();
        let mut pause = FIRST_RETRY;
        loop {
            let committed = commit_until_answered(
                &*self.controller,
                self.writer,
                commits.clone(),
                &self.metrics,
            );
            match committed.await? {
                Ok(outcomes) => {
                    self.take_in(&commits, outcomes);
                    return Ok(());
                }
                Err(refused) => {
                    if !self.leave_out(&refused, &mut commits) {
                        error!(
                            error = &refused as &dyn std::error::Error,
                            "metadata refuses what the object WAL holds; commits wait"
                        );
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LAST_RETRY);
                    }
                }
            }
        }
    }

    /// Takes a partition out of the commit that this broker doesn't lead any more: whoever leads it holds all that
    /// was acknowledged. Of one that it leads nothing may be left out.
    fn leave_out(&self, refused: &CommitRefused, commits: &mut [ObjectCommit]) -> bool {
        let (key, partition) = match refused {
            CommitRefused::NotContiguous {
                object, partition, ..
            }
            | CommitRefused::UnknownLeaderEpoch {
                object, partition, ..
            }
            | CommitRefused::NotLeader {
                object, partition, ..
            } => (object, *partition),
            CommitRefused::SequenceGap { .. }
            | CommitRefused::ObjectDropped { .. }
            | CommitRefused::Malformed { .. } => return false,
        };
        let Some(commit) = commits.iter_mut().find(|commit| commit.key == *key) else {
            return false;
        };
        let leads = |epoch| {
            let log = self.logs.get(partition);
            log.is_some_and(|log| log.leader_epoch() == epoch)
        };
        let before = commit.segments.len();
        commit
            .segments
            .retain(|s| s.partition != partition || leads(s.leader_epoch));
        let left_out = commit.segments.len() < before;
        if left_out {
            warn!(partition = %partition, error = refused as &dyn std::error::Error, "a part of a WAL object isn't committed: another broker leads");
        }
        left_out
    }

    fn take_in(&self, commits: &[ObjectCommit], outcomes: Vec<ObjectOutcome>) {
        let segments = commits.iter().flat_map(|commit| &commit.segments);
        let outcomes = outcomes.into_iter().flat_map(|o| o.segments);
        for (segment, outcome) in segments.zip(outcomes) {
            let partition: PartitionId = segment.partition;
            let Some(log) = self.logs.get(partition) else {
                continue;
            };
            match outcome {
                SegmentOutcome::Committed { committed_end }
                | SegmentOutcome::Overtaken { committed_end } => log.uploaded(committed_end),
                SegmentOutcome::TopicDeleted => log.close(),
                SegmentOutcome::Superseded { sealed_end } => {
                    warn!(partition = %partition, sealed_end = %sealed_end, "another broker has sealed this partition");
                    // It may be led here again, under a later leader epoch.
                    if log.leader_epoch() == segment.leader_epoch {
                        log.close();
                    }
                }
            }
        }
    }
}

fn written_commit(object: &WrittenObject) -> ObjectCommit {
    let name = name_of(object);
    object_commit(
        &log_object_key(name),
        object.object.size_bytes,
        object.index,
        Some(name.sequence),
        &object.segments,
    )
}

/// The commit of an object that recovery found.
pub fn recovered_commit(object: &RecoveredObject) -> ObjectCommit {
    let name = object.name;
    object_commit(
        &log_object_key(name),
        object.size_bytes,
        object.index,
        Some(name.sequence),
        &object.segments,
    )
}
