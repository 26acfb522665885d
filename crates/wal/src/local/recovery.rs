//! Reading a log back: which frames are valid, where the log ends, and whether that end can be a torn tail.
//!
//! The rules are in `docs/formats/wal.md`, "Recovery". The core of them: the writer starts a group of frames
//! only after the group before was synced, and each frame says up to where everything was durable then. So a
//! frame that says so for a position behind the first invalid byte proves that the byte was stored once, and
//! that the damage isn't a torn tail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use tidegate_runtime::{Disk, DiskFile, LockError, Open, Random};

use super::format::{
    ALIGNMENT, FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FileHeaderProblem, FoundFrame,
    FrameHeader, frame_bytes,
};
use crate::{Entry, WalPosition};

/// How much is read at once. An entry's bytes are a slice of such a chunk.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
const PREFIX: &str = "wal-";
pub(super) const SPARE_PREFIX: &str = "spare-";

/// An entry found by recovery. `entry.batches` is a slice of a chunk of 4 MiB: keeping it keeps the chunk, so
/// keep all of them, or none and read them again with `LocalWal::read(position, batches.len())`.
#[derive(Debug, Clone)]
pub struct RecoveredEntry {
    pub position: WalPosition,
    pub entry: Entry,
}

/// What recovery found in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    pub entries: u64,
    pub batch_bytes: u64,
    pub files: usize,
    /// Where the recovered log ends.
    pub end: WalPosition,
}

/// Why a log can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Locked(#[from] LockError),
    #[error("can't {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Something that was durable isn't there any more. Opening would lose acknowledged records.
    #[error(transparent)]
    Damaged(#[from] Damage),
    #[error("{} has version {version} of the WAL format, which this program can't read", path.display())]
    UnsupportedVersion { path: PathBuf, version: u32 },
    #[error("invalid WAL options: {0}")]
    InvalidOptions(&'static str),
}

/// Damage that no crash explains.
#[derive(Debug, thiserror::Error)]
#[error("WAL file {} is damaged at byte {byte} (WAL position {position}): {reason}", path.display())]
pub struct Damage {
    pub path: PathBuf,
    pub byte: u64,
    pub position: WalPosition,
    pub reason: String,
}

pub(super) fn io_error(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

pub(super) fn file_name(sequence: u64) -> String {
    format!("{PREFIX}{sequence:020}")
}

/// A path for a spare that no other file has: renaming onto another spare would part its handle from its name.
pub(super) fn unused_spare_path(
    disk: &dyn Disk,
    dir: &Path,
    random: &Random,
) -> io::Result<PathBuf> {
    loop {
        let path = dir.join(format!("{SPARE_PREFIX}{:016x}", random.next_u64()));
        if !disk.exists(&path)? {
            return Ok(path);
        }
    }
}

fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_prefix(PREFIX)?.parse().ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// A file of the log with its header.
pub(super) struct LogFile {
    pub path: PathBuf,
    pub header: FileHeader,
    pub file: Arc<dyn DiskFile>,
}

/// A file of the log and where its frames end.
pub(super) struct ScannedFile {
    pub log_file: LogFile,
    pub end: u64,
    pub frames: u64,
}

#[derive(Default)]
pub(super) struct Scan {
    /// The files that hold the log, in order.
    pub files: Vec<ScannedFile>,
    /// Files behind the end of the log, in order. They hold nothing that was ever durable.
    pub behind: Vec<LogFile>,
    pub recovered: Recovered,
    /// The part of the last file that isn't known to be durable: it was read, maybe only from memory.
    pub unproven: Option<(u64, u64)>,
}

/// Reads the log in `dir`. Changes nothing.
pub(super) fn scan(
    disk: &dyn Disk,
    dir: &Path,
    on_entry: &mut dyn FnMut(RecoveredEntry),
) -> Result<Scan, OpenError> {
    let mut scan = Scan::default();
    let mut waiting = open_files(disk, dir)?.into_iter().peekable();
    while let Some(log_file) = waiting.next() {
        let marked_end = waiting.peek().and_then(|next| next.header.previous_end);
        let frames = log_file.frames(marked_end, &mut scan.recovered, on_entry)?;
        scan.recovered.files += 1;
        scan.recovered.end = WalPosition::new(frames.end);
        let goes_on = match (marked_end, waiting.peek()) {
            (Some(end), _) if frames.end != end => {
                return Err(log_file
                    .damage(
                        frames.end,
                        format!(
                            "it was valid up to WAL position {end} when it was recovered before"
                        ),
                    )
                    .into());
            }
            (Some(_), _) => true,
            (None, None) => false,
            (None, Some(next)) => next.continues(frames.end, &log_file)?,
        };
        if !goes_on {
            log_file.check_torn(&log_file, frames.end)?;
            scan.behind.extend(waiting.by_ref());
            for later in &scan.behind {
                later.check_torn(&log_file, frames.end)?;
            }
            let proven = frames.durable_up_to.max(log_file.first_position());
            scan.unproven = (proven < frames.end).then_some((proven, frames.end));
        }
        scan.files.push(ScannedFile {
            log_file,
            end: frames.end,
            frames: frames.count,
        });
    }
    Ok(scan)
}

/// Opens the files and checks that their headers fit together.
fn open_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogFile>, OpenError> {
    let names = disk.list(dir).map_err(io_error("list", dir))?;
    let mut files: Vec<LogFile> = Vec::new();
    for sequence in names.iter().filter_map(|name| sequence_of(name)) {
        let log_file = LogFile::open(disk, dir.join(file_name(sequence)), sequence)?;
        if let Some(before) = files.last() {
            let expected = before.header.start + before.header.file_bytes;
            let gap = before.header.sequence + 1 != sequence;
            if gap || log_file.header.start != expected {
                let reason = "the file before it is missing".to_owned();
                return Err(log_file.damage(log_file.header.start, reason).into());
            }
            if log_file.header.log_id != before.header.log_id {
                let reason = "it belongs to another log".to_owned();
                return Err(log_file.damage(log_file.header.start, reason).into());
            }
        }
        files.push(log_file);
    }
    Ok(files)
}

struct Frames {
    end: u64,
    /// What the last valid frame says of it.
    durable_up_to: u64,
    count: u64,
}

impl LogFile {
    fn open(disk: &dyn Disk, path: PathBuf, sequence: u64) -> Result<Self, OpenError> {
        let file = disk
            .open(&path, Open::Existing)
            .map_err(io_error("open", &path))?;
        let length = file.len().map_err(io_error("measure", &path))?;
        let damage = |byte, reason: &str| Damage {
            path: path.clone(),
            byte,
            position: WalPosition::ZERO,
            reason: reason.to_owned(),
        };
        if length < FILE_HEADER_BYTES {
            return Err(damage(length, "it is shorter than its header").into());
        }
        let bytes = read(&*file, &path, 0, FILE_HEADER_BYTES)?;
        let header = match FileHeader::decode(&bytes) {
            Ok(header) => header,
            // A file gets its name only once its header is durable.
            Err(FileHeaderProblem::Invalid) => {
                return Err(damage(0, "its header is invalid").into());
            }
            Err(FileHeaderProblem::Version(version)) => {
                return Err(OpenError::UnsupportedVersion { path, version });
            }
        };
        if header.sequence != sequence {
            return Err(damage(0, "its header has another sequence than its name").into());
        }
        if header.file_bytes != length {
            return Err(damage(length, "its length isn't what its header says").into());
        }
        Ok(Self { path, header, file })
    }

    fn first_position(&self) -> u64 {
        self.header.start + FILE_HEADER_BYTES
    }

    fn damage(&self, position: u64, reason: String) -> Damage {
        Damage {
            path: self.path.clone(),
            byte: position.saturating_sub(self.header.start),
            position: WalPosition::new(position),
            reason,
        }
    }

    /// Hands out the entries from the start up to the first byte that is no valid frame, or `marked_end`.
    fn frames(
        &self,
        marked_end: Option<u64>,
        recovered: &mut Recovered,
        on_entry: &mut dyn FnMut(RecoveredEntry),
    ) -> Result<Frames, OpenError> {
        let file_end = self.header.start + self.header.file_bytes;
        let mut chunks = Chunks {
            log_file: self,
            limit: marked_end.unwrap_or(file_end).min(file_end),
            chunk: Bytes::new(),
            chunk_position: 0,
        };
        let mut frames = Frames {
            end: self.first_position(),
            durable_up_to: 0,
            count: 0,
        };
        while let Some(header) = chunks.header(frames.end)? {
            let body_position = frames.end + FRAME_HEADER_BYTES as u64;
            let Some(body) = chunks.get(body_position, u64::from(header.body_length))? else {
                break;
            };
            if crc32_iscsi(&body) != header.body_crc {
                break;
            }
            let position = WalPosition::new(frames.end);
            frames.end += frame_bytes(u64::from(header.body_length));
            frames.durable_up_to = header.durable_up_to;
            frames.count += 1;
            if let Some(entry) = recover(&header, body) {
                recovered.entries += 1;
                recovered.batch_bytes += u64::from(header.body_length);
                on_entry(RecoveredEntry { position, entry });
            }
        }
        Ok(frames)
    }

    /// Whether this file's first frame follows a log that ends, in the file before, at `end`.
    fn continues(&self, end: u64, before: &Self) -> Result<bool, OpenError> {
        let position = self.first_position();
        let bytes = self.read(position, FRAME_HEADER_BYTES as u64)?;
        match FrameHeader::find(&bytes, self.header.salt, position) {
            FoundFrame::Nothing => Ok(false),
            FoundFrame::Nonsense => Err(self.nonsense(position).into()),
            FoundFrame::Header(header) if header.durable_up_to == end => Ok(true),
            FoundFrame::Header(header) => {
                Err(before.damage(end, proof(&self.path, &header)).into())
            }
        }
    }

    /// Looks for a frame in this file that proves that `end`, in the file `ended`, was durable once.
    fn check_torn(&self, ended: &Self, end: u64) -> Result<(), OpenError> {
        let file_end = self.header.start + self.header.file_bytes;
        let mut position = end.max(self.first_position());
        while position + FRAME_HEADER_BYTES as u64 <= file_end {
            let length = CHUNK_BYTES.min(file_end - position);
            let bytes = self.read(position, length)?;
            let last = bytes.len() - FRAME_HEADER_BYTES;
            let step = usize::try_from(ALIGNMENT).unwrap_or(1);
            for at in (0..=last).step_by(step) {
                let candidate = position + at as u64;
                match FrameHeader::find(&bytes[at..], self.header.salt, candidate) {
                    FoundFrame::Nothing => {}
                    FoundFrame::Nonsense => return Err(self.nonsense(candidate).into()),
                    FoundFrame::Header(header) if header.durable_up_to > end => {
                        return Err(ended.damage(end, proof(&self.path, &header)).into());
                    }
                    FoundFrame::Header(_) => {}
                }
            }
            position += (last as u64 / ALIGNMENT + 1) * ALIGNMENT;
        }
        Ok(())
    }

    /// Writes `start..end` once more and syncs: afterwards what was read is on the disk, not just in memory.
    pub(super) fn make_durable(&self, start: u64, end: u64) -> Result<(), OpenError> {
        let bytes = self.read(start, end - start)?;
        self.file
            .write_all_at(&bytes, start - self.header.start)
            .map_err(io_error("write", &self.path))?;
        self.file.sync_data().map_err(io_error("sync", &self.path))
    }

    fn nonsense(&self, position: u64) -> Damage {
        self.damage(position, "a frame has impossible fields".to_owned())
    }

    fn read(&self, position: u64, length: u64) -> Result<Bytes, OpenError> {
        read(
            &*self.file,
            &self.path,
            position - self.header.start,
            length,
        )
    }
}

fn proof(path: &Path, header: &FrameHeader) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "the frame at WAL position {} in {name} was written when the log was durable up to {}",
        header.position, header.durable_up_to
    )
}

fn recover(header: &FrameHeader, batches: Bytes) -> Option<Entry> {
    header.entry.as_ref().map(|fields| Entry {
        partition: fields.partition,
        leader_epoch: fields.leader_epoch,
        range: fields.range,
        batches,
        max_timestamp: fields.max_timestamp,
        record_count: fields.record_count,
        checkpoint: None,
    })
}

fn read(file: &dyn DiskFile, path: &Path, byte: u64, length: u64) -> Result<Bytes, OpenError> {
    let length = usize::try_from(length).map_err(|_| OpenError::Io {
        operation: "read",
        path: path.to_owned(),
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, byte)
        .map_err(io_error("read", path))?;
    Ok(bytes.into())
}

/// Reads a file forwards in big pieces.
struct Chunks<'a> {
    log_file: &'a LogFile,
    limit: u64,
    chunk: Bytes,
    chunk_position: u64,
}

impl Chunks<'_> {
    /// `None` past the limit.
    fn get(&mut self, position: u64, length: u64) -> Result<Option<Bytes>, OpenError> {
        if length > self.limit.saturating_sub(position) {
            return Ok(None);
        }
        let chunk_end = self.chunk_position + self.chunk.len() as u64;
        if position < self.chunk_position || position + length > chunk_end {
            let wanted = length.max(CHUNK_BYTES).min(self.limit - position);
            self.chunk = self.log_file.read(position, wanted)?;
            self.chunk_position = position;
        }
        let offset = |at: u64| usize::try_from(at - self.chunk_position).unwrap_or(usize::MAX);
        let (start, end) = (offset(position), offset(position + length));
        Ok(Some(self.chunk.slice(start..end)))
    }

    fn header(&mut self, position: u64) -> Result<Option<FrameHeader>, OpenError> {
        let Some(bytes) = self.get(position, FRAME_HEADER_BYTES as u64)? else {
            return Ok(None);
        };
        match FrameHeader::find(&bytes, self.log_file.header.salt, position) {
            FoundFrame::Header(header) => Ok(Some(header)),
            FoundFrame::Nothing => Ok(None),
            FoundFrame::Nonsense => Err(self.log_file.nonsense(position).into()),
        }
    }
}
