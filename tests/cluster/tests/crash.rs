//! The real process is killed at random moments while producers and consumers run against a real S3 server; every
//! acknowledged record is there once, in order, at its acknowledged offset.
//!
//! `TIDEGATE_CRASH_KILLS` (50) says how often, `TIDEGATE_TEST_SEED` repeats the moments of a run. The seed decides when
//! the kills come; what the scheduler does in between stays its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidegate_harness::{
    Broker, BrokerOptions, Durability, RawClient, S3Server, Setting, Store, Target,
};
use tidegate_tests_cluster::{History, Readers, Writers, read_stored};

const TOPIC: &str = "crash";
const PARTITIONS: i32 = 8;
const PRODUCERS: u32 = 3;
const CONSUMERS: u32 = 2;
const RECORDS_PER_SECOND: u64 = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// The broker comes back with its disk.
    Kept,
    /// The broker comes back with an empty disk each time.
    Wiped,
}

#[test]
fn nothing_acknowledged_is_lost_in_local_mode() -> Result<()> {
    crash_run(Durability::Local, Disk::Kept)
}

#[test]
fn nothing_acknowledged_is_lost_in_object_mode_though_the_disk_is_wiped_each_time() -> Result<()> {
    crash_run(Durability::Object, Disk::Wiped)
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn crash_run(durability: Durability, disk: Disk) -> Result<()> {
    let kills = number_from_environment("TIDEGATE_CRASH_KILLS").unwrap_or(50);
    let seed = number_from_environment("TIDEGATE_TEST_SEED")
        .unwrap_or_else(|| rand::rng().random_range(1..1_000_000));
    println!("crash run, {durability:?}: {kills} kills, TIDEGATE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);

    let s3 = S3Server::start_with_bucket("crash")?;
    let store = Store::S3 {
        endpoint: s3.address(),
        bucket: "crash".into(),
        prefix: "cluster".into(),
    };
    // Uploads come often, so that kills meet them too.
    let options = BrokerOptions::default()
        .durability(durability)
        .store(store)
        .set(Setting::UploadAgeMs, 1_000)
        .set(Setting::UploadSizeBytes, 1 << 20);
    let mut broker = Broker::start(options)?;
    // Only the product keeps what it acknowledged outside of the disk.
    let wipes = disk == Disk::Wiped && broker.target() == Target::Tidegate;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(create_topic(&broker.bootstrap()))?;

    let writers = Writers::start(
        &broker.bootstrap(),
        TOPIC,
        PARTITIONS,
        PRODUCERS,
        RECORDS_PER_SECOND,
    )?;
    let readers = Readers::start(&broker.bootstrap(), TOPIC, PARTITIONS, CONSUMERS)?;
    let started = Instant::now();
    let mut slowest_start = Duration::ZERO;
    for kill in 1..=kills {
        // Most kills meet a broker at work, some one that is still recovering.
        let in_recovery = random.random_bool(0.2);
        let moment = if in_recovery {
            random.random_range(5..300)
        } else {
            random.random_range(100..2_500)
        };
        if !in_recovery {
            let launched = Instant::now();
            broker
                .wait_ready(Duration::from_secs(60))
                .with_context(|| format!("before kill {kill}"))?;
            slowest_start = slowest_start.max(launched.elapsed());
        }
        std::thread::sleep(Duration::from_millis(moment));
        // Dying by itself is a failure of its own, not a kill.
        broker
            .process()?
            .check_alive()
            .with_context(|| format!("before kill {kill}"))?;
        broker.kill()?;
        if wipes {
            broker.wipe_data_dir()?;
        }
        broker.launch()?;
    }
    broker.wait_ready(Duration::from_secs(60))?;
    println!(
        "{kills} kills in {:.0} s; slowest start {slowest_start:?}",
        started.elapsed().as_secs_f64()
    );

    let mut history = History::default();
    (history.sent, history.acknowledged) = writers.finish()?;
    // One more: what is checked comes from the store and the disk, not from memory.
    broker.kill()?;
    if wipes {
        broker.wipe_data_dir()?;
    }
    broker.launch()?;
    broker.wait_ready(Duration::from_secs(60))?;
    history.stored = runtime.block_on(read_stored(&broker.bootstrap(), TOPIC, PARTITIONS))?;
    let due = history.acknowledged.len() * usize::try_from(CONSUMERS)?;
    history.seen = readers.finish(due, Duration::from_secs(60))?;
    report(&history, kills, seed)
}

fn report(history: &History, kills: u64, seed: u64) -> Result<()> {
    let stored: usize = history.stored.values().map(Vec::len).sum();
    println!(
        "{} records acknowledged, {stored} stored, {} seen by {CONSUMERS} consumers",
        history.acknowledged.len(),
        history.seen.len()
    );
    if u64::try_from(history.acknowledged.len())? < kills * 50 {
        bail!("too few records to say anything: producers hardly ran");
    }
    if history.seen.len() < history.acknowledged.len() {
        bail!(
            "the consumers stood still: {} records seen of 2 × {}",
            history.seen.len(),
            history.acknowledged.len()
        );
    }
    let violations = history.check();
    if violations.is_empty() {
        return Ok(());
    }
    for violation in violations.iter().take(20) {
        println!("violation: {violation}");
    }
    bail!("{} violations, TIDEGATE_TEST_SEED={seed}", violations.len())
}

async fn create_topic(brokers: &str) -> Result<()> {
    let topic = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(TOPIC)))
        .with_num_partitions(PARTITIONS)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = RawClient::connect(brokers).await?.call(7, &request).await?;
    let code = answer
        .topics
        .first()
        .context("no answer for the topic")?
        .error_code;
    anyhow::ensure!(code == 0, "creating the topic answered {code}");
    Ok(())
}
