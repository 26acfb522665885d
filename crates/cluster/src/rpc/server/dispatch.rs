//! From the path of a call to the service that answers it.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use serde::de::DeserializeOwned;
use tidegate_metadata::api::*;
use tidegate_metadata::{Configs, ObjectStatus, PartitionState, StoredObjectKey};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::{BrokerId, Offset, PartitionId, TopicName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::{ActiveController, LocalBroker, ServerOptions, Services, streams};
use crate::admin::*;
use crate::orders::{
    Discard, HeldLog, Hold, OrderRefused, Orders, Prepare, Seal, SealAnswer, Unseal,
};
use crate::queries::{GroupAnswer, GroupList, LogStatus};
use crate::rpc::codec::{Incoming, MessagePack, Outgoing};
use crate::rpc::methods::{
    ADMIN, CONTROLLER, FOLLOW, OPEN, ORDERS, QUERIES, SESSIONS, TAILS, TRANSACTIONS, admin_methods,
    controller_methods, order_methods, query_methods, transaction_methods,
};
use crate::rpc::metrics::Counted;
use crate::rpc::wire::{Refusal, calls, put_image};
use crate::rpc::{MAX_MESSAGE_BYTES, RpcMetrics};
use crate::transactions::{AddPartitions, MarkerOutcome, TransactionMarker};

/// The answers of a call: one, or a stream of them.
pub(super) type Answers = BoxStream<'static, Result<Outgoing, Status>>;

/// Kinds of calls that have their own limits, so that one kind can't crowd out another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Call,
    LargeCall,
    Order,
    Query,
    Transaction,
    Session,
    Tail,
}

struct Limits {
    calls: Arc<Semaphore>,
    large_calls: Arc<Semaphore>,
    orders: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    transactions: Arc<Semaphore>,
    sessions: Arc<Semaphore>,
    tails: Arc<Semaphore>,
}

/// Shared by all connections.
pub(super) struct Inner {
    pub(super) services: Services,
    pub(super) options: ServerOptions,
    pub(super) metrics: RpcMetrics,
    pub(super) tasks: Tasks,
    limits: Limits,
}

/// The right to be carried out, kept until it is.
pub(super) struct Admitted {
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Inner {
    pub(super) fn new(
        services: Services,
        options: ServerOptions,
        metrics: RpcMetrics,
        tasks: Tasks,
    ) -> Self {
        let limit = |count| Arc::new(Semaphore::new(count));
        Self {
            services,
            options,
            metrics,
            tasks,
            limits: Limits {
                calls: limit(options.calls),
                large_calls: limit(options.large_calls),
                orders: limit(options.calls),
                queries: limit(options.calls),
                transactions: limit(options.calls),
                sessions: limit(options.streams),
                tails: limit(options.streams),
            },
        }
    }

    /// Waits for a place among the calls of this kind; nothing of the message has been read before.
    pub(super) async fn admit(&self, kind: Kind) -> Result<Admitted, Refusal> {
        let (semaphore, gauge) = match kind {
            Kind::Call => (&self.limits.calls, &self.metrics.calls),
            Kind::LargeCall => (&self.limits.large_calls, &self.metrics.calls),
            Kind::Order => (&self.limits.orders, &self.metrics.calls),
            Kind::Query => (&self.limits.queries, &self.metrics.calls),
            Kind::Transaction => (&self.limits.transactions, &self.metrics.calls),
            Kind::Session => (&self.limits.sessions, &self.metrics.streams),
            Kind::Tail => (&self.limits.tails, &self.metrics.streams),
        };
        let place = Arc::clone(semaphore).acquire_owned();
        match tokio::time::timeout(self.options.wait, place).await {
            Ok(Ok(permit)) => Ok(Admitted {
                _permit: permit,
                _counted: Counted::new(gauge),
            }),
            Ok(Err(_)) | Err(_) => Err(Refusal::Busy),
        }
    }

    pub(super) fn controller(&self) -> Result<Arc<ActiveController>, Refusal> {
        let active = self.services.controller.borrow().clone();
        active.ok_or_else(|| Refusal::NotController {
            known: self.services.known_controller.borrow().clone(),
        })
    }

    pub(super) fn broker(&self) -> Result<Arc<LocalBroker>, Refusal> {
        let broker = self.services.broker.borrow().clone();
        broker.ok_or(Refusal::NotServing)
    }

    /// Carries a call out to its end, whether or not the caller still waits: no implementation has to be prepared
    /// for being dropped in the middle. Only the shutdown of the server gives it up.
    async fn carry_out(
        &self,
        admitted: Admitted,
        work: impl Future<Output = Outgoing> + Send + 'static,
    ) -> Result<Outgoing, Status> {
        let (answer, answered) = oneshot::channel();
        let token = self.tasks.token().clone();
        self.tasks.spawn("rpc call", OnExit::Expected, async move {
            let _admitted = admitted;
            tokio::select! {
                () = token.cancelled() => {}
                // The caller may be gone.
                outgoing = work.boxed() => drop(answer.send(outgoing)),
            }
        });
        answered
            .await
            .map_err(|_| Status::aborted("the call was given up in the middle"))
    }
}

/// The only message of a call.
pub(super) async fn single(
    path: &str,
    messages: &mut Streaming<Incoming>,
) -> Result<Incoming, Status> {
    match messages.message().await? {
        Some(message) => Ok(message),
        None => Err(Refusal::Malformed(format!("{path} came without a message")).into_status()),
    }
}

pub(super) fn read<T: DeserializeOwned>(path: &str, message: &Incoming) -> Result<T, Status> {
    message
        .decode()
        .map_err(|error| Refusal::undecodable(path, error).into_status())
}

/// One call.
struct Call {
    inner: Arc<Inner>,
    path: String,
    admitted: Admitted,
}

type Route = fn(Call, Streaming<Incoming>) -> BoxFuture<'static, Result<Response<Answers>, Status>>;

fn answer(outgoing: Outgoing) -> Response<Answers> {
    Response::new(futures::stream::iter([Ok(outgoing)]).boxed())
}

async fn controller(
    call: Call,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let Call {
        inner,
        path,
        admitted,
    } = call;
    let active = inner.controller().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let api = Arc::clone(&active.api);
    macro_rules! route {
        ($($name:ident: $request:ty => $answer:ty, $error:ty;)*) => {
            match method_of(&path) {
                $(stringify!($name) => {
                    let request: $request = read(&path, &message)?;
                    drop(message);
                    let work = async move {
                        let answer: Result<$answer, $error> = api.$name(request).await;
                        Outgoing::new(answer)
                    };
                    inner.carry_out(admitted, work).await?
                })*
                _ => return Err(Refusal::unknown_method(&path).into_status()),
            }
        };
    }
    let outgoing = controller_methods!(route);
    Ok(with_image(outgoing, &active))
}

async fn admin(call: Call, mut messages: Streaming<Incoming>) -> Result<Response<Answers>, Status> {
    let Call {
        inner,
        path,
        admitted,
    } = call;
    let active = inner.controller().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let admin = Arc::clone(&active.admin);
    macro_rules! route {
        ($($name:ident { $($argument:ident: $type:ty),* } => $answer:ty;)*) => {
            match method_of(&path) {
                $(stringify!($name) => {
                    let calls::$name { $($argument),* } = read(&path, &message)?;
                    let work = async move {
                        let answer: Result<$answer, AdminError> = admin.$name($($argument),*).await;
                        Outgoing::new(answer)
                    };
                    inner.carry_out(admitted, work).await?
                })*
                _ => return Err(Refusal::unknown_method(&path).into_status()),
            }
        };
    }
    let outgoing = admin_methods!(route);
    Ok(with_image(outgoing, &active))
}

async fn orders(
    call: Call,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let Call {
        inner,
        path,
        admitted,
    } = call;
    let broker = inner.broker().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let orders = Arc::clone(&broker.orders);
    macro_rules! route {
        ($($name:ident: $request:ty => $answer:ty;)*) => {
            match method_of(&path) {
                $(stringify!($name) => {
                    let request: $request = read(&path, &message)?;
                    let work = async move {
                        let answer: Result<$answer, crate::orders::OrderError> =
                            orders.$name(request).await;
                        Outgoing::new(answer)
                    };
                    inner.carry_out(admitted, work).await?
                })*
                _ => return Err(Refusal::unknown_method(&path).into_status()),
            }
        };
    }
    let outgoing = order_methods!(route);
    Ok(answer(outgoing))
}

async fn queries(
    call: Call,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let Call {
        inner,
        path,
        admitted,
    } = call;
    let broker = inner.broker().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let queries = Arc::clone(&broker.queries);
    macro_rules! route {
        ($($name:ident: $request:ty => $answer:ty;)*) => {
            match method_of(&path) {
                $(stringify!($name) => {
                    let request: $request = read(&path, &message)?;
                    let work = async move {
                        let answer: Result<$answer, crate::orders::OrderError> =
                            queries.$name(request).await;
                        Outgoing::new(answer)
                    };
                    inner.carry_out(admitted, work).await?
                })*
                _ => return Err(Refusal::unknown_method(&path).into_status()),
            }
        };
    }
    let outgoing = query_methods!(route);
    Ok(answer(outgoing))
}

async fn transactions(
    call: Call,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let Call {
        inner,
        path,
        admitted,
    } = call;
    let broker = inner.broker().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let transactions = Arc::clone(&broker.transactions);
    macro_rules! route {
        ($($name:ident: $request:ty => $answer:ty;)*) => {
            match method_of(&path) {
                $(stringify!($name) => {
                    let request: $request = read(&path, &message)?;
                    let work = async move {
                        let answer: Result<$answer, crate::orders::OrderError> =
                            transactions.$name(request).await;
                        Outgoing::new(answer)
                    };
                    inner.carry_out(admitted, work).await?
                })*
                _ => return Err(Refusal::unknown_method(&path).into_status()),
            }
        };
    }
    let outgoing = transaction_methods!(route);
    Ok(answer(outgoing))
}

fn with_image(outgoing: Outgoing, active: &ActiveController) -> Response<Answers> {
    let mut response = answer(outgoing);
    // Read after the answer was given: a change is in the picture before its answer.
    let version = active.images.borrow().version();
    put_image(response.metadata_mut(), version);
    response
}

fn method_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(_, method)| method)
}

/// Which service, with which limits. `None`: not one of ours.
fn route(path: &str) -> Option<(Kind, Route)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    match (service, method) {
        (CONTROLLER, "commit_objects" | "take_leadership") => {
            Some((Kind::LargeCall, |call, messages| {
                controller(call, messages).boxed()
            }))
        }
        (CONTROLLER, _) => Some((Kind::Call, |call, messages| {
            controller(call, messages).boxed()
        })),
        (ADMIN, _) => Some((Kind::Call, |call, messages| admin(call, messages).boxed())),
        (ORDERS, _) => Some((Kind::Order, |call, messages| orders(call, messages).boxed())),
        (QUERIES, _) => Some((Kind::Query, |call, messages| {
            queries(call, messages).boxed()
        })),
        (TRANSACTIONS, _) => Some((Kind::Transaction, |call, messages| {
            transactions(call, messages).boxed()
        })),
        (TAILS, FOLLOW) => Some((Kind::Tail, |call, messages| {
            streams::follow(call.inner, call.path, call.admitted, messages).boxed()
        })),
        (SESSIONS, OPEN) => Some((Kind::Session, |call, messages| {
            streams::session(call.inner, call.path, call.admitted, messages).boxed()
        })),
        _ => None,
    }
}

fn request_bytes(kind: Kind, options: &ServerOptions) -> usize {
    match kind {
        Kind::LargeCall => MAX_MESSAGE_BYTES,
        Kind::Call | Kind::Order | Kind::Query | Kind::Transaction | Kind::Session | Kind::Tail => {
            options.call_bytes
        }
    }
}

/// The server of all connections.
#[derive(Clone)]
pub(super) struct Rpc(Arc<Inner>);

impl Rpc {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }
}

impl Service<http::Request<Body>> for Rpc {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        async move { Ok(respond(inner, request).await) }.boxed()
    }
}

async fn respond(inner: Arc<Inner>, request: http::Request<Body>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let refuse = |refusal: Refusal| {
        inner.metrics.refused.inc();
        refusal.into_status().into_http()
    };
    let Some((kind, route)) = route(&path) else {
        return refuse(Refusal::unknown_method(&path));
    };
    let admitted = match inner.admit(kind).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(refusal),
    };
    let limit = request_bytes(kind, &inner.options);
    let call = Routed {
        call: Some(Call {
            inner: Arc::clone(&inner),
            path,
            admitted,
        }),
        route,
    };
    let mut grpc = Grpc::new(MessagePack)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    grpc.streaming(call, request).await
}

/// A call on its way to its service. Every method is a stream to the transport, also those with one message each way.
struct Routed {
    call: Option<Call>,
    route: Route,
}

impl StreamingService<Incoming> for Routed {
    type Response = Outgoing;
    type ResponseStream = Answers;
    type Future = BoxFuture<'static, Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<Incoming>>) -> Self::Future {
        let call = self.call.take().expect("a call is made once");
        let metrics = call.inner.metrics.clone();
        let answering = (self.route)(call, request.into_inner());
        async move {
            let answered = answering.await;
            if answered.is_err() {
                metrics.refused.inc();
            }
            answered
        }
        .boxed()
    }
}
