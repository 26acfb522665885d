//! The memory budget: how much there is, and how it is shared.

use std::fs;
use std::path::{Path, PathBuf};

use super::sections::Memory;
use super::value::{ByteSize, Setting};

const MIB: u64 = 1 << 20;
/// What the process takes beside its buffers and caches: code, runtime, metadata, the allocator's slack.
const OWN_BYTES: u64 = 40 * MIB;
const LARGEST_DEFAULT_BYTES: u64 = 256 * MIB;
const SMALLEST_DEFAULT_BYTES: u64 = 64 * MIB;

/// The shares in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShares {
    pub total: u64,
    pub tail: u64,
    pub block_cache: u64,
    pub catch_up: u64,
    pub request: u64,
    pub index_cache: u64,
    pub compaction: u64,
}

/// The shares that are set together exceed the total.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMuch {
    pub refusal: String,
}

impl MemoryShares {
    /// Shares the budget. `available`: the memory that this process may take at most, if it is known.
    pub fn new(section: &Memory, available: Option<u64>) -> Result<Self, TooMuch> {
        let default = available.map_or(LARGEST_DEFAULT_BYTES, |bytes| {
            (bytes / 2).clamp(SMALLEST_DEFAULT_BYTES, LARGEST_DEFAULT_BYTES)
        });
        let total = section.total_bytes.map_or(default, ByteSize::bytes);
        let rest = total.saturating_sub(OWN_BYTES);
        let share =
            |set: Option<ByteSize>, parts: u64| set.map_or(rest / 27 * parts, ByteSize::bytes);
        let shares = Self {
            total,
            tail: share(section.tail_bytes, 10),
            block_cache: share(section.block_cache_bytes, 6),
            catch_up: share(section.catch_up_bytes, 4),
            request: share(section.request_bytes, 4),
            index_cache: share(section.index_cache_bytes, 1),
            compaction: share(section.compaction_bytes, 2),
        };
        let parts = [
            shares.tail,
            shares.block_cache,
            shares.catch_up,
            shares.request,
            shares.index_cache,
            shares.compaction,
        ];
        let taken = parts
            .iter()
            .fold(0u64, |sum, part| sum.saturating_add(*part));
        if taken > rest {
            let needed = ByteSize(
                taken
                    .saturating_add(OWN_BYTES)
                    .div_ceil(MIB)
                    .saturating_mul(MIB),
            )
            .show();
            return Err(TooMuch {
                refusal: format!(
                    "is less than its shares and {} for the process: write at least {needed}, or make memory.tail_bytes, memory.block_cache_bytes, memory.catch_up_bytes, memory.request_bytes, memory.index_cache_bytes or memory.compaction_bytes smaller",
                    ByteSize(OWN_BYTES).show()
                ),
            });
        }
        Ok(shares)
    }
}

/// The memory that this process may take: the least of its control groups' limits and the machine's memory.
/// `None` where neither is known.
pub fn available_bytes() -> Option<u64> {
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(Path::new("/sys/fs/cgroup"), &own_groups);
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| machine_bytes(&text));
    group.into_iter().chain(machine).min()
}

/// The least limit of the control groups, of version 2 or 1, that `/proc/self/cgroup` names. A limit holds for
/// everything below it, so every level up to the root is asked.
fn group_limit(root: &Path, own_groups: &str) -> Option<u64> {
    let limits = own_groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default().trim_start_matches('/');
        let (top, file): (PathBuf, &str) = if controllers.is_empty() {
            (root.to_owned(), "memory.max")
        } else if controllers
            .split(',')
            .any(|controller| controller == "memory")
        {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        let deepest = top.join(path);
        let levels = deepest
            .ancestors()
            .take_while(|level| level.starts_with(&top));
        levels
            .filter_map(|level| {
                fs::read_to_string(level.join(file))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .collect()
    });
    // Version 1 writes "no limit" as a number near 2^63.
    limits.filter(|limit| *limit < 1 << 60).min()
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(total: Option<u64>, tail: Option<u64>) -> Memory {
        Memory {
            total_bytes: total.map(ByteSize),
            tail_bytes: tail.map(ByteSize),
            block_cache_bytes: None,
            catch_up_bytes: None,
            request_bytes: None,
            index_cache_bytes: None,
            compaction_bytes: None,
        }
    }

    #[test]
    fn a_large_machine_gets_the_largest_default() {
        let shares = MemoryShares::new(&memory(None, None), Some(64 << 30)).unwrap();
        let expected = MemoryShares {
            total: 256 * MIB,
            tail: 80 * MIB,
            block_cache: 48 * MIB,
            catch_up: 32 * MIB,
            request: 32 * MIB,
            index_cache: 8 * MIB,
            compaction: 16 * MIB,
        };
        assert_eq!(shares, expected);
        assert_eq!(MemoryShares::new(&memory(None, None), None), Ok(expected));
    }

    #[test]
    fn a_small_container_gets_half_and_the_smallest_still_works() {
        assert_eq!(
            MemoryShares::new(&memory(None, None), Some(300 * MIB))
                .unwrap()
                .total,
            150 * MIB
        );
        let least = MemoryShares::new(&memory(None, None), Some(10 * MIB)).unwrap();
        assert_eq!(least.total, 64 * MIB);
        assert!(least.request > 3 * MIB, "{least:?}");
    }

    #[test]
    fn shares_above_the_total_are_refused_with_what_would_do() {
        let error = MemoryShares::new(&memory(Some(128 * MIB), Some(100 * MIB)), None).unwrap_err();
        assert!(
            error.refusal.contains("write at least 196MiB"),
            "{}",
            error.refusal
        );
        assert!(MemoryShares::new(&memory(Some(256 * MIB), Some(80 * MIB)), None).is_ok());
    }

    #[test]
    fn the_least_limit_of_a_control_group_and_those_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("kubepods/pod1");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("kubepods/memory.max"), "400000000\n").unwrap();
        assert_eq!(
            group_limit(root.path(), "0::/kubepods/pod1\n"),
            Some(400_000_000)
        );
        assert_eq!(group_limit(root.path(), "0::/elsewhere\n"), None);

        let first = root.path().join("memory/docker/a");
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join("memory.limit_in_bytes"), "500\n").unwrap();
        fs::write(
            root.path().join("memory/memory.limit_in_bytes"),
            "9223372036854771712\n",
        )
        .unwrap();
        assert_eq!(
            group_limit(root.path(), "9:memory:/docker/a\n4:cpu,cpuacct:/x\n"),
            Some(500)
        );
        assert_eq!(group_limit(root.path(), "9:memory:/\n"), None);
    }

    #[test]
    fn the_machines_memory_is_read_in_kibibytes() {
        assert_eq!(
            machine_bytes("MemFree: 1 kB\nMemTotal:       24683416 kB\n"),
            Some(24_683_416 * 1024)
        );
        assert_eq!(machine_bytes(""), None);
    }
}
