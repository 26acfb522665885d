//! CRC32C (Castagnoli, CRC-32/ISCSI, RFC 3720), with the processor's instructions where it has them.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// The CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    narrow(checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// The CRC32C of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

fn narrow(crc: u64) -> u32 {
    u32::try_from(crc).expect("a 32-bit CRC fits 32 bits")
}
