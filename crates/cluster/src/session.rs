//! A broker's session with the controller: how the controller knows that a broker lives, and how the broker
//! knows the cluster.
//!
//! The broker says [`Hello`] and then sends [`Heartbeat`]s; the controller answers [`Welcome`] and then feeds
//! [`FeedItem`]s: the whole picture first, then each change, and an acknowledgement of every heartbeat. A session
//! has no state that outlives it: one that broke is opened anew, with a whole picture again.
//!
//! The controller's side implements [`SessionHost`]. The broker that is the controller itself uses it directly,
//! every other one through [`crate::rpc`].

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tidegate_metadata::api::StaleBrokerEpoch;
use tidegate_metadata::{Endpoint, ImageDelta, WalIdentity};
use tidegate_types::{BrokerEpoch, BrokerId, ControllerEpoch};
use tokio::sync::mpsc;
use uuid::Uuid;

/// The version of what brokers say to each other. It is raised when an older broker couldn't understand a newer
/// one any more even by ignoring what it doesn't know; see ADR 0010.
pub const PROTOCOL_VERSION: u32 = 1;

/// The oldest version that this build still speaks.
pub const OLDEST_PROTOCOL_VERSION: u32 = 1;

/// How many heartbeats may wait to be sent. A broker sends one only when there is room: an old heartbeat is
/// worth nothing.
pub const HEARTBEAT_QUEUE: usize = 4;

/// Opens a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Who opens it.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// The process, as it registered.
    pub incarnation: Uuid,
    /// The local WAL it runs on.
    pub wal: Option<WalIdentity>,
    /// Where its Kafka clients connect.
    pub kafka: Option<Endpoint>,
    /// The newest protocol version it speaks.
    pub protocol_version: u32,
    /// Its release, for people.
    #[serde(default)]
    pub software_version: String,
    /// Names of abilities that came after its protocol version; unknown ones mean nothing.
    #[serde(default)]
    pub features: Vec<String>,
}

/// Tells that the broker lives, and what it does. Sent five times per session time-out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Rises by one in each session.
    pub sequence: u64,
    /// How many partitions it leads by its own knowledge.
    pub led_partitions: u64,
    /// Record bytes that producers sent, per second.
    pub bytes_in_per_s: u64,
    /// Record bytes that consumers read, per second.
    pub bytes_out_per_s: u64,
    /// Kafka requests per second.
    pub requests_per_s: u64,
}

/// The session is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Whose session it is.
    pub controller_epoch: ControllerEpoch,
    /// Without a heartbeat for so long the controller takes the broker for dead.
    pub session_timeout: Duration,
}

/// What the controller sends in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FeedItem {
    /// The cluster changed. The first one of a session starts from the empty picture.
    Image(Box<ImageDelta>),
    /// A heartbeat arrived.
    Ack {
        /// Of this sequence.
        sequence: u64,
    },
    /// The controller ends the session, as if it refused the hello now. Nothing follows.
    Ended(HelloRefused),
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum HelloRefused {
    /// Another process registered under this number, or the broker was failed over: its life has ended.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// This broker isn't the controller.
    #[error("this broker isn't the controller; the controller it knows of: {known:?}")]
    NotController {
        /// Whom it takes for the controller, if anybody.
        known: Option<(BrokerId, Endpoint)>,
    },
    /// No such broker is registered.
    #[error("broker {0} isn't registered")]
    UnknownBroker(BrokerId),
    /// The versions are too far apart.
    #[error("protocol version {offered} isn't spoken here, only versions {oldest} to {newest}")]
    UnsupportedVersion {
        /// The broker's newest.
        offered: u32,
        /// The oldest one that the controller speaks.
        oldest: u32,
        /// The newest one that the controller speaks.
        newest: u32,
    },
    /// The controller can't be reached, or the connection broke. It may have opened a session.
    #[error("the controller can't be reached: {0}")]
    Unreachable(String),
    /// The controller's version doesn't know sessions of this kind.
    #[error("{0}")]
    Unsupported(String),
}

/// An open session, as the broker holds it. Dropping it ends it without a word.
pub struct OpenSession {
    /// The controller's greeting.
    pub welcome: Welcome,
    /// Takes heartbeats; use `try_send`. Closed once the session is over.
    pub heartbeats: mpsc::Sender<Heartbeat>,
    /// What the controller sends. Its end without [`FeedItem::Ended`] means that the connection broke.
    pub feed: BoxStream<'static, FeedItem>,
}

impl fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSession")
            .field("welcome", &self.welcome)
            .finish_non_exhaustive()
    }
}

/// Opens sessions. The conductor implements it; the gRPC server and the local member use it.
#[async_trait]
pub trait SessionHost: Send + Sync {
    /// Opens a session; an earlier one of the same broker ends.
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused>;
}

impl Hello {
    /// Whether this build can talk with who says this.
    ///
    /// # Errors
    /// [`HelloRefused::UnsupportedVersion`].
    pub fn check_version(&self) -> Result<(), HelloRefused> {
        if self.protocol_version < OLDEST_PROTOCOL_VERSION {
            return Err(HelloRefused::UnsupportedVersion {
                offered: self.protocol_version,
                oldest: OLDEST_PROTOCOL_VERSION,
                newest: PROTOCOL_VERSION,
            });
        }
        Ok(())
    }
}
