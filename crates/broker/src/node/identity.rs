//! What a data folder belongs to: one broker of one cluster, with one local WAL.
//!
//! The file `identity` is text, one `key = value` a line:
//!
//! ```text
//! tidegate-identity = 1
//! cluster = 5L6g3nShT-eMCtK--X86sw
//! broker = 1
//! wal = 0d9e…
//! crc32c = 1f2e3d4c
//! ```
//!
//! The first line holds the version; the last one the CRC32C of everything before it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tidegate_metadata::WalIdentity;
use tidegate_object_storage::StoreUrl;
use tidegate_record_batch::crc32c;
use tidegate_types::BrokerId;

const FILE: &str = "identity";
const VERSION: &str = "1";

/// The owner of a data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `None` until the cluster was reached for the first time.
    pub cluster: Option<String>,
    /// `None` until the cluster gave this broker a number, unless it was started with one.
    pub broker: Option<BrokerId>,
    /// Made once with the folder: tells the WAL that a broker acknowledged on from an empty one.
    pub wal: WalIdentity,
}

/// Why a data folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("can't {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is damaged: {reason}. Restore it, or start with another data folder", path.display())]
    Damaged { path: PathBuf, reason: &'static str },
    #[error(
        "data folder {} belongs to broker {found}, not {wanted}: start with --broker-id {found}, or with another --data-dir",
        dir.display()
    )]
    OtherBroker {
        dir: PathBuf,
        found: BrokerId,
        wanted: BrokerId,
    },
    #[error(
        "data folder {} belongs to cluster {found}, and the store holds cluster {wanted}: use that cluster's --store, or another --data-dir",
        dir.display()
    )]
    OtherCluster {
        dir: PathBuf,
        found: String,
        wanted: String,
    },
    #[error(
        "data folder {} belongs to cluster {found}, and store {store} is empty: use that cluster's --store, or another --data-dir",
        dir.display()
    )]
    EmptyStore {
        dir: PathBuf,
        found: String,
        store: String,
    },
}

impl Identity {
    /// Reads the identity of `dir`; `None` if it has none yet.
    pub fn read(dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .map_err(|reason| IdentityError::Damaged { path, reason }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IdentityError::Io {
                operation: "read",
                path,
                source,
            }),
        }
    }

    /// Writes the identity so that a crash leaves either the old one or the new one.
    pub fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        let path = dir.join(FILE);
        let temporary = dir.join("identity.new");
        let write = || -> io::Result<()> {
            use io::Write;
            let mut file = fs::File::create(&temporary)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            fs::File::open(dir)?.sync_all()
        };
        write().map_err(|source| IdentityError::Io {
            operation: "write",
            path: path.clone(),
            source,
        })
    }

    fn text(&self) -> String {
        let cluster = self.cluster.as_deref().unwrap_or("");
        let broker = self.broker.map(|id| id.to_string()).unwrap_or_default();
        let body = format!(
            "tidegate-identity = {VERSION}\ncluster = {cluster}\nbroker = {broker}\nwal = {}\n",
            self.wal
        );
        format!("{body}crc32c = {:08x}\n", crc32c(body.as_bytes()))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (body, checksum) = text
            .rsplit_once("crc32c = ")
            .ok_or("the checksum is missing")?;
        if u32::from_str_radix(checksum.trim(), 16) != Ok(crc32c(body.as_bytes())) {
            return Err("the checksum doesn't match");
        }
        let field = |name: &str| {
            body.lines()
                .filter_map(|l| l.split_once(" = ").or_else(|| l.split_once(" =")))
                .find(|(k, _)| *k == name)
        };
        match field("tidegate-identity") {
            Some((_, VERSION)) => {}
            Some(_) => return Err("it was written by a newer version"),
            None => return Err("it is no identity file"),
        }
        let cluster = field("cluster")
            .map(|(_, v)| v.trim().to_owned())
            .filter(|v| !v.is_empty());
        let broker = match field("broker").map(|(_, v)| v.trim()) {
            None | Some("") => None,
            Some(id) => {
                let id = id.parse().ok().and_then(|id: u32| BrokerId::new(id).ok());
                Some(id.ok_or("the broker id isn't a number")?)
            }
        };
        let wal = field("wal").and_then(|(_, v)| v.parse().ok());
        Ok(Self {
            cluster,
            broker,
            wal: wal.ok_or("the WAL id is missing")?,
        })
    }

    /// Checks that the folder is this broker's.
    pub fn check_broker(&self, dir: &Path, wanted: Option<BrokerId>) -> Result<(), IdentityError> {
        match (wanted, self.broker) {
            (Some(wanted), Some(found)) if wanted != found => Err(IdentityError::OtherBroker {
                dir: dir.to_owned(),
                found,
                wanted,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that the folder may go with a store in which there is no cluster yet.
    pub fn check_empty_store(&self, dir: &Path, store: &StoreUrl) -> Result<(), IdentityError> {
        match &self.cluster {
            Some(found) => Err(IdentityError::EmptyStore {
                dir: dir.to_owned(),
                found: found.clone(),
                store: store.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Keeps the number that the cluster gave to this folder's broker.
    pub fn keep_broker(&mut self, dir: &Path, broker: BrokerId) -> Result<(), IdentityError> {
        if self.broker == Some(broker) {
            return Ok(());
        }
        self.broker = Some(broker);
        self.write(dir)
    }

    /// Checks that the folder is this cluster's; a folder that has none yet is given to it.
    pub fn join_cluster(&mut self, dir: &Path, cluster: &str) -> Result<(), IdentityError> {
        match &self.cluster {
            Some(found) if found != cluster => Err(IdentityError::OtherCluster {
                dir: dir.to_owned(),
                found: found.clone(),
                wanted: cluster.to_owned(),
            }),
            Some(_) => Ok(()),
            None => {
                self.cluster = Some(cluster.to_owned());
                self.write(dir)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn sample(cluster: Option<&str>) -> Identity {
        Identity {
            cluster: cluster.map(str::to_owned),
            broker: BrokerId::new(3).ok(),
            wal: Uuid::from_u128(7),
        }
    }

    #[test]
    fn an_identity_is_read_back_and_a_changed_byte_is_noticed() {
        let unnumbered = Identity {
            broker: None,
            ..sample(None)
        };
        for identity in [sample(None), sample(Some("abc")), unnumbered] {
            let text = identity.text();
            assert_eq!(Identity::parse(&text), Ok(identity));
            assert!(Identity::parse(&text.replace("broker = ", "broker = 4")).is_err());
        }
    }

    #[test]
    fn another_cluster_or_broker_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut identity = sample(None);
        identity.join_cluster(dir.path(), "first").unwrap();
        let mut again = Identity::read(dir.path()).unwrap().unwrap();
        let error = again
            .join_cluster(dir.path(), "second")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("first") && error.contains("second"),
            "{error}"
        );
        let error = again
            .check_broker(dir.path(), BrokerId::new(9).ok())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("broker 3") && error.contains("--broker-id 3"),
            "{error}"
        );
    }
}
