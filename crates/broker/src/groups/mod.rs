//! Stub.
use std::sync::Weak;
use tidegate_runtime::{SharedClock, Tasks};
pub(crate) struct GroupHost;
impl GroupHost {
    pub(crate) fn new(
        _: Weak<crate::broker::Broker>,
        _: Tasks,
        _: SharedClock,
        _: tidegate_coordinator::GroupConfig,
    ) -> Self {
        Self
    }
    pub(crate) fn opened(&self, _: &crate::catalog::Catalog) {}
    pub(crate) fn closed(&self, _: tidegate_types::PartitionId) {}
}
