//! The envelope of every stored value (invariant I7).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | magic `TM` |
//! | 1 | version, 1 |
//! | 1 | table: the first byte of the key |
//! | 4 | CRC32C, little-endian, of version, table, key and payload |
//! | … | payload: a protobuf message |
//!
//! The key is under the checksum, so a value can't pass for another key's.

use bytes::{BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use prost::Message;

const MAGIC: [u8; 2] = *b"TM";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;

/// Why a stored value can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not a value of Tidegate's.
    #[error("no metadata value: {0}")]
    Malformed(&'static str),
    /// Bytes were changed, or belong to another key.
    #[error("checksum mismatch")]
    Checksum,
    /// Written by a later release.
    #[error("written by a newer Tidegate (value version {0})")]
    NewerVersion(u8),
    /// The payload contradicts what its table may hold.
    #[error("the value can't be: {0}")]
    Invalid(&'static str),
}

pub(crate) fn seal(key: &[u8], message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + message.encoded_len());
    bytes.put_slice(&MAGIC);
    bytes.put_u8(VERSION);
    bytes.put_u8(key.first().copied().unwrap_or(0));
    bytes.put_u32_le(0);
    message
        .encode(&mut bytes)
        .expect("a BytesMut grows as needed, so encoding into it can't run out of room");
    let checksum = checksum(key, VERSION, &bytes[HEADER_BYTES..]);
    bytes[4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes.freeze()
}

pub(crate) fn open<M: Message + Default>(key: &[u8], value: &[u8]) -> Result<M, DecodeError> {
    let header = value
        .get(..HEADER_BYTES)
        .ok_or(DecodeError::Malformed("shorter than its envelope"))?;
    if header[..2] != MAGIC {
        return Err(DecodeError::Malformed("wrong magic"));
    }
    if header[2] > VERSION {
        return Err(DecodeError::NewerVersion(header[2]));
    }
    if key.first() != Some(&header[3]) {
        return Err(DecodeError::Malformed("a value of another table"));
    }
    let stored = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let payload = &value[HEADER_BYTES..];
    if checksum(key, header[2], payload) != stored {
        return Err(DecodeError::Checksum);
    }
    M::decode(payload).map_err(|_| DecodeError::Malformed("not the protobuf message expected"))
}

fn checksum(key: &[u8], version: u8, payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&[version]);
    digest.update(key);
    digest.update(payload);
    u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_of_value_or_key_is_noticed() {
        let key = b"p-some-key";
        let value = seal(key, &String::from("payload"));
        assert_eq!(open::<String>(key, &value).unwrap(), "payload");
        for bit in 0..value.len() * 8 {
            let mut bad = value.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                open::<String>(key, &bad).is_err(),
                "bit {bit} went unnoticed"
            );
        }
        assert_eq!(
            open::<String>(b"p-other-key", &value),
            Err(DecodeError::Checksum)
        );
    }

    #[test]
    fn a_newer_version_is_named_as_such() {
        let mut value = seal(b"p", &String::from("x")).to_vec();
        value[2] = 2;
        assert_eq!(
            open::<String>(b"p", &value),
            Err(DecodeError::NewerVersion(2))
        );
    }

    #[test]
    fn every_truncation_is_refused() {
        let value = seal(b"p", &String::from("payload"));
        for length in 0..value.len() {
            assert!(open::<String>(b"p", &value[..length]).is_err());
        }
    }
}
