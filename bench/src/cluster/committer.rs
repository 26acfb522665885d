//! A client of a group's coordinator by Kafka's raw protocol: it commits offsets and, unlike usual clients, never
//! waits before it asks again, so that what it notices is the coordinator's doing.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, OffsetCommitRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{
    Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes,
};

const COMMIT_VERSION: i16 = 8;
const FIND_VERSION: i16 = 3;
/// A broker that is killed or stopped doesn't answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries while nobody is the coordinator.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
const LARGEST_ANSWER: usize = 64 << 20;
const NOT_COORDINATOR: i16 = 16;

/// Commits at whoever is the coordinator of one group.
pub struct Committer {
    group: String,
    topic: String,
    brokers: BTreeMap<i32, String>,
    /// The broker that is asked, and the connection to it.
    at: i32,
    connection: Option<TcpStream>,
    correlation: i32,
    /// How often each refusal was answered.
    pub refusals: BTreeMap<String, u64>,
}

impl Committer {
    pub fn new(group: &str, topic: &str, brokers: BTreeMap<i32, String>) -> Result<Self> {
        let at = *brokers.keys().next().context("there is no broker")?;
        Ok(Self {
            group: group.to_owned(),
            topic: topic.to_owned(),
            brokers,
            at,
            connection: None,
            correlation: 0,
            refusals: BTreeMap::new(),
        })
    }

    /// Commits one offset for each of the partitions, however long that takes; gives up when `stopped` says so, or
    /// after the patience.
    pub fn commit(
        &mut self,
        partitions: Range<i32>,
        offset: i64,
        patience: Duration,
        stopped: impl Fn() -> bool,
    ) -> Result<bool> {
        let deadline = Instant::now() + patience;
        let request = self.request(partitions, offset);
        while !stopped() {
            let refusal = match self.call(COMMIT_VERSION, &request) {
                Ok(answer) => {
                    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                    let code = partitions.map(|one| one.error_code).find(|code| *code != 0);
                    let Some(code) = code else { return Ok(true) };
                    if code == NOT_COORDINATOR {
                        self.look_up();
                    }
                    format!("error code {code}")
                }
                Err(_) => {
                    self.next_broker();
                    self.look_up();
                    "no answer".to_owned()
                }
            };
            let waits = refusal != format!("error code {NOT_COORDINATOR}");
            let count = self.refusals.entry(refusal).or_default();
            *count += 1;
            if Instant::now() > deadline {
                bail!("offsets can't be committed: {:?}", self.refusals);
            }
            if waits {
                std::thread::sleep(RETRY_PAUSE);
            }
        }
        Ok(false)
    }

    fn request(&self, partitions: Range<i32>, offset: i64) -> OffsetCommitRequest {
        let partitions = partitions.map(|index| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_metadata(Some(StrBytes::from_static_str("")))
        });
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partitions(partitions.collect());
        OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(self.group.clone())))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    }

    /// Asks the present broker who the coordinator is, and goes there. Whoever can't say is asked again by the next
    /// commit.
    fn look_up(&mut self) {
        let request = FindCoordinatorRequest::default()
            .with_key(StrBytes::from_string(self.group.clone()))
            .with_key_type(0);
        match self.call(FIND_VERSION, &request) {
            Ok(answer) if answer.error_code == 0 => self.go_to(answer.node_id.0),
            Ok(_) => std::thread::sleep(RETRY_PAUSE),
            Err(_) => self.next_broker(),
        }
    }

    fn go_to(&mut self, broker: i32) {
        if broker != self.at && self.brokers.contains_key(&broker) {
            self.at = broker;
            self.connection = None;
        }
    }

    fn next_broker(&mut self) {
        let mut ids = self.brokers.keys().copied();
        let next = ids.find(|id| *id > self.at);
        self.at = next
            .or_else(|| self.brokers.keys().next().copied())
            .unwrap_or(self.at);
        self.connection = None;
    }

    fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let answered = self.exchange(version, request);
        if answered.is_err() {
            self.connection = None;
        }
        answered
    }

    fn exchange<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.correlation = self.correlation.wrapping_add(1);
        let correlation = self.correlation;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation)
            .with_client_id(Some(StrBytes::from_static_str("tidegate-bench")));
        let mut frame = BytesMut::zeroed(4);
        header.encode(&mut frame, R::header_version(version))?;
        request.encode(&mut frame, version)?;
        let length = i32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());

        let stream = self.connect()?;
        stream.write_all(&frame)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!(length <= LARGEST_ANSWER, "an answer of {length} bytes");
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let mut body = Bytes::from(body);
        let header = ResponseHeader::decode(&mut body, R::Response::header_version(version))?;
        ensure!(
            header.correlation_id == correlation,
            "an answer to something else"
        );
        R::Response::decode(&mut body, version)
    }

    fn connect(&mut self) -> Result<&mut TcpStream> {
        if self.connection.is_none() {
            let address = self.brokers.get(&self.at).context("an unknown broker")?;
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
            self.connection = Some(stream);
        }
        self.connection.as_mut().context("there is a connection")
    }
}
