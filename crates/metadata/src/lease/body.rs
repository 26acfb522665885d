//! What stands in a lease object (invariant I7).
//!
//! | bytes | field |
//! |---|---|
//! | 2 | magic `TL` |
//! | 1 | version, 1 |
//! | 1 | 0 |
//! | 4 | CRC32C, little-endian, of version, number (8 bytes, big-endian) and payload |
//! | … | payload: a protobuf message |

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use prost::Message;
use tidegate_types::BrokerId;
use uuid::Uuid;

use crate::envelope::DecodeError;
use crate::model::{Endpoint, WalIdentity};

const MAGIC: [u8; 2] = *b"TL";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;

/// Whether the lease is held on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseKind {
    /// For the lease time from its creation on.
    Held,
    /// Given back: anybody may take it at once.
    Released,
}

/// Who took a number, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseBody {
    /// Whether it is held or given back.
    pub kind: LeaseKind,
    /// The broker; `None` while it has no number yet.
    pub holder: Option<BrokerId>,
    /// Its life.
    pub incarnation: Uuid,
    /// The local WAL whose lock it holds.
    pub wal: Option<WalIdentity>,
    /// Where brokers find the controller.
    pub internal: Option<Endpoint>,
    /// How long it holds without a next number.
    pub lease: Duration,
}

mod message {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Lease {
        #[prost(bool, tag = "1")]
        pub released: bool,
        #[prost(uint32, optional, tag = "2")]
        pub holder: Option<u32>,
        #[prost(bytes = "vec", tag = "3")]
        pub incarnation: Vec<u8>,
        #[prost(bytes = "vec", optional, tag = "4")]
        pub wal: Option<Vec<u8>>,
        #[prost(string, optional, tag = "5")]
        pub host: Option<String>,
        #[prost(uint32, tag = "6")]
        pub port: u32,
        #[prost(uint32, tag = "7")]
        pub lease_ms: u32,
    }
}

impl LeaseBody {
    pub(crate) fn seal(&self, number: u64) -> Bytes {
        let message = message::Lease {
            released: self.kind == LeaseKind::Released,
            holder: self.holder.map(BrokerId::get),
            incarnation: self.incarnation.as_bytes().to_vec(),
            wal: self.wal.map(|wal| wal.as_bytes().to_vec()),
            host: self.internal.as_ref().map(|e| e.host.clone()),
            port: self.internal.as_ref().map_or(0, |e| e.port.into()),
            lease_ms: u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX),
        };
        let payload = message.encode_to_vec();
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        bytes.put_slice(&MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(0);
        bytes.put_u32_le(checksum(VERSION, number, &payload));
        bytes.put_slice(&payload);
        bytes.freeze()
    }

    pub(crate) fn open(number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let header = bytes
            .get(..HEADER_BYTES)
            .ok_or(DecodeError::Malformed("shorter than its header"))?;
        if header[..2] != MAGIC {
            return Err(DecodeError::Malformed("wrong magic"));
        }
        if header[2] > VERSION {
            return Err(DecodeError::NewerVersion(header[2]));
        }
        let payload = &bytes[HEADER_BYTES..];
        let stored = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        if checksum(header[2], number, payload) != stored {
            return Err(DecodeError::Checksum);
        }
        let message = message::Lease::decode(payload)
            .map_err(|_| DecodeError::Malformed("not the protobuf message expected"))?;
        let uuid = |bytes: &[u8]| {
            Uuid::from_slice(bytes).map_err(|_| DecodeError::Invalid("an id not 16 bytes long"))
        };
        let port =
            u16::try_from(message.port).map_err(|_| DecodeError::Invalid("a port above 65535"))?;
        Ok(Self {
            kind: if message.released {
                LeaseKind::Released
            } else {
                LeaseKind::Held
            },
            holder: message
                .holder
                .map(BrokerId::new)
                .transpose()
                .map_err(|_| DecodeError::Invalid("a broker id above 2^31-1"))?,
            incarnation: uuid(&message.incarnation)?,
            wal: message.wal.as_deref().map(uuid).transpose()?,
            internal: message.host.map(|host| Endpoint { host, port }),
            lease: Duration::from_millis(message.lease_ms.into()),
        })
    }
}

fn checksum(version: u8, number: u64, payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&[version]);
    digest.update(&number.to_be_bytes());
    digest.update(payload);
    u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Number 7, as release 1 wrote it; never to be changed.
    const GOLDEN: &str = include_str!("../../testdata/lease-v1.txt");

    pub(crate) fn body(incarnation: u128) -> LeaseBody {
        LeaseBody {
            kind: LeaseKind::Held,
            holder: BrokerId::new(3).ok(),
            incarnation: Uuid::from_u128(incarnation),
            wal: Some(Uuid::from_u128(0xABC)),
            internal: Some(Endpoint {
                host: "10.0.0.3".into(),
                port: 9093,
            }),
            lease: Duration::from_millis(2_000),
        }
    }

    #[test]
    fn a_lease_is_written_as_release_1_wrote_it() {
        let bytes = body(0x1234).seal(7);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN.trim(), "written now: {hex}");
        assert_eq!(LeaseBody::open(7, &bytes).unwrap(), body(0x1234));
        let released = LeaseBody {
            kind: LeaseKind::Released,
            holder: None,
            wal: None,
            internal: None,
            ..body(1)
        };
        assert_eq!(LeaseBody::open(8, &released.seal(8)).unwrap(), released);
    }

    #[test]
    fn any_flipped_bit_truncation_or_other_number_is_noticed() {
        let bytes = body(1).seal(7);
        for bit in (0..bytes.len() * 8).filter(|bit| bit / 8 != 3) {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                LeaseBody::open(7, &bad).is_err(),
                "bit {bit} went unnoticed"
            );
        }
        for length in 0..bytes.len() {
            assert!(LeaseBody::open(7, &bytes[..length]).is_err());
        }
        assert_eq!(LeaseBody::open(8, &bytes), Err(DecodeError::Checksum));
    }
}
