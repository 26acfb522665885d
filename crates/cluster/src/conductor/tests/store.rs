//! A store of WAL objects in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_segment_format::{
    ByteRange, ObjectBuilder, ObjectKind, WriterIdentity, decode_footer,
};
use tidegate_types::{BrokerEpoch, BrokerId, LeaderEpoch, OffsetRange, PartitionId, TimestampMs};
use tidegate_wal::object::{CreateOutcome, LogObjectName, ObjectLogStore, StoreFailure};

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<LogObjectName, Bytes>,
    failing: bool,
}

#[derive(Clone, Default)]
pub(super) struct MemoryLog(Arc<Mutex<Bucket>>);

impl MemoryLog {
    pub(super) fn set_failing(&self, failing: bool) {
        self.0.lock().failing = failing;
    }

    /// What a writer stored: one partition's batches.
    pub(super) fn write(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        sequence: u64,
        partition: PartitionId,
        leader_epoch: LeaderEpoch,
        range: OffsetRange,
    ) {
        let identity = WriterIdentity {
            broker,
            broker_epoch,
            sequence,
            nonce: 7,
        };
        let mut builder = ObjectBuilder::new(identity, 4_096);
        builder.add_batches(
            partition,
            leader_epoch,
            range,
            Bytes::from(vec![0; 100]),
            TimestampMs::new(5),
            range.span(),
        );
        let built = builder.finish();
        let name = LogObjectName {
            broker,
            broker_epoch,
            sequence,
        };
        self.0
            .lock()
            .objects
            .insert(name, built.payload.concat().into());
    }

    /// The number at which a writer was fenced.
    pub(super) fn fenced_at(&self, broker: BrokerId, broker_epoch: BrokerEpoch) -> Option<u64> {
        let bucket = self.0.lock();
        let own = bucket
            .objects
            .iter()
            .filter(|(name, _)| (name.broker, name.broker_epoch) == (broker, broker_epoch));
        own.filter(|(_, bytes)| decode_footer(bytes).unwrap().kind == ObjectKind::Fence)
            .map(|(name, _)| name.sequence)
            .next()
    }

    fn check(&self) -> Result<(), StoreFailure> {
        if self.0.lock().failing {
            return Err(StoreFailure(Arc::new(std::io::Error::other("unreachable"))));
        }
        Ok(())
    }
}

#[async_trait]
impl ObjectLogStore for MemoryLog {
    async fn create(
        &self,
        name: LogObjectName,
        payload: Vec<Bytes>,
    ) -> Result<CreateOutcome, StoreFailure> {
        self.check()?;
        let mut bucket = self.0.lock();
        if bucket.objects.contains_key(&name) {
            return Ok(CreateOutcome::AlreadyExists);
        }
        bucket.objects.insert(name, payload.concat().into());
        Ok(CreateOutcome::Created)
    }

    async fn read_tail(
        &self,
        name: LogObjectName,
        length: u64,
    ) -> Result<Option<(Bytes, u64)>, StoreFailure> {
        self.check()?;
        let bucket = self.0.lock();
        Ok(bucket.objects.get(&name).map(|bytes| {
            let skip = bytes.len().saturating_sub(usize::try_from(length).unwrap());
            (bytes.slice(skip..), bytes.len() as u64)
        }))
    }

    async fn read_range(
        &self,
        name: LogObjectName,
        range: ByteRange,
    ) -> Result<Bytes, StoreFailure> {
        self.check()?;
        let bucket = self.0.lock();
        let bytes = bucket.objects.get(&name).expect("it was seen before");
        let start = usize::try_from(range.position).unwrap();
        Ok(bytes.slice(start..usize::try_from(range.end()).unwrap()))
    }
}
