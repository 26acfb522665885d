//! What every store must do: one suite, run over each implementation.

use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use tidegate_runtime::SystemClock;

use super::*;

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(rows: &[(&str, &str)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (k, v) in rows {
        batch.put(key(k), key(v));
    }
    batch
}

async fn all(store: &dyn MetadataStore) -> Vec<(Bytes, Bytes)> {
    store.scan(key("a")..key("z"), 1_000).await.unwrap()
}

async fn a_batch_is_readable_and_in_order(opener: &dyn StoreOpener) {
    let store = opener.open().await.unwrap();
    store
        .apply(put(&[("c", "3"), ("a", "1"), ("b", "2")]))
        .await
        .unwrap();
    let mut batch = WriteBatch::default();
    batch.delete(key("b"));
    batch.put(key("d"), key("4"));
    store.apply(batch).await.unwrap();
    assert_eq!(store.get(b"a").await.unwrap(), Some(key("1")));
    assert_eq!(store.get(b"b").await.unwrap(), None);
    assert_eq!(
        all(store.as_ref()).await,
        [
            (key("a"), key("1")),
            (key("c"), key("3")),
            (key("d"), key("4"))
        ]
    );
    let limited = store.scan(key("a")..key("d"), 1).await.unwrap();
    assert_eq!(limited, [(key("a"), key("1"))]);
    let empty = store.scan(key("d")..key("a"), 10).await.unwrap();
    assert!(empty.is_empty(), "an inverted range has no rows");
    store.close().await;
}

async fn what_was_applied_survives_without_a_close(opener: &dyn StoreOpener) {
    let store = opener.open().await.unwrap();
    store.apply(put(&[("m", "kept")])).await.unwrap();
    drop(store);
    let store = opener.open().await.unwrap();
    assert_eq!(store.get(b"m").await.unwrap(), Some(key("kept")));
    store.close().await;
}

async fn a_later_opener_fences_the_earlier(opener: &dyn StoreOpener) {
    let first = opener.open().await.unwrap();
    first.apply(put(&[("f", "first")])).await.unwrap();
    let second = opener.open().await.unwrap();
    let refused = first.apply(put(&[("f", "late"), ("g", "late")])).await;
    assert!(
        matches!(refused, Err(StoreError::Fenced)),
        "a fenced writer must be told so: {refused:?}"
    );
    second.apply(put(&[("h", "second")])).await.unwrap();
    assert_eq!(second.get(b"f").await.unwrap(), Some(key("first")));
    assert_eq!(second.get(b"g").await.unwrap(), None);
    drop(second);
    let third = opener.open().await.unwrap();
    assert_eq!(third.get(b"f").await.unwrap(), Some(key("first")));
    assert_eq!(third.get(b"g").await.unwrap(), None);
    assert_eq!(third.get(b"h").await.unwrap(), Some(key("second")));
    third.close().await;
}

async fn many_batches_are_all_there_after_reopening(opener: &dyn StoreOpener) {
    let store = opener.open().await.unwrap();
    for i in 0..100u32 {
        let text = format!("n{i:04}");
        store
            .apply(put(&[(&text, "v"), ("n", &text)]))
            .await
            .unwrap();
    }
    store.close().await;
    assert!(
        store.apply(put(&[("n", "closed")])).await.is_err(),
        "a closed store takes nothing"
    );
    let store = opener.open().await.unwrap();
    let rows = store.scan(key("n0")..key("n9"), 1_000).await.unwrap();
    assert_eq!(rows.len(), 100);
    assert_eq!(store.get(b"n").await.unwrap(), Some(key("n0099")));
    store.close().await;
}

async fn suite(opener: &dyn StoreOpener) {
    a_batch_is_readable_and_in_order(opener).await;
    what_was_applied_survives_without_a_close(opener).await;
    a_later_opener_fences_the_earlier(opener).await;
    many_batches_are_all_there_after_reopening(opener).await;
}

pub(crate) fn slate(objects: Arc<dyn ObjectStore>) -> SlateOpener {
    SlateOpener::new(
        objects,
        "cluster/meta",
        SlateOptions::default(),
        SystemClock::shared(),
    )
}

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    suite(&MemoryOpener::new()).await;
}

#[tokio::test]
async fn slatedb_in_memory_keeps_the_contract() {
    suite(&slate(Arc::new(InMemory::new()))).await;
}

#[tokio::test]
async fn slatedb_on_a_folder_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    suite(&slate(Arc::new(objects))).await;
}
