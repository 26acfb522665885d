//! One attempt to move a batch: prepare, seal and hold, commit.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::api::{CommitMove, SourceObjects};
use tidegate_metadata::{ControllerApi, PartitionState};
use tidegate_types::{BrokerId, ControllerEpoch, LeaderEpoch, Offset};
use tokio::time::Instant;

use super::super::{Core, within};
use super::Batch;
use super::commit::GroupEnd;
use super::undo::{self, Failed};
use crate::admin::MoveReport;
use crate::orders::{BrokerOrders, HeldLog, Hold, Orders, Prepare, Seal, SealAnswer, SealedLog};

/// A partition on its way through an attempt.
struct Item {
    state: PartitionState,
    attempt: u64,
    /// It may be sealed.
    sealed: bool,
}

impl Item {
    fn failed(self, cause: String) -> Failed {
        Failed {
            partition: self.state.partition,
            leader_epoch: self.state.leader_epoch,
            attempt: self.attempt,
            sealed: self.sealed,
            cause,
        }
    }
}

/// Both ends of an attempt.
struct Ends {
    from: BrokerId,
    to: BrokerId,
    source: Arc<dyn BrokerOrders>,
    target: Arc<dyn BrokerOrders>,
    controller_epoch: ControllerEpoch,
}

/// Times of the steps, the same for all of a batch.
#[derive(Clone, Copy, Default)]
struct Times {
    prepare: Duration,
    seal: Duration,
    hold: Duration,
}

/// Takes a batch through all steps. It may be dropped at any point: the next controller finds the wish, and
/// broker ends what a newer controller doesn't go on with.
pub(crate) async fn run(core: Arc<Core>, batch: Batch) {
    let Batch {
        from,
        to,
        partitions,
    } = batch.clone();
    let (Some(source), Some(target)) = (core.orders(from), core.orders(to)) else {
        let why = format!("broker {from} or {to} has no endpoint for other brokers");
        return give_up_before(&core, &batch, &why);
    };
    let ends = Ends {
        from,
        to,
        source,
        target,
        controller_epoch: core.controller_epoch(),
    };
    let states = match core.handle.partition_states(partitions).await {
        Ok(states) => states,
        Err(error) => return give_up_before(&core, &batch, &error.to_string()),
    };
    let mut items = Vec::new();
    for (partition, state) in batch.partitions.iter().zip(states) {
        match state {
            Some(state) if state.leader == Some(from) => items.push(Item {
                state,
                attempt: core.next_order(),
                sealed: false,
            }),
            Some(_) | None => core.moves.failed(
                *partition,
                from,
                to,
                format!("broker {from} doesn't lead the partition any more"),
                &core.options.moves,
                core.clock.now(),
            ),
        }
    }
    if items.is_empty() {
        return;
    }
    let mut times = Times::default();
    let prepared = prepare(&core, &ends, items, &mut times).await;
    if prepared.is_empty() {
        return;
    }
    seal_and_commit(&core, &ends, prepared, times).await;
}

fn give_up_before(core: &Core, batch: &Batch, why: &str) {
    let now = core.clock.now();
    for partition in &batch.partitions {
        core.moves.failed(
            *partition,
            batch.from,
            batch.to,
            why.to_owned(),
            &core.options.moves,
            now,
        );
    }
}

fn take_back(core: &Arc<Core>, ends: &Ends, failed: Vec<Failed>) {
    if !failed.is_empty() {
        let undo = undo::run(Arc::clone(core), ends.from, ends.to, failed);
        core.spawn("move-undo", undo);
    }
}

/// Answers those that are ready to be sealed; the others are taken back.
async fn prepare(core: &Arc<Core>, ends: &Ends, items: Vec<Item>, times: &mut Times) -> Vec<Item> {
    let Some(source_endpoint) = core.endpoint(ends.from) else {
        let why = "the source isn't registered any more";
        let failed = items.into_iter().map(|item| item.failed(why.to_owned()));
        take_back(core, ends, failed.collect());
        return Vec::new();
    };
    let request = Orders {
        controller_epoch: ends.controller_epoch,
        items: items
            .iter()
            .map(|item| Prepare {
                state: item.state.clone(),
                source: ends.from,
                source_endpoint: source_endpoint.clone(),
                attempt: item.attempt,
            })
            .collect(),
    };
    let started = core.clock.now();
    let answer = within(
        core.options.moves.prepare_timeout,
        ends.target.prepare(request),
    )
    .await;
    times.prepare = since(core, started);
    let results = results(items.len(), answer.map_err(|e| format!("prepare: {e}")));
    let mut ready = Vec::new();
    let mut failed = Vec::new();
    for (mut item, result) in items.into_iter().zip(results) {
        match result {
            Ok(()) if core.moves.begin_seal(item.state.partition, ends.to) => {
                item.sealed = true;
                ready.push(item);
            }
            Ok(()) => failed.push(item.failed("the move isn't wanted any more".to_owned())),
            Err(cause) => failed.push(item.failed(cause)),
        }
    }
    take_back(core, ends, failed);
    ready
}

async fn seal_and_commit(core: &Arc<Core>, ends: &Ends, items: Vec<Item>, mut times: Times) {
    let (sealed, held) = seal_and_hold(core, ends, &items, &mut times).await;
    let (objects, broker_epoch, sealed) = match sealed {
        Ok(answer) => (
            answer.objects,
            Some(answer.broker_epoch),
            Ok(answer.results),
        ),
        Err(cause) => (Vec::new(), None, Err(cause)),
    };
    let sealed: Vec<Result<SealedLog, String>> = results(items.len(), sealed);
    let held: Vec<Result<HeldLog, String>> = results(items.len(), held);
    let mut ready = Vec::new();
    let mut failed = Vec::new();
    for (item, both) in items.into_iter().zip(sealed.into_iter().zip(held)) {
        match agree(&item, both) {
            Ok((end, held)) => ready.push((item, end, held)),
            Err(cause) => failed.push(item.failed(cause)),
        }
    }
    take_back(core, ends, failed);
    let Some(broker_epoch) = broker_epoch.filter(|_| !ready.is_empty()) else {
        return;
    };
    let moves = ready
        .iter()
        .map(|(item, end, held)| CommitMove {
            partition: item.state.partition,
            leader_epoch: item.state.leader_epoch,
            sealed_end: *end,
            from: ends.from,
            to: ends.to,
            to_broker_epoch: held.broker_epoch,
            held_in: held.held_in,
        })
        .collect();
    let source = SourceObjects {
        broker: ends.from,
        broker_epoch,
        objects,
    };
    let started = core.clock.now();
    let end = core
        .committer
        .commit(ends.controller_epoch, moves, source)
        .await;
    let commit = since(core, started);
    let GroupEnd::Answered(results) = end else {
        // Nothing is taken back: the change may have been carried out.
        return;
    };
    let mut failed = Vec::new();
    for ((item, end, _), result) in ready.into_iter().zip(results) {
        match result {
            Ok(leader_epoch) => succeed(core, ends, &item, (end, leader_epoch), times, commit),
            Err(cause) => failed.push(item.failed(cause)),
        }
    }
    take_back(core, ends, failed);
}

async fn seal_and_hold(
    core: &Arc<Core>,
    ends: &Ends,
    items: &[Item],
    times: &mut Times,
) -> (
    Result<SealAnswer, String>,
    Result<Vec<Result<HeldLog, crate::orders::OrderRefused>>, String>,
) {
    let seals = Orders {
        controller_epoch: ends.controller_epoch,
        items: items
            .iter()
            .map(|item| Seal {
                partition: item.state.partition,
                leader_epoch: item.state.leader_epoch,
                order: core.next_order(),
            })
            .collect(),
    };
    let holds = Orders {
        controller_epoch: ends.controller_epoch,
        items: items
            .iter()
            .map(|item| Hold {
                partition: item.state.partition,
                leader_epoch: item.state.leader_epoch,
                attempt: item.attempt,
            })
            .collect(),
    };
    let started = core.clock.now();
    let limit = core.options.moves.seal_timeout;
    let (sealed, held) = tokio::join!(
        async {
            let answer = within(limit, ends.source.seal(seals)).await;
            (answer, since(core, started))
        },
        async {
            let answer = within(limit, ends.target.hold(holds)).await;
            (answer, since(core, started))
        }
    );
    times.seal = sealed.1;
    times.hold = held.1;
    (
        sealed.0.map_err(|e| format!("seal: {e}")),
        held.0.map_err(|e| format!("hold: {e}")),
    )
}

/// Both ends say the same end.
fn agree(
    item: &Item,
    (sealed, held): (Result<SealedLog, String>, Result<HeldLog, String>),
) -> Result<(Offset, HeldLog), String> {
    let (sealed, held) = (sealed?, held?);
    let partition = item.state.partition;
    if sealed.partition != partition || held.partition != partition {
        return Err("a broker answered for another partition".to_owned());
    }
    if sealed.end != held.end {
        return Err(format!(
            "sealed at {}, but held up to {}",
            sealed.end, held.end
        ));
    }
    Ok((sealed.end, held))
}

fn succeed(
    core: &Core,
    ends: &Ends,
    item: &Item,
    (sealed_end, leader_epoch): (Offset, LeaderEpoch),
    times: Times,
    commit: Duration,
) {
    let partition = item.state.partition;
    let now = core.clock.now();
    let wanted_at = core.moves.wanted_at(partition).unwrap_or(now);
    let total = now.saturating_duration_since(wanted_at);
    let phases = [
        ("prepare", times.prepare),
        ("seal", times.seal),
        ("hold", times.hold),
        ("commit", commit),
        ("total", total),
    ];
    for (phase, time) in phases {
        core.metrics.phase(phase, time.as_secs_f64());
    }
    core.metrics.moved("done");
    let report = MoveReport {
        partition,
        topic: core.topic_name(partition),
        from: ends.from,
        to: ends.to,
        leader_epoch,
        sealed_end_offset: sealed_end,
        prepare_ms: millis(times.prepare),
        seal_ms: millis(times.seal),
        hold_ms: millis(times.hold),
        commit_ms: millis(commit),
        total_ms: millis(total),
    };
    tracing::info!(
        topic = report.topic.as_str(),
        partition = partition.index.get(),
        from = %ends.from,
        to = %ends.to,
        leader_epoch = %leader_epoch,
        sealed_end = %sealed_end,
        prepare_ms = rounded(times.prepare),
        seal_ms = rounded(times.seal),
        hold_ms = rounded(times.hold),
        commit_ms = rounded(commit),
        total_ms = rounded(total),
        "moved a partition"
    );
    let pin_until = now + core.options.operator_pin;
    core.moves
        .done(partition, ends.from, ends.to, report, pin_until);
}

/// One result for each of `count`, whatever was answered.
fn results<T, E: std::fmt::Display>(
    count: usize,
    answer: Result<Vec<Result<T, E>>, String>,
) -> Vec<Result<T, String>> {
    let failed = |cause: String| (0..count).map(|_| Err(cause.clone())).collect();
    match answer {
        Ok(results) if results.len() == count => results
            .into_iter()
            .map(|one| one.map_err(|refused| refused.to_string()))
            .collect(),
        Ok(results) => failed(format!(
            "the broker gave {} answers to {count} orders",
            results.len()
        )),
        Err(cause) => failed(cause),
    }
}

fn since(core: &Core, started: Instant) -> Duration {
    core.clock.now().saturating_duration_since(started)
}

/// For people: to the tenth.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
