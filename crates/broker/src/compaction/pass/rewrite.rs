//! Reading the log from its start to the map end and writing what stays, run by run.

use tidegate_maintenance::{CompactionStats, Filter};
use tidegate_metadata::ObjectCommit;
use tidegate_partition_log::Segment;
use tidegate_types::{Offset, OffsetRange};

use super::plan::Planned;
use super::{Halt, Pass, aside};
use crate::compaction::output::Output;

/// A run ends with so many segments, whatever is left of them.
const RUN_SEGMENTS: usize = 512;

/// Segments that go, and what comes in their place.
#[derive(Default)]
pub(super) struct Run {
    pub(super) inputs: Vec<Segment>,
    pub(super) outputs: Vec<ObjectCommit>,
    pub(super) segments: Vec<Segment>,
}

impl Run {
    pub(super) fn range(&self) -> Option<OffsetRange> {
        let (first, last) = self.inputs.first().zip(self.inputs.last())?;
        OffsetRange::new(first.range.start(), last.range.end())
    }
}

impl Pass<'_> {
    pub(super) async fn rewrite(
        &mut self,
        planned: &Planned,
        filter: Filter,
        map_end: Offset,
    ) -> Result<CompactionStats, Halt> {
        let mut run = Run::default();
        let rewritten = self.rewrite_runs(planned, filter, map_end, &mut run).await;
        if rewritten.is_err() {
            self.give_up(planned, run).await;
        }
        rewritten
    }

    /// When it fails, `run` is what wasn't offered yet.
    async fn rewrite_runs(
        &mut self,
        planned: &Planned,
        mut filter: Filter,
        map_end: Offset,
        run: &mut Run,
    ) -> Result<CompactionStats, Halt> {
        let segments = &planned.view.segments;
        let count = segments.partition_point(|s| s.range.start() < map_end);
        let segments = &segments[..count];
        let mut counted = CompactionStats::default();
        let Some(first) = segments.first() else {
            return Ok(counted);
        };
        let object_bytes = self.of.settings.object_bytes();
        let mut output = Output::new(first.range.start(), self.of.block_bytes);
        for (index, segment) in segments.iter().enumerate() {
            let mut scan = self.of.reader.scan(self.log.id(), segment).await?;
            while let Some(bytes) = scan.next().await? {
                self.admit(planned, bytes.len()).await?;
                let taken;
                (filter, output, taken) = aside(move || {
                    let taken = filter.take(bytes, |batch| output.push(&batch));
                    (filter, output, taken)
                })
                .await?;
                taken?;
                if output.bytes() >= object_bytes {
                    self.store(planned, &mut output, run).await?;
                }
            }
            self.count(&mut counted, filter.stats());
            run.inputs.push(segment.clone());
            let last = index + 1 == count;
            let filled = output.bytes() >= object_bytes / 2
                || !run.outputs.is_empty()
                || run.inputs.len() >= RUN_SEGMENTS;
            if last || filled {
                let cleaned_end = last.then_some(map_end);
                self.end_run(planned, &mut filter, output, run, cleaned_end)
                    .await?;
                output = Output::new(segment.range.end(), self.of.block_bytes);
            }
        }
        Ok(counted)
    }

    /// Stores what is left of a run and swaps it, unless it is what it was before.
    async fn end_run(
        &self,
        planned: &Planned,
        filter: &mut Filter,
        mut output: Output,
        run: &mut Run,
        cleaned_end: Option<Offset>,
    ) -> Result<(), Halt> {
        if let Some(filler) = filter.end_segment() {
            output.push(&filler);
        }
        let changed = filter.take_changed();
        if !changed && run.inputs.len() == 1 && run.outputs.is_empty() {
            *run = Run::default();
            if cleaned_end.is_none() {
                return Ok(());
            }
        } else {
            debug_assert_eq!(Some(output.end()), run.range().map(OffsetRange::end));
            self.store(planned, &mut output, run).await?;
        }
        self.swap(planned, std::mem::take(run), cleaned_end).await
    }

    /// Adds what the filter did since it was last counted.
    fn count(&self, counted: &mut CompactionStats, now: CompactionStats) {
        let metrics = &self.of.metrics;
        metrics
            .bytes_filtered
            .inc_by(now.bytes_read - counted.bytes_read);
        metrics
            .bytes_kept
            .inc_by(now.bytes_kept - counted.bytes_kept);
        let removed = |stats: &CompactionStats| stats.records_read - stats.records_kept;
        metrics
            .records_removed
            .inc_by(removed(&now) - removed(counted));
        metrics
            .unreadable_batches
            .inc_by(now.unreadable_batches - counted.unreadable_batches);
        *counted = now;
    }
}
