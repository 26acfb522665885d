//! The machine's file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock, statvfs};

#[cfg(target_os = "linux")]
use super::direct::{DirectFile, Written};
use super::{DirLock, Disk, DiskFile, LockError, Open};

/// The kernel takes at most 1024 slices in one call (`IOV_MAX`).
const MAX_SLICES: usize = 1024;
/// Zeros are written and synced in pieces, so that allocating a file in the background never puts a long
/// sync in front of somebody else's.
const ALLOCATE_PIECE_BYTES: usize = 4 * 1024 * 1024;
const LOCK_FILE: &str = "LOCK";

/// The machine's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl RealDisk {
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for ancestor in dir.ancestors() {
            if ancestor.as_os_str().is_empty() || fs::exists(ancestor)? {
                break;
            }
            missing.push(ancestor);
        }
        fs::create_dir_all(dir)?;
        for parent in missing.into_iter().filter_map(Path::parent) {
            let here = parent.as_os_str().is_empty();
            self.sync_dir(if here { Path::new(".") } else { parent })?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A name that isn't UTF-8 isn't one of ours.
            if let (true, Ok(name)) = (
                entry.file_type()?.is_file(),
                entry.file_name().into_string(),
            ) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(how == Open::CreateNew)
            .open(path)?;
        Ok(Arc::new(RealFile::new(file, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, LockError> {
        let failed = |source: io::Error| LockError::Io {
            dir: dir.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(LOCK_FILE))
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The kernel gives the lock back when the file is closed, also by kill -9.
            Ok(()) => Ok(DirLock::new(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::AlreadyLocked {
                dir: dir.to_owned(),
            }),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

struct RealFile {
    file: File,
    #[cfg(target_os = "linux")]
    direct: Option<DirectFile>,
}

impl RealFile {
    #[cfg(target_os = "linux")]
    fn new(file: File, path: &Path) -> Self {
        use std::os::unix::fs::OpenOptionsExt;
        // A file system that can't is no error: the page cache does it all then.
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(path)
            .and_then(DirectFile::new)
            .ok();
        Self { file, direct }
    }

    #[cfg(not(target_os = "linux"))]
    fn new(file: File, _path: &Path) -> Self {
        Self { file }
    }

    /// Whether all slices could be written past the page cache.
    #[cfg(target_os = "linux")]
    fn write_directly(&self, slices: &[IoSlice<'_>], position: u64) -> io::Result<bool> {
        match &self.direct {
            Some(direct) => Ok(direct.write(slices, position, &self.file)? == Written::All),
            None => Ok(false),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn write_directly(&self, _slices: &[IoSlice<'_>], _position: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Something was written through the page cache.
    fn changed(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Some(direct) = &self.direct {
            direct.changed(self.len()?);
        }
        Ok(())
    }
}

impl DiskFile for RealFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)?;
        self.changed()
    }

    fn write_vectored_all_at(
        &self,
        mut slices: &mut [IoSlice<'_>],
        mut position: u64,
    ) -> io::Result<()> {
        if self.write_directly(slices, position)? {
            return Ok(());
        }
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let batch = &slices[..slices.len().min(MAX_SLICES)];
            match rustix::io::pwritev(&self.file, batch, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    position += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.changed()
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut position = self.len()?;
        if position >= length {
            return Ok(());
        }
        reserve(&self.file, position, length - position)?;
        // Reserved blocks are marked unwritten, and the first write to each changes metadata: write them now.
        let zeros = vec![0; ALLOCATE_PIECE_BYTES];
        while position < length {
            let piece = (length - position).min(ALLOCATE_PIECE_BYTES as u64);
            let bytes = usize::try_from(piece).expect("a piece fits memory");
            self.file.write_all_at(&zeros[..bytes], position)?;
            self.file.sync_data()?;
            position += piece;
        }
        self.changed()?;
        self.file.sync_all()
    }
}

/// Asks for the blocks in one go: contiguous, and a full disk says so before anything is written.
#[cfg(target_os = "linux")]
fn reserve(file: &File, position: u64, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::KEEP_SIZE, position, length) {
        // Not every file system can; the zeros will allocate.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _position: u64, _length: u64) -> io::Result<()> {
    Ok(())
}
