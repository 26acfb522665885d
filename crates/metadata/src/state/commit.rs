//! Commits of written objects: the moment at which uploaded ranges become visible.

use std::collections::BTreeSet;

use tidegate_types::BrokerId;

use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, Need, State};
use crate::api::{CommitObjects, CommitObjectsError, CommitRefused, ObjectOutcome, SegmentOutcome};
use crate::keys::SegmentKey;
use crate::model::{ByteSpan, CheckpointRef, ObjectCommit, SegmentCommit, WriterState};
use crate::rows::SegmentRow;

/// By what right ranges of a partition's current leader epoch are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// As its leader.
    Leader(BrokerId),
    /// By having fenced the leader's writer.
    Recovery,
}

impl Authority {
    fn leads(self, leader: Option<BrokerId>) -> bool {
        match self {
            Self::Leader(broker) => leader == Some(broker),
            Self::Recovery => false,
        }
    }
}

/// The rows that committing these objects has to see: the objects', and those of the checkpoints they replace.
pub(crate) fn needs(state: &State, objects: &[ObjectCommit]) -> Vec<Need> {
    let mut needs = Vec::new();
    for object in objects {
        needs.push(Need::Object(object.key.clone()));
        for segment in object.segments.iter().filter(|s| s.checkpoint.is_some()) {
            let row = state.partition(segment.partition);
            if let Some(old) = row.and_then(|row| row.checkpoint.as_ref()) {
                needs.push(Need::Object(old.object.clone()));
            }
        }
    }
    needs
}

/// Commits objects in order, and moves `writer` past those with a WAL sequence.
pub(crate) fn commit_objects(
    work: &mut Workspace<'_>,
    objects: &[ObjectCommit],
    authority: Authority,
    writer: &mut WriterState,
) -> Result<Vec<ObjectOutcome>, CommitRefused> {
    let mut outcomes = Vec::with_capacity(objects.len());
    for object in objects {
        if let Some(sequence) = object.wal_sequence {
            if sequence > writer.next_wal_sequence {
                return Err(CommitRefused::SequenceGap {
                    object: object.key.clone(),
                    sequence,
                    expected: writer.next_wal_sequence,
                });
            }
            if sequence == writer.next_wal_sequence {
                writer.next_wal_sequence += 1;
            }
        }
        outcomes.push(commit_object(work, object, authority)?);
    }
    Ok(outcomes)
}

fn commit_object(
    work: &mut Workspace<'_>,
    object: &ObjectCommit,
    authority: Authority,
) -> Result<ObjectOutcome, CommitRefused> {
    check_form(object)?;
    let mut segments = Vec::with_capacity(object.segments.len());
    for segment in &object.segments {
        segments.push(commit_segment(work, object, segment, authority)?);
    }
    // Nothing came to refer to it, and it isn't known from an earlier commit: it only takes space.
    work.drop_unreferenced(&object.key, object.size_bytes);
    Ok(ObjectOutcome {
        key: object.key.clone(),
        segments,
    })
}

fn check_form(object: &ObjectCommit) -> Result<(), CommitRefused> {
    let malformed = |reason: &'static str| {
        Err(CommitRefused::Malformed {
            object: object.key.clone(),
            reason: reason.into(),
        })
    };
    let inside = |span: ByteSpan| {
        span.position
            .checked_add(span.length)
            .is_some_and(|end| end <= object.size_bytes)
    };
    if !inside(object.index) {
        return malformed("its index reaches beyond its end");
    }
    let mut partitions = BTreeSet::new();
    for segment in &object.segments {
        if segment.range.is_empty() {
            return malformed("a segment is empty");
        }
        if !inside(segment.span) || !segment.checkpoint.is_none_or(inside) {
            return malformed("a segment or checkpoint reaches beyond its end");
        }
        if !partitions.insert(segment.partition) {
            return malformed("it has two segments of one partition");
        }
    }
    Ok(())
}

fn commit_segment(
    work: &mut Workspace<'_>,
    object: &ObjectCommit,
    segment: &SegmentCommit,
    authority: Authority,
) -> Result<SegmentOutcome, CommitRefused> {
    let id = segment.partition;
    let Some(row) = work.partition(id) else {
        return Ok(SegmentOutcome::TopicDeleted);
    };
    let refused = |refusal| Err(refusal);
    if segment.leader_epoch > row.leader_epoch {
        return refused(CommitRefused::UnknownLeaderEpoch {
            object: object.key.clone(),
            partition: id,
            leader_epoch: segment.leader_epoch,
            current: row.leader_epoch,
        });
    }
    match row.sealed_end(segment.leader_epoch) {
        Some(sealed_end) if segment.range.end() > sealed_end => {
            return Ok(SegmentOutcome::Superseded { sealed_end });
        }
        // A sealed range has one content for ever, so anyone who has it may commit it.
        Some(_) => {}
        None => match authority {
            Authority::Leader(broker) if row.leader != Some(broker) => {
                return refused(CommitRefused::NotLeader {
                    object: object.key.clone(),
                    partition: id,
                    leader: row.leader,
                });
            }
            Authority::Leader(_) | Authority::Recovery => {}
        },
    }
    let committed_end = row.committed_end;
    if segment.range.end() <= committed_end {
        return Ok(SegmentOutcome::Committed { committed_end });
    }
    let start = segment.range.start();
    // Another broker has committed what it holds of a sealed range. Nobody else can commit what a fenced writer
    // acknowledged, so that isn't skipped.
    let sealed = row.sealed_end(segment.leader_epoch).is_some();
    let by_leader = authority.leads(row.leader);
    if authority != Authority::Recovery
        && (start < committed_end || (start > committed_end && sealed && !by_leader))
    {
        return Ok(SegmentOutcome::Overtaken { committed_end });
    }
    if start != committed_end {
        return refused(CommitRefused::NotContiguous {
            object: object.key.clone(),
            partition: id,
            committed_end,
            start,
        });
    }
    if work.check_referable(&object.key).is_err() {
        return refused(CommitRefused::ObjectDropped {
            object: object.key.clone(),
        });
    }
    append_segment(work, object, segment);
    Ok(SegmentOutcome::Committed {
        committed_end: segment.range.end(),
    })
}

fn append_segment(work: &mut Workspace<'_>, object: &ObjectCommit, segment: &SegmentCommit) {
    let end = segment.range.end();
    let row = work
        .edit(segment.partition)
        .expect("the caller has just read this partition's row");
    row.committed_end = end;
    // DeleteRecords may have gone past it before it was uploaded; then nobody will ever read it.
    let readable = end > row.log_start;
    if readable {
        row.segment_count += 1;
        row.segment_bytes += segment.span.length;
    }
    let replaced = segment.checkpoint.and_then(|span| {
        row.checkpoint.replace(CheckpointRef {
            object: object.key.clone(),
            span,
            as_of: end,
        })
    });
    if readable {
        work.refer(&object.key, object.size_bytes);
        let key = SegmentKey {
            partition: segment.partition,
            end,
        };
        let stored = SegmentRow {
            start: segment.range.start(),
            leader_epoch: segment.leader_epoch,
            object: object.key.clone(),
            span: segment.span,
            index: object.index,
            max_timestamp: segment.max_timestamp,
            record_count: segment.record_count,
            committed_at: work.now(),
        };
        work.put_segment(key, stored);
    }
    if segment.checkpoint.is_some() {
        work.refer(&object.key, object.size_bytes);
    }
    if let Some(replaced) = replaced {
        work.release(&replaced.object);
    }
}

impl Command for CommitObjects {
    type Output = Vec<ObjectOutcome>;
    type Error = CommitObjectsError;
    const NAME: &'static str = "commit_objects";

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        facts.missing(needs(state, &self.objects))
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<Vec<ObjectOutcome>>, CommitObjectsError> {
        let (broker, mut writer) = state.committing(self.broker, self.broker_epoch)?;
        let mut work = Workspace::new(state, facts, environment.now);
        let authority = Authority::Leader(self.broker);
        let output = commit_objects(&mut work, &self.objects, authority, &mut writer)?;
        if broker.writer != Some(writer) {
            let mut row = broker.clone();
            row.writer = Some(writer);
            work.push(Change::Broker(self.broker, row));
        }
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}
