//! `consume` and `coldread`: how fast the broker gives back what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use crate::cli::{ColdreadArgs, ConsumeArgs, FetchArgs, From};
use crate::client::{Cluster, Complaints, PartitionSpan};
use crate::histogram::Latencies;
use crate::produce::new_mark;
use crate::recorder::{Counts, Nanos, nanos_since};
use crate::report::{Report, Throughput};
use crate::timeline::{Progress, Timeline};

/// How long a reader of a topic's end follows it unless told.
const DEFAULT_FOLLOW: Duration = Duration::from_secs(30);
/// Records a reader counts by itself before it adds them to the shared meter.
const METER_STEP: u64 = 256;

pub fn run_consume(args: &ConsumeArgs) -> Result<Report> {
    let cluster = Cluster::connect(&args.connection)?;
    let topics = cluster.prepare_topics(&args.topic)?;
    let mut report = Report::begin("consume", &args.connection.bootstrap, args)?;
    let duration = match args.from {
        From::Earliest => args.duration,
        From::Latest => Some(args.duration.unwrap_or(DEFAULT_FOLLOW)),
    };
    let passes = Passes {
        what: "consume",
        fetch: &args.fetch,
        from: args.from,
        duration,
        groups: 1,
        repeat: args.repeat,
        interval: args.output.interval,
    };
    let result = passes.run(&cluster, &topics, &mut report);
    if args.topic.delete {
        cluster.delete_topics(&topics)?;
    }
    result.map(|()| report)
}

pub fn run_coldread(args: &ColdreadArgs) -> Result<Report> {
    let cluster = Cluster::connect(&args.connection)?;
    let topics = cluster.prepare_topics(&args.topic)?;
    let mut report = Report::begin("coldread", &args.connection.bootstrap, args)?;
    let passes = Passes {
        what: "coldread",
        fetch: &args.fetch,
        from: From::Earliest,
        duration: None,
        groups: args.groups,
        repeat: 1,
        interval: args.output.interval,
    };
    let result = passes.run(&cluster, &topics, &mut report);
    if args.topic.delete {
        cluster.delete_topics(&topics)?;
    }
    result.map(|()| report)
}

/// What is to be read, and how often.
struct Passes<'a> {
    what: &'static str,
    fetch: &'a FetchArgs,
    from: From,
    duration: Option<Duration>,
    groups: u32,
    repeat: u32,
    interval: Duration,
}

/// What one pass read.
struct Pass {
    counts: Counts,
    /// From the assignment of the partitions to the last record.
    elapsed: Duration,
    /// From the assignment to the first record, one per consumer.
    first: Vec<Duration>,
}

impl Passes<'_> {
    fn run(&self, cluster: &Cluster, topics: &[(String, i32)], report: &mut Report) -> Result<()> {
        let origin = Instant::now();
        let mut timeline = Timeline::new(
            origin,
            self.interval,
            Progress::new(self.what, self.duration),
        );
        let mut first = Latencies::new();
        let mut counts = Counts::default();
        let mut elapsed = Duration::ZERO;
        for _ in 0..self.repeat {
            let spans = cluster.spans(topics)?;
            if self.from == From::Earliest && spans.iter().all(|span| span.start >= span.end) {
                bail!("there is nothing to read: every partition is empty");
            }
            let pass = self.read_once(cluster, spans, &mut timeline)?;
            report
                .passes_mb_per_s
                .push(pass.counts.bytes as f64 / pass.elapsed.as_secs_f64().max(1e-9) / 1e6);
            counts.merge(pass.counts);
            elapsed += pass.elapsed;
            pass.first.iter().for_each(|&time| first.record(time));
        }
        report.timeline = timeline.finish();
        report.throughput = Some(Throughput::of(counts, elapsed));
        report.add_latency("first_record", &first);
        report.finish(counts);
        Ok(())
    }

    fn read_once(
        &self,
        cluster: &Cluster,
        spans: Vec<PartitionSpan>,
        timeline: &mut Timeline,
    ) -> Result<Pass> {
        let meter = Arc::new(Meter::default());
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let mut readers = Vec::new();
        for group in 0..self.groups {
            let group = format!("tidegate-bench-{:016x}-{group}", new_mark());
            for share in deal(&spans, self.fetch.consumers) {
                let consumer: BaseConsumer<Complaints> = cluster
                    .consumer_config(self.fetch, &group)
                    .create_with_context(Complaints::default())
                    .context("the consumer refused its configuration")?;
                let reader = Reader {
                    consumer,
                    share,
                    bounded: self.from == From::Earliest,
                    patience: cluster.timeout(),
                    begun,
                    meter: Arc::clone(&meter),
                    stop: Arc::clone(&stop),
                };
                let thread = std::thread::Builder::new()
                    .name("reader".to_owned())
                    .spawn(move || reader.read())
                    .context("could not start a reading thread")?;
                readers.push(thread);
            }
        }
        let end = self.duration.map(|duration| begun + duration);
        let mut seen = Counts::default();
        while !readers.iter().all(std::thread::JoinHandle::is_finished) {
            timeline.wait(Instant::now() + Duration::from_millis(10));
            if timeline.due() {
                timeline.sample_counts(meter.since(&mut seen));
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        timeline.sample_counts(meter.since(&mut seen));
        let mut first = Vec::new();
        let mut last = 0;
        for reader in readers {
            let read = reader
                .join()
                .unwrap_or_else(|_| bail!("a reading thread panicked"))?;
            first.extend(read.first.map(Duration::from_nanos));
            last = last.max(read.last);
        }
        let elapsed = match self.from {
            From::Earliest => Duration::from_nanos(last),
            From::Latest => begun.elapsed(),
        };
        Ok(Pass {
            counts: meter.counts(),
            elapsed,
            first,
        })
    }
}

/// Deals the partitions out among the consumers; none goes without.
fn deal(spans: &[PartitionSpan], consumers: u32) -> Vec<Vec<PartitionSpan>> {
    let hands = (consumers as usize).min(spans.len()).max(1);
    let mut dealt = vec![Vec::new(); hands];
    for (index, span) in spans.iter().enumerate() {
        dealt[index % hands].push(span.clone());
    }
    dealt
}

/// Counts of all readers together.
#[derive(Default)]
struct Meter {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    fn add(&self, counts: Counts) {
        self.records.fetch_add(counts.records, Ordering::Relaxed);
        self.bytes.fetch_add(counts.bytes, Ordering::Relaxed);
    }

    fn counts(&self) -> Counts {
        Counts {
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// What was added since the last call with the same `seen`.
    fn since(&self, seen: &mut Counts) -> Counts {
        let now = self.counts();
        let fresh = Counts {
            records: now.records - seen.records,
            bytes: now.bytes - seen.bytes,
        };
        *seen = now;
        fresh
    }
}

/// When a reader got its first and last record, after the pass began.
struct ReadTimes {
    first: Option<Nanos>,
    last: Nanos,
}

struct Reader {
    consumer: BaseConsumer<Complaints>,
    share: Vec<PartitionSpan>,
    /// Whether to end at the spans' ends.
    bounded: bool,
    patience: Duration,
    begun: Instant,
    meter: Arc<Meter>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    fn read(self) -> Result<ReadTimes> {
        let mut open = OpenEnds::new(&self.share, self.bounded);
        self.consumer
            .assign(&self.assignment()?)
            .context("could not assign the partitions")?;
        let mut times = ReadTimes {
            first: None,
            last: 0,
        };
        let mut counts = Counts::default();
        let mut quiet_since = Instant::now();
        while !open.all_reached() && !self.stop.load(Ordering::Relaxed) {
            match self.consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    times.last = nanos_since(self.begun);
                    times.first.get_or_insert(times.last);
                    counts.records += 1;
                    counts.bytes += message.payload_len() as u64;
                    open.received(&message);
                    if counts.records < METER_STEP {
                        continue;
                    }
                    quiet_since = Instant::now();
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => open.ended(partition),
                Some(Err(error)) => return Err(error).context("the consumer failed"),
                None if self.bounded
                    && counts.records == 0
                    && quiet_since.elapsed() >= self.patience =>
                {
                    bail!(
                        "no record for {:?} although the end isn't reached ({} of {} partitions are read)",
                        self.patience,
                        open.reached,
                        open.ends.len()
                    )
                }
                None => {}
            }
            self.meter.add(std::mem::take(&mut counts));
        }
        self.meter.add(counts);
        Ok(times)
    }

    fn assignment(&self) -> Result<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(self.share.len());
        for span in &self.share {
            let at = if self.bounded { span.start } else { span.end };
            list.add_partition_offset(&span.topic, span.partition, Offset::Offset(at))?;
        }
        Ok(list)
    }
}

/// The ends a reader hasn't come to.
struct OpenEnds {
    /// Topic and end of each partition; `None` once it is reached.
    ends: Vec<(Arc<str>, Option<i64>)>,
    /// Where in `ends` a partition number is found, for each topic that has it.
    by_partition: Vec<Vec<usize>>,
    reached: usize,
    single_topic: bool,
    bounded: bool,
}

impl OpenEnds {
    fn new(share: &[PartitionSpan], bounded: bool) -> Self {
        let ends: Vec<_> = share
            .iter()
            .map(|span| {
                let end = (span.start < span.end).then_some(span.end);
                (Arc::clone(&span.topic), end)
            })
            .collect();
        let mut by_partition: Vec<Vec<usize>> = Vec::new();
        for (place, span) in share.iter().enumerate() {
            let number = span.partition.max(0).unsigned_abs() as usize;
            if by_partition.len() <= number {
                by_partition.resize(number + 1, Vec::new());
            }
            by_partition[number].push(place);
        }
        let reached = ends.iter().filter(|(_, end)| end.is_none()).count();
        let single_topic = ends.windows(2).all(|pair| pair[0].0 == pair[1].0);
        Self {
            ends,
            by_partition,
            reached,
            single_topic,
            bounded,
        }
    }

    fn all_reached(&self) -> bool {
        self.bounded && self.reached == self.ends.len()
    }

    fn received(&mut self, message: &rdkafka::message::BorrowedMessage<'_>) {
        if !self.bounded {
            return;
        }
        let (partition, next) = (message.partition(), message.offset() + 1);
        let topic = if self.single_topic {
            None
        } else {
            Some(message.topic())
        };
        self.reached(topic, partition, next);
    }

    /// The broker says that the partition has no more: its last records may be ones a consumer doesn't get
    /// (markers, compacted away). Without the topic's name this helps where there is one topic only.
    fn ended(&mut self, partition: i32) {
        if self.single_topic {
            self.reached(None, partition, i64::MAX);
        }
    }

    fn reached(&mut self, topic: Option<&str>, partition: i32, next: i64) {
        let number = partition.max(0).unsigned_abs() as usize;
        for &place in self.by_partition.get(number).into_iter().flatten() {
            let (name, end) = &mut self.ends[place];
            let named = topic.is_none_or(|topic| topic == &**name);
            if named && end.is_some_and(|end| next >= end) {
                *end = None;
                self.reached += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(topic: &str, partition: i32, start: i64, end: i64) -> PartitionSpan {
        PartitionSpan {
            topic: topic.into(),
            partition,
            start,
            end,
        }
    }

    #[test]
    fn each_partition_is_dealt_once_and_no_consumer_gets_none() {
        let spans: Vec<_> = (0..5).map(|partition| span("t", partition, 0, 1)).collect();
        let dealt = deal(&spans, 3);
        assert_eq!(dealt.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(deal(&spans, 9).len(), 5);
    }

    #[test]
    fn an_empty_partition_needs_no_record_to_be_done() {
        let mut open = OpenEnds::new(&[span("t", 0, 4, 4), span("t", 1, 0, 2)], true);
        assert!(!open.all_reached());
        open.reached(None, 1, 1);
        assert!(!open.all_reached());
        open.reached(None, 1, 2);
        assert!(open.all_reached());
    }

    #[test]
    fn the_same_partition_of_another_topic_is_another_end() {
        let mut open = OpenEnds::new(&[span("a", 0, 0, 2), span("b", 0, 0, 2)], true);
        open.reached(Some("a"), 0, 2);
        open.ended(0);
        assert!(!open.all_reached());
        open.reached(Some("b"), 0, 2);
        assert!(open.all_reached());
    }

    #[test]
    fn a_follower_has_no_end() {
        let open = OpenEnds::new(&[span("a", 0, 2, 2)], false);
        assert!(!open.all_reached());
    }
}
