//! Consumer groups: finding the coordinator, membership, offsets, and what admin tools ask.

mod admin;
mod consumer;
mod find;
mod membership;
mod offset_fetch;
mod offsets;
#[cfg(test)]
mod tests;
mod transactional_offsets;

use std::net::SocketAddr;

use kafka_protocol::messages::{RequestKind, ResponseKind};
use tidegate_coordinator::{
    Effect, GroupCoordinator, GroupError, GroupId, InstanceId, Now, Reply, ReplyToken,
};
use tidegate_kafka_wire::request::RequestHeader;

use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// `None` if the request isn't about groups.
pub(crate) async fn handle(
    broker: &Broker,
    header: &RequestHeader,
    request: RequestKind,
    peer: SocketAddr,
) -> Option<ResponseKind> {
    let version = header.version;
    Some(match request {
        RequestKind::FindCoordinator(r) => {
            ResponseKind::FindCoordinator(find::find_coordinator(broker, r, version).await)
        }
        RequestKind::JoinGroup(r) => {
            let client = client(header, peer);
            ResponseKind::JoinGroup(membership::join_group(broker, r, version, client).await)
        }
        RequestKind::ConsumerGroupHeartbeat(r) => {
            let client = client(header, peer);
            ResponseKind::ConsumerGroupHeartbeat(
                consumer::heartbeat(broker, r, version, client).await,
            )
        }
        RequestKind::ConsumerGroupDescribe(r) => {
            ResponseKind::ConsumerGroupDescribe(consumer::describe(broker, r, version).await)
        }
        RequestKind::SyncGroup(r) => {
            ResponseKind::SyncGroup(membership::sync_group(broker, r, version).await)
        }
        RequestKind::Heartbeat(r) => {
            ResponseKind::Heartbeat(membership::heartbeat(broker, r).await)
        }
        RequestKind::LeaveGroup(r) => {
            ResponseKind::LeaveGroup(membership::leave_group(broker, r, version).await)
        }
        RequestKind::OffsetCommit(r) => {
            ResponseKind::OffsetCommit(offsets::offset_commit(broker, r, version).await)
        }
        RequestKind::OffsetFetch(r) => {
            ResponseKind::OffsetFetch(offset_fetch::offset_fetch(broker, r, version).await)
        }
        RequestKind::TxnOffsetCommit(r) => ResponseKind::TxnOffsetCommit(
            transactional_offsets::txn_offset_commit(broker, r, version).await,
        ),
        RequestKind::OffsetDelete(r) => {
            ResponseKind::OffsetDelete(offsets::offset_delete(broker, r).await)
        }
        RequestKind::DescribeGroups(r) => {
            ResponseKind::DescribeGroups(admin::describe_groups(broker, r, version).await)
        }
        RequestKind::ListGroups(r) => {
            ResponseKind::ListGroups(admin::list_groups(broker, r, version).await)
        }
        RequestKind::DeleteGroups(r) => {
            ResponseKind::DeleteGroups(admin::delete_groups(broker, r).await)
        }
        _ => return None,
    })
}

fn client(header: &RequestHeader, peer: SocketAddr) -> membership::Client {
    membership::Client {
        id: header
            .client_id
            .as_ref()
            .map_or_else(String::new, |id| id.as_str().to_owned()),
        // As Java prints an address.
        host: format!("/{}", peer.ip().to_canonical()),
    }
}

/// Hands a request to the group's coordinator and waits for its reply, however long that takes.
async fn ask<F>(broker: &Broker, group: &GroupId, act: F) -> Result<Reply, GroupError>
where
    F: FnOnce(&mut GroupCoordinator, Now, ReplyToken) -> Vec<Effect> + Send + 'static,
{
    let coordinator = broker.groups.coordinator(broker, group.as_str()).await?;
    coordinator
        .answered(act)
        .await
        .ok_or(GroupError::NotCoordinator)
}

/// Asks the group's coordinator what it answers on the spot.
async fn ask_now<T, F>(broker: &Broker, group: &GroupId, ask: F) -> Result<T, GroupError>
where
    T: Send + 'static,
    F: FnOnce(&mut GroupCoordinator, Now) -> Result<T, GroupError> + Send + 'static,
{
    let coordinator = broker.groups.coordinator(broker, group.as_str()).await?;
    coordinator
        .immediate(ask)
        .await
        .ok_or(GroupError::NotCoordinator)?
}

/// The coordinator answered another request than was asked.
fn mixed_up(reply: &Reply) -> GroupError {
    tracing::error!(?reply, "a group coordinator gave a reply of another kind");
    GroupError::UnknownServerError
}

fn instance_id(id: Option<&str>) -> Result<Option<InstanceId>, GroupError> {
    id.map(InstanceId::new).transpose()
}

fn code_of(result: &Result<(), GroupError>) -> i16 {
    match result {
        Ok(()) => ErrorCode::None.code(),
        Err(error) => ErrorCode::from(error).code(),
    }
}
