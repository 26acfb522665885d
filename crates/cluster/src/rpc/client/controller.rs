//! The controller, when it is another broker.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::api::*;
use tidegate_metadata::{
    Configs, Endpoint, ImageVersion, ObjectStatus, PartitionState, StoredObjectKey,
};
use tidegate_types::{BrokerId, Offset, PartitionId, TopicName};

use super::{Connections, Lane};
use crate::rpc::methods::controller_methods;

/// The controller at one endpoint. Without a connection, or where somebody else answers who isn't the controller,
/// its requests fail with [`ControllerUnavailable::NoController`]: nothing was carried out.
#[derive(Clone)]
pub struct RemoteController {
    connections: Connections,
    endpoint: Endpoint,
    newest: Arc<Mutex<Option<ImageVersion>>>,
}

impl RemoteController {
    /// Connects when first asked.
    pub fn new(connections: Connections, endpoint: Endpoint) -> Self {
        Self {
            connections,
            endpoint,
            newest: Arc::default(),
        }
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The newest picture of the cluster that any answer so far has named. Read after an answer: a picture of at
    /// least this version shows its effect.
    pub fn newest_image(&self) -> Option<ImageVersion> {
        *self.newest.lock()
    }

    async fn ask<R, E>(
        &self,
        path: &'static str,
        request: impl Serialize + Send + Sync + 'static,
    ) -> Result<R, E>
    where
        R: DeserializeOwned,
        E: DeserializeOwned + From<ControllerUnavailable>,
    {
        let deadline = self.connections.deadlines().controller;
        let asked: Result<(Result<R, E>, _), _> = self
            .connections
            .ask(&self.endpoint, Lane::Calls, path, request, deadline)
            .await;
        let (answer, image) = asked.map_err(|failed| E::from(failed.into_unavailable()))?;
        if let Some(image) = image {
            let mut newest = self.newest.lock();
            *newest = (*newest).max(Some(image));
        }
        answer
    }
}

macro_rules! implement {
    ($($name:ident: $request:ty => $answer:ty, $error:ty;)*) => {
        #[async_trait]
        impl ControllerApi for RemoteController {
            $(
                async fn $name(&self, request: $request) -> Result<$answer, $error> {
                    let path = concat!("/tidegate.cluster.Controller/", stringify!($name));
                    self.ask(path, request).await
                }
            )*
        }
    };
}
controller_methods!(implement);
