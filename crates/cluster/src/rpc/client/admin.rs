//! The controller's administration, when the controller is another broker.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::Endpoint;
use tidegate_types::{BrokerId, PartitionId};

use super::{Connections, Lane};
use crate::admin::*;
use crate::rpc::methods::admin_methods;
use crate::rpc::wire::calls;

/// The administration at one endpoint.
#[derive(Clone)]
pub struct RemoteAdmin {
    connections: Connections,
    endpoint: Endpoint,
}

impl RemoteAdmin {
    /// Connects when first asked.
    pub fn new(connections: Connections, endpoint: Endpoint) -> Self {
        Self {
            connections,
            endpoint,
        }
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        path: &'static str,
        request: impl Serialize + Send + Sync + 'static,
        wait: Duration,
    ) -> Result<R, AdminError> {
        let deadline = self.connections.deadlines().admin.saturating_add(wait);
        let asked: Result<(Result<R, AdminError>, _), _> = self
            .connections
            .ask(&self.endpoint, Lane::Calls, path, request, deadline)
            .await;
        let (answer, _) = asked.map_err(AdminError::from)?;
        answer
    }
}

/// How long the request itself asks to be waited for.
trait Patience {
    fn wait(&self) -> Duration {
        Duration::ZERO
    }
}

impl Patience for calls::reassign {
    fn wait(&self) -> Duration {
        self.wait
    }
}

impl Patience for calls::elect_leaders {
    fn wait(&self) -> Duration {
        self.wait
    }
}

impl Patience for calls::alter_placements {}
impl Patience for calls::list_reassignments {}
impl Patience for calls::drain {}
impl Patience for calls::undrain {}
impl Patience for calls::drain_status {}
impl Patience for calls::set_balance {}
impl Patience for calls::cluster_status {}

macro_rules! implement {
    ($($name:ident { $($argument:ident: $type:ty),* } => $answer:ty;)*) => {
        #[async_trait]
        impl ClusterAdmin for RemoteAdmin {
            $(
                async fn $name(&self, $($argument: $type),*) -> Result<$answer, AdminError> {
                    let path = concat!("/tidegate.cluster.Admin/", stringify!($name));
                    let request = calls::$name { $($argument),* };
                    let wait = request.wait();
                    self.ask(path, request, wait).await
                }
            )*
        }
    };
}
admin_methods!(implement);
