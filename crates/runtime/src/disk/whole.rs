//! A file that is written once, as a whole, and never changed: an object in a folder.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use super::gathered::{BLOCK, Gathered};

/// Gathered for the page cache; it fits the processor's cache.
const CACHED_BYTES: usize = 256 << 10;
/// A smaller file isn't worth a path of its own.
const SMALLEST_DIRECT: usize = 256 << 10;

/// Writes `pieces`, one behind the other, into an empty file and makes them durable. After an error any part may be
/// written.
///
/// The pieces are small, slices of what producers sent. Writing each by a call of its own costs the file system
/// about twice the work of large writes; a vectored write is no way out, the kernel copies page by page with faults
/// switched off and falls back to tiny steps wherever two pieces meet. So they are gathered. What is large goes past
/// the page cache (`O_DIRECT`) where the file system can: no second copy, no pages to find and write at the sync,
/// no memory of the machine for what may never be read.
pub fn write_whole_file<'a>(
    file: &File,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
) -> io::Result<()> {
    let total: usize = pieces.clone().map(<[u8]>::len).sum();
    let direct = total >= SMALLEST_DIRECT && bypass_page_cache(file, true).is_ok();
    if !direct || write_direct(file, pieces.clone(), total)? == Outcome::Refused {
        write_cached(file, pieces)?;
    }
    file.sync_all()
}

fn write_cached<'a>(mut file: &File, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(CACHED_BYTES, &mut file);
    for piece in pieces {
        writer.write_all(piece)?;
    }
    writer.flush()
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Written,
    /// The file system takes no direct write, which it may say only when asked for one. Nothing is written that a
    /// cached write from the start doesn't replace.
    Refused,
}

fn write_direct<'a>(
    file: &File,
    pieces: impl Iterator<Item = &'a [u8]>,
    total: usize,
) -> io::Result<Outcome> {
    let mut gathered = Gathered::new(total);
    let mut at = 0u64;
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = gathered.take(rest);
            if gathered.room() == 0 {
                let written = file.write_all_at(gathered.bytes(), at);
                if refused(&written) {
                    bypass_page_cache(file, false)?;
                    return Ok(Outcome::Refused);
                }
                written?;
                at += gathered.bytes().len() as u64;
                gathered.clear();
            }
        }
    }
    // The end isn't a block's: a direct write would leave the file longer than its contents.
    let whole = gathered.bytes().len() / BLOCK * BLOCK;
    let (blocks, end) = gathered.bytes().split_at(whole);
    let written = file.write_all_at(blocks, at);
    bypass_page_cache(file, false)?;
    if refused(&written) {
        return Ok(Outcome::Refused);
    }
    written?;
    file.write_all_at(end, at + blocks.len() as u64)?;
    Ok(Outcome::Written)
}

fn refused(written: &io::Result<()>) -> bool {
    matches!(written, Err(error) if error.kind() == io::ErrorKind::InvalidInput)
}

#[cfg(target_os = "linux")]
fn bypass_page_cache(file: &File, bypass: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, bypass);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn bypass_page_cache(_file: &File, bypass: bool) -> io::Result<()> {
    if bypass {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of 1 to 4,999 bytes that add up to `total`.
    fn pieces(total: usize) -> Vec<Vec<u8>> {
        let mut left = total;
        let mut pieces = Vec::new();
        let mut length = 1;
        while left > 0 {
            let now = length.min(left);
            pieces.push((0..now).map(|i| (i * 7 + length) as u8).collect());
            left -= now;
            length = (length * 3 + 1) % 5_000;
        }
        pieces
    }

    #[test]
    fn a_file_holds_exactly_its_pieces_at_every_end() {
        let folder = tempfile::tempdir().unwrap();
        let large = 3 << 20;
        for total in [
            0,
            1,
            SMALLEST_DIRECT - 1,
            SMALLEST_DIRECT,
            large - 1,
            large,
            large + 1,
            large + BLOCK - 1,
            large + BLOCK,
        ] {
            let file = File::create_new(folder.path().join(total.to_string())).unwrap();
            let pieces = pieces(total);
            write_whole_file(&file, pieces.iter().map(Vec::as_slice)).unwrap();
            let read = std::fs::read(folder.path().join(total.to_string())).unwrap();
            assert_eq!(read.len(), total);
            assert!(read == pieces.concat(), "{total} bytes");
        }
    }

    /// `/dev/shm` is a tmpfs, which takes direct writes only since Linux 6.6.
    #[test]
    fn a_file_system_without_direct_writes_gets_the_same_bytes() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let path = folder.path().join("f");
        let pieces = pieces(2 << 20);
        let file = File::create_new(&path).unwrap();
        write_whole_file(&file, pieces.iter().map(Vec::as_slice)).unwrap();
        assert!(std::fs::read(&path).unwrap() == pieces.concat());
        // What a refusal leaves behind.
        let again = File::create_new(folder.path().join("g")).unwrap();
        write_cached(&again, pieces.iter().map(Vec::as_slice)).unwrap();
        assert!(std::fs::read(folder.path().join("g")).unwrap() == pieces.concat());
    }
}
