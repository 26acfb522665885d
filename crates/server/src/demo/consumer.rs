//! The consumer: one reader for each partition, which checks the number of each record.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use tidegate_record_batch::{BatchError, Batches, records};
use tidegate_runtime::{OnExit, Tasks};

use super::kafka::{Cluster, Connection, Leader, Verdict};
use super::ledger::Ledger;

/// With topic ids, and hints of the new leader (KIP-516, KIP-951).
const FETCH_VERSION: i16 = 16;
/// How long a broker may wait for records.
const MAX_WAIT_MS: i32 = 500;
const MAX_BYTES: i32 = 1 << 20;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Starts reading all partitions of the ledger from their beginning. It ends with the tasks.
pub fn start(cluster: &Arc<Cluster>, ledger: &Arc<Ledger>, tasks: &Tasks) {
    for partition in ledger.partitions() {
        let reader = Reader {
            cluster: Arc::clone(cluster),
            ledger: Arc::clone(ledger),
            partition,
            connection: None,
            next_offset: 0,
        };
        let token = tasks.token().clone();
        tasks.spawn("reader", OnExit::Expected, async move {
            // Cancel-safe: nobody reads after it.
            tokio::select! {
                () = token.cancelled() => {}
                () = reader.read() => {}
            }
        });
    }
}

struct Reader {
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    partition: u32,
    /// One of its own, since a broker answers in order and a fetch may wait.
    connection: Option<(String, Connection)>,
    next_offset: i64,
}

impl Reader {
    async fn read(mut self) {
        loop {
            match self.fetch().await {
                Ok(true) => {}
                Ok(false) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    self.cluster.refresh().await;
                }
                Err(failure) => {
                    let partition = self.partition;
                    self.ledger
                        .fail(format!("partition {partition} can't be read: {failure}"));
                    return;
                }
            }
        }
    }

    /// Fetches once. Answers whether to go on without a pause.
    async fn fetch(&mut self) -> Result<bool, String> {
        let partition = i32::try_from(self.partition).unwrap_or(i32::MAX);
        let Some(leader) = self.cluster.leader(partition) else {
            return Ok(false);
        };
        let Some(address) = self.cluster.address(leader.broker) else {
            return Ok(false);
        };
        let part = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(self.next_offset)
            .with_partition_max_bytes(MAX_BYTES);
        let topic = FetchTopic::default()
            .with_topic_id(self.cluster.topic_id())
            .with_partitions(vec![part]);
        let request = FetchRequest::default()
            .with_max_wait_ms(MAX_WAIT_MS)
            .with_min_bytes(1)
            .with_max_bytes(MAX_BYTES)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let connection = self.connection_to(address);
        match connection.call(FETCH_VERSION, &request).await {
            Ok(answer) => self.take(partition, leader, answer),
            Err(_) => Ok(false),
        }
    }

    fn connection_to(&mut self, address: String) -> Connection {
        match &self.connection {
            Some((known, connection)) if *known == address && connection.is_open() => {
                connection.clone()
            }
            _ => {
                let connection = self.cluster.open(&address);
                self.connection = Some((address, connection.clone()));
                connection
            }
        }
    }

    fn take(
        &mut self,
        partition: i32,
        asked: Leader,
        answer: FetchResponse,
    ) -> Result<bool, String> {
        let endpoints = answer.node_endpoints.into_iter();
        let endpoints = endpoints.map(|broker| {
            let address = format!("{}:{}", broker.host.as_str(), broker.port);
            (broker.node_id.0, address)
        });
        let topics = answer.responses.into_iter();
        let Some(data) = topics.flat_map(|topic| topic.partitions).next() else {
            return Ok(false);
        };
        match Verdict::of(data.error_code) {
            Verdict::Fine => {
                self.take_records(data)?;
                Ok(true)
            }
            Verdict::Passing | Verdict::StoredBefore => {
                let leader = Leader {
                    broker: data.current_leader.leader_id.0,
                    epoch: data.current_leader.leader_epoch,
                };
                Ok(self.cluster.hint(partition, leader, endpoints) && leader != asked)
            }
            Verdict::Final(error) => Err(format!("broker {}: {error}", asked.broker)),
        }
    }

    fn take_records(&mut self, data: PartitionData) -> Result<(), String> {
        let bytes = data.records.unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        for batch in Batches::with_crc(bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                // The protocol lets an answer end in the middle of a batch.
                Err(BatchError::Truncated { .. }) => break,
                Err(error) => return Err(error.to_string()),
            };
            let all = records(&batch, MAX_BYTES as usize).map_err(|error| error.to_string())?;
            for record in all {
                let offset = i64::try_from(record.offset.get()).unwrap_or(i64::MAX);
                // A batch may begin before the offset that was asked for.
                if offset < self.next_offset {
                    continue;
                }
                let value = record.value.unwrap_or_default();
                let number = value.first_chunk().ok_or("a record of somebody else")?;
                self.ledger
                    .read(self.partition, u64::from_be_bytes(*number));
                self.next_offset = offset + 1;
            }
        }
        self.ledger.arrived(self.partition);
        Ok(())
    }
}
