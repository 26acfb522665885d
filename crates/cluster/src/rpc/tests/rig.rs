//! A server with scripted services, and clients for it.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_metadata::api::*;
use tidegate_metadata::{
    ClusterImage, Configs, Endpoint, ObjectStatus, PartitionState, StoredObjectKey,
};
use tidegate_runtime::Tasks;
use tidegate_types::{BrokerId, Offset, PartitionId, TopicName};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::samples::broker;
use crate::admin::*;
use crate::orders::*;
use crate::queries::*;
use crate::rpc::methods::{
    admin_methods, controller_methods, order_methods, query_methods, transaction_methods,
};
use crate::rpc::wire::calls;
use crate::rpc::*;
use crate::session::*;
use crate::transactions::*;

/// The answers that a method will give, and the requests that it got.
pub(super) struct Script<Q, A> {
    answers: Mutex<VecDeque<A>>,
    seen: Mutex<Vec<Q>>,
}

impl<Q, A> Default for Script<Q, A> {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
            seen: Mutex::default(),
        }
    }
}

impl<Q: Clone, A> Script<Q, A> {
    pub(super) fn answers(&self, answer: A) {
        self.answers.lock().push_back(answer);
    }

    pub(super) fn last(&self) -> Q {
        self.seen.lock().last().cloned().unwrap()
    }

    pub(super) fn count(&self) -> usize {
        self.seen.lock().len()
    }

    fn play(&self, request: Q) -> A {
        self.seen.lock().push(request);
        self.answers
            .lock()
            .pop_front()
            .expect("an answer is scripted")
    }
}

macro_rules! fake_controller {
    ($($name:ident: $request:ty => $answer:ty, $error:ty;)*) => {
        #[derive(Default)]
        pub(super) struct FakeController {
            $(pub(super) $name: Script<$request, Result<$answer, $error>>,)*
        }

        impl FakeController {
            pub(super) fn uncalled(&self) -> Vec<&'static str> {
                let counts = [$((stringify!($name), self.$name.count()),)*];
                counts.into_iter().filter(|c| c.1 == 0).map(|c| c.0).collect()
            }
        }

        #[async_trait]
        impl ControllerApi for FakeController {
            $(async fn $name(&self, request: $request) -> Result<$answer, $error> {
                self.$name.play(request)
            })*
        }
    };
}
controller_methods!(fake_controller);

macro_rules! fake_admin {
    ($($name:ident { $($argument:ident: $type:ty),* } => $answer:ty;)*) => {
        #[derive(Default)]
        pub(super) struct FakeAdmin {
            $(pub(super) $name: Script<calls::$name, Result<$answer, AdminError>>,)*
        }

        impl FakeAdmin {
            pub(super) fn uncalled(&self) -> Vec<&'static str> {
                let counts = [$((stringify!($name), self.$name.count()),)*];
                counts.into_iter().filter(|c| c.1 == 0).map(|c| c.0).collect()
            }
        }

        #[async_trait]
        impl ClusterAdmin for FakeAdmin {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$answer, AdminError> {
                self.$name.play(calls::$name { $($argument),* })
            })*
        }
    };
}
admin_methods!(fake_admin);

macro_rules! fake_orders {
    ($($name:ident: $request:ty => $answer:ty;)*) => {
        #[derive(Default)]
        pub(super) struct FakeOrders {
            $(pub(super) $name: Script<$request, Result<$answer, OrderError>>,)*
        }

        impl FakeOrders {
            pub(super) fn uncalled(&self) -> Vec<&'static str> {
                let counts = [$((stringify!($name), self.$name.count()),)*];
                counts.into_iter().filter(|c| c.1 == 0).map(|c| c.0).collect()
            }
        }

        #[async_trait]
        impl BrokerOrders for FakeOrders {
            $(async fn $name(&self, orders: $request) -> Result<$answer, OrderError> {
                self.$name.play(orders)
            })*
        }
    };
}
order_methods!(fake_orders);

macro_rules! fake_queries {
    ($($name:ident: $request:ty => $answer:ty;)*) => {
        #[derive(Default)]
        pub(super) struct FakeQueries {
            $(pub(super) $name: Script<$request, Result<$answer, OrderError>>,)*
        }

        impl FakeQueries {
            pub(super) fn uncalled(&self) -> Vec<&'static str> {
                let counts = [$((stringify!($name), self.$name.count()),)*];
                counts.into_iter().filter(|c| c.1 == 0).map(|c| c.0).collect()
            }
        }

        #[async_trait]
        impl BrokerQueries for FakeQueries {
            $(async fn $name(&self, request: $request) -> Result<$answer, OrderError> {
                self.$name.play(request)
            })*
        }
    };
}
query_methods!(fake_queries);

macro_rules! fake_transactions {
    ($($name:ident: $request:ty => $answer:ty;)*) => {
        #[derive(Default)]
        pub(super) struct FakeTransactions {
            $(pub(super) $name: Script<$request, Result<$answer, OrderError>>,)*
        }

        impl FakeTransactions {
            pub(super) fn uncalled(&self) -> Vec<&'static str> {
                let counts = [$((stringify!($name), self.$name.count()),)*];
                counts.into_iter().filter(|c| c.1 == 0).map(|c| c.0).collect()
            }
        }

        #[async_trait]
        impl BrokerTransactions for FakeTransactions {
            $(async fn $name(&self, request: $request) -> Result<$answer, OrderError> {
                self.$name.play(request)
            })*
        }
    };
}
transaction_methods!(fake_transactions);

/// Makes tails by a function of the test.
pub(super) struct FakeTails(
    pub(super) Box<dyn Fn(FollowRequest) -> Result<Tail, FollowError> + Send + Sync>,
);

#[async_trait]
impl TailSource for FakeTails {
    async fn follow(&self, request: FollowRequest) -> Result<Tail, FollowError> {
        (self.0)(request)
    }
}

/// Answers hellos as scripted.
#[derive(Default)]
pub(super) struct FakeHost {
    pub(super) open: Script<Hello, Result<OpenSession, HelloRefused>>,
}

#[async_trait]
impl SessionHost for FakeHost {
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        self.open.play(hello)
    }
}

/// A session as a test holds it at the controller's side.
pub(super) fn session(
    welcome: Welcome,
) -> (
    OpenSession,
    mpsc::Receiver<Heartbeat>,
    mpsc::Sender<FeedItem>,
) {
    let (heartbeats, beating) = mpsc::channel(HEARTBEAT_QUEUE);
    let (feeding, mut items) = mpsc::channel(16);
    let feed = futures::stream::poll_fn(move |context| items.poll_recv(context));
    let open = OpenSession {
        welcome,
        heartbeats,
        feed: Box::pin(feed),
    };
    (open, beating, feeding)
}

/// A server and what it serves.
pub(super) struct Rig {
    pub(super) controller: Arc<FakeController>,
    pub(super) admin: Arc<FakeAdmin>,
    pub(super) host: Arc<FakeHost>,
    pub(super) orders: Arc<FakeOrders>,
    pub(super) queries: Arc<FakeQueries>,
    pub(super) transactions: Arc<FakeTransactions>,
    pub(super) images: watch::Sender<Arc<ClusterImage>>,
    pub(super) active: watch::Sender<Option<Arc<ActiveController>>>,
    pub(super) known: watch::Sender<Option<(BrokerId, Endpoint)>>,
    pub(super) local: watch::Sender<Option<Arc<LocalBroker>>>,
    pub(super) endpoint: Endpoint,
    pub(super) connections: Connections,
    pub(super) metrics: RpcMetrics,
    pub(super) tasks: Tasks,
}

pub(super) fn no_tails() -> FakeTails {
    FakeTails(Box::new(|_| Err(FollowError::NotLeader)))
}

pub(super) fn quick() -> ClientOptions {
    ClientOptions {
        deadlines: Deadlines {
            controller: Duration::from_millis(300),
            admin: Duration::from_millis(300),
            prepare: Duration::from_millis(300),
            order: Duration::from_millis(300),
            open: Duration::from_millis(300),
        },
        ..ClientOptions::default()
    }
}

impl Rig {
    pub(super) async fn start() -> Self {
        Self::with(
            no_tails(),
            ServerOptions::default(),
            ClientOptions::default(),
        )
        .await
    }

    pub(super) async fn with(
        tails: FakeTails,
        server: ServerOptions,
        client: ClientOptions,
    ) -> Self {
        let controller = Arc::new(FakeController::default());
        let admin = Arc::new(FakeAdmin::default());
        let host = Arc::new(FakeHost::default());
        let orders = Arc::new(FakeOrders::default());
        let queries = Arc::new(FakeQueries::default());
        let transactions = Arc::new(FakeTransactions::default());
        let images = watch::Sender::new(Arc::new(ClusterImage::empty("test")));
        let active = watch::Sender::new(Some(Arc::new(ActiveController {
            api: controller.clone(),
            sessions: host.clone(),
            admin: admin.clone(),
            images: images.subscribe(),
        })));
        let local = watch::Sender::new(Some(Arc::new(LocalBroker {
            orders: orders.clone(),
            tails: Arc::new(tails),
            queries: queries.clone(),
            transactions: transactions.clone(),
        })));
        let known = watch::Sender::new(None);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = endpoint_of(&listener);
        let tasks = Tasks::new("test");
        let metrics = RpcMetrics::default();
        let services = Services {
            controller: active.subscribe(),
            known_controller: known.subscribe(),
            broker: local.subscribe(),
        };
        serve(listener, services, server, metrics.clone(), &tasks);
        Self {
            controller,
            admin,
            host,
            orders,
            queries,
            transactions,
            images,
            active,
            known,
            local,
            endpoint,
            connections: Connections::new(client, RpcMetrics::default()),
            metrics,
            tasks,
        }
    }

    pub(super) fn remote_controller(&self) -> RemoteController {
        RemoteController::new(self.connections.clone(), self.endpoint.clone())
    }

    pub(super) fn remote_admin(&self) -> RemoteAdmin {
        RemoteAdmin::new(self.connections.clone(), self.endpoint.clone())
    }

    pub(super) fn remote_host(&self) -> RemoteSessionHost {
        RemoteSessionHost::new(self.connections.clone(), self.endpoint.clone())
    }

    /// As broker 9, which isn't the one at the other end.
    pub(super) fn peers(&self) -> RemotePeers {
        let local = Arc::new(LocalBroker {
            orders: Arc::new(FakeOrders::default()),
            tails: Arc::new(no_tails()),
            queries: Arc::new(FakeQueries::default()),
            transactions: Arc::new(FakeTransactions::default()),
        });
        RemotePeers::new(self.connections.clone(), broker(9), local)
    }

    pub(super) fn remote_orders(&self) -> Arc<dyn BrokerOrders> {
        self.peers().orders(broker(1), &self.endpoint)
    }

    pub(super) fn remote_queries(&self) -> Arc<dyn BrokerQueries> {
        self.peers().queries(broker(1), &self.endpoint)
    }

    pub(super) fn remote_transactions(&self) -> Arc<dyn BrokerTransactions> {
        self.peers().transactions(broker(1), &self.endpoint)
    }

    pub(super) fn remote_tails(&self) -> Arc<dyn TailSource> {
        self.peers().tails(broker(1), &self.endpoint)
    }

    pub(super) fn serve_controller(&self, api: Arc<dyn ControllerApi>) {
        self.active.send_replace(Some(Arc::new(ActiveController {
            api,
            sessions: self.host.clone(),
            admin: self.admin.clone(),
            images: self.images.subscribe(),
        })));
    }
}

pub(super) fn endpoint_of(listener: &TcpListener) -> Endpoint {
    let address = listener.local_addr().unwrap();
    Endpoint {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

/// Waits for something that another task or connection brings about; fails the test after ten seconds.
pub(super) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(10), wait).await {
        Ok(value) => value,
        Err(_) => panic!("it never came to this: {what}"),
    }
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
