//! What a test record says about itself.

use std::fmt;

/// Who wrote a record, and as which of its records for that partition. Written as the head of the value; the rest is
/// filling that depends on it, so that a changed byte is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The producer.
    pub producer: u32,
    /// The partition it was sent to.
    pub partition: i32,
    /// Counts from 0 for each producer and partition.
    pub number: u64,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "producer {} partition {} number {}",
            self.producer, self.partition, self.number
        )
    }
}

impl Mark {
    /// The value of the record with this mark: `producer.partition.number|filling`.
    pub fn value(self) -> Vec<u8> {
        let mut value =
            format!("{}.{}.{}|", self.producer, self.partition, self.number).into_bytes();
        let seed = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(self.producer);
        let length = 40 + seed % 700;
        let mut state = seed | 1;
        for _ in 0..length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            value.push(state.to_le_bytes()[0]);
        }
        value
    }

    /// The mark of a value, or `None` when the value isn't exactly what its mark says it was.
    pub fn read(value: &[u8]) -> Option<Self> {
        let end = value.iter().position(|byte| *byte == b'|')?;
        let head = std::str::from_utf8(&value[..end]).ok()?;
        let mut parts = head.split('.');
        let mark = Self {
            producer: parts.next()?.parse().ok()?,
            partition: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        (mark.value() == value).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_gives_its_mark_back_and_a_changed_one_does_not() {
        let mark = Mark {
            producer: 2,
            partition: 5,
            number: 1234,
        };
        let mut value = mark.value();
        assert_eq!(Mark::read(&value), Some(mark));
        *value.last_mut().unwrap() ^= 1;
        assert_eq!(Mark::read(&value), None);
    }
}
