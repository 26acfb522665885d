//! Cutting a connection's bytes into frames: four bytes of length, then that many bytes.
//!
//! The reader does no I/O. The connection asks for the next [`Step`] and either handles a frame or reads
//! from its socket into the buffer it is given:
//!
//! ```
//! # use bytes::BufMut;
//! # use tidegate_kafka_wire::frame::{FrameLimits, FrameReader, Step};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = FrameReader::new(FrameLimits::default());
//! let mut socket: &[u8] = &[0, 0, 0, 2, b'h', b'i'];
//! let frame = loop {
//!     match reader.step()? {
//!         Step::Frame(frame) => break frame,
//!         // With tokio: `if socket.read_buf(&mut target).await? == 0 { return Ok(()) }`.
//!         Step::Read(mut target) => {
//!             let (now, later) = socket.split_at(socket.len().min(target.remaining_mut()));
//!             target.put_slice(now);
//!             socket = later;
//!         }
//!     }
//! };
//! assert_eq!(&frame[..], b"hi");
//! # Ok(())
//! # }
//! ```
//!
//! Promises:
//!
//! - A length that is negative or above the limit is an error before anything is reserved for it.
//! - Memory follows the bytes that arrive, not the length that was announced: a buffer starts at
//!   [`FrameLimits::first_reserve_bytes`] and doubles. Only a connection that has been
//!   [trusted](FrameReader::trust) gets [`FrameLimits::trusted_reserve_bytes`] at once.
//! - A frame is one allocation of exactly its length, shared with no other frame, so a record batch that is
//!   kept for long pins its own request and nothing else.
//! - Small frames that arrive together are cut from one read.

use bytes::buf::Limit;
use bytes::{BufMut, BytesMut};

/// Bytes of the length before each frame.
pub const LENGTH_BYTES: usize = 4;

/// How large a frame may be, and how much is reserved for it before its bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Largest length accepted, not counting the length itself (Kafka: `socket.request.max.bytes`).
    pub max_frame_bytes: u32,
    /// Reserved at most for a frame of which nothing has arrived yet.
    pub first_reserve_bytes: usize,
    /// The same on a trusted connection.
    pub trusted_reserve_bytes: usize,
    /// Buffer for lengths and small frames, kept as long as the connection.
    pub staging_bytes: usize,
}

impl Default for FrameLimits {
    /// 100 MiB as in Kafka; 64 KiB, or 1 MiB when trusted; 4 KiB.
    fn default() -> Self {
        Self {
            max_frame_bytes: 100 << 20,
            first_reserve_bytes: 64 << 10,
            trusted_reserve_bytes: 1 << 20,
            staging_bytes: 4 << 10,
        }
    }
}

/// A length that no frame may have. The stream can't be followed further: close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of negative length {length} was announced")]
    Negative { length: i32 },
    #[error("a frame of {length} bytes was announced and the limit is {limit}")]
    TooLarge { length: u32, limit: u32 },
}

impl FrameLimits {
    fn check(&self, length: i32) -> Result<usize, FrameError> {
        let Ok(length) = u32::try_from(length) else {
            return Err(FrameError::Negative { length });
        };
        let too_large = FrameError::TooLarge {
            length,
            limit: self.max_frame_bytes,
        };
        if length > self.max_frame_bytes {
            return Err(too_large);
        }
        usize::try_from(length).map_err(|_| too_large)
    }
}

/// What the connection has to do next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Handle this frame, without its length prefix.
    Frame(BytesMut),
    /// Read at least one byte into this buffer, then ask again. It is never full.
    Read(Limit<&'a mut BytesMut>),
}

/// The frames of one connection.
#[derive(Debug)]
pub struct FrameReader {
    limits: FrameLimits,
    trusted: bool,
    /// Bytes read ahead of a frame: its length, and whatever came along in the same read.
    staging: BytesMut,
    /// Bytes at the front of `staging` that have been used.
    used: usize,
    partial: Option<PartialFrame>,
}

#[derive(Debug)]
struct PartialFrame {
    buffer: BytesMut,
    length: usize,
}

impl FrameReader {
    pub fn new(limits: FrameLimits) -> Self {
        let limits = FrameLimits {
            first_reserve_bytes: limits.first_reserve_bytes.max(1),
            staging_bytes: limits.staging_bytes.max(LENGTH_BYTES),
            ..limits
        };
        Self {
            limits,
            trusted: false,
            staging: BytesMut::new(),
            used: 0,
            partial: None,
        }
    }

    /// Lets this connection have larger buffers at once, say since it has sent a valid request.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// What has arrived of the frame that has begun and isn't complete, for admitting its memory as it grows.
    pub fn arrived_bytes(&self) -> Option<usize> {
        self.partial.as_ref().map(|partial| partial.buffer.len())
    }

    /// Memory this reader holds now.
    pub fn reserved_bytes(&self) -> usize {
        let partial = self.partial.as_ref();
        self.staging.capacity() + partial.map_or(0, |partial| partial.buffer.capacity())
    }

    /// The next complete frame, or a buffer to read into. After an error every call returns that error.
    pub fn step(&mut self) -> Result<Step<'_>, FrameError> {
        if let Some(frame) = self.take_frame()? {
            return Ok(Step::Frame(frame));
        }
        Ok(Step::Read(self.read_target()))
    }

    fn take_frame(&mut self) -> Result<Option<BytesMut>, FrameError> {
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => match self.begin_frame()? {
                Some(partial) => partial,
                None => return Ok(None),
            },
        };
        let staged = &self.staging[self.used..];
        let moved = staged.len().min(partial.length - partial.buffer.len());
        partial.make_room(moved);
        partial.buffer.extend_from_slice(&staged[..moved]);
        self.used += moved;
        if self.used == self.staging.len() {
            self.staging.clear();
            self.used = 0;
        }
        if partial.buffer.len() == partial.length {
            return Ok(Some(partial.buffer));
        }
        self.partial = Some(partial);
        Ok(None)
    }

    fn begin_frame(&mut self) -> Result<Option<PartialFrame>, FrameError> {
        let staged = &self.staging[self.used..];
        let Some((prefix, arrived)) = staged.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = self.limits.check(i32::from_be_bytes(*prefix))?;
        let allowed = if self.trusted {
            self.limits
                .trusted_reserve_bytes
                .max(self.limits.first_reserve_bytes)
        } else {
            self.limits.first_reserve_bytes
        };
        let reserve = if length <= allowed || length <= arrived.len() {
            length
        } else {
            self.limits.first_reserve_bytes
        };
        self.used += LENGTH_BYTES;
        Ok(Some(PartialFrame {
            buffer: BytesMut::with_capacity(reserve),
            length,
        }))
    }

    fn read_target(&mut self) -> Limit<&mut BytesMut> {
        if let Some(partial) = &mut self.partial {
            partial.make_room(1);
            let room = partial.buffer.capacity().min(partial.length) - partial.buffer.len();
            return (&mut partial.buffer).limit(room);
        }
        // What is left is an incomplete length, so there is room for more.
        let left = self.staging.len() - self.used;
        self.staging.copy_within(self.used.., 0);
        self.staging.truncate(left);
        self.used = 0;
        if self.staging.capacity() < self.limits.staging_bytes {
            self.staging.reserve(self.limits.staging_bytes - left);
        }
        let room = self.staging.capacity() - left;
        (&mut self.staging).limit(room)
    }
}

impl PartialFrame {
    /// Grows the buffer so that `more` bytes fit, by doubling and never past the frame's length. The
    /// growth copies by hand: reserving in place would round the capacity up and pin the excess.
    fn make_room(&mut self, more: usize) {
        let needed = self.buffer.len() + more;
        if needed <= self.buffer.capacity() {
            return;
        }
        let doubled = self.buffer.capacity().saturating_mul(2);
        let mut larger = BytesMut::with_capacity(doubled.max(needed).min(self.length));
        larger.extend_from_slice(&self.buffer);
        self.buffer = larger;
    }
}

#[cfg(test)]
mod tests;
