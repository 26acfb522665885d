//! What callers learn when there is no answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_metadata::api::*;
use tidegate_metadata::{Configs, Endpoint, ObjectStatus, PartitionState, StoredObjectKey};
use tidegate_types::{BrokerId, ControllerEpoch, Offset, PartitionId, TopicName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::rig::{FakeController, Rig, endpoint_of, no_tails, quick, soon, until};
use super::samples::*;
use crate::admin::*;
use crate::orders::*;
use crate::rpc::methods::controller_methods;
use crate::rpc::*;
use crate::session::*;

/// Every call waits for the gate; the caller learns that it began.
#[derive(Default)]
struct Slow {
    began: Notify,
    gate: Notify,
    inner: FakeController,
}

macro_rules! slow {
    ($($name:ident: $request:ty => $answer:ty, $error:ty;)*) => {
        #[async_trait]
        impl ControllerApi for Slow {
            $(async fn $name(&self, request: $request) -> Result<$answer, $error> {
                self.began.notify_one();
                self.gate.notified().await;
                self.inner.$name(request).await
            })*
        }
    };
}
controller_methods!(slow);

async fn free_endpoint() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    endpoint_of(&listener)
}

fn hello() -> Hello {
    Hello {
        broker: broker(1),
        broker_epoch: broker_epoch(),
        incarnation: uuid::Uuid::from_u128(1),
        wal: None,
        kafka: None,
        protocol_version: PROTOCOL_VERSION,
        software_version: String::new(),
        features: vec![],
    }
}

fn seal() -> Orders<Seal> {
    orders(Seal {
        partition: partition(3),
        leader_epoch: epoch(2),
        order: 4,
    })
}

fn follow() -> FollowRequest {
    FollowRequest {
        partition: partition(3),
        leader_epoch: epoch(2),
    }
}

#[tokio::test]
async fn without_a_connection_nothing_was_carried_out() {
    let rig = Rig::start().await;
    let nowhere = free_endpoint().await;
    let controller = RemoteController::new(rig.connections.clone(), nowhere.clone());
    assert_eq!(
        controller.led_by(broker(1)).await,
        Err(ControllerUnavailable::NoController)
    );
    let admin = RemoteAdmin::new(rig.connections.clone(), nowhere.clone());
    assert_eq!(
        admin.set_balance(true).await,
        Err(AdminError::Unavailable(ControllerUnavailable::NoController))
    );
    let host = RemoteSessionHost::new(rig.connections.clone(), nowhere.clone());
    let refused = host.open(hello()).await.unwrap_err();
    assert!(matches!(refused, HelloRefused::Unreachable(_)), "{refused}");
    let orders = rig.peers().orders(broker(1), &nowhere);
    let error = orders.seal(seal()).await.unwrap_err();
    assert!(matches!(error, OrderError::Unreachable(_)), "{error}");
    let tails = rig.peers().tails(broker(1), &nowhere);
    let error = tails.follow(follow()).await.err().unwrap();
    assert!(matches!(error, FollowError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_comes_back_is_reached_again() {
    let rig = Rig::start().await;
    let remote = rig.remote_controller();
    rig.controller.led_by.answers(Ok(vec![]));
    assert_eq!(remote.led_by(broker(1)).await, Ok(vec![]));
    rig.tasks.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(
        remote.led_by(broker(1)).await,
        Err(ControllerUnavailable::NoController)
    );
    let address = (rig.endpoint.host.clone(), rig.endpoint.port);
    let listener = TcpListener::bind(address).await.unwrap();
    let services = Services {
        controller: rig.active.subscribe(),
        known_controller: rig.known.subscribe(),
        broker: rig.local.subscribe(),
    };
    let tasks = tidegate_runtime::Tasks::new("again");
    serve(
        listener,
        services,
        ServerOptions::default(),
        rig.metrics.clone(),
        &tasks,
    );
    rig.controller.led_by.answers(Ok(vec![]));
    assert_eq!(remote.led_by(broker(1)).await, Ok(vec![]));
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_leaves_the_outcome_unknown() {
    let rig = Rig::start().await;
    let slow = Arc::new(Slow::default());
    rig.serve_controller(slow.clone());
    let remote = rig.remote_controller();
    let broken = async {
        slow.began.notified().await;
        rig.tasks.shutdown(Duration::from_secs(10)).await.unwrap();
    };
    let (answer, ()) = soon("the answer", async {
        tokio::join!(remote.led_by(broker(1)), broken)
    })
    .await;
    assert_eq!(answer, Err(ControllerUnavailable::OutcomeUnknown));
}

#[tokio::test]
async fn a_peer_that_hangs_up_after_reading_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = endpoint_of(&listener);
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // An empty SETTINGS frame: as much HTTP/2 as is needed to be sent a request.
        stream
            .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await.unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            let (kind, flags) = (header[3], header[4]);
            // DATA with END_STREAM: the request is here as a whole.
            if kind == 0 && flags & 1 == 1 {
                return;
            }
        }
    };
    let connections = Connections::new(ClientOptions::default(), RpcMetrics::default());
    let remote = RemoteController::new(connections, endpoint);
    let both = async { tokio::join!(remote.led_by(broker(1)), peer) };
    let (answer, ()) = soon("the answer", both).await;
    assert_eq!(answer, Err(ControllerUnavailable::OutcomeUnknown));
}

#[tokio::test]
async fn a_deadline_leaves_the_outcome_unknown() {
    let rig = Rig::with(no_tails(), ServerOptions::default(), quick()).await;
    let slow = Arc::new(Slow::default());
    rig.serve_controller(slow.clone());
    assert_eq!(
        rig.remote_controller().led_by(broker(1)).await,
        Err(ControllerUnavailable::OutcomeUnknown)
    );
    // Whoever listens and says nothing at all.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = endpoint_of(&listener);
    let orders = rig.peers().orders(broker(1), &silent);
    assert_eq!(orders.seal(seal()).await, Err(OrderError::TimedOut));
}

#[tokio::test]
async fn a_call_is_carried_out_also_when_its_caller_has_left() {
    let rig = Rig::with(no_tails(), ServerOptions::default(), quick()).await;
    let slow = Arc::new(Slow::default());
    slow.inner.led_by.answers(Ok(vec![]));
    rig.serve_controller(slow.clone());
    let remote = rig.remote_controller();
    tokio::select! {
        answer = remote.led_by(broker(1)) => panic!("{answer:?}"),
        () = slow.began.notified() => {}
    }
    // Let the server learn that the caller left.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.metrics.calls.get(), 1);
    slow.gate.notify_one();
    until("the call is carried out", || slow.inner.led_by.count() == 1).await;
    until("the call is over", || rig.metrics.calls.get() == 0).await;
}

#[tokio::test]
async fn a_panic_costs_its_call_only() {
    let rig = Rig::start().await;
    let remote = rig.remote_controller();
    // No answer is scripted.
    assert_eq!(
        remote.led_by(broker(1)).await,
        Err(ControllerUnavailable::OutcomeUnknown)
    );
    rig.controller.led_by.answers(Ok(vec![]));
    assert_eq!(remote.led_by(broker(1)).await, Ok(vec![]));
}

#[tokio::test]
async fn who_is_not_the_controller_carries_nothing_out() {
    let rig = Rig::start().await;
    rig.active.send_replace(None);
    assert_eq!(
        rig.remote_controller().led_by(broker(1)).await,
        Err(ControllerUnavailable::NoController)
    );
    assert_eq!(
        rig.remote_admin().cluster_status().await,
        Err(AdminError::Unavailable(ControllerUnavailable::NoController))
    );
    assert_eq!(rig.controller.led_by.count(), 0);
}

#[tokio::test]
async fn a_broker_whose_logs_are_not_there_yet_takes_no_orders() {
    let rig = Rig::start().await;
    rig.local.send_replace(None);
    let error = rig.remote_orders().seal(seal()).await.unwrap_err();
    assert!(matches!(error, OrderError::Unreachable(_)), "{error}");
    let error = rig.remote_tails().follow(follow()).await.err().unwrap();
    assert!(matches!(error, FollowError::Unreachable(_)), "{error}");
    let unseal = Orders {
        controller_epoch: ControllerEpoch::new(5),
        items: vec![],
    };
    let error = rig.remote_orders().unseal(unseal).await.unwrap_err();
    assert!(matches!(error, OrderError::Unreachable(_)), "{error}");
}
