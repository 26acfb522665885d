//! Offsets that are committed in transactions.

use tidegate_types::ProducerEpoch;

use super::*;

fn producer(id: i64) -> ProducerId {
    ProducerId::from_wire(id).unwrap()
}

fn transaction(id: i64) -> Transaction {
    Transaction {
        producer: producer(id),
        epoch: ProducerEpoch::FIRST,
        ticket: None,
    }
}

/// Of a client that doesn't say who it is.
fn anonymous(id: i64, topic: &str, offset: i64) -> TransactionalCommitRequest {
    TransactionalCommitRequest {
        group_id: group("g"),
        member_id: None,
        instance_id: None,
        generation: None,
        transaction: transaction(id),
        offsets: vec![to_commit(topic, offset)],
    }
}

fn marker(id: i64, commit: bool) -> EndTransaction {
    EndTransaction {
        producer: producer(id),
        epoch: ProducerEpoch::FIRST,
        coordinator_epoch: 0,
        commit,
        epoch_rises: false,
    }
}

impl Host {
    fn transact(&mut self, request: TransactionalCommitRequest) -> ReplyToken {
        let token = self.token();
        let effects = self
            .coordinator
            .commit_transactional_offsets(self.now(), token, request);
        self.carry_out(effects);
        token
    }

    fn end(&mut self, end: EndTransaction) -> ReplyToken {
        let token = self.token();
        let effects = self.coordinator.end_transaction(self.now(), token, end);
        self.carry_out(effects);
        token
    }

    fn ended(&self, token: ReplyToken) -> Option<Result<(), GroupError>> {
        match self.replies.get(&token) {
            None => None,
            Some(Reply::EndTransaction(reply)) => Some(reply.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// What a fetch of stable offsets answers for `topic-0`: an offset, −1 for none, or "unstable".
    fn stable_offset(&mut self, topic: &str) -> Result<i64, GroupError> {
        let request = FetchRequest {
            group_id: group("g"),
            member_id: None,
            member_epoch: None,
            selection: OffsetSelection::Partitions(vec![(target(topic), None)]),
        };
        let token = self.token();
        let effects = self
            .coordinator
            .fetch_stable_offsets(self.now(), token, &request);
        self.carry_out(effects);
        match self.replies.get(&token) {
            Some(Reply::FetchOffsets(Ok(fetched))) => fetched[0]
                .committed
                .clone()
                .map(|found| found.map_or(-1, |c| c.offset.to_wire())),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_offset_of_a_transaction_counts_once_it_is_committed() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.commit(simple_commit(5));
        let token = host.transact(anonymous(1, "t", 7));
        assert_eq!(host.committed(token), Ok(vec![Ok(())]));
        if restarted {
            host.restart();
        }
        assert_eq!(host.offset("t"), 5);
        assert_eq!(
            host.stable_offset("t"),
            Err(GroupError::UnstableOffsetCommit)
        );
        assert_eq!(host.stable_offset("u"), Ok(-1));
        let end = host.end(marker(1, true));
        assert_eq!(host.ended(end), Some(Ok(())));
        if restarted {
            host.restart();
        }
        assert_eq!(host.offset("t"), 7);
        assert_eq!(host.stable_offset("t"), Ok(7));
    }
}

#[test]
fn an_offset_of_an_aborted_transaction_never_was() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.commit(simple_commit(5));
        host.transact(anonymous(1, "t", 7));
        host.transact(anonymous(1, "u", 1));
        host.end(marker(1, false));
        // What comes late changes nothing.
        host.end(marker(1, true));
        if restarted {
            host.restart();
        }
        assert_eq!(host.stable_offset("t"), Ok(5));
        assert_eq!(host.stable_offset("u"), Ok(-1));
    }
}

#[test]
fn nothing_of_a_marker_counts_before_it_is_durable_and_nothing_at_all_if_it_fails() {
    let mut host = Host::new();
    host.transact(anonymous(1, "t", 7));
    host.hold = true;
    let end = host.end(marker(1, true));
    assert_eq!(host.ended(end), None);
    assert_eq!(host.offset("t"), -1);
    host.settle(Err(AppendFailure::CoordinatorFenced));
    assert_eq!(
        host.ended(end),
        Some(Err(GroupError::TransactionCoordinatorFenced))
    );
    host.hold = false;
    assert_eq!(
        host.stable_offset("t"),
        Err(GroupError::UnstableOffsetCommit)
    );
    host.end(marker(1, true));
    assert_eq!(host.stable_offset("t"), Ok(7));
}

#[test]
fn a_commit_that_fails_leaves_nothing_to_wait_for() {
    for (failure, error) in [
        (
            AppendFailure::ProducerFenced,
            GroupError::InvalidProducerEpoch,
        ),
        (AppendFailure::NoTransaction, GroupError::InvalidTxnState),
        (AppendFailure::NotLeader, GroupError::NotCoordinator),
    ] {
        let mut host = Host::new();
        host.hold = true;
        let token = host.transact(anonymous(1, "t", 7));
        host.settle(Err(failure));
        assert_eq!(host.committed(token), Err(error));
        host.hold = false;
        assert_eq!(host.stable_offset("t"), Ok(-1));
        assert_eq!(host.coordinator.group_count(), 0);
    }
}

#[test]
fn offsets_sent_after_a_marker_belong_to_the_next_transaction() {
    let mut host = Host::new();
    host.transact(anonymous(1, "t", 7));
    host.hold = true;
    host.end(marker(1, true));
    host.transact(anonymous(1, "t", 9));
    host.settle(Ok(()));
    assert_eq!(host.offset("t"), 7);
    host.release();
    assert_eq!(host.offset("t"), 7);
    assert_eq!(
        host.stable_offset("t"),
        Err(GroupError::UnstableOffsetCommit)
    );
    host.end(marker(1, false));
    host.restart();
    assert_eq!(host.stable_offset("t"), Ok(7));
}

#[test]
fn the_newer_of_two_commits_wins_whenever_the_transaction_ends() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.transact(anonymous(1, "t", 7));
        host.transact(anonymous(2, "u", 2));
        host.commit(simple_commit(8));
        host.transact(anonymous(2, "t", 9));
        host.end(marker(1, true));
        if restarted {
            host.restart();
        }
        assert_eq!(host.offset("t"), 8, "the plain commit came after");
        assert_eq!(
            host.stable_offset("t"),
            Err(GroupError::UnstableOffsetCommit)
        );
        host.end(marker(2, true));
        assert_eq!(host.stable_offset("t"), Ok(9));
        assert_eq!(host.stable_offset("u"), Ok(2));
    }
}

#[test]
fn members_of_another_generation_are_fenced_and_clients_without_a_name_are_not() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    let by = |member: Option<&MemberId>, generation| TransactionalCommitRequest {
        member_id: member.cloned(),
        generation,
        ..anonymous(1, "t", 7)
    };
    let stranger = MemberId::from_wire("stranger");
    let token = host.transact(by(stranger.as_ref(), Some(first)));
    assert_eq!(host.committed(token), Err(GroupError::UnknownMemberId));
    let token = host.transact(by(Some(&a), Some(generation(0))));
    assert_eq!(host.committed(token), Err(GroupError::IllegalGeneration));
    let token = host.transact(by(Some(&a), None));
    assert_eq!(host.committed(token), Err(GroupError::IllegalGeneration));
    let token = host.transact(TransactionalCommitRequest {
        instance_id: Some(InstanceId::new("i").unwrap()),
        ..by(Some(&a), Some(first))
    });
    assert_eq!(host.committed(token), Err(GroupError::UnknownMemberId));
    // The group rebalances: a transaction's offsets are still taken, of whoever is a member.
    host.join_dynamic("b");
    for accepted in [by(Some(&a), Some(first)), by(None, None)] {
        let token = host.transact(accepted);
        assert_eq!(host.committed(token), Ok(vec![Ok(())]));
    }
    host.end(marker(1, true));
    assert_eq!(host.stable_offset("t"), Ok(7));
    let token = host.transact(TransactionalCommitRequest {
        group_id: group("none"),
        ..by(Some(&a), Some(first))
    });
    assert_eq!(host.committed(token), Err(GroupError::IllegalGeneration));
}

#[test]
fn a_commit_that_meets_a_rebalance_is_there_after_its_marker() {
    let mut host = Host::new();
    let (a, first) = host.stable();
    host.transact(TransactionalCommitRequest {
        member_id: Some(a.clone()),
        generation: Some(first),
        ..anonymous(1, "t", 7)
    });
    let (_, joining) = host.join_dynamic("b");
    host.end(marker(1, true));
    assert_eq!(host.stable_offset("t"), Ok(7));
    host.advance(70_000);
    assert!(host.replies.contains_key(&joining));
    assert_eq!(host.stable_offset("t"), Ok(7));
}

#[test]
fn a_group_with_an_open_transaction_neither_expires_nor_loses_the_offset() {
    let mut host = Host::new();
    host.commit(simple_commit(5));
    host.transact(anonymous(1, "t", 7));
    host.transact(TransactionalCommitRequest {
        group_id: group("only-pending"),
        ..anonymous(1, "t", 1)
    });
    host.advance(30 * 24 * 3600 * 1000);
    assert_eq!(host.offset("t"), 5);
    assert_eq!(host.coordinator.group_count(), 2);
    host.end(marker(1, false));
    host.advance(8 * 24 * 3600 * 1000);
    assert_eq!(host.coordinator.group_count(), 0);
    host.restart();
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn deleting_offsets_or_the_group_takes_along_what_is_pending() {
    for restarted in [false, true] {
        let mut host = Host::new();
        host.commit(simple_commit(5));
        host.transact(anonymous(1, "t", 7));
        host.transact(anonymous(1, "u", 8));
        let token = host.token();
        let request = DeleteOffsetsRequest {
            group_id: group("g"),
            targets: vec![target("u")],
        };
        let effects = host.coordinator.delete_offsets(host.now(), token, &request);
        host.carry_out(effects);
        assert_eq!(host.stable_offset("u"), Ok(-1));
        let token = host.token();
        let effects = host
            .coordinator
            .delete_groups(host.now(), token, vec![group("g")]);
        host.carry_out(effects);
        assert_eq!(host.coordinator.group_count(), 0);
        if restarted {
            host.restart();
        }
        host.end(marker(1, true));
        assert_eq!(host.stable_offset("t"), Ok(-1));
        assert_eq!(host.coordinator.group_count(), 0);
    }
}

#[test]
fn offsets_of_a_deleted_topic_dont_come_back_with_their_transaction() {
    let mut host = Host::new();
    host.transact(anonymous(1, "t", 7));
    host.transact(anonymous(1, "u", 8));
    let effects = host
        .coordinator
        .topics_deleted(host.now(), &[(TopicName::new("t").unwrap(), None)]);
    host.carry_out(effects);
    host.end(marker(1, true));
    assert_eq!(host.stable_offset("t"), Ok(-1));
    assert_eq!(host.stable_offset("u"), Ok(8));
}

#[test]
fn while_loading_and_after_unloading_both_are_sent_away() {
    let mut host = Host::new();
    let loading = GroupCoordinator::new(GroupConfig::default());
    let loaded = std::mem::replace(&mut host.coordinator, loading);
    let commit = host.transact(anonymous(1, "t", 7));
    let end = host.end(marker(1, true));
    let error = GroupError::CoordinatorLoadInProgress;
    assert_eq!(host.committed(commit), Err(error.clone()));
    assert_eq!(host.ended(end), Some(Err(error)));
    host.coordinator = loaded;
    host.hold = true;
    let commit = host.transact(anonymous(1, "t", 7));
    let end = host.end(marker(1, true));
    let effects = host.coordinator.unload(host.now());
    host.carry_out(effects);
    assert_eq!(host.committed(commit), Err(GroupError::NotCoordinator));
    assert_eq!(host.ended(end), Some(Err(GroupError::NotCoordinator)));
}
