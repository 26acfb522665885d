//! Faults of the store, and how requests and health react.

use std::time::Duration;

use futures::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use tokio::time::Instant;

use super::{key, payload, scripted};
use crate::testing::Fault;
use crate::{
    FaultKind, ObjectStorage, Operation, PutOutcome, RequestClass, StoreError, StoreHealth,
};

/// Waits, in simulated time, until the health is as wanted.
async fn health_becomes(storage: &ObjectStorage, accessible: bool) -> StoreHealth {
    let mut health = storage.health();
    let wanted = health.wait_for(|h| h.is_accessible() == accessible);
    tokio::time::timeout(Duration::from_secs(60), wanted)
        .await
        .expect("the health should change within a minute")
        .unwrap()
        .clone()
}

#[tokio::test(start_paused = true)]
async fn passing_faults_are_retried_whatever_the_request() {
    use Fault::{ClockSkew, Conflict, InternalError, SlowDown};
    for fault in [SlowDown, InternalError, ClockSkew, Fault::Hang] {
        let (store, storage) = scripted();
        let twice = || [fault.clone(), fault.clone()];
        store.next(Operation::Put, "", twice());
        let put = storage.put_create(&key(0), payload("body")).await;
        assert_eq!(put.unwrap(), PutOutcome::Created, "{fault:?}");
        store.next(Operation::Get, "", twice());
        assert_eq!(storage.get(&key(0)).await.unwrap(), "body", "{fault:?}");
        store.next(Operation::Head, "", twice());
        assert_eq!(storage.head(&key(0)).await.unwrap(), Some(4), "{fault:?}");
        store.next(Operation::List, "", twice());
        assert_eq!(storage.list("").count().await, 1, "{fault:?}");
        store.next(Operation::Delete, "", twice());
        storage.delete(&key(0)).await.unwrap();
        assert_eq!(store.seen(Operation::Delete).len(), 3, "{fault:?}");
    }
    let (store, storage) = scripted();
    store.next(Operation::Put, "", [Conflict, Conflict]);
    let put = storage.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_comes_back_as_exists_and_the_object_is_whole() {
    for fault in [Fault::LostReply, Fault::HangAfter] {
        let (store, storage) = scripted();
        store.next(Operation::Put, "", [fault.clone()]);
        let put = storage.put_create(&key(0), payload("mine")).await;
        assert_eq!(put.unwrap(), PutOutcome::AlreadyExists, "{fault:?}");
        assert_eq!(storage.get(&key(0)).await.unwrap(), "mine", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_over_an_object_that_exists_is_settled_as_exists() {
    let (store, storage) = scripted();
    storage
        .put_create(&key(0), payload("theirs"))
        .await
        .unwrap();
    store.always(Some(Operation::Put), "", Fault::Conflict);
    let put = storage.put_create(&key(0), payload("mine")).await;
    assert_eq!(put.unwrap(), PutOutcome::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn a_request_gives_up_after_its_class_s_time_and_names_the_unknown_outcome() {
    let (store, storage) = scripted();
    store.always(None, "", Fault::Hang);
    let started = Instant::now();
    let storage = storage.with_class(RequestClass::Wal);
    let error = storage
        .put_create(&key(0), payload("body"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::TimedOut(_)), "{error}");
    assert!(error.is_retriable());
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    let request = error.request();
    assert!(request.attempts >= 3, "{request}");
    assert!(error.to_string().contains("bucket") && error.to_string().contains("data/1/2/"));
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_slow_down_costs_few_requests_and_doesnt_count_as_lost() {
    let (store, storage) = scripted();
    store.always(None, "", Fault::SlowDown);
    let end = Instant::now() + Duration::from_secs(60);
    let clients = (0..20).map(|n| {
        let storage = storage.clone();
        async move {
            while Instant::now() < end {
                let error = storage.get(&key(n)).await.unwrap_err();
                assert!(matches!(error, StoreError::Throttled(_)), "{error}");
            }
        }
    });
    let seen = store.clone();
    let count = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let seen = seen.seen(Operation::Get);
        let second_half = seen.iter().filter(|s| end - s.at < Duration::from_secs(30));
        (seen.len(), second_half.count())
    };
    let all = futures::future::join_all(clients);
    let (_, (total, second_half)) = tokio::join!(all, count);
    assert!(
        total < 400,
        "{total} requests by 20 clients in a minute of 503"
    );
    assert!(
        second_half < 40,
        "{second_half} in the second half: the rate doesn't fall"
    );
    assert!(storage.health().borrow().is_accessible());
    store.heal();
    assert_eq!(storage.head(&key(0)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_bucket_is_told_once_and_healed_by_the_probe_alone() {
    for (fault, kind) in [
        (Fault::BucketMissing, FaultKind::BucketMissing),
        (Fault::Denied, FaultKind::Denied),
    ] {
        let (store, storage) = scripted();
        let mut health = storage.health();
        store.always(None, "", fault);
        let error = storage
            .put_create(&key(0), payload("body"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(
            error.request().attempts,
            1,
            "what needs a human is reported at once"
        );
        assert!(error.is_retriable());
        let StoreHealth::Inaccessible { cause, bucket, .. } = health.borrow_and_update().clone()
        else {
            panic!("{kind:?} should make the store inaccessible");
        };
        assert_eq!((cause.kind, bucket.as_str()), (kind, "bucket"));
        let before = store.seen(Operation::Get).len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let probes = store.seen(Operation::Get).len() - before;
        assert!((10..40).contains(&probes), "{probes} probes in a minute");
        assert!(!health.has_changed().unwrap(), "told once");
        store.heal();
        assert_eq!(
            health_becomes(&storage, true).await,
            StoreHealth::Accessible
        );
        let put = storage.put_create(&key(0), payload("body")).await;
        assert_eq!(put.unwrap(), PutOutcome::Created);
    }
}

#[tokio::test(start_paused = true)]
async fn rights_to_read_alone_dont_heal() {
    let (store, storage) = scripted();
    store.always(Some(Operation::Put), "", Fault::Denied);
    storage
        .put_create(&key(0), payload("body"))
        .await
        .unwrap_err();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!storage.health().borrow().is_accessible());
    store.heal();
    health_becomes(&storage, true).await;
}

#[tokio::test(start_paused = true)]
async fn one_time_out_isnt_a_lost_store_but_seconds_of_them_are() {
    let (store, storage) = scripted();
    store.next(Operation::Get, "", [Fault::Hang]);
    storage.get(&key(0)).await.unwrap_err();
    assert!(storage.health().borrow().is_accessible());
    store.always(None, "", Fault::Hang);
    storage.get(&key(0)).await.unwrap_err();
    let StoreHealth::Inaccessible { cause, .. } = health_becomes(&storage, false).await else {
        panic!("waited for it");
    };
    assert_eq!(cause.kind, FaultKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_denied_delete_leaves_the_store_accessible() {
    let (store, storage) = scripted();
    store.always(Some(Operation::Delete), "", Fault::Denied);
    let error = storage.delete(&key(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::Denied(_)));
    assert!(storage.health().borrow().is_accessible());
}

#[tokio::test(start_paused = true)]
async fn a_listing_broken_on_its_second_page_goes_on_where_it_broke() {
    let (store, storage) = scripted();
    for sequence in 0..2500 {
        storage
            .put_create(&key(sequence), payload("xy"))
            .await
            .unwrap();
    }
    let faults = [
        Fault::None,
        Fault::InternalError,
        Fault::None,
        Fault::SlowDown,
    ];
    store.next(Operation::List, "", faults);
    let keys: Vec<_> = storage.list("data").map(|l| l.unwrap().key).collect().await;
    let expected: Vec<_> = (0..2500).map(key).collect();
    assert_eq!(keys, expected);
}

#[tokio::test(start_paused = true)]
async fn stale_listings_show_and_single_keys_still_tell_the_truth() {
    let (store, storage) = scripted();
    for sequence in 0..3 {
        storage
            .put_create(&key(sequence), payload("xy"))
            .await
            .unwrap();
    }
    store.hide_from_lists("00002");
    store.add_ghost(key(7).as_str());
    let keys: Vec<_> = storage.list("data").map(|l| l.unwrap().key).collect().await;
    assert_eq!(keys, [key(0), key(1), key(7)]);
    assert_eq!(storage.head(&key(2)).await.unwrap(), Some(2));
    assert!(storage.get(&key(7)).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn the_raw_store_makes_one_attempt_except_over_a_conflict() {
    let (store, storage) = scripted();
    let raw = storage.raw();
    let path = object_store::path::Path::from("meta/1");
    let create = || object_store::PutOptions::from(PutMode::Create);
    store.next(Operation::Put, "", [Fault::InternalError]);
    raw.put_opts(&path, "a".into(), create()).await.unwrap_err();
    assert_eq!(store.seen(Operation::Put).len(), 1);
    // A conflict isn't "exists": whoever is told "exists" concludes that it was fenced.
    store.next(Operation::Put, "", [Fault::Conflict, Fault::Conflict]);
    raw.put_opts(&path, "a".into(), create()).await.unwrap();
    let again = raw.put_opts(&path, "b".into(), create()).await;
    assert!(matches!(
        again,
        Err(object_store::Error::AlreadyExists { .. })
    ));
    let other = object_store::path::Path::from("meta/2");
    store.always(Some(Operation::Put), "", Fault::Conflict);
    let never = raw.put_opts(&other, "a".into(), create()).await;
    assert!(
        matches!(never, Err(object_store::Error::Generic { .. })),
        "{never:?}"
    );
    store.always(Some(Operation::Get), "meta/1", Fault::BucketMissing);
    raw.get(&path).await.unwrap_err();
    assert!(!storage.health().borrow().is_accessible());
}
