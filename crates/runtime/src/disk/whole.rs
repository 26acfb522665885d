//! A file that is written once, as a whole, and never changed: an object in a folder.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::gathered::{BLOCK, Gathered, is_refusal};

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
    let mut whole = WholeFile::new(file, total >= SMALLEST_DIRECT);
    let mut gathered = Gathered::new(total);
    gathered.gather(pieces, |bytes| whole.write(bytes))?;
    let rest = gathered.bytes();
    let (blocks, end) = rest.split_at(rest.len() / BLOCK * BLOCK);
    whole.write(blocks)?;
    // The end isn't a block's: a direct write would leave the file longer than its contents.
    whole.use_page_cache()?;
    whole.write(end)?;
    file.sync_all()
}

/// The file, and how far it is written.
struct WholeFile<'f> {
    file: &'f File,
    at: u64,
    direct: bool,
}

impl<'f> WholeFile<'f> {
    fn new(file: &'f File, direct: bool) -> Self {
        Self {
            file,
            at: 0,
            direct: direct && bypass_page_cache(file, true).is_ok(),
        }
    }

    fn use_page_cache(&mut self) -> io::Result<()> {
        if self.direct {
            bypass_page_cache(self.file, false)?;
            self.direct = false;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all_at(bytes, self.at) {
            Err(error) if self.direct && is_refusal(&error) => {
                self.use_page_cache()?;
                self.file.write_all_at(bytes, self.at)?;
            }
            written => written?,
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
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

    /// Pieces of up to 4,999 bytes that add up to `total`.
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
    }

    /// What isn't whole blocks, disks refuse to take directly.
    #[test]
    fn a_refused_direct_write_goes_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let pieces = pieces(2 << 20);
        let file = File::create_new(&path).unwrap();
        let mut whole = WholeFile::new(&file, true);
        whole.write(&[7; BLOCK]).unwrap();
        for piece in &pieces {
            whole.write(piece).unwrap();
        }
        let expected = [&[7; BLOCK][..], &pieces.concat()].concat();
        assert!(std::fs::read(&path).unwrap() == expected);
    }
}
