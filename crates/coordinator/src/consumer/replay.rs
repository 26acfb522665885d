//! A consumer group from its records.

use bytes::Bytes;

use super::group::ConsumerGroup;
use super::member::{ConsumerMember, Current, Profile};
use super::{GroupEpoch, ResolvedRegex};
use crate::records::{ConsumerKey, GroupRecord, decode_target, decode_target_epoch};
use crate::{GroupId, MemberId, RecordError};

impl ConsumerGroup {
    /// The newest value of each key, in any order.
    pub(crate) fn from_records(
        id: GroupId,
        records: Vec<(ConsumerKey, Bytes)>,
    ) -> Result<Self, RecordError> {
        let mut group = Self::new(id);
        for (key, value) in records {
            match key {
                ConsumerKey::Group => {
                    let record = GroupRecord::decode(&value)?;
                    group.epoch = GroupEpoch::from_wire(record.epoch).unwrap_or_default();
                    group.metadata_hash = record.metadata_hash;
                }
                // What it says is looked up in the cluster's metadata.
                ConsumerKey::PartitionMetadata => {}
                ConsumerKey::Member(id) => {
                    group.member_mut(&id).profile = Profile::decode(&value)?;
                }
                ConsumerKey::Current(id) => {
                    group.member_mut(&id).current = Current::decode(&value)?;
                }
                ConsumerKey::TargetOf(id) => {
                    group.targets.insert(id, decode_target(&value)?);
                }
                ConsumerKey::TargetEpoch => {
                    let epoch = decode_target_epoch(&value)?;
                    group.target_epoch = GroupEpoch::from_wire(epoch).unwrap_or_default();
                }
                ConsumerKey::Regex(regex) => {
                    let resolved = ResolvedRegex::decode(&value)?;
                    group.regexes.insert(regex.to_string(), resolved);
                }
            }
        }
        group.settle_conflicts();
        Ok(group)
    }

    fn member_mut(&mut self, id: &MemberId) -> &mut ConsumerMember {
        self.members
            .entry(id.clone())
            .or_insert_with(|| ConsumerMember::new(id.clone()))
    }
}
