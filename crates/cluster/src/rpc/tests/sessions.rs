//! Sessions over a connection.

use futures::StreamExt;
use std::time::Duration;
use tidegate_metadata::ClusterImage;
use tidegate_metadata::api::StaleBrokerEpoch;
use tidegate_types::ControllerEpoch;
use uuid::Uuid;

use super::rig::{Rig, session, soon, until};
use super::samples::*;
use crate::session::*;

fn hello() -> Hello {
    Hello {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        incarnation: Uuid::from_u128(1),
        wal: Some(Uuid::from_u128(2)),
        kafka: Some(endpoint(9092)),
        protocol_version: PROTOCOL_VERSION,
        software_version: "0.1.0".to_owned(),
        features: vec!["x".to_owned()],
    }
}

fn welcome() -> Welcome {
    Welcome {
        controller_epoch: ControllerEpoch::new(5),
        session_timeout: Duration::from_secs(2),
    }
}

fn beat(sequence: u64) -> Heartbeat {
    Heartbeat {
        sequence,
        led_partitions: 1,
        bytes_in_per_s: 2,
        bytes_out_per_s: 3,
        requests_per_s: 4,
    }
}

#[tokio::test]
async fn heartbeats_go_up_and_the_feed_comes_down() {
    let rig = Rig::start().await;
    let (open, mut beating, feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let mut held = rig.remote_host().open(hello()).await.unwrap();
    assert_eq!(held.welcome, welcome());
    assert_eq!(rig.host.open.last(), hello());
    for sequence in 0..20 {
        held.heartbeats.send(beat(sequence)).await.unwrap();
        let heard = soon("a heartbeat", beating.recv()).await;
        assert_eq!(heard, Some(beat(sequence)));
        feeding.send(FeedItem::Ack { sequence }).await.unwrap();
        let fed = soon("an acknowledgement", held.feed.next()).await;
        assert_eq!(fed, Some(FeedItem::Ack { sequence }));
    }
}

#[tokio::test]
async fn pictures_and_their_changes_come_down() {
    let rig = Rig::start().await;
    let (open, _beating, feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let mut held = rig.remote_host().open(hello()).await.unwrap();
    let picture = ClusterImage::empty("c");
    for delta in [picture.snapshot(), picture.delta_to(&picture)] {
        let item = FeedItem::Image(Box::new(delta));
        feeding.send(item.clone()).await.unwrap();
        assert_eq!(soon("a picture", held.feed.next()).await, Some(item));
    }
}

#[tokio::test]
async fn a_dropped_session_is_silence_at_the_controller() {
    let rig = Rig::start().await;
    let (open, mut beating, feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let held = rig.remote_host().open(hello()).await.unwrap();
    drop(held);
    assert_eq!(soon("the end of heartbeats", beating.recv()).await, None);
    soon("the end of the feed", feeding.closed()).await;
}

#[tokio::test]
async fn a_session_that_the_controller_ends_ends_with_its_reason() {
    let rig = Rig::start().await;
    let (open, _beating, feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let mut held = rig.remote_host().open(hello()).await.unwrap();
    let ended = FeedItem::Ended(HelloRefused::NotController { known: None });
    feeding.send(ended.clone()).await.unwrap();
    drop(feeding);
    assert_eq!(held.feed.next().await, Some(ended));
    assert_eq!(held.feed.next().await, None);
    soon("the session over", held.heartbeats.closed()).await;
}

#[tokio::test]
async fn a_server_that_stops_ends_its_sessions() {
    let rig = Rig::start().await;
    let (open, mut beating, _feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let mut held = rig.remote_host().open(hello()).await.unwrap();
    rig.tasks.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(soon("the end of the feed", held.feed.next()).await, None);
    assert_eq!(soon("the end of heartbeats", beating.recv()).await, None);
}

#[tokio::test]
async fn heartbeats_arrive_while_the_broker_takes_nothing_of_the_feed() {
    let rig = Rig::start().await;
    let (open, mut beating, feeding) = session(welcome());
    rig.host.open.answers(Ok(open));
    let held = rig.remote_host().open(hello()).await.unwrap();
    let long = "x".repeat(1 << 20);
    let items = async {
        loop {
            let item = FeedItem::Ended(HelloRefused::Unsupported(long.clone()));
            if feeding.send(item).await.is_err() {
                return;
            }
        }
    };
    let beats = async {
        // Until the windows are full, and then some.
        for sequence in 0..50 {
            held.heartbeats.send(beat(sequence)).await.unwrap();
            assert_eq!(
                soon("a heartbeat", beating.recv()).await,
                Some(beat(sequence))
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = items => panic!("the feed was closed"),
        () = beats => {}
    }
}

#[tokio::test]
async fn refusals_reach_the_broker() {
    let rig = Rig::start().await;
    let host = rig.remote_host();
    let stale = HelloRefused::StaleBrokerEpoch(StaleBrokerEpoch {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        current: None,
    });
    for refused in [stale, HelloRefused::UnknownBroker(broker(1))] {
        rig.host.open.answers(Err(refused.clone()));
        assert_eq!(host.open(hello()).await.unwrap_err(), refused);
    }
    until("no stream is counted", || rig.metrics.streams.get() == 0).await;
}

#[tokio::test]
async fn who_is_not_the_controller_names_whom_it_takes_for_it() {
    let rig = Rig::start().await;
    rig.active.send_replace(None);
    let known = Some((broker(2), endpoint(9094)));
    rig.known.send_replace(known.clone());
    assert_eq!(
        rig.remote_host().open(hello()).await.unwrap_err(),
        HelloRefused::NotController { known }
    );
}

#[tokio::test]
async fn a_version_from_before_the_oldest_is_refused() {
    let rig = Rig::start().await;
    let mut hello = hello();
    hello.protocol_version = 0;
    assert_eq!(
        rig.remote_host().open(hello).await.unwrap_err(),
        HelloRefused::UnsupportedVersion {
            offered: 0,
            oldest: OLDEST_PROTOCOL_VERSION,
            newest: PROTOCOL_VERSION,
        }
    );
}
