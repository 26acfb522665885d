//! One pass over one log: map the dirty part, rewrite everything up to its end run by run, swap each run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_maintenance::{
    AbortedRange, Filter, FilterRules, KeyMap, LastRecord, MapEnd, Mapper, Transactions,
    plan_compaction,
};
use tidegate_metadata::api::{
    StaleBrokerEpoch, SwapInput, SwapOutcome, SwapRefused, SwapSegments, SwapSegmentsError,
};
use tidegate_metadata::{ControllerUnavailable, ObjectCommit, StoredObjectKey};
use tidegate_object_storage::{ObjectKey, PutOutcome};
use tidegate_partition_log::{
    CompactionView, OpenError, PartitionLog, Segment, SegmentObject, StoreReadError, object_commit,
    segment_of,
};
use tidegate_record_batch::BatchError;
use tidegate_segment_format::{BuiltObject, FOOTER_BYTES, WriterIdentity, same_object};
use tidegate_types::{LeaderEpoch, Offset, OffsetRange, PartitionId};
use tracing::{info, warn};

use super::output::Output;
use super::pace::Pace;
use super::{Compactor, stored_segments};
use crate::config::TopicCompaction;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// A run ends with so many segments, whatever is left of them.
const RUN_SEGMENTS: usize = 512;

/// Why a pass came to no end. What was swapped stays.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    #[error("a segment can't be read")]
    Read(#[from] StoreReadError),
    #[error("a stored batch is damaged")]
    Batch(#[from] BatchError),
    #[error("the controller can't be asked")]
    Controller(#[from] ControllerUnavailable),
    #[error("the segment map can't be read")]
    Map(#[from] OpenError),
    #[error("this broker's registration is over")]
    Stale(#[from] StaleBrokerEpoch),
    #[error("object {0} exists already with other contents")]
    KeyTaken(ObjectKey),
    #[error("the work was given up")]
    Stopped,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassEnd {
    /// Everything that was to be compacted is, up to this offset.
    Done {
        leader_epoch: LeaderEpoch,
        end: Offset,
    },
    /// The map was too small for all of it.
    MapFull,
    Stopped(&'static str),
}

/// What was found out for a pass before it reads.
struct Planned {
    view: CompactionView,
    settings: TopicCompaction,
    dirty: OffsetRange,
    aborted: Vec<AbortedRange>,
}

/// Segments that go, and what comes in their place.
#[derive(Default)]
struct Run {
    inputs: Vec<Segment>,
    outputs: Vec<ObjectCommit>,
    segments: Vec<Segment>,
}

impl Run {
    fn range(&self) -> Option<OffsetRange> {
        let (first, last) = self.inputs.first().zip(self.inputs.last())?;
        OffsetRange::new(first.range.start(), last.range.end())
    }
}

/// Ends a pass early.
enum Halt {
    Error(PassError),
    End(PassEnd),
}

impl<E: Into<PassError>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

pub(super) struct Pass<'a> {
    of: &'a Compactor,
    log: &'a Arc<PartitionLog>,
    pace: Pace,
}

impl<'a> Pass<'a> {
    pub(super) fn new(of: &'a Compactor, log: &'a Arc<PartitionLog>) -> Self {
        Self {
            of,
            log,
            pace: Pace::new(of.broker.clock.clone(), of.settings.bytes_per_second),
        }
    }

    pub(super) async fn run(mut self) -> Result<PassEnd, PassError> {
        match self.steps().await {
            Ok(end) | Err(Halt::End(end)) => Ok(end),
            Err(Halt::Error(error)) => Err(error),
        }
    }

    async fn steps(&mut self) -> Result<PassEnd, Halt> {
        let planned = self.plan().await?;
        let (map, map_end) = self.map(&planned).await?;
        let leader_epoch = planned.view.leader_epoch;
        let all = map_end >= planned.dirty.end();
        let keys = map.len();
        let filter = self.filter(&planned, map, map_end);
        let filter = self.rewrite(&planned, filter, map_end).await?;
        let stats = filter.stats();
        self.of.metrics.passes.inc();
        info!(
            partition = %self.log.id(),
            topic = %self.log.topic(),
            end = %map_end,
            keys,
            bytes_read = stats.bytes_read,
            bytes_kept = stats.bytes_kept,
            records_read = stats.records_read,
            records_kept = stats.records_kept,
            "compacted"
        );
        Ok(if all {
            PassEnd::Done {
                leader_epoch,
                end: map_end,
            }
        } else {
            PassEnd::MapFull
        })
    }

    /// Looks at the partition as metadata and log have it now.
    async fn plan(&self) -> Result<Planned, Halt> {
        let settings = self
            .of
            .topic_settings(self.log)
            .ok_or(stop("the topic isn't compacted"))?;
        let id = self.log.id();
        let states = self.of.broker.controller.partition_states(vec![id]).await?;
        let state = states.into_iter().flatten().next();
        let state = state.ok_or(stop("the topic is gone"))?;
        if !self.log.leads_under(state.leader_epoch) || state.leader != Some(self.of.broker.id) {
            return Err(stop("another broker leads"));
        }
        // An answer about the end of the last pass may have been lost.
        self.log.compacted(None, Some(state.cleaned_end));
        let view = self
            .log
            .compaction_view()
            .filter(|view| view.leader_epoch == state.leader_epoch)
            .ok_or(stop("the log isn't open"))?;
        let checkpointed = state.checkpoint.map_or(Offset::ZERO, |c| c.as_of);
        let limit = view
            .last_stable
            .min(view.stored_end)
            .min(state.committed_end)
            .min(checkpointed);
        let cleaned_end = state.cleaned_end.max(view.log_start);
        let plan = plan_compaction(
            &stored_segments(&view),
            cleaned_end,
            limit,
            &self.of.policy(&settings),
            self.of.broker.clock.wall(),
        );
        let Some(plan) = plan else {
            return Err(Halt::End(PassEnd::Done {
                leader_epoch: view.leader_epoch,
                end: state.cleaned_end,
            }));
        };
        let aborted = view.aborted.iter().map(|t| AbortedRange {
            producer: t.producer,
            start: t.start,
            marker: t.marker,
        });
        Ok(Planned {
            aborted: aborted.collect(),
            dirty: plan.dirty,
            settings,
            view,
        })
    }

    async fn map(&mut self, planned: &Planned) -> Result<(KeyMap, Offset), Halt> {
        let map = KeyMap::new(self.of.settings.key_map_bytes());
        let transactions = Transactions::new(planned.aborted.clone());
        let mut mapper = Mapper::new(map, transactions, planned.dirty);
        'segments: for segment in &planned.view.segments {
            if segment.range.end() <= planned.dirty.start() {
                continue;
            }
            if segment.range.start() >= planned.dirty.end() {
                break;
            }
            let mut scan = self.of.reader.scan(self.log.id(), segment).await?;
            while let Some(bytes) = scan.next().await? {
                self.check_leads(planned)?;
                self.pace.take(bytes.len()).await;
                let taken;
                (mapper, taken) = aside(move || {
                    let taken = mapper.take(bytes);
                    (mapper, taken)
                })
                .await?;
                if taken? == MapEnd::Reached {
                    break 'segments;
                }
            }
        }
        let (map, end) = mapper.finish();
        if end <= planned.dirty.start() {
            return Err(stop("nothing was mapped"));
        }
        Ok((map, end))
    }

    fn filter(&self, planned: &Planned, map: KeyMap, map_end: Offset) -> Filter {
        let producers = planned.view.producers.iter().map(|last| {
            let record = match last.data_end {
                Some(end) => LastRecord::Data { end },
                None => LastRecord::Marker { epoch: last.epoch },
            };
            (last.producer, record)
        });
        let rules = FilterRules {
            now: self.of.broker.clock.wall(),
            delete_retention: planned.settings.delete_retention,
            producers: producers.collect::<HashMap<_, _>>(),
        };
        let transactions = Transactions::new(planned.aborted.clone());
        Filter::new(map, map_end, transactions, rules)
    }

    async fn rewrite(
        &mut self,
        planned: &Planned,
        mut filter: Filter,
        map_end: Offset,
    ) -> Result<Filter, Halt> {
        let segments = &planned.view.segments;
        let count = segments.partition_point(|s| s.range.start() < map_end);
        let segments = &segments[..count];
        let mut run = Run::default();
        let Some(first) = segments.first() else {
            return Ok(filter);
        };
        let mut output = Output::new(first.range.start(), self.of.block_bytes);
        for (index, segment) in segments.iter().enumerate() {
            let mut scan = self.of.reader.scan(self.log.id(), segment).await?;
            while let Some(bytes) = scan.next().await? {
                self.check_leads(planned)?;
                self.pace.take(bytes.len()).await;
                self.of.metrics.bytes_read.inc_by(bytes.len() as u64);
                let taken;
                (filter, output, taken) = aside(move || {
                    let taken = filter.take(bytes, |batch| output.push(&batch));
                    (filter, output, taken)
                })
                .await?;
                taken?;
                if output.bytes() >= self.of.settings.object_bytes() {
                    self.store(&mut output, &mut run).await?;
                }
            }
            run.inputs.push(segment.clone());
            let last = index + 1 == count;
            let filled = output.bytes() >= self.of.settings.object_bytes() / 2
                || !run.outputs.is_empty()
                || run.inputs.len() >= RUN_SEGMENTS;
            if last || filled {
                let cleaned_end = last.then_some(map_end);
                self.end_run(planned, &mut filter, output, run, cleaned_end)
                    .await?;
                run = Run::default();
                output = Output::new(segment.range.end(), self.of.block_bytes);
            }
        }
        let stats = filter.stats();
        let removed = stats.records_read.saturating_sub(stats.records_kept);
        self.of.metrics.records_removed.inc_by(removed);
        self.of.metrics.bytes_kept.inc_by(stats.bytes_kept);
        let unreadable = &self.of.metrics.unreadable_batches;
        unreadable.inc_by(stats.unreadable_batches);
        Ok(filter)
    }

    /// Stores what is left of a run and swaps it, unless it is what it was before.
    async fn end_run(
        &self,
        planned: &Planned,
        filter: &mut Filter,
        mut output: Output,
        mut run: Run,
        cleaned_end: Option<Offset>,
    ) -> Result<(), Halt> {
        if let Some(filler) = filter.end_segment() {
            output.push(&filler);
        }
        let changed = filter.take_changed();
        if !changed && run.inputs.len() == 1 && run.outputs.is_empty() {
            run = Run::default();
            if cleaned_end.is_none() {
                return Ok(());
            }
        } else {
            debug_assert_eq!(Some(output.end()), run.range().map(OffsetRange::end));
            self.store(&mut output, &mut run).await?;
        }
        self.check_leads(planned)?;
        self.swap(planned, run, cleaned_end).await
    }

    /// Stores what was gathered as an object of the run.
    async fn store(&self, output: &mut Output, run: &mut Run) -> Result<(), Halt> {
        let writer = &self.of.writer;
        let sequence = self.of.next_object.fetch_add(1, Ordering::Relaxed);
        let identity = WriterIdentity {
            broker: writer.broker,
            broker_epoch: writer.broker_epoch,
            sequence,
            nonce: writer.nonce,
        };
        let Some(built) = output.cut(self.log.id(), identity) else {
            return Ok(());
        };
        let key = ObjectKey::compacted(writer.broker, writer.broker_epoch, sequence);
        self.put(&key, &built).await?;
        run.outputs.push(object_commit(
            &key,
            built.size_bytes,
            built.index,
            None,
            &built.segments,
        ));
        let object = Arc::new(SegmentObject {
            key,
            size_bytes: built.size_bytes,
            index: built.index,
        });
        let now = self.of.broker.clock.wall();
        let segments = built.segments.iter();
        run.segments
            .extend(segments.map(|info| segment_of(&object, info, now)));
        Ok(())
    }

    /// Stores an object, however long it takes while the log is led.
    async fn put(&self, key: &ObjectKey, built: &BuiltObject) -> Result<(), Halt> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.of.storage.put_create(key, built.payload.clone()).await {
                Ok(PutOutcome::Created) => return Ok(()),
                Ok(PutOutcome::AlreadyExists) => {
                    let tail = self.of.storage.get_tail(key, FOOTER_BYTES as u64).await;
                    if let Ok((tail, size)) = tail {
                        let stored = tidegate_segment_format::decode_footer(&tail);
                        let ours = size == built.size_bytes
                            && stored.is_ok_and(|footer| same_object(&footer, &built.footer));
                        return match ours {
                            true => Ok(()),
                            false => Err(PassError::KeyTaken(key.clone()).into()),
                        };
                    }
                }
                Err(error) => {
                    warn!(object = %key, error = &error as &dyn std::error::Error, "storing a compacted object failed and is tried again");
                }
            }
            if self.of.topic_settings(self.log).is_none() {
                return Err(stop("the topic isn't compacted"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Lets the controller put the run's new segments in the place of the old ones, and takes in what came of it.
    async fn swap(
        &self,
        planned: &Planned,
        run: Run,
        cleaned_end: Option<Offset>,
    ) -> Result<(), Halt> {
        let range = run.range();
        let request = SwapSegments {
            broker: self.of.writer.broker,
            broker_epoch: self.of.writer.broker_epoch,
            partition: self.log.id(),
            leader_epoch: planned.view.leader_epoch,
            inputs: run.inputs.iter().map(input_of).collect(),
            outputs: run.outputs,
            cleaned_end,
        };
        let stored_at = run.inputs.iter().map(|s| s.stored_at).max();
        match self.ask_for_swap(&request).await? {
            SwapOutcome::Swapped => {
                self.of.metrics.swaps.inc();
                let segments = run.segments.into_iter().map(|segment| Segment {
                    // Compaction doesn't make records younger.
                    stored_at: stored_at.unwrap_or(segment.stored_at),
                    ..segment
                });
                let swapped = range.map(|range| (range, segments.collect()));
                self.log.compacted(swapped, cleaned_end);
                Ok(())
            }
            SwapOutcome::Refused(refused) => {
                self.of.metrics.swaps_refused.inc();
                info!(partition = %self.log.id(), reason = &refused as &dyn std::error::Error, "compacted segments are no longer wanted");
                // An earlier try may have been carried out, and been changed by retention since.
                if let Some(range) = range {
                    self.reload(planned, range).await?;
                }
                Err(stop(reason_of(&refused)))
            }
        }
    }

    /// Asks until there is an answer.
    async fn ask_for_swap(&self, request: &SwapSegments) -> Result<SwapOutcome, Halt> {
        let mut pause = FIRST_RETRY;
        loop {
            let asked = self.of.broker.controller.swap_segments(request.clone());
            match asked.await {
                Ok(outcome) => return Ok(outcome),
                Err(SwapSegmentsError::StaleBrokerEpoch(stale)) => return Err(stale.into()),
                Err(SwapSegmentsError::Unavailable(error)) => {
                    warn!(partition = %self.log.id(), error = &error as &dyn std::error::Error, "swapping compacted segments is tried again");
                }
            }
            if self.is_gone(request.partition) {
                return Err(stop("the partition was closed"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Reads the run's part of the map again, as long as this broker leads.
    async fn reload(&self, planned: &Planned, range: OffsetRange) -> Result<(), Halt> {
        let controller = &*self.of.broker.controller;
        let mut pause = FIRST_RETRY;
        while !self.is_gone(self.log.id()) && self.log.leader_epoch() == planned.view.leader_epoch {
            match self.log.reload_segments(controller, range).await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether this broker has closed the log.
    fn is_gone(&self, partition: PartitionId) -> bool {
        let open = self.of.broker.logs.get(partition);
        open.is_none_or(|open| !Arc::ptr_eq(&open, self.log))
    }

    fn check_leads(&self, planned: &Planned) -> Result<(), Halt> {
        if !self.log.leads_under(planned.view.leader_epoch) {
            return Err(stop("the log isn't led any more"));
        }
        if self.of.topic_settings(self.log).is_none() {
            return Err(stop("the topic isn't compacted"));
        }
        Ok(())
    }
}

fn stop(reason: &'static str) -> Halt {
    Halt::End(PassEnd::Stopped(reason))
}

/// Does work that takes milliseconds of a processor where it holds nobody up.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Halt> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| PassError::Stopped.into())
}

fn input_of(segment: &Segment) -> SwapInput {
    SwapInput {
        range: segment.range,
        object: StoredObjectKey::new(segment.object.key.as_str())
            .expect("object keys are short printable ASCII"),
    }
}

fn reason_of(refused: &SwapRefused) -> &'static str {
    match refused {
        SwapRefused::UnknownPartition(_) => "the topic is gone",
        SwapRefused::NotLeader { .. } => "another broker leads",
        SwapRefused::BelowLogStart { .. } => "the log start has moved",
        SwapRefused::OtherSegments => "the segments have changed",
        SwapRefused::NotCheckpointed { .. } => "the checkpoint is older",
        SwapRefused::ObjectDropped { .. } => "an object was dropped",
        SwapRefused::Malformed { .. } => "the request is malformed",
    }
}
