//! Reaches any broker: the others over the network, this one without a detour.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tidegate_metadata::Endpoint;
use tidegate_types::BrokerId;

use super::Connections;
use super::orders::RemoteOrders;
use super::queries::RemoteQueries;
use super::tails::RemoteTails;
use super::transactions::RemoteTransactions;
use crate::desertion::is_refused;
use crate::orders::{BrokerOrders, Peers, TailSource};
use crate::queries::BrokerQueries;
use crate::rpc::LocalBroker;
use crate::transactions::BrokerTransactions;

/// Reaches any broker of the cluster.
#[derive(Clone)]
pub struct RemotePeers {
    connections: Connections,
    me: BrokerId,
    local: Arc<LocalBroker>,
}

impl RemotePeers {
    /// `local` is what `me` is reached by.
    pub fn new(connections: Connections, me: BrokerId, local: Arc<LocalBroker>) -> Self {
        Self {
            connections,
            me,
            local,
        }
    }
}

impl Peers for RemotePeers {
    fn orders(&self, broker: BrokerId, endpoint: &Endpoint) -> Arc<dyn BrokerOrders> {
        if broker == self.me {
            return Arc::clone(&self.local.orders);
        }
        Arc::new(RemoteOrders {
            connections: self.connections.clone(),
            endpoint: endpoint.clone(),
        })
    }

    fn tails(&self, broker: BrokerId, endpoint: &Endpoint) -> Arc<dyn TailSource> {
        if broker == self.me {
            return Arc::clone(&self.local.tails);
        }
        Arc::new(RemoteTails {
            connections: self.connections.clone(),
            endpoint: endpoint.clone(),
        })
    }

    fn queries(&self, broker: BrokerId, endpoint: &Endpoint) -> Arc<dyn BrokerQueries> {
        if broker == self.me {
            return Arc::clone(&self.local.queries);
        }
        Arc::new(RemoteQueries {
            connections: self.connections.clone(),
            endpoint: endpoint.clone(),
        })
    }

    fn transactions(&self, broker: BrokerId, endpoint: &Endpoint) -> Arc<dyn BrokerTransactions> {
        if broker == self.me {
            return Arc::clone(&self.local.transactions);
        }
        Arc::new(RemoteTransactions {
            connections: self.connections.clone(),
            endpoint: endpoint.clone(),
        })
    }

    fn is_deserted(&self, endpoint: &Endpoint) -> BoxFuture<'static, bool> {
        is_refused(endpoint.clone()).boxed()
    }
}
