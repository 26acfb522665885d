//! What serving is made of: writers, WALs, caches, and the logs that this broker leads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_metadata::api::LeadershipTaken;
use tidegate_object_storage::RequestClass;
use tidegate_partition_log::{
    LogContext, LogOpener, LogReader, LogSet, ObjectBacklog, ObjectLog, ReaderLimits,
    SegmentReader, TailBudget, Writer,
};
use tidegate_types::PartitionId;
use tidegate_wal::object::{LogWriter, ObjectWal, ObjectWalOptions, ObjectWalSeams};
use tokio::sync::Notify;
use tracing::warn;

use super::join::Joined;
use super::reconcile::open_all;
use super::startup::{Fatal, Startup};
use crate::catalog::Catalog;

/// What serving is made of.
pub(super) struct Parts {
    pub(super) writer: Writer,
    pub(super) logs: Arc<LogSet>,
    pub(super) context: Arc<LogContext>,
    pub(super) opener: LogOpener,
    pub(super) reader: LogReader,
    pub(super) backlog: Arc<ObjectBacklog>,
    pub(super) object_wal: ObjectWal,
}

impl Startup {
    pub(super) fn build(&self, joined: &Joined) -> Result<Parts, Fatal> {
        let broker_epoch = joined.broker_epoch;
        let settings = &self.settings;
        let writer = Writer {
            broker: joined.broker,
            broker_epoch,
            nonce: self.random.next_u64(),
        };
        let logs = Arc::new(LogSet::default());
        let memory = settings.memory;
        let limits = ReaderLimits {
            block_cache_bytes: memory.block_cache_bytes,
            index_cache_bytes: memory.index_cache_bytes,
            in_flight_bytes: memory.catch_up_bytes,
        };
        let read_storage = self.storage.with_class(RequestClass::Read);
        let segments = SegmentReader::new(
            read_storage,
            limits,
            self.tasks.clone(),
            self.metrics.read.clone(),
        );
        let options = ObjectWalOptions {
            max_object_bytes: settings.object_wal.object_bytes,
            max_linger: settings.object_wal.linger,
            max_in_flight: settings.object_wal.in_flight,
            pending_bytes: settings.object_wal.pending_bytes,
            block_target_bytes: settings.upload.block_bytes,
            ..ObjectWalOptions::default()
        };
        let backlog = Arc::new(ObjectBacklog::new(logs.clone(), self.clock.clone()));
        let log_writer = LogWriter {
            broker: writer.broker,
            broker_epoch,
            first_sequence: 0,
        };
        let seams = ObjectWalSeams {
            store: Arc::new(ObjectLog::new(self.storage.with_class(RequestClass::Wal))),
            clock: self.clock.clone(),
            random: self.random.clone(),
            tasks: self.tasks.clone(),
            metrics: self.metrics.object_wal.clone(),
        };
        let object_wal = ObjectWal::start(log_writer, options, backlog.clone(), seams)?;
        let context = Arc::new(LogContext {
            clock: self.clock.clone(),
            local_wal: Arc::new(self.local_wal.clone()),
            object_wal: Arc::new(object_wal.clone()),
            tail_budget: Arc::new(TailBudget::new(memory.tail_bytes)),
            producer_expiration: settings.producer_expiration,
            upload_bell: Notify::new(),
            upload_size_bytes: settings.upload.size_bytes,
            unstored_bytes: AtomicU64::new(0),
            observed_wal: AtomicU64::new(0),
            pinned_wal: AtomicU64::new(u64::MAX),
        });
        let opener = LogOpener {
            context: context.clone(),
            controller: joined.controller.clone(),
            reader: segments.clone(),
            clock: self.clock.clone(),
        };
        let reader = LogReader::new(segments, Arc::new(self.local_wal.clone()));
        Ok(Parts {
            writer,
            logs,
            context,
            opener,
            reader,
            backlog,
            object_wal,
        })
    }

    /// Opens all logs that this broker leads, many at once.
    pub(super) async fn open_logs(
        &mut self,
        joined: &Joined,
        parts: &Parts,
        taken: LeadershipTaken,
    ) {
        let image = joined.images.borrow().clone();
        let catalog = Catalog::new(image, &self.settings.broker.topic_defaults, joined.broker);
        let oldest = self.recovered.oldest();
        let mine: HashSet<PartitionId> = taken
            .partitions
            .iter()
            .map(|state| state.partition)
            .chain(taken.withheld.iter().map(|withheld| withheld.partition))
            .collect();
        let mut recovered = HashMap::new();
        for state in &taken.partitions {
            recovered.insert(state.partition, self.recovered.take(state.partition));
        }
        open_all(
            &parts.opener,
            &parts.logs,
            &catalog,
            taken.partitions,
            recovered,
        )
        .await;
        // What the WAL holds of a partition that should be open here and isn't stays in it. What others lead by now
        // was handed over with everything that counts.
        let pinned = oldest
            .into_iter()
            .filter(|(partition, _)| mine.contains(partition))
            .filter(|(partition, _)| parts.logs.get(*partition).is_none())
            .map(|(_, position)| position)
            .min();
        if let Some(position) = pinned {
            warn!(position = %position, "the write-ahead log keeps records of partitions that are not open here");
            parts
                .context
                .pinned_wal
                .store(position.get(), std::sync::atomic::Ordering::Release);
        }
    }
}
