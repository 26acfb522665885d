//! The broker the cases share, names, and error codes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use kafka_protocol::protocol::StrBytes;
use tidegate_harness::{Broker, BrokerOptions, RawClient, Target};

/// Kafka's error codes, as far as the cases name them.
pub(crate) mod errors {
    pub(crate) const NONE: i16 = 0;
    pub(crate) const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub(crate) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub(crate) const MESSAGE_TOO_LARGE: i16 = 10;
    pub(crate) const OFFSET_METADATA_TOO_LARGE: i16 = 12;
    pub(crate) const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub(crate) const NOT_COORDINATOR: i16 = 16;
    pub(crate) const ILLEGAL_GENERATION: i16 = 22;
    pub(crate) const UNKNOWN_MEMBER_ID: i16 = 25;
    pub(crate) const INVALID_TIMESTAMP: i16 = 32;
    pub(crate) const UNSUPPORTED_VERSION: i16 = 35;
    pub(crate) const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub(crate) const INVALID_PARTITIONS: i16 = 37;
    pub(crate) const INVALID_REPLICATION_FACTOR: i16 = 38;
    pub(crate) const INVALID_CONFIG: i16 = 40;
    pub(crate) const INVALID_REQUEST: i16 = 42;
    pub(crate) const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
    pub(crate) const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
    pub(crate) const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
    pub(crate) const GROUP_ID_NOT_FOUND: i16 = 69;
    pub(crate) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub(crate) const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
    pub(crate) const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
    pub(crate) const MEMBER_ID_REQUIRED: i16 = 79;
    pub(crate) const FENCED_INSTANCE_ID: i16 = 82;
    pub(crate) const NO_REASSIGNMENT_IN_PROGRESS: i16 = 85;
    pub(crate) const INVALID_RECORD: i16 = 87;
    pub(crate) const UNKNOWN_TOPIC_ID: i16 = 100;
    pub(crate) const INCONSISTENT_TOPIC_ID: i16 = 103;
}

/// The broker for cases that leave it as they found it.
pub(crate) fn shared() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    SHARED.get_or_init(|| Broker::start(BrokerOptions::default()).expect("the broker starts"))
}

/// A connection to the shared broker.
pub(crate) async fn connect() -> Result<RawClient> {
    // Shown when the test fails.
    println!(
        "log of the shared broker: {}",
        shared().log_path().display()
    );
    RawClient::connect(&shared().bootstrap()).await
}

/// Whether the tests run against Apache Kafka.
pub(crate) fn is_kafka() -> bool {
    Target::from_environment() == Target::ApacheKafka
}

/// A name nobody else has.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{prefix}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A protocol string.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970");
    i64::try_from(since.as_millis()).expect("the year is below 292 million")
}
