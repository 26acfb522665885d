//! The store as the `object_store` trait, for SlateDB, which retries by itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    UploadPart,
};

use crate::error::Operation;
use crate::fault::FaultKind;
use crate::gate::{Backoff, Gate, timed_out};
use crate::options::RequestClass;

/// One attempt for each call, through the gate. Errors pass unchanged, with one exception, see
/// [`RawStore::put_opts`].
#[derive(Debug)]
pub(crate) struct RawStore {
    pub(crate) gate: Arc<Gate>,
}

/// Metadata commits wait for these requests, and producers wait for metadata only seldom.
const CLASS: RequestClass = RequestClass::Read;

impl fmt::Display for RawStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tidegate({})", self.gate.backend.store)
    }
}

impl RawStore {
    fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.gate.backend.store
    }

    async fn attempt<T>(
        &self,
        operation: Operation,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        self.gate
            .attempt(operation, CLASS, bytes, request)
            .await
            .map_err(|failed| failed.error)
    }

    /// Takes note of what the parts of a stream turn out to be.
    fn watched<T: Send + 'static>(
        &self,
        operation: Operation,
        stream: BoxStream<'static, object_store::Result<T>>,
        bytes_of: fn(&T) -> u64,
    ) -> BoxStream<'static, object_store::Result<T>> {
        let gate = Arc::clone(&self.gate);
        let idle = gate.options.limits(CLASS).attempt_for(1024 * 1024);
        let state = (gate, stream, false);
        futures::stream::unfold(state, move |(gate, mut stream, failed)| async move {
            if failed {
                return None;
            }
            let next = tokio::time::timeout(idle, stream.next()).await;
            let item = match next {
                Ok(item) => item?,
                Err(_elapsed) => Err(timed_out(idle)),
            };
            let item = match item {
                Ok(part) => {
                    gate.metrics.received(bytes_of(&part));
                    Ok(part)
                }
                Err(error) => gate
                    .record(operation, Duration::ZERO, Err(error))
                    .map_err(|failed| failed.error),
            };
            let failed = item.is_err();
            Some((item, (gate, stream, failed)))
        })
        .boxed()
    }
}

#[async_trait]
impl ObjectStore for RawStore {
    /// S3 may answer 409 to a create-only write that races another. `object_store` reports that as
    /// "exists", from which SlateDB would conclude that it was fenced; so it is repeated here until the
    /// store has decided, and handed up as a plain fault, which SlateDB retries, if it never does.
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        const CONFLICT_ATTEMPTS: u32 = 5;
        let bytes = payload.content_length() as u64;
        let create = matches!(opts.mode, PutMode::Create);
        let options = &self.gate.options;
        let mut backoff = Backoff::new(
            options.first_backoff,
            options.max_backoff,
            &self.gate.random,
        );
        let mut attempts = 1;
        loop {
            self.gate.metrics.sent(bytes);
            let request = self
                .inner()
                .put_opts(location, payload.clone(), opts.clone());
            let failed = match self
                .gate
                .attempt(Operation::Put, CLASS, bytes, request)
                .await
            {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            match failed.fault.kind {
                FaultKind::Conflict if attempts < CONFLICT_ATTEMPTS => {
                    attempts += 1;
                    self.gate.metrics.retry(Operation::Put);
                    tokio::time::sleep(backoff.next()).await;
                }
                FaultKind::Conflict => {
                    return Err(object_store::Error::Generic {
                        store: "object storage",
                        source: Box::new(failed.error),
                    });
                }
                FaultKind::AlreadyExists if create => {
                    self.gate.confirm_exists(location).await?;
                    return Err(failed.error);
                }
                _ => return Err(failed.error),
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let request = self.inner().put_multipart_opts(location, opts);
        let upload = self.attempt(Operation::Put, 0, request).await?;
        Ok(Box::new(WatchedUpload {
            upload,
            gate: Arc::clone(&self.gate),
        }))
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
        let request = self.inner().get_opts(location, options);
        let mut result = self.attempt(operation, 0, request).await?;
        result.payload = match result.payload {
            GetResultPayload::Stream(stream) => {
                GetResultPayload::Stream(
                    self.watched(operation, stream, |part: &Bytes| part.len() as u64),
                )
            }
            file => file,
        };
        Ok(result)
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum();
        let parts = self
            .attempt(
                Operation::Get,
                bytes,
                self.inner().get_ranges(location, ranges),
            )
            .await?;
        self.gate
            .metrics
            .received(parts.iter().map(|part| part.len() as u64).sum());
        Ok(parts)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let stream = self.inner().delete_stream(locations);
        self.watched(Operation::Delete, stream, |_| 0)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.watched(Operation::List, self.inner().list(prefix), |_| 0)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let stream = self.inner().list_with_offset(prefix, offset);
        self.watched(Operation::List, stream, |_| 0)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let request = self.inner().list_with_delimiter(prefix);
        self.attempt(Operation::List, 0, request).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        let request = self.inner().copy_opts(from, to, options);
        self.attempt(Operation::Copy, 0, request).await
    }

    async fn rename_opts(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> object_store::Result<()> {
        let request = self.inner().rename_opts(from, to, options);
        self.attempt(Operation::Copy, 0, request).await
    }
}

#[derive(Debug)]
struct WatchedUpload {
    upload: Box<dyn MultipartUpload>,
    gate: Arc<Gate>,
}

#[async_trait]
impl MultipartUpload for WatchedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        let part = self.upload.put_part(data);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            gate.metrics.sent(bytes);
            gate.attempt(Operation::Put, CLASS, bytes, part)
                .await
                .map_err(|failed| failed.error)
        })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let request = self.upload.complete();
        self.gate
            .attempt(Operation::Put, CLASS, 0, request)
            .await
            .map_err(|failed| failed.error)
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        let request = self.upload.abort();
        self.gate
            .attempt(Operation::Delete, CLASS, 0, request)
            .await
            .map_err(|failed| failed.error)
    }
}
