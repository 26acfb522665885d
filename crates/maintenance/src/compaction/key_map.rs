//! The last offset of each key, in bounded memory.

use std::hash::{BuildHasher, RandomState};

use tidegate_types::Offset;

const SLOT_BYTES: usize = size_of::<Slot>();
const FIRST_SLOTS: usize = 1 << 10;
/// Of 16 slots so many are used at most: with more, a look-up walks too far.
const MOST_OF_16: usize = 13;

/// The map can't take another whole batch within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key map is full with {keys} keys")]
pub struct KeyMapFull {
    pub keys: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// 128 bits of a keyed hash stand for the key.
    hash: [u64; 2],
    /// The offset + 1; 0 in a free slot. Offsets have 63 bits.
    offset_and_one: u64,
}

const FREE: Slot = Slot {
    hash: [0; 2],
    offset_and_one: 0,
};

/// Key hash → last offset, in one table of open addresses.
///
/// It grows as it fills. While it grows the old and the new table are both there, and both together stay within the
/// limit.
#[derive(Debug)]
pub struct KeyMap {
    slots: Vec<Slot>,
    used: usize,
    limit_bytes: usize,
    hashers: [RandomState; 2],
}

impl KeyMap {
    /// A map of at most `limit_bytes`; of the sixteen slots that the smallest one has, if that is more.
    pub fn new(limit_bytes: usize) -> Self {
        let slots = (limit_bytes / SLOT_BYTES).clamp(16, FIRST_SLOTS);
        Self {
            slots: vec![FREE; slots],
            used: 0,
            limit_bytes,
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Makes room for `keys` more. A map that holds nothing makes it whatever the limit: a batch larger than the
    /// whole map must not stop compaction for ever.
    ///
    /// # Errors
    /// The limit doesn't allow it.
    pub fn reserve(&mut self, keys: usize) -> Result<(), KeyMapFull> {
        while self.used + keys > capacity(self.slots.len()) {
            let Some(grown) = self.grown() else {
                if self.used > 0 {
                    return Err(KeyMapFull { keys: self.used });
                }
                self.slots = vec![FREE; (keys / MOST_OF_16 + 1) * 16];
                continue;
            };
            let old = std::mem::replace(&mut self.slots, vec![FREE; grown]);
            for slot in old.into_iter().filter(|slot| slot.offset_and_one != 0) {
                let at = self.find(slot.hash);
                self.slots[at] = slot;
            }
        }
        Ok(())
    }

    /// Twice as many slots; as many as the limit allows if that would be the last time it could double.
    fn grown(&self) -> Option<usize> {
        let most = (self.limit_bytes / SLOT_BYTES).saturating_sub(self.slots.len());
        let doubled = 2 * self.slots.len();
        let grown = if doubled * 3 > self.limit_bytes / SLOT_BYTES {
            most
        } else {
            doubled
        };
        (grown > self.slots.len()).then_some(grown)
    }

    /// Notes that a key is at an offset, which is behind all noted before. [`KeyMap::reserve`] comes first.
    pub fn note(&mut self, key: &[u8], offset: Offset) {
        let hash = self.hash(key);
        let at = self.find(hash);
        let slot = &mut self.slots[at];
        self.used += usize::from(slot.offset_and_one == 0);
        *slot = Slot {
            hash,
            offset_and_one: offset.get() + 1,
        };
    }

    /// Whether a later record of this key was noted.
    pub fn has_later(&self, key: &[u8], offset: Offset) -> bool {
        let slot = self.slots[self.find(self.hash(key))];
        slot.offset_and_one > offset.get() + 1
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The slot of a hash, or the free one where it belongs.
    fn find(&self, hash: [u64; 2]) -> usize {
        let count = self.slots.len();
        // The high half of the product spreads evenly over any number of slots.
        let first = (u128::from(hash[0]) * count as u128) >> 64;
        let mut at = usize::try_from(first).expect("it is below the number of slots");
        loop {
            let slot = &self.slots[at];
            if slot.offset_and_one == 0 || slot.hash == hash {
                return at;
            }
            at = if at + 1 == count { 0 } else { at + 1 };
        }
    }
}

/// How many of so many slots may be used.
fn capacity(slots: usize) -> usize {
    slots / 16 * MOST_OF_16
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn offset(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    proptest! {
        #[test]
        fn it_knows_the_last_offset_of_every_key(keys in proptest::collection::vec(0u16..800, 0..4000)) {
            let mut map = KeyMap::new(1 << 20);
            let mut model = HashMap::new();
            for (at, key) in keys.iter().enumerate() {
                map.reserve(1).unwrap();
                map.note(&key.to_be_bytes(), offset(at as u64));
                model.insert(*key, at as u64);
            }
            prop_assert_eq!(map.len(), model.len());
            for key in 0..800u16 {
                let last = model.get(&key);
                for at in [0, 1, 17, 3999] {
                    let later = last.is_some_and(|last| *last > at);
                    prop_assert_eq!(map.has_later(&key.to_be_bytes(), offset(at)), later);
                }
            }
        }
    }

    #[test]
    fn it_stays_within_its_limit_and_uses_most_of_it() {
        for limit in [64 << 10, 100_000, 1 << 20, 3 << 20] {
            let mut map = KeyMap::new(limit);
            let mut key = 0u64;
            while map.reserve(1).is_ok() {
                map.note(&key.to_be_bytes(), offset(key));
                key += 1;
            }
            assert!(map.memory_bytes() <= limit);
            assert!(
                map.memory_bytes() * 2 > limit,
                "{} of {limit}",
                map.memory_bytes()
            );
            assert!(map.len() * SLOT_BYTES * 4 > map.memory_bytes() * 3);
            assert_eq!(map.reserve(1), Err(KeyMapFull { keys: map.len() }));
        }
    }

    #[test]
    fn an_empty_map_takes_a_batch_of_any_size() {
        let mut map = KeyMap::new(1000);
        map.reserve(50_000).unwrap();
        for key in 0..50_000u64 {
            map.note(&key.to_be_bytes(), offset(key));
        }
        assert_eq!(map.len(), 50_000);
        assert!(map.reserve(50_000).is_err());
    }
}
