//! Fence and collect: ending a writer and finding all it can have acknowledged.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tidegate_segment_format::{
    ByteRange, FOOTER_BYTES, FormatError, ObjectIndex, ObjectKind, SegmentInfo, WriterIdentity,
    decode_footer, decode_index, encode_fence,
};
use tidegate_types::{BrokerEpoch, BrokerId};

use super::store::{CreateOutcome, LogObjectName, ObjectLogStore, StoreFailure};

/// A data object that the writer may have acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredObject {
    pub name: LogObjectName,
    pub size_bytes: u64,
    /// One per partition, ordered by partition.
    pub segments: Vec<SegmentInfo>,
    pub index: ByteRange,
}

/// A writer that can't acknowledge anything any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedWriter {
    /// In the order of sequence, without a gap, from the first that was asked for.
    pub objects: Vec<RecoveredObject>,
    /// The number that holds the fence. Nothing at or behind it was ever acknowledged.
    pub fenced_at: u64,
}

/// Why the writer's log couldn't be collected. Whether it is fenced is then unknown; run it again.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("the store failed at {name}")]
    Store {
        name: LogObjectName,
        source: StoreFailure,
    },
    /// Not a whole object. Going on would be guessing: a human must look.
    #[error("{name} is damaged")]
    Damaged {
        name: LogObjectName,
        source: FormatError,
    },
    /// A sound object, of another writer or number.
    #[error("{name} holds an object of {found}")]
    Foreign {
        name: LogObjectName,
        found: Box<WriterIdentity>,
    },
    /// The store says of one name that it exists and that it doesn't.
    #[error("the store says that {name} exists and doesn't give it out")]
    Contradiction { name: LogObjectName },
}

impl RecoveryError {
    /// Whether running it again may succeed by itself.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Store { .. } | Self::Contradiction { .. } => true,
            Self::Damaged { .. } | Self::Foreign { .. } => false,
        }
    }
}

/// What lies under one number.
enum Found {
    Nothing,
    Fence,
    Data(RecoveredObject),
}

/// Reads under way ahead of the walk.
const READ_AHEAD: usize = 16;
/// Enough for the index of most objects; a longer one costs a second read.
const TAIL_BYTES: u64 = 64 * 1024;
/// Some stores answer a GET late after a create was answered; they get this many chances.
const CONTRADICTIONS: u32 = 10;
const CONTRADICTION_WAIT: Duration = Duration::from_millis(200);

/// Ends the writer (`broker`, `broker_epoch`) and returns every object from `first_sequence` on that it can have
/// acknowledged. `me` signs the fence; its sequence is ignored.
///
/// It may be run any number of times, by several at once, and while the writer lives; every run that succeeds
/// returns the same.
///
/// # Errors
/// See [`RecoveryError`]. An error leaves nothing behind that a later run minds.
pub async fn fence_and_collect(
    store: &dyn ObjectLogStore,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    first_sequence: u64,
    me: WriterIdentity,
) -> Result<FencedWriter, RecoveryError> {
    let name = |sequence| LogObjectName {
        broker,
        broker_epoch,
        sequence,
    };
    let mut objects = Vec::new();
    let mut next = first_sequence;
    loop {
        // A number found missing ahead of the walk may be there when the walk arrives: the fence decides.
        let mut ahead = futures::stream::iter(next..)
            .map(|sequence| look(store, name(sequence)))
            .buffered(READ_AHEAD);
        while let Some(found) = ahead.next().await {
            match found? {
                Found::Data(object) => {
                    objects.push(object);
                    next += 1;
                }
                Found::Fence => {
                    return Ok(FencedWriter {
                        objects,
                        fenced_at: next,
                    });
                }
                Found::Nothing => break,
            }
        }
        drop(ahead);
        match fence(store, name(next), me).await? {
            Found::Data(object) => {
                objects.push(object);
                next += 1;
            }
            Found::Fence | Found::Nothing => {
                return Ok(FencedWriter {
                    objects,
                    fenced_at: next,
                });
            }
        }
    }
}

/// Creates the fence, or finds what was there first.
async fn fence(
    store: &dyn ObjectLogStore,
    name: LogObjectName,
    me: WriterIdentity,
) -> Result<Found, RecoveryError> {
    let fence = encode_fence(WriterIdentity {
        sequence: name.sequence,
        ..me
    });
    let created = store
        .create(name, vec![fence])
        .await
        .map_err(|source| RecoveryError::Store { name, source })?;
    match created {
        CreateOutcome::Created => {
            tracing::info!(
                broker = %name.broker,
                broker_epoch = %name.broker_epoch,
                sequence = name.sequence,
                "fenced a writer"
            );
            Ok(Found::Fence)
        }
        CreateOutcome::AlreadyExists => {
            for _ in 0..CONTRADICTIONS {
                match look(store, name).await? {
                    Found::Nothing => tokio::time::sleep(CONTRADICTION_WAIT).await,
                    found => return Ok(found),
                }
            }
            Err(RecoveryError::Contradiction { name })
        }
    }
}

async fn look(store: &dyn ObjectLogStore, name: LogObjectName) -> Result<Found, RecoveryError> {
    let store_failed = |source| RecoveryError::Store { name, source };
    let damaged = |source| RecoveryError::Damaged { name, source };
    let tail = store
        .read_tail(name, TAIL_BYTES)
        .await
        .map_err(store_failed)?;
    let Some((tail, size_bytes)) = tail else {
        return Ok(Found::Nothing);
    };
    let footer = decode_footer(&tail).map_err(damaged)?;
    if footer.size_bytes != size_bytes {
        return Err(damaged(FormatError::Size {
            stated: footer.size_bytes,
            found: size_bytes,
        }));
    }
    match footer.kind {
        // Whose fence it is doesn't matter.
        ObjectKind::Fence => return Ok(Found::Fence),
        ObjectKind::Data => {}
    }
    let found = footer.identity;
    let expected = (name.broker, name.broker_epoch, name.sequence);
    if (found.broker, found.broker_epoch, found.sequence) != expected {
        return Err(RecoveryError::Foreign {
            name,
            found: Box::new(found),
        });
    }
    let index_bytes = match index_in_tail(&tail, footer.index) {
        Some(bytes) => bytes,
        None => store
            .read_range(name, footer.index)
            .await
            .map_err(store_failed)?,
    };
    let index: ObjectIndex = decode_index(&index_bytes, &footer).map_err(damaged)?;
    Ok(Found::Data(RecoveredObject {
        name,
        size_bytes,
        segments: index.segments().to_vec(),
        index: footer.index,
    }))
}

/// The index, which ends where the footer begins, if the tail holds all of it.
fn index_in_tail(tail: &Bytes, index: ByteRange) -> Option<Bytes> {
    let end = tail.len().checked_sub(FOOTER_BYTES)?;
    let start = end.checked_sub(usize::try_from(index.length).ok()?)?;
    Some(tail.slice(start..end))
}
