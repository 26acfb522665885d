//! How much goes on between brokers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Made once per process.
#[derive(Debug, Clone, Default)]
pub struct RpcMetrics {
    pub(super) connections: Gauge,
    pub(super) calls: Gauge,
    pub(super) streams: Gauge,
    pub(super) refused: Counter,
    pub(super) calls_failed: Counter,
}

impl RpcMetrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let r = registry.sub_registry_with_prefix("rpc");
        r.register(
            "connections",
            "Connections that other brokers hold to this one",
            metrics.connections.clone(),
        );
        r.register(
            "calls",
            "Calls of other brokers that are being carried out",
            metrics.calls.clone(),
        );
        r.register(
            "streams",
            "Sessions and followed tails that other brokers hold here",
            metrics.streams.clone(),
        );
        r.register(
            "calls_refused",
            "Calls of other brokers that weren't carried out, because too many waited or for what they asked",
            metrics.refused.clone(),
        );
        r.register(
            "calls_failed",
            "Calls to other brokers without an answer",
            metrics.calls_failed.clone(),
        );
        metrics
    }
}

/// Counts one thing for as long as it is held.
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
