//! Three brokers over one bucket meet random acts (moves, drains, kills, pauses) while transactional producers run.
//! Afterwards every committed transaction is there whole and once, no aborted one in part, and no partition is left
//! with a transaction that hangs.
//!
//! `TIDEGATE_TEST_ACTS` (40) says how many acts, `TIDEGATE_TEST_SEED` repeats their choice.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidegate_harness::{BrokerOptions, Cluster, Durability, RawClient, S3Server, Setting, Store};
use tidegate_tests_cluster::{
    Copier, Fate, TransactionHistory, Transactors, check_copy, read_committed,
};

const TOPIC: &str = "transactions";
/// Where a copier brings all that is committed in it, offsets in its transactions too.
const COPY: &str = "transactions-copied";
const PARTITIONS: i32 = 8;
const PRODUCERS: u32 = 4;
const READY: Duration = Duration::from_secs(60);

#[test]
fn transactions_are_whole_or_not_at_all_whatever_happens_in_object_mode() -> Result<()> {
    chaos(Durability::Object)
}

#[test]
fn transactions_are_whole_or_not_at_all_whatever_happens_in_local_mode() -> Result<()> {
    chaos(Durability::Local)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn chaos(durability: Durability) -> Result<()> {
    let seed = from_environment("TIDEGATE_TEST_SEED")
        .unwrap_or_else(|| rand::rng().random_range(1..1_000_000));
    let acts = from_environment("TIDEGATE_TEST_ACTS").unwrap_or(40);
    println!("TIDEGATE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let s3 = S3Server::start_with_bucket("transactions")?;
    let options = BrokerOptions::default()
        .tidegate_only()
        .durability(durability)
        .store(Store::S3 {
            endpoint: s3.address(),
            bucket: "transactions".into(),
            prefix: "cluster".into(),
        })
        .set(Setting::UploadAgeMs, 1_000)
        .set(Setting::UploadSizeBytes, 1 << 20);
    let mut cluster = Cluster::start(3, &options)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(create_topics(&cluster.broker(1)?.bootstrap()))?;
    let brokers = cluster.bootstrap();
    let transactors = Transactors::start(&brokers, TOPIC, PARTITIONS, PRODUCERS, seed);
    let copying = Copier::start(&brokers, TOPIC, COPY, PARTITIONS);
    let started = Instant::now();
    for number in 0..acts {
        let act = random.random_range(0..100);
        act_once(act, &mut cluster, &mut random)
            .with_context(|| format!("act {number} ({act}), TIDEGATE_TEST_SEED={seed}"))?;
        std::thread::sleep(Duration::from_millis(random.random_range(50..800)));
    }
    println!("{acts} acts in {:.0} s", started.elapsed().as_secs_f64());
    for broker in cluster.brokers() {
        broker.wait_ready(READY)?;
    }
    let history = TransactionHistory {
        attempts: transactors.finish()?.into_iter().collect(),
        seen: read_committed(&brokers, TOPIC, PARTITIONS, Duration::from_secs(90))?,
    };
    let copies = copying.finish()?;
    let copy = read_committed(&brokers, COPY, PARTITIONS, Duration::from_secs(90))?;
    let count = |fate| history.attempts.values().filter(|a| a.fate == fate).count();
    let committed = count(Fate::Committed);
    println!(
        "{committed} transactions committed, {} aborted, {} unknown; {} records, copied in {copies} transactions",
        count(Fate::Aborted),
        count(Fate::Unknown),
        history.seen.len()
    );
    ensure!(u64::try_from(committed)? > acts, "the producers hardly ran");
    let of_the_copy = check_copy(&history.seen, &copy);
    let violations: Vec<String> = history
        .check()
        .iter()
        .map(ToString::to_string)
        .chain(of_the_copy.iter().map(|v| format!("in the copy: {v}")))
        .collect();
    violations
        .iter()
        .take(20)
        .for_each(|v| println!("violation: {v}"));
    if !violations.is_empty() {
        bail!("{} violations, TIDEGATE_TEST_SEED={seed}", violations.len());
    }
    Ok(())
}

fn act_once(act: u32, cluster: &mut Cluster, random: &mut StdRng) -> Result<()> {
    let count = u32::try_from(cluster.brokers().len())?;
    let id = random.random_range(1..=count);
    match act {
        0..40 => {
            let partition = random.random_range(0..PARTITIONS);
            let topic = [TOPIC, COPY][random.random_range(0..2)];
            cluster.reassign(topic, u32::try_from(partition)?, id)
        }
        // The coordinators' own partitions move as well.
        40..65 => {
            let internal = ["__transaction_state", "__consumer_offsets"];
            let topic = internal[random.random_range(0..internal.len())];
            cluster.reassign(topic, random.random_range(0..8), id)
        }
        65..75 => {
            let _ = cluster.post(&format!("/v1/brokers/{id}/drain"), "{}");
            let broker = cluster.broker(id)?;
            broker.stop(Duration::from_secs(30))?;
            broker.launch()?;
            broker.wait_ready(READY)
        }
        75..90 => {
            let broker = cluster.broker(id)?;
            broker.kill()?;
            std::thread::sleep(Duration::from_millis(random.random_range(0..4_000)));
            broker.launch()?;
            broker.wait_ready(READY)
        }
        _ => {
            let broker = cluster.broker(id)?;
            broker.wait_ready(READY)?;
            broker.pause()?;
            std::thread::sleep(Duration::from_secs(5));
            broker.resume()?;
            broker.wait_ready(READY)
        }
    }
}

async fn create_topics(brokers: &str) -> Result<()> {
    let topics = [TOPIC, COPY].map(|name| {
        CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_num_partitions(PARTITIONS)
            .with_replication_factor(3)
    });
    let request = CreateTopicsRequest::default()
        .with_topics(topics.to_vec())
        .with_timeout_ms(30_000);
    let answer = RawClient::connect(brokers).await?.call(7, &request).await?;
    for created in answer.topics {
        let name = created.name.0.as_str();
        ensure!(
            created.error_code == 0,
            "creating {name} answered {}",
            created.error_code
        );
    }
    Ok(())
}
