//! Rebuilding a coordinator from its partition's log.

use std::time::Duration;

use bytes::Bytes;
use tidegate_coordinator::{GroupCoordinator, RecordError};
use tidegate_partition_log::{Isolation, ReadError, ReadRequest};
use tidegate_record_batch::{BatchError, Batches, ControlMarker, RecordsError, records};
use tidegate_types::Offset;
use tracing::{debug, error, info, warn};

use super::actor::Actor;

/// Bytes read from the log at once.
const READ_BYTES: usize = 1 << 20;
/// The most that a compressed batch may grow to. This broker writes them uncompressed.
const BATCH_BYTES: usize = 64 << 20;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How loading ended.
pub(super) enum Load {
    Done,
    /// The partition was closed meanwhile.
    Closed,
    /// The log can't be understood; logged already.
    Failed,
}

/// Why the log's records can't be taken in.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("a batch of the log is damaged")]
    Batch(#[from] BatchError),
    #[error("the records of a batch can't be read")]
    Records(#[from] RecordsError),
    #[error("a record has no key")]
    NoKey,
    #[error("a record can't be read")]
    Record(#[from] RecordError),
}

impl Actor {
    /// Reads the log up to the end it had when loading began, answering requests meanwhile. A store that can't be
    /// reached is tried again.
    pub(super) async fn load(&mut self) -> Load {
        let started = self.parts.clock.now();
        let Ok(borders) = self.parts.log.watermarks() else {
            return Load::Closed;
        };
        let (mut next, end) = (borders.log_start, borders.log_end);
        let mut pause = FIRST_RETRY;
        while next < end {
            let (reader, log) = (self.parts.reader.clone(), self.parts.log.clone());
            let request = ReadRequest {
                offset: next,
                max_bytes: READ_BYTES,
                first_whole: true,
                isolation: Isolation::ReadUncommitted,
            };
            let Some(read) = self
                .serve_while(async { reader.read(&log, request).await })
                .await
            else {
                return Load::Closed;
            };
            match read {
                Ok(read) if !read.batches.is_empty() => {
                    pause = FIRST_RETRY;
                    match replay(&mut self.parts.coordinator, read.batches, next) {
                        Ok(reached) => next = reached,
                        Err(error) => return self.load_failed(&error),
                    }
                    continue;
                }
                // What is left was compacted away.
                Ok(read) if read.watermarks.high_watermark >= end => break,
                // An earlier coordinator's appends are not durable yet.
                Ok(_) => {}
                Err(ReadError::NotLeader) => return Load::Closed,
                // The log's start moved while we read: what is gone was deleted on purpose.
                Err(ReadError::OutOfRange { watermarks, .. }) if watermarks.log_start > next => {
                    next = watermarks.log_start;
                    continue;
                }
                Err(error @ ReadError::OutOfRange { .. }) => return self.load_failed(&error),
                Err(error @ (ReadError::Store(_) | ReadError::Wal(_))) => {
                    warn!(partition = %self.parts.log.id(), error = &error as &dyn std::error::Error, "group coordinator can't read its log yet");
                }
            }
            if self.serve_while(tokio::time::sleep(pause)).await.is_none() {
                return Load::Closed;
            }
            pause = (pause * 2).min(LAST_RETRY);
        }
        self.show_view();
        let now = self.parts.clock.now();
        match self.parts.coordinator.loaded(now) {
            Ok(effects) => self.carry_out(effects),
            Err(error) => return self.load_failed(&error),
        }
        self.delete_topics();
        self.report(now.monotonic_ms.saturating_sub(started.monotonic_ms));
        Load::Done
    }

    fn report(&self, took_ms: u64) {
        let (partition, groups) = (self.parts.log.id(), self.parts.coordinator.group_count());
        let skipped = self.parts.coordinator.skipped_records();
        if skipped > 0 {
            warn!(%partition, skipped, "the log has group records of unknown types");
        }
        if groups > 0 {
            info!(%partition, groups, took_ms, "groups loaded");
        } else {
            debug!(%partition, took_ms, "no groups to load");
        }
    }

    fn load_failed(&self, error: &(dyn std::error::Error + 'static)) -> Load {
        error!(partition = %self.parts.log.id(), error, "groups can't be loaded; the partition is not served");
        Load::Failed
    }
}

/// Feeds batches to the coordinator from offset `next` on, and says which offset comes after them.
fn replay(
    coordinator: &mut GroupCoordinator,
    batches: Vec<Bytes>,
    next: Offset,
) -> Result<Offset, ReplayError> {
    let mut reached = next;
    for batch in batches.into_iter().flat_map(Batches::headers_only) {
        let batch = batch?;
        let header = *batch.header();
        reached = reached.max(header.end_offset());
        let producer = header.producer().map(|producer| producer.id);
        if header.is_control() {
            // Other kinds of control batches are skipped.
            if let (Ok(marker), Some(producer)) = (ControlMarker::decode(&batch), producer) {
                coordinator.replay_marker(producer, marker.commit);
            }
            continue;
        }
        let transaction = producer.filter(|_| header.is_transactional());
        for record in records(&batch, BATCH_BYTES)? {
            // The first batch may begin before the log's start.
            if record.offset >= next {
                let key = record.key.as_deref().ok_or(ReplayError::NoKey)?;
                let value = record.value.as_deref();
                match transaction {
                    Some(producer) => coordinator.replay_transactional(producer, key, value)?,
                    None => coordinator.replay(key, value)?,
                }
            }
        }
    }
    Ok(reached)
}
