//! Transactions while the coordinator, the data and the offsets change their brokers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::Producer;
use tidegate_harness::{BrokerOptions, Cluster, Durability, S3Server, Setting, Store, http_post};

use crate::support::unique;
use crate::transactions::{TransactionalProducer, read, send};

const LIMIT: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 4;
/// Between two moves. A client that has lost its coordinator asks for it after half a second, whatever the brokers do, so
/// of each round of two moves it has a part left to work in.
const STEP: Duration = Duration::from_millis(300);

fn create(bootstrap: &str, topic: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .create()?;
    let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for result in runtime.block_on(admin.create_topics([&new], &AdminOptions::new()))? {
        result.map_err(|(name, code)| anyhow::anyhow!("creating {name}: {code}"))?;
    }
    Ok(())
}

/// The partition of `__transaction_state` of an ASCII id, as Java's string hash has it.
fn partition_of(transactional_id: &str) -> i32 {
    let hash = transactional_id.bytes().fold(0_i32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(i32::from(byte))
    });
    hash.checked_abs().unwrap_or(0) % 50
}

fn move_all(addresses: &[String], moves: &[(&str, i32)], to: u32) -> Result<()> {
    let moves: Vec<String> = moves
        .iter()
        .map(|(topic, partition)| {
            format!(r#"{{"topic":"{topic}","partition":{partition},"to":{to}}}"#)
        })
        .collect();
    let body = format!(r#"{{"moves":[{}],"timeout_ms":60000}}"#, moves.join(","));
    let address = addresses.first().context("no broker")?;
    let answer = http_post(address, "/v1/reassignments", &body, LIMIT)?;
    ensure!(answer.status == 200, "{}", answer.body);
    Ok(())
}

/// A producer that doesn't wait longer and longer before it connects: to this client each coordinator that moved is a
/// connection that broke.
fn producer_of(bootstrap: &str, transactional_id: &str) -> Result<TransactionalProducer> {
    let producer: TransactionalProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", transactional_id)
        .set("transaction.timeout.ms", "60000")
        .set("linger.ms", "1")
        .set("reconnect.backoff.ms", "10")
        .set("reconnect.backoff.max.ms", "50")
        .create()?;
    producer.init_transactions(LIMIT)?;
    Ok(producer)
}

/// Ends one transaction, asking again while that is allowed.
fn end(producer: &TransactionalProducer, commit: bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let ended = if commit {
            producer.commit_transaction(LIMIT)
        } else {
            producer.abort_transaction(LIMIT)
        };
        match ended {
            Ok(()) => return Ok(()),
            Err(rdkafka::error::KafkaError::Transaction(error)) if error.is_retriable() => {
                ensure!(Instant::now() < deadline, "{error}");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn transactions_survive_moves(durability: Durability) -> Result<()> {
    let s3 = S3Server::start_with_bucket("moves")?;
    let options = BrokerOptions::default()
        .tidegate_only()
        .durability(durability)
        .store(Store::S3 {
            endpoint: s3.address(),
            bucket: "moves".into(),
            prefix: "cluster".into(),
        })
        .set(Setting::Balance, false)
        .set(Setting::UploadAgeMs, 1_000);
    let mut cluster = Cluster::start(2, &options)?;
    let bootstrap = cluster.bootstrap();
    let addresses: Vec<String> = cluster
        .brokers()
        .iter()
        .map(|broker| broker.admin_address())
        .collect();
    let topic = unique("txn-moves");
    create(&bootstrap, &topic)?;
    let name = unique("txn-id");
    let producer = producer_of(&bootstrap, &name)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mover = std::thread::spawn({
        let (stop, topic, name) = (stop.clone(), topic.clone(), name.clone());
        move || -> Result<u32> {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let to = 1 + rounds % 2;
                move_all(
                    &addresses,
                    &[("__transaction_state", partition_of(&name))],
                    to,
                )?;
                std::thread::sleep(STEP);
                let data: Vec<(&str, i32)> = (0..PARTITIONS)
                    .map(|index| (topic.as_str(), index))
                    .collect();
                move_all(&addresses, &data, to)?;
                std::thread::sleep(STEP);
                rounds += 1;
            }
            Ok(rounds)
        }
    });
    let mut expected = Vec::new();
    let mut rounds = 0;
    let until = Instant::now() + Duration::from_secs(15);
    let worked = (|| -> Result<()> {
        while Instant::now() < until {
            producer.begin_transaction()?;
            for partition in 0..PARTITIONS {
                send(&producer, &topic, partition, &format!("{rounds:05}"))?;
            }
            let commit = rounds % 4 != 3;
            if !commit {
                producer.flush(LIMIT)?;
            }
            end(&producer, commit).with_context(|| format!("transaction {rounds}"))?;
            if commit {
                expected.push(format!("{rounds:05}"));
            }
            rounds += 1;
        }
        Ok(())
    })();
    stop.store(true, Ordering::Relaxed);
    let moves = mover.join().ok().context("the mover panicked")??;
    worked?;
    println!("{rounds} transactions over {moves} rounds of moves");
    ensure!(moves >= 3 && rounds >= 20.max(moves), "too little happened");
    for broker in cluster.brokers() {
        broker.process()?.check_alive()?;
    }
    let mut seen = read(&bootstrap, &topic, PARTITIONS, "read_committed")?;
    seen.sort();
    let mut wanted: Vec<String> = expected
        .iter()
        .flat_map(|value| std::iter::repeat_n(value.clone(), 4))
        .collect();
    wanted.sort();
    ensure!(
        seen == wanted,
        "{} values instead of {}; first difference {:?}",
        seen.len(),
        wanted.len(),
        seen.iter().zip(&wanted).find(|(a, b)| a != b)
    );
    Ok(())
}

#[test]
fn transactions_are_whole_while_everything_moves_local() -> Result<()> {
    transactions_survive_moves(Durability::Local)
}

#[test]
fn transactions_are_whole_while_everything_moves_object() -> Result<()> {
    transactions_survive_moves(Durability::Object)
}
