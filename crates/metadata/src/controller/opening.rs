//! Opening: fence whoever wrote before, read the state, raise the controller epoch.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::{BrokerId, ControllerEpoch, TimestampMs};
use uuid::Uuid;

use super::ControllerOptions;
use super::overlay::{decode, malformed};
use crate::api::ConfigResource;
use crate::keys::{self, Table};
use crate::rows::{
    BrokerRow, ClusterRow, ConfigsRow, ControllerEpochRow, DeletedTopicRow, PartitionRow,
    ProducerIdsRow, QuotasRow, Row, TopicRow,
};
use crate::state::picture::Picture;
use crate::state::{Change, Contradiction, State};
use crate::store::{MetadataStore, StoreError, StoreOpener, WriteBatch};

/// The layout this release writes and reads.
pub(crate) const FORMAT: u32 = 1;

/// Rows read by one scan while opening.
const SCAN_ROWS: usize = 4_096;

/// Why the controller can't be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The store can't be reached now, or another controller opened it at the same time. Try again later.
    #[error("the metadata store can't be opened now: {0}")]
    Unavailable(StoreError),
    /// Another controller has taken over since this one was last open.
    #[error("another controller (broker {broker}) has taken over")]
    Deposed {
        /// The broker it runs on.
        broker: BrokerId,
    },
    /// Only a newer release can read it.
    #[error(
        "this bucket was written by a newer Tidegate (metadata format {found}; this release reads {FORMAT})"
    )]
    NewerFormat {
        /// The stored format.
        found: u32,
    },
    /// What is stored can't be read.
    #[error("the metadata can't be read: {0}")]
    Damaged(Arc<str>),
}

impl OpenError {
    /// Trying again later may help.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Deposed { .. } | Self::NewerFormat { .. } | Self::Damaged(_) => false,
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced | StoreError::Failed(_) => Self::Unavailable(error),
            StoreError::Damaged(what) => Self::Damaged(what),
        }
    }
}

impl From<Contradiction> for OpenError {
    fn from(contradiction: Contradiction) -> Self {
        Self::Damaged(contradiction.to_string().into())
    }
}

/// An open store and the state read from it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn MetadataStore>,
    pub(crate) state: State,
}

/// What a controller keeps over its openings.
pub(crate) struct Identity {
    /// Random per process.
    pub(crate) instance: Uuid,
    /// It has been controller before: then nobody else may have been since.
    pub(crate) opened_before: bool,
    /// The brokers with a session; `None` if nothing is known of sessions.
    pub(crate) alive: Option<BTreeSet<BrokerId>>,
    /// A cluster id, in case there is none yet.
    pub(crate) new_cluster: Uuid,
    pub(crate) now: TimestampMs,
}

pub(crate) async fn open(
    opener: &dyn StoreOpener,
    options: &ControllerOptions,
    identity: &Identity,
) -> Result<Opened, OpenError> {
    let store = opener.open().await?;
    match load(store.as_ref(), options, identity).await {
        Ok(state) => Ok(Opened { store, state }),
        Err(error) => {
            store.close().await;
            Err(error)
        }
    }
}

async fn load(
    store: &dyn MetadataStore,
    options: &ControllerOptions,
    identity: &Identity,
) -> Result<State, OpenError> {
    let mut batch = WriteBatch::default();
    let cluster = match single::<ClusterRow>(store, Table::Cluster).await? {
        Some(row) if row.format > FORMAT => {
            return Err(OpenError::NewerFormat { found: row.format });
        }
        Some(row) => row,
        None => {
            let row = ClusterRow {
                id: cluster_id(identity.new_cluster),
                format: FORMAT,
                created_at: identity.now,
            };
            let key = keys::single(Table::Cluster);
            batch.put(key.clone(), row.seal(&key));
            row
        }
    };
    let former = single::<ControllerEpochRow>(store, Table::ControllerEpoch).await?;
    if identity.opened_before
        && let Some(row) = &former
        && row.instance != identity.instance
    {
        return Err(OpenError::Deposed { broker: row.broker });
    }
    let epoch = former.map_or(ControllerEpoch::new(1), |row| row.epoch.next());
    let picture = Picture::new(&cluster.id, options.broker, epoch);
    let mut state = State::new(options.default_durability, options.limits, picture);
    read_state(store, &mut state).await?;
    let alive = match &identity.alive {
        Some(alive) => alive.clone(),
        None => presumed_alive(&state, options.presumed_dead),
    };
    for broker in alive {
        state.absorb(&Change::Alive(broker, true))?;
    }
    let row = ControllerEpochRow {
        epoch,
        instance: identity.instance,
        broker: options.broker,
    };
    let key = keys::single(Table::ControllerEpoch);
    batch.put(key.clone(), row.seal(&key));
    store.apply(batch).await?;
    Ok(state)
}

/// Else Metadata would name no leaders until each broker's session is open again.
fn presumed_alive(state: &State, presumed_dead: Option<BrokerId>) -> BTreeSet<BrokerId> {
    state
        .brokers()
        .filter(|(id, row)| row.leads() && Some(*id) != presumed_dead)
        .map(|(id, _)| id)
        .collect()
}

/// Topics come before deleted topics, and both before partitions, which need to find theirs.
pub(crate) async fn read_state(
    store: &dyn MetadataStore,
    state: &mut State,
) -> Result<(), OpenError> {
    if let Some(row) = single::<ProducerIdsRow>(store, Table::ProducerIds).await? {
        state.absorb(&Change::ProducerIds(row))?;
    }
    each(store, Table::Broker, state, |key, value| {
        let id = keys::parse_broker(key).map_err(|_| malformed(key))?;
        Ok(Change::Broker(id, decode::<BrokerRow>(key, value)?))
    })
    .await?;
    each(store, Table::Configs, state, |key, value| {
        let row = decode::<ConfigsRow>(key, value)?;
        match keys::parse_configs(key) {
            Ok(ConfigResource::Broker(id)) => Ok(Change::Configs(Some(id), row.configs)),
            Ok(ConfigResource::BrokerDefault) => Ok(Change::Configs(None, row.configs)),
            Ok(ConfigResource::Group(group)) => Ok(Change::GroupConfigs(group, row.configs)),
            Ok(ConfigResource::Topic(_)) | Err(_) => Err(malformed(key)),
        }
    })
    .await?;
    each(store, Table::Quotas, state, |key, value| {
        let entity = keys::parse_quotas(key).map_err(|_| malformed(key))?;
        Ok(Change::Quotas(
            entity,
            decode::<QuotasRow>(key, value)?.limits,
        ))
    })
    .await?;
    each(store, Table::Topic, state, |key, value| {
        let id = keys::parse_topic(key).map_err(|_| malformed(key))?;
        Ok(Change::Topic(id, Some(decode::<TopicRow>(key, value)?)))
    })
    .await?;
    each(store, Table::DeletedTopic, state, |key, value| {
        let id = keys::parse_topic(key).map_err(|_| malformed(key))?;
        let row = decode::<DeletedTopicRow>(key, value)?;
        Ok(Change::DeletedTopic(id, Some(row)))
    })
    .await?;
    each(store, Table::Partition, state, |key, value| {
        let id = keys::parse_partition(key).map_err(|_| malformed(key))?;
        let row = decode::<PartitionRow>(key, value)?;
        Ok(Change::Partition(id, Some(row)))
    })
    .await?;
    state.check_complete()?;
    Ok(())
}

async fn single<R: Row>(store: &dyn MetadataStore, table: Table) -> Result<Option<R>, StoreError> {
    let key = keys::single(table);
    let value = store.get(&key).await?;
    value.map(|value| decode(&key, &value)).transpose()
}

/// Reads a table in pages, so that one never has to fit into memory twice.
async fn each(
    store: &dyn MetadataStore,
    table: Table,
    state: &mut State,
    parse: impl Fn(&[u8], &[u8]) -> Result<Change, StoreError>,
) -> Result<(), OpenError> {
    let mut range: Range<Bytes> = table.range();
    loop {
        let rows = store.scan(range.clone(), SCAN_ROWS).await?;
        for (key, value) in &rows {
            state.absorb(&parse(key, value)?)?;
        }
        match rows.last() {
            Some((key, _)) if rows.len() == SCAN_ROWS => {
                let mut next = key.to_vec();
                next.push(0);
                range.start = next.into();
            }
            _ => return Ok(()),
        }
    }
}

/// 16 random bytes in URL-safe base64 without padding, the form of Kafka's cluster ids.
fn cluster_id(random: Uuid) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = random.as_u128();
    (0..22u32)
        .map(|digit| {
            let shift = 122i32 - 6 * digit.cast_signed();
            let sextet = if shift >= 0 {
                bits >> shift
            } else {
                bits << -shift
            };
            char::from(ALPHABET[(sextet & 63) as usize])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_the_base64_of_its_16_bytes() {
        assert_eq!(cluster_id(Uuid::nil()), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(
            cluster_id(Uuid::from_u128(u128::MAX)),
            "_____________________w"
        );
        assert_eq!(
            cluster_id(Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)),
            "AAECAwQFBgcICQoLDA0ODw"
        );
    }
}
