//! Leaving the cluster in order: give away what is led, then the controller's seat.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::admin::{AdminError, ClusterAdmin, DrainStatus};
use tidegate_cluster::member::{Member, SessionState};
use tidegate_types::BrokerId;
use tokio::time::Instant;
use tracing::{info, warn};

/// How often a drain is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What the lease gets to be released, at least.
const RESIGN: Duration = Duration::from_secs(1);

/// What it takes to leave.
#[derive(Clone)]
pub(super) struct Leaving {
    pub(super) broker: BrokerId,
    pub(super) member: Member,
    pub(super) admin: Arc<dyn ClusterAdmin>,
}

impl Leaving {
    /// Drains this broker and resigns, within `patience`. What couldn't be given away is failed over, or waits for
    /// this broker's return.
    pub(super) async fn leave(self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let fenced = matches!(
            &*self.member.session().borrow(),
            SessionState::Fenced { .. }
        );
        if fenced {
            // It leads nothing any more, and its number may be another life's by now, which would be drained instead.
            info!("leaving as it is: the cluster has gone on without this broker");
        } else {
            self.give_away(patience.saturating_sub(RESIGN)).await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.member.resign(left.max(RESIGN)).await;
    }

    async fn give_away(&self, patience: Duration) {
        match tokio::time::timeout(patience, self.drain()).await {
            Ok(Ok(status)) if status.is_done() => info!("all partitions were given away"),
            Ok(Ok(status)) => {
                let cause = status.blocked.unwrap_or_default();
                info!(
                    partitions = status.led_partitions,
                    cause, "leaving without giving partitions away"
                );
            }
            Ok(Err(error)) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "leaving without giving partitions away"
                );
            }
            Err(_) => warn!("some partitions couldn't be given away in time"),
        }
    }

    /// Waits until nothing is left, or nothing more can be given away.
    async fn drain(&self) -> Result<DrainStatus, AdminError> {
        let mut status = self.admin.drain(self.broker).await?;
        while !status.is_done() && status.blocked.is_none() {
            tokio::time::sleep(LOOK).await;
            status = self.admin.drain_status(self.broker).await?;
        }
        Ok(status)
    }
}
