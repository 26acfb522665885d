//! `compaction`: what compacting a topic costs a broker, and what producers notice of it.
//!
//! A topic is filled while it isn't compacted. Another one is written to at a fixed rate, for a while as it is, which
//! is the yardstick, and then while the first one is compacted: changing its `cleanup.policy` begins that. How far the
//! broker has come is read from its metrics; what it cost is the CPU time of its process, less what the same load cost
//! before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;
use serde::Serialize;

use super::http;
use crate::cli::{
    ConnectionArgs, LoadArgs, TopicArgs, parse_duration, parse_rate, parse_size, seconds,
};
use crate::client::Cluster;
use crate::histogram::Latencies;
use crate::load::{Pacing, Plan, Sender};
use crate::payload::{Payloads, SplitMix};
use crate::produce::new_mark;
use crate::recorder::{Recorded, Window};
use crate::report::{Report, cpu_seconds};

/// How often the broker is asked how far it is.
const SLICE: Duration = Duration::from_millis(250);
/// Compaction is over when a pass is and nothing was read for so long.
const QUIET: Duration = Duration::from_secs(3);
/// Fewer acknowledgements have no 99th percentile worth the name.
const ENOUGH: u64 = 2_000;
/// Less CPU time drowns in what the load itself costs more or less.
const ENOUGH_CPU_S: f64 = 1.0;

#[derive(Args, Clone, Serialize)]
pub struct CompactionArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// Admin address of the broker, for its metrics. It must be the only broker.
    #[arg(long, default_value = "127.0.0.1:9640", value_name = "HOST:PORT")]
    pub admin: String,
    /// The broker's process, if it runs here: its CPU time is measured.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Name of the topic that is compacted; the other one is called so with `-probe` behind it. Both are created and
    /// must not exist.
    #[arg(long, default_value = "tidegate-bench-compaction")]
    pub topic: String,
    /// Partitions of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    pub partitions: i32,
    /// Bytes of values to be compacted.
    #[arg(long, default_value = "512MiB", value_parser = parse_size, value_name = "SIZE")]
    pub fill: u64,
    /// Different keys among them, chosen at random.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Rate of the producers whose acknowledgements are timed.
    #[arg(long, default_value_t = 5.0, value_parser = parse_rate, value_name = "MB/s")]
    pub rate_mb: f64,
    /// Time before anything is measured: what was filled is uploaded meanwhile.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    /// Measured time without compaction.
    #[arg(long, default_value = "20s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub calm: Duration,
    /// Longest wait for the end of compaction.
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub patience: Duration,
    /// Leave the topics behind.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object on standard output instead of the table.
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

pub fn run(args: &CompactionArgs) -> Result<Report> {
    let cluster = Cluster::connect(&args.connection)?;
    // Also says early that there is no such address.
    Progress::read(&args.admin)?;
    let topics = cluster.prepare_topics(&topic(args, args.topic.clone()))?;
    let probe = cluster.prepare_topics(&topic(args, format!("{}-probe", args.topic)))?;
    let report = measure(&cluster, args, &topics, probe.clone());
    if !args.keep {
        cluster.delete_topics(&[topics, probe].concat())?;
    }
    report
}

fn topic(args: &CompactionArgs, name: String) -> TopicArgs {
    TopicArgs {
        topic: name,
        topics: 1,
        create: true,
        delete: false,
        partitions: args.partitions,
        replication_factor: None,
        topic_config: vec![("cleanup.policy".to_owned(), "delete".to_owned())],
    }
}

fn measure(
    cluster: &Cluster,
    args: &CompactionArgs,
    topics: &[(String, i32)],
    probe: Vec<(String, i32)>,
) -> Result<Report> {
    let mut report = Report::begin("compaction", &args.connection.bootstrap, args)?;
    fill(cluster, args, topics)?;
    let plan = Plan {
        origin: Instant::now(),
        window: Window {
            from: 0,
            until: u64::MAX - 1,
        },
        topics: probe,
        load: args.load.clone(),
        pacing: Pacing::Planned {
            records_per_s: args.rate_mb * 1e6
                / args.load.record_size as f64
                / f64::from(args.load.producers),
            tick: Duration::from_millis(1),
        },
        records: None,
        mark: new_mark(),
        stop: Arc::new(AtomicBool::new(false)),
    };
    let senders = (0..args.load.producers)
        .map(|index| Sender::start(cluster, &plan, index))
        .collect::<Result<Vec<_>>>()?;
    let watched = watch(cluster, args, &senders);
    plan.stop.store(true, Ordering::Relaxed);
    let settled = Instant::now() + cluster.timeout();
    while !senders.iter().all(Sender::is_settled) && Instant::now() < settled {
        std::thread::sleep(Duration::from_millis(20));
    }
    let recorders: Vec<_> = senders
        .iter()
        .map(|sender| sender.recorder.clone())
        .collect();
    for sender in senders {
        sender.finish()?;
    }
    let (calm, slices) = watched?;
    let acks = Recorded::sum(recorders.iter().map(|recorder| recorder.recorded()))
        .context("a run needs at least one producer")?;
    report.errors.clone_from(&acks.errors);
    report.finish(acks.all);
    describe(&mut report, args, &calm, &slices);
    Ok(report)
}

/// Sends the records that are to be compacted, and sees that all are there.
fn fill(cluster: &Cluster, args: &CompactionArgs, topics: &[(String, i32)]) -> Result<()> {
    let load = LoadArgs {
        batch_size: args.load.batch_size.max(64 << 10),
        ..args.load.clone()
    };
    let producer: BaseProducer = cluster
        .producer_config(&load)
        .create()
        .context("the producer refused its configuration")?;
    let size = usize::try_from(args.load.record_size).context("the record size is too large")?;
    let mut payloads = Payloads::new(size, args.load.compressibility, 77);
    let mut random = SplitMix(4_711);
    let count = args.fill.div_ceil(args.load.record_size);
    let before: i64 = cluster.spans(topics)?.iter().map(|span| span.end).sum();
    ensure!(before == 0, "topic `{}` isn't empty", args.topic);
    for _ in 0..count {
        let key = format!("user-{:012}", random.next() % args.keys);
        let value: &[u8] = payloads.take();
        let mut record = BaseRecord::to(&args.topic).key(&key).payload(value);
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                    record = refused;
                    producer.poll(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error).context("could not fill the topic"),
            }
        }
        producer.poll(Duration::ZERO);
    }
    producer
        .flush(cluster.timeout())
        .context("what fills the topic isn't acknowledged")?;
    let stored: i64 = cluster.spans(topics)?.iter().map(|span| span.end).sum();
    ensure!(
        u64::try_from(stored)? >= count,
        "{stored} of {count} records were stored"
    );
    Ok(())
}

/// A stretch of time and what it cost.
struct Slice {
    seconds: f64,
    /// Of the broker's process, if it is known.
    cpu_s: Option<f64>,
    latencies: Latencies,
    /// What was done in it.
    done: Progress,
}

/// Counts of the broker's metrics, or how much they grew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    read_bytes: f64,
    filtered_bytes: f64,
    kept_bytes: f64,
    passes: f64,
    failures: f64,
}

impl Progress {
    fn read(admin: &str) -> Result<Self> {
        let answer = http::request(admin, "GET", "/metrics", None, Duration::from_secs(5))?;
        ensure!(
            answer.status == 200,
            "{admin} answered {} to a request for its metrics",
            answer.status
        );
        Self::of(&answer.body)
    }

    fn of(page: &str) -> Result<Self> {
        let value = |name: &str| -> Result<f64> {
            let name = format!("tidegate_compaction_{name}_total");
            let mut lines = page.lines();
            let line = lines.find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
            let line = line.with_context(|| format!("the broker has no metric {name}"))?;
            Ok(line.trim().parse()?)
        };
        Ok(Self {
            read_bytes: value("read_bytes")?,
            filtered_bytes: value("filtered_bytes")?,
            kept_bytes: value("kept_bytes")?,
            passes: value("passes")?,
            failures: value("failures")?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes - before.read_bytes,
            filtered_bytes: self.filtered_bytes - before.filtered_bytes,
            kept_bytes: self.kept_bytes - before.kept_bytes,
            passes: self.passes - before.passes,
            failures: self.failures - before.failures,
        }
    }

    fn and(self, other: Self) -> Self {
        other.since(Self::default().since(self))
    }
}

/// Cuts time into slices.
struct Stopwatch<'a> {
    args: &'a CompactionArgs,
    senders: &'a [Sender],
    begun: Instant,
    cpu_s: Option<f64>,
    progress: Progress,
}

impl<'a> Stopwatch<'a> {
    fn start(args: &'a CompactionArgs, senders: &'a [Sender]) -> Result<Self> {
        let mut watch = Self {
            args,
            senders,
            begun: Instant::now(),
            cpu_s: None,
            progress: Progress::default(),
        };
        watch.cut()?;
        Ok(watch)
    }

    /// What was since the last cut.
    fn cut(&mut self) -> Result<Slice> {
        let now = Instant::now();
        let progress = Progress::read(&self.args.admin)?;
        let cpu_s = self.args.pid.map(|pid| {
            cpu_seconds(&pid.to_string())
                .with_context(|| format!("the CPU time of process {pid} can't be read"))
        });
        let cpu_s = cpu_s.transpose()?;
        let mut latencies = Latencies::new();
        for sender in self.senders {
            sender.recorder.take_interval(&mut latencies);
        }
        let slice = Slice {
            seconds: (now - self.begun).as_secs_f64(),
            cpu_s: cpu_s.zip(self.cpu_s).map(|(now, before)| now - before),
            latencies,
            done: progress.since(self.progress),
        };
        (self.begun, self.cpu_s, self.progress) = (now, cpu_s, progress);
        Ok(slice)
    }
}

/// The calm time, and that of the compaction from the first slice in which something was read to the end of the
/// last pass.
fn watch(
    cluster: &Cluster,
    args: &CompactionArgs,
    senders: &[Sender],
) -> Result<(Slice, Vec<Slice>)> {
    std::thread::sleep(args.warmup);
    let mut watch = Stopwatch::start(args, senders)?;
    std::thread::sleep(args.calm);
    let calm = watch.cut()?;
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    cluster.set_topic_configs(&args.topic, &configs)?;
    let deadline = Instant::now() + args.patience;
    let (mut slices, mut busy, mut passes) = (Vec::new(), 0, 0.0);
    let mut quiet_since = Instant::now();
    loop {
        std::thread::sleep(SLICE);
        let slice = watch.cut()?;
        passes += slice.done.passes;
        // A pass ends with storing, some time behind its last read.
        if slice.done.read_bytes > 0.0 || slice.done.passes > 0.0 {
            quiet_since = Instant::now();
            busy = slices.len() + 1;
        }
        // What came before the first byte was read is no part of it.
        if busy > 0 {
            slices.push(slice);
        }
        if passes > 0.0 && quiet_since.elapsed() > QUIET {
            slices.truncate(busy);
            return Ok((calm, slices));
        }
        if Instant::now() > deadline {
            bail!("the broker doesn't come to the end of a compaction");
        }
    }
}

fn describe(report: &mut Report, args: &CompactionArgs, calm: &Slice, slices: &[Slice]) {
    let seconds: f64 = slices.iter().map(|slice| slice.seconds).sum();
    let done = slices
        .iter()
        .fold(Progress::default(), |sum, slice| sum.and(slice.done));
    let cpu_s = slices.iter().map(|slice| slice.cpu_s).sum::<Option<f64>>();
    let mut during = Latencies::new();
    slices
        .iter()
        .for_each(|slice| during.merge(&slice.latencies));

    let input_mb = done.filtered_bytes / 1e6;
    report.find("input_mb", input_mb);
    report.find("kept_mb", done.kept_bytes / 1e6);
    report.find("read_mb", done.read_bytes / 1e6);
    report.find("passes", done.passes);
    report.find("compaction_s", seconds);
    report.find("input_mb_per_s", input_mb / seconds);
    if let Some((cpu_s, calm_cpu_s)) = cpu_s.zip(calm.cpu_s) {
        let extra_s = cpu_s - calm_cpu_s / calm.seconds * seconds;
        report.find("compaction_cpu_s", extra_s);
        if extra_s > 0.0 {
            report.find("input_mb_per_s_per_core", input_mb / extra_s);
        }
        if extra_s < ENOUGH_CPU_S {
            report.notes.push(format!(
                "compaction took {extra_s:.2} s of CPU, too little to divide by: fill more"
            ));
        }
    } else {
        report
            .notes
            .push("without --pid the broker's CPU time isn't known".to_owned());
    }
    report.add_latency("ack_before", &calm.latencies);
    report.add_latency("ack_during", &during);
    if let Some((before, during)) = calm.latencies.summary().zip(during.summary()) {
        report.find("p99_during_to_before", during.p99 / before.p99);
        if during.count < ENOUGH {
            report.notes.push(format!(
                "only {} acknowledgements came during compaction: fill more, or send faster",
                during.count
            ));
        }
    }
    if done.failures > 0.0 {
        report.notes.push("a pass ended with an error".to_owned());
    }
    let filled = args.fill as f64;
    if done.filtered_bytes < filled * 0.9 && args.load.compression.property() == "none" {
        report.notes.push(format!(
            "{:.0} of {:.0} MB were compacted: the rest wasn't uploaded yet, or the key map was full",
            input_mb,
            filled / 1e6
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE x counter\n\
        tidegate_compaction_read_bytes_total 300\n\
        tidegate_compaction_filtered_bytes_total 200\n\
        tidegate_compaction_kept_bytes_total 20\n\
        tidegate_compaction_passes_total 2\n\
        tidegate_compaction_failures_total 0\n";

    #[test]
    fn progress_is_read_from_a_page_of_metrics() {
        let progress = Progress::of(PAGE).expect("the page has all of them");
        assert_eq!((progress.read_bytes, progress.passes), (300.0, 2.0));
        let twice = progress.and(progress);
        assert_eq!((twice.filtered_bytes, twice.kept_bytes), (400.0, 40.0));
        assert_eq!(twice.since(progress), progress);
        let error = Progress::of("").expect_err("nothing is there");
        assert!(
            error
                .to_string()
                .contains("tidegate_compaction_read_bytes_total")
        );
    }

    fn slice(seconds: f64, cpu_s: f64, filtered_bytes: f64) -> Slice {
        Slice {
            seconds,
            cpu_s: Some(cpu_s),
            latencies: Latencies::new(),
            done: Progress {
                filtered_bytes,
                ..Progress::default()
            },
        }
    }

    #[test]
    fn the_cost_of_the_load_is_no_cost_of_compaction() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: CompactionArgs,
        }
        let args = Line::parse_from(["x"]).args;
        let mut report = Report::begin("compaction", "x", &args).expect("a report begins");
        // Half a core before; 300 MB in 2 s that took a core and a half.
        let slices = [slice(1.0, 1.5, 1e8), slice(1.0, 1.5, 2e8)];
        describe(&mut report, &args, &slice(10.0, 5.0, 0.0), &slices);
        let found = report.findings.get("input_mb_per_s_per_core");
        assert_eq!(found.and_then(serde_json::Value::as_f64), Some(150.0));
    }
}
