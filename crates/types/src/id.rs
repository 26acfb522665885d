//! Identities of topics, partitions and brokers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A value that can't be an id of the named kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {value:?}: {reason}")]
pub struct InvalidId {
    pub kind: &'static str,
    pub value: String,
    pub reason: &'static str,
}

/// The 128-bit identity of a topic; a re-created topic has another one (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicId(Uuid);

impl TopicId {
    /// Wraps a UUID. The nil UUID means "no topic" on the wire and is refused.
    pub fn new(uuid: Uuid) -> Result<Self, InvalidId> {
        if uuid.is_nil() {
            return Err(InvalidId {
                kind: "topic id",
                value: uuid.to_string(),
                reason: "all zeros",
            });
        }
        Ok(Self(uuid))
    }

    /// Rebuilds an id from its 16 bytes in network order.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, InvalidId> {
        Self::new(Uuid::from_bytes(bytes))
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic's name: 1 to 249 of `[a-zA-Z0-9._-]`, neither `.` nor `..`, as Apache Kafka has it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicName(Arc<str>);

impl TryFrom<String> for TopicName {
    type Error = InvalidId;
    fn try_from(name: String) -> Result<Self, InvalidId> {
        Self::new(&name)
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> Self {
        name.as_str().to_owned()
    }
}

impl TopicName {
    pub const MAX_LENGTH: usize = 249;

    pub fn new(name: &str) -> Result<Self, InvalidId> {
        let invalid = |reason| InvalidId {
            kind: "topic name",
            value: name.chars().take(260).collect(),
            reason,
        };
        if name.is_empty() {
            return Err(invalid("it is empty"));
        }
        if name == "." || name == ".." {
            return Err(invalid("it can't be '.' or '..'"));
        }
        if name.len() > Self::MAX_LENGTH {
            return Err(invalid("it is longer than 249 characters"));
        }
        if !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        {
            return Err(invalid(
                "only ASCII letters, digits, '.', '_' and '-' are allowed",
            ));
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for TopicName {
    type Err = InvalidId;
    fn from_str(s: &str) -> Result<Self, InvalidId> {
        Self::new(s)
    }
}

/// The number of a partition within its topic, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionIndex(u32);

impl PartitionIndex {
    /// `index` must fit the wire's non-negative 32-bit integer.
    pub fn new(index: u32) -> Result<Self, InvalidId> {
        if index > i32::MAX as u32 {
            return Err(InvalidId {
                kind: "partition index",
                value: index.to_string(),
                reason: "above 2^31-1",
            });
        }
        Ok(Self(index))
    }

    pub fn from_wire(index: i32) -> Result<Self, InvalidId> {
        u32::try_from(index).map(Self).map_err(|_| InvalidId {
            kind: "partition index",
            value: index.to_string(),
            reason: "negative",
        })
    }

    pub fn get(self) -> u32 {
        self.0
    }

    pub fn to_wire(self) -> i32 {
        i32::try_from(self.0).expect("constructors keep the index within 31 bits")
    }
}

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One log: a topic id and a partition index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionId {
    pub topic: TopicId,
    pub index: PartitionIndex,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

/// A broker's number, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BrokerId(u32);

impl BrokerId {
    pub fn new(id: u32) -> Result<Self, InvalidId> {
        if id > i32::MAX as u32 {
            return Err(InvalidId {
                kind: "broker id",
                value: id.to_string(),
                reason: "above 2^31-1",
            });
        }
        Ok(Self(id))
    }

    pub fn from_wire(id: i32) -> Result<Self, InvalidId> {
        u32::try_from(id).map(Self).map_err(|_| InvalidId {
            kind: "broker id",
            value: id.to_string(),
            reason: "negative",
        })
    }

    pub fn get(self) -> u32 {
        self.0
    }

    pub fn to_wire(self) -> i32 {
        i32::try_from(self.0).expect("constructors keep the id within 31 bits")
    }
}

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
