//! The local WAL: preallocated files on this broker's disk, one writer, one sync for all that waited.
//!
//! An append gets its position at once, under one short lock, and waits in a queue limited in bytes. The
//! writer takes all that waits, writes it without copying, syncs once and tells the observers: when idle an
//! entry is synced at once, under load a group is what came during the sync before. There is no linger.
//!
//! Files are allocated ahead, with written blocks, and recycled after a trim, so that in the steady state a
//! sync changes no metadata of the file system, and a full disk is noticed before anything needs the room.
//!
//! After an error of a write or a sync the WAL has failed, for good: what the disk holds is unknown, and a
//! repeated sync may lie. A full file system isn't an error: appends are refused until there is room again.

mod files;
mod format;
mod metrics;
mod recovery;
mod signal;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use parking_lot::Mutex;
use tidegate_runtime::{DirLock, Disk, OnExit, Open, Random, SharedClock, StillRunning, Tasks};
use tokio::sync::watch;

use crate::{AppendObserver, AppendRefused, Entry, Wal, WalFailure, WalPosition};
use files::FileError;
use format::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FoundFrame, FrameHeader};
use recovery::{SPARE_PREFIX, Scan, io_error, unused_spare_path};
use signal::Signal;
use state::{Limits, LiveFile, NextFile, Phase, SpareFile, State};
use writer::{Writer, gauge};

pub use metrics::LocalWalMetrics;
pub use recovery::{Damage, OpenError, Recovered, RecoveredEntry};

/// On what the WAL's two workers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// Threads of their own: the disk blocks.
    #[default]
    Threads,
    /// Tasks of the current tokio runtime, for simulations, whose disk is in memory.
    Tasks,
}

/// Sizes of a local WAL.
#[derive(Debug, Clone)]
pub struct LocalWalOptions {
    /// Length of each file, a multiple of 4096. No entry can be larger.
    pub file_bytes: u64,
    /// The most that all files take together; at least two files.
    pub capacity_bytes: u64,
    /// The most that may wait to become durable.
    pub pending_bytes: u64,
    pub workers: Workers,
}

impl Default for LocalWalOptions {
    fn default() -> Self {
        Self {
            file_bytes: 64 * 1024 * 1024,
            capacity_bytes: 1024 * 1024 * 1024,
            pending_bytes: 64 * 1024 * 1024,
            workers: Workers::Threads,
        }
    }
}

impl LocalWalOptions {
    /// # Errors
    /// [`OpenError::InvalidOptions`], which names the rule.
    pub fn validate(&self) -> Result<(), OpenError> {
        if !self.file_bytes.is_multiple_of(FILE_HEADER_BYTES)
            || self.file_bytes < 4 * FILE_HEADER_BYTES
        {
            return Err(OpenError::InvalidOptions(
                "a file's length must be a multiple of 4096 and at least 16384",
            ));
        }
        if self.capacity_bytes / 2 < self.file_bytes {
            return Err(OpenError::InvalidOptions(
                "the capacity must hold at least two files",
            ));
        }
        if self.pending_bytes == 0 {
            return Err(OpenError::InvalidOptions(
                "some bytes must be allowed to wait",
            ));
        }
        Ok(())
    }
}

/// What the WAL takes from its surroundings.
#[derive(Clone)]
pub struct LocalWalSeams {
    pub disk: Arc<dyn Disk>,
    pub clock: SharedClock,
    /// For salts and names. A simulation must not give two lives of a process the same numbers: the salt is
    /// what tells a frame from one of an earlier use of the file.
    pub random: Random,
    /// The owner of the WAL's workers; the WAL makes a child of it.
    pub tasks: Tasks,
    pub metrics: LocalWalMetrics,
}

/// Why an entry couldn't be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The position was trimmed, or nothing was ever durable there.
    #[error("WAL position {position} isn't in the log")]
    NotFound { position: WalPosition },
    #[error(transparent)]
    Damaged(#[from] Damage),
    #[error("can't read {}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// What a worker does after a round.
enum Step {
    Again,
    /// Until signalled, or until the time has passed.
    Wait(Option<Duration>),
    Done,
}

impl Step {
    /// A failed WAL's workers stay until it is closed.
    fn parked(inner: &Inner) -> Self {
        if inner.is_closing() {
            Self::Done
        } else {
            Self::Wait(None)
        }
    }
}

struct Inner {
    state: Mutex<State>,
    writer_signal: Signal,
    files_signal: Signal,
    closing: AtomicBool,
    written_out: AtomicBool,
    failure: watch::Sender<Option<WalFailure>>,
    lock: Mutex<Option<DirLock>>,
    limits: Limits,
    log_id: [u8; 16],
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    clock: SharedClock,
    random: Random,
    tasks: Tasks,
    metrics: LocalWalMetrics,
}

impl Inner {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn is_written_out(&self) -> bool {
        self.written_out.load(Ordering::SeqCst)
    }

    fn written_out(&self) {
        self.written_out.store(true, Ordering::SeqCst);
        self.files_signal.raise();
    }

    /// Puts the WAL into its failed state; returns the first failure, which is the one that counts.
    fn fail(&self, failure: WalFailure) -> WalFailure {
        let first = {
            let mut state = self.state.lock();
            match &state.phase {
                Phase::Failed(first) => first.clone(),
                Phase::Running | Phase::Closing => {
                    tracing::error!(error = &failure as &dyn std::error::Error, "wal failed");
                    state.fail(&failure);
                    failure
                }
            }
        };
        self.metrics.failed.set(1);
        self.failure.send_replace(Some(first.clone()));
        self.writer_signal.raise();
        self.files_signal.raise();
        first
    }

    fn note_file_system_full(&self, error: &FileError) {
        let news = !std::mem::replace(&mut self.state.lock().file_system_full, true);
        if news {
            tracing::warn!(
                dir = %self.dir.display(),
                file = error.file,
                operation = error.operation,
                "file system full, wal refuses appends when its files are used up"
            );
        }
        self.metrics.file_system_full.set(1);
        // On close, what waits for a file must learn that none will come.
        self.writer_signal.raise();
    }

    fn show_files(&self, state: &State) {
        self.metrics.live_bytes.set(gauge(state.live_bytes()));
        self.metrics
            .file_system_full
            .set(i64::from(state.file_system_full));
    }

    fn begin_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Running) {
                state.phase = Phase::Closing;
            }
        }
        // From here the workers may return without anybody calling that a fault.
        self.tasks.token().cancel();
        self.writer_signal.raise();
        self.files_signal.raise();
    }
}

/// A handle to a local WAL. When the last one is dropped the WAL writes what it has taken and closes.
#[derive(Clone)]
pub struct LocalWal {
    inner: Arc<Inner>,
    _closer: Arc<Closer>,
}

/// A directory taken for a local WAL. It is given back when this is dropped, or the WAL opened in it.
pub struct WalDir {
    dir: PathBuf,
    lock: DirLock,
}

impl WalDir {
    /// Makes the directory if need be, and takes it for this process.
    ///
    /// # Errors
    /// A directory in use, or the disk's errors.
    pub fn take(dir: &Path, disk: &dyn Disk) -> Result<Self, OpenError> {
        disk.create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock = disk.lock_dir(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            lock,
        })
    }
}

struct Closer(Arc<Inner>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl LocalWal {
    /// Opens the log in `dir`, or makes one, and hands out what it holds, in the order it was appended.
    /// When it returns, all that was handed out is durable. It blocks, for the time of reading the log.
    ///
    /// # Errors
    /// Damage that no crash explains, a directory in use, or the disk's errors. Entries handed out before an
    /// error mean nothing. A full file system is no error: appends are refused until there is room.
    pub fn open(
        dir: &Path,
        options: &LocalWalOptions,
        seams: LocalWalSeams,
        on_entry: &mut dyn FnMut(RecoveredEntry),
    ) -> Result<(Self, Recovered), OpenError> {
        options.validate()?;
        let dir = WalDir::take(dir, &*seams.disk)?;
        Self::open_in(dir, options, seams, on_entry)
    }

    /// The same in a directory that was taken before.
    ///
    /// # Errors
    /// As of [`LocalWal::open`].
    pub fn open_in(
        dir: WalDir,
        options: &LocalWalOptions,
        seams: LocalWalSeams,
        on_entry: &mut dyn FnMut(RecoveredEntry),
    ) -> Result<(Self, Recovered), OpenError> {
        options.validate()?;
        let WalDir { dir, lock } = dir;
        let dir = dir.as_path();
        let disk = Arc::clone(&seams.disk);
        let scan = recovery::scan(&*disk, dir, on_entry)?;
        let recovered = scan.recovered.clone();
        let limits = Limits {
            file_bytes: options.file_bytes,
            capacity_bytes: options.capacity_bytes,
            pending_bytes: options.pending_bytes,
        };
        let (log_id, state) = settle(&*disk, dir, limits, &seams.random, scan)?;
        let inner = Arc::new(Inner {
            state: Mutex::new(state),
            writer_signal: Signal::default(),
            files_signal: Signal::default(),
            closing: AtomicBool::new(false),
            written_out: AtomicBool::new(false),
            failure: watch::Sender::new(None),
            lock: Mutex::new(Some(lock)),
            limits,
            log_id,
            dir: dir.to_owned(),
            disk,
            clock: seams.clock,
            random: seams.random,
            tasks: seams.tasks.child("local-wal"),
            metrics: seams.metrics,
        });
        match make_first(&inner) {
            Ok(()) => {}
            Err(error) if error.source.kind() == std::io::ErrorKind::StorageFull => {
                inner.note_file_system_full(&error);
            }
            Err(error) => {
                return Err(OpenError::Io {
                    operation: error.operation,
                    path: dir.join(error.file),
                    source: error.source,
                });
            }
        }
        start_workers(&inner, options.workers).map_err(io_error("start the workers of", dir))?;
        let wal = Self {
            _closer: Arc::new(Closer(Arc::clone(&inner))),
            inner,
        };
        Ok((wal, recovered))
    }

    /// Everything below `position` is stored elsewhere. Files that lie wholly below are recycled.
    ///
    /// `position` is that of the first entry still needed, or else a [`LocalWal::durable_end`] taken before it
    /// was found that none is. The file that appends go to is never recycled.
    pub fn trim(&self, position: WalPosition) {
        let work = {
            let mut state = self.inner.state.lock();
            state.trim(position);
            self.inner.show_files(&state);
            // Room may have come, also on a file system that was full a moment ago.
            !state.retired.is_empty()
        };
        if work {
            self.inner.files_signal.raise();
        }
    }

    /// Reads the batches of a durable entry: the two numbers of its [`crate::Location::Local`]. Blocks.
    ///
    /// # Errors
    /// If it isn't there, for example because it was trimmed meanwhile, or isn't what was written.
    pub fn read(&self, position: WalPosition, length: u32) -> Result<Bytes, ReadError> {
        let not_found = ReadError::NotFound { position };
        let Some(file) = self.inner.state.lock().file_at(position.get()) else {
            return Err(not_found);
        };
        let byte = position.get() - file.start;
        let whole = FRAME_HEADER_BYTES as u64 + u64::from(length);
        if byte + whole > file.bytes {
            return Err(not_found);
        }
        let mut bytes = vec![0; FRAME_HEADER_BYTES + length as usize];
        file.file
            .read_exact_at(&mut bytes, byte)
            .map_err(|source| ReadError::Io {
                path: file.path.clone(),
                source,
            })?;
        let damaged = |reason: &str| {
            // The file may have been recycled while it was read.
            match self.inner.state.lock().file_at(position.get()) {
                None => not_found,
                Some(_) => ReadError::Damaged(Damage {
                    path: file.path.clone(),
                    byte,
                    position,
                    reason: reason.to_owned(),
                }),
            }
        };
        let header = match FrameHeader::find(&bytes, file.salt, position.get()) {
            FoundFrame::Header(header) => header,
            FoundFrame::Nothing | FoundFrame::Nonsense => {
                return Err(damaged("there is no valid frame"));
            }
        };
        if header.body_length != length {
            return Err(damaged("the frame has another length"));
        }
        let body = Bytes::from(bytes).slice(FRAME_HEADER_BYTES..);
        if crc32_iscsi(&body) != header.body_crc {
            return Err(damaged("the CRC of the batches is wrong"));
        }
        Ok(body)
    }

    /// Below this everything is durable.
    pub fn durable_end(&self) -> WalPosition {
        WalPosition::new(self.inner.state.lock().durable)
    }

    /// Why the WAL failed, once it has.
    pub fn failure(&self) -> watch::Receiver<Option<WalFailure>> {
        self.inner.failure.subscribe()
    }

    /// Takes no more, makes durable what was taken, and gives the directory back.
    ///
    /// # Errors
    /// If that takes longer than `timeout`; the workers then go on, and the directory stays locked.
    pub async fn close(&self, timeout: Duration) -> Result<(), StillRunning> {
        self.inner.begin_close();
        self.inner.tasks.shutdown(timeout).await?;
        self.inner.lock.lock().take();
        Ok(())
    }
}

impl Wal for LocalWal {
    fn append(&self, entry: Entry, observer: Arc<dyn AppendObserver>) -> Result<(), AppendRefused> {
        // Before the lock: appenders compute side by side.
        let body_crc = crc32_iscsi(&entry.batches);
        let (outcome, wake, pending_bytes) = {
            let mut state = self.inner.state.lock();
            let outcome = state.admit(entry, body_crc, observer);
            let wake = outcome.is_ok() && std::mem::take(&mut state.writer_idle);
            (outcome, wake, state.pending_bytes)
        };
        if wake {
            self.inner.writer_signal.raise();
        }
        let metrics = &self.inner.metrics;
        match &outcome {
            Ok(()) => {
                metrics.pending_bytes.set(gauge(pending_bytes));
            }
            Err(AppendRefused::Full(_)) => {
                metrics.refused_full.inc();
            }
            Err(
                AppendRefused::Failed(_) | AppendRefused::Closed | AppendRefused::TooLarge { .. },
            ) => {}
        }
        outcome
    }

    fn pending_bytes(&self) -> u64 {
        self.inner.state.lock().pending_bytes
    }

    fn available_bytes(&self) -> u64 {
        self.inner.state.lock().available_bytes()
    }
}

/// Makes the file that the first append goes to, or leaves that to the maker of files: without a spare it has to
/// be allocated, which takes its time and should delay nobody but the first append. Where room is scarce it is
/// tried at once, so that a full file system is known from the start.
fn make_first(inner: &Inner) -> Result<(), FileError> {
    let spare = !inner.state.lock().spares.is_empty();
    let free = inner.disk.free_bytes(&inner.dir).unwrap_or(0);
    if spare || free < inner.limits.file_bytes.saturating_mul(2) {
        files::make_one(inner)?;
    }
    Ok(())
}

/// Makes what was read durable, clears what lies behind it out of the way, and says how the log goes on: in a
/// new file, whose header will tell where the log ended, so that the tail is never looked at again.
fn settle(
    disk: &dyn Disk,
    dir: &Path,
    limits: Limits,
    random: &Random,
    mut scan: Scan,
) -> Result<([u8; 16], State), OpenError> {
    if let (Some((start, end)), Some(last)) = (scan.unproven, scan.files.last()) {
        last.log_file.make_durable(start, end)?;
    }
    let mut log_id = [0; 16];
    random.fill(&mut log_id);
    let mut next = NextFile {
        sequence: 1,
        start: 0,
        previous_end: None,
    };
    let mut end = 0;
    if let Some(last) = scan.files.last() {
        let header = &last.log_file.header;
        log_id = header.log_id;
        next.sequence = header.sequence + 1;
        next.start = header.start + header.file_bytes;
        end = last.end;
    }
    // A last file without frames is made anew, so that restarts don't leave a row of empty files.
    if let Some(empty) = scan.files.pop_if(|last| last.frames == 0) {
        next.sequence = empty.log_file.header.sequence;
        next.start = empty.log_file.header.start;
        end = scan.files.last().map_or(next.start, |last| last.end);
        scan.behind.insert(0, empty.log_file);
    }
    next.previous_end = scan.files.last().map(|last| last.end);
    let mut spares = existing_spares(disk, dir, limits)?;
    // From the end, each synced, so that no crash leaves a gap among the names of the log.
    for file in scan.behind.into_iter().rev() {
        let spare =
            unused_spare_path(disk, dir, random).map_err(io_error("look for a name in", dir))?;
        disk.rename(&file.path, &spare)
            .and_then(|()| disk.sync_dir(dir))
            .map_err(io_error("set aside", &file.path))?;
        if file.header.file_bytes == limits.file_bytes {
            spares.push(SpareFile {
                path: spare,
                file: file.file,
            });
        } else {
            disk.remove(&spare).map_err(io_error("remove", &spare))?;
        }
    }
    let live: VecDeque<LiveFile> = scan
        .files
        .into_iter()
        .map(|scanned| LiveFile {
            sequence: scanned.log_file.header.sequence,
            path: scanned.log_file.path,
            file: scanned.log_file.file,
            salt: scanned.log_file.header.salt,
            start: scanned.log_file.header.start,
            bytes: scanned.log_file.header.file_bytes,
            end: Some(scanned.end),
        })
        .collect();
    let state = State::new(limits, live, spares, next, end);
    Ok((log_id, drop_excess_spares(disk, state)?))
}

/// The spares that can be used; what is left of an allocation that was cut off is removed.
fn existing_spares(
    disk: &dyn Disk,
    dir: &Path,
    limits: Limits,
) -> Result<Vec<SpareFile>, OpenError> {
    let mut spares = Vec::new();
    for name in disk.list(dir).map_err(io_error("list", dir))? {
        if !name.starts_with(SPARE_PREFIX) {
            continue;
        }
        let path = dir.join(&name);
        let file = disk
            .open(&path, Open::Existing)
            .map_err(io_error("open", &path))?;
        if file.len().map_err(io_error("measure", &path))? == limits.file_bytes {
            spares.push(SpareFile { path, file });
        } else {
            disk.remove(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(spares)
}

/// Keeps the directory within its capacity after that was lowered.
fn drop_excess_spares(disk: &dyn Disk, mut state: State) -> Result<State, OpenError> {
    let limits = state.limits;
    let room = limits.capacity_bytes.saturating_sub(state.live_bytes());
    let keep = usize::try_from(room / limits.file_bytes).unwrap_or(usize::MAX);
    while state.spares.len() > keep {
        let Some(spare) = state.spares.pop() else {
            break;
        };
        disk.remove(&spare.path)
            .map_err(io_error("remove", &spare.path))?;
    }
    Ok(state)
}

fn start_workers(inner: &Arc<Inner>, workers: Workers) -> std::io::Result<()> {
    let (for_writer, for_files) = (Arc::clone(inner), Arc::clone(inner));
    let mut writer = Writer::default();
    match workers {
        Workers::Threads => {
            inner
                .tasks
                .spawn_thread("wal-writer", OnExit::StopProcess, move || {
                    run_blocking(&for_writer.writer_signal, || writer.step(&for_writer));
                })?;
            inner
                .tasks
                .spawn_thread("wal-files", OnExit::StopProcess, move || {
                    run_blocking(&for_files.files_signal, || files::step(&for_files));
                })
        }
        Workers::Tasks => {
            inner
                .tasks
                .spawn("wal-writer", OnExit::StopProcess, async move {
                    run(&for_writer.writer_signal, || writer.step(&for_writer)).await;
                });
            inner
                .tasks
                .spawn("wal-files", OnExit::StopProcess, async move {
                    run(&for_files.files_signal, || files::step(&for_files)).await;
                });
            Ok(())
        }
    }
}

fn run_blocking(signal: &Signal, mut step: impl FnMut() -> Step) {
    loop {
        match step() {
            Step::Again => {}
            Step::Wait(timeout) => signal.wait_blocking(timeout),
            Step::Done => break,
        }
    }
}

async fn run(signal: &Signal, mut step: impl FnMut() -> Step) {
    loop {
        match step() {
            Step::Again => tokio::task::yield_now().await,
            Step::Wait(timeout) => signal.wait(timeout).await,
            Step::Done => break,
        }
    }
}
