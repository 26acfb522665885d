//! Storing what a run wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_object_storage::{ObjectKey, PutOutcome};
use tidegate_partition_log::{SegmentObject, object_commit, segment_of};
use tidegate_segment_format::{BuiltObject, FOOTER_BYTES, WriterIdentity, same_object};
use tracing::warn;

use super::plan::Planned;
use super::rewrite::Run;
use super::{Halt, Pass, PassError};
use crate::compaction::output::Output;

pub(super) const FIRST_RETRY: Duration = Duration::from_millis(100);
pub(super) const LAST_RETRY: Duration = Duration::from_secs(5);

impl Pass<'_> {
    /// Stores what was gathered as an object of the run.
    pub(super) async fn store(
        &self,
        planned: &Planned,
        output: &mut Output,
        run: &mut Run,
    ) -> Result<(), Halt> {
        let writer = &self.of.writer;
        let sequence = self.of.next_object.fetch_add(1, Ordering::Relaxed);
        let identity = WriterIdentity {
            broker: writer.broker,
            broker_epoch: writer.broker_epoch,
            sequence,
            nonce: writer.nonce,
        };
        let Some(built) = output.cut(self.log.id(), identity) else {
            return Ok(());
        };
        let key = ObjectKey::compacted(writer.broker, writer.broker_epoch, sequence);
        // Before it is stored: a run that is given up names all that may be there.
        run.outputs.push(object_commit(
            &key,
            built.size_bytes,
            built.index,
            None,
            &built.segments,
        ));
        if let Err(halt) = self.put(planned, &key, &built).await {
            if matches!(halt, Halt::Error(PassError::KeyTaken(_))) {
                run.outputs.pop();
            }
            return Err(halt);
        }
        let object = Arc::new(SegmentObject {
            key,
            size_bytes: built.size_bytes,
            index: built.index,
        });
        let now = self.of.broker.clock.wall();
        let segments = built.segments.iter();
        run.segments
            .extend(segments.map(|info| segment_of(&object, info, now)));
        Ok(())
    }

    /// Stores an object, however long it takes while it is wanted.
    async fn put(
        &self,
        planned: &Planned,
        key: &ObjectKey,
        built: &BuiltObject,
    ) -> Result<(), Halt> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.of.storage.put_create(key, built.payload.clone()).await {
                Ok(PutOutcome::Created) => return Ok(()),
                Ok(PutOutcome::AlreadyExists) => {
                    let tail = self.of.storage.get_tail(key, FOOTER_BYTES as u64).await;
                    if let Ok((tail, size)) = tail {
                        let stored = tidegate_segment_format::decode_footer(&tail);
                        let ours = size == built.size_bytes
                            && stored.is_ok_and(|footer| same_object(&footer, &built.footer));
                        return match ours {
                            true => Ok(()),
                            false => Err(PassError::KeyTaken(key.clone()).into()),
                        };
                    }
                }
                Err(error) => {
                    warn!(object = %key, error = &error as &dyn std::error::Error, "storing a compacted object failed and is tried again");
                }
            }
            self.check_wanted(planned)?;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }
}
