use super::*;
use crate::{
    ByteRange, FOOTER_BYTES, HEADER_BYTES, ObjectKind, decode_footer, decode_header, decode_index,
    encode_fence, same_object, verify_block, verify_checkpoint,
};

#[test]
fn an_object_opens_from_its_tail_with_two_small_reads() {
    let built = sample();
    let bytes = joined(&built);
    let footer = decode_footer(&bytes[bytes.len() - FOOTER_BYTES..]).unwrap();
    assert_eq!(footer, built.footer);
    assert_eq!(
        (footer.size_bytes, footer.index),
        (bytes.len() as u64, built.index)
    );
    let start = usize::try_from(footer.index.position).unwrap();
    let index = decode_index(&bytes[start..bytes.len() - FOOTER_BYTES], &footer).unwrap();
    assert_eq!(index.segments(), built.segments);
    assert_eq!(index, data(&bytes).index);
}

#[test]
fn batches_are_kept_uncopied() {
    let mut builder = ObjectBuilder::new(identity(), 1 << 20);
    let small = add(&mut builder, partition(1, 0), 0, 1, 10);
    let other = add(&mut builder, partition(1, 0), 1, 1, 10);
    let built = builder.finish();
    assert_eq!(built.payload[1].as_ptr(), small.as_ptr());
    assert_eq!(built.payload[2].as_ptr(), other.as_ptr());
}

#[test]
fn a_segment_is_one_range_and_holds_the_batches_in_order() {
    let bytes = joined(&sample());
    let object = data(&bytes);
    let segment = object.index.segment(partition(1, 1)).unwrap();
    let whole = object
        .slice(ByteRange {
            position: segment.position,
            length: segment.length,
        })
        .unwrap();
    let expected: Vec<u8> = (0..6).flat_map(|i| batch(10 + 2 * i, 2, 40)).collect();
    assert_eq!(whole, expected);
    assert_eq!((segment.range, segment.record_count), (range(10, 22), 12));
    assert_eq!(
        (segment.leader_epoch, segment.max_timestamp.get()),
        (epoch(4), 1021)
    );
}

#[test]
fn blocks_stay_within_the_target_and_never_split_a_batch() {
    let object = data(&joined(&sample()));
    let blocks = object.index.blocks(partition(1, 1));
    let size = batch(10, 2, 40).len();
    let per_block = BLOCK_TARGET / size;
    assert!(per_block >= 2, "the sample should join batches");
    assert_eq!(blocks.len(), 6usize.div_ceil(per_block));
    for block in blocks {
        assert!(
            block.length as usize <= BLOCK_TARGET && (block.length as usize).is_multiple_of(size)
        );
        let bytes = object
            .slice(ByteRange {
                position: block.position,
                length: block.length.into(),
            })
            .unwrap();
        verify_block(block, &bytes).unwrap();
        assert_eq!(
            block.max_timestamp.get() + 1,
            1000 + i64::try_from(block.range.end().get()).unwrap()
        );
    }
}

#[test]
fn one_add_of_many_batches_is_cut_between_them() {
    let batches: Vec<_> = (0..10).map(|i| batch(i, 1, 100)).collect();
    let size = batches[0].len();
    let mut builder = ObjectBuilder::new(identity(), 3 * size);
    builder.add_batches(
        partition(1, 0),
        epoch(0),
        range(0, 10),
        batches.concat().into(),
        TimestampMs::new(1009),
        10,
    );
    let object = data(&joined(&builder.finish()));
    let blocks = object.index.blocks(partition(1, 0));
    let ranges: Vec<_> = blocks.iter().map(|b| b.range).collect();
    assert_eq!(
        ranges,
        [range(0, 3), range(3, 6), range(6, 9), range(9, 10)]
    );
    let times: Vec<_> = blocks.iter().map(|b| b.max_timestamp.get()).collect();
    assert_eq!(times, [1002, 1005, 1008, 1009]);
}

#[test]
fn a_batch_above_the_target_is_a_block_of_its_own() {
    let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
    add(&mut builder, partition(1, 0), 0, 1, 10);
    add(&mut builder, partition(1, 0), 1, 1, 5 * BLOCK_TARGET);
    add(&mut builder, partition(1, 0), 2, 1, 10);
    let object = data(&joined(&builder.finish()));
    let ranges: Vec<_> = object
        .index
        .blocks(partition(1, 0))
        .iter()
        .map(|b| b.range)
        .collect();
    assert_eq!(ranges, [range(0, 1), range(1, 2), range(2, 3)]);
}

#[test]
fn lookups_find_the_block_of_an_offset_and_nothing_outside() {
    let object = data(&joined(&sample()));
    let find = |at: u64| {
        object
            .index
            .block_containing(partition(1, 1), Offset::new(at).unwrap())
    };
    for at in 10..22 {
        assert!(find(at).unwrap().range.contains(Offset::new(at).unwrap()));
    }
    assert_eq!((find(9), find(22)), (None, None));
    assert!(object.index.blocks(partition(9, 9)).is_empty());
    assert!(object.index.segment(partition(9, 9)).is_none());
}

#[test]
fn checkpoints_come_back_under_their_partition() {
    let object = data(&joined(&sample()));
    let read = |p| {
        let segment = object.index.segment(p).unwrap();
        let bytes = segment.checkpoint.map(|range| object.slice(range).unwrap());
        verify_checkpoint(segment, &bytes.clone().unwrap_or_default()).unwrap();
        bytes
    };
    assert_eq!(read(partition(1, 1)).as_deref(), Some(&b"state of one"[..]));
    assert_eq!(read(partition(2, 0)).as_deref(), Some(&b"state of two"[..]));
    assert_eq!(read(partition(1, 0)), None);
}

#[test]
fn a_checkpoint_without_batches_is_left_out() {
    let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
    add(&mut builder, partition(1, 0), 0, 1, 10);
    builder.set_checkpoint(partition(5, 5), Bytes::from_static(b"lonely"));
    let bytes = joined(&builder.finish());
    assert!(!bytes.windows(6).any(|window| window == b"lonely"));
    assert_eq!(data(&bytes).index.segments().len(), 1);
}

#[test]
fn the_order_of_partitions_does_not_change_the_bytes() {
    let object = |order: [u8; 3]| {
        let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
        for topic in order {
            add(&mut builder, partition(topic, 0), 7, 2, 30);
            builder.set_checkpoint(partition(topic, 0), Bytes::copy_from_slice(&[topic]));
        }
        joined(&builder.finish())
    };
    assert_eq!(object([1, 2, 3]), object([3, 1, 2]));
}

#[test]
fn an_object_of_nothing_is_sound() {
    let object = data(&joined(
        &ObjectBuilder::new(identity(), BLOCK_TARGET).finish(),
    ));
    assert!(object.index.segments().is_empty() && object.index.all_blocks().is_empty());
}

#[test]
fn a_builder_says_what_it_can_take() {
    let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
    let offset = |at| Offset::new(at).unwrap();
    assert!(builder.accepts(partition(1, 0), epoch(4), offset(77)));
    add(&mut builder, partition(1, 0), 77, 3, 10);
    assert!(builder.accepts(partition(1, 0), epoch(4), offset(80)));
    assert!(!builder.accepts(partition(1, 0), epoch(4), offset(81)));
    assert!(!builder.accepts(partition(1, 0), epoch(5), offset(80)));
}

#[test]
#[should_panic(expected = "don't follow")]
fn a_hole_is_never_built() {
    let mut builder = ObjectBuilder::new(identity(), BLOCK_TARGET);
    add(&mut builder, partition(1, 0), 0, 2, 10);
    add(&mut builder, partition(1, 0), 3, 1, 10);
}

#[test]
fn a_fence_is_header_and_footer() {
    let bytes = encode_fence(identity());
    assert_eq!(bytes.len(), HEADER_BYTES + FOOTER_BYTES);
    assert_eq!(
        decode_whole(&bytes),
        Ok(DecodedObject::Fence {
            identity: identity()
        })
    );
    assert_eq!(decode_header(&bytes).unwrap().kind, ObjectKind::Fence);
    assert!(
        decode_index(&[], &decode_footer(&bytes).unwrap()).is_err(),
        "a fence has no index"
    );
}

#[test]
fn our_own_object_is_told_from_somebody_elses() {
    let ours = sample().footer;
    let stored = decode_footer(&joined(&sample())).unwrap();
    assert!(same_object(&ours, &stored));
    let footer_with = |identity, value_bytes| {
        let mut builder = ObjectBuilder::new(identity, BLOCK_TARGET);
        add(&mut builder, partition(1, 0), 0, 1, value_bytes);
        builder.finish().footer
    };
    let base = footer_with(identity(), 10);
    assert!(same_object(&base, &footer_with(identity(), 10)));
    assert!(
        !same_object(&base, &footer_with(identity(), 11)),
        "other contents"
    );
    assert!(
        !same_object(
            &base,
            &footer_with(
                WriterIdentity {
                    nonce: 1,
                    ..identity()
                },
                10
            )
        ),
        "another process"
    );
    assert!(
        !same_object(&base, &decode_footer(&encode_fence(identity())).unwrap()),
        "a fence"
    );
}
