//! The rules of the local WAL without its input and output: where an append goes, when it is refused, which
//! file is made next and which are done with. One lock guards it; nothing here blocks.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_runtime::DiskFile;

use super::format::{FILE_HEADER_BYTES, frame_bytes};
use crate::{AppendObserver, AppendRefused, Entry, FullCause, WalFailure, WalPosition};

/// An entry with its place in the log, waiting for the writer.
pub(super) struct Queued {
    pub sequence: u64,
    pub position: u64,
    pub frame_bytes: u64,
    pub body_length: u32,
    pub body_crc: u32,
    pub entry: Entry,
    pub observer: Arc<dyn AppendObserver>,
}

/// A file of the log. It ends, for good, at `end` once the writer has left it.
#[derive(Clone)]
pub(super) struct LiveFile {
    pub sequence: u64,
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub salt: u64,
    pub start: u64,
    pub bytes: u64,
    pub end: Option<u64>,
}

/// An allocated file that isn't part of the log.
pub(super) struct SpareFile {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
}

/// The file to be made next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextFile {
    pub sequence: u64,
    pub start: u64,
    pub previous_end: Option<u64>,
}

#[derive(Clone)]
pub(super) enum Phase {
    Running,
    Closing,
    Failed(WalFailure),
}

/// The sizes that decide.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub file_bytes: u64,
    pub capacity_bytes: u64,
    pub pending_bytes: u64,
}

/// Where the next append goes: a byte of a file that may not exist yet.
#[derive(Clone, Copy)]
struct Cursor {
    sequence: u64,
    start: u64,
    byte: u64,
}

pub(super) struct State {
    pub limits: Limits,
    pub phase: Phase,
    pub queue: VecDeque<Queued>,
    /// The files of the log, in order, up to the one before `next`.
    pub live: VecDeque<LiveFile>,
    pub retired: Vec<LiveFile>,
    pub spares: Vec<SpareFile>,
    pub next: NextFile,
    /// The sequence of the file that the writer is at.
    pub writing: u64,
    /// Everything below is durable.
    pub durable: u64,
    pub pending_bytes: u64,
    pub writer_idle: bool,
    /// The last try to make a file, or to write, found the file system full.
    pub file_system_full: bool,
    cursor: Cursor,
    trimmed: u64,
}

impl State {
    /// A log that ends at `end`, whose first new entry goes into `next`.
    pub fn new(
        limits: Limits,
        live: VecDeque<LiveFile>,
        spares: Vec<SpareFile>,
        next: NextFile,
        end: u64,
    ) -> Self {
        Self {
            limits,
            phase: Phase::Running,
            queue: VecDeque::new(),
            live,
            retired: Vec::new(),
            spares,
            writing: next.sequence,
            durable: end,
            pending_bytes: 0,
            writer_idle: false,
            file_system_full: false,
            cursor: Cursor {
                sequence: next.sequence,
                start: next.start,
                byte: FILE_HEADER_BYTES,
            },
            trimmed: 0,
            next,
        }
    }

    /// Takes an entry, or refuses it and changes nothing.
    pub fn admit(
        &mut self,
        entry: Entry,
        body_crc: u32,
        observer: Arc<dyn AppendObserver>,
    ) -> Result<(), AppendRefused> {
        match &self.phase {
            Phase::Running => {}
            Phase::Closing => return Err(AppendRefused::Closed),
            Phase::Failed(failure) => return Err(AppendRefused::Failed(failure.clone())),
        }
        let length = entry.batches.len() as u64;
        let frame_bytes = frame_bytes(length);
        let limit_bytes = self.limits.file_bytes - FILE_HEADER_BYTES;
        let body_length = match u32::try_from(length) {
            Ok(body_length) if frame_bytes <= limit_bytes => body_length,
            Ok(_) | Err(_) => {
                return Err(AppendRefused::TooLarge {
                    bytes: length,
                    limit_bytes,
                });
            }
        };
        // One entry above the limit may pass alone, or it never could.
        let pending = self.pending_bytes + frame_bytes;
        if self.pending_bytes > 0 && pending > self.limits.pending_bytes {
            return Err(AppendRefused::Full(FullCause::Pending));
        }
        let cursor = self.place(frame_bytes)?;
        self.queue.push_back(Queued {
            sequence: cursor.sequence,
            position: cursor.start + cursor.byte,
            frame_bytes,
            body_length,
            body_crc,
            entry,
            observer,
        });
        self.pending_bytes = pending;
        self.cursor = Cursor {
            byte: cursor.byte + frame_bytes,
            ..cursor
        };
        Ok(())
    }

    /// Where a frame of this size goes.
    fn place(&self, frame_bytes: u64) -> Result<Cursor, AppendRefused> {
        let mut cursor = self.cursor;
        if cursor.byte + frame_bytes > self.limits.file_bytes {
            cursor = Cursor {
                sequence: cursor.sequence + 1,
                start: cursor.start + self.limits.file_bytes,
                byte: FILE_HEADER_BYTES,
            };
        }
        if cursor.sequence >= self.next.sequence {
            // The file isn't made yet. If it only needs time, the entry may wait for it in the queue.
            let missing = cursor.sequence - self.next.sequence + 1;
            if !self.capacity_allows(missing) {
                return Err(AppendRefused::Full(FullCause::Capacity));
            }
            if self.file_system_full {
                return Err(AppendRefused::Full(FullCause::FileSystem));
            }
        }
        Ok(cursor)
    }

    fn capacity_allows(&self, more_files: u64) -> bool {
        let more = more_files.saturating_mul(self.limits.file_bytes);
        self.live_bytes().saturating_add(more) <= self.limits.capacity_bytes
    }

    pub fn live_bytes(&self) -> u64 {
        self.live.iter().map(|file| file.bytes).sum()
    }

    /// Bytes that can be taken now, an upper limit: an entry that doesn't fit the rest of a file leaves it.
    pub fn available_bytes(&self) -> u64 {
        if !matches!(self.phase, Phase::Running) {
            return 0;
        }
        let to_make = if self.file_system_full {
            0
        } else {
            self.limits.capacity_bytes.saturating_sub(self.live_bytes()) / self.limits.file_bytes
        };
        let files = (self.next.sequence + to_make).saturating_sub(self.cursor.sequence);
        let Some(further) = files.checked_sub(1) else {
            return 0;
        };
        let per_file = self.limits.file_bytes - FILE_HEADER_BYTES;
        let room = self.limits.file_bytes - self.cursor.byte + further * per_file;
        room.min(self.limits.pending_bytes.saturating_sub(self.pending_bytes))
    }

    /// The file to make now: one is kept ready ahead of the one that appends go to.
    pub fn file_to_make(&self) -> Option<NextFile> {
        let ahead = match self.phase {
            Phase::Running => 1,
            Phase::Closing => 0,
            Phase::Failed(_) => return None,
        };
        let needed = !self.queue.is_empty() || ahead > 0;
        let wanted = needed && self.next.sequence <= self.cursor.sequence + ahead;
        (wanted && self.capacity_allows(1)).then(|| self.next.clone())
    }

    /// Whether the maker of files should be woken. On a full file system it tries again by itself.
    pub fn maker_has_work(&self) -> bool {
        !self.retired.is_empty() || (!self.file_system_full && self.file_to_make().is_some())
    }

    /// Takes the file that [`State::file_to_make`] asked for into the log.
    pub fn file_made(&mut self, file: LiveFile) {
        self.next = NextFile {
            sequence: file.sequence + 1,
            start: file.start + file.bytes,
            previous_end: None,
        };
        self.live.push_back(file);
        self.file_system_full = false;
    }

    /// Takes the entries that go out together: consecutive, of one file, about `max_bytes`. `None` if there
    /// is nothing to write or its file isn't there yet.
    pub fn take_group(&mut self, max_bytes: u64, group: &mut Vec<Queued>) -> Option<LiveFile> {
        let sequence = self.queue.front()?.sequence;
        let file = self
            .live
            .iter()
            .find(|file| file.sequence == sequence)?
            .clone();
        if sequence != self.writing {
            // The group before was the last in its file, and it is durable.
            let left = self.writing;
            if let Some(file) = self.live.iter_mut().find(|file| file.sequence == left) {
                file.end = Some(self.durable);
            }
            self.writing = sequence;
            self.retire();
        }
        let mut bytes = 0;
        while let Some(queued) = self.queue.front() {
            bytes += queued.frame_bytes;
            if queued.sequence != sequence || (bytes > max_bytes && !group.is_empty()) {
                break;
            }
            group.extend(self.queue.pop_front());
        }
        Some(file)
    }

    /// The place for a mark behind everything, if the file that the writer is at has entries and room for it.
    pub fn place_of_mark(&mut self) -> Option<(LiveFile, u64)> {
        let cursor = self.cursor;
        let fits = cursor.byte + frame_bytes(0) <= self.limits.file_bytes;
        let anything_before = cursor.byte > FILE_HEADER_BYTES;
        if cursor.sequence != self.writing || !fits || !anything_before {
            return None;
        }
        let file = self
            .live
            .iter()
            .find(|file| file.sequence == cursor.sequence)?;
        Some((file.clone(), cursor.start + cursor.byte))
    }

    /// Everything below `position` isn't needed any more.
    pub fn trim(&mut self, position: WalPosition) {
        self.trimmed = self.trimmed.max(position.get());
        self.retire();
    }

    /// Takes files off the front that the writer has left and that are trimmed.
    fn retire(&mut self) {
        while let Some(front) = self.live.front() {
            let done = front.end.is_some_and(|end| end <= self.trimmed);
            if !done || front.sequence >= self.writing {
                break;
            }
            self.retired.extend(self.live.pop_front());
        }
    }

    pub fn fail(&mut self, failure: &WalFailure) {
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Failed(failure.clone());
        }
    }

    /// The file that holds `position`.
    pub fn file_at(&self, position: u64) -> Option<LiveFile> {
        let holds = |file: &&LiveFile| position >= file.start && position - file.start < file.bytes;
        self.live.iter().find(holds).cloned()
    }
}
