//! Reading a whole segment once, in order: past the block cache, because nobody will want the same soon.

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tidegate_types::PartitionId;

use super::{SegmentReader, StoreReadError, is_small, spans_from};
use crate::segments::Segment;

/// GETs under way at once, each of about a megabyte.
const GETS_AT_ONCE: usize = 3;

/// The batches of a segment in order, in pieces of whole batches.
pub struct SegmentScan {
    pieces: BoxStream<'static, Result<Bytes, StoreReadError>>,
}

impl SegmentReader {
    /// Begins to read a segment of `partition`. A small object comes through the cache: the other partitions in it
    /// are read soon, too.
    ///
    /// # Errors
    /// Its object can't be read.
    pub async fn scan(
        &self,
        partition: PartitionId,
        segment: &Segment,
    ) -> Result<SegmentScan, StoreReadError> {
        let index = self.index(segment).await?;
        let start = segment.range.start();
        let hole = || StoreReadError::Hole {
            key: segment.object.key.clone(),
            partition,
            offset: start,
        };
        if is_small(segment) {
            let bytes = self
                .rest_of(partition, segment, &index, start)
                .await?
                .ok_or_else(hole)?;
            let pieces = stream::iter([Ok(bytes)]).boxed();
            return Ok(SegmentScan { pieces });
        }
        let spans = spans_from(index.blocks(partition), start, usize::MAX);
        if spans.is_empty() {
            return Err(hole());
        }
        let (inner, key) = (self.inner.clone(), segment.object.key.clone());
        let pieces = stream::iter(spans)
            .map(move |span| {
                let (inner, key) = (inner.clone(), key.clone());
                async move { inner.fetch(&key, &span).await }
            })
            .buffered(GETS_AT_ONCE)
            .boxed();
        Ok(SegmentScan { pieces })
    }
}

impl SegmentScan {
    /// The next batches; `None` at the segment's end.
    ///
    /// # Errors
    /// A part can't be read, or is damaged.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreReadError> {
        self.pieces.try_next().await
    }
}
