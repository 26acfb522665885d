//! This broker's part in handovers: it seals and hands out what it leads ([`source`]), and follows what it shall
//! lead ([`target`]). Protocol: `docs/protocols/handover.md`.
//!
//! Orders come from the controller, twice or late as it may be; an order of a controller that was replaced changes
//! nothing. What was prepared here is only a copy: this broker leads when the cluster's image says so.

mod map;
mod parking;
mod services;
mod source;
mod target;
mod warm;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_cluster::orders::{OrderRefused, Peers};
use tidegate_metadata::WalIdentity;
use tidegate_partition_log::{LogOpener, LogReader, LogSet, ObjectBacklog};
use tidegate_runtime::Tasks;
use tidegate_types::{BrokerEpoch, ControllerEpoch, PartitionId};
use tokio::sync::Notify;

pub(crate) use parking::Patience;
pub(crate) use services::BrokerServices;
use target::Incoming;

use crate::catalog::Catalog;
use crate::coordinators::Replicas;

/// What handovers work on.
pub(crate) struct Handover {
    pub(crate) broker_epoch: BrokerEpoch,
    /// This broker's local WAL.
    pub(crate) wal: WalIdentity,
    pub(crate) logs: Arc<LogSet>,
    pub(crate) reader: LogReader,
    pub(crate) opener: LogOpener,
    pub(crate) backlog: Arc<ObjectBacklog>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) tasks: Tasks,
    pub(crate) incoming: IncomingSet,
    pub(crate) replicas: Replicas,
    pub(crate) controller: SeenController,
}

/// The copies that this broker has or makes of other brokers' logs.
#[derive(Default)]
pub(crate) struct IncomingSet {
    copies: Mutex<HashMap<PartitionId, Arc<Incoming>>>,
    /// Rung when a copy became a log, or went, and when an image has come.
    settled: Notify,
}

/// The highest controller epoch that has given orders here.
#[derive(Default)]
pub(crate) struct SeenController(AtomicU64);

impl SeenController {
    /// A picture of this controller has come: it has fenced all earlier ones.
    pub(crate) fn saw(&self, epoch: ControllerEpoch) {
        self.0.fetch_max(epoch.get(), Ordering::AcqRel);
    }

    /// Takes an order's epoch in, or tells that a newer controller has given orders.
    fn admit(&self, epoch: ControllerEpoch) -> Result<(), OrderRefused> {
        let seen = self.0.fetch_max(epoch.get(), Ordering::AcqRel);
        if seen > epoch.get() {
            return Err(OrderRefused::StaleController {
                seen: ControllerEpoch::new(seen),
            });
        }
        Ok(())
    }
}
