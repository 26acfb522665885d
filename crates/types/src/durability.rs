//! What must have stored a record before its producer is told so.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The durability mode of a topic (`tidegate.durability`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// Acknowledged when synced on this broker's disk. Survives process and power loss.
    Local,
    /// Acknowledged when stored in object storage. Survives the loss of the broker and its disk.
    Object,
}

/// A word that names no durability mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown durability mode {0:?}: use \"local\" or \"object\"")]
pub struct UnknownDurabilityMode(pub String);

impl DurabilityMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Object => "object",
        }
    }
}

impl fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DurabilityMode {
    type Err = UnknownDurabilityMode;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "local" => Ok(Self::Local),
            "object" => Ok(Self::Object),
            other => Err(UnknownDurabilityMode(other.to_owned())),
        }
    }
}
