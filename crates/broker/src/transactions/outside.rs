//! What a transaction coordinator has to do with the world: its appends, and markers.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tidegate_coordinator::Now;
use tidegate_coordinator::transactions::{
    TransactionCoordinator, TransactionEffect, TransactionNotice, TransactionReply,
};
use tidegate_partition_log::PartitionLog;
use tracing::{debug, info, warn};

use super::markers::{MarkerSender, Sent};
use crate::coordinators::{Done, Outside, append_records};

/// The world of one transaction coordinator.
pub(super) struct TransactionsOutside {
    log: Arc<PartitionLog>,
    markers: MarkerSender,
    /// Markers on their way: at most one order for each transactional id, which the coordinator limits.
    sending: FuturesUnordered<BoxFuture<'static, Sent>>,
}

impl TransactionsOutside {
    pub(super) fn new(log: Arc<PartitionLog>, markers: MarkerSender) -> Self {
        Self {
            log,
            markers,
            sending: FuturesUnordered::new(),
        }
    }
}

impl Outside<TransactionCoordinator> for TransactionsOutside {
    type News = Sent;

    fn carry_out(&mut self, effect: TransactionEffect) -> Done<TransactionReply> {
        match effect {
            TransactionEffect::Reply(token, reply) => Done::Reply(token, reply),
            TransactionEffect::Append { id, at, records } => {
                Done::Appending(id, append_records(&self.log, at, &records, None))
            }
            TransactionEffect::SendMarkers(markers) => {
                self.sending.push(self.markers.send(markers));
                Done::Nothing
            }
            TransactionEffect::Notice(notice) => {
                log_notice(&notice);
                Done::Nothing
            }
        }
    }

    /// Markers that aren't written stay in the set.
    async fn news(&mut self) -> Sent {
        match self.sending.next().await {
            Some(sent) => sent,
            None => std::future::pending().await,
        }
    }

    fn tell(
        &mut self,
        machine: &mut TransactionCoordinator,
        now: Now,
        sent: Sent,
    ) -> Vec<TransactionEffect> {
        machine.markers_written(now, &sent.transactional_id, sent.order, &sent.partitions)
    }

    fn prepare(&mut self, _: &mut TransactionCoordinator) {}

    fn give_up(&mut self) {
        self.sending = FuturesUnordered::new();
    }
}

fn log_notice(notice: &TransactionNotice) {
    match notice {
        TransactionNotice::Initialized {
            transactional_id,
            producer,
        } => {
            debug!(%transactional_id, producer_id = %producer.id, producer_epoch = %producer.epoch, "transactional id was given to a producer");
        }
        TransactionNotice::Fenced {
            transactional_id,
            timed_out,
        } => {
            info!(%transactional_id, timed_out, "transaction is aborted and its producer fenced");
        }
        TransactionNotice::Expired { ids } => info!(ids, "unused transactional ids are forgotten"),
        TransactionNotice::AppendTimedOut { id } => {
            warn!(append = %id, "a transaction's records are not durable in time");
        }
    }
}
