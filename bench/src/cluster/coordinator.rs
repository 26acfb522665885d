//! `coordinator`: a group's coordinator with many committed offsets is moved and killed under a client that commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::admin::Wanted;
use super::args::{CoordinatorArgs, Durability};
use super::committer::Committer;
use super::deployment::Deployment;
use super::http;
use super::silence::{Answers, median};
use super::stage::create;
use crate::cli::ConnectionArgs;
use crate::client::Cluster;
use crate::histogram::Latencies;
use crate::recorder::{Counts, Nanos};
use crate::report::Report;

const OFFSETS_TOPIC: &str = "__consumer_offsets";
const TOPIC: &str = "tidegate-bench-committed";
/// The group whose commits are watched.
const WATCHED: &str = "tidegate-bench-watched";
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two commits of the watched group.
const INTERVAL: Duration = Duration::from_millis(1);
const LOOK_PAUSE: Duration = Duration::from_millis(20);

pub fn run(args: &CoordinatorArgs) -> Result<Report> {
    if args.cluster.bootstrap.is_some() {
        bail!("only brokers that are started here can be measured: leave --bootstrap out");
    }
    if args.cluster.brokers < 2 {
        bail!("a coordinator that goes elsewhere needs two brokers");
    }
    let mut report = Report::begin("coordinator", "own cluster", args)?;
    let mut cluster_args = args.cluster.clone();
    for (name, value) in [
        ("TIDEGATE_GROUPS_OFFSETS_PARTITIONS", "1"),
        ("TIDEGATE_CLUSTER_BALANCE", "false"),
    ] {
        cluster_args
            .broker_env
            .push((name.to_owned(), value.to_owned()));
    }
    let mut deployment = Deployment::start(&cluster_args, Durability::Object)?;
    let measured = measure(args, &mut deployment, &mut report)
        .with_context(|| format!("the brokers' logs are in {}", deployment.work().display()));
    let commits = measured?;
    report.finish(Counts {
        records: commits,
        bytes: 0,
    });
    deployment.finish()?;
    Ok(report)
}

fn measure(
    args: &CoordinatorArgs,
    deployment: &mut Deployment,
    report: &mut Report,
) -> Result<u64> {
    let cluster = Cluster::connect(&ConnectionArgs {
        bootstrap: deployment.bootstrap(),
        timeout: args.cluster.timeout,
        properties: args.cluster.properties.clone(),
    })?;
    create(&cluster, TOPIC, args.partitions)?;
    let stored = store(args, deployment)?;
    report.find(
        "offsets",
        u64::from(args.groups) * u64::from(args.partitions.unsigned_abs()),
    );
    report.find("commits_before", stored);

    let watched = Watched::start(deployment)?;
    std::thread::sleep(args.pause);
    let calm = (watched.now(), watched.now() + nanos(args.calm));
    std::thread::sleep(args.calm);
    let normal = median(watched.answers().intervals(calm.0, calm.1));
    let mut events = Vec::new();
    for number in 0..args.moves {
        let event = one_move(deployment, &cluster, &watched);
        events.push(event.with_context(|| format!("move {} of {}", number + 1, args.moves))?);
        std::thread::sleep(args.pause);
    }
    for number in 0..args.kills {
        let event = one_kill(args, deployment, &cluster, &watched);
        events.push(event.with_context(|| format!("kill {} of {}", number + 1, args.kills))?);
        std::thread::sleep(args.pause);
    }
    watched.await_answer(watched.now())?;
    let (answers, refusals, commits) = watched.stop()?;
    summarize(&answers, normal, calm, &events, report);
    report.errors = refusals;
    Ok(commits)
}

/// Commits all offsets of all groups.
fn store(args: &CoordinatorArgs, deployment: &Deployment) -> Result<u64> {
    let mut commits = 0;
    for round in 0..args.rounds {
        for group in 0..args.groups {
            let name = format!("tidegate-bench-group-{group}");
            let mut committer = Committer::new(&name, TOPIC, brokers(deployment))?;
            let offset = i64::from(round) + 1;
            committer.commit(0..args.partitions, offset, PATIENCE, || false)?;
            commits += 1;
        }
    }
    Ok(commits)
}

fn brokers(deployment: &Deployment) -> BTreeMap<i32, String> {
    let brokers = deployment.brokers.iter();
    brokers
        .map(|broker| (broker.id, broker.bootstrap()))
        .collect()
}

/// A client that commits all the time.
struct Watched {
    origin: Instant,
    answers: Arc<Mutex<Answers>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(BTreeMap<String, u64>, u64)>>,
}

impl Watched {
    fn start(deployment: &Deployment) -> Result<Self> {
        let mut committer = Committer::new(WATCHED, TOPIC, brokers(deployment))?;
        let origin = Instant::now();
        let answers = Arc::<Mutex<Answers>>::default();
        let stop = Arc::<AtomicBool>::default();
        let thread = std::thread::spawn({
            let (answers, stop) = (answers.clone(), stop.clone());
            move || {
                let mut commits = 0;
                let stopped = || stop.load(Ordering::Relaxed);
                while committer.commit(0..1, i64::try_from(commits)?, PATIENCE, stopped)? {
                    commits += 1;
                    let at = nanos(origin.elapsed());
                    lock(&answers).note(at);
                    std::thread::sleep(INTERVAL);
                }
                Ok((committer.refusals, commits))
            }
        });
        Ok(Self {
            origin,
            answers,
            stop,
            thread,
        })
    }

    fn now(&self) -> Nanos {
        nanos(self.origin.elapsed())
    }

    fn answers(&self) -> Answers {
        lock(&self.answers).clone()
    }

    /// Waits for a commit that is answered after `at`.
    fn await_answer(&self, at: Nanos) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while lock(&self.answers).last().is_none_or(|last| last <= at) {
            if Instant::now() > deadline || self.thread.is_finished() {
                bail!("no commit is answered any more");
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    fn stop(self) -> Result<(Answers, BTreeMap<String, u64>, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().ok().context("the client panicked")?;
        let (refusals, commits) = ended?;
        let answers = lock(&self.answers).clone();
        Ok((answers, refusals, commits))
    }
}

fn lock(answers: &Mutex<Answers>) -> std::sync::MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// A move or a kill of the coordinator.
struct Event {
    kind: &'static str,
    begun: Nanos,
    until: Nanos,
    from: i32,
    to: i32,
    /// What the new coordinator says that its loading took.
    load: Option<Duration>,
}

fn leader(cluster: &Cluster) -> Result<i32> {
    let leaders = cluster.leaders(OFFSETS_TOPIC)?;
    leaders.first().copied().context("there is no coordinator")
}

fn one_move(deployment: &Deployment, cluster: &Cluster, watched: &Watched) -> Result<Event> {
    let from = leader(cluster)?;
    let brokers = deployment.admin().alive()?;
    let at = brokers.iter().position(|id| *id == from).unwrap_or(0);
    let to = brokers[(at + 1) % brokers.len()];
    let before = loads(deployment);
    let begun = watched.now();
    let wanted = [Wanted { partition: 0, to }];
    let mut answers = deployment
        .admin()
        .reassign(OFFSETS_TOPIC, &wanted, PATIENCE)?;
    if let Err(cause) = answers.remove(0) {
        bail!("the move to broker {to} failed: {cause}");
    }
    watched.await_answer(watched.now())?;
    let until = watched.now();
    Ok(Event {
        kind: "move",
        begun,
        until,
        from,
        to,
        load: newest_load(&before, &loads(deployment)),
    })
}

fn one_kill(
    args: &CoordinatorArgs,
    deployment: &mut Deployment,
    cluster: &Cluster,
    watched: &Watched,
) -> Result<Event> {
    let from = leader(cluster)?;
    let mut before = loads(deployment);
    let begun = watched.now();
    deployment.broker(from)?.kill()?;
    let killed = Instant::now();
    if args
        .cluster
        .durability
        .is_none_or(|d| d == Durability::Object)
    {
        watched.await_answer(watched.now())?;
        std::thread::sleep(args.pause.saturating_sub(killed.elapsed()));
    }
    let until_taken_over = watched.now();
    let after = loads(deployment);
    deployment.restart(from)?;
    watched.await_answer(watched.now())?;
    let to = leader(cluster)?;
    let (until, after) = match to == from {
        // It has begun to count anew.
        true => {
            before.remove(&from);
            (watched.now(), loads(deployment))
        }
        false => (until_taken_over, after),
    };
    Ok(Event {
        kind: "kill",
        begun,
        until,
        from,
        to,
        load: newest_load(&before, &after),
    })
}

/// How many group coordinators each broker has loaded, and how many seconds that took.
type Loads = BTreeMap<i32, (f64, f64)>;

fn loads(deployment: &Deployment) -> Loads {
    let brokers = deployment.brokers.iter();
    brokers
        .filter_map(|broker| {
            let answer = http::request(&broker.admin(), "GET", "/metrics", None, LOOK_PATIENCE);
            let page = answer.ok()?.body;
            let count = metric(&page, "coordinator_load_duration_seconds_count");
            let sum = metric(&page, "coordinator_load_duration_seconds_sum");
            Some((broker.id, (count, sum)))
        })
        .collect()
}

const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// The sum of a metric of group coordinators over its other labels.
fn metric(page: &str, name: &str) -> f64 {
    page.lines()
        .filter(|line| line.contains(name) && line.contains(r#"kind="group""#))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// What the loads took that only the later look has. There is one coordinator, so that is one load.
fn newest_load(before: &Loads, after: &Loads) -> Option<Duration> {
    let mut count = 0.0;
    let mut sum = 0.0;
    for (broker, (counted, took)) in after {
        let (known, known_took) = before.get(broker).copied().unwrap_or_default();
        count += counted - known;
        sum += took - known_took;
    }
    (count > 0.0).then(|| Duration::from_secs_f64((sum / count).clamp(0.0, 1e6)))
}

fn summarize(
    answers: &Answers,
    normal: Nanos,
    calm: (Nanos, Nanos),
    events: &[Event],
    report: &mut Report,
) {
    let [mut move_gap, mut kill_gap, mut warm, mut cold] = [(); 4].map(|()| Latencies::new());
    let gap = |silence: Nanos| Duration::from_nanos(silence.saturating_sub(normal));
    for event in events {
        let silence = answers.longest_silence(event.begun, event.until);
        let (gaps, loads) = match event.kind {
            "move" => (&mut move_gap, &mut warm),
            _ => (&mut kill_gap, &mut cold),
        };
        gaps.record(gap(silence));
        if let Some(load) = event.load {
            loads.record(load);
        }
        report.events.push(serde_json::json!({
            "kind": event.kind,
            "t_s": event.begun as f64 / 1e9,
            "from": event.from,
            "to": event.to,
            "silence_ms": silence as f64 / 1e6,
            "load_ms": event.load.map(|load| load.as_secs_f64() * 1e3),
        }));
    }
    let mut calm_gap = Latencies::new();
    let mut from = calm.0;
    let window = nanos(Duration::from_secs(1));
    while from + window <= calm.1 {
        calm_gap.record(gap(answers.longest_silence(from, from + window)));
        from += window;
    }
    report.add_latency("move_gap", &move_gap);
    report.add_latency("move_load", &warm);
    report.add_latency("kill_gap", &kill_gap);
    report.add_latency("cold_load", &cold);
    report.add_latency("calm_gap", &calm_gap);
    report.notes.push(
        "move gap, kill gap: the longest time without an answered commit, less the usual one; move load, cold load: \
         what the new coordinator says that it took to load after its partition was open"
            .to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_the_new_coordinator_is_what_came_between_two_looks() {
        let page = "x_coordinator_load_duration_seconds_sum{kind=\"transaction\"} 9.0\n\
                    x_coordinator_load_duration_seconds_sum{kind=\"group\",start=\"cold\"} 0.5\n\
                    x_coordinator_load_duration_seconds_sum{kind=\"group\",start=\"warm\"} 0.25\n\
                    x_coordinator_load_duration_seconds_count{kind=\"group\",start=\"warm\"} 2\n";
        let sum = metric(page, "coordinator_load_duration_seconds_sum");
        let count = metric(page, "coordinator_load_duration_seconds_count");
        assert_eq!((count, sum), (2.0, 0.75));
        let before: Loads = [(1, (1.0, 0.5)), (2, (4.0, 1.0))].into();
        let after: Loads = [(1, (2.0, 0.75)), (2, (4.0, 1.0))].into();
        assert_eq!(
            newest_load(&before, &after),
            Some(Duration::from_millis(250))
        );
        assert_eq!(newest_load(&before, &before), None);
    }
}
