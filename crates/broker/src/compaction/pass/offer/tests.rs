//! Offers against a real controller, whose answers get lost.

use std::cell::Cell;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tidegate_metadata::api::{
    CommitObjects, CreateTopics, NewTopic, RegisterBroker, SegmentQuery, TakeLeadership,
    TopicLayout,
};
use tidegate_metadata::store::{Fault, MemoryOpener};
use tidegate_metadata::{
    ByteSpan, Controller, ControllerHandle, ControllerMetrics, ControllerOptions, Endpoint,
    ObjectCommit, SegmentCommit, StoredObjectKey,
};
use tidegate_runtime::ManualClock;
use tidegate_types::{
    BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, PartitionIndex, TimestampMs, TopicName,
};
use uuid::Uuid;

use super::*;

const CHANGED: &str = "the topic isn't compacted";

/// A controller, and the segments 0..10 and 10..20 of one partition.
struct Case {
    store: MemoryOpener,
    controller: ControllerHandle,
    /// One segment in the place of both.
    request: SwapSegments,
}

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(Offset::new(start).unwrap(), Offset::new(end).unwrap()).unwrap()
}

fn object(key: &str, partition: PartitionId, range: OffsetRange) -> ObjectCommit {
    let span = |position, length| ByteSpan { position, length };
    ObjectCommit {
        key: StoredObjectKey::new(key).unwrap(),
        size_bytes: 1_000,
        index: span(900, 80),
        wal_sequence: None,
        segments: vec![SegmentCommit {
            partition,
            leader_epoch: LeaderEpoch::FIRST,
            range,
            span: span(64, 100),
            max_timestamp: TimestampMs::new(1),
            record_count: range.span(),
            checkpoint: Some(span(500, 50)),
        }],
    }
}

impl Case {
    async fn new() -> Self {
        let store = MemoryOpener::new();
        let id = BrokerId::new(1).unwrap();
        let mut next = 0;
        let (controller, task) = Controller::open(
            Arc::new(store.clone()),
            ControllerOptions::new(id),
            Arc::new(ManualClock::new(TimestampMs::new(1_700_000_000_000))),
            Box::new(move || {
                next += 1;
                Uuid::from_u128(0xA000 + next)
            }),
            ControllerMetrics::register(&mut Registry::default()),
        )
        .await
        .unwrap();
        tokio::spawn(task.run(std::future::pending()));
        let wal = Some(Uuid::from_u128(7));
        let registration = RegisterBroker {
            broker: Some(id),
            incarnation: Uuid::from_u128(1),
            kafka: Endpoint {
                host: "b1".to_owned(),
                port: 9092,
            },
            internal: None,
            rack: None,
            wal,
        };
        let registered = controller.register_broker(registration).await.unwrap();
        let broker_epoch = registered.broker_epoch;
        let taking = TakeLeadership {
            broker: id,
            broker_epoch,
            wal,
            fenced_writer: None,
            recovered: Vec::new(),
            ends: Vec::new(),
            accept_loss: false,
        };
        controller.take_leadership(taking).await.unwrap();
        let topic = NewTopic {
            name: TopicName::new("t").unwrap(),
            layout: TopicLayout::Count {
                partitions: 1,
                replication_factor: 1,
            },
            configs: Default::default(),
        };
        let topics = CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        let created = controller.create_topics(topics).await.unwrap();
        let partition = PartitionId {
            topic: created[0].as_ref().unwrap().id.unwrap(),
            index: PartitionIndex::new(0).unwrap(),
        };
        let objects = vec![
            object("o0", partition, range(0, 10)),
            object("o1", partition, range(10, 20)),
        ];
        let inputs = objects.iter().map(|o| SwapInput {
            range: o.segments[0].range,
            object: o.key.clone(),
        });
        let mut new = object("c0", partition, range(0, 20));
        new.segments[0].checkpoint = None;
        let request = SwapSegments {
            broker: id,
            broker_epoch,
            partition,
            leader_epoch: LeaderEpoch::FIRST,
            inputs: inputs.collect(),
            outputs: vec![new],
            cleaned_end: Some(Offset::new(20).unwrap()),
        };
        let commit = CommitObjects {
            broker: id,
            broker_epoch,
            objects,
        };
        controller.commit_objects(commit).await.unwrap();
        Self {
            store,
            controller,
            request,
        }
    }

    /// Offers it; it is wanted for so many tries.
    async fn offer(&self, request: &SwapSegments, tries: u32) -> Settled {
        let left = Cell::new(tries);
        let wanted = || match left.get() {
            0 => Err(CHANGED),
            tries => {
                left.set(tries - 1);
                Ok(())
            }
        };
        offer(&self.controller, request, wanted, || false)
            .await
            .unwrap()
    }

    async fn map(&self) -> Vec<String> {
        let query = SegmentQuery {
            partition: self.request.partition,
            from: Offset::ZERO,
            limit: 10,
        };
        let page = self.controller.segments(query).await.unwrap();
        let segments = page.segments.iter();
        segments.map(|s| s.object.as_str().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_offer_is_repeated_until_it_is_answered() {
    for fault in [Fault::Before, Fault::After] {
        let case = Case::new().await;
        case.store.inject(fault);
        let settled = case.offer(&case.request, u32::MAX).await;
        assert_eq!(settled, Settled::Swapped);
        assert_eq!(case.map().await, ["c0"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_nobody_wants_any_more_is_withdrawn_and_refused_when_it_comes_late() {
    // It is sent and lost, or not sent at all.
    for tries in [1, 0] {
        let case = Case::new().await;
        if tries > 0 {
            case.store.inject(Fault::Before);
        }
        let settled = case.offer(&case.request, tries).await;
        assert_eq!(settled, Settled::Withdrawn(CHANGED));
        assert_eq!(case.map().await, ["o0", "o1"]);
        let late = case.controller.swap_segments(case.request.clone()).await;
        assert_eq!(
            late,
            Ok(SwapOutcome::Refused(SwapRefused::ObjectDropped {
                object: case.request.outputs[0].key.clone()
            }))
        );
        assert_eq!(case.map().await, ["o0", "o1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_carried_out_is_known_though_nobody_wants_it_any_more() {
    let case = Case::new().await;
    case.store.inject(Fault::After);
    let settled = case.offer(&case.request, 1).await;
    assert_eq!(settled, Settled::Swapped);
    assert_eq!(case.map().await, ["c0"]);
}

#[tokio::test(start_paused = true)]
async fn an_offer_of_nothing_but_the_cleaned_end_is_withdrawn_without_asking() {
    let case = Case::new().await;
    let request = SwapSegments {
        inputs: Vec::new(),
        outputs: Vec::new(),
        ..case.request.clone()
    };
    case.store.set_unreachable(true);
    let settled = case.offer(&request, 0).await;
    assert_eq!(settled, Settled::Withdrawn(CHANGED));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final_and_a_closed_log_waits_for_none() {
    let case = Case::new().await;
    let mut request = case.request.clone();
    request.inputs.pop();
    request.outputs = vec![object("c1", request.partition, range(0, 10))];
    request.inputs[0].object = StoredObjectKey::new("o7").unwrap();
    let settled = case.offer(&request, u32::MAX).await;
    assert_eq!(settled, Settled::Refused(SwapRefused::OtherSegments));
    case.store.set_unreachable(true);
    let wanted = || Ok(());
    let settled = offer(&case.controller, &case.request, wanted, || true).await;
    assert_eq!(settled.unwrap(), Settled::Abandoned);
}
