//! `failover`: brokers are killed, one after another, under clients that write.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::admin::Controller;
use super::args::{Durability, FailoverArgs, Victim};
use super::stage::{Running, Stage, milliseconds};
use crate::histogram::Latencies;
use crate::recorder::Nanos;
use crate::report::Report;

/// How long the partitions may be silent before the run gives up.
const SILENCE_PATIENCE: Duration = Duration::from_secs(60);
/// How long the leaders may need to be spread evenly again after a restart.
const EVEN_PATIENCE: Duration = Duration::from_secs(30);
/// Leaders that didn't change for so long have settled.
const SETTLED: Duration = Duration::from_secs(3);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What is found over all kills.
struct Found {
    gaps: Latencies,
    silences: Latencies,
    first_answers: Latencies,
    others: Latencies,
    arrivals: Latencies,
    other_arrivals: Latencies,
    controllers: Latencies,
    restarts: Latencies,
}

pub fn run(args: &FailoverArgs) -> Result<Report> {
    if args.cluster.bootstrap.is_some() {
        bail!("only brokers that are started here can be killed: leave --bootstrap out");
    }
    if args.cluster.brokers < 2 {
        bail!("a failover needs two brokers");
    }
    let mut report = Report::begin("failover", "own cluster", args)?;
    let mut stage = Stage::set(&args.cluster, &args.writer, Durability::Object, 100)?;
    stage.explain(&mut report);
    let running = stage.run(true)?;
    let [a, b, c, d, e, f, g, h] = [(); 8].map(|()| Latencies::new());
    let mut found = Found {
        gaps: a,
        silences: b,
        first_answers: c,
        others: d,
        arrivals: e,
        other_arrivals: f,
        controllers: g,
        restarts: h,
    };
    for kill in 0..args.kills {
        one_kill(args, kill, &mut stage, &running, &mut found, &mut report)
            .with_context(|| format!("kill {} of {}", kill + 1, args.kills))?;
    }
    report.add_latency("gap", &found.gaps);
    report.add_latency("silence", &found.silences);
    report.add_latency("kill_to_first_ack", &found.first_answers);
    report.add_latency("unaffected_gap", &found.others);
    report.add_latency("fetch_gap", &found.arrivals);
    report.add_latency("unaffected_fetch", &found.other_arrivals);
    report.add_latency("new_controller", &found.controllers);
    report.add_latency("restart_to_ready", &found.restarts);
    let calm = Duration::from_nanos(running.calm.1 - running.calm.0);
    report.add_latency("calm_gap", &running.calm_gaps(args.down.min(calm)));
    report.find("kills", args.kills);
    report.notes.push(
        "gap, silence, kill to first ack, fetch gap: partitions that the killed broker led; unaffected: the others, \
         and they need not find a new leader"
            .to_owned(),
    );
    stage.close(running, &mut report)?;
    Ok(report)
}

fn one_kill(
    args: &FailoverArgs,
    kill: u32,
    stage: &mut Stage,
    running: &Running,
    found: &mut Found,
    report: &mut Report,
) -> Result<()> {
    let watch = &running.writers.watch;
    let controller = stage.admin.controller()?;
    let victim = choose(args.victim, kill, controller, &stage.admin.alive()?)?;
    let leaders = stage.cluster.leaders(&stage.topic)?;
    let deployment = stage
        .deployment
        .as_mut()
        .context("the brokers weren't started here")?;
    let broker = deployment.broker(victim)?;
    let survivors = stage.admin.without(&broker.admin());
    let begun = watch.now();
    broker.kill()?;
    let killed = Instant::now();
    let mut new_controller_ms = None;
    if victim == controller.broker {
        while killed.elapsed() < SILENCE_PATIENCE {
            if survivors
                .controller()
                .is_ok_and(|now| now.epoch > controller.epoch)
            {
                found.controllers.record(killed.elapsed());
                new_controller_ms = Some(killed.elapsed().as_secs_f64() * 1e3);
                break;
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }
    std::thread::sleep(args.down.saturating_sub(killed.elapsed()));
    let up = Instant::now();
    deployment.restart(victim)?;
    found.restarts.record(up.elapsed());
    let silent = watch.await_answers(watch.now(), SILENCE_PATIENCE);
    if silent > 0 {
        bail!(
            "{silent} partitions are still silent after {SILENCE_PATIENCE:?}: {}",
            running.writers.complaints.last().unwrap_or_default()
        );
    }
    // Leaders that come back to the victim later are moved, not failed over: they aren't in this window. A silence
    // that still lasts at its end counts whole.
    let until = begun + u64::try_from(args.down.as_nanos())?;
    measure(running, &leaders, victim, (begun, until), found);
    let affected = leaders.iter().filter(|leader| **leader == victim).count();
    report.events.push(serde_json::json!({
        "t_s": milliseconds(begun) / 1e3,
        "victim": victim,
        "was_controller": victim == controller.broker,
        "partitions": affected,
        "longest_silence_ms": longest(running, &leaders, victim, (begun, until)),
        "new_controller_ms": new_controller_ms,
    }));
    await_even(stage)
}

fn choose(kind: Victim, kill: u32, controller: Controller, alive: &[i32]) -> Result<i32> {
    match kind {
        Victim::Controller => Ok(controller.broker),
        Victim::Broker => {
            let others: Vec<i32> = alive
                .iter()
                .copied()
                .filter(|broker| *broker != controller.broker)
                .collect();
            let at = (kill as usize).checked_rem(others.len());
            at.and_then(|at| others.get(at).copied())
                .context("no broker but the controller is alive")
        }
    }
}

fn measure(
    running: &Running,
    leaders: &[i32],
    victim: i32,
    (begun, until): (Nanos, Nanos),
    found: &mut Found,
) {
    let watch = &running.writers.watch;
    let arrivals = running.arrival_gaps(begun, until).unwrap_or_default();
    for (partition, leader) in leaders.iter().enumerate() {
        let track = watch.track(partition);
        let silence = track.answers.longest_silence(begun, until);
        let arrival = arrivals.get(partition).copied();
        if *leader == victim {
            found.silences.record(Duration::from_nanos(silence));
            found.gaps.record(running.gap(silence));
            // An acknowledgement that was on its way when the broker was killed isn't its successor's: the first
            // one after the longest silence is.
            let first = after_longest(&track.answers, begun, until);
            found
                .first_answers
                .record(Duration::from_nanos(first.saturating_sub(begun)));
            arrival
                .into_iter()
                .for_each(|gap| found.arrivals.record(gap));
        } else {
            found.others.record(running.gap(silence));
            arrival
                .into_iter()
                .for_each(|gap| found.other_arrivals.record(gap));
        }
    }
}

/// When the longest silence ended.
fn after_longest(answers: &super::silence::Answers, from: Nanos, until: Nanos) -> Nanos {
    let longest = answers.longest_silence(from, until);
    let mut at = from;
    while let Some(next) = answers.first_after(at) {
        if answers.longest_silence(at, next) >= longest {
            return next;
        }
        at = next;
    }
    until
}

fn longest(
    running: &Running,
    leaders: &[i32],
    victim: i32,
    (begun, until): (Nanos, Nanos),
) -> Option<f64> {
    let silences = running.writers.watch.silences(begun, until);
    let of_victim = leaders
        .iter()
        .zip(silences)
        .filter(|(leader, _)| **leader == victim);
    of_victim
        .map(|(_, silence)| silence)
        .max()
        .map(milliseconds)
}

/// Waits until every broker leads its share again, or until nothing changes any more.
fn await_even(stage: &Stage) -> Result<()> {
    let brokers = stage.admin.alive()?.len().max(1);
    let enough = usize::try_from(stage.partitions)? / brokers * 8 / 10;
    let deadline = Instant::now() + EVEN_PATIENCE;
    let mut last = (Vec::new(), Instant::now());
    while Instant::now() < deadline {
        let leaders = stage.cluster.leaders(&stage.topic)?;
        if leaders != last.0 {
            last = (leaders, Instant::now());
        }
        let alive = stage.admin.alive()?;
        let even = alive.len() == brokers
            && alive
                .iter()
                .all(|broker| last.0.iter().filter(|leader| *leader == broker).count() >= enough);
        if even && last.1.elapsed() >= SETTLED {
            return Ok(());
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::silence::Answers;

    const MS: Nanos = 1_000_000;

    #[test]
    fn the_first_answer_is_the_one_that_ends_the_silence() {
        let mut answers = Answers::default();
        for at in [0, 10, 20, 23, 900, 910] {
            answers.note(at * MS);
        }
        // Killed at 21; the answer at 23 was on its way.
        assert_eq!(after_longest(&answers, 21 * MS, 950 * MS), 900 * MS);
    }

    #[test]
    fn the_controller_is_spared_where_brokers_are_killed() {
        let controller = Controller {
            broker: 2,
            epoch: 1,
        };
        let chosen: Vec<i32> = (0..4)
            .filter_map(|kill| choose(Victim::Broker, kill, controller, &[1, 2, 3]).ok())
            .collect();
        assert_eq!(chosen, [1, 3, 1, 3]);
        assert_eq!(
            choose(Victim::Controller, 0, controller, &[1, 2, 3]).ok(),
            Some(2)
        );
        assert!(choose(Victim::Broker, 0, controller, &[2]).is_err());
    }
}
