//! The crash: others lead on what a dead broker led (DESIGN, section 7).
//!
//! One task per dead broker, so none waits for another. Order of steps: the session table ends the registration
//! (from here on the broker has no way back but to register anew), the WAL row is fenced and collected, and one
//! change of the metadata commits what was found and names the new leaders. Every step may be done any number of
//! times; a broker that registers anew ends it, since its own start does the same.

use std::sync::Arc;

use tidegate_metadata::api::{FailOver, FailOverError, LedPartition};
use tidegate_metadata::{
    ByteSpan, ControllerUnavailable, ObjectCommit, SegmentCommit, StoredObjectKey, WriterState,
};
use tidegate_object_storage::ObjectKey;
use tidegate_segment_format::{ByteRange, WriterIdentity};
use tidegate_types::{BrokerEpoch, BrokerId, WithCauses};
use tidegate_wal::object::{RecoveredObject, RecoveryError, fence_and_collect};

use super::Core;
use super::moves::pause;

/// How one try ended.
enum Try {
    /// Nothing is left to be done for this registration.
    Over,
    /// Nothing to be done now: it was heard, it registered anew, or nobody could take over.
    NotNow,
    /// To be tried again.
    Again(String),
    /// Trying again soon won't help: a human must look.
    Stuck(String),
}

/// Fails a dead broker over.
pub(crate) async fn run(core: Arc<Core>, broker: BrokerId, broker_epoch: BrokerEpoch) {
    let started = core.clock.now();
    let mut tries = 0_u32;
    loop {
        match attempt(&core, broker, broker_epoch).await {
            Try::Over => {
                let took = core.clock.now().saturating_duration_since(started);
                core.metrics.failover_seconds.observe(took.as_secs_f64());
                break;
            }
            Try::NotNow => break,
            Try::Again(why) => {
                tracing::warn!(broker = %broker, reason = %why, "a failover failed; trying again");
                tries = tries.saturating_add(1);
            }
            Try::Stuck(why) => {
                tracing::error!(
                    broker = %broker, reason = %why,
                    "a dead broker can't be failed over; its partitions stay without a leader"
                );
                tries = u32::MAX;
            }
        }
        core.metrics.failover_attempts_failed.inc();
        tokio::time::sleep(pause(core.options.failover_backoff, tries)).await;
    }
    core.failovers.end(broker);
}

async fn attempt(core: &Core, broker: BrokerId, broker_epoch: BrokerEpoch) -> Try {
    let views = match core.handle.brokers().await {
        Ok(views) => views,
        Err(error) => return unavailable(error),
    };
    let view = views.into_iter().find(|view| view.id == broker);
    let Some(view) = view.filter(|view| view.broker_epoch == broker_epoch && !view.alive) else {
        return Try::NotNow;
    };
    let led = match core.handle.partitions_of(broker).await {
        Ok(led) => led,
        Err(error) => return unavailable(error),
    };
    if !led.iter().any(can_move_on) {
        // All of it waits for the broker's own WAL. Should it only have been cut off, its life goes on.
        core.failovers.settle(broker, broker_epoch);
        return Try::NotNow;
    }
    let now = core.clock.now();
    let timeout = core.options.session_timeout;
    if !core.sessions.end_silent(broker, broker_epoch, now, timeout) {
        return Try::NotNow;
    }
    let recovered = match view.writer {
        None => Vec::new(),
        Some(writer) => match collect(core, broker, writer).await {
            Ok(recovered) => recovered,
            Err(error) if error.is_retriable() => {
                return Try::Again(WithCauses(&error).to_string());
            }
            Err(error) => return Try::Stuck(WithCauses(&error).to_string()),
        },
    };
    let request = FailOver {
        broker,
        broker_epoch,
        fenced_writer: view.writer.map(|writer| writer.broker_epoch),
        recovered,
        accept_loss: false,
    };
    let done = match core.handle.fail_over(request).await {
        Ok(done) => done,
        Err(FailOverError::StaleBrokerEpoch(_) | FailOverError::Alive(_)) => return Try::NotNow,
        // The writer's state has moved on since it was read.
        Err(error @ FailOverError::WriterNotFenced { .. }) => {
            return Try::Again(error.to_string());
        }
        Err(FailOverError::Commit(refused)) => return Try::Stuck(refused.to_string()),
        Err(FailOverError::Unavailable(error)) => return unavailable(error),
    };
    tracing::info!(
        broker = %broker,
        moved = done.moved.len(),
        waiting = done.waiting.len(),
        stranded = done.stranded.len(),
        "failed a dead broker over"
    );
    core.metrics.failovers.inc();
    core.metrics
        .failover_partitions
        .inc_by(done.moved.len() as u64);
    if !done.stranded.is_empty() {
        return Try::Again(format!(
            "nobody can take over {} partitions",
            done.stranded.len()
        ));
    }
    core.failovers.settle(broker, done.broker_epoch);
    Try::Over
}

fn unavailable(error: ControllerUnavailable) -> Try {
    match error {
        ControllerUnavailable::Deposed | ControllerUnavailable::Closed => Try::NotNow,
        ControllerUnavailable::StoreUnavailable
        | ControllerUnavailable::OutcomeUnknown
        | ControllerUnavailable::Busy
        | ControllerUnavailable::NoController => Try::Again(error.to_string()),
    }
}

/// All of its records are in the store, or will be once the dead writer's objects are committed.
fn can_move_on(led: &LedPartition) -> bool {
    led.bound_to.is_none()
}

async fn collect(
    core: &Core,
    broker: BrokerId,
    writer: WriterState,
) -> Result<Vec<ObjectCommit>, RecoveryError> {
    // Whose fence it is doesn't matter to anybody who meets it; the controller epoch tells a human.
    let me = WriterIdentity {
        broker: core.options.me,
        broker_epoch: BrokerEpoch::new(core.controller_epoch().get()),
        sequence: 0,
        nonce: core.next_order(),
    };
    let fenced = fence_and_collect(
        core.fencing.as_ref(),
        broker,
        writer.broker_epoch,
        writer.next_wal_sequence,
        me,
    );
    let fenced = fenced.await?;
    Ok(fenced.objects.iter().map(recovered_commit).collect())
}

/// The commit of an object that was found in a dead writer's row.
fn recovered_commit(object: &RecoveredObject) -> ObjectCommit {
    let name = object.name;
    let key = ObjectKey::data(name.broker, name.broker_epoch, name.sequence);
    let span = |range: ByteRange| ByteSpan {
        position: range.position,
        length: range.length,
    };
    ObjectCommit {
        key: StoredObjectKey::new(key.as_str()).expect("object keys are short printable ASCII"),
        size_bytes: object.size_bytes,
        index: span(object.index),
        wal_sequence: Some(name.sequence),
        segments: object
            .segments
            .iter()
            .map(|segment| SegmentCommit {
                partition: segment.partition,
                leader_epoch: segment.leader_epoch,
                range: segment.range,
                span: ByteSpan {
                    position: segment.position,
                    length: segment.length,
                },
                max_timestamp: segment.max_timestamp,
                record_count: segment.record_count,
                checkpoint: segment.checkpoint.map(span),
            })
            .collect(),
    }
}
