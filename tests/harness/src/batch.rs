//! Record batches (message format 2, KIP-98) built and read by the tests' own code.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, checksum};

/// Compression of a test batch. The other codecs are tried with real clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestCodec {
    /// Code 0.
    None,
    /// Code 1.
    Gzip,
    /// Code 4.
    Zstd,
}

impl TestCodec {
    fn code(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Zstd => 4,
        }
    }

    /// What a producer does with this codec to the records of a batch, or to a message set of the old formats.
    pub fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(match self {
            Self::None => bytes.to_vec(),
            Self::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes)?;
                encoder.finish()?
            }
            Self::Zstd => zstd::encode_all(bytes, 3)?,
        })
    }
}

/// One record to produce.
#[derive(Debug, Clone, Default)]
pub struct TestRecord {
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
}

/// A batch to produce. Fields are public: a test may set what no client would.
#[derive(Debug, Clone)]
pub struct TestBatch {
    /// The records, in order.
    pub records: Vec<TestRecord>,
    /// Compression.
    pub codec: TestCodec,
    /// Producer id, epoch and first sequence; −1 each without idempotence.
    pub producer: (i64, i16, i32),
    /// Further attribute bits: 8 log append time, 16 transactional, 32 control.
    pub attribute_bits: i16,
}

impl TestBatch {
    /// A plain batch of these values, with keys absent and one timestamp.
    pub fn of_values<V: Into<Bytes>>(
        timestamp_ms: i64,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let records = values
            .into_iter()
            .map(|value| TestRecord {
                timestamp_ms,
                key: None,
                value: Some(value.into()),
            })
            .collect();
        Self {
            records,
            codec: TestCodec::None,
            producer: (-1, -1, -1),
            attribute_bits: 0,
        }
    }

    /// A plain batch of one-letter values with these timestamps.
    pub fn of_timestamps(timestamps_ms: impl IntoIterator<Item = i64>) -> Self {
        let mut batch = Self::of_values(0, Vec::<Bytes>::new());
        batch.records = timestamps_ms
            .into_iter()
            .map(|timestamp_ms| TestRecord {
                timestamp_ms,
                key: None,
                value: Some(Bytes::from_static(b"v")),
            })
            .collect();
        batch
    }

    /// The same batch, compressed.
    pub fn with_codec(mut self, codec: TestCodec) -> Self {
        self.codec = codec;
        self
    }

    /// The same batch from an idempotent producer.
    pub fn with_producer(mut self, id: i64, epoch: i16, first_sequence: i32) -> Self {
        self.producer = (id, epoch, first_sequence);
        self
    }

    /// The bytes as a client would send them: base offset 0, leader epoch −1.
    ///
    /// # Panics
    /// When the batch has no record or is beyond 2 GiB.
    pub fn encode(&self) -> Bytes {
        let first = self
            .records
            .first()
            .expect("a batch has a record")
            .timestamp_ms;
        let max = self
            .records
            .iter()
            .map(|record| record.timestamp_ms)
            .max()
            .unwrap_or(first);
        let mut records = Vec::new();
        for (delta, record) in self.records.iter().enumerate() {
            encode_record(
                &mut records,
                first,
                i64::try_from(delta).expect("few records"),
                record,
            );
        }
        let records = self
            .codec
            .compress(&records)
            .expect("compression to memory can't fail");
        let count = i32::try_from(self.records.len()).expect("few records");

        let mut checked = BytesMut::new();
        checked.put_i16(self.codec.code() | self.attribute_bits);
        checked.put_i32(count - 1);
        checked.put_i64(first);
        checked.put_i64(max);
        checked.put_i64(self.producer.0);
        checked.put_i16(self.producer.1);
        checked.put_i32(self.producer.2);
        checked.put_i32(count);
        checked.put_slice(&records);

        let mut batch = BytesMut::new();
        batch.put_i64(0);
        batch.put_i32(i32::try_from(checked.len() + 9).expect("below 2 GiB"));
        batch.put_i32(-1);
        batch.put_i8(2);
        batch.put_u32(crc32c(&checked));
        batch.put_slice(&checked);
        batch.freeze()
    }
}

fn encode_record(out: &mut Vec<u8>, first_timestamp: i64, offset_delta: i64, record: &TestRecord) {
    let mut body = vec![0_u8];
    put_varint(&mut body, record.timestamp_ms - first_timestamp);
    put_varint(&mut body, offset_delta);
    for field in [&record.key, &record.value] {
        match field {
            None => put_varint(&mut body, -1),
            Some(bytes) => {
                put_varint(&mut body, i64::try_from(bytes.len()).expect("small fields"));
                body.extend_from_slice(bytes);
            }
        }
    }
    put_varint(&mut body, 0);
    put_varint(out, i64::try_from(body.len()).expect("small records"));
    out.extend_from_slice(&body);
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = u64::from_ne_bytes(((value << 1) ^ (value >> 63)).to_ne_bytes());
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).expect("seven bits"));
}

fn take_varint(bytes: &mut impl Buf) -> Result<i64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        ensure!(bytes.has_remaining(), "a varint is cut off");
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let half = i64::from_ne_bytes((value >> 1).to_ne_bytes());
            let sign = if value & 1 == 1 { -1 } else { 0 };
            return Ok(half ^ sign);
        }
    }
    bail!("a varint is too long")
}

fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a 32-bit checksum")
}

/// A record read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedRecord {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp as a consumer sees it.
    pub timestamp_ms: i64,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
}

/// A batch read back, its CRC checked.
#[derive(Debug, Clone)]
pub struct DecodedBatch {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset after the last record.
    pub end_offset: i64,
    /// Leader epoch that the broker wrote.
    pub leader_epoch: i32,
    /// The attribute bits.
    pub attributes: i16,
    /// Producer id, epoch, first sequence.
    pub producer: (i64, i16, i32),
    /// Its records; empty when compressed with a codec this reader hasn't got.
    pub records: Vec<DecodedRecord>,
}

/// Reads the whole batches in a fetch answer. A partial batch at the end, which the protocol allows, is left out.
pub fn decode_batches(mut bytes: Bytes) -> Result<Vec<DecodedBatch>> {
    let mut batches = Vec::new();
    while bytes.len() >= 12 {
        let length = usize::try_from((&bytes[8..12]).get_i32()).context("negative batch length")?;
        if bytes.len() < 12 + length {
            break;
        }
        batches.push(decode_batch(bytes.split_to(12 + length))?);
    }
    Ok(batches)
}

fn decode_batch(mut bytes: Bytes) -> Result<DecodedBatch> {
    ensure!(
        bytes.len() >= 61,
        "a batch of {} bytes is shorter than its header",
        bytes.len()
    );
    let base_offset = bytes.get_i64();
    let _length = bytes.get_i32();
    let leader_epoch = bytes.get_i32();
    let magic = bytes.get_i8();
    ensure!(magic == 2, "magic {magic}");
    let crc = bytes.get_u32();
    ensure!(
        crc == crc32c(&bytes),
        "the CRC of the batch at {base_offset} is wrong"
    );
    let attributes = bytes.get_i16();
    let last_offset_delta = bytes.get_i32();
    let first_timestamp = bytes.get_i64();
    let max_timestamp = bytes.get_i64();
    let producer = (bytes.get_i64(), bytes.get_i16(), bytes.get_i32());
    let count = bytes.get_i32();
    let mut plain = match attributes & 7 {
        0 => bytes,
        1 => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(bytes.reader()).read_to_end(&mut plain)?;
            Bytes::from(plain)
        }
        4 => Bytes::from(zstd::decode_all(bytes.reader())?),
        _ => Bytes::new(),
    };
    let mut records = Vec::new();
    for _ in 0..if plain.is_empty() { 0 } else { count } {
        let length = usize::try_from(take_varint(&mut plain)?)?;
        ensure!(plain.len() >= length, "a record is cut off");
        let mut body = plain.split_to(length);
        let _attributes = body.get_u8();
        let timestamp_delta = take_varint(&mut body)?;
        let offset_delta = take_varint(&mut body)?;
        let timestamp_ms = if attributes & 8 == 0 {
            first_timestamp + timestamp_delta
        } else {
            max_timestamp
        };
        let key = take_field(&mut body)?;
        let value = take_field(&mut body)?;
        records.push(DecodedRecord {
            offset: base_offset + offset_delta,
            timestamp_ms,
            key,
            value,
        });
    }
    let end_offset = base_offset + i64::from(last_offset_delta) + 1;
    Ok(DecodedBatch {
        base_offset,
        end_offset,
        leader_epoch,
        attributes,
        producer,
        records,
    })
}

fn take_field(body: &mut Bytes) -> Result<Option<Bytes>> {
    let length = take_varint(body)?;
    if length < 0 {
        return Ok(None);
    }
    let length = usize::try_from(length)?;
    ensure!(body.len() >= length, "a field is cut off");
    Ok(Some(body.split_to(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_survive_encoding_in_every_codec() {
        for codec in [TestCodec::None, TestCodec::Gzip, TestCodec::Zstd] {
            let bytes = TestBatch::of_timestamps([10, 30, 20])
                .with_codec(codec)
                .with_producer(7, 1, 5)
                .encode();
            let batches = decode_batches(bytes).unwrap();
            assert_eq!(batches.len(), 1);
            assert_eq!(batches[0].producer, (7, 1, 5));
            let timestamps: Vec<i64> = batches[0]
                .records
                .iter()
                .map(|record| record.timestamp_ms)
                .collect();
            assert_eq!(timestamps, [10, 30, 20]);
            assert_eq!(batches[0].end_offset, 3);
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut bytes = BytesMut::from(&TestBatch::of_values(1, ["hello"]).encode()[..]);
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        assert!(decode_batches(bytes.freeze()).is_err());
    }
}
