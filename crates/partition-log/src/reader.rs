//! Reading segments out of object storage: index cache, block cache, shared GETs and read-ahead.
//!
//! The unit of a GET and of the block cache is a *span*: consecutive blocks of one segment of about
//! [`SPAN_BYTES`]. Concurrent readers of one span share one GET; a span stays cached after it was read, because
//! the next consumer group wants it. At most two GETs lead to the first byte of any offset: the object's index
//! (kept in its own cache) and the span. Every block's CRC32C is checked when it is fetched.
//!
//! An object no larger than a span is fetched whole by one GET, index included, and shared by all its partitions:
//! the WAL objects of `object` mode hold a little of each partition.
//!
//! The bytes of GETs under way are limited, apart from everything producers and tail readers use.

mod scan;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_object_storage::{ObjectKey, ObjectStorage, StoreError};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_segment_format::{
    BlockEntry, FOOTER_BYTES, FormatError, ObjectIndex, decode_footer, decode_index, decode_whole,
    verify_block,
};
use tidegate_types::{Offset, PartitionId};
use tokio::sync::Semaphore;

pub use scan::SegmentScan;

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

impl SpanKey {
    fn of(segment: &Segment, span: &Span) -> Self {
        Self {
            object: segment.object.key.clone(),
            position: span.position(),
            length: span.length(),
        }
    }

    /// A small object.
    fn of_whole(segment: &Segment) -> Self {
        Self {
            object: segment.object.key.clone(),
            position: 0,
            length: segment.object.size_bytes,
        }
    }
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

/// The bytes of a span, and whether it is the last of its segment.
pub(crate) struct SpanRead {
    pub(crate) bytes: Bytes,
    pub(crate) last: bool,
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

/// Whether an object is fetched whole rather than by spans.
fn is_small(segment: &Segment) -> bool {
    segment.object.size_bytes <= SPAN_BYTES
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

    /// The span of `segment` that holds `offset` (or the first after it); up to `ahead` spans more of the segment
    /// are fetched in the background.
    pub(crate) async fn read(
        &self,
        partition: PartitionId,
        segment: &Segment,
        offset: Offset,
        ahead: usize,
    ) -> Result<SpanRead, StoreReadError> {
        let index = self.index(segment).await?;
        if is_small(segment) {
            let rest = self.rest_of(partition, segment, &index, offset).await?;
            let bytes = rest.ok_or_else(|| StoreReadError::Hole {
                key: segment.object.key.clone(),
                partition,
                offset,
            })?;
            return Ok(SpanRead { bytes, last: true });
        }
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
        let bytes = self.span(segment, first.clone()).await?;
        let last = first.end_offset() >= segment.range.end();
        Ok(SpanRead { bytes, last })
    }

    /// Out of a small object, which is in the cache as a rule, the blocks of a partition from the one that holds
    /// `offset` on.
    async fn rest_of(
        &self,
        partition: PartitionId,
        segment: &Segment,
        index: &ObjectIndex,
        offset: Offset,
    ) -> Result<Option<Bytes>, StoreReadError> {
        let blocks = index.blocks(partition);
        let first = blocks.partition_point(|b| b.range.end() <= offset);
        let (Some(first), Some(last)) = (blocks.get(first), blocks.last()) else {
            return Ok(None);
        };
        let whole = self.whole(segment).await?;
        let start = usize::try_from(first.position).unwrap_or(usize::MAX);
        let end = usize::try_from(last.position + u64::from(last.length)).unwrap_or(usize::MAX);
        let Some(rest) = whole.get(start..end) else {
            return Ok(None);
        };
        // A small piece must not keep the whole object in memory for as long as its answer is being sent.
        Ok(Some(if rest.len() < whole.len() / 4 {
            Bytes::copy_from_slice(rest)
        } else {
            whole.slice(start..end)
        }))
    }

    /// A small object, checked whole when it was fetched.
    async fn whole(&self, segment: &Segment) -> Result<Bytes, StoreReadError> {
        let key = SpanKey::of_whole(segment);
        let inner = self.inner.clone();
        let (object, size) = (key.object.clone(), key.length);
        self.cached(key, move || async move {
            inner.fetch_whole(&object, size).await
        })
        .await
    }

    /// Fetches small objects that a sequential reader will want soon, all at once.
    pub(crate) fn prefetch_small(&self, segments: Vec<Segment>) {
        for segment in segments {
            let key = SpanKey::of_whole(&segment);
            if is_small(&segment) && !self.inner.spans.contains(&key) {
                let reader = self.clone();
                self.read_ahead(async move {
                    let _ = reader.whole(&segment).await;
                });
            }
        }
    }

    /// Fetches the first span of a segment that a sequential reader will want soon.
    pub(crate) fn prefetch_segment(&self, partition: PartitionId, segment: Segment) {
        if is_small(&segment) {
            return self.prefetch_small(vec![segment]);
        }
        let reader = self.clone();
        self.read_ahead(async move {
            if let Ok(index) = reader.index(&segment).await {
                let spans = spans_from(index.blocks(partition), segment.range.start(), 1);
                for span in spans {
                    reader.prefetch(&segment, span);
                }
            }
        });
    }

    /// Runs `fetch` beside the reads, unless they have used up the limit on bytes under way. A read that needs what it
    /// fetches reports what went wrong.
    fn read_ahead(&self, fetch: impl Future<Output = ()> + Send + 'static) {
        if self.inner.in_flight.available_permits() > 0 {
            self.inner
                .tasks
                .spawn("read-ahead", OnExit::Expected, fetch);
        }
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
                let damaged = |e| StoreReadError::Damaged {
                    key: key.clone(),
                    source: Arc::new(e),
                };
                if is_small(segment) {
                    let whole = self.whole(segment).await?;
                    let footer = decode_footer(&whole).map_err(damaged)?;
                    let start = usize::try_from(segment.object.index.position)
                        .unwrap_or(usize::MAX)
                        .min(whole.len());
                    let end = whole.len().saturating_sub(FOOTER_BYTES).max(start);
                    return decode_index(&whole.slice(start..end), &footer)
                        .map(Arc::new)
                        .map_err(damaged);
                }
                let range = segment.object.index.position..segment.object.size_bytes;
                inner.metrics.index_gets.inc();
                let bytes = inner.storage.get_range(key, range).await.map_err(|e| {
                    StoreReadError::Store {
                        key: key.clone(),
                        source: Arc::new(e),
                    }
                })?;
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
        let key = SpanKey::of(segment, &span);
        let inner = self.inner.clone();
        let object = segment.object.key.clone();
        self.cached(
            key,
            move || async move { inner.fetch(&object, &span).await },
        )
        .await
    }

    /// What the block cache holds under `key`, or what `fetch` brings; readers that come meanwhile share it.
    async fn cached<F>(
        &self,
        key: SpanKey,
        fetch: impl FnOnce() -> F,
    ) -> Result<Bytes, StoreReadError>
    where
        F: Future<Output = Result<Bytes, StoreReadError>> + Send + 'static,
    {
        if let Some(entry) = self.inner.spans.get(&key) {
            self.inner.metrics.block_hits.inc();
            return Ok(entry.value().clone());
        }
        match self.inner.spans.get_or_fetch(&key, fetch).await {
            Ok(entry) => Ok(entry.value().clone()),
            Err(error) => Err(error
                .downcast_ref::<StoreReadError>()
                .cloned()
                .unwrap_or_else(|| StoreReadError::Cache {
                    key: key.object.clone(),
                    message: error.message().to_owned(),
                })),
        }
    }

    fn prefetch(&self, segment: &Segment, span: Span) {
        let key = SpanKey::of(segment, &span);
        if self.inner.spans.contains(&key) {
            return;
        }
        let (reader, segment) = (self.clone(), segment.clone());
        self.read_ahead(async move {
            let _ = reader.span(&segment, span).await;
        });
    }
}

impl Inner {
    async fn fetch(&self, key: &ObjectKey, span: &Span) -> Result<Bytes, StoreReadError> {
        let position = span.position();
        let bytes = self.get(key, position, span.length()).await?;
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

    async fn fetch_whole(&self, key: &ObjectKey, size: u64) -> Result<Bytes, StoreReadError> {
        let bytes = self.get(key, 0, size).await?;
        decode_whole(&bytes).map_err(|e| StoreReadError::Damaged {
            key: key.clone(),
            source: Arc::new(e),
        })?;
        Ok(bytes)
    }

    /// One GET, within the limit on bytes under way.
    async fn get(
        &self,
        key: &ObjectKey,
        position: u64,
        length: u64,
    ) -> Result<Bytes, StoreReadError> {
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
        self.storage
            .get_range(key, position..position + length)
            .await
            .map_err(|e| StoreReadError::Store {
                key: key.clone(),
                source: Arc::new(e),
            })
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
