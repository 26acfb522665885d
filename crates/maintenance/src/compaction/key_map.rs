//! The last offset of each key, in bounded memory.

use std::hash::{BuildHasher, RandomState};

use tidegate_types::Offset;

const SLOT_BYTES: usize = size_of::<Slot>();
const FIRST_SLOTS: usize = 1 << 10;
/// Of 16 slots so many are used at most: with more, a look-up walks too far.
const MOST_OF_16: usize = 13;

/// The map can't take another key within its limit.
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

    /// Twice as many slots; as many as the limit allows if that would be the last time it could double.
    fn grown(&self) -> Option<usize> {
        let most = (self.limit_bytes / SLOT_BYTES).saturating_sub(self.slots.len());
        let doubled = 2 * self.slots.len();
        let grown = if doubled * 3 > self.limit_bytes / SLOT_BYTES {
            most
        } else {
            doubled
        };
        (capacity(grown) > capacity(self.slots.len())).then_some(grown)
    }

    /// Notes that a key is at an offset, which is behind all noted before.
    ///
    /// # Errors
    /// The key is a new one and the limit allows no more: nothing is noted.
    pub fn note(&mut self, key: &[u8], offset: Offset) -> Result<(), KeyMapFull> {
        let hash = self.hash(key);
        let mut at = self.find(hash);
        if self.slots[at].offset_and_one == 0 {
            if self.used >= capacity(self.slots.len()) {
                self.grow()?;
                at = self.find(hash);
            }
            self.used += 1;
        }
        self.slots[at] = Slot {
            hash,
            offset_and_one: offset.get() + 1,
        };
        Ok(())
    }

    fn grow(&mut self) -> Result<(), KeyMapFull> {
        let grown = self.grown().ok_or(KeyMapFull { keys: self.used })?;
        let old = std::mem::replace(&mut self.slots, vec![FREE; grown]);
        for slot in old.into_iter().filter(|slot| slot.offset_and_one != 0) {
            let at = self.find(slot.hash);
            self.slots[at] = slot;
        }
        Ok(())
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
                map.note(&key.to_be_bytes(), offset(at as u64)).unwrap();
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
            while map.note(&key.to_be_bytes(), offset(key)).is_ok() {
                key += 1;
            }
            assert!(map.memory_bytes() <= limit);
            assert!(
                map.memory_bytes() * 2 > limit,
                "{} of {limit}",
                map.memory_bytes()
            );
            assert!(map.len() * SLOT_BYTES * 4 > map.memory_bytes() * 3);
            assert_eq!(map.len() as u64, key);
            let full = KeyMapFull { keys: map.len() };
            assert_eq!(map.note(&key.to_be_bytes(), offset(key)), Err(full));
        }
    }

    #[test]
    fn a_full_map_refuses_new_keys_only_and_still_follows_those_it_has() {
        let mut map = KeyMap::new(0);
        let keys = (0u64..).take_while(|key| map.note(&key.to_be_bytes(), offset(*key)).is_ok());
        let keys = keys.count() as u64;
        assert!(keys > 0);
        for key in 0..keys {
            map.note(&key.to_be_bytes(), offset(1_000 + key)).unwrap();
        }
        assert!(map.has_later(&0u64.to_be_bytes(), offset(999)));
        assert!(!map.has_later(&keys.to_be_bytes(), Offset::ZERO));
        assert_eq!(map.memory_bytes(), 16 * SLOT_BYTES);
    }
}
