use super::*;

#[test]
fn metadata_of_members_is_shown_only_in_a_stable_group() {
    let mut host = Host::new();
    let (_, first) = host.stable();
    let stable = host.coordinator.describe_group(&group("g")).unwrap();
    assert_eq!(stable.generation, first);
    assert_eq!(stable.protocol_name, "range");
    assert_eq!(
        stable.members[0].metadata,
        protocol("range", &["t"]).metadata
    );
    assert_eq!(stable.members[0].assignment, Bytes::from_static(b"a"));
    assert_eq!(stable.members[0].client_id, "c");
    host.join_dynamic("b");
    let rebalancing = host.coordinator.describe_group(&group("g")).unwrap();
    assert_eq!(rebalancing.protocol_name, "");
    assert!(
        rebalancing
            .members
            .iter()
            .all(|member| member.metadata.is_empty())
    );
}

#[test]
fn an_unknown_group_is_not_found() {
    let host = Host::new();
    assert_eq!(
        host.coordinator.describe_group(&group("g")),
        Err(GroupError::GroupIdNotFound)
    );
}

#[test]
fn groups_are_listed_by_state_and_type_whatever_the_case() {
    let mut host = Host::new();
    host.stable();
    host.commit(CommitRequest {
        group_id: group("simple"),
        ..simple_commit(1)
    });
    let list = |states: &[&str], types: &[&str]| {
        let filter = GroupFilter {
            states: states.iter().map(|&state| state.to_owned()).collect(),
            types: types.iter().map(|&kind| kind.to_owned()).collect(),
        };
        let listed = host.coordinator.list_groups(&filter).unwrap();
        listed
            .into_iter()
            .map(|group| group.group_id.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&[], &[]), ["g", "simple"]);
    assert_eq!(list(&["stable"], &[]), ["g"]);
    assert_eq!(list(&[" EMPTY ", "Stable"], &["Classic"]), ["g", "simple"]);
    assert_eq!(list(&["Dead"], &[]), [""; 0]);
    assert_eq!(list(&[], &["consumer"]), [""; 0]);
}

#[test]
fn only_groups_without_members_can_be_deleted() {
    let mut host = Host::new();
    host.stable();
    host.commit(CommitRequest {
        group_id: group("simple"),
        ..simple_commit(1)
    });
    let token = host.token();
    let groups = vec![group("g"), group("simple"), group("unknown")];
    let effects = host.coordinator.delete_groups(host.now(), token, groups);
    host.carry_out(effects);
    assert_eq!(
        host.replies[&token],
        Reply::DeleteGroups(vec![
            (group("g"), Err(GroupError::NonEmptyGroup)),
            (group("simple"), Ok(())),
            (group("unknown"), Err(GroupError::GroupIdNotFound)),
        ])
    );
    assert_eq!(host.coordinator.group_count(), 1);
}
