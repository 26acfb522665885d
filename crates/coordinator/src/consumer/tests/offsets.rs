//! Offsets of consumer groups.

use tidegate_types::{ProducerEpoch, ProducerId};

use super::*;
use crate::tests::{target, to_commit};

fn commit(
    host: &mut Host,
    id: Option<&MemberId>,
    epoch: i32,
    version: i16,
) -> Result<(), GroupError> {
    let request = CommitRequest {
        group_id: group("g"),
        api_version: version,
        member_id: id.cloned(),
        instance_id: None,
        generation: Generation::from_wire(epoch),
        retention_ms: -1,
        offsets: vec![to_commit("t", 5)],
    };
    let token = host.commit(request);
    host.committed(token).map(|_| ())
}

fn fetch(host: &Host, id: Option<&MemberId>, epoch: Option<i32>) -> Result<(), GroupError> {
    let request = FetchRequest {
        group_id: group("g"),
        member_id: id.cloned(),
        member_epoch: epoch.map(MemberEpoch::from_wire),
        selection: OffsetSelection::All,
    };
    host.coordinator.fetch_offsets(&request).map(|_| ())
}

#[test]
fn a_commit_must_carry_the_members_epoch() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let id = Some(&a.id);
    assert_eq!(commit(&mut host, id, 1, 9), Ok(()));
    assert_eq!(
        commit(&mut host, id, 0, 9),
        Err(GroupError::StaleMemberEpoch)
    );
    assert_eq!(
        commit(&mut host, id, 2, 9),
        Err(GroupError::StaleMemberEpoch)
    );
    assert_eq!(
        commit(&mut host, id, 1, 8),
        Err(GroupError::UnsupportedVersion)
    );
    assert_eq!(
        commit(&mut host, None, -1, 9),
        Err(GroupError::UnknownMemberId)
    );
    assert_eq!(
        commit(&mut host, Some(&member("x")), 1, 9),
        Err(GroupError::UnknownMemberId)
    );
    assert_eq!(host.offset("t"), 5);
}

#[test]
fn an_empty_group_takes_commits_of_tools() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(commit(&mut host, None, -1, 9), Ok(()));
    assert_eq!(host.offset("t"), 5);
}

#[test]
fn a_fetch_must_carry_the_members_epoch_or_nothing() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let id = Some(&a.id);
    assert_eq!(fetch(&host, None, None), Ok(()));
    assert_eq!(fetch(&host, id, Some(1)), Ok(()));
    assert_eq!(fetch(&host, id, Some(0)), Err(GroupError::StaleMemberEpoch));
    assert_eq!(
        fetch(&host, Some(&member("x")), Some(1)),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn offsets_of_topics_that_are_read_can_not_be_deleted() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    commit(&mut host, Some(&a.id), 1, 9).unwrap();
    let delete = |host: &mut Host| {
        let token = host.token();
        let request = DeleteOffsetsRequest {
            group_id: group("g"),
            targets: vec![target("t")],
        };
        let effects = host.coordinator.delete_offsets(host.now(), token, &request);
        host.carry_out(effects);
        match host.replies.get(&token) {
            Some(Reply::DeleteOffsets(Ok(results))) => results[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(&mut host), Err(GroupError::GroupSubscribedToTopic));
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(delete(&mut host), Ok(()));
    assert_eq!(host.offset("t"), -1);
}

#[test]
fn a_group_is_deleted_with_all_its_records_once_it_is_empty() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    commit(&mut host, Some(&a.id), 1, 9).unwrap();
    let delete = |host: &mut Host| {
        let token = host.token();
        let effects = host
            .coordinator
            .delete_groups(host.now(), token, vec![group("g")]);
        host.carry_out(effects);
        match host.replies.get(&token) {
            Some(Reply::DeleteGroups(results)) => results[0].1.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(delete(&mut host), Err(GroupError::NonEmptyGroup));
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(delete(&mut host), Ok(()));
    assert!(host.coordinator.export().is_empty());
    host.restart();
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn offsets_expire_from_their_commit_and_the_group_with_the_last() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    commit(&mut host, Some(&a.id), 1, 9).unwrap();
    let week = u64::from(host.coordinator.config.offsets_retention_minutes) * 60_000;
    for _ in 0..(week / 40_000 + 40) {
        host.advance(40_000);
        send(&mut host, a.short_request()).unwrap();
    }
    assert_eq!(host.offset("t"), 5, "it is read");
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    host.advance(700_000);
    assert_eq!(host.offset("t"), -1);
    assert_eq!(host.coordinator.group_count(), 0);
    assert!(host.coordinator.export().is_empty());
}

#[test]
fn a_consumer_group_is_listed_by_its_type_and_state() {
    let mut host = host(&[("t", 1)]);
    Consumer::new("a", &["t"]).settle(&mut host);
    let list = |types: &[&str], states: &[&str]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let filter = GroupFilter {
            states: owned(states),
            types: owned(types),
        };
        host.coordinator.list_groups(&filter).unwrap()
    };
    let all = list(&[], &[]);
    assert_eq!((all[0].group_type, all[0].state), ("consumer", "Stable"));
    assert_eq!(list(&["Consumer"], &["stable"]).len(), 1);
    assert_eq!(list(&["classic"], &[]).len(), 0);
    assert_eq!(list(&[], &["empty"]).len(), 0);
    // The older description knows classic groups only.
    assert_eq!(
        host.coordinator.describe_group(&group("g")),
        Err(GroupError::GroupIdNotFound)
    );
}

fn transactional(member: Option<&MemberId>, epoch: i32) -> TransactionalCommitRequest {
    TransactionalCommitRequest {
        group_id: group("g"),
        member_id: member.cloned(),
        instance_id: None,
        generation: Generation::from_wire(epoch),
        transaction: Transaction {
            producer: ProducerId::from_wire(1).unwrap(),
            epoch: ProducerEpoch::FIRST,
            ticket: None,
        },
        offsets: vec![to_commit("t", 7)],
    }
}

fn transact(host: &mut Host, request: TransactionalCommitRequest) -> Result<(), GroupError> {
    let token = host.token();
    let effects = host
        .coordinator
        .commit_transactional_offsets(host.now(), token, request);
    host.carry_out(effects);
    host.committed(token).map(|_| ())
}

fn end_transaction(host: &mut Host, commit: bool) {
    let token = host.token();
    let end = EndTransaction {
        producer: ProducerId::from_wire(1).unwrap(),
        epoch: ProducerEpoch::FIRST,
        coordinator_epoch: 0,
        commit,
        epoch_rises: false,
    };
    let effects = host.coordinator.end_transaction(host.now(), token, end);
    host.carry_out(effects);
}

#[test]
fn a_transactional_commit_must_carry_the_members_epoch_or_nothing() {
    let mut host = host(&[("t", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let id = Some(&a.id);
    assert_eq!(
        transact(&mut host, transactional(id, 0)),
        Err(GroupError::IllegalGeneration)
    );
    assert_eq!(
        transact(&mut host, transactional(id, -1)),
        Err(GroupError::IllegalGeneration)
    );
    assert_eq!(
        transact(&mut host, transactional(Some(&member("x")), 1)),
        Err(GroupError::UnknownMemberId)
    );
    assert_eq!(transact(&mut host, transactional(None, -1)), Ok(()));
    assert_eq!(transact(&mut host, transactional(id, 1)), Ok(()));
    assert_eq!(host.offset("t"), -1);
    end_transaction(&mut host, true);
    assert_eq!(host.offset("t"), 7);
}

#[test]
fn an_open_transaction_keeps_a_consumer_group_and_its_end_makes_no_classic_one() {
    for restarted in [false, true] {
        let mut host = host(&[("t", 1)]);
        let mut a = Consumer::new("a", &["t"]);
        a.settle(&mut host);
        transact(&mut host, transactional(Some(&a.id), 1)).unwrap();
        a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
        host.advance(30 * 24 * 3600 * 1000);
        if restarted {
            host.restart();
        }
        assert_eq!(host.coordinator.group_count(), 1);
        end_transaction(&mut host, true);
        assert_eq!(host.offset("t"), 7);
        let listed = host.coordinator.list_groups(&GroupFilter::default());
        let types: Vec<_> = listed.unwrap().iter().map(|g| g.group_type).collect();
        assert_eq!(types, ["consumer"]);
        host.advance(8 * 24 * 3600 * 1000);
        assert_eq!(host.coordinator.group_count(), 0);
    }
}
