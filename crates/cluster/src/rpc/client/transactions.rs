//! Asks another broker for its part in transactions.

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::Endpoint;

use super::{Connections, Lane};
use crate::orders::OrderError;
use crate::rpc::methods::transaction_methods;
use crate::transactions::{AddPartitions, BrokerTransactions, MarkerOutcome, TransactionMarker};

pub(super) struct RemoteTransactions {
    pub(super) connections: Connections,
    pub(super) endpoint: Endpoint,
}

impl RemoteTransactions {
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
        impl BrokerTransactions for RemoteTransactions {
            $(
                async fn $name(&self, request: $request) -> Result<$answer, OrderError> {
                    let path = concat!("/tidegate.cluster.Transactions/", stringify!($name));
                    self.ask(path, request).await
                }
            )*
        }
    };
}
transaction_methods!(implement);
