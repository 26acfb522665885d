//! What the Kafka side counts.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::quotas::QuotaMetrics;

/// The API as a label: a bounded set of names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Api(ApiKey);

impl EncodeLabelValue for Api {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        use std::fmt::Write as _;
        write!(encoder, "{:?}", self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabels {
    api: Api,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CoordinatorLabels {
    /// `group` or `transaction`.
    kind: &'static str,
    /// `warm` if a move had got it ready, else `cold`.
    start: &'static str,
}

/// Counters of the listener and the handlers.
#[derive(Clone)]
pub struct BrokerMetrics {
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) connections_broken: Counter,
    pub(crate) requests_refused: Counter,
    pub(crate) produce_throttled: Counter,
    pub(crate) produce_refused: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) quotas: QuotaMetrics,
    handled: Counter,
    requests: Family<ApiLabels, Histogram>,
    durable: Histogram,
    coordinator_loads: Family<CoordinatorLabels, Histogram>,
}

impl Default for BrokerMetrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.0001, 2.0, 18));
        Self {
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            connections_broken: Counter::default(),
            requests_refused: Counter::default(),
            produce_throttled: Counter::default(),
            produce_refused: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            quotas: QuotaMetrics::default(),
            handled: Counter::default(),
            requests: Family::new_with_constructor(seconds),
            durable: seconds(),
            coordinator_loads: Family::new_with_constructor(seconds),
        }
    }
}

impl BrokerMetrics {
    pub fn register(&self, registry: &mut Registry) {
        self.quotas.register(registry);
        registry.register(
            "connections",
            "Open Kafka connections",
            self.connections.clone(),
        );
        registry.register(
            "connections_refused",
            "Kafka connections closed because too many are open",
            self.connections_refused.clone(),
        );
        registry.register(
            "connections_broken",
            "Kafka connections closed for a frame that can't be read",
            self.connections_broken.clone(),
        );
        registry.register_with_unit(
            "produced",
            "Record batches appended",
            Unit::Bytes,
            self.bytes_in.clone(),
        );
        registry.register_with_unit(
            "fetched",
            "Record batches answered to fetches",
            Unit::Bytes,
            self.bytes_out.clone(),
        );
        registry.register(
            "requests_refused",
            "Kafka requests that can't be used",
            self.requests_refused.clone(),
        );
        registry.register(
            "produce_throttled",
            "Times a produce request waited for room in the WAL",
            self.produce_throttled.clone(),
        );
        registry.register(
            "produce_refused",
            "Batches refused by a full or failed WAL",
            self.produce_refused.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time to handle a Kafka request; of Produce only the append",
            Unit::Seconds,
            self.requests.clone(),
        );
        registry.register_with_unit(
            "produce_durable_duration",
            "Time from a produce request's append to its answer",
            Unit::Seconds,
            self.durable.clone(),
        );
        registry.register_with_unit(
            "coordinator_load_duration",
            "Time from the opening of a coordinator's partition until it serves",
            Unit::Seconds,
            self.coordinator_loads.clone(),
        );
    }

    pub(crate) fn coordinator_loaded(&self, kind: &'static str, warm: bool, took_ms: u64) {
        let took = Duration::from_millis(took_ms).as_secs_f64();
        let start = if warm { "warm" } else { "cold" };
        let labels = CoordinatorLabels { kind, start };
        self.coordinator_loads.get_or_create(&labels).observe(took);
    }

    /// Bytes of batches that came in, that went out, and requests, all since the start.
    pub(crate) fn load_counts(&self) -> [u64; 3] {
        [
            self.bytes_in.get(),
            self.bytes_out.get(),
            self.handled.get(),
        ]
    }

    pub(crate) fn handled(&self, api: ApiKey, duration: Duration) {
        self.handled.inc();
        self.requests
            .get_or_create(&ApiLabels { api: Api(api) })
            .observe(duration.as_secs_f64());
    }

    pub(crate) fn acknowledged(&self, duration: Duration) {
        self.durable.observe(duration.as_secs_f64());
    }
}
