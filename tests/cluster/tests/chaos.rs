//! Three brokers over one bucket meet 100 random acts (moves, drains, kills, pauses longer than the session, restarts,
//! joins) while idempotent producers, plain consumers and a consumer group run; afterwards every acknowledged record is
//! there once, in order, at its acknowledged offset, and no committed offset is lost.
//!
//! `TIDEGATE_TEST_ACTS` (100) says how many, `TIDEGATE_TEST_SEED` repeats the choice of acts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidegate_harness::{BrokerOptions, Cluster, Durability, RawClient, S3Server, Setting, Store};
use tidegate_tests_cluster::{GroupMember, History, Readers, Writers, read_stored};

const TOPIC: &str = "chaos";
const PARTITIONS: i32 = 12;
const PRODUCERS: u32 = 3;
const CONSUMERS: u32 = 2;
const RECORDS_PER_SECOND: u64 = 200;
const MOST_BROKERS: u32 = 5;
/// Longer than the session time-out and the time it takes to fail over.
const PAUSE: Duration = Duration::from_secs(5);
const READY: Duration = Duration::from_secs(60);

#[test]
fn a_hundred_random_acts_lose_nothing_in_object_mode() -> Result<()> {
    chaos(Durability::Object)
}

#[test]
fn a_hundred_random_acts_lose_nothing_in_local_mode() -> Result<()> {
    chaos(Durability::Local)
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Move,
    MoveBack,
    Swap,
    Drain,
    Kill,
    Pause,
    Restart,
    Join,
}

impl Act {
    fn choose(random: &mut StdRng) -> Self {
        match random.random_range(0..100) {
            0..35 => Self::Move,
            35..45 => Self::MoveBack,
            45..55 => Self::Swap,
            55..63 => Self::Drain,
            63..78 => Self::Kill,
            78..86 => Self::Pause,
            86..96 => Self::Restart,
            _ => Self::Join,
        }
    }
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn chaos(durability: Durability) -> Result<()> {
    let acts = number_from_environment("TIDEGATE_TEST_ACTS").unwrap_or(100);
    let seed = number_from_environment("TIDEGATE_TEST_SEED")
        .unwrap_or_else(|| rand::rng().random_range(1..1_000_000));
    println!("chaos run, {durability:?}: {acts} acts, TIDEGATE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let s3 = S3Server::start_with_bucket("chaos")?;
    let options = BrokerOptions::default()
        .tidegate_only()
        .durability(durability)
        .store(Store::S3 {
            endpoint: s3.address(),
            bucket: "chaos".into(),
            prefix: "cluster".into(),
        })
        .set(Setting::UploadAgeMs, 1_000)
        .set(Setting::UploadSizeBytes, 1 << 20);
    let mut cluster = Cluster::start(3, &options)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(create_topic(&cluster.broker(1)?.bootstrap()))?;
    let brokers = cluster.bootstrap();
    let writers = Writers::start(&brokers, TOPIC, PARTITIONS, PRODUCERS, RECORDS_PER_SECOND)?;
    let readers = Readers::start(&brokers, TOPIC, PARTITIONS, CONSUMERS)?;
    let member = GroupMember::start(&brokers, TOPIC)?;
    let started = Instant::now();
    for number in 1..=acts {
        let act = Act::choose(&mut random);
        carry_out(act, &mut cluster, &mut random)
            .with_context(|| format!("act {number}, {act:?}, TIDEGATE_TEST_SEED={seed}"))?;
        std::thread::sleep(Duration::from_millis(random.random_range(50..800)));
    }
    println!("{acts} acts in {:.0} s", started.elapsed().as_secs_f64());
    for broker in cluster.brokers() {
        broker.wait_ready(READY)?;
    }
    let mut history = History::default();
    (history.sent, history.acknowledged) = writers.finish()?;
    println!("{} group partitions kept", member.finish()?);
    let brokers = cluster.bootstrap();
    history.stored = runtime.block_on(read_stored(&brokers, TOPIC, PARTITIONS))?;
    let due = history.acknowledged.len() * usize::try_from(CONSUMERS)?;
    history.seen = readers.finish(due, Duration::from_secs(60))?;
    println!(
        "{} records acknowledged, {} seen by {CONSUMERS} consumers",
        history.acknowledged.len(),
        history.seen.len()
    );
    ensure!(
        u64::try_from(history.acknowledged.len())? > acts * 50,
        "too few records to say anything: producers hardly ran"
    );
    for lag in history.lags(CONSUMERS) {
        println!("{lag}");
    }
    ensure!(history.seen.len() >= due, "a consumer stood still");
    let violations = history.check();
    for violation in violations.iter().take(20) {
        println!("violation: {violation}");
    }
    if !violations.is_empty() {
        bail!("{} violations, TIDEGATE_TEST_SEED={seed}", violations.len());
    }
    Ok(())
}

fn carry_out(act: Act, cluster: &mut Cluster, random: &mut StdRng) -> Result<()> {
    let count = u32::try_from(cluster.brokers().len())?;
    let id = random.random_range(1..=count);
    match act {
        Act::Move => {
            let partition = random.random_range(0..PARTITIONS);
            reassign(cluster, &[(partition, id)])
        }
        Act::MoveBack => {
            let (partition, other) = (random.random_range(0..PARTITIONS), id % count + 1);
            for to in [id, other, id] {
                reassign(cluster, &[(partition, to)])?;
            }
            Ok(())
        }
        Act::Swap => {
            let other = id % count + 1;
            let moves: Vec<(i32, u32)> = (0..PARTITIONS)
                .map(|partition| (partition, if partition % 2 == 0 { id } else { other }))
                .collect();
            reassign(cluster, &moves)
        }
        Act::Drain => {
            let path = format!("/v1/brokers/{id}/drain");
            // Refused while a former drain goes on, or without a controller: any answer will do.
            let _ = cluster.post(&path, "{}");
            let broker = cluster.broker(id)?;
            broker.stop(Duration::from_secs(30))?;
            broker.launch()?;
            broker.wait_ready(READY)
        }
        Act::Kill => {
            let broker = cluster.broker(id)?;
            broker.kill()?;
            std::thread::sleep(Duration::from_millis(random.random_range(0..4_000)));
            broker.launch()?;
            if random.random_bool(0.8) {
                broker.wait_ready(READY)?;
            }
            Ok(())
        }
        Act::Pause => {
            let broker = cluster.broker(id)?;
            broker.wait_ready(READY)?;
            broker.pause()?;
            std::thread::sleep(PAUSE);
            broker.resume()?;
            broker.wait_ready(READY)
        }
        Act::Restart => {
            let broker = cluster.broker(id)?;
            broker.wait_ready(READY)?;
            broker.stop(Duration::from_secs(30))?;
            broker.launch()?;
            broker.wait_ready(READY)
        }
        Act::Join if count < MOST_BROKERS => {
            let id = cluster.add()?;
            cluster.broker(id)?.wait_ready(READY)
        }
        Act::Join => Ok(()),
    }
}

/// Asks for moves. That a target is down, or already leads, is an answer like any other; silence isn't.
fn reassign(cluster: &mut Cluster, moves: &[(i32, u32)]) -> Result<()> {
    let moves: Vec<String> = moves
        .iter()
        .map(|(partition, to)| {
            format!(r#"{{"topic":"{TOPIC}","partition":{partition},"to":{to}}}"#)
        })
        .collect();
    let body = format!(r#"{{"moves":[{}]}}"#, moves.join(","));
    cluster.post("/v1/reassignments", &body)
}

async fn create_topic(brokers: &str) -> Result<()> {
    let topic = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_static_str(TOPIC)))
        .with_num_partitions(PARTITIONS)
        .with_replication_factor(3);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = RawClient::connect(brokers).await?.call(7, &request).await?;
    let code = answer
        .topics
        .first()
        .context("no answer for the topic")?
        .error_code;
    ensure!(code == 0, "creating the topic answered {code}");
    Ok(())
}
