//! Zigzag base-128 integers, as Protocol Buffers' `sint32` and `sint64`: how record fields are written.

use bytes::BufMut;

/// Takes a 32-bit value off the front of `input`. `None` if it ends early or needs more than 32 bits.
#[inline]
pub(crate) fn take_i32(input: &mut &[u8]) -> Option<i32> {
    // Most fields of most records are one byte long.
    if let Some((&first, rest)) = input.split_first()
        && first < 0x80
    {
        *input = rest;
        let raw = u32::from(first);
        return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
    }
    i32::try_from(take_i64(input)?).ok()
}

/// Takes a 64-bit value off the front of `input`. `None` if it ends early or needs more than 64 bits.
#[inline]
pub(crate) fn take_i64(input: &mut &[u8]) -> Option<i64> {
    let mut raw = 0u64;
    let mut shift = 0;
    loop {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        // The tenth byte holds the one bit that is left.
        if shift == 63 && byte > 1 {
            return None;
        }
        raw |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
        }
        shift += 7;
    }
}

pub(crate) fn put_i32(output: &mut impl BufMut, value: i32) {
    put_i64(output, i64::from(value));
}

pub(crate) fn put_i64(output: &mut impl BufMut, value: i64) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        output.put_u8(low_seven_bits(raw) | 0x80);
        raw >>= 7;
    }
    output.put_u8(low_seven_bits(raw));
}

/// The bytes that [`put_i64`] writes.
pub(crate) fn length_i64(value: i64) -> usize {
    let bits = (64 - zigzag(value).leading_zeros()).max(1);
    usize::try_from(bits.div_ceil(7)).expect("at most ten")
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn low_seven_bits(raw: u64) -> u8 {
    u8::try_from(raw & 0x7f).expect("seven bits fit a byte")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_encodings_are_the_ones_of_protocol_buffers() {
        for (value, bytes) in [
            (0i64, &[0x00u8][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (
                i64::MIN,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            ),
        ] {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(take_i64(&mut &out[..]), Some(value));
        }
    }

    #[test]
    fn a_value_that_is_cut_or_too_wide_is_refused() {
        assert_eq!(take_i64(&mut &[0x80u8, 0x80][..]), None);
        assert_eq!(take_i64(&mut &[0xffu8; 11][..]), None);
        let mut wide = Vec::new();
        put_i64(&mut wide, i64::from(i32::MAX) + 1);
        assert_eq!(take_i32(&mut &wide[..]), None);
    }

    proptest! {
        #[test]
        fn values_round_trip_and_take_the_bytes_foretold(value: i64, narrow: i32) {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            prop_assert_eq!(out.len(), length_i64(value));
            put_i32(&mut out, narrow);
            let mut input = &out[..];
            prop_assert_eq!(take_i64(&mut input), Some(value));
            prop_assert_eq!(take_i32(&mut input), Some(narrow));
            prop_assert!(input.is_empty());
        }
    }
}
