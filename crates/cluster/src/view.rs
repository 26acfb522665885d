//! What a broker that has joined knows of its cluster, and whom it can ask: for what it shows over HTTP.

use std::fmt;
use std::sync::Arc;

use tidegate_metadata::{ClusterImage, ControllerApi};
use tidegate_types::BrokerId;
use tokio::sync::watch;

use crate::admin::ClusterAdmin;
use crate::orders::Peers;

/// The cluster as one of its brokers reaches it.
#[derive(Clone)]
pub struct ClusterView {
    /// The broker whose view this is.
    pub me: BrokerId,
    /// Moves, drains and the cluster's state; asks whoever is the controller.
    pub admin: Arc<dyn ClusterAdmin>,
    /// Topics and partitions; asks whoever is the controller.
    pub controller: Arc<dyn ControllerApi>,
    /// The cluster's picture as this broker has it.
    pub images: watch::Receiver<Arc<ClusterImage>>,
    /// The other brokers, and this one.
    pub peers: Arc<dyn Peers>,
    /// What topics may be.
    pub topics: TopicRules,
}

/// What a topic may be, by this broker's configuration.
#[derive(Debug, Clone, Copy)]
pub struct TopicRules {
    /// Partitions of a topic that doesn't say.
    pub default_partitions: u32,
    /// Replication factor of a topic that doesn't say.
    pub default_replication_factor: u16,
    /// Checks the value of a topic config; the error says what is wrong.
    pub check_config: fn(&str, &str) -> Result<(), String>,
    /// Whether the broker keeps its own records in the topic of this name.
    pub is_internal: fn(&str) -> bool,
}

impl ClusterView {
    /// The present picture.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.images.borrow().clone()
    }
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}
