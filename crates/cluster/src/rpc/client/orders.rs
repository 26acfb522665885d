//! Gives orders to another broker.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::Endpoint;

use super::{Connections, Deadlines, Lane};
use crate::orders::{
    BrokerOrders, Discard, HeldLog, Hold, OrderError, OrderRefused, Orders, Prepare, Seal,
    SealAnswer, Unseal,
};
use crate::rpc::methods::order_methods;

pub(super) struct RemoteOrders {
    pub(super) connections: Connections,
    pub(super) endpoint: Endpoint,
}

impl RemoteOrders {
    async fn ask<R: DeserializeOwned>(
        &self,
        path: &'static str,
        request: impl Serialize + Send + Sync + 'static,
        deadline: Duration,
    ) -> Result<R, OrderError> {
        let asked: Result<(Result<R, OrderError>, _), _> = self
            .connections
            .ask(&self.endpoint, Lane::Orders, path, request, deadline)
            .await;
        let (answer, _) = asked.map_err(OrderError::from)?;
        answer
    }
}

fn deadline_of(method: &str, deadlines: &Deadlines) -> Duration {
    match method {
        "prepare" => deadlines.prepare,
        _ => deadlines.order,
    }
}

macro_rules! implement {
    ($($name:ident: $request:ty => $answer:ty;)*) => {
        #[async_trait]
        impl BrokerOrders for RemoteOrders {
            $(
                async fn $name(&self, orders: $request) -> Result<$answer, OrderError> {
                    let path = concat!("/tidegate.cluster.Orders/", stringify!($name));
                    let deadline = deadline_of(stringify!($name), &self.connections.deadlines());
                    self.ask(path, orders, deadline).await
                }
            )*
        }
    };
}
order_methods!(implement);
