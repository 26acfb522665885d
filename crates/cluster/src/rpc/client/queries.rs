//! Asks another broker about itself.

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::Endpoint;
use tidegate_types::PartitionId;

use super::{Connections, Lane};
use crate::orders::OrderError;
use crate::queries::{BrokerQueries, GroupAnswer, GroupList, LogStatus};
use crate::rpc::methods::query_methods;

pub(super) struct RemoteQueries {
    pub(super) connections: Connections,
    pub(super) endpoint: Endpoint,
}

impl RemoteQueries {
    async fn ask<R: DeserializeOwned>(
        &self,
        path: &'static str,
        request: impl Serialize + Send + Sync + 'static,
    ) -> Result<R, OrderError> {
        let deadline = self.connections.deadlines().order;
        let asked: Result<(Result<R, OrderError>, _), _> = self
            .connections
            .ask(&self.endpoint, Lane::Calls, path, request, deadline)
            .await;
        let (answer, _) = asked.map_err(OrderError::from)?;
        answer
    }
}

macro_rules! implement {
    ($($name:ident: $request:ty => $answer:ty;)*) => {
        #[async_trait]
        impl BrokerQueries for RemoteQueries {
            $(
                async fn $name(&self, request: $request) -> Result<$answer, OrderError> {
                    let path = concat!("/tidegate.cluster.Queries/", stringify!($name));
                    self.ask(path, request).await
                }
            )*
        }
    };
}
query_methods!(implement);
