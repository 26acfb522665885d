//! Registering the objects of the object WAL in metadata, about once a second.
//!
//! A WAL object is durable and acknowledged before metadata knows of it; recovery would find it by its number.
//! The commit only bounds how far recovery has to walk, and lets other brokers see the segments. The WAL itself
//! refuses appends when too many objects wait for their commit.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_metadata::api::SegmentOutcome;
use tidegate_metadata::{ControllerApi, ObjectCommit};
use tidegate_types::TimestampMs;
use tidegate_wal::object::{LogObjectName, ObjectWal, RecoveredObject, WrittenObject, WrittenSink};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

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
            let commits = chunk.iter().map(written_commit).collect();
            let outcomes =
                commit_until_answered(&*self.controller, self.writer, commits, &self.metrics)
                    .await?;
            self.take_in(&chunk, outcomes.into_iter().flat_map(|o| o.segments));
            self.wal.committed(last.object.sequence + 1);
            let mut written = self.backlog.written.lock();
            written.drain(..chunk.len());
            self.metrics
                .uncommitted_objects
                .set(i64::try_from(written.len()).unwrap_or(i64::MAX));
        }
    }

    fn take_in(&self, objects: &[WrittenObject], outcomes: impl Iterator<Item = SegmentOutcome>) {
        let partitions = objects
            .iter()
            .flat_map(|o| &o.segments)
            .map(|s| s.partition);
        for (partition, outcome) in partitions.zip(outcomes) {
            let Some(log) = self.logs.get(partition) else {
                continue;
            };
            match outcome {
                SegmentOutcome::Committed { committed_end }
                | SegmentOutcome::Overtaken { committed_end } => log.uploaded(committed_end),
                SegmentOutcome::TopicDeleted => log.close(),
                SegmentOutcome::Superseded { sealed_end } => {
                    warn!(partition = %partition, sealed_end = %sealed_end, "another broker has sealed this partition");
                    log.close();
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
