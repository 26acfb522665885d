//! The handle through which everything but SlateDB uses the store.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use prometheus_client::registry::Registry;
use tidegate_runtime::{OnExit, Random, SharedClock, Tasks};
use tidegate_types::TimestampMs;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::{Backend, BackendTraits, OpenError, Planned};
use crate::error::{FailedRequest, Operation, StoreError};
use crate::fault::{FaultKind, StoreFault, WrongLength};
use crate::gate::{AttemptFailed, Backoff, Gate, timed_out};
use crate::health::StoreHealth;
use crate::key::ObjectKey;
use crate::metrics::Metrics;
use crate::options::{RequestClass, StoreOptions};
use crate::probe;
use crate::raw::RawStore;
use crate::url::StoreUrl;

/// What the store needs from outside.
#[derive(Clone)]
pub struct StoreSeams {
    pub clock: SharedClock,
    pub random: Random,
    /// Owns the probe.
    pub tasks: Tasks,
}

/// How a create-only write ended. Either way the object exists now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Created,
    /// An object of that name was there. It may be our own, by an earlier attempt whose answer was lost:
    /// read it back before concluding anything.
    AlreadyExists,
}

/// An object's name and size, as a listing gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub key: ObjectKey,
    pub size_bytes: u64,
    pub last_modified: TimestampMs,
}

/// A store that can be opened, as far as can be told without writing: its URL and the environment describe one, and
/// a local folder is there or can be made.
pub struct StorePlan {
    planned: Planned,
    url: StoreUrl,
    options: StoreOptions,
    seams: StoreSeams,
    metrics: Arc<Metrics>,
}

impl StorePlan {
    /// # Errors
    /// If the URL and the environment don't describe a store, or a local folder can't be created.
    pub fn new(
        url: &StoreUrl,
        options: StoreOptions,
        seams: &StoreSeams,
        registry: &mut Registry,
    ) -> Result<Self, OpenError> {
        let metrics = Arc::new(Metrics::new(registry));
        let planned = Planned::new(url, &options, &seams.clock, &metrics)?;
        Ok(Self {
            planned,
            url: url.clone(),
            options,
            seams: seams.clone(),
            metrics,
        })
    }

    /// Whether it is known without asking that nothing is stored there: a folder that is empty or yet to be made,
    /// or memory. A store behind a network may be empty all the same.
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty(&self.url)
    }

    /// Opens the store, see [`ObjectStorage::open`]. A local folder is made.
    ///
    /// # Errors
    /// If the folder can't be made after all.
    pub fn open(self) -> Result<ObjectStorage, OpenError> {
        let backend = self.planned.open(&self.url)?;
        Ok(ObjectStorage::start(
            backend,
            self.options,
            &self.seams,
            self.metrics,
        ))
    }
}

/// A cheap handle on a cluster's store; clones share connections, limits, metrics and health.
///
/// Each call retries, within its class's time, whatever a retry may cure. It returns early with what
/// needs a human (a missing bucket, a denied access). Cancel-safe in the sense that dropping a call is a
/// lost reply: a write may happen all the same.
#[derive(Debug, Clone)]
pub struct ObjectStorage {
    gate: Arc<Gate>,
    class: RequestClass,
}

impl ObjectStorage {
    /// Opens the store, in class [`RequestClass::Background`], and starts its probe. Nothing is asked of
    /// the store yet: one that can't be reached is no error here but a matter of [`ObjectStorage::health`].
    ///
    /// # Errors
    /// If the URL and the environment don't describe a store, or a local folder can't be created.
    pub fn open(
        url: &StoreUrl,
        options: StoreOptions,
        seams: &StoreSeams,
        registry: &mut Registry,
    ) -> Result<Self, OpenError> {
        StorePlan::new(url, options, seams, registry)?.open()
    }

    /// Over any store: for tests and simulation.
    pub fn from_store(
        store: Arc<dyn ObjectStore>,
        bucket: &str,
        options: StoreOptions,
        seams: &StoreSeams,
        registry: &mut Registry,
    ) -> Self {
        let backend = Backend {
            store,
            traits: BackendTraits::IN_PROCESS,
            bucket: bucket.to_owned(),
        };
        Self::start(backend, options, seams, Arc::new(Metrics::new(registry)))
    }

    pub(crate) fn start(
        backend: Backend,
        options: StoreOptions,
        seams: &StoreSeams,
        metrics: Arc<Metrics>,
    ) -> Self {
        let clock = Arc::clone(&seams.clock);
        let gate = Arc::new(Gate::new(
            backend,
            options,
            clock,
            seams.random.clone(),
            metrics,
        ));
        seams.tasks.spawn(
            "object store probe",
            OnExit::Expected,
            probe::run(
                Arc::downgrade(&gate),
                gate.health.wake_probe(),
                seams.tasks.token().clone(),
            ),
        );
        Self {
            gate,
            class: RequestClass::Background,
        }
    }

    /// The same store for requests of another class.
    #[must_use]
    pub fn with_class(&self, class: RequestClass) -> Self {
        Self {
            gate: Arc::clone(&self.gate),
            class,
        }
    }

    /// The bucket's name, or the local folder.
    pub fn bucket(&self) -> &str {
        &self.gate.backend.bucket
    }

    /// Tells when the bucket stops and starts to be usable.
    pub fn health(&self) -> watch::Receiver<StoreHealth> {
        self.gate.health.subscribe()
    }

    /// The store as the trait that SlateDB wants: measured and watched the same way, without retries of
    /// its own. Paths are relative to the prefix, as keys are.
    pub fn raw(&self) -> Arc<dyn ObjectStore> {
        Arc::new(RawStore {
            gate: Arc::clone(&self.gate),
        })
    }

    /// Stores `payload`, unless an object of that name exists.
    ///
    /// It is one PUT whatever the size (S3 takes 5 GiB), because not every store makes a multipart upload
    /// create-only.
    ///
    /// # Errors
    /// The outcome is unknown after [`StoreError::TimedOut`] and [`StoreError::Unavailable`]: the object
    /// may exist, or may still appear.
    pub async fn put_create(
        &self,
        key: &ObjectKey,
        payload: Vec<Bytes>,
    ) -> Result<PutOutcome, StoreError> {
        let payload = PutPayload::from_iter(payload);
        let bytes = payload.content_length() as u64;
        let create = || PutOptions::from(PutMode::Create);
        let put = || async {
            self.gate.metrics.sent(bytes);
            let request = self
                .gate
                .backend
                .store
                .put_opts(key.path(), payload.clone(), create());
            match self
                .gate
                .attempt(Operation::Put, self.class, bytes, request)
                .await
            {
                Ok(_) => Ok(PutOutcome::Created),
                Err(failed) if failed.fault.kind == FaultKind::AlreadyExists => {
                    self.confirm_exists(key).await?;
                    Ok(PutOutcome::AlreadyExists)
                }
                Err(failed) if failed.fault.kind == FaultKind::Conflict => {
                    self.settle_conflict(key, failed).await
                }
                Err(failed) => Err(failed),
            }
        };
        self.retry(Operation::Put, key.as_str(), put).await
    }

    /// After a 409: some stores answer so where S3 answers 412, so the object itself decides.
    async fn settle_conflict(
        &self,
        key: &ObjectKey,
        conflict: AttemptFailed,
    ) -> Result<PutOutcome, AttemptFailed> {
        match self.get_once(key, Some(GetRange::Bounded(0..1))).await {
            Ok(_) => Ok(PutOutcome::AlreadyExists),
            Err(_) => Err(conflict),
        }
    }

    async fn confirm_exists(&self, key: &ObjectKey) -> Result<(), AttemptFailed> {
        let confirmed = self.gate.confirm_exists(key.path()).await;
        match confirmed {
            Ok(()) => Ok(()),
            Err(error) => self
                .gate
                .record(Operation::Put, std::time::Duration::ZERO, Err(error)),
        }
    }

    /// Reads a whole object.
    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, StoreError> {
        let get = || self.get_once(key, None);
        let (bytes, _) = self.retry(Operation::Get, key.as_str(), get).await?;
        Ok(bytes)
    }

    /// Reads the bytes at `range`, all of them: a range that the object doesn't cover is
    /// [`StoreError::Invalid`].
    pub async fn get_range(&self, key: &ObjectKey, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let asked = range.end - range.start;
        let get = || async {
            let (bytes, size) = self
                .get_once(key, Some(GetRange::Bounded(range.clone())))
                .await?;
            if bytes.len() as u64 == asked {
                return Ok(bytes);
            }
            Err(wrong_length(asked, bytes.len() as u64, range.end > size))
        };
        self.retry(Operation::Get, key.as_str(), get).await
    }

    /// Reads the last `length` bytes, or all if the object is shorter; also gives the object's size.
    pub async fn get_tail(&self, key: &ObjectKey, length: u64) -> Result<(Bytes, u64), StoreError> {
        let get = || async {
            let range = if self.gate.backend.traits.suffix_ranges {
                GetRange::Suffix(length)
            } else {
                let size = self.head_once(key).await?;
                GetRange::Bounded(size.saturating_sub(length)..size)
            };
            let (bytes, size) = self.get_once(key, Some(range)).await?;
            let asked = length.min(size);
            if bytes.len() as u64 == asked {
                return Ok((bytes, size));
            }
            Err(wrong_length(asked, bytes.len() as u64, false))
        };
        self.retry(Operation::Get, key.as_str(), get).await
    }

    /// The object's size, or `None` if there is no such object.
    pub async fn head(&self, key: &ObjectKey) -> Result<Option<u64>, StoreError> {
        let head = || self.head_once(key);
        match self.retry(Operation::Head, key.as_str(), head).await {
            Ok(size) => Ok(Some(size)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get_once(
        &self,
        key: &ObjectKey,
        range: Option<GetRange>,
    ) -> Result<(Bytes, u64), AttemptFailed> {
        let expected = match &range {
            Some(GetRange::Bounded(range)) => range.end.saturating_sub(range.start),
            Some(GetRange::Suffix(length)) => *length,
            // A whole object of unknown size gets the time of a big one, once it has begun to come.
            Some(GetRange::Offset(_)) | None => 256 * 1024 * 1024,
        };
        let first_byte = self.gate.attempt_limit(self.class, 0);
        let options = GetOptions {
            range,
            ..GetOptions::default()
        };
        let request = async {
            let head = self.gate.backend.store.get_opts(key.path(), options);
            let result = tokio::time::timeout(first_byte, head)
                .await
                .map_err(|_elapsed| timed_out(first_byte))??;
            let size = result.meta.size;
            Ok((result.bytes().await?, size))
        };
        let (bytes, size) = self
            .gate
            .attempt(Operation::Get, self.class, expected, request)
            .await?;
        self.gate.metrics.received(bytes.len() as u64);
        Ok((bytes, size))
    }

    async fn head_once(&self, key: &ObjectKey) -> Result<u64, AttemptFailed> {
        let request = self.gate.backend.store.head(key.path());
        let head = self
            .gate
            .attempt(Operation::Head, self.class, 0, request)
            .await;
        match head {
            Ok(meta) => Ok(meta.size),
            Err(failed)
                if failed.fault.kind == FaultKind::NotFound
                    && self.gate.backend.traits.bodiless_head =>
            {
                let (_, size) = self.get_once(key, Some(GetRange::Bounded(0..1))).await?;
                Ok(size)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Removes an object; one that isn't there counts as removed.
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let delete = || async {
            let request = self.gate.backend.store.delete(key.path());
            self.gate
                .attempt(Operation::Delete, self.class, 0, request)
                .await
        };
        match self.retry(Operation::Delete, key.as_str(), delete).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All objects whose keys continue `prefix` after a `/` (an empty prefix: all), following pages to
    /// the end. A listing may be stale: it may lack the newest objects and name ones that are gone.
    ///
    /// The stream ends after an error. In stores that list in order, a fault in the middle continues
    /// after the last key; in a local folder it is an error at once.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedObject, StoreError>> {
        let lister = Lister {
            storage: self.clone(),
            prefix: Path::from(prefix),
            page: None,
            after: None,
            started: Instant::now(),
            attempts: 0,
            backoff: self.backoff(),
            done: false,
        };
        futures::stream::unfold(lister, |mut lister| async move {
            let item = lister.next().await?;
            Some((item, lister))
        })
        .boxed()
    }

    fn backoff(&self) -> Backoff {
        let options = &self.gate.options;
        Backoff::new(
            options.first_backoff,
            options.max_backoff,
            &self.gate.random,
        )
    }

    async fn retry<T, F, Fut>(
        &self,
        operation: Operation,
        key: &str,
        mut attempt: F,
    ) -> Result<T, StoreError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, AttemptFailed>>,
    {
        let started = Instant::now();
        let mut backoff = self.backoff();
        let mut attempts = 1;
        loop {
            let fault = match attempt().await {
                Ok(value) => return Ok(value),
                Err(failed) => failed.fault,
            };
            let wait = backoff.next();
            let total = self.gate.options.limits(self.class).total;
            if !fault.kind.is_transient() || started.elapsed() + wait >= total {
                return Err(self.error(operation, key, attempts, started, fault));
            }
            tracing::debug!(
                operation = operation.as_str(),
                key,
                attempts,
                cause = fault.kind.as_str(),
                detail = %fault.detail,
                "repeating a request to the object store"
            );
            attempts += 1;
            self.gate.metrics.retry(operation);
            tokio::time::sleep(wait).await;
        }
    }

    fn error(
        &self,
        operation: Operation,
        key: &str,
        attempts: u32,
        started: Instant,
        fault: StoreFault,
    ) -> StoreError {
        let request = FailedRequest {
            operation,
            bucket: self.gate.backend.bucket.clone(),
            key: key.to_owned(),
            attempts,
            elapsed: started.elapsed(),
            fault,
        };
        StoreError::new(request, self.gate.metrics.last_skew_ms())
    }
}

/// A truncated answer is worth another attempt; a range past the end of the object isn't.
fn wrong_length(asked: u64, got: u64, past_the_end: bool) -> AttemptFailed {
    let error = WrongLength { asked, got };
    AttemptFailed {
        fault: StoreFault {
            kind: if past_the_end {
                FaultKind::Invalid
            } else {
                FaultKind::Unavailable
            },
            detail: error.to_string().into(),
        },
        error: object_store::Error::Generic {
            store: "object storage",
            source: Box::new(error),
        },
    }
}

/// A listing under way.
struct Lister {
    storage: ObjectStorage,
    prefix: Path,
    page: Option<BoxStream<'static, object_store::Result<object_store::ObjectMeta>>>,
    /// The last key given.
    after: Option<Path>,
    started: Instant,
    attempts: u32,
    backoff: Backoff,
    done: bool,
}

impl Lister {
    async fn next(&mut self) -> Option<Result<ListedObject, StoreError>> {
        if self.done {
            return None;
        }
        loop {
            let gate = Arc::clone(&self.storage.gate);
            if self.page.is_none() {
                self.page = Some(self.start());
                self.attempts += 1;
            }
            let page = self.page.as_mut().expect("set above");
            let request = async { page.next().await.transpose() };
            let class = self.storage.class;
            let fault = match gate.attempt(Operation::List, class, 0, request).await {
                Ok(Some(meta)) => {
                    self.after = Some(meta.location.clone());
                    self.attempts = 0;
                    self.started = Instant::now();
                    return Some(Ok(ListedObject {
                        key: ObjectKey::from_path(meta.location),
                        size_bytes: meta.size,
                        last_modified: TimestampMs::new(meta.last_modified.timestamp_millis()),
                    }));
                }
                Ok(None) => {
                    self.done = true;
                    return None;
                }
                Err(failed) => failed.fault,
            };
            self.page = None;
            let resumable = self.after.is_none() || gate.backend.traits.ordered_lists;
            let wait = self.backoff.next();
            let total = gate.options.limits(class).total;
            if !fault.kind.is_transient() || !resumable || self.started.elapsed() + wait >= total {
                self.done = true;
                let prefix = self.prefix.as_ref();
                return Some(Err(self.storage.error(
                    Operation::List,
                    prefix,
                    self.attempts,
                    self.started,
                    fault,
                )));
            }
            gate.metrics.retry(Operation::List);
            tokio::time::sleep(wait).await;
        }
    }

    fn start(&self) -> BoxStream<'static, object_store::Result<object_store::ObjectMeta>> {
        let store = &self.storage.gate.backend.store;
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        match &self.after {
            Some(after) => store.list_with_offset(prefix, after),
            None => store.list(prefix),
        }
    }
}
