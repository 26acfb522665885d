//! Reading segments out of object storage: index cache, block cache, shared GETs and read-ahead.
//!
//! The unit of a GET and of the block cache is a *span*: consecutive blocks of one segment of about
//! [`SPAN_BYTES`]. Concurrent readers of one span share one GET; a span stays cached after it was read, because
//! the next consumer group wants it. At most two GETs lead to the first byte of any offset: the object's index
//! (kept in its own cache) and the span. Every block's CRC32C is checked when it is fetched.
//!
//! The bytes of GETs under way are limited, apart from everything producers and tail readers use.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_object_storage::{ObjectKey, ObjectStorage, StoreError};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_segment_format::{
    BlockEntry, FOOTER_BYTES, FormatError, ObjectIndex, decode_footer, decode_index, verify_block,
};
use tidegate_types::{Offset, PartitionId};
use tokio::sync::Semaphore;

use crate::metrics::ReadMetrics;
use crate::segments::Segment;

/// Blocks are fetched together up to this size.
const SPAN_BYTES: u64 = 1 << 20;
/// The unit of the limit on bytes under way.
const PERMIT_BYTES: u64 = 1 << 16;

/// Why stored data couldn't be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreReadError {
    #[error("object {key} can't be read")]
    Store {
        key: ObjectKey,
        source: Arc<StoreError>,
    },
    /// The object is damaged or isn't what metadata says: refused rather than served with a hole.
    #[error("object {key} is damaged")]
    Damaged {
        key: ObjectKey,
        source: Arc<FormatError>,
    },
    #[error("the read of object {key} was given up: {message}")]
    Cache { key: ObjectKey, message: String },
    #[error("object {key} has no blocks of {partition} at offset {offset}")]
    Hole {
        key: ObjectKey,
        partition: PartitionId,
        offset: Offset,
    },
}

/// Limits of the read path, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct ReaderLimits {
    pub block_cache_bytes: u64,
    pub index_cache_bytes: u64,
    pub in_flight_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SpanKey {
    object: ObjectKey,
    position: u64,
    /// A lookup by time fetches single blocks, which may begin where a span begins.
    length: u64,
}

/// Reads segments. Cheap to clone.
#[derive(Clone)]
pub struct SegmentReader {
    inner: Arc<Inner>,
}

struct Inner {
    storage: ObjectStorage,
    indexes: moka::future::Cache<ObjectKey, Arc<ObjectIndex>>,
    spans: foyer::Cache<SpanKey, Bytes>,
    in_flight: Arc<Semaphore>,
    in_flight_permits: u32,
    tasks: Tasks,
    metrics: ReadMetrics,
}

/// Consecutive blocks that are fetched together.
#[derive(Debug, Clone)]
struct Span {
    blocks: Vec<BlockEntry>,
}

impl Span {
    fn position(&self) -> u64 {
        self.blocks.first().map_or(0, |b| b.position)
    }
    fn length(&self) -> u64 {
        self.blocks.iter().map(|b| u64::from(b.length)).sum()
    }
    fn end_offset(&self) -> Offset {
        self.blocks.last().map_or(Offset::ZERO, |b| b.range.end())
    }
}

impl SegmentReader {
    pub fn new(
        storage: ObjectStorage,
        limits: ReaderLimits,
        tasks: Tasks,
        metrics: ReadMetrics,
    ) -> Self {
        let permits = u32::try_from(
            (limits.in_flight_bytes / PERMIT_BYTES).max(SPAN_BYTES / PERMIT_BYTES * 2),
        )
        .unwrap_or(u32::MAX >> 4);
        let indexes = moka::future::Cache::builder()
            .max_capacity(limits.index_cache_bytes)
            .weigher(|_: &ObjectKey, index: &Arc<ObjectIndex>| {
                u32::try_from(index.memory_bytes()).unwrap_or(u32::MAX)
            })
            .build();
        let spans = foyer::CacheBuilder::new(
            usize::try_from(limits.block_cache_bytes).unwrap_or(usize::MAX),
        )
        .with_shards(4)
        .with_weighter(|_: &SpanKey, bytes: &Bytes| bytes.len())
        .build();
        Self {
            inner: Arc::new(Inner {
                storage,
                indexes,
                spans,
                in_flight: Arc::new(Semaphore::new(permits as usize)),
                in_flight_permits: permits,
                tasks,
                metrics,
            }),
        }
    }

    /// The bytes of the span of `segment` that holds `offset` (or the first after it), beginning with the batch
    /// that holds it; then up to `ahead` spans more are fetched in the background.
    pub(crate) async fn read(
        &self,
        partition: PartitionId,
        segment: &Segment,
        offset: Offset,
        ahead: usize,
    ) -> Result<Bytes, StoreReadError> {
        let index = self.index(segment).await?;
        let spans = spans_from(index.blocks(partition), offset, ahead + 1);
        let Some((first, rest)) = spans.split_first() else {
            return Err(StoreReadError::Hole {
                key: segment.object.key.clone(),
                partition,
                offset,
            });
        };
        for span in rest {
            self.prefetch(segment, span.clone());
        }
        self.span(segment, first.clone()).await
    }

    /// Fetches the beginning of a segment that a sequential reader will want soon.
    pub(crate) fn prefetch_segment(&self, partition: PartitionId, segment: Segment, spans: usize) {
        let reader = self.clone();
        let Ok(permit) = self.inner.in_flight.clone().try_acquire_owned() else {
            return;
        };
        self.inner
            .tasks
            .spawn("read-ahead", OnExit::Expected, async move {
                drop(permit);
                if let Ok(index) = reader.index(&segment).await {
                    for span in spans_from(index.blocks(partition), segment.range.start(), spans) {
                        // A read that needs the span reports what went wrong.
                        let _ = reader.span(&segment, span).await;
                    }
                }
            });
    }

    /// The first block of `segment` at or after `from` whose youngest record is at least `timestamp`, if any.
    pub(crate) async fn block_with_timestamp(
        &self,
        partition: PartitionId,
        segment: &Segment,
        from: Offset,
        timestamp: tidegate_types::TimestampMs,
    ) -> Result<Option<Bytes>, StoreReadError> {
        let index = self.index(segment).await?;
        let found = index
            .blocks(partition)
            .iter()
            .find(|b| b.range.end() > from && b.max_timestamp >= timestamp);
        match found {
            Some(block) => self
                .span(
                    segment,
                    Span {
                        blocks: vec![block.clone()],
                    },
                )
                .await
                .map(Some),
            None => Ok(None),
        }
    }

    /// The block of `segment` that holds `offset`, or the first after it, and the greatest timestamp of the blocks
    /// behind it.
    pub(crate) async fn block_at(
        &self,
        partition: PartitionId,
        segment: &Segment,
        offset: Offset,
    ) -> Result<(Bytes, Option<tidegate_types::TimestampMs>), StoreReadError> {
        let index = self.index(segment).await?;
        let blocks = index.blocks(partition);
        let at = blocks.partition_point(|b| b.range.end() <= offset);
        let Some((block, later)) = blocks.get(at..).and_then(<[BlockEntry]>::split_first) else {
            return Err(StoreReadError::Hole {
                key: segment.object.key.clone(),
                partition,
                offset,
            });
        };
        let span = Span {
            blocks: vec![block.clone()],
        };
        let greatest = later.iter().map(|b| b.max_timestamp).max();
        Ok((self.span(segment, span).await?, greatest))
    }

    /// The bytes of a checkpoint.
    pub(crate) async fn checkpoint(
        &self,
        key: &ObjectKey,
        range: tidegate_segment_format::ByteRange,
    ) -> Result<Bytes, StoreReadError> {
        self.inner
            .storage
            .get_range(key, range.position..range.position + range.length)
            .await
            .map_err(|e| StoreReadError::Store {
                key: key.clone(),
                source: Arc::new(e),
            })
    }

    async fn index(&self, segment: &Segment) -> Result<Arc<ObjectIndex>, StoreReadError> {
        let key = &segment.object.key;
        let inner = &self.inner;
        let load =
            async {
                let range = segment.object.index.position..segment.object.size_bytes;
                inner.metrics.index_gets.inc();
                let bytes = inner.storage.get_range(key, range).await.map_err(|e| {
                    StoreReadError::Store {
                        key: key.clone(),
                        source: Arc::new(e),
                    }
                })?;
                let damaged = |e| StoreReadError::Damaged {
                    key: key.clone(),
                    source: Arc::new(e),
                };
                let footer = decode_footer(&bytes).map_err(damaged)?;
                let index = bytes.slice(..bytes.len().saturating_sub(FOOTER_BYTES));
                decode_index(&index, &footer).map(Arc::new).map_err(damaged)
            };
        inner
            .indexes
            .try_get_with_by_ref(key, load)
            .await
            .map_err(|e: Arc<StoreReadError>| (*e).clone())
    }

    async fn span(&self, segment: &Segment, span: Span) -> Result<Bytes, StoreReadError> {
        let key = SpanKey {
            object: segment.object.key.clone(),
            position: span.position(),
            length: span.length(),
        };
        let inner = self.inner.clone();
        if inner.spans.get(&key).is_some() {
            inner.metrics.block_hits.inc();
        }
        let object = segment.object.key.clone();
        let entry = self
            .inner
            .spans
            .get_or_fetch(
                &key,
                move || async move { inner.fetch(&object, &span).await },
            )
            .await;
        match entry {
            Ok(entry) => Ok(entry.value().clone()),
            Err(error) => Err(error
                .downcast_ref::<StoreReadError>()
                .cloned()
                .unwrap_or_else(|| StoreReadError::Cache {
                    key: segment.object.key.clone(),
                    message: error.message().to_owned(),
                })),
        }
    }

    fn prefetch(&self, segment: &Segment, span: Span) {
        let key = SpanKey {
            object: segment.object.key.clone(),
            position: span.position(),
            length: span.length(),
        };
        if self.inner.spans.contains(&key) || self.inner.in_flight.available_permits() == 0 {
            return;
        }
        let (reader, segment) = (self.clone(), segment.clone());
        self.inner
            .tasks
            .spawn("read-ahead", OnExit::Expected, async move {
                // A read that needs the span reports what went wrong.
                let _ = reader.span(&segment, span).await;
            });
    }
}

impl Inner {
    async fn fetch(&self, key: &ObjectKey, span: &Span) -> Result<Bytes, StoreReadError> {
        let (position, length) = (span.position(), span.length());
        let permits = u32::try_from(length.div_ceil(PERMIT_BYTES))
            .unwrap_or(u32::MAX)
            .clamp(1, self.in_flight_permits);
        let _permit = self
            .in_flight
            .acquire_many(permits)
            .await
            .expect("the semaphore is never closed");
        self.metrics.block_gets.inc();
        self.metrics.block_bytes.inc_by(length);
        let bytes = self
            .storage
            .get_range(key, position..position + length)
            .await
            .map_err(|e| StoreReadError::Store {
                key: key.clone(),
                source: Arc::new(e),
            })?;
        for block in &span.blocks {
            let start = usize::try_from(block.position - position).unwrap_or(usize::MAX);
            let end = start.saturating_add(block.length as usize);
            verify_block(block, bytes.get(start..end).unwrap_or_default()).map_err(|e| {
                StoreReadError::Damaged {
                    key: key.clone(),
                    source: Arc::new(e),
                }
            })?;
        }
        Ok(bytes)
    }
}

/// Spans of about [`SPAN_BYTES`]: always cut at the same places of a segment, so that readers share them.
fn spans_from(blocks: &[BlockEntry], offset: Offset, count: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut current = Span { blocks: Vec::new() };
    for block in blocks {
        current.blocks.push(block.clone());
        if current.length() >= SPAN_BYTES {
            let full = std::mem::replace(&mut current, Span { blocks: Vec::new() });
            if full.end_offset() > offset {
                spans.push(full);
            }
            if spans.len() == count {
                return spans;
            }
        }
    }
    if !current.blocks.is_empty() && current.end_offset() > offset {
        spans.push(current);
    }
    spans
}
