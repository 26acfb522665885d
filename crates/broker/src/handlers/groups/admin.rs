//! DescribeGroups, ListGroups, DeleteGroups.

use std::collections::HashSet;

use futures::future::join_all;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId as WireGroupId, ListGroupsRequest, ListGroupsResponse,
};
use tidegate_coordinator::{GroupError, GroupFilter, GroupId, Reply};

use super::{ask, ask_now, code_of, mixed_up};
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::handlers::{GROUP_OPERATIONS, OPERATIONS_NOT_ASKED, text};

pub(super) async fn describe_groups(
    broker: &Broker,
    request: DescribeGroupsRequest,
    version: i16,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for id in request.groups {
        let mut group = match describe(broker, id.0.as_str()).await {
            Ok(group) => described_answer(group, version),
            Err(error) => not_described(&error, id.0.as_str(), version),
        };
        let operations =
            request.include_authorized_operations && group.error_code == ErrorCode::None.code();
        group.authorized_operations = if operations {
            GROUP_OPERATIONS
        } else {
            OPERATIONS_NOT_ASKED
        };
        groups.push(group.with_group_id(id));
    }
    DescribeGroupsResponse::default().with_groups(groups)
}

async fn describe(
    broker: &Broker,
    id: &str,
) -> Result<tidegate_coordinator::DescribedGroup, GroupError> {
    let id = GroupId::new(id)?;
    let group = id.clone();
    ask_now(broker, &group, move |c, _| c.describe_group(&id)).await
}

pub(super) fn described_answer(
    group: tidegate_coordinator::DescribedGroup,
    version: i16,
) -> DescribedGroup {
    let members = group
        .members
        .into_iter()
        .map(|member| {
            let instance = member.instance_id.filter(|_| version >= 4);
            DescribedGroupMember::default()
                .with_member_id(text(member.member_id.as_str()))
                .with_group_instance_id(instance.map(|id| text(id.as_str())))
                .with_client_id(text(member.client_id))
                .with_client_host(text(member.client_host))
                .with_member_metadata(member.metadata)
                .with_member_assignment(member.assignment)
        })
        .collect();
    DescribedGroup::default()
        .with_group_state(text(group.state.as_str()))
        .with_protocol_type(text(group.protocol_type))
        .with_protocol_data(text(group.protocol_name))
        .with_members(members)
}

/// Before version 6 a group that doesn't exist is shown as a dead one (KIP-1043).
pub(super) fn not_described(error: &GroupError, id: &str, version: i16) -> DescribedGroup {
    let answer = DescribedGroup::default();
    if *error != GroupError::GroupIdNotFound {
        return answer.with_error_code(ErrorCode::from(error).code());
    }
    let answer = answer.with_group_state(text("Dead"));
    if version < 6 {
        return answer;
    }
    answer
        .with_error_code(ErrorCode::GroupIdNotFound.code())
        .with_error_message(Some(text(format!("Group {id} not found."))))
}

/// All groups that this broker coordinates.
pub(super) async fn list_groups(
    broker: &Broker,
    request: ListGroupsRequest,
    version: i16,
) -> ListGroupsResponse {
    let owned = |words: Vec<kafka_protocol::protocol::StrBytes>| {
        words.iter().map(|w| w.as_str().to_owned()).collect()
    };
    let filter = GroupFilter {
        states: owned(request.states_filter),
        types: owned(request.types_filter),
    };
    let mut groups = Vec::new();
    for coordinator in broker.groups.coordinators() {
        let filter = filter.clone();
        match coordinator
            .immediate(move |c, _| c.list_groups(&filter))
            .await
        {
            Some(Ok(listed)) => groups.extend(listed),
            // It moved away while we asked; another broker lists its groups.
            None | Some(Err(GroupError::NotCoordinator)) => {}
            // Half a list would look like a whole one.
            Some(Err(error)) => {
                return ListGroupsResponse::default()
                    .with_error_code(ErrorCode::from(&error).code());
            }
        }
    }
    let groups = groups
        .into_iter()
        .map(|group| {
            let mut listed = ListedGroup::default()
                .with_group_id(WireGroupId(text(group.group_id.as_str())))
                .with_protocol_type(text(group.protocol_type));
            if version >= 4 {
                listed.group_state = text(group.state);
            }
            if version >= 5 {
                listed.group_type = text(group.group_type);
            }
            listed
        })
        .collect();
    ListGroupsResponse::default().with_groups(groups)
}

pub(super) async fn delete_groups(
    broker: &Broker,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut seen = HashSet::new();
    let distinct = request
        .groups_names
        .into_iter()
        .filter(|id| seen.insert(id.clone()));
    let deletions = distinct.map(|id| async move {
        let result = delete(broker, id.0.as_str()).await;
        DeletableGroupResult::default()
            .with_group_id(id)
            .with_error_code(code_of(&result))
    });
    let deletions: Vec<_> = deletions.collect();
    DeleteGroupsResponse::default().with_results(join_all(deletions).await)
}

async fn delete(broker: &Broker, id: &str) -> Result<(), GroupError> {
    let id = GroupId::new(id)?;
    let group = id.clone();
    match ask(broker, &group, move |c, now, token| {
        c.delete_groups(now, token, vec![id])
    })
    .await?
    {
        Reply::DeleteGroups(mut results) => results
            .pop()
            .map_or(Err(GroupError::UnknownServerError), |(_, r)| r),
        other => Err(mixed_up(&other)),
    }
}
