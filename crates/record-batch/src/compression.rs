//! The four codecs, as Kafka's clients write them.

use std::io::{self, Read, Write};

use crate::header::Codec;

/// What the Java client's Snappy streams begin with, before a version and the lowest compatible version.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

/// Why a compressed body can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// It is (or says it is) larger than the caller accepts.
    #[error("the records take more than {limit_bytes} bytes when decompressed")]
    TooLarge { limit_bytes: usize },
    #[error("the records are no {} stream", codec.as_str())]
    Malformed { codec: Codec, source: io::Error },
}

/// Decompresses the records of a batch.
///
/// At most `limit_bytes` are produced, and memory stays near that: besides the output, a codec's window is
/// held (at most 8 MiB for LZ4; for zstd what the stream asks for, up to 128 MiB of address space, touched only
/// as far as output was produced).
///
/// # Errors
/// When the output would exceed `limit_bytes`, or the stream is malformed.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    limit_bytes: usize,
) -> Result<Vec<u8>, DecompressError> {
    let malformed = |source| DecompressError::Malformed { codec, source };
    match codec {
        Codec::None if input.len() > limit_bytes => Err(DecompressError::TooLarge { limit_bytes }),
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => read_bounded(
            codec,
            flate2::bufread::MultiGzDecoder::new(input),
            limit_bytes,
        ),
        Codec::Snappy => decompress_snappy(input, limit_bytes),
        Codec::Lz4 => read_bounded(
            codec,
            lz4_flex::frame::FrameDecoder::new(input),
            limit_bytes,
        ),
        Codec::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(malformed)?;
            read_bounded(codec, decoder, limit_bytes)
        }
    }
}

/// Compresses records as the Java client does: gzip; Snappy in its framing; LZ4 frames of independent 64 KiB
/// blocks without checksums; zstd at its default level.
///
/// # Errors
/// When the codec's library gives one; none of them does for output in memory.
pub fn compress(codec: Codec, input: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(input)?;
            encoder.finish()
        }
        Codec::Snappy => compress_snappy(input),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(input)?;
            encoder.finish().map_err(io::Error::other)
        }
        Codec::Zstd => zstd::bulk::compress(input, zstd::DEFAULT_COMPRESSION_LEVEL),
    }
}

fn read_bounded(
    codec: Codec,
    reader: impl Read,
    limit_bytes: usize,
) -> Result<Vec<u8>, DecompressError> {
    // One byte more tells "exactly at the limit" from "above it".
    let stop = u64::try_from(limit_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut output = Vec::new();
    reader
        .take(stop)
        .read_to_end(&mut output)
        .map_err(|source| DecompressError::Malformed { codec, source })?;
    if output.len() > limit_bytes {
        return Err(DecompressError::TooLarge { limit_bytes });
    }
    Ok(output)
}

/// Reads the Java client's framing, or a raw block as other clients write it.
fn decompress_snappy(input: &[u8], limit_bytes: usize) -> Result<Vec<u8>, DecompressError> {
    let mut output = Vec::new();
    if !input.starts_with(XERIAL_MAGIC) {
        append_snappy_block(input, &mut output, limit_bytes)?;
        return Ok(output);
    }
    let mut rest = input;
    while !rest.is_empty() {
        // Streams may be joined, so the header may come again between blocks.
        if rest.starts_with(XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or_else(snappy_cut)?;
            continue;
        }
        let (length, after) = rest.split_first_chunk().ok_or_else(snappy_cut)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| snappy_cut())?;
        let (block, after) = after.split_at_checked(length).ok_or_else(snappy_cut)?;
        append_snappy_block(block, &mut output, limit_bytes)?;
        rest = after;
    }
    Ok(output)
}

fn append_snappy_block(
    block: &[u8],
    output: &mut Vec<u8>,
    limit_bytes: usize,
) -> Result<(), DecompressError> {
    let malformed = |e: snap::Error| DecompressError::Malformed {
        codec: Codec::Snappy,
        source: e.into(),
    };
    let length = snap::raw::decompress_len(block).map_err(malformed)?;
    let start = output.len();
    let end = start.saturating_add(length);
    if end > limit_bytes {
        return Err(DecompressError::TooLarge { limit_bytes });
    }
    output.resize(end, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, &mut output[start..])
        .map_err(malformed)?;
    output.truncate(start + written);
    Ok(())
}

fn snappy_cut() -> DecompressError {
    DecompressError::Malformed {
        codec: Codec::Snappy,
        source: io::Error::new(io::ErrorKind::UnexpectedEof, "a framed block is cut"),
    }
}

fn compress_snappy(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut output = Vec::with_capacity(XERIAL_HEADER_BYTES + input.len() / 2);
    output.extend_from_slice(XERIAL_MAGIC);
    output.extend_from_slice(&1u32.to_be_bytes());
    output.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for chunk in input.chunks(XERIAL_BLOCK_BYTES) {
        let block = encoder.compress_vec(chunk)?;
        let length = u32::try_from(block.len()).map_err(io::Error::other)?;
        output.extend_from_slice(&length.to_be_bytes());
        output.extend_from_slice(&block);
    }
    Ok(output)
}
