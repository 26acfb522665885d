//! Followed tails over a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use tidegate_metadata::{ByteSpan, StoredObjectKey};
use tidegate_types::{OffsetRange, TimestampMs};

use super::rig::{FakeTails, Rig, soon, until};
use super::samples::*;
use crate::orders::*;
use crate::rpc::{ClientOptions, ServerOptions};

const MIB: usize = 1 << 20;

fn request(index: u32) -> FollowRequest {
    FollowRequest {
        partition: partition(index),
        leader_epoch: epoch(2),
    }
}

fn start(from: u32) -> FollowItem {
    FollowItem::Start {
        from: offset(u64::from(from)),
        high_watermark: offset(u64::from(from) + 1),
        map: None,
    }
}

fn map_part() -> MapPart {
    let span = |position| ByteSpan {
        position,
        length: 10,
    };
    MapPart {
        from: offset(3),
        end: offset(9),
        swaps: 1,
        segments: vec![MapSegment {
            range: OffsetRange::new(offset(3), offset(9)).unwrap(),
            object: StoredObjectKey::new("data/1/2/3").unwrap(),
            object_size_bytes: 100,
            index: span(60),
            span: span(20),
            max_timestamp: TimestampMs::new(7),
            stored_at: TimestampMs::new(8),
        }],
    }
}

fn batches(start: usize, bytes: bytes::Bytes) -> FollowItem {
    FollowItem::Batches {
        leader_epoch: epoch(2),
        bytes,
        high_watermark: offset(start as u64),
    }
}

async fn rig(
    tails: impl Fn(FollowRequest) -> Result<Tail, FollowError> + Send + Sync + 'static,
) -> Rig {
    Rig::with(
        FakeTails(Box::new(tails)),
        ServerOptions::default(),
        ClientOptions::default(),
    )
    .await
}

#[tokio::test]
async fn every_item_and_the_end_come_as_they_were_sent() {
    let items = vec![
        Ok(start(3)),
        Ok(batches(9, bytes(100))),
        Ok(FollowItem::Sealed {
            end: offset(9),
            checkpoint: bytes(300),
            map: Some(map_part()),
        }),
        Err(FollowError::Failed("so".to_owned())),
    ];
    let sent = items.clone();
    let rig = rig(move |_| Ok(stream::iter(sent.clone()).boxed())).await;
    let tail = rig.remote_tails().follow(request(3)).await.unwrap();
    assert_eq!(tail.collect::<Vec<_>>().await, items);
}

#[tokio::test]
async fn a_refusal_to_be_followed_comes_at_once() {
    let rig = Rig::start().await;
    let followed = rig.remote_tails().follow(request(3)).await;
    assert_eq!(followed.err(), Some(FollowError::NotLeader));
    until("no stream is counted", || rig.metrics.streams.get() == 0).await;
}

#[tokio::test]
async fn sixty_four_mebibytes_flow_and_the_source_runs_only_a_little_ahead() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let payload = bytes(MIB);
    let rig = rig(move |_| {
        let (counter, payload) = (Arc::clone(&counter), payload.clone());
        let items = stream::iter(0..64).map(move |index| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(batches(index, payload.clone()))
        });
        Ok(items.boxed())
    })
    .await;
    let mut tail = rig.remote_tails().follow(request(3)).await.unwrap();
    let mut taken = 0;
    while let Some(item) = soon("the next item", tail.next()).await {
        assert_eq!(item, Ok(batches(taken, bytes(MIB))));
        taken += 1;
        if taken % 8 == 0 {
            // Give the source the time to run ahead.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let ahead = made.load(Ordering::SeqCst) - taken;
        assert!(ahead <= 4, "{ahead} MiB are under way");
    }
    assert_eq!(taken, 64);
}

#[tokio::test]
async fn a_thousand_tails_share_one_connection() {
    let rig = rig(|request| {
        let index = request.partition.index.get();
        let first = stream::iter([Ok(start(index))]);
        Ok(first.chain(stream::pending()).boxed())
    })
    .await;
    let tails = rig.remote_tails();
    let opened = (0..1_000).map(|index| {
        let tails = Arc::clone(&tails);
        async move {
            let mut tail = tails.follow(request(index)).await.unwrap();
            let first = tail.next().await;
            assert_eq!(first, Some(Ok(start(index))));
            tail
        }
    });
    let held = soon("all tails", futures::future::join_all(opened)).await;
    assert_eq!(rig.metrics.streams.get(), 1_000);
    assert_eq!(rig.metrics.connections.get(), 1);
    drop(held);
    until("all streams ended", || rig.metrics.streams.get() == 0).await;
    // Neither did so many ends at once cost the connection.
    let again = rig.remote_tails().follow(request(1)).await.unwrap();
    assert_eq!(rig.metrics.connections.get(), 1);
    drop(again);
}

#[tokio::test]
async fn a_follower_that_takes_nothing_holds_up_no_other() {
    let payload = bytes(MIB);
    let rig = rig(move |request| {
        let payload = payload.clone();
        let items = match request.partition.index.get() {
            0 => 3,
            _ => usize::MAX,
        };
        Ok(stream::iter(0..items)
            .map(move |index| Ok(batches(index, payload.clone())))
            .boxed())
    })
    .await;
    let mut stuck = Vec::new();
    for index in 1..100 {
        stuck.push(rig.remote_tails().follow(request(index)).await.unwrap());
    }
    let tail = rig.remote_tails().follow(request(0)).await.unwrap();
    let taken = soon("the tail", tail.count()).await;
    assert_eq!(taken, 3);
}

#[tokio::test]
async fn a_source_that_stops_says_so() {
    let rig = rig(|_| Ok(stream::pending().boxed())).await;
    let mut tail = rig.remote_tails().follow(request(3)).await.unwrap();
    rig.tasks.shutdown(Duration::from_secs(10)).await.unwrap();
    let last = soon("the end", tail.next()).await;
    assert!(
        matches!(last, Some(Err(FollowError::Unreachable(_)))),
        "{last:?}"
    );
    assert_eq!(tail.next().await, None);
}

#[tokio::test]
async fn a_follower_that_leaves_ends_the_tail_at_its_source() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Watch(Arc<AtomicUsize>);
    impl Drop for Watch {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let watched = Arc::clone(&dropped);
    let rig = rig(move |_| {
        let watch = Watch(Arc::clone(&watched));
        let items = stream::pending().map(move |item| {
            let _watch = &watch;
            item
        });
        Ok(items.boxed())
    })
    .await;
    let tail = rig.remote_tails().follow(request(3)).await.unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(tail);
    until("the source's end", || dropped.load(Ordering::SeqCst) == 1).await;
}
