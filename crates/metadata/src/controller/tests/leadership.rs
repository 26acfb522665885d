//! Taking leadership: recovery, local WALs, losses.

use super::*;

const WAL_A: Uuid = Uuid::from_u128(0xA);
const WAL_B: Uuid = Uuid::from_u128(0xB);

#[tokio::test]
async fn recovery_commits_and_leads_in_one_change() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener.clone()), object_mode(), 0).await;
    let (old, _) = run.lead(1).await;
    let p = partition(run.create("t", 1).await, 0);
    run.commit(old, vec![object("o1", vec![segment(p, 0, range(0, 10))])])
        .await
        .unwrap();
    let registered = run
        .handle
        .register_broker(registration(1, 2))
        .await
        .unwrap();
    let unfenced = TakeLeadership {
        fenced_writer: None,
        ..taking(&registered)
    };
    assert!(matches!(
        run.handle.take_leadership(unfenced).await,
        Err(TakeLeadershipError::WriterNotFenced { expected }) if expected == old
    ));
    let take = TakeLeadership {
        recovered: vec![ObjectCommit {
            wal_sequence: Some(0),
            ..object("w0", vec![segment(p, 0, range(10, 25))])
        }],
        ..taking(&registered)
    };
    let batches = opener.batches();
    let taken = run.handle.take_leadership(take.clone()).await.unwrap();
    assert_eq!(opener.batches(), batches + 1);
    let led = &taken.partitions[0];
    assert_eq!(
        (led.leader_epoch, led.leader_epoch_start()),
        (epoch(1), offset(25))
    );
    assert_eq!(led.committed_end, offset(25));
    let again = run.handle.take_leadership(take).await.unwrap();
    assert_eq!(
        again.partitions, taken.partitions,
        "a repetition raises nothing"
    );
    // The old writer's object arrives late, with records behind the sealed end.
    let late = vec![object("late", vec![segment(p, 0, range(25, 30))])];
    let outcome = run.commit(registered.broker_epoch, late).await.unwrap();
    assert_eq!(
        outcome[0].segments,
        [SegmentOutcome::Superseded {
            sealed_end: offset(25)
        }]
    );
    assert_eq!(run.ranges(p).await, [range(0, 10), range(10, 25)]);
}

/// Registers a new incarnation and takes leadership with the given WAL and recovered end.
async fn restart(
    run: &Running,
    incarnation: u128,
    wal: Uuid,
    ends: Vec<RecoveredEnd>,
    accept_loss: bool,
) -> (BrokerEpoch, LeadershipTaken) {
    run.lose(1).await;
    let registration = RegisterBroker {
        wal: Some(wal),
        ..registration(1, incarnation)
    };
    let registered = run.handle.register_broker(registration).await.unwrap();
    let take = TakeLeadership {
        wal: Some(wal),
        ends,
        accept_loss,
        ..taking(&registered)
    };
    let taken = run.handle.take_leadership(take).await.unwrap();
    (registered.broker_epoch, taken)
}

fn recovered_end(partition: PartitionId, leader_epoch: u32, end: u64) -> RecoveredEnd {
    RecoveredEnd {
        partition,
        leader_epoch: epoch(leader_epoch),
        end: offset(end),
    }
}

#[tokio::test]
async fn a_local_partition_goes_on_behind_what_its_wal_held() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    let (second, taken) = restart(&run, 2, WAL_A, vec![recovered_end(p, 0, 40)], false).await;
    assert_eq!(taken.partitions[0].leader_epoch_start(), offset(40));
    assert_eq!(taken.partitions[0].committed_end, Offset::ZERO);
    // What was recovered is uploaded later, under the leader epochs it was written in.
    let commit = vec![
        object("o1", vec![segment(p, 0, range(0, 40))]),
        object("o2", vec![segment(p, 1, range(40, 50))]),
    ];
    run.commit(second, commit).await.unwrap();
    let (_, taken) = restart(&run, 3, WAL_A, vec![], false).await;
    let epochs: Vec<_> = taken.partitions[0]
        .epochs
        .iter()
        .map(|e| (e.epoch.get(), e.start.get()))
        .collect();
    assert_eq!(epochs, [(0, 0), (1, 40), (2, 50)]);
}

#[tokio::test]
async fn a_partition_on_a_lost_wal_stays_offline_until_the_loss_is_accepted() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    let (_, taken) = restart(&run, 2, WAL_B, vec![], false).await;
    assert_eq!(taken.partitions, []);
    assert_eq!(
        taken.withheld,
        [Withheld {
            partition: p,
            reason: WithheldReason::OtherWal { expected: WAL_A }
        }]
    );
    assert_eq!(run.state(p).await.leader, None);
    // The disk comes back.
    let (_, taken) = restart(&run, 3, WAL_A, vec![recovered_end(p, 0, 5)], false).await;
    assert_eq!(taken.partitions[0].leader_epoch_start(), offset(5));
    // It is lost for good.
    let (_, taken) = restart(&run, 4, WAL_B, vec![], true).await;
    assert_eq!(
        taken.lost,
        [Loss {
            partition: p,
            from: Offset::ZERO,
            known_to: Some(offset(5))
        }]
    );
    assert_eq!(taken.partitions[0].leader_epoch_start(), Offset::ZERO);
    assert!(taken.partitions[0].leader_epoch > epoch(1));
}

#[tokio::test]
async fn a_wal_that_holds_less_than_the_log_is_known_to_have_withholds_the_partition() {
    let run = Running::start(&MemoryOpener::new()).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let p = partition(run.create("t", 1).await, 0);
    restart(&run, 2, WAL_A, vec![recovered_end(p, 0, 40)], false).await;
    let (_, taken) = restart(&run, 3, WAL_A, vec![recovered_end(p, 0, 30)], false).await;
    assert_eq!(
        taken.withheld[0].reason,
        WithheldReason::Missing {
            missing: range(30, 40)
        }
    );
}

#[tokio::test]
async fn a_topic_that_becomes_local_is_bound_to_its_leaders_wal() {
    let opener = MemoryOpener::new();
    let run = Running::start_with(Arc::new(opener), object_mode(), 0).await;
    restart(&run, 1, WAL_A, vec![], false).await;
    let topic = run.create("t", 1).await;
    let alter = AlterConfigs {
        changes: vec![(
            ConfigResource::Topic(topic),
            ConfigChange::Replace(configs(&[(DURABILITY_CONFIG, "local")])),
        )],
        validate_only: false,
    };
    run.handle.alter_configs(alter).await.unwrap();
    let (_, taken) = restart(&run, 2, WAL_B, vec![], false).await;
    assert_eq!(taken.withheld.len(), 1);
}
