//! What brokers do for each other's transactions.

use tidegate_types::{ProducerEpoch, ProducerId};

use super::rig::{Rig, no_tails, quick};
use super::samples::*;
use crate::orders::OrderError;
use crate::rpc::ServerOptions;
use crate::transactions::*;

fn marker() -> TransactionMarker {
    TransactionMarker {
        producer: ProducerId::from_wire(7).unwrap(),
        epoch: ProducerEpoch::from_wire(3).unwrap(),
        coordinator_epoch: 12,
        commit: true,
        transaction_version: 2,
        partitions: vec![partition(0), partition(1)],
    }
}

fn addition() -> AddPartitions {
    AddPartitions {
        transactional_id: "payments".to_owned(),
        producer: ProducerId::from_wire(7).unwrap(),
        epoch: ProducerEpoch::from_wire(3).unwrap(),
        partitions: vec![(name("orders"), partition(4).index)],
        verify_only: true,
    }
}

#[tokio::test]
async fn every_request_carries_all_it_has_and_its_answers() {
    let rig = Rig::start().await;
    let (fake, remote) = (&rig.transactions, rig.remote_transactions());
    let outcomes = Ok(vec![
        MarkerOutcome::Written,
        MarkerOutcome::NotLeader,
        MarkerOutcome::UnknownPartition,
        MarkerOutcome::ProducerFenced,
        MarkerOutcome::CoordinatorFenced,
        MarkerOutcome::Retry("full".to_owned()),
    ]);
    fake.write_markers.answers(outcomes.clone());
    assert_eq!(remote.write_markers(vec![marker()]).await, outcomes);
    assert_eq!(fake.write_markers.last(), [marker()]);

    let codes = Ok(vec![0, 120, -1]);
    fake.add_partitions.answers(codes.clone());
    assert_eq!(remote.add_partitions(addition()).await, codes);
    assert_eq!(fake.add_partitions.last(), addition());
    assert_eq!(fake.uncalled(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_broker_that_is_gone_says_nothing_about_its_markers() {
    let rig = Rig::with(no_tails(), ServerOptions::default(), quick()).await;
    rig.local.send_replace(None);
    let answer = rig
        .remote_transactions()
        .write_markers(vec![marker()])
        .await;
    assert!(
        matches!(answer, Err(OrderError::Unreachable(_))),
        "{answer:?}"
    );
}
