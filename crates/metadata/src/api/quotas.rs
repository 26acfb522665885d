//! Client quotas (KIP-546): whom they bind, and how they change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One part of an entity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QuotaName {
    /// Whoever has no quota of its own.
    Default,
    /// This one.
    Named(String),
}

/// Whom a quota binds. What is `None` doesn't matter; at least one part is set, and an address stands alone. The
/// broker checks that.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QuotaEntity {
    /// The principal's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<QuotaName>,
    /// What the client calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<QuotaName>,
    /// The address it connects from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<QuotaName>,
}

impl QuotaEntity {
    /// The longest name, in bytes: it is part of a key in the store.
    pub const MAX_NAME_BYTES: usize = 4_096;
    /// The most entities with quotas in a cluster.
    pub const MAX_COUNT: usize = 10_000;
}

/// A limit: a finite number above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct QuotaLimit(f64);

// Never NaN.
impl Eq for QuotaLimit {}

/// The value is no limit.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} isn't a finite number above 0")]
pub struct InvalidQuotaLimit(pub f64);

impl TryFrom<f64> for QuotaLimit {
    type Error = InvalidQuotaLimit;
    fn try_from(value: f64) -> Result<Self, InvalidQuotaLimit> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(InvalidQuotaLimit(value))
        }
    }
}

impl From<QuotaLimit> for f64 {
    fn from(limit: QuotaLimit) -> Self {
        limit.0
    }
}

impl QuotaLimit {
    /// The number, per second or in percent.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The limits of one entity, by Kafka's names, such as `producer_byte_rate`.
pub type QuotaLimits = BTreeMap<String, QuotaLimit>;

/// A change of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChange {
    /// Which limit.
    pub key: String,
    /// Its new value; `None` takes it away.
    pub limit: Option<QuotaLimit>,
}

/// Changes the limits of entities: all of one entity's or none. The broker has validated entities, names and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterQuotas {
    /// What changes.
    pub entities: Vec<(QuotaEntity, Vec<QuotaChange>)>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// Too many entities have quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("the cluster has quotas for {limit} entities already")]
pub struct TooManyQuotas {
    /// The most there may be.
    pub limit: u64,
}
