//! Whom this broker takes for the controller: the election says it, the link and the requests follow it.

use std::sync::Arc;

use tidegate_metadata::Endpoint;
use tidegate_types::BrokerId;
use uuid::Uuid;

use super::Shared;
use super::host::RemoteParts;
use crate::rpc::ActiveController;

/// What the election found.
#[derive(Clone)]
pub(super) struct Standing {
    /// Rises with each change: what the link reports is about one of them.
    pub(super) serial: u64,
    pub(super) controller: Whom,
}

/// Who is the controller.
#[derive(Clone)]
pub(super) enum Whom {
    /// Nobody, as far as is known.
    Nobody,
    /// This broker.
    Here(Arc<ActiveController>),
    /// A broker in another process.
    There(Arc<There>),
}

/// A controller in another process.
pub(super) struct There {
    /// `None`: it had no number when it took the lease.
    pub(super) broker: Option<BrokerId>,
    /// The life that holds the lease.
    pub(super) incarnation: Uuid,
    pub(super) endpoint: Endpoint,
    pub(super) parts: RemoteParts,
}

impl Standing {
    pub(super) fn unknown() -> Self {
        Self {
            serial: 0,
            controller: Whom::Nobody,
        }
    }

    pub(super) fn known(&self, shared: &Shared) -> Option<(BrokerId, Endpoint)> {
        match &self.controller {
            Whom::Nobody => None,
            Whom::Here(_) => {
                let me = (*shared.broker.borrow())?;
                Some((me, shared.settings.me.internal.clone()))
            }
            Whom::There(there) => Some((there.broker?, there.endpoint.clone())),
        }
    }
}
