//! The maker of files: keeps one file ready ahead of the appends, and turns trimmed files into spares.
//!
//! It has a thread of its own, so that an append never waits for allocation, for a rename or for their syncs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::{DiskFile, Open};

use super::format::FileHeader;
use super::recovery::{file_name, unused_spare_path};
use super::state::{LiveFile, NextFile, Phase, SpareFile};
use super::{Inner, Step};
use crate::WalFailure;

/// How often a full file system is tried again.
const FULL_RETRY: Duration = Duration::from_millis(500);

/// What went wrong at which file.
pub(super) struct FileError {
    pub operation: &'static str,
    pub file: String,
    pub source: io::Error,
}

impl FileError {
    pub fn at(operation: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            operation,
            file: file.to_owned(),
            source,
        }
    }
}

impl From<FileError> for WalFailure {
    fn from(error: FileError) -> Self {
        Self::Disk {
            operation: error.operation,
            file: error.file,
            source: Arc::new(error.source),
        }
    }
}

/// One round of the maker's work.
pub(super) fn step(inner: &Inner) -> Step {
    match &inner.state.lock().phase {
        Phase::Running => {}
        // The writer may still wait for a file for what was taken; it gives up by itself if none comes.
        Phase::Closing if inner.is_written_out() => return Step::Done,
        Phase::Closing => {}
        Phase::Failed(_) => return Step::parked(inner),
    }
    let outcome = retire_one(inner).and_then(|more| match more {
        true => Ok(true),
        false => make_one(inner),
    });
    match outcome {
        Ok(true) => Step::Again,
        Ok(false) => Step::Wait(None),
        Err(error) if error.source.kind() == io::ErrorKind::StorageFull => {
            inner.note_file_system_full(&error);
            Step::Wait(Some(FULL_RETRY))
        }
        Err(error) => {
            inner.fail(error.into());
            Step::Again
        }
    }
}

/// Makes a spare of a retired file. False if there is none.
fn retire_one(inner: &Inner) -> Result<bool, FileError> {
    let retired = {
        let mut state = inner.state.lock();
        if state.retired.is_empty() {
            return Ok(false);
        }
        state.retired.remove(0)
    };
    let old_name = file_name(retired.sequence);
    // In order and each synced, so that no crash leaves a gap among the names of the log, and so that no
    // header of a new use is ever seen under an old name.
    if retired.bytes == inner.limits.file_bytes {
        let spare = unused_spare_path(&*inner.disk, &inner.dir, &inner.random)
            .map_err(FileError::at("retire", &old_name))?;
        inner
            .disk
            .rename(&retired.path, &spare)
            .and_then(|()| inner.disk.sync_dir(&inner.dir))
            .map_err(FileError::at("retire", &old_name))?;
        inner.metrics.recycled_files.inc();
        inner.state.lock().spares.push(SpareFile {
            path: spare,
            file: retired.file,
        });
    } else {
        // It was made with another file size.
        inner
            .disk
            .remove(&retired.path)
            .and_then(|()| inner.disk.sync_dir(&inner.dir))
            .map_err(FileError::at("remove", &old_name))?;
    }
    Ok(true)
}

/// Makes the next file if one is wanted. False if not.
pub(super) fn make_one(inner: &Inner) -> Result<bool, FileError> {
    let (next, spare) = {
        let mut state = inner.state.lock();
        let Some(next) = state.file_to_make() else {
            return Ok(false);
        };
        (next, state.spares.pop())
    };
    let spare = match spare {
        Some(spare) => spare,
        None => allocate(inner)?,
    };
    let salt = inner.random.next_u64();
    match begin(inner, &next, salt, &spare) {
        Ok(file) => {
            let healed = {
                let mut state = inner.state.lock();
                let healed = state.file_system_full;
                state.file_made(file);
                inner.show_files(&state);
                healed
            };
            if healed {
                tracing::info!(dir = %inner.dir.display(), "wal has room again");
            }
            inner.writer_signal.raise();
            Ok(true)
        }
        Err(error) => {
            if error.source.kind() == io::ErrorKind::StorageFull {
                inner.state.lock().spares.push(spare);
            }
            Err(error)
        }
    }
}

/// A new file of written zeros. Under a spare's name it isn't part of the log.
fn allocate(inner: &Inner) -> Result<SpareFile, FileError> {
    let path = unused_spare_path(&*inner.disk, &inner.dir, &inner.random)
        .map_err(FileError::at("look for", "a spare"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = inner
        .disk
        .open(&path, Open::CreateNew)
        .map_err(FileError::at("create", &name))?;
    if let Err(error) = file.allocate(inner.limits.file_bytes) {
        // Give back what it took: others may need the rest of the disk more.
        inner
            .disk
            .remove(&path)
            .map_err(FileError::at("remove", &name))?;
        return Err(FileError::at("allocate", &name)(error));
    }
    Ok(SpareFile { path, file })
}

/// Makes a spare the next file of the log: the header first, and the name only once that is durable.
fn begin(
    inner: &Inner,
    next: &NextFile,
    salt: u64,
    spare: &SpareFile,
) -> Result<LiveFile, FileError> {
    let name = file_name(next.sequence);
    let path = inner.dir.join(&name);
    let header = FileHeader {
        log_id: inner.log_id,
        sequence: next.sequence,
        salt,
        start: next.start,
        file_bytes: inner.limits.file_bytes,
        previous_end: next.previous_end,
    };
    write_header(&*spare.file, &header).map_err(FileError::at("begin", &name))?;
    inner
        .disk
        .rename(&spare.path, &path)
        .and_then(|()| inner.disk.sync_dir(&inner.dir))
        .map_err(FileError::at("name", &name))?;
    Ok(LiveFile {
        sequence: next.sequence,
        path,
        file: Arc::clone(&spare.file),
        salt,
        start: next.start,
        bytes: inner.limits.file_bytes,
        end: None,
    })
}

fn write_header(file: &dyn DiskFile, header: &FileHeader) -> io::Result<()> {
    file.write_all_at(&header.encode(), 0)?;
    file.sync_data()
}
