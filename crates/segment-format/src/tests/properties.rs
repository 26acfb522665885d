use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use tidegate_record_batch::{Batches, crc32c};

use super::*;
use crate::{ByteRange, Footer, decode_footer, decode_header, decode_index, verify_checkpoint};

#[derive(Debug, Clone)]
struct Part {
    start: u64,
    /// Records and value bytes of each batch.
    batches: Vec<(u64, usize)>,
    checkpoint: Option<Vec<u8>>,
}

fn part() -> impl Strategy<Value = Part> {
    (
        0..1u64 << 62,
        vec((1..4u64, 0..300usize), 1..6),
        option::of(vec(any::<u8>(), 1..50)),
    )
        .prop_map(|(start, batches, checkpoint)| Part {
            start,
            batches,
            checkpoint,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(parts in btree_map((1u8..5, 0u32..4), part(), 0..6), target in 1..1500usize) {
        let mut builder = ObjectBuilder::new(identity(), target);
        let mut expected = Vec::new();
        for ((topic, index), part) in &parts {
            let id = partition(*topic, *index);
            let (mut next, mut bytes) = (part.start, Vec::new());
            for (records, value_bytes) in &part.batches {
                bytes.extend_from_slice(&add(&mut builder, id, next, *records, *value_bytes));
                next += records;
            }
            if let Some(checkpoint) = &part.checkpoint {
                builder.set_checkpoint(id, checkpoint.clone().into());
            }
            expected.push((id, range(part.start, next), bytes, part.checkpoint.clone()));
        }
        let data_bytes = builder.data_bytes();
        let built = builder.finish();
        let bytes = joined(&built);
        prop_assert_eq!(bytes.len() as u64, built.size_bytes);
        let object = data(&bytes);
        prop_assert_eq!(object.index.segments(), &built.segments[..]);
        prop_assert_eq!(data_bytes, expected.iter().map(|e| e.2.len() as u64).sum::<u64>());
        prop_assert_eq!(object.index.segments().len(), expected.len());
        for (id, offsets, batches, checkpoint) in expected {
            let segment = object.index.segment(id).unwrap();
            prop_assert_eq!(segment.range, offsets);
            let whole = object.slice(ByteRange { position: segment.position, length: segment.length }).unwrap();
            prop_assert_eq!(&whole[..], &batches[..]);
            let stored = segment.checkpoint.map(|range| object.slice(range).unwrap().to_vec());
            prop_assert_eq!(stored, checkpoint);
            for block in object.index.blocks(id) {
                let block_bytes = object.slice(ByteRange { position: block.position, length: block.length.into() }).unwrap();
                let found: Vec<_> = Batches::with_crc(block_bytes).map(Result::unwrap).collect();
                prop_assert_eq!(found[0].header().base_offset(), block.range.start());
                prop_assert_eq!(found[found.len() - 1].header().end_offset(), block.range.end());
                let greatest = found.iter().map(|b| b.header().max_timestamp()).max().unwrap();
                prop_assert_eq!(block.max_timestamp, greatest);
                prop_assert!(block.length as usize <= target || found.len() == 1);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = decode_header(&bytes);
        let _ = decode_footer(&bytes);
        let _ = decode_whole(&bytes.clone().into());
        let footer = sample().footer;
        let index = ByteRange { position: 44, length: bytes.len() as u64 };
        let _ = decode_index(&bytes, &Footer { index, index_crc32c: crc32c(&bytes), ..footer });
    }

    #[test]
    fn an_index_that_decodes_is_consistent_whatever_was_done_to_it(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let built = sample();
        let bytes = joined(&built);
        let start = usize::try_from(built.index.position).unwrap();
        let mut index = bytes[start..usize::try_from(built.index.end()).unwrap()].to_vec();
        for (at, value) in damage {
            let at = at.index(index.len());
            index[at] = value;
        }
        let footer = Footer { index_crc32c: crc32c(&index), ..built.footer };
        if let Ok(decoded) = decode_index(&index, &footer) {
            let mut position = 44;
            for segment in decoded.segments() {
                let mut next = segment.range.start();
                for block in decoded.blocks(segment.partition) {
                    prop_assert_eq!((block.position, block.range.start()), (position, next));
                    position += u64::from(block.length);
                    next = block.range.end();
                }
                prop_assert_eq!(next, segment.range.end());
                let _ = verify_checkpoint(segment, &bytes);
            }
            prop_assert!(position <= built.index.position);
        }
    }
}
