//! Compaction by key of the partitions that this broker leads: looks for those that are due and runs one pass after
//! the other. The protocol is in `docs/protocols/compaction.md`, the rules in `tidegate-maintenance`.

mod metrics;
mod output;
mod pace;
mod pass;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_maintenance::{CompactionPolicy, StoredSegment, plan_compaction};
use tidegate_object_storage::ObjectStorage;
use tidegate_partition_log::{CompactionView, PartitionLog, SegmentReader, Writer};
use tidegate_types::{LeaderEpoch, Offset, PartitionId};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::metrics::CompactionMetrics;
use self::pass::{Pass, PassEnd};
use crate::broker::Broker;
use crate::config::{TopicCompaction, TopicSettings};

/// Passes of one partition before others get their turn: its map was full so often.
const PASSES_IN_A_ROW: usize = 16;

/// Limits of compaction.
#[derive(Debug, Clone, Copy)]
pub struct CompactionSettings {
    /// How often partitions that are due are looked for (`log.cleaner.backoff.ms`).
    pub check: Duration,
    /// What all of it takes (`log.cleaner.dedupe.buffer.size` and the like).
    pub memory_bytes: u64,
    /// What is read in a second (`log.cleaner.io.max.bytes.per.second`).
    pub bytes_per_second: u64,
    /// Fewer dirty bytes aren't worth a pass.
    pub min_dirty_bytes: u64,
}

impl CompactionSettings {
    fn key_map_bytes(&self) -> usize {
        usize::try_from(self.memory_bytes / 2).unwrap_or(usize::MAX)
    }

    /// An object is cut when it has so many bytes.
    fn object_bytes(&self) -> u64 {
        (self.memory_bytes / 4).clamp(1 << 16, 32 << 20)
    }

    /// What its reader may take: a quarter, for GETs under way and small objects that many partitions share.
    pub(crate) fn reader_limits(&self) -> tidegate_partition_log::ReaderLimits {
        tidegate_partition_log::ReaderLimits {
            block_cache_bytes: self.memory_bytes / 8,
            index_cache_bytes: self.memory_bytes / 32,
            in_flight_bytes: self.memory_bytes / 16,
        }
    }
}

/// Runs over all compacted logs that this broker leads.
pub(crate) struct Compactor {
    pub(crate) broker: Arc<Broker>,
    pub(crate) storage: ObjectStorage,
    pub(crate) reader: SegmentReader,
    pub(crate) writer: Writer,
    pub(crate) block_bytes: usize,
    pub(crate) settings: CompactionSettings,
    pub(crate) metrics: CompactionMetrics,
    /// The number of the next object.
    pub(crate) next_object: AtomicU64,
}

/// A log that is due, by what is known without asking.
struct Due {
    log: Arc<PartitionLog>,
    dirty_ratio: f64,
}

/// Up to where each partition was compacted when that was last known, and under which leader epoch.
type Cleaned = HashMap<PartitionId, (LeaderEpoch, Offset)>;

impl Compactor {
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut cleaned = Cleaned::new();
        loop {
            // Cancel-safe: a pass that is dropped leaves objects that nobody refers to, nothing else.
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(self.settings.check) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = Box::pin(self.round(&mut cleaned)) => {}
            }
        }
    }

    async fn round(&self, cleaned: &mut Cleaned) {
        let logs = self.compacted_logs();
        let led: HashSet<PartitionId> = logs.iter().map(|(log, _)| log.id()).collect();
        cleaned.retain(|id, _| led.contains(id));
        self.learn_cleaned(&logs, cleaned).await;
        let mut due: Vec<Due> = logs
            .iter()
            .filter_map(|(log, settings)| self.due(log, settings, cleaned))
            .collect();
        self.metrics
            .due
            .set(i64::try_from(due.len()).unwrap_or(i64::MAX));
        due.sort_by(|a, b| b.dirty_ratio.total_cmp(&a.dirty_ratio));
        for due in due {
            self.compact(&due.log, cleaned).await;
        }
    }

    async fn compact(&self, log: &Arc<PartitionLog>, cleaned: &mut Cleaned) {
        for _ in 0..PASSES_IN_A_ROW {
            // What is known of it may not be true any more.
            cleaned.remove(&log.id());
            match Pass::new(self, log).run().await {
                Ok(PassEnd::Done { leader_epoch, end }) => {
                    cleaned.insert(log.id(), (leader_epoch, end));
                    return;
                }
                Ok(PassEnd::MapFull) => {}
                Ok(PassEnd::Stopped(reason)) => {
                    debug!(partition = %log.id(), reason, "compaction stopped");
                    return;
                }
                Err(error) => {
                    self.metrics.failures.inc();
                    warn!(partition = %log.id(), topic = %log.topic(), error = &error as &dyn std::error::Error, "compaction is tried again later");
                    return;
                }
            }
        }
        info!(partition = %log.id(), "compaction goes on later");
    }

    fn compacted_logs(&self) -> Vec<(Arc<PartitionLog>, TopicCompaction)> {
        let logs = self.broker.logs.all().into_iter();
        logs.filter_map(|log| {
            let settings = self.topic_settings(&log)?;
            Some((log, settings))
        })
        .collect()
    }

    /// A log's settings, if its topic is compacted.
    fn topic_settings(&self, log: &PartitionLog) -> Option<TopicCompaction> {
        let catalog = self.broker.catalog.load();
        let topic = catalog.image.topic_by_id(log.id().topic)?;
        let settings: &TopicSettings = catalog.settings(topic);
        settings.cleanup.compact.then_some(settings.compaction)
    }

    /// Asks up to where partitions are compacted that were led by others before, or never looked at.
    async fn learn_cleaned(
        &self,
        logs: &[(Arc<PartitionLog>, TopicCompaction)],
        cleaned: &mut Cleaned,
    ) {
        let unknown: Vec<PartitionId> = logs
            .iter()
            .filter(|(log, _)| {
                let known = cleaned.get(&log.id());
                known.is_none_or(|(epoch, _)| *epoch != log.leader_epoch())
            })
            .map(|(log, _)| log.id())
            .collect();
        if unknown.is_empty() {
            return;
        }
        match self.broker.controller.partition_states(unknown).await {
            Ok(states) => {
                let known = states.into_iter().flatten();
                cleaned.extend(known.map(|s| (s.partition, (s.leader_epoch, s.cleaned_end))));
            }
            Err(error) => {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "compaction doesn't know yet what is compacted"
                );
            }
        }
    }

    fn due(
        &self,
        log: &Arc<PartitionLog>,
        settings: &TopicCompaction,
        cleaned: &Cleaned,
    ) -> Option<Due> {
        let (epoch, cleaned_end) = *cleaned.get(&log.id())?;
        let view = log.compaction_view().filter(|v| v.leader_epoch == epoch)?;
        let limit = view.last_stable.min(view.stored_end);
        let plan = plan_compaction(
            &stored_segments(&view),
            cleaned_end.max(view.log_start),
            limit,
            &self.policy(settings),
            self.broker.clock.wall(),
        )?;
        Some(Due {
            log: log.clone(),
            dirty_ratio: plan.dirty_ratio,
        })
    }

    fn policy(&self, settings: &TopicCompaction) -> CompactionPolicy {
        CompactionPolicy {
            min_dirty_ratio: settings.min_dirty_ratio,
            min_lag: settings.min_lag,
            max_lag: settings.max_lag,
            min_dirty_bytes: self.settings.min_dirty_bytes.min(settings.segment_bytes),
        }
    }
}

fn stored_segments(view: &CompactionView) -> Vec<StoredSegment> {
    let segments = view.segments.iter();
    segments
        .map(|s| StoredSegment {
            range: s.range,
            bytes: s.length,
            max_timestamp: s.max_timestamp,
            stored_at: s.stored_at,
        })
        .collect()
}
