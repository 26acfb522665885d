//! The writer: takes all that waits, writes it, syncs once, and tells the observers.

use std::io::{self, IoSlice};
use std::time::Duration;

use super::files::FileError;
use super::format::{EntryFields, FRAME_HEADER_BYTES, FrameHeader};
use super::recovery::file_name;
use super::state::{LiveFile, Phase, Queued};
use super::{Inner, Step};
use crate::{Appended, Location, WalFailure, WalPosition};

/// The most that one sync covers, roughly: it bounds the wait of the first entry in a group, and what
/// recovery must write once more.
const MAX_GROUP_BYTES: u64 = 8 * 1024 * 1024;
/// How often a write is tried again that found the file system full. That happens only on file systems that
/// don't overwrite in place. Nothing of the group was synced yet, so repeating the write is safe.
const FULL_RETRY: Duration = Duration::from_millis(100);

/// The writer's own state: a group that is under way.
#[derive(Default)]
pub(super) struct Writer {
    file: Option<LiveFile>,
    group: Vec<Queued>,
    /// The frame headers of the group, each behind the padding of the frame before.
    headers: Vec<u8>,
}

impl Writer {
    /// One round: at most one group.
    pub fn step(&mut self, inner: &Inner) -> Step {
        if self.group.is_empty() {
            let mut state = inner.state.lock();
            if let Phase::Failed(failure) = state.phase.clone() {
                let queue = std::mem::take(&mut state.queue);
                drop(state);
                fail_all(inner, queue, &failure);
                return Step::parked(inner);
            }
            let closing = matches!(state.phase, Phase::Closing);
            let durable_up_to = state.durable;
            self.file = state.take_group(MAX_GROUP_BYTES, &mut self.group);
            if state.maker_has_work() {
                inner.files_signal.raise();
            }
            if self.file.is_none() {
                if !closing {
                    state.writer_idle = true;
                    return Step::Wait(None);
                }
                if state.queue.is_empty() {
                    drop(state);
                    close_log(inner);
                    return Step::Done;
                }
                // What was taken waits for a file. Unless one can come, it can't be kept.
                if state.file_to_make().is_some() && !state.file_system_full {
                    state.writer_idle = true;
                    return Step::Wait(None);
                }
                let queue = std::mem::take(&mut state.queue);
                drop(state);
                fail_all(inner, queue, &WalFailure::Closed);
                return Step::Again;
            }
            drop(state);
            self.encode_headers(durable_up_to);
        }
        self.write_group(inner)
    }

    fn encode_headers(&mut self, durable_up_to: u64) {
        self.headers.clear();
        let salt = self.file.as_ref().map_or(0, |file| file.salt);
        for queued in &self.group {
            let header = FrameHeader {
                salt,
                position: queued.position,
                durable_up_to,
                entry: Some(EntryFields::of(&queued.entry)),
                body_length: queued.body_length,
                body_crc: queued.body_crc,
            };
            header.encode_to(&mut self.headers);
            self.headers.resize(self.headers.len() + padding(queued), 0);
        }
    }

    fn write_group(&mut self, inner: &Inner) -> Step {
        let (Some(file), Some(first)) = (self.file.clone(), self.group.first()) else {
            return Step::Again;
        };
        let byte = first.position - file.start;
        let name = file_name(file.sequence);
        match file.file.write_vectored_all_at(&mut self.slices(), byte) {
            Ok(()) => {}
            Err(source) if source.kind() == io::ErrorKind::StorageFull => {
                let error = FileError::at("write", &name)(source);
                if inner.is_closing() {
                    return self.fail(inner, error.into());
                }
                inner.note_file_system_full(&error);
                return Step::Wait(Some(FULL_RETRY));
            }
            Err(source) => return self.fail(inner, FileError::at("write", &name)(source).into()),
        }
        let started = inner.clock.now();
        if let Err(source) = file.file.sync_data() {
            return self.fail(inner, FileError::at("sync", &name)(source).into());
        }
        let took = inner.clock.now().saturating_duration_since(started);
        inner.metrics.sync_seconds.observe(took.as_secs_f64());
        self.report(inner);
        Step::Again
    }

    /// The group as it goes to the file: no byte of a batch is copied.
    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.group.len() * 2 + 1);
        let mut headers = self.headers.as_slice();
        let mut padding_before = 0;
        for queued in &self.group {
            let (header, rest) = headers.split_at(padding_before + FRAME_HEADER_BYTES);
            slices.push(IoSlice::new(header));
            slices.push(IoSlice::new(&queued.entry.batches));
            padding_before = padding(queued);
            headers = rest;
        }
        slices.push(IoSlice::new(headers));
        slices
    }

    fn report(&mut self, inner: &Inner) {
        let bytes: u64 = self.group.iter().map(|queued| queued.frame_bytes).sum();
        {
            let mut state = inner.state.lock();
            if let Some(last) = self.group.last() {
                state.durable = last.position + last.frame_bytes;
            }
            state.pending_bytes -= bytes;
            inner.metrics.pending_bytes.set(gauge(state.pending_bytes));
            if state.file_system_full && state.file_to_make().is_none() {
                // It was a write that found no room, and it went through now.
                state.file_system_full = false;
                inner.metrics.file_system_full.set(0);
            }
        }
        inner.metrics.appended_bytes.inc_by(bytes);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a group has far fewer than 2^52 entries"
        )]
        inner.metrics.group_entries.observe(self.group.len() as f64);
        for queued in self.group.drain(..) {
            queued.observer.durable(Appended {
                range: queued.entry.range,
                location: Location::Local {
                    position: WalPosition::new(queued.position),
                    length: queued.body_length,
                },
            });
        }
        self.file = None;
    }

    fn fail(&mut self, inner: &Inner, failure: WalFailure) -> Step {
        let failure = inner.fail(failure);
        fail_all(inner, self.group.drain(..), &failure);
        self.file = None;
        Step::Again
    }
}

fn padding(queued: &Queued) -> usize {
    let padding = queued.frame_bytes - FRAME_HEADER_BYTES as u64 - u64::from(queued.body_length);
    usize::try_from(padding).expect("padding is less than the alignment")
}

pub(super) fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Gives the entries' bytes back and then tells whose they were: who hears of it sees them gone.
fn fail_all(inner: &Inner, entries: impl IntoIterator<Item = Queued>, failure: &WalFailure) {
    let entries: Vec<Queued> = entries.into_iter().collect();
    let bytes: u64 = entries.iter().map(|queued| queued.frame_bytes).sum();
    {
        let mut state = inner.state.lock();
        state.pending_bytes -= bytes;
        inner.metrics.pending_bytes.set(gauge(state.pending_bytes));
    }
    for queued in entries {
        queued.observer.failed(failure);
    }
}

/// Writes a mark, which proves at the next recovery that all before it was durable.
fn close_log(inner: &Inner) {
    let (place, durable_up_to) = {
        let mut state = inner.state.lock();
        (state.place_of_mark(), state.durable)
    };
    if let Some((file, position)) = place {
        let mark = FrameHeader {
            salt: file.salt,
            position,
            durable_up_to,
            entry: None,
            body_length: 0,
            body_crc: 0,
        };
        let mut bytes = Vec::new();
        mark.encode_to(&mut bytes);
        let written = file
            .file
            .write_all_at(&bytes, position - file.start)
            .and_then(|()| file.file.sync_data());
        if let Err(error) = written {
            // Everything reported is durable without it.
            tracing::warn!(%error, file = %file.path.display(), "wal closed without a mark");
        }
    }
    inner.written_out();
}
