//! `move --pattern single`: one partition goes round the brokers, again and again.

use std::time::Duration;

use anyhow::{Result, bail};

use super::admin::{Phases, Wanted};
use super::args::{Durability, MoveArgs, Pattern};
use super::spread;
use super::stage::{Running, Stage, milliseconds};
use crate::histogram::Latencies;
use crate::recorder::Nanos;
use crate::report::Report;

/// Partitions of the patterns that move many.
const MANY: i32 = 1_000;
/// How long a move may take before it counts as failed.
const MOVE_PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &MoveArgs) -> Result<Report> {
    let target = args.cluster.bootstrap.as_deref().unwrap_or("own cluster");
    let mut report = Report::begin("move", target, args)?;
    let partitions = match args.pattern {
        Pattern::Single => 1,
        Pattern::Drain | Pattern::Swap | Pattern::Join => MANY,
    };
    let mut stage = Stage::set(&args.cluster, &args.writer, Durability::Local, partitions)?;
    stage.explain(&mut report);
    let running = match args.pattern {
        Pattern::Single => single(args, &mut stage, &mut report)?,
        Pattern::Drain => spread::drain(&mut stage, &mut report)?,
        Pattern::Swap => spread::swap(&mut stage, &mut report)?,
        Pattern::Join => spread::join(&mut stage, &mut report)?,
    };
    stage.close(running, &mut report)?;
    Ok(report)
}

/// One move of the pattern `single`.
struct Done {
    begun: Nanos,
    answered: Nanos,
    to: i32,
    outcome: Result<Phases, String>,
}

fn single(args: &MoveArgs, stage: &mut Stage, report: &mut Report) -> Result<Running> {
    let brokers = stage.admin.alive()?;
    if brokers.len() < 2 {
        bail!("a move needs two brokers");
    }
    let running = stage.run(false)?;
    let watch = &running.writers.watch;
    let mut done: Vec<Done> = Vec::new();
    for _ in 0..args.moves {
        let present = stage.cluster.leaders(&stage.topic)?.first().copied();
        // Behind the present leader, round the list; to the first if there is none.
        let next = present
            .and_then(|leader| brokers.iter().position(|broker| *broker == leader))
            .map_or(0, |at| (at + 1) % brokers.len());
        let to = brokers[next];
        let begun = watch.now();
        let answer =
            stage
                .admin
                .reassign(&stage.topic, &[Wanted { partition: 0, to }], MOVE_PATIENCE);
        let outcome = match answer {
            Ok(mut moves) => moves.remove(0),
            Err(error) => Err(format!("{error:#}")),
        };
        done.push(Done {
            begun,
            answered: watch.now(),
            to,
            outcome,
        });
        std::thread::sleep(args.pause);
    }
    // The last silence, if it still lasts, shall be measured whole.
    watch.await_answers(watch.now(), stage.cluster.timeout());
    summarize(args, &running, &done, report);
    Ok(running)
}

fn summarize(args: &MoveArgs, running: &Running, done: &[Done], report: &mut Report) {
    let watch = &running.writers.watch;
    let [mut gaps, mut silences, mut requests] = [(); 3].map(|()| Latencies::new());
    let mut phases = PhaseLatencies::new();
    let mut failed = 0_u64;
    for (index, one) in done.iter().enumerate() {
        // Until the next move: how long a client needs to find the new leader belongs to this one.
        let until = done
            .get(index + 1)
            .map_or_else(|| watch.now(), |next| next.begun);
        let silence = watch.track(0).answers.longest_silence(one.begun, until);
        match &one.outcome {
            Ok(times) => {
                phases.record(times);
                silences.record(Duration::from_nanos(silence));
                gaps.record(running.gap(silence));
                requests.record(Duration::from_nanos(one.answered - one.begun));
            }
            Err(cause) => {
                failed += 1;
                report.notes.push(format!("move {index} failed: {cause}"));
            }
        }
        report.events.push(serde_json::json!({
            "t_s": milliseconds(one.begun) / 1e3,
            "to": one.to,
            "silence_ms": milliseconds(silence),
            "request_ms": milliseconds(one.answered - one.begun),
            "phases_ms": one.outcome.as_ref().ok().map(phases_json),
            "failure": one.outcome.as_ref().err(),
        }));
    }
    report.add_latency("gap", &gaps);
    report.add_latency("silence", &silences);
    report.add_latency("move_request", &requests);
    report.add_latency("calm_gap", &running.calm_gaps(args.pause));
    phases.add_to(report);
    report.find("moves", done.len());
    report.find("moves_failed", failed);
}

fn phases_json(phases: &Phases) -> serde_json::Value {
    serde_json::json!({"prepare": phases.prepare, "seal": phases.seal, "hold": phases.hold,
        "commit": phases.commit, "total": phases.total})
}

/// What the brokers say about many moves.
pub struct PhaseLatencies([(&'static str, Latencies); 5]);

impl PhaseLatencies {
    pub fn new() -> Self {
        Self(
            [
                "server_prepare",
                "server_seal",
                "server_hold",
                "server_commit",
                "server_total",
            ]
            .map(|name| (name, Latencies::new())),
        )
    }

    pub fn record(&mut self, times: &Phases) {
        let values = [
            times.prepare,
            times.seal,
            times.hold,
            times.commit,
            times.total,
        ];
        for ((_, latencies), ms) in self.0.iter_mut().zip(values) {
            latencies.record(Duration::from_secs_f64((ms / 1e3).clamp(0.0, 1e6)));
        }
    }

    pub fn add_to(&self, report: &mut Report) {
        for (name, latencies) in &self.0 {
            report.add_latency(name, latencies);
        }
    }
}
