//! Who leads which partition, and the way there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    InitProducerIdRequest, MetadataRequest, MetadataResponse, ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tidegate_runtime::{OnExit, Tasks};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::Connection;

const METADATA_VERSION: i16 = 12;
const INIT_PRODUCER_ID_VERSION: i16 = 4;
/// Between two requests for metadata, however many clients want it.
const REFRESH_PAUSE: Duration = Duration::from_millis(20);

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    pub broker: i32,
    pub epoch: i32,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
struct Known {
    topic_id: Uuid,
    addresses: HashMap<i32, String>,
    leaders: HashMap<i32, Leader>,
    /// To each address, for those who share.
    connections: HashMap<String, Connection>,
}

impl Known {
    /// Takes in who leads, unless that is older than what is known.
    fn lead(&mut self, partition: i32, leader: Leader) {
        let known = self.leaders.entry(partition).or_insert(leader);
        if leader.epoch >= known.epoch {
            *known = leader;
        }
    }
}

/// The cluster, as far as one topic needs it.
#[derive(Debug)]
pub struct Cluster {
    topic: TopicName,
    bootstrap: Vec<String>,
    tasks: Tasks,
    known: Mutex<Known>,
    wanted: Notify,
    refreshed: watch::Sender<u64>,
}

impl Cluster {
    /// Follows a topic, by brokers of which one at least answers.
    pub fn follow(topic: &str, bootstrap: Vec<String>, tasks: &Tasks) -> Arc<Self> {
        let cluster = Arc::new(Self {
            topic: TopicName(StrBytes::from_string(topic.to_owned())),
            bootstrap,
            tasks: tasks.clone(),
            known: Mutex::default(),
            wanted: Notify::new(),
            refreshed: watch::Sender::new(0),
        });
        let (token, following) = (tasks.token().clone(), Arc::clone(&cluster));
        tasks.spawn("kafka metadata", OnExit::Expected, async move {
            // Cancel-safe: metadata that is half read is read again by nobody.
            tokio::select! {
                () = token.cancelled() => {}
                () = following.refresh_when_wanted() => {}
            }
        });
        cluster
    }

    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Known once metadata has been read.
    pub fn topic_id(&self) -> Uuid {
        self.known.lock().topic_id
    }

    /// Who leads, if anybody is known to.
    pub fn leader(&self, partition: i32) -> Option<Leader> {
        let leader = self.known.lock().leaders.get(&partition).copied();
        leader.filter(|leader| leader.broker >= 0)
    }

    /// Where a broker listens.
    pub fn address(&self, broker: i32) -> Option<String> {
        self.known.lock().addresses.get(&broker).cloned()
    }

    /// The shared connection to an address; a new one if the last has ended.
    pub fn connection(&self, address: &str) -> Connection {
        let mut known = self.known.lock();
        match known.connections.get(address) {
            Some(connection) if connection.is_open() => connection.clone(),
            _ => {
                let connection = self.open(address);
                known
                    .connections
                    .insert(address.to_owned(), connection.clone());
                connection
            }
        }
    }

    /// A connection of one's own.
    pub fn open(&self, address: &str) -> Connection {
        Connection::open(address.to_owned(), &self.tasks)
    }

    /// Takes in what a refusal says of the new leader (KIP-951). Answers whether it says anything.
    pub fn hint(
        &self,
        partition: i32,
        leader: Leader,
        endpoints: impl IntoIterator<Item = (i32, String)>,
    ) -> bool {
        if leader.broker < 0 {
            return false;
        }
        let mut known = self.known.lock();
        known.addresses.extend(endpoints);
        known.lead(partition, leader);
        known.addresses.contains_key(&leader.broker)
    }

    /// Waits until metadata has been read once more.
    pub async fn refresh(&self) {
        let mut refreshed = self.refreshed.subscribe();
        self.wanted.notify_one();
        // The sender lives as long as `self`.
        let _ = refreshed.changed().await;
    }

    async fn refresh_when_wanted(&self) {
        let mut next = 0;
        loop {
            self.wanted.notified().await;
            let address = &self.bootstrap[next % self.bootstrap.len()];
            let topic = MetadataRequestTopic::default().with_name(Some(self.topic.clone()));
            let request = MetadataRequest::default()
                .with_topics(Some(vec![topic]))
                .with_allow_auto_topic_creation(false);
            // A connection of its own wouldn't wait behind produce requests that are parked; the next broker is as
            // good when this one is dead or slow.
            let connection = self.connection(address);
            match connection.call(METADATA_VERSION, &request).await {
                Ok(answer) => self.take_in(answer),
                Err(_) => next += 1,
            }
            self.refreshed.send_modify(|count| *count += 1);
            tokio::time::sleep(REFRESH_PAUSE).await;
        }
    }

    fn take_in(&self, answer: MetadataResponse) {
        let mut known = self.known.lock();
        for broker in answer.brokers {
            let address = format!("{}:{}", broker.host.as_str(), broker.port);
            known.addresses.insert(broker.node_id.0, address);
        }
        for topic in answer.topics {
            if topic.error_code != 0 || topic.name.as_ref() != Some(&self.topic) {
                continue;
            }
            known.topic_id = topic.topic_id;
            for partition in topic.partitions {
                let leader = Leader {
                    broker: partition.leader_id.0,
                    epoch: partition.leader_epoch,
                };
                known.lead(partition.partition_index, leader);
            }
        }
    }

    /// A new producer id with its epoch, from any broker. `None`: nobody has one at present.
    pub async fn producer_id(&self) -> Option<(i64, i16)> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        for address in &self.bootstrap {
            let connection = self.connection(address);
            let answer = connection.call(INIT_PRODUCER_ID_VERSION, &request).await;
            if let Ok(InitProducerIdResponse {
                error_code: 0,
                producer_id,
                producer_epoch,
                ..
            }) = answer
            {
                return Some((producer_id.0, producer_epoch));
            }
        }
        None
    }
}

/// What an error code means for a client that keeps on trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// It passes, or another broker knows better.
    Passing,
    /// The record was stored long ago.
    StoredBefore,
    /// Nothing that is tried again.
    Final(ResponseError),
}

impl Verdict {
    pub fn of(code: i16) -> Self {
        match ResponseError::try_from_code(code) {
            None => Self::Fine,
            Some(ResponseError::DuplicateSequenceNumber) => Self::StoredBefore,
            Some(error) if error.is_retriable() => Self::Passing,
            Some(error) => Self::Final(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_news_of_a_leader_never_replaces_newer() {
        let mut known = Known::default();
        let led_by = |broker, epoch| Leader { broker, epoch };
        known.lead(0, led_by(1, 4));
        known.lead(0, led_by(2, 5));
        known.lead(0, led_by(1, 4));
        assert_eq!(known.leaders[&0], led_by(2, 5));
        // Nobody leads any more, under the same epoch.
        known.lead(0, led_by(-1, 5));
        assert_eq!(known.leaders[&0], led_by(-1, 5));
    }

    #[test]
    fn what_passes_is_told_from_what_is_final() {
        assert_eq!(Verdict::of(0), Verdict::Fine);
        for passing in [3, 5, 6, 7, 56, 74, 75, 100] {
            assert_eq!(Verdict::of(passing), Verdict::Passing, "{passing}");
        }
        assert_eq!(Verdict::of(46), Verdict::StoredBefore);
        for last in [10, 45, 47] {
            assert!(matches!(Verdict::of(last), Verdict::Final(_)), "{last}");
        }
    }
}
