//! The brokers with the clients that notice what happens to them; starting and ending all of it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::Tasks;
use tokio::time::Instant;

use super::administration::Administration;
use super::children::Broker;
use super::consumer;
use super::kafka::Cluster;
use super::ledger::Ledger;
use super::producer::{Pace, Producer};
use super::report::{Event, Gaps, Summary, Teller};

const START_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// Between two records of a partition.
const INTERVAL: Duration = Duration::from_millis(10);
const RECORD_BYTES: usize = 100;
/// So long nothing happens, so that what is normal is known.
const CALM: Duration = Duration::from_secs(1);
/// At the end: for what was sent to be acknowledged, and for what was acknowledged to be read.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// Why the demo can't go on.
pub type Stuck = String;

/// The brokers, the clients, and what has been seen so far.
pub struct Stage {
    pub brokers: Vec<Broker>,
    pub administration: Administration,
    pub cluster: Arc<Cluster>,
    pub ledger: Arc<Ledger>,
    pub teller: Teller,
    pub topic: String,
    pub moves: Gaps,
    pub moves_failed: u64,
    /// Of each partition of each killed broker.
    pub failovers: Gaps,
    /// Brokers killed whose partitions went on.
    pub failed_over: u64,
    producer: Option<Producer>,
    tasks: Tasks,
}

impl Stage {
    /// The brokers have been started.
    pub fn new(
        brokers: Vec<Broker>,
        topic: String,
        partitions: u32,
        teller: Teller,
    ) -> Result<Self, Stuck> {
        let tasks = Tasks::new("demo");
        let addresses = brokers.iter().map(|broker| broker.kafka.clone());
        let urls = brokers.iter().map(|broker| &*broker.admin);
        Ok(Self {
            administration: Administration::new(urls).map_err(|error| error.to_string())?,
            cluster: Cluster::follow(&topic, addresses.collect(), &tasks),
            ledger: Arc::new(Ledger::new(Instant::now(), partitions)),
            brokers,
            teller,
            topic,
            moves: Gaps::default(),
            moves_failed: 0,
            failovers: Gaps::default(),
            failed_over: 0,
            producer: None,
            tasks,
        })
    }

    pub fn tell(&self, event: &Event) {
        self.teller.tell(self.ledger.now(), event);
    }

    /// Waits for the brokers, creates the topic and starts the clients.
    pub async fn set(&mut self) -> Result<(), Stuck> {
        let deadline = Instant::now() + START_LIMIT;
        let count = self.brokers.len();
        loop {
            self.check_brokers()?;
            match self.administration.alive().await {
                Ok(alive) if alive.len() == count => break,
                Ok(_) => {}
                // Nobody may answer yet.
                Err(cause) if Instant::now() >= deadline => return Err(cause),
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return Err(format!("not all brokers are there after {START_LIMIT:?}"));
            }
            tokio::time::sleep(LOOK).await;
        }
        let controller = self.administration.cluster().await?.controller;
        self.tell(&Event::Ready { controller });
        let partitions = self.ledger.partitions().end;
        let brokers = u32::try_from(count).unwrap_or(u32::MAX);
        self.administration
            .create_topic(&self.topic, partitions, brokers)
            .await?;
        self.cluster.refresh().await;
        let identity = loop {
            if let Some(identity) = self.cluster.producer_id().await {
                break identity;
            }
            if Instant::now() >= deadline {
                return Err("no broker gives out a producer id".to_owned());
            }
            tokio::time::sleep(LOOK).await;
        };
        let pace = Pace {
            interval: INTERVAL,
            record_bytes: RECORD_BYTES,
        };
        consumer::start(&self.cluster, &self.ledger, &self.tasks);
        let producer = Producer::start(&self.cluster, &self.ledger, pace, identity, &self.tasks);
        self.producer = Some(producer);
        self.until("every partition is written and read", |ledger| {
            let mut all = ledger.partitions();
            all.all(|partition| ledger.read_up_to(partition) > 0)
        })
        .await?;
        tokio::time::sleep(CALM).await;
        let per_second = 1_000 / INTERVAL.as_millis().max(1);
        self.tell(&Event::Running {
            topic: self.topic.clone(),
            partitions,
            records_per_second: u64::from(partitions) * u64::try_from(per_second).unwrap_or(0),
            normal_ms: self.ledger.normal().into(),
        });
        Ok(())
    }

    /// A broker that ended without being killed ends the demo.
    pub fn check_brokers(&mut self) -> Result<(), Stuck> {
        for broker in &mut self.brokers {
            if broker.has_ended() {
                let log = broker.log_tail();
                return Err(format!("broker {} has ended by itself:\n{log}", broker.id));
            }
        }
        Ok(())
    }

    /// Waits until something is seen.
    pub async fn until(
        &mut self,
        what: &str,
        mut seen: impl FnMut(&Ledger) -> bool,
    ) -> Result<(), Stuck> {
        let deadline = Instant::now() + START_LIMIT;
        while !seen(&self.ledger) {
            self.check_brokers()?;
            if let Some(failure) = self.ledger.failures().first() {
                return Err(failure.clone());
            }
            if Instant::now() >= deadline {
                return Err(format!("waited {START_LIMIT:?} until {what}, in vain"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until a partition is acknowledged by a broker of which `right` holds, and read so far.
    pub async fn settled(
        &mut self,
        partition: u32,
        right: impl Fn(u32) -> bool,
    ) -> Result<(), Stuck> {
        let mut due = None;
        self.until("a partition goes on", |ledger| {
            if due.is_none() && ledger.acknowledged_by(partition).is_some_and(&right) {
                due = Some(ledger.acknowledged(partition));
            }
            due.is_some_and(|due| ledger.read_up_to(partition) >= due)
        })
        .await
    }

    /// Whether there is anything to sum up.
    pub fn has_clients(&self) -> bool {
        self.producer.is_some()
    }

    /// Stops writing, reads to the end, and sums up.
    pub async fn finish(&mut self) -> Summary {
        if let Some(producer) = self.producer.take() {
            let open = producer.finish(LAST_WORDS).await;
            if open > 0 {
                self.ledger.fail(format!(
                    "{open} partitions' last records aren't acknowledged after {LAST_WORDS:?}"
                ));
            }
        }
        let deadline = Instant::now() + LAST_WORDS;
        while !self.ledger.is_read() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        let ledger = &self.ledger;
        Summary {
            moves: self.moves.count,
            moves_failed: self.moves_failed,
            move_write_gap_ms: self.moves.write(),
            move_read_gap_ms: self.moves.read(),
            failovers: self.failed_over,
            failover_write_gap_ms: self.failovers.write(),
            failover_read_gap_ms: self.failovers.read(),
            ..Summary::new(ledger.now(), ledger.totals(), ledger.failures())
        }
    }
}
