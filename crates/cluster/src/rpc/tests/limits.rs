//! What happens at the limits.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tidegate_metadata::api::*;

use super::rig::{FakeTails, Rig, no_tails, soon, until};
use super::samples::*;
use crate::orders::*;
use crate::rpc::{ClientOptions, Connections, RemotePeers, RpcMetrics, ServerOptions};

fn tight() -> ServerOptions {
    ServerOptions {
        calls: 1,
        streams: 2,
        call_bytes: 10_000,
        wait: Duration::from_millis(20),
        ..ServerOptions::default()
    }
}

fn endless() -> FakeTails {
    FakeTails(Box::new(|_| Ok(stream::pending().boxed())))
}

fn request() -> FollowRequest {
    FollowRequest {
        partition: partition(3),
        leader_epoch: epoch(2),
    }
}

#[tokio::test]
async fn a_stream_too_many_is_refused_and_fits_once_another_ends() {
    let rig = Rig::with(endless(), tight(), ClientOptions::default()).await;
    let tails = rig.remote_tails();
    let first = tails.follow(request()).await.unwrap();
    let _second = tails.follow(request()).await.unwrap();
    let error = tails.follow(request()).await.err().unwrap();
    assert!(matches!(error, FollowError::Unreachable(_)), "{error}");
    assert_eq!(rig.metrics.refused.get(), 1);
    drop(first);
    until("a place is free", || rig.metrics.streams.get() == 1).await;
    drop(tails.follow(request()).await.unwrap());
}

#[tokio::test]
async fn a_message_too_large_is_refused_before_it_is_read() {
    let rig = Rig::with(no_tails(), tight(), ClientOptions::default()).await;
    let remote = rig.remote_controller();
    let many = vec![partition(3); 10_000];
    assert_eq!(
        remote.partition_states(many).await,
        Err(ControllerUnavailable::OutcomeUnknown)
    );
    assert_eq!(rig.controller.partition_states.count(), 0);
    // A commit may be as large.
    let commit = CommitObjects {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        objects: vec![object(); 1_000],
    };
    rig.controller.commit_objects.answers(Ok(vec![]));
    assert_eq!(remote.commit_objects(commit.clone()).await, Ok(vec![]));
    assert_eq!(rig.controller.commit_objects.last(), commit);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_one_to_close() {
    let options = ServerOptions {
        connections: 1,
        ..ServerOptions::default()
    };
    let rig = Rig::with(endless(), options, ClientOptions::default()).await;
    let held = rig.remote_tails().follow(request()).await.unwrap();
    let others = Connections::new(ClientOptions::default(), RpcMetrics::default());
    let local = rig.local.borrow().clone().unwrap();
    let second = RemotePeers::new(others, broker(9), local).tails(broker(1), &rig.endpoint);
    let waiting = second.follow(request());
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "the second connection was taken");
    assert_eq!(rig.metrics.connections.get(), 1);
    drop(held);
    drop_connections(rig);
    drop(soon("the second connection", waiting).await.unwrap());
}

/// The client's own connections close with it; the server goes on.
fn drop_connections(rig: Rig) {
    let Rig {
        connections, tasks, ..
    } = rig;
    drop(connections);
    std::mem::forget(tasks);
}

#[tokio::test]
async fn a_call_too_many_is_refused_after_a_wait() {
    let rig = Rig::with(no_tails(), tight(), ClientOptions::default()).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    struct Held(Arc<tokio::sync::Notify>);
    #[async_trait::async_trait]
    impl BrokerOrders for Held {
        async fn prepare(
            &self,
            _: Orders<Prepare>,
        ) -> Result<Vec<Result<(), OrderRefused>>, OrderError> {
            Ok(vec![])
        }
        async fn seal(&self, _: Orders<Seal>) -> Result<SealAnswer, OrderError> {
            Err(OrderError::TimedOut)
        }
        async fn hold(
            &self,
            _: Orders<Hold>,
        ) -> Result<Vec<Result<HeldLog, OrderRefused>>, OrderError> {
            Ok(vec![])
        }
        async fn unseal(&self, _: Orders<Unseal>) -> Result<(), OrderError> {
            self.0.notified().await;
            Ok(())
        }
        async fn discard(&self, _: Orders<Discard>) -> Result<(), OrderError> {
            Ok(())
        }
    }
    rig.local
        .send_replace(Some(Arc::new(crate::rpc::LocalBroker {
            orders: Arc::new(Held(gate.clone())),
            tails: Arc::new(no_tails()),
            queries: rig.queries.clone(),
            transactions: rig.transactions.clone(),
        })));
    let remote = rig.remote_orders();
    let held = remote.unseal(orders(Unseal {
        partition: partition(3),
        leader_epoch: epoch(2),
        order: 1,
    }));
    let refused = async {
        until("the first call", || rig.metrics.calls.get() == 1).await;
        let discard = orders(Discard {
            partition: partition(3),
            attempt: 1,
        });
        let error = remote.discard(discard.clone()).await.unwrap_err();
        assert!(matches!(error, OrderError::Unreachable(_)), "{error}");
        gate.notify_one();
    };
    let (held, ()) = tokio::join!(held, refused);
    assert_eq!(held, Ok(()));
}
