//! A file system in memory that can lose power, fill up and fail, reproducibly from a seed.
//!
//! What it models: contents are durable only after a sync, names only after a sync of their directory; a power
//! cut keeps any part of what wasn't synced, down to torn sectors; a failed sync stores a part and forgets the
//! rest for ever, although reads still show it (as Linux does); a short write; a full disk. A handle from
//! before a power cut belongs to a dead process: all its calls fail.
//!
//! What it doesn't: directories' own durability (creating one is durable at once), and time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{BLOCK_BYTES, DirLock, Disk, DiskFile, LockError, Open};

/// What a disk stores whole or not at all, if it is in a good mood.
const SECTOR_BYTES: usize = 512;

/// A file system in memory. Clones are handles of the same process.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
    generation: u64,
}

struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    generation: u64,
    random: StdRng,
    files: BTreeMap<u64, FileState>,
    next_file: u64,
    dirs: BTreeMap<PathBuf, DirState>,
    locks: BTreeSet<PathBuf>,
    capacity_bytes: u64,
    syncs_held: bool,
    syncs_waiting: usize,
    syncs: u64,
    faults: Faults,
}

/// Each counts calls down to a fault; `None` is no fault.
#[derive(Default)]
struct Faults {
    sync: Option<u64>,
    write: Option<(u64, usize)>,
    read: Option<u64>,
    power: Option<u64>,
}

#[derive(Default)]
struct FileState {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<PendingWrite>,
    writes: u64,
}

struct PendingWrite {
    number: u64,
    position: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct DirState {
    durable: BTreeMap<String, u64>,
    current: BTreeMap<String, u64>,
    pending: Vec<NameChange>,
}

enum NameChange {
    Link { name: String, file: u64 },
    Unlink { name: String },
    Rename { from: String, to: String },
}

fn broken(what: &str) -> io::Error {
    io::Error::other(format!("simulated fault: {what}"))
}

/// True once, on the call that brings the countdown to its end.
fn due(countdown: &mut Option<u64>) -> bool {
    match countdown {
        None => false,
        Some(0) => {
            *countdown = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
    }
}

impl SimDisk {
    /// An empty disk without faults and without end.
    pub fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    generation: 0,
                    random: StdRng::seed_from_u64(seed),
                    files: BTreeMap::new(),
                    next_file: 0,
                    dirs: BTreeMap::new(),
                    locks: BTreeSet::new(),
                    capacity_bytes: u64::MAX,
                    syncs_held: false,
                    syncs_waiting: 0,
                    syncs: 0,
                    faults: Faults::default(),
                }),
                released: Condvar::new(),
            }),
            generation: 0,
        }
    }

    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Cuts the power: what wasn't synced is lost, in part or whole, as the seed has it. Handles go dead.
    pub fn power_cut(&self) {
        self.shared.state.lock().power_cut();
        self.shared.released.notify_all();
    }

    /// Cuts the power in the middle of the `calls`-th changing call from now (0: the next one).
    pub fn power_cut_in(&self, calls: u64) {
        self.shared.state.lock().faults.power = Some(calls);
    }

    /// A handle for the process that starts after a power cut, or, without one, after a crash of the process:
    /// then all contents are as they were, but the old handles are dead all the same. Faults set are cleared.
    pub fn restart(&self) -> Self {
        let mut state = self.shared.state.lock();
        state.generation += 1;
        state.locks.clear();
        state.faults = Faults::default();
        state.syncs_held = false;
        let generation = state.generation;
        drop(state);
        self.shared.released.notify_all();
        Self {
            shared: Arc::clone(&self.shared),
            generation,
        }
    }

    /// Whether the power was cut since this handle was made.
    pub fn is_dead(&self) -> bool {
        self.shared.state.lock().generation != self.generation
    }

    /// Lets the `calls`-th sync of a file from now fail (0: the next one), once.
    pub fn fail_sync_in(&self, calls: u64) {
        self.shared.state.lock().faults.sync = Some(calls);
    }

    /// Lets the `calls`-th write from now fail after `written_bytes` of it, once.
    pub fn fail_write_in(&self, calls: u64, written_bytes: usize) {
        self.shared.state.lock().faults.write = Some((calls, written_bytes));
    }

    /// Lets the `calls`-th read from now fail, once.
    pub fn fail_read_in(&self, calls: u64) {
        self.shared.state.lock().faults.read = Some(calls);
    }

    /// Limits the sum of all files' lengths.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// Makes syncs of files block until [`SimDisk::release_syncs`].
    pub fn hold_syncs(&self) {
        self.shared.state.lock().syncs_held = true;
    }

    pub fn release_syncs(&self) {
        self.shared.state.lock().syncs_held = false;
        self.shared.released.notify_all();
    }

    /// How many syncs are blocked by [`SimDisk::hold_syncs`].
    pub fn syncs_waiting(&self) -> usize {
        self.shared.state.lock().syncs_waiting
    }

    /// How many syncs of files succeeded so far.
    pub fn syncs(&self) -> u64 {
        self.shared.state.lock().syncs
    }

    /// Flips all bits of a byte, on the disk and in what reads see. False if there is no such byte.
    pub fn corrupt(&self, path: &Path, position: u64) -> bool {
        let mut state = self.shared.state.lock();
        let Some(file) = state.find(path).and_then(|id| state.files.get_mut(&id)) else {
            return false;
        };
        let Ok(at) = usize::try_from(position) else {
            return false;
        };
        let mut flipped = false;
        for contents in [&mut file.current, &mut file.durable] {
            if let Some(byte) = contents.get_mut(at) {
                *byte = !*byte;
                flipped = true;
            }
        }
        flipped
    }

    /// The contents that reads see.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let id = state.find(path)?;
        Some(state.files.get(&id)?.current.clone())
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.shared.state.lock();
        if state.generation != self.generation {
            return Err(broken("the power is off"));
        }
        Ok(state)
    }

    /// Like `enter`, for a call that changes something; the power may go at its start.
    fn enter_change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.enter()?;
        if due(&mut state.faults.power) {
            state.power_cut();
            self.shared.released.notify_all();
            return Err(broken("the power went off"));
        }
        Ok(state)
    }
}

impl State {
    fn find(&self, path: &Path) -> Option<u64> {
        let (dir, name) = split(path).ok()?;
        self.dirs.get(&dir)?.current.get(&name).copied()
    }

    fn dir(&mut self, dir: &Path) -> io::Result<&mut DirState> {
        self.dirs
            .get_mut(dir)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, id: u64) -> io::Result<&mut FileState> {
        self.files
            .get_mut(&id)
            .ok_or_else(|| broken("the file is gone"))
    }

    fn used_bytes(&self) -> u64 {
        let named = self.dirs.values().flat_map(|dir| dir.current.values());
        named
            .filter_map(|id| self.files.get(id))
            .map(|file| file.current.len() as u64)
            .sum()
    }

    fn power_cut(&mut self) {
        self.generation += 1;
        self.faults = Faults::default();
        self.syncs_held = false;
        self.locks.clear();
        for dir in self.dirs.values_mut() {
            // A journal replays the changes in order up to some point.
            let kept = self.random.random_range(0..=dir.pending.len());
            let pending = std::mem::take(&mut dir.pending);
            for change in pending.into_iter().take(kept) {
                change.apply(&mut dir.durable);
            }
            dir.current = dir.durable.clone();
        }
        for file in self.files.values_mut() {
            file.store_some(&mut self.random);
            file.current = file.durable.clone();
        }
        let dirs = &self.dirs;
        self.files.retain(|id, _| {
            dirs.values()
                .any(|dir| dir.durable.values().any(|named| named == id))
        });
    }

    fn write(&mut self, id: u64, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut wanted = bytes;
        let mut outcome = Ok(());
        if let Some((mut calls, written_bytes)) = self.faults.write.take() {
            let mut countdown = Some(calls);
            if due(&mut countdown) {
                wanted = &bytes[..written_bytes.min(bytes.len())];
                outcome = Err(broken("the write failed"));
            } else {
                calls -= 1;
                self.faults.write = Some((calls, written_bytes));
            }
        }
        let position = usize::try_from(position).map_err(|_| broken("position"))?;
        let grown = (position + wanted.len()).saturating_sub(self.file(id)?.current.len());
        let room = self.capacity_bytes.saturating_sub(self.used_bytes());
        if grown as u64 > room {
            // The part that fits is written, as a real disk would.
            let short = wanted.len() - (grown - usize::try_from(room).unwrap_or(grown));
            wanted = &wanted[..short];
            outcome = Err(io::ErrorKind::StorageFull.into());
        }
        self.file(id)?.write(wanted, position);
        outcome
    }

    fn sync(&mut self, id: u64, up_to: u64) -> io::Result<()> {
        let failed = due(&mut self.faults.sync);
        let Some(file) = self.files.get_mut(&id) else {
            return Err(broken("the file is gone"));
        };
        if failed {
            file.store_some(&mut self.random);
            return Err(broken("the sync failed"));
        }
        file.store_up_to(up_to);
        self.syncs += 1;
        Ok(())
    }
}

impl FileState {
    fn write(&mut self, bytes: &[u8], position: usize) {
        overwrite(&mut self.current, bytes, position);
        self.writes += 1;
        self.pending.push(PendingWrite {
            number: self.writes,
            position,
            bytes: bytes.to_vec(),
        });
    }

    fn store_up_to(&mut self, number: u64) {
        let later = self.pending.partition_point(|write| write.number <= number);
        for write in self.pending.drain(..later) {
            overwrite(&mut self.durable, &write.bytes, write.position);
        }
    }

    /// Stores any part of what is pending and forgets the rest.
    fn store_some(&mut self, random: &mut StdRng) {
        let pending = std::mem::take(&mut self.pending);
        match random.random_range(0..5) {
            0 => {}
            1 => {
                for write in &pending {
                    overwrite(&mut self.durable, &write.bytes, write.position);
                }
            }
            2 => {
                // In order, up to a torn byte.
                let total: usize = pending.iter().map(|write| write.bytes.len()).sum();
                let mut left = random.random_range(0..=total);
                for write in &pending {
                    let bytes = &write.bytes[..write.bytes.len().min(left)];
                    overwrite(&mut self.durable, bytes, write.position);
                    left -= bytes.len();
                }
            }
            torn => {
                for write in &pending {
                    for (at, sector) in write.sectors() {
                        let kept = match (random.random_bool(0.5), torn) {
                            (false, _) => 0,
                            (true, 3) => sector.len(),
                            (true, _) => random.random_range(0..=sector.len()),
                        };
                        overwrite(&mut self.durable, &sector[..kept], at);
                    }
                }
            }
        }
    }
}

impl PendingWrite {
    fn sectors(&self) -> Vec<(usize, &[u8])> {
        let mut sectors = Vec::new();
        let mut rest = self.bytes.as_slice();
        let mut at = self.position;
        while !rest.is_empty() {
            let length = (SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len());
            let (sector, later) = rest.split_at(length);
            sectors.push((at, sector));
            at += length;
            rest = later;
        }
        sectors
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Link { name, file } => {
                names.insert(name, file);
            }
            Self::Unlink { name } => {
                names.remove(&name);
            }
            Self::Rename { from, to } => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

fn overwrite(contents: &mut Vec<u8>, bytes: &[u8], position: usize) {
    if bytes.is_empty() {
        return;
    }
    let end = position + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[position..end].copy_from_slice(bytes);
}

fn split(path: &Path) -> io::Result<(PathBuf, String)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let dir = path.parent().ok_or_else(invalid)?;
    let name = path.file_name().and_then(|name| name.to_str());
    Ok((dir.to_owned(), name.ok_or_else(invalid)?.to_owned()))
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.enter_change()?;
        for ancestor in dir.ancestors() {
            state.dirs.entry(ancestor.to_owned()).or_default();
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Ok(self.enter()?.dir(dir)?.current.keys().cloned().collect())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let (dir, name) = split(path)?;
        let found = self.enter()?.dir(&dir)?.current.get(&name).copied();
        let id = match (found, how) {
            (Some(id), Open::Existing) => id,
            (None, Open::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (Some(_), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Open::CreateNew) => {
                let mut state = self.enter_change()?;
                let file = state.next_file;
                state.next_file += 1;
                state.files.insert(file, FileState::default());
                let dir = state.dir(&dir)?;
                dir.current.insert(name.clone(), file);
                dir.pending.push(NameChange::Link { name, file });
                file
            }
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (split(from)?, split(to)?);
        if from_dir != to_dir {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let mut state = self.enter_change()?;
        let dir = state.dir(&from_dir)?;
        let file = dir.current.remove(&from);
        let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        dir.current.insert(to.clone(), file);
        dir.pending.push(NameChange::Rename { from, to });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = split(path)?;
        let mut state = self.enter_change()?;
        let dir = state.dir(&dir)?;
        if dir.current.remove(&name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        dir.pending.push(NameChange::Unlink { name });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.enter_change()?;
        let dir = state.dir(dir)?;
        for change in std::mem::take(&mut dir.pending) {
            change.apply(&mut dir.durable);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.enter()?;
        Ok(state.dirs.contains_key(path) || state.find(path).is_some())
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        let state = self.enter()?;
        Ok(state.capacity_bytes.saturating_sub(state.used_bytes()))
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, LockError> {
        let mut state = self.enter().map_err(|source| LockError::Io {
            dir: dir.to_owned(),
            source,
        })?;
        if !state.locks.insert(dir.to_owned()) {
            return Err(LockError::AlreadyLocked {
                dir: dir.to_owned(),
            });
        }
        Ok(DirLock::new(SimLock {
            disk: self.clone(),
            dir: dir.to_owned(),
        }))
    }
}

struct SimLock {
    disk: SimDisk,
    dir: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        // The lock of a dead process went with it, and another process may hold its own by now.
        if let Ok(mut state) = self.disk.enter() {
            state.locks.remove(&self.dir);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl DiskFile for SimFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.enter()?;
        if due(&mut state.faults.power) {
            // The write was under way: a part of it is among what the power cut may keep.
            let part = state.random.random_range(0..=bytes.len());
            state.write(self.id, &bytes[..part], position).ok();
            state.power_cut();
            self.disk.shared.released.notify_all();
            return Err(broken("the power went off"));
        }
        state.write(self.id, bytes, position)
    }

    fn write_vectored_all_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut bytes: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        // The whole block is written, as the real disk does.
        let end = position + bytes.len() as u64;
        let filled = end.next_multiple_of(BLOCK_BYTES).min(self.len()?).max(end) - end;
        bytes.resize(bytes.len() + usize::try_from(filled).unwrap_or(0), 0);
        self.write_all_at(&bytes, position)
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.enter()?;
        if due(&mut state.faults.read) {
            return Err(broken("the read failed"));
        }
        let start = usize::try_from(position).map_err(|_| broken("position"))?;
        let found = state.file(self.id)?.current.get(start..);
        let found = found.and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.enter_change()?;
        // A sync covers what was written before it was called, not what comes while it runs.
        let up_to = state.file(self.id)?.writes;
        if state.syncs_held {
            state.syncs_waiting += 1;
            while state.syncs_held && state.generation == self.disk.generation {
                self.disk.shared.released.wait(&mut state);
            }
            state.syncs_waiting -= 1;
        }
        if state.generation != self.disk.generation {
            return Err(broken("the power went off"));
        }
        state.sync(self.id, up_to)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.enter()?.file(self.id)?.current.len() as u64)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let position = self.len()?;
        if position < length {
            let bytes = usize::try_from(length - position).map_err(|_| broken("length"))?;
            self.write_all_at(&vec![0; bytes], position)?;
            self.sync_data()?;
        }
        Ok(())
    }
}
