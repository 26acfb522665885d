//! Sealing: the end of a leadership that is handed over, and who waits for what becomes of it.
//!
//! A sealed log takes no appends and still serves readers. Its end is final as soon as everything admitted before
//! is durable; then the next leader may begin there. If the move doesn't take place the seal is taken back.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::{ControllerEpoch, LeaderEpoch, Offset};
use tokio::sync::watch;

use super::{PartitionLog, State, Status};
use crate::checkpoint;

/// The place of a seal or of its taking back among all that controllers order. A later controller's come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealOrder {
    pub controller_epoch: ControllerEpoch,
    /// Rises with each order of one controller.
    pub number: u64,
}

/// What a log was when it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedState {
    pub leader_epoch: LeaderEpoch,
    /// Everything below is durable; nothing will be behind it under this leader epoch.
    pub end: Offset,
    /// The derived state as of `end`, encoded as the checkpoint of an object.
    pub checkpoint: Bytes,
}

/// A seal in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seal {
    order: SealOrder,
    pub(super) state: Arc<SealedState>,
}

/// Why a log wasn't sealed, or a seal not taken back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("this broker doesn't lead the partition under that leader epoch")]
    NotLeader,
    /// A durability switch waits for the tail to be stored. Ask again soon.
    #[error("the topic's durability is changing")]
    NotYet,
    /// A later order came first.
    #[error("order {} of controller epoch {} came before", newest.number, newest.controller_epoch)]
    Superseded { newest: SealOrder },
    #[error("the write-ahead log failed: {0}")]
    Failed(Arc<str>),
}

/// Whether a log serves, as those see it who wait for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// This broker is about to lead and doesn't yet.
    Incoming,
    /// This broker leads.
    Leading,
    /// Another broker is about to lead: appends wait, reads go on.
    Sealed,
    /// Another broker leads, or the topic is gone. It stays so.
    Closed,
}

impl Status {
    pub(super) fn ownership(&self) -> Ownership {
        match self {
            Self::Open | Self::Switching(_) | Self::Failed(_) => Ownership::Leading,
            Self::Sealed(_) => Ownership::Sealed,
            Self::Incoming => Ownership::Incoming,
            Self::Closed => Ownership::Closed,
        }
    }
}

impl PartitionLog {
    /// Admits no more appends, and answers when everything admitted is durable. A log that is sealed already
    /// answers the same.
    ///
    /// # Errors
    /// See [`SealError`]. A call that is dropped leaves the log sealed.
    pub async fn seal(
        &self,
        leader_epoch: LeaderEpoch,
        order: SealOrder,
    ) -> Result<SealedState, SealError> {
        let (sealed, durable) = {
            let mut state = self.state.lock();
            let sealed = state.begin_seal(leader_epoch, order)?;
            let durable = state.await_durable(sealed.end);
            (sealed, durable)
        };
        // If it never becomes durable the status says why.
        let _outcome = durable.await;
        let state = self.state.lock();
        match &state.status {
            Status::Sealed(_) if state.high_watermark >= sealed.end => Ok((*sealed).clone()),
            Status::Failed(cause) => Err(SealError::Failed(cause.clone())),
            Status::Open | Status::Switching(_) | Status::Sealed(_) => Err(SealError::Superseded {
                newest: state.unsealed_by.unwrap_or(order),
            }),
            Status::Incoming | Status::Closed => Err(SealError::NotLeader),
        }
    }

    /// Takes a seal back: the move doesn't take place. What comes late of the seal is refused from now on.
    ///
    /// # Errors
    /// If this isn't the newest order, or the log doesn't lead under that epoch.
    pub fn unseal(&self, leader_epoch: LeaderEpoch, order: SealOrder) -> Result<(), SealError> {
        let mut state = self.state.lock();
        match &state.status {
            Status::Closed | Status::Incoming => return Err(SealError::NotLeader),
            _ if state.leader_epoch != leader_epoch => return Err(SealError::NotLeader),
            Status::Failed(cause) => return Err(SealError::Failed(cause.clone())),
            Status::Sealed(seal) if order <= seal.order => {
                return Err(SealError::Superseded { newest: seal.order });
            }
            Status::Sealed(_) => {
                let wanted = state.wanted_durability;
                state.set_status(Status::Switching(wanted));
                state.finish_switch();
            }
            Status::Open | Status::Switching(_) => {}
        }
        state.unsealed_by = state.unsealed_by.max(Some(order));
        let switching = matches!(state.status, Status::Switching(_));
        drop(state);
        if switching {
            self.context.upload_bell.notify_one();
        }
        Ok(())
    }

    /// Whether an append wouldn't be refused because of a handover.
    pub fn takes_appends(&self) -> bool {
        self.state.lock().status.ownership() == Ownership::Leading
    }

    /// Whether the log serves, now and from now on.
    pub fn ownership(&self) -> watch::Receiver<Ownership> {
        self.state.lock().ownership.subscribe()
    }

    /// Waits until it is known whether this broker leads: a seal was taken back or followed by the move.
    pub async fn settled(&self) -> Ownership {
        let mut ownership = self.ownership();
        let settled = ownership
            .wait_for(|o| matches!(o, Ownership::Leading | Ownership::Closed))
            .await;
        settled.map_or(Ownership::Closed, |o| *o)
    }
}

impl State {
    fn begin_seal(
        &mut self,
        leader_epoch: LeaderEpoch,
        order: SealOrder,
    ) -> Result<Arc<SealedState>, SealError> {
        match &mut self.status {
            Status::Closed | Status::Incoming => Err(SealError::NotLeader),
            _ if self.leader_epoch != leader_epoch => Err(SealError::NotLeader),
            Status::Failed(cause) => Err(SealError::Failed(cause.clone())),
            Status::Sealed(seal) => {
                seal.order = seal.order.max(order);
                Ok(seal.state.clone())
            }
            Status::Open | Status::Switching(_) if self.unsealed_by >= Some(order) => {
                Err(SealError::Superseded {
                    newest: self.unsealed_by.unwrap_or(order),
                })
            }
            Status::Switching(_) => Err(SealError::NotYet),
            Status::Open => {
                let state = Arc::new(SealedState {
                    leader_epoch,
                    end: self.log_end,
                    checkpoint: checkpoint::encode(self.log_end, &self.producers),
                });
                self.set_status(Status::Sealed(Seal {
                    order,
                    state: state.clone(),
                }));
                Ok(state)
            }
        }
    }
}
