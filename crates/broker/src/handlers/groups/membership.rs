//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_coordinator::{
    Generation, GroupError, GroupId, JoinRefused, JoinRequest, Joined, LeaveRequest, LeavingMember,
    LeftMember, MemberId, Protocol, Reply, SyncRequest, Synced,
};
use uuid::Uuid;

use super::{ask, ask_now, code_of, instance_id, mixed_up};
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::handlers::text;

/// Who sends a JoinGroup, as DescribeGroups shows it.
pub(super) struct Client {
    pub(super) id: String,
    pub(super) host: String,
}

pub(super) async fn join_group(
    broker: &Broker,
    request: JoinGroupRequest,
    version: i16,
    client: Client,
) -> JoinGroupResponse {
    // A copy, so that the frame isn't held while the group rebalances.
    let sent_id = text(request.member_id.as_str());
    match join(broker, request, version, client).await {
        Ok(joined) => joined_answer(joined, version),
        Err(refused) => refused_answer(refused, sent_id, version),
    }
}

pub(super) fn refused_answer(
    refused: JoinRefused,
    sent_id: StrBytes,
    version: i16,
) -> JoinGroupResponse {
    let member_id = refused.member_id.map_or(sent_id, |id| text(id.as_str()));
    JoinGroupResponse::default()
        .with_error_code(ErrorCode::from(&refused.error).code())
        .with_generation_id(-1)
        // Only from version 7 on it may be null.
        .with_protocol_name((version < 7).then(StrBytes::default))
        .with_member_id(member_id)
}

async fn join(
    broker: &Broker,
    request: JoinGroupRequest,
    version: i16,
    client: Client,
) -> Result<Joined, JoinRefused> {
    let refuse = |error| JoinRefused {
        error,
        member_id: None,
    };
    let group_id = GroupId::new(request.group_id.0.as_str()).map_err(refuse)?;
    let protocols = request
        .protocols
        .iter()
        .map(|p| Protocol {
            name: p.name.as_str().into(),
            metadata: Bytes::copy_from_slice(&p.metadata),
        })
        .collect();
    let join = JoinRequest {
        group_id: group_id.clone(),
        api_version: version,
        member_id: MemberId::from_wire(request.member_id.as_str()),
        instance_id: instance_id(request.group_instance_id.as_deref()).map_err(refuse)?,
        client_id: client.id,
        client_host: client.host,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        protocol_type: request.protocol_type.as_str().to_owned(),
        protocols,
        reason: request.reason.as_deref().map(str::to_owned),
        random: Uuid::new_v4(),
    };
    // What was copied is enough; the frame's memory is free while the group rebalances.
    drop(request);
    match ask(broker, &group_id, move |c, now, token| {
        c.join(now, token, join)
    })
    .await
    {
        Ok(Reply::Join(result)) => result,
        Ok(other) => Err(refuse(mixed_up(&other))),
        Err(error) => Err(refuse(error)),
    }
}

pub(super) fn joined_answer(joined: Joined, version: i16) -> JoinGroupResponse {
    let members = joined
        .members
        .into_iter()
        .map(|member| {
            let instance = member.instance_id.filter(|_| version >= 5);
            JoinGroupResponseMember::default()
                .with_member_id(text(member.member_id.as_str()))
                .with_group_instance_id(instance.map(|id| text(id.as_str())))
                .with_metadata(member.metadata)
        })
        .collect();
    let protocol_name = match joined.protocol_name {
        Some(name) => Some(text(name)),
        None => (version < 7).then(StrBytes::default),
    };
    JoinGroupResponse::default()
        .with_generation_id(joined.generation.to_wire())
        .with_protocol_type(joined.protocol_type.filter(|_| version >= 7).map(text))
        .with_protocol_name(protocol_name)
        .with_leader(
            joined
                .leader
                .map_or_else(StrBytes::default, |id| text(id.as_str())),
        )
        .with_skip_assignment(joined.skip_assignment && version >= 9)
        .with_member_id(text(joined.member_id.as_str()))
        .with_members(members)
}

pub(super) async fn sync_group(
    broker: &Broker,
    request: SyncGroupRequest,
    version: i16,
) -> SyncGroupResponse {
    match sync(broker, request, version).await {
        Ok(synced) => synced_answer(synced, version),
        Err(error) => SyncGroupResponse::default().with_error_code(ErrorCode::from(&error).code()),
    }
}

pub(super) fn synced_answer(synced: Synced, version: i16) -> SyncGroupResponse {
    SyncGroupResponse::default()
        .with_protocol_type(synced.protocol_type.filter(|_| version >= 5).map(text))
        .with_protocol_name(synced.protocol_name.filter(|_| version >= 5).map(text))
        .with_assignment(synced.assignment)
}

async fn sync(
    broker: &Broker,
    request: SyncGroupRequest,
    version: i16,
) -> Result<Synced, GroupError> {
    if version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return Err(GroupError::InconsistentGroupProtocol);
    }
    let group_id = GroupId::new(request.group_id.0.as_str())?;
    let assignments = request
        .assignments
        .iter()
        .filter_map(|a| {
            Some((
                MemberId::from_wire(a.member_id.as_str())?,
                Bytes::copy_from_slice(&a.assignment),
            ))
        })
        .collect();
    let sync = SyncRequest {
        group_id: group_id.clone(),
        member_id: MemberId::from_wire(request.member_id.as_str()),
        instance_id: instance_id(request.group_instance_id.as_deref())?,
        generation: Generation::from_wire(request.generation_id),
        protocol_type: request.protocol_type.as_deref().map(str::to_owned),
        protocol_name: request.protocol_name.as_deref().map(str::to_owned),
        assignments,
    };
    drop(request);
    match ask(broker, &group_id, move |c, now, token| {
        c.sync(now, token, sync)
    })
    .await?
    {
        Reply::Sync(result) => result,
        other => Err(mixed_up(&other)),
    }
}

pub(super) async fn heartbeat(broker: &Broker, request: HeartbeatRequest) -> HeartbeatResponse {
    let result = beat(broker, &request).await;
    HeartbeatResponse::default().with_error_code(code_of(&result))
}

async fn beat(broker: &Broker, request: &HeartbeatRequest) -> Result<(), GroupError> {
    let group_id = GroupId::new(request.group_id.0.as_str())?;
    if group_id.is_empty() {
        return Err(GroupError::InvalidGroupId);
    }
    let heartbeat = tidegate_coordinator::HeartbeatRequest {
        group_id: group_id.clone(),
        member_id: MemberId::from_wire(request.member_id.as_str()),
        instance_id: instance_id(request.group_instance_id.as_deref())?,
        generation: Generation::from_wire(request.generation_id),
    };
    ask_now(broker, &group_id, move |c, now| {
        c.heartbeat(now, &heartbeat)
    })
    .await
}

pub(super) async fn leave_group(
    broker: &Broker,
    request: LeaveGroupRequest,
    version: i16,
) -> LeaveGroupResponse {
    match leave(broker, request, version).await {
        Ok(left) => left_answer(left, version),
        Err(error) => LeaveGroupResponse::default().with_error_code(ErrorCode::from(&error).code()),
    }
}

/// Versions below 3 name one member, and its error is that of the answer.
pub(super) fn left_answer(left: Vec<LeftMember>, version: i16) -> LeaveGroupResponse {
    if version < 3 {
        let code = left
            .first()
            .map_or(ErrorCode::None.code(), |member| code_of(&member.result));
        return LeaveGroupResponse::default().with_error_code(code);
    }
    let members = left
        .into_iter()
        .map(|member| {
            MemberResponse::default()
                .with_member_id(
                    member
                        .member_id
                        .map_or_else(StrBytes::default, |id| text(id.as_str())),
                )
                .with_group_instance_id(member.instance_id.map(|id| text(id.as_str())))
                .with_error_code(code_of(&member.result))
        })
        .collect();
    LeaveGroupResponse::default().with_members(members)
}

async fn leave(
    broker: &Broker,
    request: LeaveGroupRequest,
    version: i16,
) -> Result<Vec<LeftMember>, GroupError> {
    let group_id = GroupId::new(request.group_id.0.as_str())?;
    let members = if version < 3 {
        let member_id = MemberId::from_wire(request.member_id.as_str());
        vec![LeavingMember {
            member_id,
            instance_id: None,
            reason: None,
        }]
    } else {
        request
            .members
            .iter()
            .map(|member| {
                Ok(LeavingMember {
                    member_id: MemberId::from_wire(member.member_id.as_str()),
                    instance_id: instance_id(member.group_instance_id.as_deref())?,
                    reason: member.reason.as_deref().map(str::to_owned),
                })
            })
            .collect::<Result<Vec<_>, GroupError>>()?
    };
    let leave = LeaveRequest {
        group_id: group_id.clone(),
        members,
    };
    match ask(broker, &group_id, move |c, now, token| {
        c.leave(now, token, leave)
    })
    .await?
    {
        Reply::Leave(result) => result,
        other => Err(mixed_up(&other)),
    }
}
