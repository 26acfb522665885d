//! Writes past the page cache (`O_DIRECT`).
//!
//! A log is written once, synced at once and, as a rule, never read again: the page cache costs it a copy, the
//! search for dirty pages at each sync and memory. The kernel wants such writes aligned in memory and in the file,
//! so slices are gathered in an aligned buffer, and the block in which a write ends is kept: the next write begins
//! in it and has to store it once more. A block is the file system's unit of writing either way, so a power cut
//! endangers nothing that a write through the page cache wouldn't.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::BLOCK_BYTES;
use super::gathered::{BLOCK, Gathered, is_refusal};

/// The second, direct handle of a file.
pub(super) struct DirectFile {
    file: File,
    /// The length of the file; only what lies within is written directly, so that its length stays exact.
    length: AtomicU64,
    /// The file system refused: from here on everything goes through the page cache.
    refused: AtomicBool,
    last: Mutex<LastBlock>,
}

/// The block in which the last write ended, up to there.
struct LastBlock {
    end: u64,
    bytes: Vec<u8>,
}

/// What [`DirectFile::write`] did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    All,
    /// Nothing: it has to go through the page cache.
    Refused,
}

impl DirectFile {
    /// `file` is open with `O_DIRECT`.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length: AtomicU64::new(length),
            refused: AtomicBool::new(false),
            last: Mutex::new(LastBlock {
                end: 0,
                bytes: Vec::new(),
            }),
        })
    }

    /// The file was changed by another way: what is remembered of it may be wrong.
    pub(super) fn changed(&self, length: u64) {
        let mut last = self.last.lock();
        last.end = 0;
        last.bytes.clear();
        self.length.store(length, Ordering::Release);
    }

    /// Writes all slices, one behind the other. What follows them in their last block becomes zeros.
    pub(super) fn write(
        &self,
        slices: &[IoSlice<'_>],
        position: u64,
        buffered: &File,
    ) -> io::Result<Written> {
        let total: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let end = position + total;
        let beyond = end.next_multiple_of(BLOCK_BYTES) > self.length.load(Ordering::Acquire);
        if total == 0 || beyond || self.refused.load(Ordering::Relaxed) {
            return Ok(Written::Refused);
        }
        let mut last = self.last.lock();
        if last.end != position {
            last.bytes.resize(within_block(position), 0);
            let block = position - last.bytes.len() as u64;
            buffered.read_exact_at(&mut last.bytes, block)?;
        }
        match self.write_gathered(slices, position, to_usize(total), &mut last) {
            Ok(()) => Ok(Written::All),
            Err(error) if is_refusal(&error) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(Written::Refused)
            }
            Err(error) => Err(error),
        }
    }

    fn write_gathered(
        &self,
        slices: &[IoSlice<'_>],
        position: u64,
        total: usize,
        last: &mut LastBlock,
    ) -> io::Result<()> {
        let mut gathered = Gathered::new(last.bytes.len() + total);
        gathered.push(&last.bytes);
        let mut at = position - last.bytes.len() as u64;
        // Valid again only once everything is written.
        last.end = 0;
        gathered.gather(slices.iter().map(|slice| &**slice), |bytes| {
            self.file.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
            Ok(())
        })?;
        last.bytes.clear();
        let whole = gathered.bytes().len() / BLOCK * BLOCK;
        last.bytes.extend_from_slice(&gathered.bytes()[whole..]);
        gathered.fill_block();
        self.file.write_all_at(gathered.bytes(), at)?;
        last.end = position + total as u64;
        Ok(())
    }
}

fn within_block(position: u64) -> usize {
    to_usize(position % BLOCK_BYTES)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("what is in memory fits a usize")
}
