//! Registration, the brokers' standing, and what is handed out to brokers: producer ids.

use tidegate_types::{BrokerEpoch, BrokerId, PartitionId, ProducerId};
use uuid::Uuid;

use super::workspace::Workspace;
use super::{Change, Command, Decision, Environment, Facts, State};
use crate::api::{
    AllocateProducerIds, AllocateProducerIdsError, BrokerChangeError, ProducerIdBlock,
    RegisterBroker, RegisterBrokerError, Registered, SetAlive, SetDraining, UnregisterBroker,
    UnregisterBrokerError,
};
use crate::rows::{BrokerRow, PartitionRow, ProducerIdsRow};

/// Producer ids handed out at a time, as in Apache Kafka.
pub(crate) const PRODUCER_ID_BLOCK: u32 = 1_000;

impl RegisterBroker {
    /// The number: the one asked for, else that of the same incarnation or local WAL, else a fresh one.
    fn number(&self, state: &State) -> Result<BrokerId, RegisterBrokerError> {
        if let Some(id) = self.broker {
            return Ok(id);
        }
        let same = |row: &BrokerRow| {
            row.incarnation == self.incarnation || (self.wal.is_some() && row.wal == self.wal)
        };
        if let Some((id, _)) = state.brokers().find(|(_, row)| same(row)) {
            return Ok(id);
        }
        (1..=i32::MAX.unsigned_abs())
            .filter_map(|id| BrokerId::new(id).ok())
            .find(|id| state.broker(*id).is_none() && state.unregistered(*id).is_none())
            .ok_or(RegisterBrokerError::NoNumber)
    }

    /// Whoever registered before with the same local WAL is dead: a WAL is locked by one process.
    fn replaces(&self, row: &BrokerRow) -> bool {
        self.wal.is_some() && row.wal == self.wal
    }
}

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
        let id = self.number(state)?;
        let old = state.broker(id).or_else(|| state.unregistered(id));
        let (broker_epoch, repeated) = match old {
            None => (BrokerEpoch::new(1), false),
            Some(row) if row.incarnation == self.incarnation && !row.unregistered => {
                (row.broker_epoch, true)
            }
            Some(row) if state.is_alive(id) && !self.replaces(row) => {
                return Err(RegisterBrokerError::Duplicate {
                    broker: id,
                    kafka: row.kafka.clone(),
                });
            }
            Some(row) => (row.broker_epoch.next(), false),
        };
        let row = BrokerRow {
            broker_epoch,
            incarnation: self.incarnation,
            kafka: self.kafka.clone(),
            internal: self.internal.clone(),
            rack: self.rack.clone(),
            writer: old.and_then(|row| row.writer),
            wal: self.wal.or_else(|| old.and_then(|row| row.wal)),
            draining: repeated && old.is_some_and(|row| row.draining),
            unregistered: false,
        };
        let output = Registered {
            broker: id,
            broker_epoch,
            former_writer: row.writer.filter(|w| w.broker_epoch != broker_epoch),
        };
        let mut changes = Vec::new();
        if old != Some(&row) {
            changes.push(Change::Broker(id, row));
        }
        if !state.is_alive(id) {
            changes.push(Change::Alive(id, true));
        }
        Ok(Decision { changes, output })
    }
}

impl Command for SetAlive {
    type Output = ();
    type Error = BrokerChangeError;
    const NAME: &'static str = "set_alive";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, BrokerChangeError> {
        state.registered(self.broker, self.broker_epoch)?;
        let changes = if state.is_alive(self.broker) == self.alive {
            Vec::new()
        } else {
            vec![Change::Alive(self.broker, self.alive)]
        };
        Ok(Decision {
            changes,
            output: (),
        })
    }
}

impl Command for SetDraining {
    type Output = ();
    type Error = BrokerChangeError;
    const NAME: &'static str = "set_draining";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, BrokerChangeError> {
        let row = state.registered(self.broker, self.broker_epoch)?;
        let changes = if row.draining == self.draining {
            Vec::new()
        } else {
            let row = BrokerRow {
                draining: self.draining,
                ..row.clone()
            };
            vec![Change::Broker(self.broker, row)]
        };
        Ok(Decision {
            changes,
            output: (),
        })
    }
}

impl Command for UnregisterBroker {
    type Output = ();
    type Error = UnregisterBrokerError;
    const NAME: &'static str = "unregister_broker";

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<()>, UnregisterBrokerError> {
        let id = self.broker;
        let row = state
            .broker(id)
            .ok_or(UnregisterBrokerError::UnknownBroker(id))?;
        if state.is_alive(id) {
            return Err(UnregisterBrokerError::Alive(id));
        }
        if let Some(writer) = row.writer {
            return Err(UnregisterBrokerError::NotRecovered {
                broker: id,
                writer: writer.broker_epoch,
            });
        }
        let mut work = Workspace::new(state, facts, environment.now);
        let mut needed = state.led_count(id);
        for (topic_id, topic) in state.topics_by_id() {
            for (partition, old) in topic.partition_ids(topic_id).zip(&topic.partitions) {
                needed += u64::from(!leave(&mut work, partition, old, id));
            }
        }
        if needed > 0 {
            return Err(UnregisterBrokerError::Needed {
                broker: id,
                partitions: needed,
            });
        }
        let row = BrokerRow {
            unregistered: true,
            incarnation: Uuid::nil(),
            ..row.clone()
        };
        work.push(Change::Broker(id, row));
        Ok(Decision {
            changes: work.into_changes(),
            output: (),
        })
    }
}

/// Takes a broker out of a partition's placement and target. `false`: no other could ever lead then.
fn leave(work: &mut Workspace<'_>, id: PartitionId, old: &PartitionRow, broker: BrokerId) -> bool {
    if old
        .target
        .as_ref()
        .is_some_and(|target| target.placement.contains(&broker))
        && let Some(row) = work.edit(id)
    {
        row.target = None;
    }
    if !old.placement.contains(&broker) {
        return true;
    }
    let mut placement = old.placement.clone();
    placement.retain(|other| *other != broker);
    if placement.is_empty() {
        placement.extend(old.leader.filter(|leader| *leader != broker));
    }
    if placement.is_empty() {
        // A partition that it leads is counted already.
        return old.leader == Some(broker);
    }
    if let Some(row) = work.edit(id) {
        row.placement = placement;
    }
    true
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
