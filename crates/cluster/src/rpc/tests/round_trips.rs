//! Every method carries its request and its answers, the good ones and the others.

use std::time::Duration;

use tidegate_metadata::api::*;
use tidegate_metadata::{ClusterImage, ImageVersion, ObjectStatus, WriterState};
use tidegate_types::{ControllerEpoch, OffsetRange, ProducerId, TimestampMs};
use uuid::Uuid;

use super::rig::Rig;
use super::samples::*;
use crate::admin::*;
use crate::orders::*;
use crate::rpc::wire::calls;

macro_rules! carries {
    ($fake:expr, $remote:expr, $name:ident($request:expr) => $($answer:expr),+) => {
        $(
            let (request, answer) = ($request, $answer);
            $fake.$name.answers(answer.clone());
            assert_eq!($remote.$name(request.clone()).await, answer);
            assert_eq!($fake.$name.last(), request);
        )+
    };
}

fn stale() -> StaleBrokerEpoch {
    StaleBrokerEpoch {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        current: Some(broker_epoch().next()),
    }
}

fn outcome() -> ObjectOutcome {
    ObjectOutcome {
        key: key("data/1/7/42"),
        segments: vec![
            SegmentOutcome::Committed {
                committed_end: offset(9),
            },
            SegmentOutcome::Overtaken {
                committed_end: offset(9),
            },
            SegmentOutcome::TopicDeleted,
            SegmentOutcome::Superseded {
                sealed_end: offset(4),
            },
        ],
    }
}

#[tokio::test]
async fn every_controller_method_carries_its_request_and_its_answers() {
    let rig = Rig::start().await;
    let (fake, remote) = (&rig.controller, rig.remote_controller());
    let unavailable = ControllerUnavailable::StoreUnavailable;
    brokers(&rig).await;
    topics(&rig).await;
    carries!(fake, remote, partition_states(vec![partition(0), partition(3)])
        => Ok(vec![None, Some(state())]), Err(unavailable));
    carries!(fake, remote, led_by(broker(1)) => Ok(vec![state()]), Err(unavailable));
    carries!(fake, remote, segments(SegmentQuery {
            partition: partition(3),
            from: offset(0),
            limit: 10,
        })
        => Ok(SegmentPage { segments: vec![segment()], more: true }), Err(unavailable));
    carries!(fake, remote, deletable_objects(DeletableQuery {
            dropped_before: TimestampMs::new(9),
            limit: 3,
        })
        => Ok(vec![DeletableObject {
            key: key("a"),
            size_bytes: 1,
            dropped_at: TimestampMs::new(2),
        }]),
        Err(unavailable));
    carries!(fake, remote, forget_objects(vec![key("a")]) => Ok(()), Err(unavailable));
    carries!(fake, remote, object_statuses(vec![key("a"), key("b"), key("c")])
        => Ok(vec![
            ObjectStatus::Unknown,
            ObjectStatus::Referenced { references: 2 },
            ObjectStatus::Dropped { at: TimestampMs::new(2) },
        ]),
        Err(unavailable));
    assert_eq!(rig.controller.uncalled(), Vec::<&str>::new());
}

async fn brokers(rig: &Rig) {
    let (fake, remote) = (&rig.controller, rig.remote_controller());
    let unavailable = ControllerUnavailable::Deposed;
    carries!(fake, remote, register_broker(RegisterBroker {
            broker: Some(broker(1)),
            incarnation: Uuid::from_u128(1),
            kafka: endpoint(9092),
            internal: Some(endpoint(9094)),
            rack: Some("a".to_owned()),
            wal: Some(Uuid::from_u128(2)),
        })
        => Ok(Registered {
            broker: broker(1),
            broker_epoch: broker_epoch(),
            former_writer: Some(WriterState {
                broker_epoch: broker_epoch(),
                next_wal_sequence: 3,
            }),
        }),
        Err(RegisterBrokerError::Unavailable(unavailable)));
    carries!(fake, remote, take_leadership(TakeLeadership {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        wal: Some(Uuid::from_u128(2)),
        fenced_writer: Some(broker_epoch()),
        recovered: vec![object()],
        ends: vec![RecoveredEnd {
            partition: partition(3),
            leader_epoch: epoch(2),
            end: offset(9),
        }],
        accept_loss: true,
    })
    => Ok(LeadershipTaken {
        partitions: vec![state()],
        withheld: vec![Withheld {
            partition: partition(4),
            reason: WithheldReason::Missing { missing: range() },
        }],
        lost: vec![Loss {
            partition: partition(5),
            from: offset(1),
            known_to: None,
        }],
        recovered: vec![outcome()],
    }),
    Err(TakeLeadershipError::StaleBrokerEpoch(stale())),
    Err(TakeLeadershipError::Commit(CommitRefused::SequenceGap {
        object: key("a"),
        sequence: 3,
        expected: 2,
    })));
    carries!(fake, remote, commit_objects(CommitObjects {
            broker: broker(1),
            broker_epoch: broker_epoch(),
            objects: vec![object()],
        })
        => Ok(vec![outcome()]),
        Err(CommitObjectsError::Refused(CommitRefused::Malformed {
            object: key("a"),
            reason: "it is empty".into(),
        })),
        Err(CommitObjectsError::Unavailable(unavailable)));
    carries!(fake, remote, advance_log_start(AdvanceLogStart {
            broker: broker(1),
            broker_epoch: broker_epoch(),
            partition: partition(3),
            leader_epoch: epoch(2),
            new_start: offset(5),
        })
        => Ok(offset(5)), Err(AdvanceLogStartError::UnknownPartition(partition(3))));
    carries!(fake, remote, swap_segments(SwapSegments {
            broker: broker(1),
            broker_epoch: broker_epoch(),
            partition: partition(3),
            leader_epoch: epoch(2),
            inputs: vec![SwapInput {
                range: OffsetRange::new(offset(5), offset(9)).unwrap(),
                object: key("a"),
            }],
            outputs: vec![object()],
            cleaned_end: Some(offset(9)),
        })
        => Ok(SwapOutcome::Swapped),
        Ok(SwapOutcome::Refused(SwapRefused::NotCheckpointed { as_of: None })),
        Err(SwapSegmentsError::Unavailable(unavailable)));
    carries!(fake, remote, allocate_producer_ids(AllocateProducerIds {
            broker: broker(1),
            broker_epoch: broker_epoch(),
        })
        => Ok(ProducerIdBlock { first: ProducerId::from_wire(1_000).unwrap(), count: 1_000 }),
        Err(AllocateProducerIdsError::Exhausted));
}

async fn topics(rig: &Rig) {
    let (fake, remote) = (&rig.controller, rig.remote_controller());
    let unavailable = ControllerUnavailable::Busy;
    carries!(fake, remote, create_topics(CreateTopics {
            topics: vec![
                NewTopic {
                    name: name("a"),
                    layout: TopicLayout::Count {
                        partitions: 3,
                        replication_factor: 1,
                    },
                    configs: configs(),
                },
                NewTopic {
                    name: name("b"),
                    layout: TopicLayout::Assigned(vec![vec![broker(1), broker(2)]]),
                    configs: configs(),
                },
            ],
            validate_only: true,
        })
        => Ok(vec![
            Ok(CreatedTopic {
                id: Some(topic()),
                name: name("a"),
                partitions: 3,
                replication_factor: 1,
                configs: configs(),
            }),
            Err(CreateTopicError::Exists { name: name("b"), id: topic() }),
        ]),
        Err(unavailable));
    carries!(fake, remote, delete_topics(DeleteTopics { topics: vec![topic(), topic()] })
        => Ok(vec![Ok(name("a")), Err(UnknownTopic(topic()))]), Err(unavailable));
    carries!(fake, remote, create_partitions(CreatePartitions {
            topics: vec![MorePartitions {
                topic: topic(),
                total: 5,
                assignments: Some(vec![vec![broker(1)]]),
            }],
            validate_only: false,
        })
        => Ok(vec![Ok(()), Err(CreatePartitionsError::UnknownTopic(UnknownTopic(topic())))]),
        Err(unavailable));
    let edits = vec![
        ConfigEdit::Set {
            name: "a".to_owned(),
            value: "b".to_owned(),
        },
        ConfigEdit::Delete {
            name: "c".to_owned(),
        },
    ];
    carries!(fake, remote, alter_configs(AlterConfigs {
            changes: vec![
                (ConfigResource::Topic(topic()), ConfigChange::Edit(edits.clone())),
                (ConfigResource::BrokerDefault, ConfigChange::Replace(configs())),
            ],
            validate_only: false,
        })
        => Ok(vec![Ok(configs()), Err(UnknownTopic(topic()))]), Err(unavailable));
    carries!(fake, remote, unregister_broker(UnregisterBroker { broker: broker(1) })
        => Ok(()), Err(UnregisterBrokerError::Alive(broker(1))));
    let entity = QuotaEntity {
        user: Some(QuotaName::Default),
        client_id: Some(QuotaName::Named("c".to_owned())),
        ip: None,
    };
    let change = QuotaChange {
        key: "producer_byte_rate".to_owned(),
        limit: QuotaLimit::try_from(1.5).ok(),
    };
    carries!(fake, remote, alter_quotas(AlterQuotas {
            entities: vec![(entity.clone(), vec![change.clone()])],
            validate_only: true,
        })
        => Ok(vec![Ok(()), Err(TooManyQuotas { limit: 3 })]), Err(unavailable));
}

#[tokio::test]
async fn every_order_carries_its_request_and_its_answers() {
    let rig = Rig::start().await;
    let (fake, remote) = (&rig.orders, rig.remote_orders());
    let refusals = || {
        vec![
            Err(OrderRefused::StaleController {
                seen: ControllerEpoch::new(6),
            }),
            Err(OrderRefused::Superseded { newest: 8 }),
            Err(OrderRefused::Failed {
                cause: "so".to_owned(),
            }),
        ]
    };
    carries!(fake, remote, prepare(orders(Prepare {
            state: state(),
            source: broker(1),
            source_endpoint: endpoint(9094),
            attempt: 3,
        }))
        => Ok(refusals()), Ok(vec![Ok(())]), Err(OrderError::TimedOut));
    carries!(fake, remote, seal(orders(Seal {
            partition: partition(3),
            leader_epoch: epoch(2),
            order: 4,
        }))
        => Ok(SealAnswer {
            results: vec![
                Ok(SealedLog { partition: partition(3), end: offset(9) }),
                Err(OrderRefused::NotYet { cause: "so".to_owned() }),
            ],
            objects: vec![object()],
            broker_epoch: broker_epoch(),
        }),
        Err(OrderError::Unreachable("stopping".to_owned())));
    carries!(fake, remote, hold(orders(Hold {
        partition: partition(3),
        leader_epoch: epoch(2),
        attempt: 3,
    }))
    => Ok(vec![
        Ok(HeldLog {
            partition: partition(3),
            end: offset(9),
            broker_epoch: broker_epoch(),
            held_in: Some(Uuid::from_u128(2)),
        }),
        Err(OrderRefused::NotPrepared),
        Err(OrderRefused::NotLeader),
    ]));
    carries!(fake, remote, unseal(orders(Unseal {
            partition: partition(3),
            leader_epoch: epoch(2),
            order: 5,
        }))
        => Ok(()), Err(OrderError::Unknown("so".to_owned())));
    carries!(fake, remote, discard(orders(Discard { partition: partition(3), attempt: 3 }))
        => Ok(()));
    assert_eq!(rig.orders.uncalled(), Vec::<&str>::new());
}

macro_rules! carries_call {
    ($rig:expr, $name:ident { $($field:ident: $value:expr),* } => $($answer:expr),+) => {
        let request = calls::$name { $($field: $value),* };
        for answer in [$($answer),+] {
            $rig.admin.$name.answers(answer.clone());
            assert_eq!($rig.remote_admin().$name($(request.$field.clone()),*).await, answer);
            assert_eq!($rig.admin.$name.last(), request);
        }
    };
}

#[tokio::test]
async fn every_admin_method_carries_its_request_and_its_answers() {
    let rig = Rig::start().await;
    let unavailable = AdminError::Unavailable(ControllerUnavailable::StoreUnavailable);
    let report = MoveReport {
        partition: partition(3),
        topic: name("a"),
        from: broker(1),
        to: broker(2),
        leader_epoch: epoch(3),
        sealed_end_offset: offset(9),
        prepare_ms: 1.5,
        seal_ms: 0.25,
        hold_ms: 0.125,
        commit_ms: 3.0,
        total_ms: 5.0,
    };
    let there = MoveError::AlreadyThere {
        leader: broker(2),
        leader_epoch: epoch(3),
    };
    carries_call!(rig, reassign {
            moves: vec![MoveRequest { partition: partition(3), to: broker(2) }],
            wait: Duration::from_millis(1_500)
        }
        => Ok(vec![Ok(report.clone()), Err(there.clone()), Err(MoveError::TimedOut)]),
        Err(unavailable.clone()));
    carries_call!(rig, alter_placements {
            changes: vec![
                PlacementChange { partition: partition(3), placement: Some(vec![broker(2)]) },
                PlacementChange { partition: partition(4), placement: None },
            ]
        }
        => Ok(vec![Ok(()), Err(PlacementError::NoneInProgress)]));
    carries_call!(rig, list_reassignments { partitions: Some(vec![partition(3)]) }
    => Ok(vec![Reassignment {
        partition: partition(3),
        topic: name("a"),
        leader: None,
        to: broker(2),
        placement: vec![broker(2)],
        phase: "sealing".to_owned(),
        last_failure: Some("so".to_owned()),
    }]));
    carries_call!(rig, elect_leaders {
        kind: ElectionKind::Preferred,
        partitions: None,
        wait: Duration::ZERO
    }
    => Ok(vec![
        Elected { partition: partition(3), topic: Some(name("a")), result: Ok(broker(1)) },
        Elected {
            partition: partition(4),
            topic: None,
            result: Err(ElectError::Move(there.clone())),
        },
    ]));
    let drain = DrainStatus {
        broker: broker(1),
        draining: true,
        led_partitions: 4,
        moving: 2,
        blocked: None,
    };
    carries_call!(rig, drain { broker: broker(1) }
        => Ok(drain.clone()), Err(AdminError::UnknownBroker(broker(1))));
    carries_call!(rig, undrain { broker: broker(1) } => Ok(drain.clone()));
    carries_call!(rig, drain_status { broker: broker(1) } => Ok(drain.clone()));
    carries_call!(rig, set_balance { enabled: true } => Ok(false));
    carries_call!(rig, cluster_status {} => Ok(cluster()));
    assert_eq!(rig.admin.uncalled(), Vec::<&str>::new());
}

fn cluster() -> ClusterStatus {
    ClusterStatus {
        cluster_id: "c".to_owned(),
        controller: broker(1),
        controller_epoch: ControllerEpoch::new(5),
        image: ImageVersion {
            controller_epoch: ControllerEpoch::new(5),
            change: 6,
        },
        brokers: vec![BrokerStatus {
            id: broker(1),
            broker_epoch: broker_epoch(),
            alive: true,
            draining: false,
            rack: None,
            kafka: endpoint(9092),
            internal: Some(endpoint(9094)),
            led_partitions: 1,
            bytes_in_per_s: 2,
            bytes_out_per_s: 3,
            requests_per_s: 4,
            software_version: "0.1.0".to_owned(),
        }],
        topics: 1,
        partitions: 2,
        offline: vec![OfflinePartition {
            partition: partition(3),
            topic: name("a"),
            waits_for: Some(broker(2)),
        }],
        offline_count: 1,
        reassignments: 0,
        balance: true,
    }
}

#[tokio::test]
async fn an_answer_names_the_picture_that_shows_its_effect() {
    let rig = Rig::start().await;
    let remote = rig.remote_controller();
    assert_eq!(remote.newest_image(), None);
    rig.controller.forget_objects.answers(Ok(()));
    remote.forget_objects(vec![]).await.unwrap();
    assert_eq!(
        remote.newest_image(),
        Some(ClusterImage::empty("test").version())
    );
}

#[tokio::test]
async fn orders_and_tails_of_this_broker_take_no_detour() {
    let rig = Rig::start().await;
    let peers = crate::rpc::RemotePeers::new(
        rig.connections.clone(),
        broker(1),
        rig.local.borrow().clone().unwrap(),
    );
    // Nobody listens there.
    let nowhere = endpoint(1);
    rig.orders.unseal.answers(Ok(()));
    let unseal = Orders {
        controller_epoch: ControllerEpoch::new(5),
        items: vec![],
    };
    assert_eq!(
        peers.orders(broker(1), &nowhere).unseal(unseal).await,
        Ok(())
    );
    let request = FollowRequest {
        partition: partition(3),
        leader_epoch: epoch(2),
    };
    let followed = peers.tails(broker(1), &nowhere).follow(request).await;
    assert_eq!(followed.err(), Some(FollowError::NotLeader));
}
