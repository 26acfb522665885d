use bytes::Bytes;

use super::*;
use crate::{BatchError, BatchHeader, Batches, HeaderError};

fn three() -> (Bytes, usize) {
    let batch = sample(Codec::None, 2);
    (
        Bytes::from([&batch[..], &batch, &batch].concat()),
        batch.len(),
    )
}

#[test]
fn batches_come_whole_and_share_the_buffer() {
    let (bytes, size) = three();
    for found in [
        Batches::with_crc(bytes.clone()),
        Batches::headers_only(bytes.clone()),
    ] {
        let found: Vec<_> = found.map(Result::unwrap).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].bytes().as_ptr(), bytes[size..].as_ptr());
    }
}

#[test]
fn a_cut_last_batch_is_told_from_damage() {
    let (bytes, size) = three();
    for cut in [1, 16, 17, 61, size - 1] {
        let mut batches = Batches::with_crc(bytes.slice(..2 * size + cut));
        assert!(batches.next().unwrap().is_ok() && batches.next().unwrap().is_ok());
        let error = batches.next().unwrap().unwrap_err();
        assert!(
            matches!(error, BatchError::Truncated { available, .. } if available == cut),
            "{error}"
        );
        assert_eq!(batches.position(), 2 * size);
        assert!(batches.next().is_none());
    }
}

#[test]
fn damage_ends_the_iteration() {
    let (bytes, size) = three();
    let mut damaged = bytes.to_vec();
    damaged[size + 70] ^= 1;
    let mut batches = Batches::with_crc(damaged.into());
    assert!(batches.next().unwrap().is_ok());
    assert!(matches!(batches.next(), Some(Err(BatchError::Crc { .. }))));
    assert!(batches.next().is_none());
}

#[test]
fn one_batch_means_exactly_one() {
    let (bytes, size) = three();
    assert!(StoredBatch::check(bytes.slice(..size)).is_ok());
    assert_eq!(
        StoredBatch::check(bytes.slice(..size + 5)),
        Err(BatchError::TrailingBytes { extra: 5 })
    );
    assert!(matches!(
        StoredBatch::check(Bytes::new()),
        Err(BatchError::Truncated { available: 0, .. })
    ));
}

#[test]
fn a_batch_past_the_last_offset_is_refused() {
    let last = i64::MAX.to_be_bytes();
    let batch = edited(sample(Codec::None, 1), 0, &last);
    assert!(matches!(
        BatchHeader::parse(&batch),
        Err(HeaderError::Offsets { .. })
    ));
    let negative = edited(sample(Codec::None, 1), 0, &(-1i64).to_be_bytes());
    assert!(matches!(
        BatchHeader::parse(&negative),
        Err(HeaderError::Offsets { .. })
    ));
}
