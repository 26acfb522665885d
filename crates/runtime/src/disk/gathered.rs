//! What writes past the page cache need: a buffer that gathers slices of any size at an aligned address.

use std::io;

use super::BLOCK_BYTES;

pub(super) const BLOCK: usize = BLOCK_BYTES as usize;
/// Gathered and written at once; it fits the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// Whether a direct write failed because it was one. Not every file system can, and some find out only now; or the
/// kernel wrote a part of a block.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Bytes at an aligned address.
pub(super) struct Gathered {
    buffer: Vec<u8>,
    start: usize,
    limit: usize,
}

impl Gathered {
    pub(super) fn new(wanted: usize) -> Self {
        let limit = wanted.next_multiple_of(BLOCK).min(BUFFER_BYTES);
        let mut buffer: Vec<u8> = Vec::with_capacity(limit + BLOCK);
        let start = buffer.as_ptr().align_offset(BLOCK);
        buffer.resize(start, 0);
        Self {
            buffer,
            start,
            limit,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn room(&self) -> usize {
        self.limit - self.bytes().len()
    }

    /// At most as much as there is room for: the buffer never moves.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room());
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes all pieces, one behind the other. Whenever the buffer is full, `write` gets it, and it begins anew.
    pub(super) fn gather<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(self.room()));
                self.push(now);
                rest = later;
                if self.room() == 0 {
                    write(self.bytes())?;
                    self.buffer.truncate(self.start);
                }
            }
        }
        Ok(())
    }

    pub(super) fn fill_block(&mut self) {
        let filled = self.bytes().len().next_multiple_of(BLOCK);
        self.buffer.resize(self.start + filled, 0);
    }
}
