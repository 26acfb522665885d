use tidegate_record_batch::crc32c;

use super::*;
use crate::{
    ByteRange, FOOTER_BYTES, Footer, FormatError, HEADER_BYTES, ObjectKind, Part, decode_footer,
    decode_header, decode_index, encode_fence, verify_block, verify_checkpoint,
};

fn part(bytes: &[u8], range: ByteRange) -> &[u8] {
    &bytes[usize::try_from(range.position).unwrap()..usize::try_from(range.end()).unwrap()]
}

/// The check of the part that holds byte `at`, with everything else as it was stored.
fn check_part(good: &DataObject, bytes: &[u8], at: u64) -> Result<(), FormatError> {
    let footer = good.footer;
    if at < HEADER_BYTES as u64 {
        return decode_header(bytes).map(drop);
    }
    if at >= footer.index.end() {
        return decode_footer(bytes).map(drop);
    }
    if at >= footer.index.position {
        return decode_index(part(bytes, footer.index), &footer).map(drop);
    }
    let holds = |range: &ByteRange| range.position <= at && at < range.end();
    for segment in good.index.segments() {
        if let Some(range) = segment.checkpoint.filter(holds) {
            return verify_checkpoint(segment, part(bytes, range));
        }
    }
    for block in good.index.all_blocks() {
        let range = ByteRange {
            position: block.position,
            length: block.length.into(),
        };
        if holds(&range) {
            return verify_block(block, part(bytes, range));
        }
    }
    panic!("byte {at} lies in no part");
}

#[test]
fn every_flipped_bit_is_detected_by_the_check_of_its_part() {
    let bytes = joined(&sample());
    let good = data(&bytes);
    for at in 0..bytes.len() {
        assert_eq!(check_part(&good, &bytes, at as u64), Ok(()));
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            assert!(
                check_part(&good, &damaged, at as u64).is_err(),
                "byte {at} bit {bit}"
            );
            assert!(
                decode_whole(&damaged.into()).is_err(),
                "byte {at} bit {bit}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_fence_is_detected() {
    let fence = encode_fence(identity());
    for at in 0..fence.len() {
        for bit in 0..8 {
            let mut damaged = fence.to_vec();
            damaged[at] ^= 1 << bit;
            assert!(
                decode_whole(&damaged.into()).is_err(),
                "byte {at} bit {bit}"
            );
        }
    }
}

#[test]
fn a_cut_or_lengthened_object_is_refused() {
    let bytes = joined(&sample());
    for length in 0..bytes.len() {
        assert!(decode_whole(&bytes.slice(..length)).is_err(), "{length}");
    }
    // Its footer is whole, but bytes in front of it are missing or too many.
    assert!(matches!(
        decode_whole(&bytes.slice(1..)),
        Err(FormatError::Size { .. })
    ));
    assert!(matches!(
        decode_whole(&[b"x", &bytes[..]].concat().into()),
        Err(FormatError::Size { .. })
    ));
}

#[test]
fn a_later_version_is_named_and_not_called_damage() {
    let built = sample();
    let mut bytes = joined(&built).to_vec();
    bytes[8] = 2;
    assert_eq!(
        decode_header(&bytes),
        Err(FormatError::Version {
            part: Part::Header,
            version: 2
        })
    );
    let footer_at = bytes.len() - FOOTER_BYTES;
    bytes[footer_at + 8] = 2;
    assert_eq!(
        decode_footer(&bytes),
        Err(FormatError::Version {
            part: Part::Footer,
            version: 2
        })
    );
    let mut index = part(&joined(&built), built.index).to_vec();
    index[4] = 2;
    let footer = Footer {
        index_crc32c: crc32c(&index),
        ..built.footer
    };
    assert_eq!(
        decode_index(&index, &footer),
        Err(FormatError::Version {
            part: Part::Index,
            version: 2
        })
    );
}

#[test]
fn parts_of_two_objects_do_not_pass_as_one() {
    let other = WriterIdentity {
        sequence: 18,
        ..identity()
    };
    let (ours, theirs) = (encode_fence(identity()), encode_fence(other));
    let mixed = [&ours[..HEADER_BYTES], &theirs[HEADER_BYTES..]].concat();
    assert_eq!(
        decode_whole(&mixed.into()),
        Err(FormatError::Identity {
            header: identity(),
            footer: other
        })
    );
    let empty = joined(&ObjectBuilder::new(identity(), 1).finish());
    let mixed = [&ours[..HEADER_BYTES], &empty[HEADER_BYTES..]].concat();
    assert!(matches!(
        decode_whole(&mixed.into()),
        Err(FormatError::Layout {
            part: Part::Header,
            ..
        })
    ));
}

/// Overwrites bytes of the sample's index and decodes it under a right CRC.
fn edited_index(at: usize, field: &[u8]) -> Result<(), FormatError> {
    let built = sample();
    let mut index = part(&joined(&built), built.index).to_vec();
    index[at..at + field.len()].copy_from_slice(field);
    let footer = Footer {
        index_crc32c: crc32c(&index),
        ..built.footer
    };
    decode_index(&index, &footer).map(drop)
}

#[test]
fn an_index_that_contradicts_itself_is_refused_even_with_a_right_checksum() {
    assert_eq!(edited_index(0, b"TGIX"), Ok(()));
    let length = |r: Result<(), FormatError>| {
        matches!(
            r,
            Err(FormatError::Length {
                part: Part::Index,
                ..
            })
        )
    };
    let layout = |r: Result<(), FormatError>| {
        matches!(
            r,
            Err(FormatError::Layout {
                part: Part::Index,
                ..
            })
        )
    };
    assert!(
        length(edited_index(8, &u32::MAX.to_le_bytes())),
        "segments that aren't there"
    );
    assert!(
        length(edited_index(12, &u32::MAX.to_le_bytes())),
        "blocks that aren't there"
    );
    let (first, second) = (16, 16 + 96);
    assert!(layout(edited_index(first, &[0; 16])), "no topic");
    assert!(layout(edited_index(first, &[9; 16])), "out of order");
    assert!(
        layout(edited_index(first + 16, &u32::MAX.to_le_bytes())),
        "partition index"
    );
    assert!(
        layout(edited_index(first + 24, &u64::MAX.to_le_bytes())),
        "offset"
    );
    assert!(
        layout(edited_index(second + 32, &23u64.to_le_bytes())),
        "end"
    );
    assert!(
        layout(edited_index(second + 40, &0u64.to_le_bytes())),
        "position"
    );
    assert!(
        layout(edited_index(second + 48, &1u64.to_le_bytes())),
        "length"
    );
    assert!(
        layout(edited_index(second + 56, &0i64.to_le_bytes())),
        "timestamp"
    );
    assert!(
        layout(edited_index(second + 72, &44u64.to_le_bytes())),
        "checkpoint"
    );
    assert!(
        layout(edited_index(second + 88, &1u32.to_le_bytes())),
        "too few blocks"
    );
    assert!(
        layout(edited_index(second + 88, &u32::MAX.to_le_bytes())),
        "too many blocks"
    );
}

#[test]
fn a_footer_that_contradicts_itself_is_refused_even_with_a_right_checksum() {
    let good = sample().footer;
    let decode = |footer: Footer| decode_footer(&footer.encode());
    assert_eq!(decode(good), Ok(good));
    let layout = |footer| {
        matches!(
            decode(footer),
            Err(FormatError::Layout {
                part: Part::Footer,
                ..
            })
        )
    };
    assert!(layout(Footer {
        size_bytes: good.size_bytes + 1,
        ..good
    }));
    assert!(layout(Footer {
        index: ByteRange {
            position: 0,
            ..good.index
        },
        ..good
    }));
    assert!(layout(Footer {
        index: ByteRange {
            length: u64::MAX,
            ..good.index
        },
        ..good
    }));
    let (position, length) = (HEADER_BYTES as u64 - 1, 0);
    let size_bytes = position + FOOTER_BYTES as u64;
    assert!(layout(Footer {
        index: ByteRange { position, length },
        size_bytes,
        ..good
    }));
    assert!(layout(Footer {
        kind: ObjectKind::Fence,
        ..good
    }));
}
