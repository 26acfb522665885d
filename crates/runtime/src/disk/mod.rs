//! Files as an argument: what the WAL and the disk cache need of a file system, and no more.
//!
//! All calls block; call them from a thread that may block. Paths are used as given.

#[cfg(target_os = "linux")]
mod direct;
mod gathered;
mod real;
mod sim;
#[cfg(test)]
mod tests;
mod whole;

use std::any::Any;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealDisk;
pub use sim::SimDisk;
pub use whole::write_whole_file;

/// The unit in which a log is written: see [`DiskFile::write_vectored_all_at`].
pub const BLOCK_BYTES: u64 = 4096;

/// How [`Disk::open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// For reading and writing; `NotFound` if it isn't there.
    Existing,
    /// Creates it empty; `AlreadyExists` if it is there.
    CreateNew,
}

/// A file system.
///
/// A change of names (create, rename, remove) survives a power cut only after [`Disk::sync_dir`]; contents
/// survive only after [`DiskFile::sync_data`]. The two are independent.
pub trait Disk: Send + Sync {
    /// Creates `dir` and its parents, durably; an existing one is fine.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files in `dir`, sorted, without directories.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file within its directory, replacing what has the new name. Open handles stay valid.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Open handles stay valid.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes all changes of names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The bytes still free to us on the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Takes `dir` for this process until the guard is dropped or the process ends, however it ends.
    fn lock_dir(&self, dir: &Path) -> Result<DirLock, LockError>;
}

/// An open file. Positions are bytes from the start; there is no cursor.
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes`. After an error any part may be written.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Writes all `slices`, one behind the other, any number of them: the call for a log that is written from
    /// front to back. What follows them, up to the next multiple of [`BLOCK_BYTES`], may become zeros; the file
    /// grows by the slices at most. The slices are consumed: their contents are unspecified afterwards. After an
    /// error any part may be written.
    fn write_vectored_all_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Fills `buffer`; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;

    /// Makes the contents, and the length needed to read them, durable. After an error nobody knows which
    /// bytes are stored, and a later success doesn't cover those written before: never repeat it.
    fn sync_data(&self) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Extends the file to `length` bytes of durable zeros in really allocated, written blocks, so that
    /// overwriting them needs no further space and their sync no change of metadata. `StorageFull` if there
    /// is no room; the file is then of any length up to the one asked for. A longer file is left as it is.
    fn allocate(&self, length: u64) -> io::Result<()>;
}

/// Holds a directory for this process. Dropping it gives the directory back.
pub struct DirLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DirLock {
    pub(crate) fn new(held: impl Any + Send + Sync) -> Self {
        Self {
            _held: Box::new(held),
        }
    }
}

impl std::fmt::Debug for DirLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DirLock")
    }
}

/// Why a directory couldn't be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is in use by another process", dir.display())]
    AlreadyLocked { dir: PathBuf },
    #[error("can't lock {}", dir.display())]
    Io { dir: PathBuf, source: io::Error },
}
