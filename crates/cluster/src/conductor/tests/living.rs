//! Sessions, life and death, and what others take over.

use std::time::Duration;

use futures::StreamExt;
use tidegate_metadata::ClusterImage;
use tidegate_runtime::ManualClock;
use tidegate_types::{BrokerEpoch, LeaderEpoch, OffsetRange, TimestampMs};

use super::*;
use crate::admin::ClusterAdmin;
use crate::session::FeedItem;

fn alive(rig: &Rig, id: u32) -> bool {
    let image = rig.conductor().core.image();
    image.broker(broker(id)).unwrap().alive
}

fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange::new(Offset::new(start).unwrap(), Offset::new(end).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_silent_broker_is_dead_after_the_session_time_out_and_alive_again_when_heard() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    let p = partition(rig.topic("t", &[2]).await, 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(alive(&rig, 1) && alive(&rig, 2));
    rig.world.kill(broker(2));
    let died = tokio::time::Instant::now();
    rig.until(Duration::from_secs(3), "dead", |rig| !alive(rig, 2))
        .await;
    assert!(
        died.elapsed() >= Duration::from_millis(1_600),
        "{:?}",
        died.elapsed()
    );
    assert!(
        died.elapsed() <= Duration::from_millis(2_300),
        "{:?}",
        died.elapsed()
    );
    assert_eq!(rig.leader(p), None);
    assert_eq!(rig.metric("conductor_dead_brokers"), 1.0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    // All it leads is bound to its local WAL, so its life goes on where it was, under the same registration.
    assert_eq!(rig.log.fenced_at(broker(2), BrokerEpoch::new(1)), None);
    rig.world.wake(broker(2));
    rig.until(Duration::from_secs(2), "alive", |rig| alive(rig, 2))
        .await;
    assert_eq!(rig.leader(p), Some(broker(2)));
    assert_eq!(rig.metric("conductor_dead_brokers"), 0.0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_whose_session_broke_and_whose_port_is_deserted_is_dead_at_once() {
    let mut rig = Rig::new(DurabilityMode::Object).await;
    rig.start_all(1..=3).await;
    let p = partition(rig.topic("t", &[3]).await, 0);
    rig.world.desert(broker(3));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(
        alive(&rig, 3),
        "it has its session, so nobody looks at its port"
    );
    let died = tokio::time::Instant::now();
    rig.world.kill(broker(3));
    rig.until(Duration::from_secs(1), "failed over", |rig| {
        rig.leader(p).is_some_and(|leader| leader != broker(3))
    })
    .await;
    // The rig's sessions end up to 400 ms after the kill; the rest of the time-out isn't waited for.
    assert!(died.elapsed() < Duration::from_millis(800));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_opens_another_session_is_not_buried_for_the_one_that_broke() {
    let mut rig = Rig::unopened(DurabilityMode::Object);
    rig.open().await;
    let registered = rig.register(2).await;
    let host = rig.conductor();
    let first = host.open(hello(registered.broker, registered.broker_epoch));
    let first = first.await.unwrap();
    settle().await;
    rig.world.desert(broker(2));
    drop(first);
    // Before the second look.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let again = host.open(hello(registered.broker, registered.broker_epoch));
    let _again = again.await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(alive(&rig, 2));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn time_is_the_clocks_own_and_its_standing_still_kills_nobody() {
    let clock = Arc::new(ManualClock::new(TimestampMs::new(0)));
    let mut rig = Rig::unopened(DurabilityMode::Local);
    rig.clock = clock.clone();
    rig.open().await;
    rig.start_all(1..=2).await;
    rig.world.kill(broker(2));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(alive(&rig, 2));
    clock.advance(Duration::from_millis(1_900));
    settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(alive(&rig, 1) && alive(&rig, 2));
    clock.advance(Duration::from_millis(200));
    settle().await;
    assert!(alive(&rig, 1), "it was heard a second ago");
    assert!(!alive(&rig, 2));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_gives_everybody_one_time_out_except_who_is_known_to_be_dead() {
    let mut rig = Rig::new(DurabilityMode::Object).await;
    rig.start_all(1..=3).await;
    let topic = rig.topic("t", &[2, 3]).await;
    let (p, q) = (partition(topic, 0), partition(topic, 1));
    rig.drop_controller();
    rig.world.kill(broker(2));
    rig.world.kill(broker(3));
    rig.presumed_dead = Some(broker(2));
    rig.options.presumed_dead = vec![broker(2)];
    rig.open().await;
    assert!(!alive(&rig, 2) && alive(&rig, 3));
    assert_eq!(rig.leader(q), Some(broker(3)), "Metadata still names it");
    settle().await;
    assert_eq!(
        rig.leader(p),
        Some(broker(1)),
        "failed over without a grace"
    );
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(alive(&rig, 3));
    rig.until(Duration::from_secs(2), "failed over", |rig| {
        rig.leader(q) == Some(broker(1))
    })
    .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_brokers_stored_records_are_committed_and_led_on_by_the_survivors() {
    let mut rig = Rig::new(DurabilityMode::Object).await;
    rig.start_all(1..=3).await;
    let topic = rig.topic("t", &[3; 8]).await;
    let epoch = BrokerEpoch::new(1);
    for (sequence, records) in [(0, range(0, 5)), (1, range(5, 9))] {
        let p = partition(topic, 0);
        let first = LeaderEpoch::new(0).unwrap();
        rig.log.write(broker(3), epoch, sequence, p, first, records);
    }
    for _ in 0..9 {
        assert!(rig.world.append(partition(topic, 0)));
    }
    // The store fails for a while: the failover is repeated until it is done.
    rig.log.set_failing(true);
    rig.world.kill(broker(3));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(rig.metric("conductor_failover_attempts_failed_total") >= 3.0);
    assert_eq!(rig.leader(partition(topic, 0)), None);
    // From the moment its WAL may be fenced there is no way back under the same registration.
    let refused = rig.conductor().open(hello(broker(3), epoch)).await;
    assert!(
        matches!(refused, Err(HelloRefused::StaleBrokerEpoch(_))),
        "{refused:?}"
    );
    rig.log.set_failing(false);
    rig.until(Duration::from_secs(5), "failed over", |rig| {
        rig.leaders() == BTreeMap::from([(1, 4), (2, 4)])
    })
    .await;
    let state = rig.state(partition(topic, 0)).await;
    assert_eq!(state.committed_end.get(), 9);
    assert_eq!(state.leader_epoch_start().get(), 9);
    assert_eq!(rig.log.fenced_at(broker(3), epoch), Some(2));
    assert_eq!(rig.metric("conductor_failover_partitions_total"), 8.0);

    // It wakes up and finds its life ended; after a new registration it is one among the others.
    let refused = rig.conductor().open(hello(broker(3), epoch)).await;
    assert!(
        matches!(refused, Err(HelloRefused::StaleBrokerEpoch(_))),
        "{refused:?}"
    );
    let registered = rig.start(3).await;
    assert_eq!(
        registered.former_writer, None,
        "what it wrote is taken in already"
    );
    settle().await;
    assert!(alive(&rig, 3));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn several_dead_brokers_are_failed_over_side_by_side() {
    let mut rig = Rig::new(DurabilityMode::Object).await;
    rig.start_all(1..=5).await;
    let leaders: Vec<u32> = (0..40).map(|i| 1 + i % 5).collect();
    rig.topic("t", &leaders).await;
    for id in 2..=5 {
        rig.world.kill(broker(id));
    }
    rig.until(Duration::from_secs(4), "failed over", |rig| {
        rig.leaders() == BTreeMap::from([(1, 40)])
    })
    .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_nobody_is_left_the_partitions_wait_for_the_next_to_come() {
    let mut rig = Rig::new(DurabilityMode::Object).await;
    rig.start(1).await;
    let p = partition(rig.topic("t", &[1]).await, 0);
    rig.world.kill(broker(1));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.leader(p), None);
    assert_eq!(rig.log.fenced_at(broker(1), BrokerEpoch::new(1)), None);
    rig.start(2).await;
    rig.until(Duration::from_secs(3), "failed over", |rig| {
        rig.leader(p) == Some(broker(2))
    })
    .await;
    rig.stop().await;
}

/// Applies what a feed brings until it has nothing more.
async fn read(session: &mut OpenSession, image: &mut ClusterImage) -> Vec<FeedItem> {
    let mut items = Vec::new();
    while let Ok(Some(item)) =
        tokio::time::timeout(Duration::from_millis(50), session.feed.next()).await
    {
        if let FeedItem::Image(delta) = &item {
            *image = image.apply(delta).unwrap();
        }
        items.push(item);
    }
    items
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_one_large_change_and_ends_with_the_newest_picture() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start(1).await;
    let id = rig.register(2).await;
    let mut session = rig
        .conductor()
        .open(hello(id.broker, id.broker_epoch))
        .await
        .unwrap();
    let mut image = ClusterImage::empty("");
    assert_eq!(read(&mut session, &mut image).await.len(), 1);
    for i in 0..20 {
        rig.topic(&format!("t{i}"), &[1]).await;
        session
            .heartbeats
            .send(Heartbeat {
                sequence: i,
                ..Heartbeat::default()
            })
            .await
            .unwrap();
    }
    settle().await;
    let items = read(&mut session, &mut image).await;
    assert_eq!(items.len(), 2, "{items:?}");
    assert!(items.contains(&FeedItem::Ack { sequence: 19 }));
    assert_eq!(image, *rig.conductor().core.image());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_session_ends_the_older_and_a_newer_registration_says_so() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start(1).await;
    let mut image = ClusterImage::empty("");
    let first = rig.register(2).await;
    let host = rig.conductor().clone();
    let mut older = host
        .open(hello(first.broker, first.broker_epoch))
        .await
        .unwrap();
    let mut newer = host
        .open(hello(first.broker, first.broker_epoch))
        .await
        .unwrap();
    read(&mut older, &mut image).await;
    assert!(older.feed.next().await.is_none(), "it ends without a word");
    settle().await;
    assert!(older.heartbeats.is_closed());
    read(&mut newer, &mut image).await;
    let second = rig.register(2).await;
    settle().await;
    let items = read(&mut newer, &mut image).await;
    let Some(FeedItem::Ended(HelloRefused::StaleBrokerEpoch(stale))) = items.last() else {
        panic!("{items:?}");
    };
    assert_eq!(stale.current, Some(second.broker_epoch));
    assert!(newer.feed.next().await.is_none());
    let refused = host.open(hello(first.broker, first.broker_epoch)).await;
    assert!(matches!(refused, Err(HelloRefused::StaleBrokerEpoch(_))));
    let refused = host.open(hello(broker(9), first.broker_epoch)).await;
    assert!(matches!(refused, Err(HelloRefused::UnknownBroker(_))));
    let mut old = hello(second.broker, second.broker_epoch);
    old.protocol_version = 0;
    let refused = host.open(old).await;
    assert!(matches!(
        refused,
        Err(HelloRefused::UnsupportedVersion { .. })
    ));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deposed_conductor_ends_its_sessions_and_opens_none() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    let registered = rig.start(1).await;
    let host = rig.conductor().clone();
    let greeting = hello(registered.broker, registered.broker_epoch);
    let mut session = host.open(greeting.clone()).await.unwrap();
    let mut image = ClusterImage::empty("");
    read(&mut session, &mut image).await;
    host.stop(Duration::from_secs(5)).await.unwrap();
    assert!(session.feed.next().await.is_none());
    let refused = host.open(greeting).await;
    assert!(
        matches!(refused, Err(HelloRefused::NotController { .. })),
        "{refused:?}"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_what_brokers_report() {
    let mut rig = Rig::new(DurabilityMode::Local).await;
    rig.start_all(1..=2).await;
    rig.topic("t", &[1, 1, 2]).await;
    let id = rig.register(3).await;
    let session = rig
        .conductor()
        .open(hello(id.broker, id.broker_epoch))
        .await
        .unwrap();
    let heartbeat = Heartbeat {
        bytes_in_per_s: 77,
        ..Heartbeat::default()
    };
    session.heartbeats.send(heartbeat).await.unwrap();
    settle().await;
    let status = rig.conductor().cluster_status().await.unwrap();
    let led: Vec<u64> = status.brokers.iter().map(|b| b.led_partitions).collect();
    assert_eq!(led, [2, 1, 0]);
    assert_eq!(status.brokers[2].bytes_in_per_s, 77);
    assert_eq!(status.brokers[2].software_version, "test");
    assert_eq!(
        (status.topics, status.partitions, status.offline_count),
        (1, 3, 0)
    );
    assert_eq!(status.controller, broker(1));
    rig.stop().await;
}
