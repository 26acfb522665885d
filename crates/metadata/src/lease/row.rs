//! The numbered objects `<prefix>/lease/<20 digits>`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{LeaseBody, LeaseKind};

/// Older numbers are deleted.
const KEPT: u64 = 64;
/// Numbers that one call looks through. More appear only if several take the lease from each other all the time.
const MAX_PROBES: u64 = 256;

/// The newest number of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its number, from 1 on.
    pub number: u64,
    /// What stands in it; `None` if it can't be read: a newer release's, or damaged.
    pub body: Option<LeaseBody>,
}

impl Lease {
    /// Whether one life wrote both, for the same purpose.
    fn is_like(&self, body: &LeaseBody) -> bool {
        self.body
            .as_ref()
            .is_some_and(|own| own.incarnation == body.incarnation && own.kind == body.kind)
    }
}

/// How a try to take the lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The number is this life's, and the newest.
    Won(Lease),
    /// Another's is newer.
    Lost(Lease),
}

/// Why the row couldn't be read or continued. Whether a number was created isn't known; asking again tells.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    /// The object store gave an error.
    #[error("the lease can't be read or taken now")]
    Store(#[source] Arc<object_store::Error>),
    /// More numbers appear than can be followed.
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
            folder: Path::from_iter(Path::from(prefix).parts().chain(["lease".into()])),
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
        let mut newest = match listed {
            Some(number) => self.read(number).await?,
            None => None,
        };
        let first = listed.unwrap_or(0).saturating_add(1);
        for number in first..first.saturating_add(MAX_PROBES) {
            match self.read(number).await? {
                Some(lease) => newest = Some(lease),
                None => return Ok(newest),
            }
        }
        Err(LeaseError::Racing)
    }

    /// Creates the number behind `after`, and checks that none is newer. Call it again after an error: a number
    /// that this life created before its answer was lost is recognised.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn create_next(
        &self,
        after: Option<u64>,
        body: &LeaseBody,
    ) -> Result<Claim, LeaseError> {
        let first = after.unwrap_or(0).saturating_add(1);
        for number in first..first.saturating_add(MAX_PROBES) {
            if !self.create(number, body).await? {
                match self.read(number).await? {
                    // Deleted meanwhile, so much newer ones are there.
                    None => {}
                    Some(lease) => match &lease.body {
                        Some(found) if found.incarnation != body.incarnation => {
                            return Ok(Claim::Lost(self.newest().await?.unwrap_or(lease)));
                        }
                        None => return Ok(Claim::Lost(self.newest().await?.unwrap_or(lease))),
                        // An earlier request of this life, of another kind: a release isn't a renewal.
                        Some(found) if found.kind != body.kind => continue,
                        Some(_) => {}
                    },
                }
            }
            return match self.newest().await? {
                Some(newest) if newest.number > number && newest.is_like(body) => {
                    Ok(Claim::Won(newest))
                }
                Some(newest) if newest.number > number => Ok(Claim::Lost(newest)),
                Some(_) | None => Ok(Claim::Won(Lease {
                    number,
                    body: Some(body.clone()),
                })),
            };
        }
        Err(LeaseError::Racing)
    }

    /// Gives the lease back, so that others needn't wait until it runs out.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn release(&self, held: u64, body: &LeaseBody) -> Result<Claim, LeaseError> {
        let released = LeaseBody {
            kind: LeaseKind::Released,
            ..body.clone()
        };
        self.create_next(Some(held), &released).await
    }

    /// Deletes what is much older than `newest`, oldest first, so that no number lies before a hole. Does
    /// something only at every 64th number, and at the first call.
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

    /// `false`: it exists already.
    async fn create(&self, number: u64, body: &LeaseBody) -> Result<bool, LeaseError> {
        let payload = PutPayload::from(body.seal(number));
        let options = PutOptions {
            mode: PutMode::Create,
            ..PutOptions::default()
        };
        match self
            .objects
            .put_opts(&self.path(number), payload, options)
            .await
        {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::local::LocalFileSystem;
    use object_store::memory::InMemory;

    use super::super::body::tests::body;
    use super::*;

    fn number(claim: &Claim) -> u64 {
        match claim {
            Claim::Won(lease) | Claim::Lost(lease) => lease.number,
        }
    }

    fn won(claim: &Claim) -> bool {
        matches!(claim, Claim::Won(_))
    }

    async fn the_contract(objects: Arc<dyn ObjectStore>) {
        let row = LeaseRow::new(Arc::clone(&objects), "some/prefix");
        assert_eq!(row.newest().await.unwrap(), None);
        let claim = row.create_next(None, &body(1)).await.unwrap();
        assert_eq!((won(&claim), number(&claim)), (true, 1));
        // Another one that saw the row empty loses, and learns to whom.
        let claim = row.create_next(None, &body(2)).await.unwrap();
        assert_eq!(
            claim,
            Claim::Lost(Lease {
                number: 1,
                body: Some(body(1))
            })
        );
        // The answer was lost: the repetition finds it done, without a second number.
        let claim = row.create_next(None, &body(1)).await.unwrap();
        assert_eq!((won(&claim), number(&claim)), (true, 1));
        let claim = row.create_next(Some(1), &body(1)).await.unwrap();
        assert_eq!((won(&claim), number(&claim)), (true, 2));
        // A renewal that landed late isn't mistaken for the release.
        let claim = row.release(1, &body(1)).await.unwrap();
        assert_eq!((won(&claim), number(&claim)), (true, 3));
        let newest = row.newest().await.unwrap().unwrap();
        assert_eq!(newest.body.map(|body| body.kind), Some(LeaseKind::Released));
        // Who wakes up after others have gone on doesn't win with a number that nobody looks at.
        let claim = row.create_next(Some(3), &body(2)).await.unwrap();
        assert_eq!((won(&claim), number(&claim)), (true, 4));
        let paused = row.create_next(Some(1), &body(1)).await.unwrap();
        assert_eq!((won(&paused), number(&paused)), (false, 4));
    }

    #[tokio::test]
    async fn the_contract_holds_in_memory() {
        the_contract(Arc::new(InMemory::new())).await;
    }

    #[tokio::test]
    async fn the_contract_holds_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        the_contract(Arc::new(
            LocalFileSystem::new_with_prefix(folder.path()).unwrap(),
        ))
        .await;
    }

    #[tokio::test]
    async fn old_numbers_are_deleted_and_never_reached_again() {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let row = LeaseRow::new(Arc::clone(&objects), "");
        let mut newest = 0;
        for _ in 0..200 {
            let claim = row.create_next(Some(newest), &body(1)).await.unwrap();
            newest = number(&claim);
            row.trim(newest).await.unwrap();
            assert!(row.numbers().await.unwrap().len() <= 2 * KEPT as usize);
        }
        let numbers = row.numbers().await.unwrap();
        assert!(numbers[0] > 64 && numbers.last() == Some(&200));
        // A process that paused before they were deleted finds its number free, but loses.
        let paused = row.create_next(Some(3), &body(2)).await.unwrap();
        assert_eq!((won(&paused), number(&paused)), (false, 200));
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
        let claim = row.create_next(None, &body(1)).await.unwrap();
        assert_eq!(claim, Claim::Lost(unreadable));
        let claim = row.create_next(Some(1), &body(1)).await.unwrap();
        assert!(won(&claim));
    }
}
