//! This broker's picture of the cluster: it only ever gets newer, whoever tells of it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{ClusterImage, ImageVersion};
use tokio::sync::watch;

pub(super) struct LocalImage {
    image: watch::Sender<Arc<ClusterImage>>,
}

impl LocalImage {
    pub(super) fn new() -> Self {
        Self {
            image: watch::Sender::new(Arc::new(ClusterImage::empty(""))),
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ClusterImage>> {
        self.image.subscribe()
    }

    pub(super) fn version(&self) -> ImageVersion {
        self.image.borrow().version()
    }

    /// Takes a picture if it is newer, or if it is the first that names the cluster.
    pub(super) fn offer(&self, newer: &Arc<ClusterImage>) -> bool {
        self.image.send_if_modified(|image| {
            let named = image.cluster_id().is_empty() && !newer.cluster_id().is_empty();
            let take = newer.version() > image.version() || named;
            if take {
                *image = Arc::clone(newer);
            }
            take
        })
    }

    /// Waits until the picture is as new as this. `false`: it isn't yet.
    pub(super) async fn reaches(&self, version: ImageVersion, patience: Duration) -> bool {
        let mut image = self.image.subscribe();
        let reached = image.wait_for(|image| image.version() >= version);
        matches!(
            tokio::time::timeout(patience, reached).await,
            Ok(Ok(_reached))
        )
    }
}
