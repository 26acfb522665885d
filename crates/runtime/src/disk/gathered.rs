//! The buffer between slices of any size and writes that the kernel takes past the page cache.

use super::BLOCK_BYTES;

pub(super) const BLOCK: usize = BLOCK_BYTES as usize;
/// Gathered and written at once; it fits the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;

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

    pub(super) fn room(&self) -> usize {
        self.limit - self.bytes().len()
    }

    /// At most as much as there is room for: the buffer never moves.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room());
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes as much as there is room for and returns the rest.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(self.room()));
        self.push(now);
        later
    }

    pub(super) fn fill_block(&mut self) {
        let filled = self.bytes().len().next_multiple_of(BLOCK);
        self.buffer.resize(self.start + filled, 0);
    }

    pub(super) fn clear(&mut self) {
        self.buffer.truncate(self.start);
    }
}
