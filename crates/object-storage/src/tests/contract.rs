//! What every store does, whatever it is.

use futures::StreamExt;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tidegate_runtime::Random;

use super::{key, payload, scripted, seams};
use crate::{ObjectKey, ObjectStorage, PutOutcome, StoreError, StoreOptions, StorePlan};

fn open(url: &str) -> ObjectStorage {
    let url = url.parse().unwrap();
    ObjectStorage::open(
        &url,
        StoreOptions::default(),
        &seams(),
        &mut Registry::default(),
    )
    .unwrap()
}

/// Each store under test, with what must outlive it. Where the environment names a bucket of a real S3
/// server (`TIDEGATE_TEST_S3_URL=s3://bucket`, with `AWS_…` for the rest) it is one of them.
fn stores() -> Vec<(&'static str, ObjectStorage, Option<TempDir>)> {
    let folder = TempDir::new().unwrap();
    let nested = folder.path().join("not/there/yet");
    let mut stores = vec![
        ("memory", open("memory:///"), None),
        ("folder", open(nested.to_str().unwrap()), Some(folder)),
        ("scripted", scripted().1, None),
    ];
    if let Ok(bucket) = std::env::var("TIDEGATE_TEST_S3_URL") {
        let prefix = Random::from_system().next_u64();
        stores.push((
            "s3",
            open(&format!("{bucket}/contract/{prefix:016x}")),
            None,
        ));
    }
    stores
}

async fn list(storage: &ObjectStorage, prefix: &str) -> Vec<String> {
    let mut keys: Vec<_> = storage
        .list(prefix)
        .map(|listed| listed.unwrap().key.to_string())
        .collect()
        .await;
    keys.sort();
    keys
}

#[tokio::test]
async fn what_was_created_is_read_back_whole_in_part_and_from_its_end() {
    for (name, storage, _guard) in stores() {
        let created = storage.put_create(&key(0), payload("0123456789")).await;
        assert_eq!(created.unwrap(), PutOutcome::Created, "{name}");
        assert_eq!(storage.get(&key(0)).await.unwrap(), "0123456789", "{name}");
        assert_eq!(storage.get_range(&key(0), 2..5).await.unwrap(), "234");
        assert_eq!(storage.get_range(&key(0), 5..5).await.unwrap(), "");
        let (tail, size) = storage.get_tail(&key(0), 3).await.unwrap();
        assert_eq!((&tail[..], size), (&b"789"[..], 10));
        let (tail, size) = storage.get_tail(&key(0), 100).await.unwrap();
        assert_eq!((tail.len(), size), (10, 10));
        assert_eq!(storage.head(&key(0)).await.unwrap(), Some(10));
    }
}

#[tokio::test]
async fn a_second_create_changes_nothing_and_says_so() {
    for (name, storage, _guard) in stores() {
        storage.put_create(&key(0), payload("first")).await.unwrap();
        let second = storage.put_create(&key(0), payload("second")).await;
        assert_eq!(second.unwrap(), PutOutcome::AlreadyExists, "{name}");
        assert_eq!(storage.get(&key(0)).await.unwrap(), "first", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_racing_creates_exactly_one_wins() {
    for (name, storage, _guard) in stores() {
        for round in 0..5 {
            let writers = (0..30).map(|writer| {
                let storage = storage.clone();
                async move {
                    let body = vec![bytes::Bytes::from(format!("writer {writer}"))];
                    (writer, storage.put_create(&key(round), body).await.unwrap())
                }
            });
            let tasks: Vec<_> = writers.map(tokio::task::spawn).collect();
            let mut winners = Vec::new();
            for task in tasks {
                let (writer, outcome) = task.await.unwrap();
                if outcome == PutOutcome::Created {
                    winners.push(writer);
                }
            }
            assert_eq!(winners.len(), 1, "{name}: {winners:?}");
            let stored = storage.get(&key(round)).await.unwrap();
            assert_eq!(stored, format!("writer {}", winners[0]), "{name}");
        }
    }
}

#[tokio::test]
async fn absent_objects_are_not_found_and_deleting_them_succeeds() {
    for (name, storage, _guard) in stores() {
        let error = storage.get(&key(9)).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound(_)), "{name}: {error}");
        assert!(!error.is_retriable());
        assert_eq!(storage.head(&key(9)).await.unwrap(), None, "{name}");
        storage.delete(&key(9)).await.unwrap();
        storage.put_create(&key(9), payload("here")).await.unwrap();
        storage.delete(&key(9)).await.unwrap();
        storage.delete(&key(9)).await.unwrap();
        assert_eq!(storage.head(&key(9)).await.unwrap(), None, "{name}");
        let again = storage.put_create(&key(9), payload("again")).await;
        assert_eq!(again.unwrap(), PutOutcome::Created, "{name}");
    }
}

#[tokio::test]
async fn a_range_past_the_end_is_refused_not_shortened() {
    for (name, storage, _guard) in stores() {
        storage
            .put_create(&key(0), payload("0123456789"))
            .await
            .unwrap();
        for range in [5..11, 20..30] {
            let result = storage.get_range(&key(0), range).await;
            assert!(result.is_err(), "{name}: {result:?}");
        }
    }
}

#[tokio::test]
async fn listings_follow_the_pages_to_the_end_and_stay_under_their_prefix() {
    for (name, storage, _guard) in stores() {
        // Durable creates in a folder cost two syncs each.
        let count = if name == "folder" { 120 } else { 1200 };
        for sequence in 0..count {
            storage
                .put_create(&key(sequence), payload("xy"))
                .await
                .unwrap();
        }
        let other = ObjectKey::new("data/10/2/x").unwrap();
        storage.put_create(&other, payload("xy")).await.unwrap();
        let expected: Vec<_> = (0..count).map(|s| key(s).to_string()).collect();
        assert_eq!(list(&storage, "data/1").await, expected, "{name}");
        assert_eq!(list(&storage, "").await.len() as u64, count + 1, "{name}");
        assert_eq!(list(&storage, "nothing/here").await.len(), 0, "{name}");
    }
}

#[tokio::test]
async fn the_raw_store_sees_the_same_objects_under_the_same_names() {
    use object_store::ObjectStoreExt;
    for (name, storage, _guard) in stores() {
        storage
            .put_create(&key(0), payload("0123456789"))
            .await
            .unwrap();
        let raw = storage.raw();
        let path = object_store::path::Path::from(key(0).as_str());
        let bytes = raw.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, "0123456789", "{name}");
        let meta = object_store::path::Path::from("meta/manifest/1");
        raw.put(&meta, "m".into()).await.unwrap();
        assert_eq!(
            storage
                .get(&ObjectKey::new("meta/manifest/1").unwrap())
                .await
                .unwrap(),
            "m"
        );
        raw.delete(&meta).await.unwrap();
        assert_eq!(list(&storage, "meta").await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn planning_a_store_makes_nothing_and_knows_whether_its_folder_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("deep/store");
    let url = folder.to_str().unwrap().parse().unwrap();
    let plan = || {
        let mut registry = Registry::default();
        StorePlan::new(&url, StoreOptions::default(), &seams(), &mut registry).unwrap()
    };
    let first = plan();
    assert!(first.is_empty());
    assert!(!dir.path().join("deep").exists());
    let store = first.open().unwrap();
    assert!(plan().is_empty());
    let key = ObjectKey::new("one").unwrap();
    store.put_create(&key, vec!["1".into()]).await.unwrap();
    assert!(!plan().is_empty());
}

#[test]
fn a_folder_that_cant_be_created_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = file.path().join("data");
    let url = inside.to_str().unwrap().parse().unwrap();
    let error = ObjectStorage::open(
        &url,
        StoreOptions::default(),
        &seams(),
        &mut Registry::default(),
    );
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("data") && message.contains("folder"),
        "{message}"
    );
}
