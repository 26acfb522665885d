//! A member of a classic group.

use std::sync::Arc;

use bytes::Bytes;

use crate::{InstanceId, MemberId, Protocol, ReplyToken};

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: u32,
    pub(crate) session_timeout_ms: u32,
    /// In order of preference, each name once.
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) assignment: Bytes,
    pub(crate) awaiting_join: Option<ReplyToken>,
    pub(crate) awaiting_sync: Option<ReplyToken>,
    /// It has never had a generation, so it doesn't know its id and can't send heartbeats.
    pub(crate) is_new: bool,
}

impl Member {
    pub(crate) fn is_static(&self) -> bool {
        self.instance_id.is_some()
    }

    /// A member that waits for a reply of ours can't be expected to send heartbeats, unless it is new: then
    /// the session timer is what limits its wait.
    pub(crate) fn needs_no_heartbeat(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// Empty if the member doesn't know the protocol.
    pub(crate) fn metadata(&self, protocol: Option<&Arc<str>>) -> Bytes {
        self.protocols
            .iter()
            .find(|known| Some(&known.name) == protocol)
            .map(|known| known.metadata.clone())
            .unwrap_or_default()
    }
}
