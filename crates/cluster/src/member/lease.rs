//! The lease as the election uses it: a row of numbered records of which only the newest counts.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_metadata::lease::{
    Claim, Lease, LeaseBody, LeaseError, LeaseKind, LeaseRow as StoredRow,
};
use tidegate_metadata::{Endpoint, WalIdentity};
use tidegate_types::BrokerId;
use uuid::Uuid;

/// What one number of the lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Which one.
    pub number: u64,
    /// The holder's number, if it had one.
    pub broker: Option<BrokerId>,
    /// The holder's life.
    pub incarnation: Uuid,
    /// The holder's local WAL.
    pub wal: Option<WalIdentity>,
    /// Where the holder answers brokers; `None`: it can't be followed, only waited for.
    pub internal: Option<Endpoint>,
    /// After so long without a new number it has lapsed.
    pub lease: Duration,
    /// It was given back: the next one may take it at once.
    pub released: bool,
}

/// How a create ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseCreate {
    /// The number is this record: by this create or an earlier attempt of the same life.
    Created,
    /// Somebody else's record has the number.
    Taken(LeaseRecord),
}

/// The lease can't be read or written now. After a create its outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LeaseFailure(pub String);

/// The row of lease records.
#[async_trait]
pub trait LeaseRow: Send + Sync {
    /// The newest record: lists, then asks for the numbers behind until one is missing, since a listing may be
    /// stale.
    async fn newest(&self) -> Result<Option<LeaseRecord>, LeaseFailure>;

    /// The newest record behind this number, without listing; `None` if there is none.
    async fn behind(&self, number: u64) -> Result<Option<LeaseRecord>, LeaseFailure>;

    /// Creates a number that doesn't exist yet.
    async fn create(&self, record: &LeaseRecord) -> Result<LeaseCreate, LeaseFailure>;

    /// Deletes old numbers, far behind the newest, if it is time for that. A failure matters to nobody: the next call
    /// goes on.
    async fn trim(&self, newest: u64);
}

impl LeaseRecord {
    fn body(&self) -> LeaseBody {
        LeaseBody {
            kind: if self.released {
                LeaseKind::Released
            } else {
                LeaseKind::Held
            },
            holder: self.broker,
            incarnation: self.incarnation,
            wal: self.wal,
            internal: self.internal.clone(),
            lease: self.lease,
        }
    }
}

impl From<Lease> for LeaseRecord {
    fn from(Lease { number, body }: Lease) -> Self {
        match body {
            Some(body) => Self {
                number,
                broker: body.holder,
                incarnation: body.incarnation,
                wal: body.wal,
                internal: body.internal,
                lease: body.lease,
                released: body.kind == LeaseKind::Released,
            },
            // A newer release's, or damaged: somebody else's, for as long as numbers follow.
            None => Self {
                number,
                broker: None,
                incarnation: Uuid::nil(),
                wal: None,
                internal: None,
                lease: Duration::ZERO,
                released: false,
            },
        }
    }
}

/// The stored row. The store limits the time of each request.
#[async_trait]
impl LeaseRow for StoredRow {
    async fn newest(&self) -> Result<Option<LeaseRecord>, LeaseFailure> {
        let found = StoredRow::newest(self).await.map_err(failure)?;
        Ok(found.map(LeaseRecord::from))
    }

    async fn behind(&self, number: u64) -> Result<Option<LeaseRecord>, LeaseFailure> {
        let found = StoredRow::behind(self, number).await.map_err(failure)?;
        Ok(found.map(LeaseRecord::from))
    }

    async fn create(&self, record: &LeaseRecord) -> Result<LeaseCreate, LeaseFailure> {
        let claim = StoredRow::create(self, record.number, &record.body()).await;
        Ok(match claim.map_err(failure)? {
            Claim::Won => LeaseCreate::Created,
            Claim::Taken(lease) => LeaseCreate::Taken(lease.into()),
        })
    }

    async fn trim(&self, newest: u64) {
        if let Err(error) = StoredRow::trim(self, newest).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "old leases not deleted"
            );
        }
    }
}

fn failure(error: LeaseError) -> LeaseFailure {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    LeaseFailure(text)
}
