//! Appends that fail, hang or have no reply; markers that come twice or late; moves in the middle.

use super::*;

#[test]
fn an_append_that_fails_leaves_no_trace() {
    let mut host = Host::new();
    host.hold = true;
    let token = host.begin_init("a", None, 60_000);
    host.settle(Err(AppendFailure::Unavailable));
    let refused = Err(TransactionError::CoordinatorNotAvailable);
    assert_eq!(host.init_reply(token), refused);
    assert_eq!(host.coordinator.id_count(), 0);
    host.release();
    let producer = host.init("a");
    assert_eq!(producer.epoch, epoch(0));
    host.hold = true;
    let token = host.begin_add("a", producer, &[0]);
    host.settle(Err(AppendFailure::NotLeader));
    assert_eq!(host.add_reply(token), Err(TransactionError::NotCoordinator));
    assert_eq!(host.state("a"), TransactionState::Empty);
    let token = host.begin_init("a", None, 60_000);
    host.settle(Err(AppendFailure::TooLarge));
    assert_eq!(
        host.init_reply(token),
        Err(TransactionError::UnknownServerError)
    );
    host.release();
    assert_eq!(host.init("a"), with_epoch(producer, 1));
}

#[test]
fn nothing_is_seen_or_ordered_before_it_is_durable() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.hold = true;
    let end = host.begin_end("a", producer, true, V2);
    assert!(!host.replies.contains_key(&end));
    assert!(host.markers.is_empty());
    assert_eq!(host.state("a"), TransactionState::Ongoing);
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.try_init("a", None), concurrent);
    assert_eq!(host.add("a", producer, &[0]).map(|()| producer), concurrent);
    assert_eq!(host.end("a", producer, true, V2), concurrent);
    host.settle(Ok(()));
    assert_eq!(host.end_reply(end), Ok(with_epoch(producer, 1)));
    assert_eq!(host.markers.len(), 1);
}

#[test]
fn an_append_that_hangs_is_answered_in_time_and_stays_open() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.hold = true;
    let token = host.begin_add("a", producer, &[0]);
    host.advance(5_000);
    let refused = Err(TransactionError::CoordinatorNotAvailable);
    assert_eq!(host.add_reply(token), refused);
    host.settle(Ok(()));
    assert_eq!(host.state("a"), TransactionState::Ongoing);
}

#[test]
fn those_who_wait_are_sent_away_when_the_partition_moves() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.hold = true;
    let tokens = [0, 1].map(|index| host.begin_add("a", producer, &[index]));
    host.move_away();
    for token in tokens {
        assert_eq!(host.add_reply(token), Err(TransactionError::NotCoordinator));
    }
    host.hold = false;
    assert_eq!(host.state("a"), TransactionState::Empty);
    let mut loading = TransactionCoordinator::new(TransactionConfig::default());
    assert_eq!(
        loading.describe(&id("a")),
        Err(TransactionError::CoordinatorLoadInProgress)
    );
    loading.unload();
    assert_eq!(
        loading.describe(&id("a")),
        Err(TransactionError::NotCoordinator)
    );
}

#[test]
fn the_next_coordinator_sends_all_markers_of_a_decision_again() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0, 1]).unwrap();
    host.end("a", producer, true, V2).unwrap();
    let before = host.markers[0].clone();
    host.marked(&before, &[partition(0)]);
    host.move_away();
    assert_eq!(host.state("a"), TransactionState::PrepareCommit);
    assert_eq!(host.markers.len(), 1);
    assert_eq!(host.markers[0].partitions, before.partitions);
    assert_eq!(host.markers[0].producer, before.producer);
    assert!(host.markers[0].commit);
    host.write_markers();
    assert_eq!(host.state("a"), TransactionState::CompleteCommit);
}

#[test]
fn a_decision_whose_reply_was_lost_stands_after_the_move() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.hold = true;
    let end = host.begin_end("a", producer, true, V2);
    // It is in the log, but the coordinator never hears of it.
    let (_, records) = host.held.pop_front().unwrap();
    host.log.extend(records);
    host.move_away();
    host.hold = false;
    assert_eq!(host.end_reply(end), Err(TransactionError::NotCoordinator));
    assert_eq!(
        host.end("a", producer, false, V2),
        Err(TransactionError::InvalidTxnState)
    );
    host.write_markers();
    let next = with_epoch(producer, 1);
    assert_eq!(host.end("a", producer, true, V2), Ok(next));
}

#[test]
fn the_time_of_an_open_transaction_runs_on_over_a_move() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.advance(40_000);
    host.move_away();
    host.advance(19_999);
    assert_eq!(host.state("a"), TransactionState::Ongoing);
    host.advance(1);
    assert_eq!(host.state("a"), TransactionState::PrepareAbort);
}

#[test]
fn an_abort_by_time_is_tried_until_it_is_stored() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.hold = true;
    host.advance(60_000);
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(host.state("a"), TransactionState::Ongoing);
    host.advance(1_000);
    host.settle(Ok(()));
    assert_eq!(host.state("a"), TransactionState::PrepareAbort);
    host.advance(10_000);
    assert!(host.held.is_empty(), "it was decided once");
    assert_eq!(host.markers[0].producer, with_epoch(producer, 1));
}

#[test]
fn a_completion_is_tried_until_it_is_stored() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.end("a", producer, true, V0).unwrap();
    host.hold = true;
    host.write_markers();
    host.settle(Err(AppendFailure::Unavailable));
    assert_eq!(host.state("a"), TransactionState::PrepareCommit);
    host.advance(100);
    host.settle(Ok(()));
    assert_eq!(host.state("a"), TransactionState::CompleteCommit);
}

#[test]
fn a_report_of_an_earlier_order_is_none_of_the_next_transaction() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.end("a", producer, true, V0).unwrap();
    let first = host.write_markers().pop().unwrap();
    // Before version 2 the next transaction has the same producer and epoch.
    host.add("a", producer, &[0]).unwrap();
    host.end("a", producer, true, V0).unwrap();
    host.marked(&first, &[partition(0)]);
    assert_eq!(host.state("a"), TransactionState::PrepareCommit);
    let second = host.markers[0].clone();
    host.marked(&second, &[partition(0)]);
    host.marked(&second, &[partition(0)]);
    assert_eq!(host.state("a"), TransactionState::CompleteCommit);
    host.marked(&second, &[partition(0)]);
    assert_eq!(host.state("a"), TransactionState::CompleteCommit);
}

#[test]
fn too_many_open_appends_are_refused() {
    let mut host = Host::with_config(TransactionConfig {
        max_pending_appends: 1,
        ..TransactionConfig::default()
    });
    host.hold = true;
    host.begin_init("a", None, 60_000);
    let refused = Err(TransactionError::CoordinatorNotAvailable);
    assert_eq!(host.try_init("b", None), refused);
    host.release();
    host.init("b");
}

#[test]
fn an_export_rebuilds_the_same() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0, 1]).unwrap();
    host.init("b");
    let exported = host.coordinator.export();
    let mut other = TransactionCoordinator::new(TransactionConfig::default());
    for record in &exported {
        other.replay(&record.key, record.value.as_deref()).unwrap();
    }
    other.replay(&[0, 9], None).unwrap();
    assert_eq!(other.skipped_records(), 1);
    other.loaded(host.now());
    assert_eq!(other.export(), exported);
    assert_eq!(
        other.describe(&id("a")),
        host.coordinator.describe(&id("a"))
    );
}
