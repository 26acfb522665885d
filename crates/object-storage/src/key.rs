//! Names of objects, relative to the cluster's prefix.

use std::fmt;

use object_store::path::Path;
use tidegate_types::{BrokerEpoch, BrokerId};

/// The name of one object, relative to the prefix of the store's URL.
///
/// | Key | What |
/// |---|---|
/// | `data/<broker>/<broker epoch>/<sequence, 20 digits>` | a WAL object or a fence of that writer |
/// | `segments/<broker>/<broker epoch>/<sequence, 20 digits>` | an object uploaded from that broker's local WAL |
/// | `compacted/<broker>/<broker epoch>/<sequence, 20 digits>` | an object that compaction wrote |
/// | `probe` | proves that the store may be read and written, see [`crate::StoreHealth`] |
/// | `meta/…` | the metadata store's, which names its own objects |
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Path);

/// A text that can't name an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid object key {key:?}: {reason}")]
pub struct InvalidKey {
    pub key: String,
    pub reason: String,
}

impl ObjectKey {
    /// Parses a key of one or more non-empty parts joined by `/`.
    pub fn new(key: &str) -> Result<Self, InvalidKey> {
        let invalid = |reason: String| InvalidKey {
            key: key.to_owned(),
            reason,
        };
        if key.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        Path::parse(key)
            .map(Self)
            .map_err(|error| invalid(error.to_string()))
    }

    /// The `sequence`-th object that this registration of the broker writes. Numbers are padded, so
    /// a listing in the order of names is in the order of writing.
    pub fn data(broker: BrokerId, broker_epoch: BrokerEpoch, sequence: u64) -> Self {
        Self(Path::from(format!(
            "data/{broker}/{broker_epoch}/{sequence:020}"
        )))
    }

    /// The `sequence`-th object that this registration of the broker uploads from its local WAL. A row of its
    /// own: the row of WAL objects has no gaps, and recovery walks it.
    pub fn upload(broker: BrokerId, broker_epoch: BrokerEpoch, sequence: u64) -> Self {
        Self(Path::from(format!(
            "segments/{broker}/{broker_epoch}/{sequence:020}"
        )))
    }

    /// The `sequence`-th object that compaction writes under this registration of the broker.
    pub fn compacted(broker: BrokerId, broker_epoch: BrokerEpoch, sequence: u64) -> Self {
        Self(Path::from(format!(
            "compacted/{broker}/{broker_epoch}/{sequence:020}"
        )))
    }

    /// The writer and number in a key that [`ObjectKey::data`] made; `None` for any other key.
    pub fn parse_data(&self) -> Option<(BrokerId, BrokerEpoch, u64)> {
        let mut parts = self.as_str().strip_prefix("data/")?.split('/');
        let broker = BrokerId::from_wire(parts.next()?.parse().ok()?).ok()?;
        let broker_epoch = BrokerEpoch::new(parts.next()?.parse().ok()?);
        let sequence = parts.next()?.parse().ok()?;
        (parts.next().is_none() && *self == Self::data(broker, broker_epoch, sequence)).then_some((
            broker,
            broker_epoch,
            sequence,
        ))
    }

    pub(crate) fn probe() -> Self {
        Self(Path::from("probe"))
    }

    /// A name nothing is ever stored under: asking for it tells a missing bucket from a missing key.
    pub(crate) fn never_written() -> Self {
        Self(Path::from("probe-absent"))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_ref()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn from_path(path: Path) -> Self {
        Self(path)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_data_objects_sort_in_the_order_of_writing_and_parse_back() {
        let broker = BrokerId::from_wire(7).unwrap();
        let key = |sequence| ObjectKey::data(broker, BrokerEpoch::new(3), sequence);
        assert_eq!(key(9).as_str(), "data/7/3/00000000000000000009");
        assert!(key(9) < key(10) && key(10) < key(u64::MAX));
        assert_eq!(
            key(10).parse_data(),
            Some((broker, BrokerEpoch::new(3), 10))
        );
        for other in ["data/7/3/9", "data/7/3", "meta/1/2/00000000000000000009"] {
            assert_eq!(ObjectKey::new(other).unwrap().parse_data(), None);
        }
    }

    #[test]
    fn keys_with_empty_parts_are_refused() {
        for bad in ["", "a//b", "a/../b"] {
            assert!(ObjectKey::new(bad).is_err(), "{bad:?}");
        }
    }
}
