//! Partitions that change their broker: what each side, and every client, must see.
//!
//! Several brokers over one bucket, started for each case. No case is judged by how long something takes, but for
//! limits that only a stuck cluster exceeds.

mod compaction;
mod coordinator_dies;
mod coordinators;
mod groups;
mod invisible;
mod leader_epochs;
mod metadata;
mod producer_state;
mod target_dies;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{BrokerId, TopicName};
use tidegate_harness::{
    BrokerOptions, Cluster, Durability, RawClient, S3Server, Setting, Store, http_post,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::ops::{Topic, create, produce, topic_metadata};
use crate::support::{errors, text, unique};

/// Longer than a failover, a start or a move takes anywhere.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Clusters are big: the cases take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// Brokers over one bucket.
struct Arena {
    // Ended before the store goes.
    cluster: Cluster,
    _s3: S3Server,
    _turn: MutexGuard<'static, ()>,
}

impl Arena {
    /// Starts brokers 1 to `count`, which move nothing by themselves.
    async fn start(count: u32, durability: Durability) -> Result<Self> {
        let turn = TURN.lock().await;
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
        Ok(Self {
            cluster: Cluster::start(count, &options)?,
            _s3: s3,
            _turn: turn,
        })
    }

    /// A connection to a broker.
    async fn client(&mut self, broker: u32) -> Result<RawClient> {
        RawClient::connect(&self.cluster.broker(broker)?.bootstrap()).await
    }

    /// The numbers of the brokers whose process runs.
    fn running(&mut self) -> Vec<u32> {
        let brokers = self.cluster.brokers().iter_mut();
        let running = brokers.filter_map(|broker| broker.is_running().then(|| broker.id()));
        running.flatten().collect()
    }

    /// The broker that is the controller.
    fn controller(&mut self) -> Result<u32> {
        let page = self.cluster.broker(1)?.admin_get("/v1/cluster")?;
        number_in(&page.body, "controller")
    }

    /// A topic whose partitions are all led by `leader`, and may be led by all.
    async fn create_topic(&mut self, partitions: i32, leader: u32) -> Result<Topic> {
        let mut client = self.client(leader).await?;
        let mut placement = vec![leader];
        placement.extend(self.running().into_iter().filter(|id| *id != leader));
        let placement: Vec<BrokerId> = placement
            .into_iter()
            .map(|id| BrokerId(id.cast_signed()))
            .collect();
        let assignments = (0..partitions).map(|index| {
            CreatableReplicaAssignment::default()
                .with_partition_index(index)
                .with_broker_ids(placement.clone())
        });
        let wanted = CreatableTopic::default()
            .with_name(TopicName(text(&unique("moves"))))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_assignments(assignments.collect());
        let topic = create(&mut client, wanted).await?;
        for partition in 0..partitions {
            self.led_by(&topic, partition, |id| id == leader).await?;
        }
        Ok(topic)
    }

    /// Waits until every running broker's metadata names a leader that is right, and answers leader and epoch.
    async fn led_by(
        &mut self,
        topic: &Topic,
        partition: i32,
        right: impl Fn(u32) -> bool,
    ) -> Result<(u32, i32)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut told = Vec::new();
            for id in self.running() {
                let mut client = self.client(id).await?;
                let found = metadata_of(&mut client, topic, partition).await?;
                told.push((found.leader_id.0, found.leader_epoch));
            }
            let (leader, epoch) = *told.first().context("no broker runs")?;
            let agreed = told.iter().all(|one| *one == (leader, epoch));
            if let Ok(leader) = u32::try_from(leader)
                && agreed
                && right(leader)
            {
                return Ok((leader, epoch));
            }
            ensure!(
                Instant::now() < deadline,
                "{} {partition}: brokers name (leader, epoch) {told:?}",
                topic.name
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Moves partitions by one request of the admin API. All must be moved by it.
    async fn move_all(&mut self, topic: &str, moves: &[(i32, u32)]) -> Result<()> {
        let body = reassignment(topic, moves);
        let addresses: Vec<String> = self
            .cluster
            .brokers()
            .iter_mut()
            .filter_map(|broker| broker.is_running().then(|| broker.admin_address()))
            .collect();
        let count = moves.len();
        // The client of the admin API blocks.
        tokio::task::spawn_blocking(move || post_moves(&addresses, &body, count)).await?
    }

    /// Moves one partition.
    async fn move_to(&mut self, topic: &Topic, partition: i32, to: u32) -> Result<()> {
        self.move_all(&topic.name, &[(partition, to)]).await
    }

    /// Produces to whoever leads, until the answer is no passing error.
    async fn produce(
        &mut self,
        topic: &Topic,
        partition: i32,
        batch: &Bytes,
    ) -> Result<PartitionProduceResponse> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (leader, _) = self.led_by(topic, partition, |_| true).await?;
            let mut client = self.client(leader).await?;
            let answer = produce(&mut client, 9, topic, partition, batch.clone()).await;
            match answer {
                Ok(answer) if !PASSING.contains(&answer.error_code) => return Ok(answer),
                Ok(answer) => ensure!(
                    Instant::now() < deadline,
                    "produce is still answered {}",
                    answer.error_code
                ),
                Err(error) => ensure!(Instant::now() < deadline, "produce: {error:#}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.
const PASSING: [i16; 4] = [5, errors::NOT_LEADER_OR_FOLLOWER, 7, 56];

fn reassignment(topic: &str, moves: &[(i32, u32)]) -> String {
    let moves: Vec<String> = moves
        .iter()
        .map(|(partition, to)| {
            format!(r#"{{"topic":"{topic}","partition":{partition},"to":{to}}}"#)
        })
        .collect();
    format!(r#"{{"moves":[{}],"timeout_ms":60000}}"#, moves.join(","))
}

/// The number of this name in a page of JSON: its first.
fn number_in(page: &str, name: &str) -> Result<u32> {
    let number = page.split(&format!(r#""{name}":"#)).nth(1);
    let number = number.with_context(|| format!("no {name} in {page}"))?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

/// Any broker will do; without a controller at present, again.
fn post_moves(addresses: &[String], body: &str, count: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for address in addresses {
            let limit = PATIENCE + Duration::from_secs(10);
            let Ok(answer) = http_post(address, "/v1/reassignments", body, limit) else {
                continue;
            };
            if answer.status == 200 {
                let done = answer.body.matches(r#""status":"moved""#).count()
                    + answer.body.matches(r#""status":"already_there""#).count();
                ensure!(done == count, "not all moved: {}", answer.body);
                return Ok(());
            }
            ensure!(answer.status >= 500, "refused: {}", answer.body);
        }
        if Instant::now() >= deadline {
            bail!("no broker carries out moves");
        }
        std::thread::sleep(PAUSE);
    }
}

/// One partition as a broker's metadata has it.
async fn metadata_of(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
) -> Result<MetadataResponsePartition> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = topic_metadata(client, &topic.name).await?;
        let mut partitions = found.partitions.into_iter();
        if let Some(found) = partitions.find(|one| one.partition_index == partition) {
            return Ok(found);
        }
        ensure!(
            Instant::now() < deadline,
            "no metadata of {} {partition}",
            topic.name
        );
        tokio::time::sleep(PAUSE).await;
    }
}
