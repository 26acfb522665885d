//! A store with scripted faults, in this process, for the tests of this crate and of those above.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::Operation;

/// What happens to one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing; for scripts such as "the third one fails".
    None,
    /// 503 SlowDown, not carried out.
    SlowDown,
    /// 500 InternalError, not carried out.
    InternalError,
    /// 409 ConditionalRequestConflict, not carried out.
    Conflict,
    /// 403 AccessDenied, not carried out.
    Denied,
    /// 404 NoSuchBucket, not carried out.
    BucketMissing,
    /// 403 RequestTimeTooSkewed, not carried out.
    ClockSkew,
    /// Carried out; then the connection breaks before the answer.
    LostReply,
    /// Carried out; then no answer ever comes.
    HangAfter,
    /// Not carried out, and no answer ever comes.
    Hang,
    /// A write on its way: no answer comes, and it is carried out by [`ScriptedStore::deliver_late`].
    Late,
    /// Carried out after this time.
    Delay(Duration),
    /// Carried out once the latch opens.
    Held(Arc<Latch>),
}

/// Holds requests up until it is opened.
#[derive(Debug, Default)]
pub struct Latch {
    open: Mutex<bool>,
    opened: Notify,
}

impl Latch {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_waiters();
    }

    async fn passed(&self) {
        loop {
            let opened = self.opened.notified();
            if *self.open.lock() {
                return;
            }
            opened.await;
        }
    }
}

/// A request that the store got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    pub operation: Operation,
    pub key: String,
    pub at: Instant,
}

/// An in-memory store that does to each request what the script says.
#[derive(Debug, Clone)]
pub struct ScriptedStore {
    inner: Arc<dyn ObjectStore>,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    rules: Vec<Rule>,
    seen: Vec<SeenRequest>,
    late: Vec<LateWrite>,
    hidden: Vec<String>,
    ghosts: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    operation: Option<Operation>,
    key_part: String,
    faults: VecDeque<Fault>,
    forever: Option<Fault>,
}

#[derive(Debug)]
struct LateWrite {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
}

impl Default for ScriptedStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedStore {
    pub fn new() -> Self {
        Self::over(Arc::new(InMemory::new()))
    }

    pub fn over(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            script: Arc::default(),
        }
    }

    /// The next requests of this kind whose key contains `key_part` meet these faults, one each.
    pub fn next(
        &self,
        operation: Operation,
        key_part: &str,
        faults: impl IntoIterator<Item = Fault>,
    ) {
        self.script.lock().rules.push(Rule {
            operation: Some(operation),
            key_part: key_part.to_owned(),
            faults: faults.into_iter().collect(),
            forever: None,
        });
    }

    /// Every request, or every one of a kind, meets this fault until [`ScriptedStore::heal`].
    pub fn always(&self, operation: Option<Operation>, key_part: &str, fault: Fault) {
        self.script.lock().rules.push(Rule {
            operation,
            key_part: key_part.to_owned(),
            faults: VecDeque::new(),
            forever: Some(fault),
        });
    }

    /// Forgets all rules.
    pub fn heal(&self) {
        self.script.lock().rules.clear();
    }

    /// Leaves keys with this part out of listings, as a stale listing does.
    pub fn hide_from_lists(&self, key_part: &str) {
        self.script.lock().hidden.push(key_part.to_owned());
    }

    /// Lists a key that doesn't exist.
    pub fn add_ghost(&self, key: &str) {
        self.script.lock().ghosts.push(key.to_owned());
    }

    /// Carries out the writes that met [`Fault::Late`], and tells how many of them succeeded.
    pub async fn deliver_late(&self) -> usize {
        let late = std::mem::take(&mut self.script.lock().late);
        let mut delivered = 0;
        for write in late {
            let result = self
                .inner
                .put_opts(&write.path, write.payload, write.options)
                .await;
            delivered += usize::from(result.is_ok());
        }
        delivered
    }

    /// All requests so far, of one kind.
    pub fn seen(&self, operation: Operation) -> Vec<SeenRequest> {
        let script = self.script.lock();
        let of_kind = script.seen.iter().filter(|s| s.operation == operation);
        of_kind.cloned().collect()
    }

    /// The store behind, without faults.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    fn fault_for(&self, operation: Operation, key: &str) -> Fault {
        let mut script = self.script.lock();
        script.seen.push(SeenRequest {
            operation,
            key: key.to_owned(),
            at: Instant::now(),
        });
        for rule in &mut script.rules {
            if rule.operation.is_some_and(|o| o != operation) || !key.contains(&rule.key_part) {
                continue;
            }
            if let Some(fault) = rule.faults.pop_front().or_else(|| rule.forever.clone()) {
                return fault;
            }
        }
        Fault::None
    }

    async fn run<T>(
        &self,
        operation: Operation,
        path: &Path,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let fault = self.fault_for(operation, path.as_ref());
        match fault {
            Fault::None => request.await,
            Fault::SlowDown => Err(answer("503 Service Unavailable", "SlowDown")),
            Fault::InternalError => Err(answer("500 Internal Server Error", "InternalError")),
            Fault::Conflict => Err(object_store::Error::AlreadyExists {
                path: path.to_string(),
                source: answer("409 Conflict", "ConditionalRequestConflict").into(),
            }),
            Fault::Denied => Err(object_store::Error::PermissionDenied {
                path: path.to_string(),
                source: answer("403 Forbidden", "AccessDenied").into(),
            }),
            Fault::BucketMissing => Err(object_store::Error::NotFound {
                path: path.to_string(),
                source: answer("404 Not Found", "NoSuchBucket").into(),
            }),
            Fault::ClockSkew => Err(object_store::Error::PermissionDenied {
                path: path.to_string(),
                source: answer("403 Forbidden", "RequestTimeTooSkewed").into(),
            }),
            Fault::LostReply => {
                let _lost = request.await;
                Err(object_store::Error::Generic {
                    store: "scripted",
                    source: Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                })
            }
            Fault::HangAfter => {
                let _lost = request.await;
                std::future::pending().await
            }
            Fault::Hang | Fault::Late => std::future::pending().await,
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                request.await
            }
            Fault::Held(latch) => {
                latch.passed().await;
                request.await
            }
        }
    }
}

/// The text in which `object_store` reports a status and its body.
fn answer(status: &str, code: &str) -> object_store::Error {
    let text = format!(
        "Server returned non-2xx status code: {status}: <Error><Code>{code}</Code><Message>scripted</Message></Error>"
    );
    object_store::Error::Generic {
        store: "scripted",
        source: text.into(),
    }
}

impl fmt::Display for ScriptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedStore")
    }
}

#[async_trait]
impl ObjectStore for ScriptedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        let is_late = {
            let script = self.script.lock();
            let rule = script.rules.iter().find(|rule| {
                rule.operation.is_none_or(|o| o == Operation::Put)
                    && location.as_ref().contains(&rule.key_part)
                    && (!rule.faults.is_empty() || rule.forever.is_some())
            });
            let fault = rule.and_then(|rule| rule.faults.front().or(rule.forever.as_ref()));
            matches!(fault, Some(Fault::Late))
        };
        if is_late {
            self.script.lock().late.push(LateWrite {
                path: location.clone(),
                payload: payload.clone(),
                options: opts.clone(),
            });
        }
        let request = self.inner.put_opts(location, payload, opts);
        self.run(Operation::Put, location, request).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let request = self.inner.put_multipart_opts(location, opts);
        self.run(Operation::Put, location, request).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let operation = if options.head {
            Operation::Head
        } else {
            Operation::Get
        };
        let request = self.inner.get_opts(location, options);
        self.run(operation, location, request).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let request = store.inner.delete(&location);
                    store.run(Operation::Delete, &location, request).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.list_after(prefix.cloned(), None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.list_after(prefix.cloned(), Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        let request = self.inner.list_with_delimiter(prefix);
        self.run(Operation::List, &path, request).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        let request = self.inner.copy_opts(from, to, options);
        self.run(Operation::Copy, from, request).await
    }
}

impl ScriptedStore {
    /// A listing in pages of 1,000 keys; each page is a request of its own, as in S3.
    fn list_after(
        &self,
        prefix: Option<Path>,
        after: Option<Path>,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        const PAGE: usize = 1000;
        let store = self.clone();
        let pages = futures::stream::unfold(Some(after), move |after| {
            let (store, prefix) = (store.clone(), prefix.clone());
            async move {
                let after = after?;
                let page = store.page(prefix.as_ref(), after.as_ref(), PAGE);
                let path = prefix.clone().unwrap_or_default();
                match store.run(Operation::List, &path, page).await {
                    Ok(page) => {
                        let last = page.last().map(|meta| meta.location.clone());
                        let next = (page.len() == PAGE).then_some(last);
                        let page: Vec<_> = page.into_iter().map(Ok).collect();
                        Some((page, next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        pages.flat_map(futures::stream::iter).boxed()
    }

    async fn page(
        &self,
        prefix: Option<&Path>,
        after: Option<&Path>,
        length: usize,
    ) -> object_store::Result<Vec<ObjectMeta>> {
        let all = self.inner.list(prefix).collect::<Vec<_>>().await;
        let mut all = all.into_iter().collect::<object_store::Result<Vec<_>>>()?;
        let script = self.script.lock();
        all.retain(|meta| {
            !script
                .hidden
                .iter()
                .any(|h| meta.location.as_ref().contains(h))
        });
        for ghost in &script.ghosts {
            if let Some(like) = all.first().cloned() {
                all.push(ObjectMeta {
                    location: Path::from(ghost.as_str()),
                    ..like
                });
            }
        }
        drop(script);
        all.sort_by(|a, b| a.location.cmp(&b.location));
        all.retain(|meta| after.is_none_or(|after| meta.location > *after));
        all.truncate(length);
        Ok(all)
    }
}
