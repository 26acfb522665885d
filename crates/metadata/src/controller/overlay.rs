//! The writes of the batch being gathered, laid over what is stored: later commands of one batch see what
//! earlier ones decided.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use crate::envelope::DecodeError;
use crate::keys;
use crate::rows::{ObjectRow, PartitionRow, Row, SegmentRow};
use crate::state::{Change, Fact, Need};
use crate::store::{MetadataStore, StoreError, WriteBatch};

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Overlay {
    pub(crate) fn put(&mut self, change: &Change) {
        if let Some((key, value)) = change.encode() {
            self.writes.insert(key, value);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn into_batch(self) -> WriteBatch {
        let mut batch = WriteBatch::default();
        for (key, value) in self.writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        batch
    }

    async fn get(
        &self,
        store: &dyn MetadataStore,
        key: &Bytes,
    ) -> Result<Option<Bytes>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => store.get(key).await,
        }
    }

    /// The first `limit` rows of the range, as they will be.
    async fn scan(
        &self,
        store: &dyn MetadataStore,
        range: Range<Bytes>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        // Each deleted row may hide one stored row, so that many more are read.
        let hidden = self
            .writes
            .range(range.clone())
            .filter(|(_, value)| value.is_none())
            .count();
        let stored = store
            .scan(range.clone(), limit.saturating_add(hidden))
            .await?;
        if self.writes.range(range.clone()).next().is_none() {
            return Ok(stored);
        }
        // If the store has more than it returned, rows behind its last one aren't known.
        let complete = stored.len() < limit.saturating_add(hidden);
        let last_known = stored.last().map(|(key, _)| key.clone());
        let mut rows: BTreeMap<Bytes, Bytes> = stored.into_iter().collect();
        for (key, value) in self.writes.range(range) {
            if !complete && last_known.as_ref().is_some_and(|last| key > last) {
                break;
            }
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }

    pub(crate) async fn resolve(
        &self,
        store: &dyn MetadataStore,
        need: &Need,
    ) -> Result<Fact, StoreError> {
        match need {
            Need::Object(object) => {
                let key = keys::object(object);
                let value = self.get(store, &key).await?;
                let row = value.map(|value| decode::<ObjectRow>(&key, &value));
                Ok(Fact::Object(row.transpose()?))
            }
            Need::Segments {
                partition,
                from,
                to,
                limit,
            } => {
                let range = keys::segments_between(*partition, *from, *to);
                let rows = self.scan(store, range, *limit).await?;
                let rows = rows.iter().map(|(key, value)| {
                    let id = keys::parse_segment(key).map_err(|_| malformed(key))?;
                    Ok((id, decode::<SegmentRow>(key, value)?))
                });
                Ok(Fact::Segments(rows.collect::<Result<_, StoreError>>()?))
            }
            Need::PartitionRows { topic, limit } => {
                let rows = self
                    .scan(store, keys::partitions_of(*topic), *limit)
                    .await?;
                let rows = rows.iter().map(|(key, value)| {
                    let id = keys::parse_partition(key).map_err(|_| malformed(key))?;
                    Ok((id, decode::<PartitionRow>(key, value)?))
                });
                Ok(Fact::PartitionRows(
                    rows.collect::<Result<_, StoreError>>()?,
                ))
            }
            Need::Dropped { until, limit } => {
                let rows = self
                    .scan(store, keys::dropped_until(*until), *limit)
                    .await?;
                let rows = rows
                    .iter()
                    .map(|(key, _)| keys::parse_dropped(key).map_err(|_| malformed(key)));
                Ok(Fact::Dropped(rows.collect::<Result<_, StoreError>>()?))
            }
        }
    }
}

/// Opens a row's envelope; a row that can't be read means a damaged store.
pub(crate) fn decode<R: Row>(key: &[u8], value: &[u8]) -> Result<R, StoreError> {
    R::open(key, value).map_err(|error| damaged(key, &error))
}

pub(crate) fn malformed(key: &[u8]) -> StoreError {
    damaged(key, &DecodeError::Malformed("a key of an unknown form"))
}

fn damaged(key: &[u8], error: &DecodeError) -> StoreError {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    StoreError::Damaged(format!("row {hex}: {error}").into())
}

/// Reads a page of a segment map straight from the store; the last row read only tells that there are more.
pub(crate) async fn read_segments(
    store: &dyn MetadataStore,
    query: &crate::api::SegmentQuery,
) -> Result<crate::api::SegmentPage, StoreError> {
    let limit = query.limit.min(crate::api::SegmentQuery::MAX_LIMIT);
    let range = keys::segments_between(query.partition, query.from, keys::last_offset());
    let rows = store.scan(range, limit + 1).await?;
    let more = rows.len() > limit;
    let entry = |(key, value): &(Bytes, Bytes)| {
        let id = keys::parse_segment(key).map_err(|_| malformed(key))?;
        let row = decode::<SegmentRow>(key, value)?;
        let range = row.range(id.end).map_err(|error| damaged(key, &error))?;
        Ok(crate::model::SegmentEntry {
            range,
            leader_epoch: row.leader_epoch,
            object: row.object,
            span: row.span,
            index: row.index,
            max_timestamp: row.max_timestamp,
            record_count: row.record_count,
            committed_at: row.committed_at,
        })
    };
    let segments = rows.iter().take(limit).map(entry);
    Ok(crate::api::SegmentPage {
        segments: segments.collect::<Result<_, StoreError>>()?,
        more,
    })
}
