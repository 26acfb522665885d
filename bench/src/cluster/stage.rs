//! What every run begins and ends with: the cluster up, topics made and filled, clients writing; at the end
//! everything read back and compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::admin::{AdminApi, Wanted};
use super::args::{ClusterArgs, Durability, WriterArgs};
use super::deployment::Deployment;
use super::readback::compare;
use super::silence::median;
use super::writer::{Follower, WritePlan, Writers};
use crate::cli::{Acks, Compression, ConnectionArgs, LoadArgs, Partitioning, TopicArgs};
use crate::client::{Cluster, PartitionSpan};
use crate::drive::drive;
use crate::histogram::Latencies;
use crate::load::{Pacing, Plan, Sender};
use crate::produce::new_mark;
use crate::recorder::{Counts, Nanos, Window};
use crate::report::Report;

/// Record bytes of fill and background load.
const OTHER_RECORD_BYTES: u64 = 1024;
/// Moves in one request while leaders are arranged.
const ARRANGED_AT_ONCE: usize = 500;
/// Between two looks at the leaders.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A cluster with its topics, nobody writing yet.
pub struct Stage {
    /// `None`: the cluster runs by itself.
    pub deployment: Option<Deployment>,
    pub cluster: Cluster,
    pub admin: AdminApi,
    pub topic: String,
    pub partitions: i32,
    pub origin: Instant,
    interval: Duration,
    writer: WriterArgs,
    background: Option<(String, i32)>,
    /// Where this run's records begin in each watched partition: at the `end`.
    starts: Vec<PartitionSpan>,
    mark: u64,
}

/// Clients at work.
pub struct Running {
    pub writers: Writers,
    follower: Option<Follower>,
    background: Option<(Sender, Arc<AtomicBool>)>,
    /// The measured calm: its start and end.
    pub calm: (Nanos, Nanos),
    /// The normal time between two answers of one partition.
    pub normal: Nanos,
    normal_arrival: Nanos,
}

impl Stage {
    pub fn set(
        cluster_args: &ClusterArgs,
        writer: &WriterArgs,
        default: Durability,
        default_partitions: i32,
    ) -> Result<Self> {
        let (deployment, bootstrap, admin) = match (&cluster_args.bootstrap, &cluster_args.admin) {
            (Some(bootstrap), Some(admin)) => {
                let addresses = admin.split(',').map(|one| one.trim().to_owned()).collect();
                (None, bootstrap.clone(), AdminApi::new(addresses))
            }
            _ => {
                let deployment = Deployment::start(cluster_args, default)?;
                let (bootstrap, admin) = (deployment.bootstrap(), deployment.admin());
                (Some(deployment), bootstrap, admin)
            }
        };
        let work = deployment.as_ref().map(|one| one.work().to_owned());
        let staged = Self::prepare(
            cluster_args,
            writer,
            default_partitions,
            deployment,
            &bootstrap,
            admin,
        );
        staged.with_context(|| match work {
            Some(work) => format!("the brokers' logs are in {}", work.display()),
            None => format!("at the cluster {bootstrap}"),
        })
    }

    fn prepare(
        cluster_args: &ClusterArgs,
        writer: &WriterArgs,
        default_partitions: i32,
        deployment: Option<Deployment>,
        bootstrap: &str,
        admin: AdminApi,
    ) -> Result<Self> {
        let cluster = Cluster::connect(&ConnectionArgs {
            bootstrap: bootstrap.to_owned(),
            timeout: cluster_args.timeout,
            properties: cluster_args.properties.clone(),
        })?;
        let partitions = writer.partitions.unwrap_or(default_partitions);
        let topic = writer.topic.clone();
        create(&cluster, &topic, partitions)?;
        if let Some(idle) = writer.idle_partitions {
            create(&cluster, &format!("{topic}-idle"), idle)?;
        }
        let brokers = i32::try_from(admin.alive()?.len())?;
        let background = match writer.background_mb {
            Some(_) => {
                let name = format!("{topic}-background");
                create(&cluster, &name, brokers * 2)?;
                Some((name, brokers * 2))
            }
            None => None,
        };
        let stage = Self {
            deployment,
            admin,
            interval: writer.interval_of(partitions),
            starts: Vec::new(),
            origin: Instant::now(),
            writer: writer.clone(),
            mark: new_mark(),
            cluster,
            topic,
            partitions,
            background,
        };
        stage.filled()
    }

    /// Writes what the watched topic shall hold already.
    fn filled(mut self) -> Result<Self> {
        if let Some(bytes) = self.writer.fill {
            let plan = Plan {
                origin: Instant::now(),
                window: Window {
                    from: 0,
                    until: u64::MAX,
                },
                topics: vec![(self.topic.clone(), self.partitions)],
                load: other_load(),
                pacing: Pacing::Flood,
                records: Some(bytes.div_ceil(OTHER_RECORD_BYTES)),
                mark: new_mark(),
                stop: Arc::new(AtomicBool::new(false)),
            };
            let filled = drive(
                &self.cluster,
                &plan,
                "fill",
                Duration::from_millis(500),
                None,
            )?;
            if filled.acks.all.bytes < bytes {
                bail!(
                    "only {} of {bytes} bytes could be filled in: {:?}",
                    filled.acks.all.bytes,
                    filled.acks.errors
                );
            }
        }
        self.starts = self
            .cluster
            .spans(&[(self.topic.clone(), self.partitions)])?;
        Ok(self)
    }

    /// Moves partitions so that `leader` leads what it is asked about, and waits until clients are told so.
    pub fn arrange(&self, leader: impl Fn(i32) -> i32) -> Result<()> {
        let deadline = Instant::now() + self.cluster.timeout();
        loop {
            let leaders = self.cluster.leaders(&self.topic)?;
            let wrong: Vec<Wanted> = (0..self.partitions)
                .zip(&leaders)
                .map(|(partition, present)| (partition, *present, leader(partition)))
                .filter(|(_, present, wanted)| present != wanted)
                .map(|(partition, _, to)| Wanted { partition, to })
                .collect();
            if wrong.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} partitions can't be brought to where they shall be led",
                    wrong.len()
                );
            }
            for some in wrong.chunks(ARRANGED_AT_ONCE) {
                self.admin
                    .reassign(&self.topic, some, self.cluster.timeout())?;
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// Starts the clients, lets them warm up, and finds out what is normal.
    pub fn run(&mut self, follow: bool) -> Result<Running> {
        self.origin = Instant::now();
        let plan = WritePlan {
            topic: self.topic.clone(),
            partitions: self.partitions,
            interval: self.interval,
            record_bytes: self.writer.record_size,
            mark: self.mark,
        };
        let writers = Writers::start(&self.cluster, &plan, self.origin)?;
        let follower = follow
            .then(|| Follower::start(&self.cluster, &self.topic, self.partitions, self.origin))
            .transpose()?;
        let background = self.start_background()?;
        std::thread::sleep(self.writer.warmup);
        let silent = writers
            .watch
            .await_answers(writers.watch.now(), self.cluster.timeout());
        if silent > 0 {
            bail!(
                "{silent} partitions aren't acknowledged: {}",
                writers.complaints.last().unwrap_or_default()
            );
        }
        let from = writers.watch.now();
        std::thread::sleep(self.writer.calm);
        let until = writers.watch.now();
        let intervals = |watch: &super::writer::Watch| {
            let all = (0..watch.partitions())
                .flat_map(|partition| watch.track(partition).answers.intervals(from, until));
            median(all.collect())
        };
        let normal = intervals(&writers.watch);
        let normal_arrival = follower.as_ref().map_or(0, |one| intervals(&one.watch));
        Ok(Running {
            writers,
            follower,
            background,
            calm: (from, until),
            normal,
            normal_arrival,
        })
    }

    fn start_background(&self) -> Result<Option<(Sender, Arc<AtomicBool>)>> {
        let (Some(rate_mb), Some(topic)) = (self.writer.background_mb, &self.background) else {
            return Ok(None);
        };
        let stop = Arc::new(AtomicBool::new(false));
        let plan = Plan {
            origin: self.origin,
            window: Window {
                from: 0,
                until: u64::MAX,
            },
            topics: vec![topic.clone()],
            load: other_load(),
            pacing: Pacing::Planned {
                records_per_s: rate_mb * 1e6 / OTHER_RECORD_BYTES as f64,
                tick: Duration::from_millis(5),
            },
            records: None,
            mark: new_mark(),
            stop: Arc::clone(&stop),
        };
        Ok(Some((Sender::start(&self.cluster, &plan, 0)?, stop)))
    }

    /// Ends the clients, reads everything back, puts what was found into the report, and ends the cluster.
    pub fn close(self, running: Running, report: &mut Report) -> Result<()> {
        let Running {
            writers,
            follower,
            background,
            normal,
            normal_arrival,
            ..
        } = running;
        report.find("normal_ms", milliseconds(normal));
        if let Some(follower) = follower {
            follower.finish()?;
            report.find("normal_arrival_ms", milliseconds(normal_arrival));
        }
        let mut moved = Counts::default();
        if let Some((sender, stop)) = background {
            stop.store(true, Ordering::Relaxed);
            let elapsed = self.origin.elapsed().as_secs_f64();
            let recorded = sender.recorder.recorded();
            report.find(
                "background_mb_per_s",
                recorded.all.bytes as f64 / 1e6 / elapsed,
            );
            report.add_latency("background_ack", &recorded.latencies);
            moved.merge(recorded.all);
            // What is still out is given up: only its rate was wanted.
            sender.finish()?;
        }
        let (sent, pending, watch) = writers.finish(self.cluster.timeout())?;
        report.errors = watch.errors();
        if pending > 0 {
            report
                .errors
                .insert("not acknowledged in time".to_owned(), pending);
        }
        let comparison = compare(&self.cluster, &watch, &self.topic, &self.starts, self.mark)?;
        moved.merge(Counts {
            records: comparison.acknowledged,
            bytes: comparison.acknowledged * self.writer.record_size,
        });
        report.find("records_sent", sent);
        report.find("records_acknowledged", comparison.acknowledged);
        report.find("records_found", comparison.found);
        report.find("lost", comparison.lost);
        report.find("duplicates", comparison.duplicates);
        report.find("out_of_order", comparison.out_of_order);
        report.find("foreign", comparison.foreign);
        report.find("offset_holes", comparison.holes);
        if let Some(deployment) = self.deployment {
            report.find("resident_mb", resident(&deployment, &self.admin));
            deployment.finish()?;
        }
        report.finish(moved);
        Ok(())
    }

    /// What is to be known about the clients to read the figures.
    pub fn explain(&self, report: &mut Report) {
        report.notes.push(format!(
            "one idempotent producer (librdkafka), {} partitions, a record of {} bytes to each every {:?}; {}",
            self.partitions,
            self.writer.record_size,
            self.interval,
            Cluster::WRITER_NOTE
        ));
        report.notes.push(
            "gap: the longest time between two acknowledgements of a partition that touches the event, less the \
             median time between two; silence: the same, nothing taken off; calm: windows in which nothing happened"
                .to_owned(),
        );
    }
}

impl Running {
    /// A silence without what is normal.
    pub fn gap(&self, silence: Nanos) -> Duration {
        Duration::from_nanos(silence.saturating_sub(self.normal))
    }

    /// The same of arrivals at the follower: of each partition, if there is a follower.
    pub fn arrival_gaps(&self, from: Nanos, until: Nanos) -> Option<Vec<Duration>> {
        let silences = self.follower.as_ref()?.watch.silences(from, until);
        let gap =
            |silence: Nanos| Duration::from_nanos(silence.saturating_sub(self.normal_arrival));
        Some(silences.into_iter().map(gap).collect())
    }

    /// Gaps of all partitions in windows of this length during the calm.
    pub fn calm_gaps(&self, length: Duration) -> Latencies {
        let length = u64::try_from(length.as_nanos())
            .unwrap_or(Nanos::MAX)
            .max(1);
        let (mut from, until) = self.calm;
        let mut gaps = Latencies::new();
        while from.saturating_add(length) <= until {
            for silence in self.writers.watch.silences(from, from + length) {
                gaps.record(self.gap(silence));
            }
            from += length;
        }
        gaps
    }
}

/// Resident memory of each broker, and who of them is the controller.
fn resident(deployment: &Deployment, admin: &AdminApi) -> serde_json::Value {
    let controller = admin.controller().ok().map(|one| one.broker);
    deployment
        .brokers
        .iter()
        .filter_map(|broker| {
            let role = if controller == Some(broker.id) {
                "controller"
            } else {
                "broker"
            };
            let megabytes = (broker.resident_bytes()? as f64 / 1e6).round();
            Some((format!("{role} {}", broker.id), megabytes.into()))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub fn milliseconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}

pub fn create(cluster: &Cluster, topic: &str, partitions: i32) -> Result<()> {
    cluster
        .prepare_topics(&TopicArgs {
            topic: topic.to_owned(),
            topics: 1,
            create: true,
            delete: false,
            partitions,
            replication_factor: None,
            topic_config: Vec::new(),
        })
        .map(drop)
}

/// Fill and background: not idempotent, because nothing is asked of them but their weight.
fn other_load() -> LoadArgs {
    LoadArgs {
        record_size: OTHER_RECORD_BYTES,
        acks: Acks::All,
        compression: Compression::None,
        compressibility: 0.0,
        batch_size: 256 << 10,
        linger_ms: 5.0,
        idempotence: false,
        in_flight: 5,
        buffer: 32 << 20,
        partitioning: Partitioning::RoundRobin,
        producers: 1,
    }
}
