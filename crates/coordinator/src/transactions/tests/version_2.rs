//! transaction.version 2: each end raises the epoch (KIP-890).

use super::*;

#[test]
fn each_end_raises_the_epoch_and_its_repetition_answers_the_same() {
    let mut host = Host::new();
    let first = host.init("a");
    host.add("a", first, &[0]).unwrap();
    let second = host.end("a", first, true, V2).unwrap();
    assert_eq!(second, with_epoch(first, 1));
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.end("a", first, true, V2), concurrent);
    assert_eq!(
        host.end("a", first, false, V2),
        Err(TransactionError::InvalidTxnState)
    );
    assert_eq!(host.add("a", second, &[0]).map(|()| first), concurrent);
    for commit in [true, false] {
        assert_eq!(host.end("a", second, commit, V2), concurrent, "{commit}");
    }
    let written = host.write_markers();
    assert_eq!((written[0].producer, written[0].version), (second, V2));
    assert_eq!(host.end("a", first, true, V2), Ok(second));
    assert_eq!(
        host.end("a", first, false, V2),
        Err(TransactionError::InvalidTxnState)
    );
}

#[test]
fn an_end_that_comes_late_does_not_touch_the_next_transaction() {
    let mut host = Host::new();
    let first = host.init("a");
    host.add("a", first, &[0]).unwrap();
    let second = host.end("a", first, true, V2).unwrap();
    host.write_markers();
    host.add("a", second, &[1]).unwrap();
    let fenced = Err(TransactionError::ProducerFenced);
    for commit in [true, false] {
        assert_eq!(host.end("a", first, commit, V2), fenced);
    }
    assert_eq!(host.add("a", first, &[2]), fenced.map(|_| ()));
    let described = host.coordinator.describe(&id("a")).unwrap();
    assert_eq!(described.state, TransactionState::Ongoing);
    assert_eq!(described.partitions, [partition(1)]);
}

#[test]
fn a_producer_may_abort_though_nothing_of_it_arrived() {
    let mut host = Host::new();
    let first = host.init("a");
    assert_eq!(
        host.end("a", first, true, V2),
        Err(TransactionError::InvalidTxnState)
    );
    let second = host.end("a", first, false, V2).unwrap();
    assert_eq!(second, with_epoch(first, 1));
    assert_eq!(host.state("a"), TransactionState::CompleteAbort);
    assert!(host.markers.is_empty());
    let third = host.end("a", second, false, V2).unwrap();
    assert_eq!(third, with_epoch(first, 2));
    assert_eq!(host.end("a", second, false, V2), Ok(third));
}

#[test]
fn the_last_epoch_leads_to_a_new_producer_id() {
    let mut host = Host::new();
    let first = host.init("a");
    let mut held = first;
    while held.epoch < epoch(i16::MAX - 1) {
        held = host.try_init("a", Some(held)).unwrap();
        host.log.clear();
    }
    host.add("a", held, &[0]).unwrap();
    let next = host.end("a", held, true, V2).unwrap();
    assert_ne!(next.id, first.id);
    assert_eq!(next.epoch, epoch(0));
    host.move_away();
    let written = host.write_markers();
    assert_eq!(written[0].producer, with_epoch(first, i16::MAX));
    assert_eq!(host.end("a", held, true, V2), Ok(next));
    host.move_away();
    assert_eq!(host.end("a", held, true, V2), Ok(next));
    assert_eq!(host.add("a", next, &[0]), Ok(()));
    assert_eq!(
        host.end("a", held, true, V2),
        Err(TransactionError::InvalidProducerIdMapping)
    );
}

#[test]
fn a_producer_whose_time_was_up_aborts_and_goes_on() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.add("a", producer, &[0]).unwrap();
    host.advance(60_000);
    host.write_markers();
    assert_eq!(
        host.end("a", producer, true, V2),
        Err(TransactionError::InvalidTxnState)
    );
    let next = with_epoch(producer, 1);
    assert_eq!(host.end("a", producer, false, V2), Ok(next));
    assert_eq!(host.add("a", next, &[0]), Ok(()));
}

#[test]
fn additions_from_many_leaders_at_once_are_all_stored() {
    let mut host = Host::new();
    let producer = host.init("a");
    host.hold = true;
    let tokens = [0, 1, 2, 1].map(|index| host.begin_add("a", producer, &[index]));
    assert_eq!(host.held.len(), 1);
    host.settle(Ok(()));
    assert_eq!(host.held.len(), 1, "those that waited are one append");
    let end = host.begin_end("a", producer, true, V2);
    let concurrent = Err(TransactionError::ConcurrentTransactions);
    assert_eq!(host.end_reply(end), concurrent);
    host.release();
    for token in tokens {
        assert_eq!(host.add_reply(token), Ok(()));
    }
    let described = host.coordinator.describe(&id("a")).unwrap();
    assert_eq!(described.partitions, [0, 1, 2].map(partition));
}
