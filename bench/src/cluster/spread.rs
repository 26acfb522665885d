//! `move` with many partitions at once: a broker is drained, two swap, one more joins.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::admin::Wanted;
use super::moves::PhaseLatencies;
use super::stage::{Running, Stage, milliseconds};
use crate::histogram::Latencies;
use crate::recorder::Nanos;
use crate::report::Report;

/// How long many moves may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Watched on after the last move: how long a client needs to find a new leader belongs to it.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Between two looks at the leaders; a time found so is as exact as this.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// A new broker has its share when it leads this part of an even one: balancing stops short of perfection.
const SHARE: f64 = 0.9;

/// All partitions are led by the first broker, which gives them away.
pub fn drain(stage: &mut Stage, report: &mut Report) -> Result<Running> {
    let first = *stage.admin.alive()?.first().context("no broker is alive")?;
    stage.arrange(|_| first)?;
    let running = stage.run(false)?;
    let begun = running.writers.watch.now();
    stage.admin.drain(first)?;
    let answered = running.writers.watch.now();
    let took = await_leaders(stage, |leaders| {
        leaders
            .iter()
            .all(|leader| *leader >= 0 && *leader != first)
    });
    let done = running.writers.watch.now();
    std::thread::sleep(AFTERMATH);
    let partitions: Vec<usize> = (0..running.writers.watch.partitions()).collect();
    summarize(&running, &partitions, begun, report);
    report.find("drain_request_ms", milliseconds(answered - begun));
    report.find("drained", took.is_ok());
    report.find("drained_in_s", milliseconds(done - begun) / 1e3);
    note_failure(report, took);
    Ok(running)
}

/// The first half goes from the first broker to the second, the other half back, in one request.
pub fn swap(stage: &mut Stage, report: &mut Report) -> Result<Running> {
    let alive = stage.admin.alive()?;
    let [first, second, ..] = alive[..] else {
        bail!("a swap needs two brokers");
    };
    let half = stage.partitions / 2;
    let before = move |partition: i32| if partition < half { first } else { second };
    stage.arrange(before)?;
    let running = stage.run(false)?;
    let moves: Vec<Wanted> = (0..stage.partitions)
        .map(|partition| Wanted {
            partition,
            to: if before(partition) == first {
                second
            } else {
                first
            },
        })
        .collect();
    let begun = running.writers.watch.now();
    let answers = stage.admin.reassign(&stage.topic, &moves, PATIENCE)?;
    let answered = running.writers.watch.now();
    std::thread::sleep(AFTERMATH);
    let partitions: Vec<usize> = (0..running.writers.watch.partitions()).collect();
    summarize(&running, &partitions, begun, report);
    let mut phases = PhaseLatencies::new();
    let mut failed = 0_u64;
    for answer in &answers {
        match answer {
            Ok(times) => phases.record(times),
            Err(cause) => {
                failed += 1;
                if failed == 1 {
                    report.notes.push(format!("a move failed: {cause}"));
                }
            }
        }
    }
    phases.add_to(report);
    report.find("moves", moves.len());
    report.find("moves_failed", failed);
    report.find("swapped_in_s", milliseconds(answered - begun) / 1e3);
    Ok(running)
}

/// One more broker starts; the time until it leads its share counts from the start of its process.
pub fn join(stage: &mut Stage, report: &mut Report) -> Result<Running> {
    let running = stage.run(false)?;
    let before = stage.admin.alive()?.len();
    let begun = running.writers.watch.now();
    let added = stage
        .deployment
        .as_mut()
        .context("only a cluster that is started here can be joined: leave --bootstrap out")?
        .add()?;
    let even = f64::from(stage.partitions) / (before + 1) as f64;
    let led = |leaders: &[i32]| leaders.iter().filter(|leader| **leader == added).count();
    let took = await_leaders(stage, |leaders| led(leaders) as f64 >= even * SHARE);
    let done = running.writers.watch.now();
    std::thread::sleep(AFTERMATH * 2);
    let leaders = stage.cluster.leaders(&stage.topic)?;
    let moved: Vec<usize> = leaders
        .iter()
        .enumerate()
        .filter(|(_, leader)| **leader == added)
        .map(|(partition, _)| partition)
        .collect();
    summarize(&running, &moved, begun, report);
    report.find("even_share", even);
    report.find("led_at_the_end", moved.len());
    report.find("share_reached", took.is_ok());
    report.find("share_reached_in_s", milliseconds(done - begun) / 1e3);
    note_failure(report, took);
    Ok(running)
}

fn await_leaders(stage: &Stage, are_right: impl Fn(&[i32]) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leaders = stage.cluster.leaders(&stage.topic)?;
        if are_right(&leaders) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let without = leaders.iter().filter(|leader| **leader < 0).count();
            bail!("not done after {PATIENCE:?}; {without} partitions are without a leader");
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

fn note_failure(report: &mut Report, result: Result<()>) {
    if let Err(error) = result {
        report.notes.push(format!("{error:#}"));
    }
}

/// Each partition's largest gap since `begun`, beside what they are in a calm time as long.
fn summarize(running: &Running, partitions: &[usize], begun: Nanos, report: &mut Report) {
    let watch = &running.writers.watch;
    let until = watch.now();
    let [mut gaps, mut silences] = [(); 2].map(|()| Latencies::new());
    for partition in partitions {
        let silence = watch
            .track(*partition)
            .answers
            .longest_silence(begun, until);
        silences.record(Duration::from_nanos(silence));
        gaps.record(running.gap(silence));
    }
    report.add_latency("gap", &gaps);
    report.add_latency("silence", &silences);
    let calm = running.calm.1 - running.calm.0;
    let window = Duration::from_nanos((until - begun).min(calm));
    report.add_latency("calm_gap", &running.calm_gaps(window));
    report.find("partitions_moved", partitions.len());
}
