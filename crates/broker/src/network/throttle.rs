//! Holding back clients that are over a quota.

use std::time::Duration;

use kafka_protocol::messages::ResponseKind;
use prometheus_client::metrics::gauge::Gauge;
use tidegate_runtime::SharedClock;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::Instant;

/// How often a connection that isn't read is looked at, whether the client has closed it.
const LOOK: Duration = Duration::from_secs(1);

/// The client has closed the connection.
pub(super) struct Closed;

/// Leaves a connection unread until a time.
pub(super) async fn mute(
    socket: &mut OwnedReadHalf,
    until: Instant,
    clock: &SharedClock,
    muted: &Gauge,
) -> Result<(), Closed> {
    let _counted = Counted::new(muted);
    loop {
        let left = until.saturating_duration_since(clock.now());
        if left.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(left.min(LOOK)).await;
        // Zero bytes to look at is the end of the stream; nothing to look at, or something, is no end.
        let mut one = [0];
        let looked = tokio::time::timeout(Duration::ZERO, socket.peek(&mut one)).await;
        if let Ok(Ok(0) | Err(_)) = looked {
            return Err(Closed);
        }
    }
}

/// Counted for as long as it lives.
struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

macro_rules! with_throttle_time {
    ($response:expr; $($kind:ident)*) => {
        match $response {
            $(ResponseKind::$kind(answer) => Some(&mut answer.throttle_time_ms),)*
            _ => None,
        }
    };
}

/// The field of an answer that says for how long its client is held back, if it has one.
pub(super) fn throttle_time(response: &mut ResponseKind) -> Option<&mut i32> {
    with_throttle_time!(response;
        AddOffsetsToTxn AddPartitionsToTxn AlterClientQuotas AlterConfigs AlterPartitionReassignments
        AlterReplicaLogDirs AlterUserScramCredentials ApiVersions ConsumerGroupDescribe ConsumerGroupHeartbeat
        CreateAcls CreatePartitions CreateTopics DeleteAcls DeleteGroups DeleteRecords DeleteTopics DescribeAcls
        DescribeClientQuotas DescribeCluster DescribeConfigs DescribeGroups DescribeLogDirs DescribeProducers
        DescribeTopicPartitions DescribeTransactions DescribeUserScramCredentials ElectLeaders EndTxn FindCoordinator
        Heartbeat IncrementalAlterConfigs InitProducerId JoinGroup LeaveGroup ListConfigResources ListGroups
        ListOffsets ListPartitionReassignments ListTransactions Metadata OffsetCommit OffsetDelete OffsetFetch
        OffsetForLeaderEpoch SyncGroup TxnOffsetCommit UnregisterBroker UpdateFeatures)
}
