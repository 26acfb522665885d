//! The proxy's promises, checked with a real S3 client against a real S3 server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use tidegate_harness::{Action, FaultProxy, Operation, S3Server};

struct Lab {
    server: S3Server,
    proxy: FaultProxy,
    store: AmazonS3,
}

fn lab(retries: usize) -> Lab {
    let server = S3Server::start_with_bucket("lab").expect("the S3 server starts");
    let proxy = FaultProxy::start(&server.address()).expect("the proxy starts");
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name("lab")
        .with_allow_http(true)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig {
            max_retries: retries,
            retry_timeout: Duration::from_secs(10),
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(10),
                max_backoff: Duration::from_millis(50),
                base: 2.0,
            },
        });
    for (key, value) in S3Server::client_environment(&proxy.address()) {
        builder = builder.with_config(key.to_lowercase().parse().expect("a known variable"), value);
    }
    Lab {
        server,
        proxy,
        store: builder.build().expect("a valid configuration"),
    }
}

fn create_only() -> PutOptions {
    PutOptions {
        mode: PutMode::Create,
        ..PutOptions::default()
    }
}

#[tokio::test]
async fn requests_pass_unchanged_without_rules() {
    let lab = lab(0);
    let key = Path::from("a/b c");
    lab.store
        .put(&key, vec![7_u8; 3_000_000].into())
        .await
        .unwrap();
    assert_eq!(
        lab.store
            .get(&key)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap()
            .len(),
        3_000_000
    );
    assert_eq!(
        lab.store
            .list_with_delimiter(None)
            .await
            .unwrap()
            .common_prefixes
            .len(),
        1
    );
    assert!(lab.store.get(&Path::from("absent")).await.is_err());
    assert_eq!(lab.server.keys("lab", "a/").unwrap(), ["a/b c"]);
    lab.store.delete(&key).await.unwrap();
    assert!(lab.server.keys("lab", "").unwrap().is_empty());
    let operations: Vec<Operation> = lab
        .proxy
        .requests()
        .iter()
        .map(|logged| logged.request.operation)
        .collect();
    assert_eq!(operations[..2], [Operation::Put, Operation::Get]);
}

#[tokio::test]
async fn a_throttled_request_is_retried_by_the_client_and_counted() {
    let lab = lab(5);
    let rule = lab.proxy.add_times(2, Action::SLOW_DOWN, |request| {
        request.operation == Operation::Put
    });
    lab.store.put(&Path::from("k"), "v".into()).await.unwrap();
    assert_eq!(lab.proxy.uses(rule), 2);
    assert_eq!(lab.server.keys("lab", "").unwrap(), ["k"]);
}

#[tokio::test]
async fn a_dropped_reply_leaves_the_object_behind() {
    let lab = lab(0);
    lab.proxy
        .add_times(1, Action::DropReply, |request| request.create_only);
    assert!(
        lab.store
            .put_opts(&Path::from("k"), "v".into(), create_only())
            .await
            .is_err()
    );
    assert_eq!(lab.server.keys("lab", "").unwrap(), ["k"]);
    let again = lab
        .store
        .put_opts(&Path::from("k"), "v".into(), create_only())
        .await;
    assert!(
        matches!(again, Err(object_store::Error::AlreadyExists { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_reset_or_denied_request_never_reaches_the_store() {
    let lab = lab(0);
    lab.proxy
        .add_times(1, Action::Reset, |request| request.operation.is_upload());
    assert!(lab.store.put(&Path::from("k"), "v".into()).await.is_err());
    lab.proxy
        .add_times(1, Action::DENIED, |request| request.operation.is_upload());
    assert!(lab.store.put(&Path::from("k"), "v".into()).await.is_err());
    assert!(lab.server.keys("lab", "").unwrap().is_empty());
}

#[tokio::test]
async fn hidden_keys_are_missing_from_listings_only() {
    let lab = lab(0);
    for key in ["w/1", "w/2", "w/3"] {
        lab.store.put(&Path::from(key), "v".into()).await.unwrap();
    }
    let rule = lab.proxy.add(
        Action::HideFromListing(Arc::new(|key| key == "w/3")),
        |request| request.operation == Operation::List,
    );
    assert_eq!(list_all(&lab.store).await, ["w/1", "w/2"]);
    assert!(lab.store.get(&Path::from("w/3")).await.is_ok());
    lab.proxy.remove(rule);
    assert_eq!(list_all(&lab.store).await, ["w/1", "w/2", "w/3"]);
}

#[tokio::test]
async fn a_delayed_request_is_late_and_done() {
    let lab = lab(0);
    lab.proxy
        .add(Action::Delay(Duration::from_millis(300)), |_| true);
    let start = Instant::now();
    lab.store.put(&Path::from("k"), "v".into()).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// All keys below `w`, sorted.
async fn list_all(store: &AmazonS3) -> Vec<String> {
    let listing = store
        .list_with_delimiter(Some(&Path::from("w")))
        .await
        .expect("the listing works");
    let mut keys: Vec<String> = listing
        .objects
        .into_iter()
        .map(|object| object.location.to_string())
        .collect();
    keys.sort();
    keys
}
