//! What the streams carry, and what answers say beside their message.

use serde::{Deserialize, Serialize};
use tidegate_metadata::{Endpoint, ImageVersion};
use tidegate_types::{BrokerId, ControllerEpoch};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::codec::Outgoing;
use super::codec::Undecodable;
use crate::admin::{ElectionKind, MoveRequest, PlacementChange};
use crate::orders::{FollowError, FollowItem, MapPart};
use crate::session::{FeedItem, Heartbeat, Hello, HelloRefused, PROTOCOL_VERSION, Welcome};

/// Broker to controller, in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Up {
    Hello(Hello),
    Heartbeat(Heartbeat),
}

/// Controller to broker, in a session: `Welcome` and then items, or `Refused` alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Down {
    Welcome(Welcome),
    Refused(HelloRefused),
    Item(FeedItem),
}

/// A followed tail: `Opened`, items, and perhaps `Ended`; or `Ended` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TailMessage {
    Opened,
    Item(FollowItem),
    Ended(FollowError),
}

impl TailMessage {
    pub(super) fn into_outgoing(self) -> Outgoing {
        let bytes = match &self {
            Self::Item(FollowItem::Batches { bytes, .. }) => bytes.len() + 128,
            Self::Item(FollowItem::Sealed {
                checkpoint, map, ..
            }) => checkpoint.len() + map_bytes(map.as_ref()) + 128,
            Self::Item(FollowItem::Start { map, .. }) => map_bytes(map.as_ref()),
            Self::Opened | Self::Ended(_) => 0,
        };
        Outgoing::sized(self, bytes)
    }
}

/// About what a part of a segment map takes when it is encoded.
fn map_bytes(map: Option<&MapPart>) -> usize {
    map.map_or(0, |map| map.segments.len() * 256 + 64)
}

/// The messages of the methods with several arguments.
pub(super) mod calls {
    use std::time::Duration;

    use tidegate_types::PartitionId;

    use super::{BrokerId, Deserialize, ElectionKind, MoveRequest, PlacementChange, Serialize};
    use crate::rpc::methods::admin_methods;

    macro_rules! messages {
        ($($name:ident { $($argument:ident: $type:ty),* } => $answer:ty;)*) => {
            $(
                #[allow(non_camel_case_types, reason = "named as the method whose arguments it is")]
                #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
                pub(in crate::rpc) struct $name { $(pub(in crate::rpc) $argument: $type),* }
            )*
        };
    }
    admin_methods!(messages);
}

/// The header that names the picture of the cluster in which the effect of a request can be seen.
const IMAGE_HEADER: &str = "tidegate-image";

/// Adds the version of the controller's picture to an answer.
pub(super) fn put_image(metadata: &mut MetadataMap, version: ImageVersion) {
    let text = format!("{}.{}", version.controller_epoch, version.change);
    if let Ok(value) = MetadataValue::try_from(text) {
        metadata.insert(IMAGE_HEADER, value);
    }
}

/// The version of the controller's picture, if the answer names one.
pub(super) fn image_of(metadata: &MetadataMap) -> Option<ImageVersion> {
    let text = metadata.get(IMAGE_HEADER)?.to_str().ok()?;
    let (epoch, change) = text.split_once('.')?;
    Some(ImageVersion {
        controller_epoch: ControllerEpoch::new(epoch.parse().ok()?),
        change: change.parse().ok()?,
    })
}

/// The header by which a server says that nothing was carried out, and why. A status without it leaves the outcome
/// open: the transport makes statuses of its own.
const REFUSED_HEADER: &str = "tidegate-refused";

/// Why a server didn't carry out a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The broker isn't the controller; it names whom it takes for it.
    NotController { known: Option<(BrokerId, Endpoint)> },
    /// Too many calls wait.
    Busy,
    /// The broker is starting or stopping.
    NotServing,
    /// The message can't be read.
    Malformed(String),
    /// The method, or a variant in the message, isn't known to the server's version.
    Unsupported(String),
}

impl Refusal {
    pub(super) fn unknown_method(path: &str) -> Self {
        Self::Unsupported(format!(
            "{} doesn't know the method {path}",
            this_version("this broker")
        ))
    }

    pub(super) fn undecodable(path: &str, error: Undecodable) -> Self {
        match error {
            Undecodable::UnknownVariant(text) => Self::Unsupported(format!(
                "{} doesn't know all that a message of {path} names: {text}",
                this_version("this broker")
            )),
            Undecodable::Malformed(text) => {
                Self::Malformed(format!("a message of {path} can't be read: {text}"))
            }
        }
    }

    pub(super) fn into_status(self) -> Status {
        let (kind, code, text, details) = match self {
            Self::NotController { known } => (
                "not-controller",
                Code::FailedPrecondition,
                "this broker isn't the controller".to_owned(),
                rmp_serde::to_vec_named(&known).unwrap_or_default(),
            ),
            Self::Busy => (
                "busy",
                Code::ResourceExhausted,
                "too many calls wait".to_owned(),
                Vec::new(),
            ),
            Self::NotServing => (
                "not-serving",
                Code::Unavailable,
                "this broker is starting or stopping".to_owned(),
                Vec::new(),
            ),
            Self::Malformed(text) => ("malformed", Code::InvalidArgument, text, Vec::new()),
            Self::Unsupported(text) => ("unsupported", Code::Unimplemented, text, Vec::new()),
        };
        let mut metadata = MetadataMap::new();
        metadata.insert(REFUSED_HEADER, MetadataValue::from_static(kind));
        Status::with_details_and_metadata(code, text, details.into(), metadata)
    }

    /// What a status says of a refusal. Servers that aren't Tidegate's answer `Unimplemented` without the header.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let kind = status
            .metadata()
            .get(REFUSED_HEADER)
            .and_then(|value| value.to_str().ok());
        let text = || status.message().to_owned();
        match kind {
            Some("not-controller") => Some(Self::NotController {
                known: rmp_serde::from_slice(status.details()).unwrap_or(None),
            }),
            Some("busy") => Some(Self::Busy),
            Some("not-serving") => Some(Self::NotServing),
            Some("malformed") => Some(Self::Malformed(text())),
            Some("unsupported") => Some(Self::Unsupported(text())),
            _ if status.code() == Code::Unimplemented => Some(Self::Unsupported(text())),
            _ => None,
        }
    }
}

/// Names a side and its version, as sentences about things unknown to it begin.
pub(super) fn this_version(who: &str) -> String {
    format!(
        "{who} (Tidegate {}, protocol version {PROTOCOL_VERSION})",
        env!("CARGO_PKG_VERSION")
    )
}
