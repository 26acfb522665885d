//! A local folder as a store: `object_store`'s, with a create-only PUT of its own.
//!
//! Objects come in many small pieces, slices of what producers sent. `object_store` writes each by a call of its
//! own, through the page cache; [`write_whole_file`] does less work.
//!
//! Ranges are read here too: `object_store` allocates for each in a thread of the blocking pool, and what such a
//! thread's heap once held stays with it, hundreds of megabytes over all threads.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::future::ready;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{
    Attributes, CopyOptions, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions,
};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};
use tidegate_runtime::write_whole_file;

use crate::backend::create_folder;

/// Larger ranges are streamed by `object_store`: nothing here asks for them.
const LARGEST_RANGE: usize = 64 << 20;

/// A folder. Everything but a create-only PUT of several pieces and a plain GET of a range is left to
/// `object_store`.
#[derive(Debug)]
pub(crate) struct FolderStore {
    inner: Arc<LocalFileSystem>,
}

impl FolderStore {
    pub(crate) fn new(inner: LocalFileSystem) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }
}

impl fmt::Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Writes a file under a temporary name, makes it durable, then gives it its name, unless that is taken.
fn create(path: &Path, payload: &PutPayload) -> io::Result<()> {
    let (file, temporary) = create_temporary(path)?;
    let written = write_whole_file(&file, payload.as_ref().iter().map(Bytes::as_ref));
    let created = written.and_then(|()| {
        std::fs::hard_link(&temporary, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    });
    // If it stays, nobody ever sees it: listings leave such names out.
    let _ = std::fs::remove_file(&temporary);
    created
}

/// A new file beside `path`, named as `object_store` names its own: it leaves these out of listings.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 0u64;
    loop {
        number += 1;
        let mut name = path.as_os_str().to_owned();
        name.push(format!("#{number}"));
        let temporary = PathBuf::from(name);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                Some(parent) => create_folder(parent)?,
                None => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

fn store_error(source: io::Error, path: &Path) -> object_store::Error {
    match source.kind() {
        io::ErrorKind::AlreadyExists => object_store::Error::AlreadyExists {
            path: path.display().to_string(),
            source: Box::new(source),
        },
        _ => object_store::Error::Generic {
            store: "local folder",
            source: Box::new(source),
        },
    }
}

/// The range of a GET without conditions.
fn plain_range(options: &GetOptions) -> Option<Range<u64>> {
    let conditions = options.if_match.is_some()
        || options.if_none_match.is_some()
        || options.if_modified_since.is_some()
        || options.if_unmodified_since.is_some();
    match &options.range {
        Some(GetRange::Bounded(range))
            if !conditions && !options.head && options.version.is_none() =>
        {
            (range.start < range.end).then(|| range.clone())
        }
        _ => None,
    }
}

/// Fills the buffer, which has room for the range. `None` if the file hasn't got all of it or can't be read:
/// `object_store` then says why. `read_to_end` would begin with small reads and double them.
fn read_range(path: &Path, range: &Range<u64>, mut buffer: Vec<u8>) -> Option<(Bytes, Metadata)> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || range.end > metadata.len() {
        return None;
    }
    let wanted = usize::try_from(range.end - range.start).ok()?;
    while buffer.len() < wanted {
        let at = range.start + buffer.len() as u64;
        match pread(&file, spare_capacity(&mut buffer), at) {
            Ok(0) => return None,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    // An allocator may give more room than was asked for.
    buffer.truncate(wanted);
    Some((buffer.into(), metadata))
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(
        &self,
        location: &Key,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        let plain = opts.attributes.is_empty() && matches!(opts.mode, PutMode::Create);
        if !plain || payload.as_ref().len() < 2 {
            return self.inner.put_opts(location, payload, opts).await;
        }
        let path = self.inner.path_to_filesystem(location)?;
        let written = tokio::task::spawn_blocking(move || {
            create(&path, &payload).map_err(|source| store_error(source, &path))
        });
        match written.await {
            Ok(written) => written?,
            Err(source) => return Err(object_store::Error::JoinError { source }),
        }
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: Extensions::default(),
        })
    }

    async fn put_multipart_opts(
        &self,
        location: &Key,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(
        &self,
        location: &Key,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let Some(range) = plain_range(&options) else {
            return self.inner.get_opts(location, options).await;
        };
        let path = self.inner.path_to_filesystem(location)?;
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if wanted > LARGEST_RANGE {
            return self.inner.get_opts(location, options).await;
        }
        let buffer = Vec::with_capacity(wanted);
        let asked = range.clone();
        let read = tokio::task::spawn_blocking(move || read_range(&path, &asked, buffer)).await;
        let read = read.map_err(|source| object_store::Error::JoinError { source })?;
        let Some((bytes, metadata)) = read else {
            return self.inner.get_opts(location, options).await;
        };
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(ready(Ok(bytes))).boxed()),
            meta: ObjectMeta {
                location: location.clone(),
                last_modified: modified.into(),
                size: metadata.len(),
                e_tag: None,
                version: None,
            },
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    async fn get_ranges(
        &self,
        location: &Key,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Key>>,
    ) -> BoxStream<'static, object_store::Result<Key>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Key>,
        offset: &Key,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Key,
        to: &Key,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(
        &self,
        from: &Key,
        to: &Key,
        options: RenameOptions,
    ) -> object_store::Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;

    use super::*;

    fn pieces(count: usize) -> PutPayload {
        (0..count)
            .map(|i| Bytes::from(vec![u8::try_from(i % 251).unwrap(); 1_000 + i]))
            .collect()
    }

    fn concatenated(payload: &PutPayload) -> Vec<u8> {
        payload.iter().flat_map(|piece| piece.to_vec()).collect()
    }

    #[tokio::test]
    async fn an_object_of_many_pieces_is_stored_once_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::new(
            LocalFileSystem::new_with_prefix(folder.path())
                .unwrap()
                .with_fsync(true),
        );
        let key = Key::from("segments/1/2/3");
        let put = |payload: PutPayload| store.put_opts(&key, payload, PutMode::Create.into());
        let first = pieces(700);
        put(first.clone()).await.unwrap();
        let second = put(pieces(3)).await;
        assert!(
            matches!(second, Err(object_store::Error::AlreadyExists { .. })),
            "{second:?}"
        );
        let stored = store.get(&key).await.unwrap().bytes().await.unwrap();
        assert!(stored == concatenated(&first));
        let listed: Vec<ObjectMeta> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1);
        let names: Vec<_> = std::fs::read_dir(folder.path().join("segments/1/2"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["3"], "no temporary file is left");
    }
}
