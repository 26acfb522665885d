//! What quotas do to clients.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    quota: &'static str,
}

/// Counted for each kind of quota, by the name of its limit.
#[derive(Clone)]
pub(crate) struct QuotaMetrics {
    /// Connections that aren't read at present, since their client is over a quota.
    pub(crate) muted: Gauge,
    throttled: Family<QuotaLabels, Counter>,
    throttle: Family<QuotaLabels, Histogram>,
    sensors: Family<QuotaLabels, Gauge>,
}

impl Default for QuotaMetrics {
    fn default() -> Self {
        Self {
            muted: Gauge::default(),
            throttled: Family::default(),
            throttle: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 4.0, 10))
            }),
            sensors: Family::default(),
        }
    }
}

impl QuotaMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections_muted",
            "Kafka connections not read at present, their client being over a quota",
            self.muted.clone(),
        );
        registry.register(
            "quota_throttled",
            "Requests or connections over a quota",
            self.throttled.clone(),
        );
        registry.register_with_unit(
            "quota_throttle_duration",
            "How long those over a quota are held back",
            Unit::Seconds,
            self.throttle.clone(),
        );
        registry.register(
            "quota_sensors",
            "Clients, users or addresses measured against a quota",
            self.sensors.clone(),
        );
    }

    pub(super) fn throttled(&self, quota: &'static str, throttle: Duration) {
        let labels = QuotaLabels { quota };
        self.throttled.get_or_create(&labels).inc();
        let seconds = throttle.as_secs_f64();
        self.throttle.get_or_create(&labels).observe(seconds);
    }

    pub(super) fn sensors(&self, quota: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.sensors
            .get_or_create(&QuotaLabels { quota })
            .set(count);
    }
}
