//! An object store that fails on demand, for tests of what lies above it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What fails. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Nothing gets through.
    pub(crate) unreachable: Arc<AtomicBool>,
    /// The next write takes effect, and its answer is lost.
    pub(crate) lose_answer: Arc<AtomicBool>,
    /// No attributes can be stored with an object, as on a local folder.
    pub(crate) no_attributes: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
pub(crate) struct FaultyObjects {
    inner: InMemory,
    faults: Faults,
}

impl FaultyObjects {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            inner: InMemory::new(),
            faults,
        }
    }

    fn check(&self) -> Result<()> {
        if self.faults.unreachable.load(Ordering::SeqCst) {
            return Err(fault("unreachable"));
        }
        Ok(())
    }
}

fn fault(what: &'static str) -> Error {
    Error::Generic {
        store: "faulty",
        source: what.into(),
    }
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check()?;
        if self.faults.no_attributes.load(Ordering::SeqCst) && !options.attributes.is_empty() {
            return Err(Error::NotImplemented {
                operation: "attributes".into(),
                implementer: "faulty".into(),
            });
        }
        let put = self.inner.put_opts(location, payload, options).await?;
        if self.faults.lose_answer.swap(false, Ordering::SeqCst) {
            return Err(fault("answer lost"));
        }
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.inner.copy_opts(from, to, options).await
    }
}
