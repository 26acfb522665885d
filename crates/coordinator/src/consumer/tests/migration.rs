//! Groups that change their protocol.

use super::classic_members::Classic;
use super::*;
use crate::tests::{leaving, protocol};

fn with_policy(policy: MigrationPolicy) -> Host {
    let mut host = Host::with_config(GroupConfig {
        consumer_migration_policy: policy,
        ..GroupConfig::default()
    });
    see(&mut host, &Cluster::new(&[("t", 2)]));
    host
}

/// A stable classic group with one member that reads all of `t`.
fn classic_group(host: &mut Host) -> Classic {
    let cluster = Cluster::new(&[("t", 2)]);
    let mut member = Classic::new(&["t"]);
    let request = member.request(host, &cluster);
    let token = host.join(request);
    member.id = host.refused(token).member_id;
    let request = member.request(host, &cluster);
    let token = host.join(request);
    host.advance(3_000);
    member.generation = host.joined(token).generation;
    let id = member.id.clone().unwrap();
    let assignment =
        crate::consumer::classic_protocol::encode_assignment(&of("t", &[0, 1]), 1, &cluster);
    let bytes: &'static [u8] = Box::leak(assignment.to_vec().into_boxed_slice());
    let token = host.token();
    let sync = SyncRequest {
        group_id: group("g"),
        member_id: Some(id.clone()),
        instance_id: None,
        generation: Some(member.generation),
        protocol_type: None,
        protocol_name: None,
        assignments: vec![(id, bytes::Bytes::from_static(bytes))],
    };
    let effects = host.coordinator.sync(host.now(), token, sync);
    host.carry_out(effects);
    member.owned = of("t", &[0, 1]);
    member
}

#[test]
fn a_classic_group_becomes_a_consumer_group_with_the_first_member_of_that_protocol() {
    let mut host = with_policy(MigrationPolicy::Bidirectional);
    let cluster = Cluster::new(&[("t", 2)]);
    let mut old = classic_group(&mut host);
    let generation = old.generation.to_wire();
    let mut new = Consumer::new("a", &["t"]);
    new.beat(&mut host).unwrap();
    assert!(new.assigned.is_empty(), "the classic member has them still");
    assert_eq!(new.epoch.to_wire(), generation + 1);
    assert_eq!(old.beat(&mut host), Err(GroupError::RebalanceInProgress));
    old.rejoin(&mut host, &cluster);
    assert_eq!(old.owned.len(), 1);
    assert_eq!(old.beat(&mut host), Err(GroupError::RebalanceInProgress));
    old.rejoin(&mut host, &cluster);
    new.settle(&mut host);
    assert_eq!(new.owned.len(), 1);
    assert!(!new.owned.shares_any_with(&old.owned));
    let before = described(&host);
    host.restart();
    see(&mut host, &cluster);
    assert_eq!(described(&host), before);
}

#[test]
fn a_consumer_group_becomes_a_classic_one_when_the_last_of_its_members_goes() {
    let mut host = with_policy(MigrationPolicy::Bidirectional);
    let cluster = Cluster::new(&[("t", 2)]);
    let mut old = classic_group(&mut host);
    let mut new = Consumer::new("a", &["t"]);
    new.beat(&mut host).unwrap();
    old.rejoin(&mut host, &cluster);
    new.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert!(
        host.coordinator
            .describe_consumer_group(&group("g"))
            .is_err()
    );
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
    let id = old.id.clone().unwrap();
    assert_eq!(old.beat(&mut host), Err(GroupError::IllegalGeneration));
    let request = old.request(&mut host, &cluster);
    let token = host.join(request);
    assert_eq!(host.joined(token).leader, Some(id));
    host.restart();
    see(&mut host, &cluster);
    assert!(
        host.coordinator
            .describe_consumer_group(&group("g"))
            .is_err()
    );
    assert_eq!(host.state(), Some(GroupState::Stable));
}

#[test]
fn the_policy_decides_what_may_change() {
    let mut host = with_policy(MigrationPolicy::Disabled);
    let mut old = classic_group(&mut host);
    let refused = Consumer::new("a", &["t"]).beat(&mut host);
    assert_eq!(refused, Err(GroupError::GroupIdNotFound));
    assert_eq!(old.beat(&mut host), Ok(()), "the classic group goes on");

    let mut host = with_policy(MigrationPolicy::Upgrade);
    let cluster = Cluster::new(&[("t", 2)]);
    let mut old = classic_group(&mut host);
    let mut new = Consumer::new("a", &["t"]);
    new.beat(&mut host).unwrap();
    old.rejoin(&mut host, &cluster);
    new.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(
        described(&host).members.len(),
        1,
        "it stays a consumer group"
    );
}

#[test]
fn a_group_of_another_protocol_type_stays_what_it_is() {
    let mut host = with_policy(MigrationPolicy::Bidirectional);
    let mut request = host.request("c");
    request.protocol_type = "connect".to_owned();
    request.protocols = vec![protocol("default", &[])];
    request.api_version = 3;
    host.join(request);
    let refused = Consumer::new("a", &["t"]).beat(&mut host);
    assert_eq!(refused, Err(GroupError::GroupIdNotFound));
    assert_eq!(host.state(), Some(GroupState::PreparingRebalance));
}

#[test]
fn an_empty_group_takes_whichever_protocol_comes() {
    let mut host = with_policy(MigrationPolicy::Disabled);
    let old = classic_group(&mut host);
    host.leave(vec![leaving(old.id.as_ref().unwrap())]);
    let mut new = Consumer::new("a", &["t"]);
    new.settle(&mut host);
    assert_eq!(new.owned.len(), 2);
    new.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    classic_group(&mut host);
    assert_eq!(host.state(), Some(GroupState::Stable));
    host.restart();
    assert_eq!(host.state(), Some(GroupState::Stable));
}

#[test]
fn an_upgrade_that_is_not_stored_leaves_the_classic_group() {
    let mut host = with_policy(MigrationPolicy::Bidirectional);
    let mut old = classic_group(&mut host);
    host.hold = true;
    let token = start(&mut host, Consumer::new("a", &["t"]).request());
    host.settle(Err(AppendFailure::Unavailable));
    host.release();
    assert_eq!(
        reply(&host, token),
        Some(Err(GroupError::CoordinatorNotAvailable))
    );
    assert_eq!(host.state(), Some(GroupState::Stable));
    assert_eq!(old.beat(&mut host), Ok(()));
}

#[test]
fn committed_offsets_outlive_the_change() {
    let mut host = with_policy(MigrationPolicy::Bidirectional);
    let old = classic_group(&mut host);
    let commit = crate::tests::member_commit(old.id.as_ref().unwrap(), old.generation, 9);
    host.commit(commit);
    Consumer::new("a", &["t"]).beat(&mut host).unwrap();
    assert_eq!(host.offset("t"), 9);
    host.restart();
    assert_eq!(host.offset("t"), 9);
}
