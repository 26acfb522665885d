use bytes::BufMut;
use proptest::prelude::*;

use super::*;

const LIMITS: FrameLimits = FrameLimits {
    max_frame_bytes: 1 << 20,
    first_reserve_bytes: 64,
    trusted_reserve_bytes: 4096,
    staging_bytes: 32,
};

/// Feeds `stream` in pieces of at most `piece` bytes and returns the frames, until it needs more.
fn feed(
    reader: &mut FrameReader,
    mut stream: &[u8],
    piece: usize,
) -> Result<Vec<BytesMut>, FrameError> {
    let mut frames = Vec::new();
    loop {
        match reader.step()? {
            Step::Frame(frame) => frames.push(frame),
            Step::Read(mut target) => {
                assert!(target.remaining_mut() > 0);
                if stream.is_empty() {
                    return Ok(frames);
                }
                let count = stream.len().min(piece).min(target.remaining_mut());
                let (now, later) = stream.split_at(count);
                target.put_slice(now);
                stream = later;
            }
        }
    }
}

fn stream_of(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for frame in frames {
        stream.put_u32(u32::try_from(frame.len()).expect("short"));
        stream.put_slice(frame);
    }
    stream
}

proptest! {
    #[test]
    fn frames_come_out_whole_however_their_bytes_arrive(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8),
        piece in 1_usize..700,
        trusted in any::<bool>(),
    ) {
        let mut reader = FrameReader::new(LIMITS);
        if trusted {
            reader.trust();
        }
        let read = feed(&mut reader, &stream_of(&frames), piece).expect("all lengths are allowed");
        prop_assert_eq!(&read, &frames);
        for frame in read {
            prop_assert_eq!(frame.capacity(), frame.len());
        }
    }
}

#[test]
fn a_length_above_the_limit_is_refused_without_reserving() {
    let mut reader = FrameReader::new(LIMITS);
    let error = feed(&mut reader, &[0x7f, 0xff, 0xff, 0xff], 4).expect_err("too large");
    let expected = FrameError::TooLarge {
        length: 0x7fff_ffff,
        limit: 1 << 20,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "a frame of 2147483647 bytes was announced and the limit is 1048576"
    );
    assert!(reader.reserved_bytes() <= LIMITS.staging_bytes);
    assert_eq!(reader.step().expect_err("stays refused"), expected);
}

#[test]
fn the_limit_itself_is_allowed_and_one_more_is_not() {
    let limits = FrameLimits {
        max_frame_bytes: 10,
        ..LIMITS
    };
    let frames = feed(
        &mut FrameReader::new(limits),
        &stream_of(&[vec![1; 10]]),
        99,
    );
    assert_eq!(frames.expect("at the limit").len(), 1);
    let above = feed(&mut FrameReader::new(limits), &[0, 0, 0, 11], 99);
    assert!(matches!(above, Err(FrameError::TooLarge { .. })));
}

#[test]
fn a_negative_length_is_refused() {
    let mut reader = FrameReader::new(LIMITS);
    let error = feed(&mut reader, &[0xff, 0xff, 0xff, 0xff], 1).expect_err("negative");
    assert_eq!(error, FrameError::Negative { length: -1 });
}

#[test]
fn memory_follows_the_bytes_that_arrive() {
    let mut reader = FrameReader::new(LIMITS);
    let mut stream = vec![0, 0x0f, 0xff, 0xff];
    assert!(feed(&mut reader, &stream, 99).expect("allowed").is_empty());
    assert_eq!(reader.arrived_bytes(), Some(0));
    assert!(reader.reserved_bytes() <= LIMITS.first_reserve_bytes + LIMITS.staging_bytes);
    stream.clear();
    for arrived in 1..=5000_usize {
        assert!(feed(&mut reader, &[7], 1).expect("allowed").is_empty());
        let allowed = LIMITS.first_reserve_bytes.max(2 * arrived) + LIMITS.staging_bytes;
        assert!(reader.reserved_bytes() <= allowed, "after {arrived} bytes");
    }
}

#[test]
fn a_trusted_connection_gets_a_moderate_frame_at_once() {
    let announced = [0, 0, 0x10, 0];
    let mut reader = FrameReader::new(LIMITS);
    feed(&mut reader, &announced, 4).expect("allowed");
    assert!(reader.reserved_bytes() < 4096);
    let mut reader = FrameReader::new(LIMITS);
    reader.trust();
    feed(&mut reader, &announced, 4).expect("allowed");
    assert!(reader.reserved_bytes() >= 4096);
}

#[test]
fn frames_that_arrive_together_share_no_allocation() {
    let mut reader = FrameReader::new(LIMITS);
    let mut frames = feed(&mut reader, &stream_of(&[vec![1; 8], vec![2; 8]]), 99)
        .expect("allowed")
        .into_iter();
    let (first, second) = (frames.next().expect("two"), frames.next().expect("two"));
    let first_bytes = first.as_ptr_range();
    assert!(!first_bytes.contains(&second.as_ptr()));
    // Each is the only owner of its memory, so it can be turned into a vector without a copy.
    let pointer = first.as_ptr();
    let vector = Vec::from(first);
    assert_eq!(vector.as_ptr(), pointer);
}
