//! Takes back an attempt that failed: the source goes on, the target forgets.
//!
//! A seal that isn't taken back leaves a partition without a leader that serves, so it is repeated until the
//! source has said so, or until it can't matter any more: the partition has another leader epoch, or the source
//! has started anew, or it isn't registered. The table keeps the partition out of new attempts until then.

use std::sync::Arc;

use tidegate_types::{BrokerId, LeaderEpoch, PartitionId};

use super::super::{Core, within};
use super::pause;
use crate::orders::{Discard, Orders, Unseal};

/// Tries to reach the target: what it keeps needlessly is replaced by the next attempt, or dropped with the
/// leader epoch.
const DISCARD_TRIES: u32 = 5;

/// One partition of a failed attempt.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) partition: PartitionId,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) attempt: u64,
    /// It may be sealed.
    pub(crate) sealed: bool,
    pub(crate) cause: String,
}

/// Takes all of them back, then lets them be tried again.
pub(crate) async fn run(core: Arc<Core>, from: BrokerId, to: BrokerId, failed: Vec<Failed>) {
    for one in &failed {
        core.moves.undoing(one.partition);
        tracing::info!(
            partition = %one.partition, from = %from, to = %to, cause = %one.cause,
            "a move failed; taking it back"
        );
    }
    let sealed: Vec<Failed> = failed.iter().filter(|one| one.sealed).cloned().collect();
    tokio::join!(unseal(&core, from, sealed), discard(&core, to, &failed));
    let now = core.clock.now();
    for one in failed {
        core.metrics.moved("failed");
        let options = &core.options.moves;
        core.moves
            .failed(one.partition, from, to, one.cause, options, now);
    }
}

async fn unseal(core: &Core, from: BrokerId, mut sealed: Vec<Failed>) {
    let Some(registration) = core.registration(from) else {
        return;
    };
    let count = super::super::metrics::gauge(sealed.len());
    core.metrics.seals_to_undo.inc_by(count);
    let mut tries = 0;
    loop {
        sealed.retain(|one| core.is_led(one.partition, from, one.leader_epoch));
        if sealed.is_empty() || core.registration(from) != Some(registration) {
            break;
        }
        if let Some(orders) = core.orders(from) {
            let items = sealed.iter().map(|one| Unseal {
                partition: one.partition,
                leader_epoch: one.leader_epoch,
                order: core.next_order(),
            });
            let request = Orders {
                controller_epoch: core.controller_epoch(),
                items: items.collect(),
            };
            match within(core.options.moves.undo_timeout, orders.unseal(request)).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::debug!(broker = %from, %error, "seals can't be taken back yet");
                }
            }
        }
        tries += 1;
        tokio::time::sleep(pause(core.options.moves.backoff, tries)).await;
    }
    core.metrics.seals_to_undo.dec_by(count);
}

async fn discard(core: &Core, to: BrokerId, failed: &[Failed]) {
    let registration = core.registration(to);
    for tries in 1..=DISCARD_TRIES {
        if registration.is_none() || core.registration(to) != registration {
            return;
        }
        let Some(orders) = core.orders(to) else {
            return;
        };
        let request = Orders {
            controller_epoch: core.controller_epoch(),
            items: failed
                .iter()
                .map(|one| Discard {
                    partition: one.partition,
                    attempt: one.attempt,
                })
                .collect(),
        };
        match within(core.options.moves.undo_timeout, orders.discard(request)).await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(broker = %to, %error, "what was prepared can't be discarded yet");
            }
        }
        tokio::time::sleep(pause(core.options.moves.backoff, tries)).await;
    }
}
