//! The work each system is put through.

mod transactions;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use super::client::{Answer, Transactions, java_produce};
use super::files;
use super::results::{Column, Metric, Results};
use super::system::{Deployment, Installed, System, Uploads};

/// What a reader of the table must know.
pub const REMARKS: &str = "\
- Apache Kafka acknowledges a record when it is in the page cache, without fsync. Tidegate `local` acknowledges \
after fdatasync, `object` after the PUT. `flush.messages=1` makes Kafka sync each batch before it acknowledges.
- The client is tidegate-bench (librdkafka) with the Java client's settings: acks=all, 16 KiB batches, 5 ms \
linger, 5 requests in flight, 32 MiB buffer; 1 KiB incompressible records, 16 partitions. Idempotence is off: \
librdkafka's idempotent producer spins on a core that the broker needs. librdkafka puts one batch into a \
request where the Java client puts one of each partition, so a broker sees more and smaller requests here; \
`large batches` (256 KiB) takes that away, and `--java-client` shows the other (idempotent, as is its default).
- Broker CPU is user and system time of the broker's process from the start of the scenario until it is idle \
again (Tidegate's uploads included), divided by all bytes moved. The S3 server's own CPU isn't in it.
- Latencies count from the planned send time (open loop).
- Cold: the broker is restarted, so its own caches are empty; the operating system's page cache isn't emptied \
unless --drop-caches says so, for neither system.
";

/// Kafka's topic configuration that makes it sync before it acknowledges.
const FLUSH: [&str; 2] = ["--topic-config", "flush.messages=1"];

/// What is written before the kill.
const RECOVER_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Scenario {
    /// From the process's start on an empty store to its first Metadata answer.
    Startup,
    /// Memory and CPU without any client.
    Idle,
    /// As much as it takes, 16 KiB batches.
    Produce,
    /// As much as it takes, 256 KiB batches.
    LargeBatches,
    /// As much as it takes, with Kafka's performance client.
    ProduceJava,
    /// Kafka's performance client without and with transactions, and both ways of reading what they wrote.
    Transactions,
    /// Acknowledge latency at a fixed rate.
    Latency,
    /// Latency to a consumer at the tail, at the same rate.
    EndToEnd,
    /// Reading what was just written.
    Tail,
    /// Reading from the start after a restart.
    Cold,
    /// Start after a kill, with 1,000 partitions and data not yet uploaded.
    Recovery,
}

impl Scenario {
    pub fn key(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Idle => "idle",
            Self::Produce => "produce",
            Self::LargeBatches => "large-batches",
            Self::ProduceJava => "produce-java",
            Self::Transactions => "transactions",
            Self::Latency => "latency",
            Self::EndToEnd => "end-to-end",
            Self::Tail => "tail",
            Self::Cold => "cold",
            Self::Recovery => "recovery",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Startup => "start on an empty store",
            Self::Idle => "idle",
            Self::Produce => "produce",
            Self::LargeBatches => "produce, large batches",
            Self::ProduceJava => "produce, Java client",
            Self::Transactions => "transactions of 100 ms, Java client",
            Self::Latency => "latency at a fixed rate",
            Self::EndToEnd => "end to end at a fixed rate",
            Self::Tail => "consume what was just written",
            Self::Cold => "consume after a restart (cold)",
            Self::Recovery => "restart after a kill, 1,000 partitions, 256 MiB not uploaded",
        }
    }

    /// Whether the scenario is measured under load, and so needs a warm broker (a JVM compiles while it runs).
    fn needs_warmth(self) -> bool {
        !matches!(self, Self::Startup | Self::Idle | Self::Recovery)
    }
}

/// How long and how much.
pub struct Scale {
    rate_mb: f64,
    drop_caches: bool,
    warm_up: &'static str,
    load: &'static str,
    latency_warmup: &'static str,
    read_bytes: &'static str,
    java_records: u64,
    idle_settle: Duration,
    idle_watch: Duration,
    quiet_patience: Duration,
}

impl Scale {
    pub fn new(quick: bool, rate_mb: f64, drop_caches: bool) -> Self {
        let seconds = |full, short| Duration::from_secs(if quick { short } else { full });
        let pick = |full, short| if quick { short } else { full };
        Self {
            rate_mb,
            drop_caches,
            warm_up: pick("15s", "3s"),
            load: pick("20s", "4s"),
            latency_warmup: pick("5s", "2s"),
            read_bytes: pick("1GiB", "128MiB"),
            java_records: if quick { 200_000 } else { 2_000_000 },
            idle_settle: seconds(10, 2),
            idle_watch: seconds(10, 3),
            quiet_patience: seconds(30, 10),
        }
    }
}

/// One system in one round.
struct Bout<'a> {
    installed: &'a Installed,
    deployment: Deployment,
    column: Column,
    scale: &'a Scale,
    round: u32,
    results: &'a mut Results,
    /// Whether the topic for the reading scenarios is written.
    preloaded: bool,
}

/// Puts one system through the wanted scenarios, from an empty folder on.
pub fn run_all(
    installed: &Installed,
    system: System,
    folder: &Path,
    wanted: &[Scenario],
    scale: &Scale,
    round: u32,
    results: &mut Results,
) -> Result<()> {
    let deployment = Deployment::create(installed, system, folder)?;
    let column = Column::of(system);
    let mut bout = Bout {
        installed,
        deployment,
        column,
        scale,
        round,
        results,
        preloaded: false,
    };
    let took = bout.deployment.start()?;
    if wanted.contains(&Scenario::Startup) {
        bout.add(Scenario::Startup, Metric::Start, milliseconds(took));
    }
    if wanted.contains(&Scenario::Idle) {
        bout.idle()?;
    }
    if wanted.iter().any(|scenario| scenario.needs_warmth()) {
        bout.warm_up()?;
    }
    for &scenario in wanted {
        eprintln!("  {}", scenario.label());
        let done = match scenario {
            Scenario::Startup | Scenario::Idle => Ok(()),
            Scenario::Produce => bout.produce(scenario, &[]),
            Scenario::LargeBatches => bout.produce(scenario, &["--batch-size", "256KiB"]),
            Scenario::ProduceJava => bout.produce_java(),
            Scenario::Transactions => bout.transactions(),
            Scenario::Latency => bout.latency(),
            Scenario::EndToEnd => bout.end_to_end(),
            Scenario::Tail => bout.tail(),
            Scenario::Cold => bout.cold(),
            Scenario::Recovery => bout.recovery(),
        };
        done.with_context(|| format!("scenario {}", scenario.key()))?;
    }
    bout.deployment.stop()
}

impl Bout<'_> {
    fn add(&mut self, scenario: Scenario, metric: Metric, value: f64) {
        self.add_to(self.column, scenario, metric, value);
    }

    fn add_to(&mut self, column: Column, scenario: Scenario, metric: Metric, value: f64) {
        self.results
            .add(self.round, scenario, column, metric, value);
    }

    fn client(&self, bench: &str, arguments: &[&str]) -> Result<Answer> {
        let answer = self
            .installed
            .client
            .run(bench, &self.deployment.bootstrap(), arguments)?;
        let errors = answer.errors();
        if errors > 0 {
            bail!("{errors} records failed: {}", answer.0["errors"]);
        }
        Ok(answer)
    }

    /// Waits until the broker has nothing left to do.
    fn await_quiet(&self) -> Result<()> {
        if !self
            .deployment
            .server()?
            .await_quiet(0.05, self.scale.quiet_patience)?
        {
            eprintln!(
                "  the broker is still busy {:?} after the load",
                self.scale.quiet_patience
            );
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        std::thread::sleep(self.scale.idle_settle);
        let server = self.deployment.server()?;
        let before = server.cpu_seconds()?;
        std::thread::sleep(self.scale.idle_watch);
        let used = server.cpu_seconds()? - before;
        let memory = server.resident_bytes()?;
        self.add(
            Scenario::Idle,
            Metric::IdleCpu,
            used / self.scale.idle_watch.as_secs_f64() * 100.0,
        );
        self.add(Scenario::Idle, Metric::IdleMemory, memory as f64 / 1e6);
        Ok(())
    }

    /// Both paths, unmeasured, on a topic of its own.
    fn warm_up(&self) -> Result<()> {
        let topic = ["--topic", "warm-up"];
        let time = [
            "--create",
            "--duration",
            self.scale.warm_up,
            "--warmup",
            "0s",
        ];
        self.client("produce", &[&topic[..], &time[..]].concat())?;
        self.client("consume", &[&topic[..], &["--delete"]].concat())?;
        self.await_quiet()
    }

    /// The columns a load is measured in: Kafka also with a sync before each acknowledgement.
    fn variants(&self) -> Vec<(Column, &'static [&'static str])> {
        match self.column {
            Column::Kafka => vec![(Column::Kafka, &[]), (Column::KafkaFlush, &FLUSH)],
            other => vec![(other, &[])],
        }
    }

    fn produce(&mut self, scenario: Scenario, options: &[&str]) -> Result<()> {
        for (column, topic_options) in self.variants() {
            let stored_before = files::sizes(&self.deployment.store())?;
            let time = [
                "--topic",
                "load",
                "--create",
                "--duration",
                self.scale.load,
                "--warmup",
                "2s",
            ];
            let arguments = [&time[..], options, topic_options].concat();
            let answer = self.measured(column, scenario, "produce", &arguments)?;
            self.add_to(
                column,
                scenario,
                Metric::Throughput,
                answer.number("/throughput/mb_per_s")?,
            );
            if column != Column::KafkaFlush {
                let stored = files::grown_since(&self.deployment.store(), &stored_before)?;
                let produced = answer.number("/total/bytes")?;
                self.add_to(column, scenario, Metric::Stored, stored as f64 / produced);
            }
            self.delete("load")?;
        }
        Ok(())
    }

    /// Runs the client and adds what any load has: latencies, CPU and memory of the broker.
    fn measured(
        &mut self,
        column: Column,
        scenario: Scenario,
        bench: &str,
        arguments: &[&str],
    ) -> Result<Answer> {
        let watch = self.deployment.server()?.watch_memory();
        let cpu_before = self.deployment.server()?.cpu_seconds()?;
        let answer = self.client(bench, arguments);
        let peak = watch.end();
        let answer = answer?;
        self.await_quiet()?;
        let used = self.deployment.server()?.cpu_seconds()? - cpu_before;
        let gigabytes = answer.number("/total/bytes")? / 1e9;
        self.add_to(column, scenario, Metric::CpuPerGb, used / gigabytes);
        self.add_to(
            column,
            scenario,
            Metric::ClientCpuPerGb,
            answer.number("/client/cpu_s_per_gb")?,
        );
        self.add_to(column, scenario, Metric::PeakMemory, peak as f64 / 1e6);
        for (metric, pointer) in [
            (Metric::AckP50, "/latency_ms/ack/p50"),
            (Metric::AckP99, "/latency_ms/ack/p99"),
            (Metric::AckP999, "/latency_ms/ack/p999"),
            (Metric::AckMax, "/latency_ms/ack/max"),
            (Metric::EndToEndP50, "/latency_ms/end_to_end/p50"),
            (Metric::EndToEndP99, "/latency_ms/end_to_end/p99"),
            (Metric::EndToEndP999, "/latency_ms/end_to_end/p999"),
        ] {
            // Readers have no acknowledgements, and few runs have a consumer at the tail.
            if let Ok(value) = answer.number(pointer) {
                self.add_to(column, scenario, metric, value);
            }
        }
        Ok(answer)
    }

    fn delete(&self, topic: &str) -> Result<()> {
        // One record, so that there is something to acknowledge, and the topic goes with it.
        self.client(
            "produce",
            &["--topic", topic, "--bytes", "1KiB", "--delete"],
        )
        .map(drop)
    }

    fn produce_java(&mut self) -> Result<()> {
        let scenario = Scenario::ProduceJava;
        self.client(
            "produce",
            &["--topic", "java", "--create", "--bytes", "1KiB"],
        )?;
        let before = self.deployment.server()?.cpu_seconds()?;
        let records = self.scale.java_records;
        let answer = java_produce(
            &self.installed.kafka_library,
            &self.deployment.bootstrap(),
            "java",
            records,
            Transactions::None,
        )?;
        self.await_quiet()?;
        let used = self.deployment.server()?.cpu_seconds()? - before;
        self.add(scenario, Metric::Throughput, answer.mb_per_s);
        self.add(
            scenario,
            Metric::CpuPerGb,
            used / (records as f64 * 1_024.0 / 1e9),
        );
        self.add(scenario, Metric::AckP50, answer.p50_ms);
        self.add(scenario, Metric::AckP99, answer.p99_ms);
        self.add(scenario, Metric::AckP999, answer.p999_ms);
        self.delete("java")
    }

    fn latency(&mut self) -> Result<()> {
        let rate = self.scale.rate_mb.to_string();
        for (column, topic_options) in self.variants() {
            let before = files::sizes(&self.deployment.store())?;
            let options = self.latency_options("latency", &rate);
            let arguments = [&options[..], topic_options].concat();
            let answer = self.measured(column, Scenario::Latency, "latency", &arguments)?;
            if self.deployment.s3().is_some() {
                let store = self.deployment.store();
                let mut objects = files::sizes(&store)?;
                objects
                    .retain(|path, _| files::is_data(&store, path) && !before.contains_key(path));
                self.raw_put(
                    objects.into_values().collect(),
                    answer.number("/total/elapsed_s")?,
                )?;
            }
            self.delete("latency")?;
        }
        Ok(())
    }

    fn latency_options<'a>(&self, topic: &'a str, rate: &'a str) -> [&'a str; 9] {
        let (time, warmup) = (self.scale.load, self.scale.latency_warmup);
        [
            "--topic",
            topic,
            "--create",
            "--rate-mb",
            rate,
            "--duration",
            time,
            "--warmup",
            warmup,
        ]
    }

    /// The yardstick: as many objects of the same size, at the same rate, to the same server.
    fn raw_put(&mut self, objects: Vec<u64>, seconds: f64) -> Result<()> {
        let s3 = self.deployment.s3().context("there is no S3 server")?;
        if objects.is_empty() {
            bail!("the broker wrote no object although it acknowledges from the store");
        }
        let size = objects.iter().sum::<u64>() / objects.len() as u64;
        let rate = (objects.len() as f64 / seconds).to_string();
        let size_text = size.max(1).to_string();
        let arguments = [
            "--size",
            &size_text,
            "--rate",
            &rate,
            "--duration",
            self.scale.load,
        ];
        let answer = self
            .installed
            .client
            .raw_put(&s3.url("raw"), s3.environment(), &arguments)?;
        self.add(Scenario::Latency, Metric::ObjectSize, size as f64 / 1e3);
        self.add(
            Scenario::Latency,
            Metric::RawPutP50,
            answer.number("/latency_ms/put/p50")?,
        );
        self.add(
            Scenario::Latency,
            Metric::RawPutP99,
            answer.number("/latency_ms/put/p99")?,
        );
        Ok(())
    }

    fn end_to_end(&mut self) -> Result<()> {
        let rate = self.scale.rate_mb.to_string();
        let options = self.latency_options("end-to-end", &rate);
        let arguments = [&options[..], &["--end-to-end", "--delete"]].concat();
        self.measured(self.column, Scenario::EndToEnd, "latency", &arguments)
            .map(drop)
    }

    /// What both reading scenarios read; written once.
    fn preload(&mut self) -> Result<()> {
        if !self.preloaded {
            self.client(
                "produce",
                &[
                    "--topic",
                    "read",
                    "--create",
                    "--bytes",
                    self.scale.read_bytes,
                ],
            )?;
            self.preloaded = true;
        }
        Ok(())
    }

    fn tail(&mut self) -> Result<()> {
        self.preload()?;
        self.read(
            Scenario::Tail,
            "consume",
            &["--topic", "read", "--repeat", "3"],
        )
    }

    fn cold(&mut self) -> Result<()> {
        self.preload()?;
        self.await_quiet()?;
        self.deployment.stop()?;
        if self.scale.drop_caches {
            drop_caches()?;
        }
        let took = self.deployment.start()?;
        self.add(Scenario::Cold, Metric::Restart, milliseconds(took));
        self.await_quiet()?;
        self.read(Scenario::Cold, "coldread", &["--topic", "read"])
    }

    fn read(&mut self, scenario: Scenario, bench: &str, arguments: &[&str]) -> Result<()> {
        let answer = self.measured(self.column, scenario, bench, arguments)?;
        self.add(
            scenario,
            Metric::Throughput,
            answer.number("/throughput/mb_per_s")?,
        );
        self.add(
            scenario,
            Metric::FirstRecord,
            answer.number("/latency_ms/first_record/p50")?,
        );
        Ok(())
    }

    /// Tidegate's uploads are held back while the data is written, so that all of it is in the WAL at the kill;
    /// the start that is measured is an ordinary one.
    fn recovery(&mut self) -> Result<()> {
        self.deployment.stop()?;
        self.deployment.start_with(Uploads::Held)?;
        let partitions = [
            "--topic",
            "many",
            "--create",
            "--partitions",
            "1000",
            "--partitioning",
            "round-robin",
        ];
        let bytes = RECOVER_BYTES.to_string();
        let arguments = [&partitions[..], &["--bytes", &bytes]].concat();
        let store_before = files::sizes(&self.deployment.store())?;
        self.client("produce", &arguments)?;
        self.deployment.kill()?;
        if self.column == Column::Local {
            let uploaded = files::grown_since(&self.deployment.store(), &store_before)?;
            if uploaded > RECOVER_BYTES / 10 {
                bail!(
                    "{uploaded} bytes were uploaded before the kill: the WAL has too little to recover"
                );
            }
        }
        let took = self.deployment.start()?;
        self.add(Scenario::Recovery, Metric::Restart, milliseconds(took));
        // What was acknowledged before the kill is there, or the figure is worth nothing.
        let answer = self.client("consume", &["--topic", "many"])?;
        let found = answer.number("/total/bytes")?;
        if found < RECOVER_BYTES as f64 {
            bail!("{found} bytes are there after the restart, {RECOVER_BYTES} were acknowledged");
        }
        self.client(
            "produce",
            &["--topic", "many", "--bytes", "1KiB", "--delete"],
        )
        .map(drop)
    }
}

fn drop_caches() -> Result<()> {
    let status = Command::new("sync").status()?;
    if !status.success() {
        bail!("sync failed");
    }
    std::fs::write("/proc/sys/vm/drop_caches", "1")
        .context("can't empty the page cache: --drop-caches needs root")
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
