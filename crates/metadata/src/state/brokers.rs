//! Registration, and what is handed out to brokers: producer ids.

use tidegate_types::{BrokerEpoch, ProducerId};

use super::{Change, Command, Decision, Environment, Facts, State};
use crate::api::{
    AllocateProducerIds, AllocateProducerIdsError, ProducerIdBlock, RegisterBroker,
    RegisterBrokerError, Registered,
};
use crate::rows::{BrokerRow, ProducerIdsRow};

/// Producer ids handed out at a time, as in Apache Kafka.
pub(crate) const PRODUCER_ID_BLOCK: u32 = 1_000;

impl Command for RegisterBroker {
    type Output = Registered;
    type Error = RegisterBrokerError;
    const NAME: &'static str = "register_broker";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Registered>, RegisterBrokerError> {
        let old = state.broker(self.broker);
        let broker_epoch = match old {
            None => BrokerEpoch::new(1),
            Some(row) if row.incarnation == self.incarnation => row.broker_epoch,
            Some(row) => row.broker_epoch.next(),
        };
        let row = BrokerRow {
            broker_epoch,
            incarnation: self.incarnation,
            kafka: self.kafka.clone(),
            internal: self.internal.clone(),
            rack: self.rack.clone(),
            writer: old.and_then(|row| row.writer),
            wal: old.and_then(|row| row.wal),
        };
        let output = Registered {
            broker_epoch,
            former_writer: row.writer.filter(|w| w.broker_epoch != broker_epoch),
        };
        let mut changes = Vec::new();
        if old != Some(&row) {
            changes.push(Change::Broker(self.broker, row));
        }
        if !state.is_alive(self.broker) {
            changes.push(Change::Alive(self.broker, true));
        }
        Ok(Decision { changes, output })
    }
}

impl Command for AllocateProducerIds {
    type Output = ProducerIdBlock;
    type Error = AllocateProducerIdsError;
    const NAME: &'static str = "allocate_producer_ids";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<ProducerIdBlock>, AllocateProducerIdsError> {
        state.registered(self.broker, self.broker_epoch)?;
        let first = state.next_producer_id();
        let next = first
            .checked_add(i64::from(PRODUCER_ID_BLOCK))
            .ok_or(AllocateProducerIdsError::Exhausted)?;
        Ok(Decision {
            changes: vec![Change::ProducerIds(ProducerIdsRow { next })],
            output: ProducerIdBlock {
                first: ProducerId::from_wire(first)
                    .expect("the counter starts at 0 and only grows"),
                count: PRODUCER_ID_BLOCK,
            },
        })
    }
}
