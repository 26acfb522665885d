//! The sending side of `produce` and `latency`: producers that flood or keep to a plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use rdkafka::types::RDKafkaErrorCode;

use crate::cli::{LoadArgs, Partitioning};
use crate::client::{Cluster, Complaints};
use crate::payload::{self, Payloads};
use crate::recorder::{Nanos, Recorder, Window, nanos_since};

// The planned time of a record travels through the client library as its opaque pointer.
const _: () = assert!(
    usize::BITS == 64,
    "a planned time in nanoseconds needs 64 bits"
);

/// How long a sender waits when the producer's buffer is full: little against the time the buffer lasts, much
/// against the cost of waking up.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// When records are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pacing {
    /// As soon as the producer takes them.
    Flood,
    /// By plan: `records_per_s` of one producer, in bursts each `tick`. What is late is sent at once and
    /// keeps its planned time, so that a stall shows in the latency of all records it held up.
    Planned { records_per_s: f64, tick: Duration },
}

/// What all senders of a run have in common.
#[derive(Clone)]
pub struct Plan {
    pub origin: Instant,
    pub window: Window,
    pub topics: Vec<(String, i32)>,
    pub load: LoadArgs,
    pub pacing: Pacing,
    /// Records each producer sends at most.
    pub records: Option<u64>,
    /// Written into every value; tells this run's records from others.
    pub mark: u64,
    pub stop: Arc<AtomicBool>,
}

/// Receives the acknowledgements.
pub struct AckContext {
    recorder: Arc<Recorder>,
    record_bytes: u64,
    complaints: Complaints,
}

impl ClientContext for AckContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.error(error, reason);
    }
}

impl ProducerContext for AckContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, planned: usize) {
        match result {
            Ok(_) => self.recorder.arrived(planned as Nanos, self.record_bytes),
            Err((error, _)) => self.recorder.failed(error_kind(error)),
        }
    }
}

fn error_kind(error: &KafkaError) -> String {
    error
        .rdkafka_error_code()
        .map_or_else(|| error.to_string(), |code| code.to_string())
}

/// A producer with its sending thread.
pub struct Sender {
    pub recorder: Arc<Recorder>,
    producer: Arc<ThreadedProducer<AckContext>>,
    thread: JoinHandle<Result<()>>,
    complaints: Complaints,
}

impl Sender {
    /// Starts sending at once.
    pub fn start(cluster: &Cluster, plan: &Plan, index: u32) -> Result<Self> {
        let recorder = Arc::new(Recorder::new(plan.origin, plan.window));
        let complaints = Complaints::default();
        let context = AckContext {
            recorder: Arc::clone(&recorder),
            record_bytes: plan.load.record_size,
            complaints: complaints.clone(),
        };
        let producer: ThreadedProducer<AckContext> = cluster
            .producer_config(&plan.load)
            .create_with_context(context)
            .context("the producer refused its configuration")?;
        let producer = Arc::new(producer);
        let thread = {
            let producer = Arc::clone(&producer);
            let plan = plan.clone();
            std::thread::Builder::new()
                .name(format!("sender-{index}"))
                .spawn(move || send(&producer, &plan, index))
                .context("could not start a sending thread")?
        };
        Ok(Self {
            recorder,
            producer,
            thread,
            complaints,
        })
    }

    /// Whether everything there was to send is handed to the producer.
    pub fn has_sent_all(&self) -> bool {
        self.thread.is_finished()
    }

    /// Whether every record sent so far is acknowledged or has failed.
    pub fn is_settled(&self) -> bool {
        self.producer.in_flight_count() == 0
    }

    /// Ends the thread and gives up what is still unacknowledged. Call after `stop` is set.
    pub fn finish(self) -> Result<()> {
        let sent = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("a sending thread panicked")));
        let pending = self.producer.in_flight_count();
        if pending > 0 {
            let cause = self
                .complaints
                .last()
                .map_or_else(String::new, |text| format!(" ({text})"));
            for _ in 0..pending {
                self.recorder
                    .failed(format!("not acknowledged in time{cause}"));
            }
        }
        sent
    }
}

/// The sending thread.
fn send(producer: &ThreadedProducer<AckContext>, plan: &Plan, index: u32) -> Result<()> {
    let size = usize::try_from(plan.load.record_size).context("the record size is too large")?;
    let mut payloads = Payloads::new(size, plan.load.compressibility, u64::from(index) + 1);
    let mut targets = Targets::new(plan);
    let mut schedule = Schedule::new(plan.pacing);
    let limit = plan.records.unwrap_or(u64::MAX);
    let mut sent = 0;
    while sent < limit {
        let Some(planned) = schedule.next(plan) else {
            break;
        };
        let value = payloads.take();
        payload::stamp(value, plan.mark, planned);
        let (topic, partition) = targets.next();
        if !send_one(producer, plan, topic, partition, value, planned)? {
            break;
        }
        sent += 1;
    }
    Ok(())
}

/// Hands one record over, waiting for room; false when the run was stopped meanwhile.
fn send_one(
    producer: &ThreadedProducer<AckContext>,
    plan: &Plan,
    topic: &str,
    partition: Option<i32>,
    value: &[u8],
    planned: Nanos,
) -> Result<bool> {
    let mut record =
        BaseRecord::<(), [u8], usize>::with_opaque_to(topic, planned as usize).payload(value);
    record.partition = partition;
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(true),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                if plan.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                record = refused;
                std::thread::sleep(FULL_PAUSE);
                if let Pacing::Flood = plan.pacing {
                    // A flood has no plan to be late against: its records begin when there is room.
                    record.delivery_opaque = nanos_since(plan.origin) as usize;
                }
            }
            Err((error, _)) => {
                return Err(error).context("could not hand a record to the producer");
            }
        }
    }
}

/// Topics in turn; partitions too if the client shall not choose them.
struct Targets<'a> {
    topics: &'a [(String, i32)],
    sticky: bool,
    count: usize,
}

impl<'a> Targets<'a> {
    fn new(plan: &'a Plan) -> Self {
        let sticky = plan.load.partitioning == Partitioning::Sticky;
        Self {
            topics: &plan.topics,
            sticky,
            count: 0,
        }
    }

    fn next(&mut self) -> (&'a str, Option<i32>) {
        let (topic, partitions) = &self.topics[self.count % self.topics.len()];
        let round = self.count / self.topics.len();
        self.count = self.count.wrapping_add(1);
        let partition = (round % (*partitions).max(1).unsigned_abs() as usize) as i32;
        (topic, (!self.sticky).then_some(partition))
    }
}

/// Yields the planned time of each record when it is due.
struct Schedule {
    pacing: Pacing,
    /// Records handed out.
    count: u64,
}

impl Schedule {
    fn new(pacing: Pacing) -> Self {
        Self { pacing, count: 0 }
    }

    /// Waits for the next record's time; `None` when the run was stopped.
    fn next(&mut self, plan: &Plan) -> Option<Nanos> {
        let index = self.count;
        self.count += 1;
        match self.pacing {
            Pacing::Flood => (!plan.stop.load(Ordering::Relaxed)).then(|| nanos_since(plan.origin)),
            Pacing::Planned {
                records_per_s,
                tick,
            } => {
                let planned = planned_at(index, records_per_s, tick);
                loop {
                    if plan.stop.load(Ordering::Relaxed) || planned >= plan.window.until {
                        return None;
                    }
                    let now = nanos_since(plan.origin);
                    if now >= planned {
                        return Some(planned);
                    }
                    let wait = Duration::from_nanos(planned - now);
                    std::thread::sleep(wait.min(Duration::from_millis(100)));
                }
            }
        }
    }
}

/// The tick at which record `index` is due: the first one at or after its place in an even flow.
fn planned_at(index: u64, records_per_s: f64, tick: Duration) -> Nanos {
    let even = index as f64 / records_per_s * 1e9;
    let tick = (tick.as_nanos() as f64).max(1.0);
    ((even / tick).ceil() * tick) as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_carries_the_records_of_its_time() {
        let tick = Duration::from_millis(1);
        let planned: Vec<Nanos> = (0..7)
            .map(|index| planned_at(index, 3_000.0, tick))
            .collect();
        assert_eq!(planned, [0, 1, 1, 1, 2, 2, 2].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn a_plan_keeps_its_rate_over_time() {
        let planned = planned_at(20_000 * 60, 20_000.0, Duration::from_millis(1));
        assert_eq!(planned, 60_000_000_000);
    }
}
