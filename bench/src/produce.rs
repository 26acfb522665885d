//! `produce`: how much the broker takes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::cli::ProduceArgs;
use crate::client::Cluster;
use crate::drive::drive;
use crate::load::{Pacing, Plan};
use crate::payload::SplitMix;
use crate::recorder::Window;
use crate::report::{Report, Throughput};

pub fn run(args: &ProduceArgs) -> Result<Report> {
    let cluster = Cluster::connect(&args.connection)?;
    let topics = cluster.prepare_topics(&args.topic)?;
    let report = flood(&cluster, args, topics.clone());
    if args.topic.delete {
        cluster.delete_topics(&topics)?;
    }
    report
}

fn flood(cluster: &Cluster, args: &ProduceArgs, topics: Vec<(String, i32)>) -> Result<Report> {
    let mut report = Report::begin("produce", &args.connection.bootstrap, args)?;
    let plan = plan(args, topics);
    let outcome = drive(cluster, &plan, "produce", args.output.interval, None)?;
    let elapsed = match args.bytes {
        Some(_) => Duration::from_nanos(outcome.acks.last),
        None => args.duration,
    };
    report.throughput = Some(Throughput::of(outcome.acks.measured, elapsed));
    report.add_acks(&outcome.acks);
    report.timeline = outcome.points;
    report.finish(outcome.acks.all);
    Ok(report)
}

fn plan(args: &ProduceArgs, topics: Vec<(String, i32)>) -> Plan {
    let window = match args.bytes {
        Some(_) => Window {
            from: 0,
            until: u64::MAX,
        },
        None => window(args.warmup, args.duration),
    };
    let producers = u64::from(args.load.producers);
    let pacing = match args.max_rate_mb {
        None => Pacing::Flood,
        Some(rate_mb) => Pacing::Planned {
            records_per_s: rate_mb * 1e6 / args.load.record_size as f64 / producers as f64,
            tick: Duration::from_millis(1),
        },
    };
    Plan {
        origin: Instant::now(),
        window,
        topics,
        pacing,
        records: args
            .bytes
            .map(|bytes| bytes.div_ceil(args.load.record_size).div_ceil(producers)),
        mark: new_mark(),
        stop: Arc::new(AtomicBool::new(false)),
        load: args.load.clone(),
    }
}

/// The measured window after a warm-up.
pub fn window(warmup: Duration, duration: Duration) -> Window {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
    Window {
        from: nanos(warmup),
        until: nanos(warmup + duration),
    }
}

/// A number that no other run uses.
pub fn new_mark() -> u64 {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    SplitMix(since_epoch.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32)).next()
}

/// Turns a failed run into an error: nothing arrived at all.
pub fn require_success(report: &Report) -> Result<()> {
    let acknowledged = report.total.records;
    (acknowledged > 0)
        .then_some(())
        .with_context(|| match report.errors.iter().next() {
            Some((kind, count)) => format!("no record was acknowledged; {count} failed: {kind}"),
            None => "no record was acknowledged".to_owned(),
        })
}
