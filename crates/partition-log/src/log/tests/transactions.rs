//! Transactions: when they are decided, what comes late, and what goes along when a log is opened anew or moves.

use std::sync::Arc;
use std::time::Duration;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::{Fault, Latch};
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::{PartitionId, ProducerEpoch, ProducerId, VerificationTicket};
use tokio::sync::Notify;

use super::pair::Pair;
use super::rig::*;
use crate::log::{AppendError, Appended, Durability, Isolation, PartitionLog, TransactionCheck};
use crate::producers::{AbortedTransaction, Marker, MarkerRefused, SequenceError};

/// A marker whose epoch is that of the transaction which it ends.
pub(super) fn marker(producer: i64, epoch: i16, commit: bool) -> Marker {
    Marker {
        producer: ProducerId::from_wire(producer).unwrap(),
        epoch: ProducerEpoch::from_wire(epoch).unwrap(),
        coordinator_epoch: 0,
        commit,
        epoch_rises: false,
    }
}

/// A marker of a producer that gets a new epoch for each transaction: `epoch` is the new one.
fn rising(producer: i64, epoch: i16, commit: bool) -> Marker {
    Marker {
        epoch_rises: true,
        ..marker(producer, epoch, commit)
    }
}

pub(super) async fn end(log: &Arc<PartitionLog>, marker: Marker) {
    match log.append_marker(marker).unwrap() {
        Durability::Durable => {}
        Durability::Pending(done) => done.await.expect("it becomes durable"),
    }
}

fn check(
    log: &Arc<PartitionLog>,
    spec: &Spec,
    rises: bool,
) -> Result<TransactionCheck, AppendError> {
    let batch = spec.clone().transactional().build();
    let header = batch.header();
    log.check_transaction(
        header.producer().unwrap(),
        header.last_offset_delta(),
        rises,
    )
}

fn ticket(log: &Arc<PartitionLog>, spec: &Spec, rises: bool) -> VerificationTicket {
    match check(log, spec, rises).unwrap() {
        TransactionCheck::Ask(ticket) => ticket,
        TransactionCheck::Open => panic!("it is open already"),
    }
}

/// Sends a batch of a transaction, with the coordinator's consent.
pub(super) fn send(log: &Arc<PartitionLog>, spec: &Spec) -> Result<Appended, AppendError> {
    let ticket = match check(log, spec, false)? {
        TransactionCheck::Ask(ticket) => Some(ticket),
        TransactionCheck::Open => None,
    };
    log.append_verified(spec.clone().transactional().build(), ticket)
}

pub(super) async fn transact(log: &Arc<PartitionLog>, spec: &Spec) -> (u64, u64) {
    durable(send(log, spec).unwrap()).await
}

async fn committed(rig: &Rig, id: PartitionId) -> Vec<(u64, u64)> {
    let start = rig.log(id).watermarks().unwrap().log_start.get();
    rig.read_tags(id, start, 10_000, Isolation::ReadCommitted)
        .await
}

/// The aborted transactions that a read-committed fetch names.
pub(super) async fn aborted(rig: &Rig, id: PartitionId, from: u64) -> Vec<AbortedTransaction> {
    let committed = Isolation::ReadCommitted;
    let read = rig
        .read(&rig.log(id), offset(from), 1 << 20, committed)
        .await;
    read.aborted
}

fn last_stable(log: &Arc<PartitionLog>) -> u64 {
    log.watermarks().unwrap().last_stable.get()
}

fn refused(result: Result<Appended, AppendError>) -> SequenceError {
    match result {
        Err(AppendError::Sequence(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_is_decided_only_once_its_marker_is_durable() {
    for commit in [false, true] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(Object).await;
            let log = rig.log(id);
            transact(&log, &Spec::tagged(0, 2, 8).by(7, 0, 0)).await;
            assert_eq!(last_stable(&log), 0);
            let latch = Latch::new();
            rig.store
                .next(Operation::Put, "data/", [Fault::Held(latch.clone())]);
            let bell = Arc::new(Notify::new());
            assert!(log.watch(offset(0), Isolation::ReadCommitted, &bell));
            let Durability::Pending(done) = log.append_marker(marker(7, 0, commit)).unwrap() else {
                panic!("it can't be durable yet");
            };
            tokio::time::sleep(Duration::from_millis(300)).await;
            // Whoever read now might read otherwise after a crash.
            assert_eq!(log.watermarks().unwrap().log_end, offset(3));
            assert_eq!(last_stable(&log), 0);
            assert_eq!(committed(&rig, id).await, []);
            latch.open();
            done.await.unwrap();
            bell.notified().await;
            assert_eq!(last_stable(&log), 3);
            assert_eq!(committed(&rig, id).await, numbered(0..2));
            assert_eq!(aborted(&rig, id, 0).await.len(), usize::from(!commit));
        });
    }
}

#[test]
fn readers_of_committed_records_are_not_woken_by_batches_behind_an_open_transaction() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        transact(&log, &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
        let (plain, stable) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        assert!(log.watch(offset(1), Isolation::ReadUncommitted, &plain));
        assert!(log.watch(offset(0), Isolation::ReadCommitted, &stable));
        append(&log, &Spec::tagged(1, 1, 8)).await;
        plain.notified().await;
        let wait = Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, stable.notified()).await.is_err());
        end(&log, marker(7, 0, true)).await;
        stable.notified().await;
        assert_eq!(last_stable(&log), 3);
    });
}

#[test]
fn records_of_a_transaction_that_nobody_vouched_for_are_refused() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        let first = Spec::tagged(0, 1, 8).by(7, 0, 0).transactional();
        let seven = ProducerId::from_wire(7).unwrap();
        let hanging = SequenceError::NoTransaction { producer: seven };
        assert_eq!(refused(log.append(first.build())), hanging);
        // A ticket of somebody else, or one never given out.
        let eights = ticket(&log, &Spec::tagged(0, 1, 8).by(8, 0, 0), false);
        let invented = VerificationTicket::new(eights.get() + 1);
        for wrong in [eights, invented] {
            assert_eq!(
                refused(log.append_verified(first.build(), Some(wrong))),
                hanging
            );
        }
        let right = ticket(&log, &first, false);
        durable(log.append_verified(first.build(), Some(right)).unwrap()).await;
        // What follows needs none, and a retry is known.
        let second = Spec::tagged(1, 1, 8).by(7, 0, 1).transactional();
        assert_eq!(append(&log, &second).await, (1, 2));
        assert_eq!(append(&log, &second).await, (1, 2));
        assert_eq!(log.watermarks().unwrap().log_end, offset(2));
    });
}

#[test]
fn a_batch_that_comes_after_its_transactions_end_opens_none() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        transact(&log, &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
        end(&log, marker(7, 0, true)).await;
        // The next transaction: the coordinator is asked, says yes, and ends it before the batch is appended.
        let next = Spec::tagged(2, 1, 8).by(7, 0, 1).transactional();
        let asked = ticket(&log, &next, false);
        end(&log, marker(7, 0, false)).await;
        assert!(matches!(
            refused(log.append_verified(next.build(), Some(asked))),
            SequenceError::NoTransaction { .. }
        ));
        assert_eq!(last_stable(&log), 2);
        // Retries begin anew.
        transact(&log, &next).await;
        assert_eq!(last_stable(&log), 2);
        // With an epoch for each transaction, the batch is of an epoch that is over.
        end(&log, rising(7, 1, true)).await;
        assert!(matches!(
            refused(log.append_verified(next.clone().by(7, 0, 2).build(), Some(asked))),
            SequenceError::Fenced { .. }
        ));
        assert!(matches!(
            check(&log, &next.by(7, 0, 2), true),
            Err(AppendError::Sequence(SequenceError::Fenced { .. }))
        ));
        assert_eq!(last_stable(&log), 4);
    });
}

#[test]
fn the_marker_of_the_transaction_before_does_not_undo_what_was_asked_for_the_next() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        transact(&log, &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
        // The producer knows its next epoch as soon as the end is decided; the marker follows.
        let next = Spec::tagged(2, 1, 8).by(7, 1, 0).transactional();
        let asked = ticket(&log, &next, true);
        let marker = rising(7, 1, true);
        end(&log, marker).await;
        end(&log, marker).await;
        durable(log.append_verified(next.build(), Some(asked)).unwrap()).await;
        // The marker of its own end does.
        end(&log, rising(7, 2, true)).await;
        let third = Spec::tagged(4, 1, 8).by(7, 2, 0).transactional();
        let asked = ticket(&log, &third, true);
        end(&log, rising(7, 3, false)).await;
        assert!(matches!(
            refused(log.append_verified(third.build(), Some(asked))),
            SequenceError::Fenced { .. }
        ));
    });
}

#[test]
fn a_higher_sequence_does_not_overtake_one_that_is_still_being_asked_for() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        // The partition holds data, so an unknown producer might begin anywhere.
        fill(&log, 1, 8).await;
        let batch = |sequence| Spec::tagged(1, 1, 8).by(7, 0, sequence).transactional();
        let _not_answered = ticket(&log, &batch(0), false);
        let second = ticket(&log, &batch(1), false);
        assert!(matches!(
            refused(log.append_verified(batch(1).build(), Some(second))),
            SequenceError::OutOfOrder { .. }
        ));
        let again = ticket(&log, &batch(0), false);
        durable(log.append_verified(batch(0).build(), Some(again)).unwrap()).await;
        assert_eq!(append(&log, &batch(1)).await, (2, 3));
        // Does each transaction have its epoch, then an unknown producer begins at 0.
        let late = Spec::tagged(3, 1, 8).by(8, 3, 5).transactional();
        let asked = ticket(&log, &late, true);
        assert!(matches!(
            refused(log.append_verified(late.build(), Some(asked))),
            SequenceError::OutOfOrder { .. }
        ));
    });
}

#[test]
fn late_and_repeated_markers_end_nothing() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        transact(&log, &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
        let first = rising(7, 1, true);
        end(&log, first).await;
        end(&log, first).await;
        assert_eq!(log.watermarks().unwrap().log_end, offset(2));
        transact(&log, &Spec::tagged(2, 1, 8).by(7, 1, 0)).await;
        // The first one's again, and one of the transaction before.
        for late in [first, rising(7, 0, false)] {
            assert!(matches!(
                log.append_marker(late),
                Err(AppendError::Marker(MarkerRefused::Fenced { .. }))
            ));
        }
        assert_eq!(last_stable(&log), 2);
        // The coordinator moved; the former one still speaks.
        let newer = Marker {
            coordinator_epoch: 5,
            ..rising(7, 2, false)
        };
        end(&log, newer).await;
        let former = Marker {
            coordinator_epoch: 4,
            ..rising(7, 3, true)
        };
        drop(log);
        for crash in [Crash::Power, Crash::Process] {
            assert!(matches!(
                rig.log(id).append_marker(former),
                Err(AppendError::Marker(MarkerRefused::CoordinatorFenced { .. }))
            ));
            rig.restart(crash).await;
        }
        // A producer that this partition hasn't seen: its later records are fenced all the same.
        let log = rig.log(id);
        end(&log, rising(9, 4, false)).await;
        let zombie = Spec::tagged(0, 1, 8).by(9, 3, 0).transactional();
        assert!(matches!(
            check(&log, &zombie, true),
            Err(AppendError::Sequence(SequenceError::Fenced { .. }))
        ));
        assert_eq!(last_stable(&log), log.watermarks().unwrap().log_end.get());
    });
}

#[test]
fn a_marker_may_have_the_epoch_of_the_transaction_it_ends_where_epochs_stay() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        for round in 0..3_i32 {
            let at = u64::from(round.cast_unsigned()) * 2;
            transact(&log, &Spec::tagged(at, 1, 8).by(7, 4, round)).await;
            assert_eq!(last_stable(&log), at);
            end(&log, marker(7, 4, round == 1)).await;
            assert_eq!(last_stable(&log), at + 2);
        }
        let starts: Vec<u64> = aborted(&rig, id, 0)
            .await
            .iter()
            .map(|t| t.start.get())
            .collect();
        assert_eq!(starts, [0, 4]);
    });
}

#[test]
fn plain_records_of_a_producer_in_a_transaction_are_refused() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        transact(&log, &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
        let plain = Spec::tagged(1, 1, 8).by(7, 0, 1);
        assert!(matches!(
            refused(log.append(plain.build())),
            SequenceError::NotTransactional { .. }
        ));
        // A coordinator's records have no sequences, but epochs.
        let zombie = Spec::tagged(1, 1, 8).by(7, 0, -1).transactional();
        append(&log, &zombie).await;
        end(&log, rising(7, 1, true)).await;
        assert!(matches!(
            refused(log.append(zombie.build())),
            SequenceError::Fenced { .. }
        ));
    });
}

#[test]
fn transactions_go_along_with_moves_and_survive_crashes() {
    for mode in [Local, Object] {
        for uploaded in [false, true] {
            paused(async {
                let mut pair = Pair::new().await;
                let id = pair.one(mode).await;
                // 0: seven's, aborted at 1. 2: eight's, open for the whole test. 3: nine's, committed at 4.
                transact(&pair.log(id), &Spec::tagged(0, 1, 8).by(7, 0, 0)).await;
                end(&pair.log(id), rising(7, 1, false)).await;
                transact(&pair.log(id), &Spec::tagged(2, 1, 8).by(8, 5, 0)).await;
                transact(&pair.log(id), &Spec::tagged(3, 1, 8).by(9, 0, 0)).await;
                end(&pair.log(id), marker(9, 0, true)).await;
                if uploaded {
                    pair.all_uploaded().await;
                }
                for to in [1, 0] {
                    let before = pair.log(id);
                    let stale = Spec::tagged(9, 1, 8).by(10, 0, 0).transactional();
                    let asked = ticket(&before, &stale, false);
                    pair.move_to(id, to).await;
                    // The word that the former leader got is worth nothing to the new one.
                    let log = pair.log(id);
                    assert!(matches!(
                        refused(log.append_verified(stale.build(), Some(asked))),
                        SequenceError::NoTransaction { .. }
                    ));
                    assert_eq!(last_stable(&log), 2);
                    assert_eq!(committed(pair.rig(id), id).await, numbered(0..1));
                    assert_eq!(aborted(pair.rig(id), id, 0).await.len(), 1);
                    assert!(matches!(
                        log.append_marker(marker(8, 4, false)),
                        Err(AppendError::Marker(MarkerRefused::Fenced { .. }))
                    ));
                    pair.restart(to, Crash::Power).await;
                    assert_eq!(last_stable(&pair.log(id)), 2);
                }
                let log = pair.log(id);
                // It goes on where it was, without asking again.
                let second = Spec::tagged(5, 1, 8).by(8, 5, 1);
                assert_eq!(check(&log, &second, true).unwrap(), TransactionCheck::Open);
                transact(&log, &second).await;
                end(&log, rising(8, 6, true)).await;
                let visible = committed(pair.rig(id), id).await;
                assert_eq!(visible, [(0, 0), (2, 2), (3, 3), (5, 5)]);
                let producers = log.producers().unwrap();
                assert_eq!(producers.len(), 3);
                assert!(producers.iter().all(|p| p.transaction_start.is_none()));
                assert_eq!(producers[0].coordinator_epoch, Some(0));
                pair.assert_running();
            });
        }
    }
}

#[test]
fn deleted_records_take_along_what_is_known_of_their_transactions() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let log = rig.log(id);
        // Seven's aborts at 1 and 3; eight's opens at 4.
        for round in 0..2 {
            transact(&log, &Spec::tagged(round, 1, 8).by(7, 0, round as i32)).await;
            end(&log, marker(7, 0, false)).await;
        }
        transact(&log, &Spec::tagged(4, 2, 8).by(8, 0, 0)).await;
        fill(&log, 1, 8).await;
        rig.all_uploaded().await;
        rig.delete_records(id, 2).await;
        let starts = |found: Vec<AbortedTransaction>| -> Vec<u64> {
            found.iter().map(|t| t.start.get()).collect()
        };
        assert_eq!(starts(aborted(&rig, id, 2).await), [2]);
        // Into the open transaction: the stable offset is never below the log's start.
        rig.delete_records(id, 5).await;
        let watermarks = log.watermarks().unwrap();
        assert_eq!(watermarks.log_start, offset(5));
        assert_eq!(watermarks.last_stable, offset(5));
        assert_eq!(aborted(&rig, id, 5).await, []);
        assert!(log.state.lock().producers.aborted.is_empty());
        drop(log);
        rig.restart(Crash::Power).await;
        let log = rig.log(id);
        let watermarks = log.watermarks().unwrap();
        assert!(watermarks.last_stable >= watermarks.log_start);
        end(&log, marker(8, 0, true)).await;
        assert_eq!(last_stable(&log), 8);
        assert_eq!(committed(&rig, id).await, [(5, 5), (6, 6)]);
    });
}

#[test]
fn look_ups_by_time_and_the_age_of_data_pass_over_markers() {
    for uploaded in [false, true] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(Local).await;
            let log = rig.log(id);
            let spec = Spec::tagged(0, 1, 8).by(7, 0, 0).at(&[WALL_MS - 1_000]);
            transact(&log, &spec).await;
            // The marker is younger than any record.
            end(&log, marker(7, 0, true)).await;
            if uploaded {
                rig.all_uploaded().await;
                rig.restart(Crash::Power).await;
            }
            let log = rig.log(id);
            let found = rig.life().reader.max_timestamp(&log).await.unwrap();
            assert_eq!(found.map(|f| f.offset), Some(offset(0)));
            let reader = &rig.life().reader;
            let later = tidegate_types::TimestampMs::new(WALL_MS - 500);
            let found = reader
                .first_at_or_after(&log, later, Isolation::ReadCommitted)
                .await;
            assert_eq!(found.unwrap(), None);
        });
    }
}
