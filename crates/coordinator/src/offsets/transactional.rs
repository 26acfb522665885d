//! TxnOffsetCommit, and the end of transactions (KIP-98, KIP-447).

use tidegate_types::{ProducerEpoch, ProducerId, VerificationTicket};

use super::commit::checked_offsets;
use crate::classic::ClassicGroup;
use crate::context::Waiter;
use crate::coordinator::{GroupCoordinator, context};
use crate::journal::Kind;
use crate::{
    Effect, Generation, GroupError, GroupId, InstanceId, MemberId, Now, OffsetToCommit, Reply,
    ReplyToken,
};

/// Whose transaction records are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// For the host, which looks after it.
    pub ticket: Option<VerificationTicket>,
}

/// TxnOffsetCommit, for partitions that exist.
#[derive(Debug, Clone)]
pub struct TransactionalCommitRequest {
    pub group_id: GroupId,
    /// From version 3 on; clients before don't say who they are.
    pub member_id: Option<MemberId>,
    pub instance_id: Option<InstanceId>,
    pub generation: Option<Generation>,
    pub transaction: Transaction,
    pub offsets: Vec<OffsetToCommit>,
}

/// The end of a producer's transaction, as the coordinator of transactions orders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTransaction {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub coordinator_epoch: i32,
    pub commit: bool,
    /// The producer gets a new epoch for each transaction.
    pub epoch_rises: bool,
}

impl GroupCoordinator {
    /// TxnOffsetCommit. The reply comes when the offsets are durable; they count once the transaction is committed.
    pub fn commit_transactional_offsets(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: TransactionalCommitRequest,
    ) -> Vec<Effect> {
        if let Err(error) = self.transactional_commit_accepted(now, token, request) {
            self.effects
                .push(Effect::Reply(token, Reply::CommitOffsets(Err(error))));
        }
        self.take_effects()
    }

    fn transactional_commit_accepted(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: TransactionalCommitRequest,
    ) -> Result<(), GroupError> {
        self.may_append()?;
        let id = request.group_id.clone();
        if id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let mut created = None;
        match (self.groups.get(&id), self.consumer_groups.get(&id)) {
            (Some(group), _) => group.accept_transactional_commit(&request)?,
            (None, Some(group)) => group.accept_transactional_commit(&request)?,
            (None, None) if request.generation.is_some() => {
                return Err(GroupError::IllegalGeneration);
            }
            (None, None) if self.group_count() >= self.config.max_groups => {
                return Err(GroupError::TooManyGroups);
            }
            (None, None) => created = Some(Waiter::GroupCreated(id.clone())),
        }
        let is_new = created.is_some();
        let mut cx = context!(self, now);
        let transaction = request.transaction;
        let (writes, results) = checked_offsets(&cx, &id, request.offsets, None);
        let reply = Reply::CommitOffsets(Ok(results));
        if writes.is_empty() {
            cx.reply(token, reply);
            return Ok(());
        }
        let mut waiters = vec![Waiter::Reply(token, reply)];
        waiters.extend(created);
        cx.append_as(Kind::Transactional(transaction), writes, waiters);
        if is_new {
            self.groups.insert(id.clone(), ClassicGroup::new(id, now));
        }
        Ok(())
    }

    /// A transaction ends in this partition. The reply comes when the marker is durable; what the transaction
    /// committed counts from then on.
    pub fn end_transaction(
        &mut self,
        now: Now,
        token: ReplyToken,
        end: EndTransaction,
    ) -> Vec<Effect> {
        let accepted = self.may_append();
        let mut cx = context!(self, now);
        match accepted {
            Ok(()) => {
                let waiter = Waiter::Reply(token, Reply::EndTransaction(Ok(())));
                cx.append_as(Kind::Marker(end), Vec::new(), vec![waiter]);
            }
            Err(error) => cx.reply(token, Reply::EndTransaction(Err(error))),
        }
        self.take_effects()
    }
}

impl ClassicGroup {
    /// Whether the sender may commit offsets in a transaction: a member of this generation, or a client that doesn't
    /// say who it is, as those before KIP-447 do.
    fn accept_transactional_commit(
        &self,
        request: &TransactionalCommitRequest,
    ) -> Result<(), GroupError> {
        let is_anonymous = request.member_id.is_none() && request.instance_id.is_none();
        if request.generation.is_none() && (self.is_empty() || is_anonymous) {
            return Ok(());
        }
        self.validate_member(request.member_id.as_ref(), request.instance_id.as_ref())?;
        if request.generation != Some(self.generation) {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(())
    }
}
