//! The rules of KIP-98, KIP-360 and KIP-588.

use super::*;
use crate::Expression;

#[test]
fn a_transaction_runs_from_init_to_the_last_marker() {
    let mut host = Host::new();
    let producer = host.init("a");
    assert_eq!(producer.epoch, epoch(0));
    assert_eq!(host.state("a"), TransactionState::Empty);
    assert_eq!(host.add("a", producer, &[0, 1]), Ok(()));
    assert_eq!(host.state("a"), TransactionState::Ongoing);
    assert_eq!(host.end("a", producer, true, V0), Ok(producer));
    assert_eq!(host.state("a"), TransactionState::PrepareCommit);
    let markers = host.markers.pop().unwrap();
    assert_eq!(
        (markers.producer, markers.commit, markers.version),
        (producer, true, V0)
    );
    assert_eq!(markers.partitions, [partition(0), partition(1)]);
    host.marked(&markers, &[partition(1)]);
    assert_eq!(host.state("a"), TransactionState::PrepareCommit);
    host.marked(&markers, &[partition(0)]);
    assert_eq!(host.state("a"), TransactionState::CompleteCommit);
    assert_eq!(host.add("a", producer, &[5]), Ok(()));
    let described = host.coordinator.describe(&id("a")).unwrap();
    assert_eq!(described.partitions, [partition(5)]);
}

#[test]
fn an_id_and_a_timeout_out_of_range_are_refused() {
    let mut host = Host::new();
    for timeout in [0, -1, 900_001] {
        let token = host.begin_init("a", None, timeout);
        let refused = Err(TransactionError::InvalidTransactionTimeout);
        assert_eq!(host.init_reply(token), refused);
    }
    assert!(TransactionalId::new("").is_err());
    assert!(TransactionalId::new(&"x".repeat(32_768)).is_err());
}

#[test]
fn a_second_init_fences_the_first() {
    let mut host = Host::new();
    let first = host.init("a");
    let second = host.init("a");
    assert_eq!(second, with_epoch(first, 1));
    let fenced = Err(TransactionError::ProducerFenced);
    assert_eq!(host.add("a", first, &[0]), fenced);
    assert_eq!(host.end("a", first, true, V0).map(|_| ()), fenced);
    assert_eq!(host.add("a", second, &[0]), Ok(()));
}

#[test]
fn what_is_unknown_or_of_another_producer_is_refused() {
    let mut host = Host::new();
    let producer = host.init("a");
    let refused = Err(TransactionError::InvalidProducerIdMapping);
    assert_eq!(host.add("b", producer, &[0]), refused);
    let other = ProducerIdentity {
        id: ProducerId::from_wire(1).unwrap(),
        ..producer
    };
    assert_eq!(host.add("a", other, &[0]), refused);
    assert_eq!(host.end("a", other, true, V2).map(|_| ()), refused);
    assert_eq!(
        host.coordinator.describe(&id("b")),
        Err(TransactionError::TransactionalIdNotFound)
    );
}

#[test]
fn an_init_aborts_the_open_transaction_of_its_predecessor_first() {
    let mut host = Host::new();
    let first = host.init("a");
    host.add("a", first, &[0]).unwrap();
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.try_init("a", None), concurrent);
    assert_eq!(host.state("a"), TransactionState::PrepareAbort);
    assert_eq!(host.try_init("a", None), concurrent);
    let written = host.write_markers();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].producer, with_epoch(first, 1));
    assert!(!written[0].commit);
    assert_eq!(host.init("a"), with_epoch(first, 2));
}

#[test]
fn an_init_with_the_epoch_held_gets_the_next_and_again_after_a_lost_answer() {
    let mut host = Host::new();
    let first = host.init("a");
    let second = host.try_init("a", Some(first)).unwrap();
    assert_eq!(second, with_epoch(first, 1));
    assert_eq!(host.try_init("a", Some(first)), Ok(second));
    host.move_away();
    assert_eq!(host.try_init("a", Some(first)), Ok(second));
    let third = host.init("a");
    assert_eq!(third, with_epoch(first, 2));
    for fenced in [first, second] {
        let refused = Err(TransactionError::ProducerFenced);
        assert_eq!(host.try_init("a", Some(fenced)), refused);
    }
}

#[test]
fn a_fenced_producer_cannot_abort_its_successors_transaction_by_init() {
    let mut host = Host::new();
    let first = host.init("a");
    let second = host.init("a");
    host.add("a", second, &[0]).unwrap();
    let refused = Err(TransactionError::ProducerFenced);
    assert_eq!(host.try_init("a", Some(first)), refused);
    assert_eq!(host.state("a"), TransactionState::Ongoing);
}

#[test]
fn used_up_epochs_lead_to_a_new_producer_id() {
    let mut host = Host::new();
    let first = host.init("a");
    let mut held = first;
    while held.epoch < epoch(i16::MAX - 1) {
        held = host.try_init("a", Some(held)).unwrap();
        host.log.clear();
    }
    let next = host.try_init("a", Some(held)).unwrap();
    assert_ne!(next.id, first.id);
    assert_eq!(next.epoch, epoch(0));
    // The answer was lost.
    assert_eq!(host.try_init("a", Some(held)), Ok(next));
    assert_eq!(
        host.try_init("a", Some(with_epoch(held, 5))),
        Err(TransactionError::ProducerFenced)
    );
}

#[test]
fn partitions_that_are_in_it_are_answered_without_an_append() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0, 1]).unwrap();
    let before = host.log.len();
    assert_eq!(host.add("a", producer, &[1]), Ok(()));
    assert_eq!(host.log.len(), before);
    assert_eq!(host.add("a", producer, &[1, 2]), Ok(()));
    assert_eq!(host.log.len(), before + 1);
}

#[test]
fn verification_adds_nothing() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    let request = |producer| AddPartitionsRequest {
        transactional_id: id("a"),
        producer,
        partitions: vec![partition(1), partition(0)],
    };
    let abortable = Err(TransactionError::TransactionAbortable);
    let verify = |host: &Host, producer| host.coordinator.verify_partitions(&request(producer));
    assert_eq!(verify(&host, producer), Ok(vec![abortable, Ok(())]));
    assert_eq!(
        verify(&host, with_epoch(producer, 1)),
        Err(TransactionError::ProducerFenced)
    );
    host.end("a", producer, false, V0).unwrap();
    assert_eq!(
        verify(&host, producer),
        Err(TransactionError::ConcurrentTransactions)
    );
    host.write_markers();
    assert_eq!(verify(&host, producer), Ok(vec![abortable, abortable]));
}

#[test]
fn an_end_is_repeated_and_another_outcome_refused() {
    let mut host = Host::new();
    let producer = host.init("a");
    let invalid = Err(TransactionError::InvalidTxnState);
    assert_eq!(host.end("a", producer, true, V0), invalid);
    assert_eq!(host.end("a", producer, false, V0), invalid);
    host.add("a", producer, &[0]).unwrap();
    host.end("a", producer, false, V0).unwrap();
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.end("a", producer, false, V0), concurrent);
    assert_eq!(host.end("a", producer, true, V0), invalid);
    assert_eq!(host.add("a", producer, &[0]).map(|()| producer), concurrent);
    host.write_markers();
    assert_eq!(host.end("a", producer, false, V0), Ok(producer));
    assert_eq!(host.end("a", producer, true, V0), invalid);
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.advance(500_000);
    assert_eq!(host.state("a"), TransactionState::Empty, "nothing is open");
    host.add("a", producer, &[0]).unwrap();
    host.advance(59_999);
    host.add("a", producer, &[1]).unwrap();
    assert_eq!(host.state("a"), TransactionState::Ongoing);
    host.advance(1);
    assert_eq!(host.state("a"), TransactionState::PrepareAbort);
    let written = host.write_markers();
    assert_eq!(written[0].producer, with_epoch(producer, 1));
    assert_eq!(host.state("a"), TransactionState::CompleteAbort);
    assert_eq!(
        host.end("a", producer, true, V0),
        Err(TransactionError::ProducerFenced)
    );
    // It may go on with a new epoch (KIP-588), since nobody else has taken the id.
    assert_eq!(
        host.try_init("a", Some(producer)),
        Ok(with_epoch(producer, 1))
    );
}

#[test]
fn an_id_that_is_not_used_is_forgotten_and_an_open_one_is_not() {
    let mut host = Host::new();
    host.init("unused");
    host.init("used");
    let open = host.init("open");
    host.advance(6 * 24 * 3_600_000);
    host.init("used");
    let token = host.begin_init("open", Some(open), 900_000);
    let open = host.init_reply(token).unwrap();
    host.advance(23 * 3_600_000 + 3_500_000);
    host.add("open", open, &[0]).unwrap();
    host.advance(600_000);
    assert_eq!(
        host.coordinator.describe(&id("unused")),
        Err(TransactionError::TransactionalIdNotFound)
    );
    assert_eq!(host.state("used"), TransactionState::Empty);
    assert_eq!(host.state("open"), TransactionState::Ongoing);
    assert_eq!(
        host.notices.last(),
        Some(&TransactionNotice::Expired { ids: 1 })
    );
    host.move_away();
    assert_eq!(host.coordinator.id_count(), 2);
}

#[test]
fn lists_are_filtered_by_state_producer_age_and_name() {
    let mut host = Host::new();
    let idle = host.init("idle");
    let open = host.init("open");
    host.add("open", open, &[0]).unwrap();
    host.advance(1_000);
    let names = |filter: TransactionFilter| -> Vec<String> {
        let listed = host.coordinator.list(host.now(), &filter).unwrap();
        let names = listed.iter().map(|l| l.transactional_id.to_string());
        names.collect()
    };
    let all = TransactionFilter {
        longer_than_ms: -1,
        ..TransactionFilter::default()
    };
    assert_eq!(names(all.clone()), ["idle", "open"]);
    let states = vec![TransactionState::Ongoing];
    assert_eq!(
        names(TransactionFilter {
            states,
            ..all.clone()
        }),
        ["open"]
    );
    let producers = vec![idle.id];
    assert_eq!(
        names(TransactionFilter {
            producers,
            ..all.clone()
        }),
        ["idle"]
    );
    let aged = |longer_than_ms| TransactionFilter {
        longer_than_ms,
        states: vec![TransactionState::Ongoing],
        ..all.clone()
    };
    assert_eq!(names(aged(999)), ["open"]);
    assert_eq!(names(aged(1_000)), Vec::<String>::new());
    let named = |pattern: &str| TransactionFilter {
        name: Some(Expression::parse(pattern).unwrap()),
        ..all.clone()
    };
    assert_eq!(names(named("o.*")), ["open"]);
    assert_eq!(names(named("pen")), Vec::<String>::new());
}

#[test]
fn ids_and_waiting_additions_have_limits() {
    let mut host = Host::with_config(TransactionConfig {
        max_transactional_ids: 1,
        max_waiting_additions: 1,
        ..TransactionConfig::default()
    });
    let producer = host.init("a");
    let refused = Err(TransactionError::TooManyTransactionalIds);
    assert_eq!(host.try_init("b", None), refused);
    host.hold = true;
    let tokens = [0, 1, 2].map(|index| host.begin_add("a", producer, &[index]));
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.add_reply(tokens[2]), concurrent);
    host.release();
    assert_eq!(host.add_reply(tokens[0]), Ok(()));
    assert_eq!(host.add_reply(tokens[1]), Ok(()));
}

#[test]
fn a_transaction_open_at_the_last_epoch_is_aborted_once_and_the_id_goes_on() {
    let mut host = Host::new();
    let first = host.init("a");
    let mut held = first;
    while held.epoch < epoch(i16::MAX - 1) {
        held = host.init("a");
        host.log.clear();
    }
    host.add("a", held, &[0]).unwrap();
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.try_init("a", None), concurrent);
    let written = host.write_markers();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].producer, with_epoch(first, i16::MAX));
    let next = host.init("a");
    assert_ne!(next.id, first.id);
    assert_eq!(next.epoch, epoch(0));
    assert_eq!(
        host.end("a", held, false, V0),
        Err(TransactionError::InvalidProducerIdMapping)
    );
}
