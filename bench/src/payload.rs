//! Record values: made once, used again and again, so that making them costs the client nothing.

use crate::recorder::Nanos;

/// Room at the head of a value for the run's mark and the planned send time.
pub const STAMP_BYTES: usize = 16;

/// Most bytes of prepared values: beyond the processor's caches, so that they aren't unrealistically warm.
const PREPARED_BYTES: usize = 8 << 20;
/// Fewest and most prepared values.
const PREPARED: std::ops::RangeInclusive<usize> = 4..=1_024;

/// A ring of prepared values.
pub struct Payloads {
    values: Vec<Vec<u8>>,
    next: usize,
}

impl Payloads {
    /// Values of `size` bytes of which `compressibility` (0 to 1) is one repeated byte and the rest random.
    pub fn new(size: usize, compressibility: f64, seed: u64) -> Self {
        let count = (PREPARED_BYTES / size.max(1)).clamp(*PREPARED.start(), *PREPARED.end());
        let mut random = SplitMix(seed);
        let dull = (size as f64 * compressibility).round() as usize;
        let values = (0..count)
            .map(|_| {
                let mut value = vec![b'x'; size];
                let lively = size - dull.min(size);
                random.fill(&mut value[..lively]);
                value
            })
            .collect();
        Self { values, next: 0 }
    }

    /// The next value, to be stamped or sent as it is.
    pub fn take(&mut self) -> &mut [u8] {
        self.next = (self.next + 1) % self.values.len();
        &mut self.values[self.next]
    }
}

/// Writes who planned the record and when into its first bytes; a value too short for it stays as it is.
pub fn stamp(value: &mut [u8], mark: u64, planned: Nanos) {
    if let Some((head, _)) = value.split_first_chunk_mut::<STAMP_BYTES>() {
        head[..8].copy_from_slice(&mark.to_le_bytes());
        head[8..].copy_from_slice(&planned.to_le_bytes());
    }
}

/// When the record was planned, if this run (`mark`) planned it.
pub fn read_stamp(value: &[u8], mark: u64) -> Option<Nanos> {
    let (found, rest) = value.split_first_chunk::<8>()?;
    let (planned, _) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*found) == mark).then(|| u64::from_le_bytes(*planned))
}

/// Steele, Lea and Flood's SplitMix64: small, fast, and the same bytes on every run.
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_by_its_own_run_only() {
        let mut value = vec![0; 20];
        stamp(&mut value, 7, 1_234);
        assert_eq!(read_stamp(&value, 7), Some(1_234));
        assert_eq!(read_stamp(&value, 8), None);
        assert_eq!(read_stamp(&value[..15], 7), None);
    }

    #[test]
    fn the_compressible_share_is_one_repeated_byte() {
        let mut payloads = Payloads::new(1_000, 0.75, 1);
        let value = payloads.take();
        assert!(value[250..].iter().all(|&byte| byte == b'x'));
        assert!(value[..250].iter().any(|&byte| byte != b'x'));
    }

    #[test]
    fn values_larger_than_the_budget_are_still_made() {
        assert_eq!(Payloads::new(16 << 20, 1.0, 1).values.len(), 4);
    }
}
