//! Stores that fail, controllers that race.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::*;
use crate::keys::{self, Table};
use crate::rows::{ClusterRow, Row};
use crate::store::Fault;
use crate::store::contract::slate;
use crate::store::faulty::{Faults, FaultyObjects};

async fn try_create(run: &Running, topic: &str) -> Result<TopicId, ControllerUnavailable> {
    let request = CreateTopics {
        topics: vec![new_topic(topic, 1)],
        validate_only: false,
    };
    let answers = run.handle.create_topics(request).await?;
    Ok(match &answers[0] {
        Ok(created) => created.id.unwrap(),
        Err(CreateTopicError::Exists { id, .. }) => *id,
        Err(other) => panic!("{other}"),
    })
}

/// Sends the request again until the controller answers.
async fn create_at_last(run: &Running, topic: &str) -> TopicId {
    for _ in 0..1_000 {
        match try_create(run, topic).await {
            Ok(id) => return id,
            Err(ControllerUnavailable::Closed | ControllerUnavailable::Deposed) => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("the controller didn't heal");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_acknowledges_nothing_and_heals_by_itself() {
    for fault in [Fault::Before, Fault::After] {
        let opener = MemoryOpener::new();
        let run = Running::start(&opener).await;
        run.lead(1).await;
        let first = run.handle.image().borrow().version();
        opener.inject(fault);
        let refused = try_create(&run, "t").await;
        assert_eq!(refused, Err(ControllerUnavailable::OutcomeUnknown));
        assert!(
            run.handle.image().borrow().topic("t").is_none(),
            "an unknown outcome must not be shown"
        );
        let id = create_at_last(&run, "t").await;
        let image = run.handle.image().borrow().clone();
        assert_eq!(image.topic("t").unwrap().id, id);
        assert_eq!(image.topics().len(), 1);
        assert!(image.version() > first);
        assert!(image.version().controller_epoch > first.controller_epoch);
        assert!(
            image.broker(broker(1)).unwrap().alive,
            "sessions outlive an opening of the store"
        );
        let leader = image.topic("t").unwrap().partitions[0].leader;
        assert_eq!(leader, Some(broker(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_no_change_that_came_with_it() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    opener.inject(Fault::Before);
    let (change, answer) = tokio::join!(try_create(&run, "t"), run.handle.brokers());
    assert_eq!(change, Err(ControllerUnavailable::OutcomeUnknown));
    assert_eq!(answer.unwrap().len(), 1, "it saw what was durable before");
}

#[tokio::test(start_paused = true)]
async fn a_store_out_of_reach_is_waited_for() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    opener.set_unreachable(true);
    assert_eq!(
        try_create(&run, "t").await,
        Err(ControllerUnavailable::OutcomeUnknown)
    );
    for _ in 0..20 {
        assert_eq!(
            try_create(&run, "t").await,
            Err(ControllerUnavailable::StoreUnavailable)
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    opener.set_unreachable(false);
    create_at_last(&run, "t").await;
}

/// A controller on SlateDB on an object store that fails on demand.
async fn on_faulty_objects(faults: &Faults) -> Running {
    let objects = Arc::new(FaultyObjects::new(faults.clone()));
    let options = ControllerOptions {
        store_timeout: Duration::from_millis(300),
        reopen_backoff: (Duration::from_millis(20), Duration::from_millis(100)),
        ..ControllerOptions::new(broker(1))
    };
    let run = Running::start_with(Arc::new(slate(objects)), options, 1).await;
    run.lead(1).await;
    run
}

#[tokio::test]
async fn slatedb_heals_after_an_outage_of_the_object_store() {
    let faults = Faults::default();
    let run = on_faulty_objects(&faults).await;
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(
        try_create(&run, "t").await,
        Err(ControllerUnavailable::OutcomeUnknown)
    );
    for _ in 0..3 {
        assert_eq!(
            try_create(&run, "t").await,
            Err(ControllerUnavailable::StoreUnavailable),
            "nobody is kept waiting during an outage"
        );
    }
    assert!(run.handle.image().borrow().topic("t").is_none());
    faults.unreachable.store(false, Ordering::SeqCst);
    create_at_last(&run, "t").await;
    assert_eq!(run.handle.image().borrow().topics().len(), 1);
}

#[tokio::test]
async fn a_lost_answer_of_the_object_store_is_no_takeover() {
    for no_attributes in [false, true] {
        let faults = Faults::default();
        faults.no_attributes.store(no_attributes, Ordering::SeqCst);
        let run = on_faulty_objects(&faults).await;
        for i in 0..3 {
            faults.lose_answer.store(true, Ordering::SeqCst);
            create_at_last(&run, &format!("t{i}")).await;
        }
        assert_eq!(run.handle.image().borrow().topics().len(), 3);
        assert!(matches!(run.stop().await, ControllerExit::Shutdown));
    }
}

#[tokio::test]
async fn opening_an_unreachable_store_is_retriable() {
    let opener = MemoryOpener::new();
    opener.set_unreachable(true);
    let opened = Controller::open(
        Arc::new(opener),
        ControllerOptions::new(broker(1)),
        Arc::new(ManualClock::new(NOW)),
        counted_ids(),
        ControllerMetrics::register(&mut Registry::default()),
    )
    .await;
    assert!(opened.err().unwrap().is_retriable());
}

#[tokio::test]
async fn a_bucket_of_a_newer_release_is_refused() {
    let opener = MemoryOpener::new();
    let key = keys::single(Table::Cluster);
    let row = ClusterRow {
        id: "x".into(),
        format: 2,
        created_at: NOW,
    };
    opener.overwrite(key.clone(), row.seal(&key));
    let opened = Controller::open(
        Arc::new(opener),
        ControllerOptions::new(broker(1)),
        Arc::new(ManualClock::new(NOW)),
        counted_ids(),
        ControllerMetrics::register(&mut Registry::default()),
    )
    .await;
    let error = opened.err().unwrap();
    assert!(!error.is_retriable());
    assert!(error.to_string().contains("newer Tidegate"), "{error}");
}

#[tokio::test]
async fn damaged_metadata_is_refused() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    run.create("t", 2).await;
    run.stop().await;
    let rows = opener.rows();
    for (key, value) in rows {
        let mut bad = value.to_vec();
        *bad.last_mut().unwrap() ^= 1;
        let damaged = MemoryOpener::new();
        for (key, value) in opener.rows() {
            damaged.overwrite(key, value);
        }
        damaged.overwrite(key.clone(), bad.into());
        let opened = Controller::open(
            Arc::new(damaged),
            ControllerOptions::new(broker(1)),
            Arc::new(ManualClock::new(NOW)),
            counted_ids(),
            ControllerMetrics::register(&mut Registry::default()),
        )
        .await;
        assert!(
            matches!(opened, Err(OpenError::Damaged(_))),
            "a flipped bit in {key:?} went unnoticed"
        );
    }
}

#[tokio::test]
async fn a_restart_keeps_identity_and_raises_the_controller_epoch() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    let topic = run.create("t", 3).await;
    let before = run.handle.image().borrow().clone();
    assert!(matches!(run.stop().await, ControllerExit::Shutdown));
    let options = ControllerOptions {
        presumed_dead: Some(broker(1)),
        ..ControllerOptions::new(broker(1))
    };
    let run = Running::start_with(Arc::new(opener.clone()), options, 1).await;
    let after = run.handle.image().borrow().clone();
    assert_eq!(after.cluster_id(), before.cluster_id());
    assert_eq!(after.cluster_id().len(), 22);
    assert!(after.version() > before.version());
    assert_eq!(after.topic("t").unwrap().id, topic);
    assert_eq!(after.partition_count(), 3);
    let broker_image = after.broker(broker(1)).unwrap();
    assert!(!broker_image.alive, "its lease ran out");
    assert_eq!(after.topic("t").unwrap().partitions[0].leader, None);
}

#[tokio::test]
async fn a_new_controller_presumes_alive_who_led_and_nobody_else() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    run.handle
        .register_broker(registration(2, 1))
        .await
        .unwrap();
    run.create("t", 1).await;
    run.stop().await;
    let options = ControllerOptions {
        presumed_dead: Some(broker(9)),
        ..ControllerOptions::new(broker(9))
    };
    let run = Running::start_with(Arc::new(opener), options, 1).await;
    let image = run.handle.image().borrow().clone();
    assert!(image.broker(broker(1)).unwrap().alive);
    assert!(!image.broker(broker(2)).unwrap().alive);
    let leader = image.topic("t").unwrap().partitions[0].leader;
    assert_eq!(leader, Some(broker(1)));
}

async fn racing(opener: Arc<dyn StoreOpener>) {
    let first =
        Running::start_with(Arc::clone(&opener), ControllerOptions::new(broker(1)), 1).await;
    first.lead(1).await;
    first.create("before", 1).await;
    let second =
        Running::start_with(Arc::clone(&opener), ControllerOptions::new(broker(2)), 2).await;
    for i in 0..5 {
        let late = try_create(&first, &format!("late{i}")).await;
        assert!(late.is_err(), "a fenced controller must not acknowledge");
    }
    let exit = first.exited().await;
    assert!(
        matches!(exit, ControllerExit::Deposed { broker: b } if b == broker(2)),
        "{exit:?}"
    );
    create_at_last(&second, "after").await;
    second.stop().await;
    let third = Running::start_with(opener, ControllerOptions::new(broker(3)), 3).await;
    let image = third.handle.image().borrow().clone();
    let names: Vec<_> = image.topics().map(|t| t.name.to_string()).collect();
    assert_eq!(
        names,
        ["after", "before"],
        "nothing of the fenced one is visible"
    );
}

#[tokio::test]
async fn of_two_controllers_the_later_one_wins_in_memory() {
    racing(Arc::new(MemoryOpener::new())).await;
}

#[tokio::test]
async fn of_two_controllers_the_later_one_wins_on_slatedb() {
    racing(Arc::new(slate(Arc::new(InMemory::new())))).await;
}

#[tokio::test]
async fn requests_that_wait_share_a_batch() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    run.lead(1).await;
    let before = opener.batches();
    let created = futures::future::join_all((0..100).map(|i| {
        let handle = run.handle.clone();
        async move {
            let request = CreateTopics {
                topics: vec![new_topic(&format!("t{i}"), 1)],
                validate_only: false,
            };
            handle.create_topics(request).await.unwrap()[0]
                .clone()
                .unwrap()
        }
    }))
    .await;
    assert_eq!(created.len(), 100);
    let batches = opener.batches() - before;
    assert!(batches <= 10, "100 creates took {batches} batches");
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let options = ControllerOptions {
        queue: 2,
        ..ControllerOptions::new(broker(1))
    };
    let (handle, _task) = Controller::open(
        Arc::new(MemoryOpener::new()),
        options,
        Arc::new(ManualClock::new(NOW)),
        counted_ids(),
        ControllerMetrics::register(&mut Registry::default()),
    )
    .await
    .unwrap();
    let waiting = futures::future::join_all((0..3).map(|_| handle.led_by(broker(1))));
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    assert_eq!(
        handle.led_by(broker(1)).await,
        Err(ControllerUnavailable::Busy)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_partitions_open_fast_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let opener = Arc::new(slate(objects));
    let options = ControllerOptions::new(broker(1));
    let run = Running::start_with(opener.clone(), options.clone(), 1).await;
    run.lead(1).await;
    let topics = (0..100).map(|i| new_topic(&format!("t{i}"), 10)).collect();
    run.create_all(topics).await;
    run.stop().await;
    let started = Instant::now();
    let run = Running::start_with(opener, options, 2).await;
    let took = started.elapsed();
    assert_eq!(run.handle.image().borrow().partition_count(), 1_000);
    println!("opened 1,000 partitions in {took:?}");
    assert!(took < Duration::from_secs(2), "opening took {took:?}");
}
