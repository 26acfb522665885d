//! `latency`: how long a record takes at a fixed rate, to its acknowledgement and to a consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use crate::cli::{FetchArgs, LatencyArgs};
use crate::client::{Cluster, Complaints, PartitionSpan};
use crate::drive::drive;
use crate::load::{Pacing, Plan};
use crate::payload::{self, STAMP_BYTES};
use crate::produce::{new_mark, window};
use crate::recorder::Recorder;
use crate::report::{Report, Throughput};

/// How long the consumer may take to receive what is acknowledged already.
const CATCH_UP: Duration = Duration::from_secs(10);

pub fn run(args: &LatencyArgs) -> Result<Report> {
    if args.end_to_end && args.load.record_size < STAMP_BYTES as u64 {
        bail!("--end-to-end needs records of at least {STAMP_BYTES} bytes for its time stamps");
    }
    let cluster = Cluster::connect(&args.connection)?;
    let topics = cluster.prepare_topics(&args.topic)?;
    let report = measure(&cluster, args, topics.clone());
    if args.topic.delete {
        cluster.delete_topics(&topics)?;
    }
    report
}

fn measure(cluster: &Cluster, args: &LatencyArgs, topics: Vec<(String, i32)>) -> Result<Report> {
    let mut report = Report::begin("latency", &args.connection.bootstrap, args)?;
    let spans = if args.end_to_end {
        cluster.spans(&topics)?
    } else {
        Vec::new()
    };
    let records_per_s = args.rate_mb * 1e6 / args.load.record_size as f64;
    let plan = Plan {
        origin: Instant::now(),
        window: window(args.warmup, args.duration),
        topics,
        pacing: Pacing::Planned {
            records_per_s: records_per_s / f64::from(args.load.producers),
            tick: args.tick,
        },
        records: None,
        mark: new_mark(),
        stop: Arc::new(AtomicBool::new(false)),
        load: args.load.clone(),
    };
    let follower = args
        .end_to_end
        .then(|| Follower::start(cluster, &plan, &spans))
        .transpose()?;
    let arrivals = follower.as_ref().map(|follower| follower.recorder.as_ref());
    let outcome = drive(cluster, &plan, "latency", args.output.interval, arrivals)?;
    if let Some(follower) = follower {
        let acknowledged = outcome.acks.all.records;
        let recorder = follower.finish(acknowledged)?;
        let arrived = recorder.recorded();
        report.add_latency("end_to_end", &arrived.latencies);
        if arrived.all.records != acknowledged {
            report.notes.push(format!(
                "the consumer received {} records of {acknowledged} acknowledged ones",
                arrived.all.records
            ));
        }
    }
    report.throughput = Some(Throughput::of(outcome.acks.measured, args.duration));
    report.add_acks(&outcome.acks);
    report.timeline = outcome.points;
    report.finish(outcome.acks.all);
    note_a_missed_rate(&mut report, args.rate_mb);
    Ok(report)
}

/// Latencies at a rate that wasn't reached say how long the queue grew, nothing else.
fn note_a_missed_rate(report: &mut Report, rate_mb: f64) {
    let reached = report
        .throughput
        .as_ref()
        .map_or(0.0, |throughput| throughput.mb_per_s);
    if reached < rate_mb * 0.98 {
        report.notes.push(format!(
            "the rate was missed ({reached:.1} of {rate_mb:.1} MB/s): the latencies are those of a growing queue"
        ));
    }
}

/// A consumer at the end of the topics.
struct Follower {
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Follower {
    fn start(cluster: &Cluster, plan: &Plan, spans: &[PartitionSpan]) -> Result<Self> {
        let fetch = FetchArgs {
            consumers: 1,
            fetch_max: 50 << 20,
            partition_fetch_max: 1 << 20,
            check_crcs: false,
        };
        let consumer: BaseConsumer<Complaints> = cluster
            .consumer_config(&fetch, "tidegate-bench-latency")
            .create_with_context(Complaints::default())
            .context("the consumer refused its configuration")?;
        consumer
            .assign(&at_end(spans)?)
            .context("could not assign the partitions")?;
        let recorder = Arc::new(Recorder::new(plan.origin, plan.window));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (recorder, stop, mark) = (Arc::clone(&recorder), Arc::clone(&stop), plan.mark);
            std::thread::Builder::new()
                .name("follower".to_owned())
                .spawn(move || follow(&consumer, &recorder, &stop, mark))
                .context("could not start the consumer thread")?
        };
        Ok(Self {
            recorder,
            stop,
            thread,
        })
    }

    /// Waits until `expected` records have arrived, but not for ever.
    fn finish(self, expected: u64) -> Result<Arc<Recorder>> {
        let patience = Instant::now() + CATCH_UP;
        while self.recorder.recorded().all.records < expected
            && Instant::now() < patience
            && !self.thread.is_finished()
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|_| bail!("the consumer thread panicked"))?;
        Ok(self.recorder)
    }
}

fn at_end(spans: &[PartitionSpan]) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(spans.len());
    for span in spans {
        list.add_partition_offset(&span.topic, span.partition, Offset::Offset(span.end))?;
    }
    Ok(list)
}

fn follow(
    consumer: &BaseConsumer<Complaints>,
    recorder: &Recorder,
    stop: &AtomicBool,
    mark: u64,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(100)) {
            None | Some(Err(KafkaError::PartitionEOF(_))) => {}
            Some(Err(error)) => return Err(error).context("the consumer failed"),
            Some(Ok(message)) => {
                let value = message.payload().unwrap_or_default();
                if let Some(planned) = payload::read_stamp(value, mark) {
                    recorder.arrived(planned, value.len() as u64);
                }
            }
        }
    }
    Ok(())
}
