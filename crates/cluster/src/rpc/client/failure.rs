//! What it means that there is no answer.

use std::error::Error;

use tidegate_metadata::{ControllerUnavailable, Endpoint};
use tidegate_types::BrokerId;
use tonic::{ConnectError, Status};

use crate::admin::AdminError;
use crate::orders::{FollowError, OrderError};
use crate::rpc::codec::Undecodable;
use crate::rpc::wire::{Refusal, this_version};
use crate::session::HelloRefused;

/// Why a call has no answer. The distinction that matters: whether anything may have been carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::rpc) enum CallFailed {
    /// There is no connection; nothing was sent.
    #[error("no connection: {0}")]
    NotSent(String),
    /// The connection or the other side broke in the middle.
    #[error("the call broke off: {0}")]
    Broken(String),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The other broker isn't the controller; nothing was carried out.
    #[error("not the controller; the controller it knows of: {known:?}")]
    NotController {
        /// Whom it takes for the controller.
        known: Option<(BrokerId, Endpoint)>,
    },
    /// Too many calls wait there; nothing was carried out.
    #[error("too many calls wait there")]
    Busy,
    /// The other broker is starting or stopping; nothing was carried out.
    #[error("it is starting or stopping")]
    NotServing,
    /// The other side can't read the message; nothing was carried out.
    #[error("{0}")]
    Malformed(String),
    /// The other side's version doesn't know the method, or what the message names; nothing was carried out.
    #[error("{0}")]
    Unsupported(String),
    /// It was carried out, and this version can't read the answer.
    #[error("{0}")]
    Undecodable(String),
}

impl CallFailed {
    pub(in crate::rpc) fn of(status: &Status) -> Self {
        if let Some(refusal) = Refusal::of(status) {
            return match refusal {
                Refusal::NotController { known } => Self::NotController { known },
                Refusal::Busy => Self::Busy,
                Refusal::NotServing => Self::NotServing,
                Refusal::Malformed(text) => Self::Malformed(text),
                Refusal::Unsupported(text) => Self::Unsupported(text),
            };
        }
        let mut text = status.message().to_owned();
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<ConnectError>() {
                return Self::NotSent(error.to_string());
            }
            text = format!("{text}: {error}");
            source = error.source();
        }
        Self::Broken(text)
    }

    pub(in crate::rpc) fn undecodable(path: &str, error: &Undecodable) -> Self {
        Self::Undecodable(format!(
            "{} can't read an answer of {path}: {error}",
            this_version("this broker")
        ))
    }

    pub(in crate::rpc) fn into_unavailable(self) -> ControllerUnavailable {
        match self {
            // An older controller will be replaced by one that knows the request: until then there is none for it.
            Self::NotSent(_)
            | Self::NotController { .. }
            | Self::NotServing
            | Self::Malformed(_)
            | Self::Unsupported(_) => ControllerUnavailable::NoController,
            Self::Busy => ControllerUnavailable::Busy,
            Self::Broken(_) | Self::TimedOut | Self::Undecodable(_) => {
                ControllerUnavailable::OutcomeUnknown
            }
        }
    }
}

impl From<CallFailed> for AdminError {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::Unsupported(text)
            | CallFailed::Undecodable(text)
            | CallFailed::Malformed(text) => Self::Unsupported(text),
            other => Self::Unavailable(other.into_unavailable()),
        }
    }
}

impl From<CallFailed> for OrderError {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::TimedOut => Self::TimedOut,
            CallFailed::Unsupported(text)
            | CallFailed::Undecodable(text)
            | CallFailed::Malformed(text) => Self::Unknown(text),
            other @ (CallFailed::NotSent(_)
            | CallFailed::Broken(_)
            | CallFailed::NotController { .. }
            | CallFailed::Busy
            | CallFailed::NotServing) => Self::Unreachable(other.to_string()),
        }
    }
}

impl From<CallFailed> for FollowError {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::Unsupported(text)
            | CallFailed::Undecodable(text)
            | CallFailed::Malformed(text) => Self::Failed(text),
            other @ (CallFailed::NotSent(_)
            | CallFailed::Broken(_)
            | CallFailed::TimedOut
            | CallFailed::NotController { .. }
            | CallFailed::Busy
            | CallFailed::NotServing) => Self::Unreachable(other.to_string()),
        }
    }
}

impl From<CallFailed> for HelloRefused {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::Unsupported(text)
            | CallFailed::Undecodable(text)
            | CallFailed::Malformed(text) => Self::Unsupported(text),
            CallFailed::NotController { known } => Self::NotController { known },
            other @ (CallFailed::NotSent(_)
            | CallFailed::Broken(_)
            | CallFailed::TimedOut
            | CallFailed::Busy
            | CallFailed::NotServing) => Self::Unreachable(other.to_string()),
        }
    }
}
