//! The numbered objects `<prefix>/lease/<20 digits>`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::LeaseBody;

/// Older numbers are deleted.
const KEPT: u64 = 64;
/// Numbers that one call looks through. More appear only if several take the lease from each other all the time.
const MAX_PROBES: u64 = 256;

/// One number of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// From 1 on.
    pub number: u64,
    /// What stands in it; `None` if it can't be read: a newer release's, or damaged. Then it is another's, for
    /// an unknown time.
    pub body: Option<LeaseBody>,
}

/// How a try to take a number ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It holds this very claim: by this request, or an earlier one whose answer was lost.
    Won,
    /// It holds another one.
    Taken(Lease),
}

/// Why the row couldn't be read or continued. Whether a number was created isn't known; asking again tells.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    /// The object store gave an error.
    #[error("the lease can't be read or taken now")]
    Store(#[source] Arc<object_store::Error>),
    /// More numbers come, or go, than can be followed.
    #[error("the lease is taken faster than it can be followed")]
    Racing,
}

impl From<object_store::Error> for LeaseError {
    fn from(error: object_store::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Reads, takes and trims the row. Its calls have no time-out of their own.
pub struct LeaseRow {
    objects: Arc<dyn ObjectStore>,
    folder: Path,
    /// The newest number at the last trimming; 0 if there was none.
    trimmed_at: AtomicU64,
}

impl LeaseRow {
    /// `prefix` is the cluster's prefix relative to the object store's root; it may be empty.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        Self {
            objects,
            folder: Path::from(prefix).join("lease"),
            trimmed_at: AtomicU64::new(0),
        }
    }

    fn path(&self, number: u64) -> Path {
        self.folder.clone().join(format!("{number:020}"))
    }

    /// The newest number: the row is listed, and continued number by number, since a listing may be stale.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn newest(&self) -> Result<Option<Lease>, LeaseError> {
        let listed = self.numbers().await?.last().copied();
        if let Some(newer) = self.behind(listed.unwrap_or(0)).await? {
            return Ok(Some(newer));
        }
        match listed {
            Some(number) => self.read(number).await,
            None => Ok(None),
        }
    }

    /// The newest number behind this one, followed one by one without a listing; `None` if the next is missing.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn behind(&self, number: u64) -> Result<Option<Lease>, LeaseError> {
        let mut newest = None;
        let first = number.saturating_add(1);
        for number in first..first.saturating_add(MAX_PROBES) {
            match self.read(number).await? {
                Some(lease) => newest = Some(lease),
                None => return Ok(newest),
            }
        }
        Err(LeaseError::Racing)
    }

    /// Creates a number, unless it exists. A number that was deleted long ago can be created again, without
    /// anybody looking at it: who may have paused looks at [`LeaseRow::newest`] afterwards.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn create(&self, number: u64, body: &LeaseBody) -> Result<Claim, LeaseError> {
        let payload = PutPayload::from(body.seal(number));
        let options = PutOptions {
            mode: PutMode::Create,
            ..PutOptions::default()
        };
        let path = self.path(number);
        match self.objects.put_opts(&path, payload, options).await {
            Ok(_) => return Ok(Claim::Won),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match self.read(number).await? {
            Some(lease) if lease.body.as_ref() == Some(body) => Ok(Claim::Won),
            Some(lease) => Ok(Claim::Taken(lease)),
            // It was deleted in between, so much newer ones are there.
            None => Err(LeaseError::Racing),
        }
    }

    /// Deletes what is much older than `newest`, oldest first. Does something only at every 64th number, and at
    /// the first call.
    ///
    /// # Errors
    /// See [`LeaseError`]; the next call goes on.
    pub async fn trim(&self, newest: u64) -> Result<(), LeaseError> {
        let trimmed_at = self.trimmed_at.load(Ordering::Relaxed);
        if trimmed_at != 0 && newest.saturating_sub(trimmed_at) < KEPT {
            return Ok(());
        }
        for number in self.numbers().await? {
            if number.saturating_add(KEPT) > newest {
                break;
            }
            match self.objects.delete(&self.path(number)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.trimmed_at.store(newest, Ordering::Relaxed);
        Ok(())
    }

    /// The numbers listed, in order.
    async fn numbers(&self) -> Result<Vec<u64>, LeaseError> {
        let listed = self.objects.list(Some(&self.folder));
        let mut numbers: Vec<u64> = listed
            .try_filter_map(|meta| {
                let number = meta.location.filename().filter(|name| name.len() == 20);
                let number = number.and_then(|name| name.parse::<u64>().ok());
                futures::future::ready(Ok(number))
            })
            .try_collect()
            .await?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn read(&self, number: u64) -> Result<Option<Lease>, LeaseError> {
        let bytes = match self.objects.get(&self.path(number)).await {
            Ok(found) => found.bytes().await?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let body = LeaseBody::open(number, &bytes);
        if let Err(error) = &body {
            tracing::warn!(number, %error, "a controller lease can't be read");
        }
        Ok(Some(Lease {
            number,
            body: body.ok(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use object_store::local::LocalFileSystem;
    use object_store::memory::InMemory;

    use super::super::LeaseKind;
    use super::super::body::tests::body;
    use super::*;

    fn held(number: u64, incarnation: u128) -> Lease {
        Lease {
            number,
            body: Some(body(incarnation)),
        }
    }

    async fn the_contract(objects: Arc<dyn ObjectStore>) {
        let row = LeaseRow::new(Arc::clone(&objects), "some/prefix");
        assert_eq!(row.newest().await.unwrap(), None);
        assert_eq!(row.create(1, &body(1)).await.unwrap(), Claim::Won);
        // Another one that saw the row empty loses, and learns to whom.
        let claim = row.create(1, &body(2)).await.unwrap();
        assert_eq!(claim, Claim::Taken(held(1, 1)));
        // The answer was lost: the repetition finds it done.
        assert_eq!(row.create(1, &body(1)).await.unwrap(), Claim::Won);
        // A renewal that landed late isn't mistaken for the release.
        let released = LeaseBody {
            kind: LeaseKind::Released,
            ..body(1)
        };
        let claim = row.create(1, &released).await.unwrap();
        assert_eq!(claim, Claim::Taken(held(1, 1)));
        assert_eq!(row.create(2, &released).await.unwrap(), Claim::Won);
        assert_eq!(row.create(3, &body(2)).await.unwrap(), Claim::Won);
        assert_eq!(row.newest().await.unwrap(), Some(held(3, 2)));
        assert_eq!(row.behind(1).await.unwrap(), Some(held(3, 2)));
        assert_eq!(row.behind(3).await.unwrap(), None);
        let other = LeaseRow::new(objects, "some");
        assert_eq!(other.newest().await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_contract_holds_in_memory() {
        the_contract(Arc::new(InMemory::new())).await;
    }

    #[tokio::test]
    async fn the_contract_holds_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
        the_contract(Arc::new(objects)).await;
    }

    #[tokio::test]
    async fn old_numbers_are_deleted_and_a_paused_process_sees_the_newest_all_the_same() {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let row = LeaseRow::new(Arc::clone(&objects), "");
        for number in 1..=200 {
            assert_eq!(row.create(number, &body(1)).await.unwrap(), Claim::Won);
            row.trim(number).await.unwrap();
            let kept = row.numbers().await.unwrap();
            assert!(kept.len() as u64 <= 2 * KEPT);
            assert!(number < KEPT || kept.len() as u64 >= KEPT);
        }
        // It finds the number behind its own free, far below the newest.
        assert_eq!(row.create(4, &body(2)).await.unwrap(), Claim::Won);
        assert_eq!(row.newest().await.unwrap(), Some(held(200, 1)));
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_read_is_anothers() {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let row = LeaseRow::new(Arc::clone(&objects), "p");
        let rubbish = PutPayload::from_static(b"TL\x09 from the future");
        objects.put(&row.path(1), rubbish).await.unwrap();
        let unreadable = Lease {
            number: 1,
            body: None,
        };
        assert_eq!(row.newest().await.unwrap(), Some(unreadable.clone()));
        let claim = row.create(1, &body(1)).await.unwrap();
        assert_eq!(claim, Claim::Taken(unreadable));
    }
}
