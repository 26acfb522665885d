//! OffsetFetch.

use tidegate_types::TopicId;

use super::OffsetStore;
use crate::journal::Slot;
use crate::{
    FetchRequest, FetchedOffset, GroupId, OffsetAndMetadata, OffsetSelection, TopicPartition,
};

/// Which state a fetch sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// What the log is known to hold.
    Durable,
    /// What was accepted, durable or not. The reply must wait for the appends before it.
    Newest,
}

impl View {
    fn of(self, slot: &Slot<OffsetAndMetadata>) -> Option<&OffsetAndMetadata> {
        match self {
            Self::Durable => slot.durable(),
            Self::Newest => slot.newest(),
        }
    }
}

impl OffsetStore {
    pub(crate) fn fetch(&self, request: &FetchRequest, view: View) -> Vec<FetchedOffset> {
        let offsets = self.group(&request.group_id);
        match &request.selection {
            OffsetSelection::All => offsets
                .into_iter()
                .flatten()
                .filter_map(|(target, slot)| {
                    let committed = view.of(slot)?;
                    Some(self.answer(
                        &request.group_id,
                        target,
                        committed.topic_id,
                        Some(committed),
                        view,
                    ))
                })
                .collect(),
            OffsetSelection::Partitions(targets) => targets
                .iter()
                .map(|(target, topic_id)| {
                    let committed = offsets
                        .and_then(|offsets| offsets.get(target))
                        .and_then(|slot| view.of(slot))
                        .filter(|committed| is_same_topic(committed.topic_id, *topic_id));
                    self.answer(&request.group_id, target, *topic_id, committed, view)
                })
                .collect(),
        }
    }

    fn answer(
        &self,
        group: &GroupId,
        target: &TopicPartition,
        topic_id: Option<TopicId>,
        committed: Option<&OffsetAndMetadata>,
        view: View,
    ) -> FetchedOffset {
        let committed = match view {
            View::Newest if self.is_unstable(group, target) => {
                Err(crate::GroupError::UnstableOffsetCommit)
            }
            View::Newest | View::Durable => Ok(committed.cloned()),
        };
        FetchedOffset {
            target: target.clone(),
            topic_id,
            committed,
        }
    }

    /// Whether an open transaction has offsets for the partition.
    pub(crate) fn is_unstable(&self, group: &GroupId, target: &TopicPartition) -> bool {
        self.pending.holds(group, target)
    }
}

/// An offset of a topic that was deleted and created again is none of the new topic's.
pub(crate) fn is_same_topic(stored: Option<TopicId>, asked: Option<TopicId>) -> bool {
    match (stored, asked) {
        (Some(stored), Some(asked)) => stored == asked,
        (None, _) | (_, None) => true,
    }
}
