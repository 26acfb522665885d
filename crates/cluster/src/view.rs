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
