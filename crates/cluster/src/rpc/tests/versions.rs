//! Sides of different versions.

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tidegate_metadata::api::*;
use tidegate_types::BrokerId;
use tokio::net::TcpListener;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use super::rig::{Rig, endpoint_of};
use super::samples::*;
use crate::admin::*;
use crate::orders::*;
use crate::rpc::codec::{Outgoing, Undecodable};
use crate::rpc::wire::{Down, Refusal, TailMessage};
use crate::rpc::*;
use crate::session::*;

/// Carries bytes as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Sends any bytes to any method; answers the bytes or the sentence of the refusal.
pub(super) async fn say(rig: &Rig, path: &'static str, message: Vec<u8>) -> Result<Bytes, String> {
    let uri = format!("http://{}:{}", rig.endpoint.host, rig.endpoint.port);
    let channel = tonic::transport::Endpoint::from_shared(uri)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(path);
    match grpc.unary(Request::new(message), path, Raw).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => {
            assert!(Refusal::of(&status).is_some(), "{status:?}");
            Err(status.message().to_owned())
        }
    }
}

fn packed(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

#[tokio::test]
async fn an_unknown_method_is_named_together_with_the_version() {
    let rig = Rig::start().await;
    for path in [
        "/tidegate.cluster.Controller/frobnicate",
        "/tidegate.cluster.Orders/frobnicate",
        "/tidegate.cluster.Admin/frobnicate",
        "/tidegate.cluster.Frobnicator/open",
        "/frobnicate",
    ] {
        let sentence = say(&rig, path, packed(&1)).await.unwrap_err();
        assert!(sentence.contains(path), "{sentence}");
        let version = format!(
            "Tidegate {}, protocol version {PROTOCOL_VERSION}",
            env!("CARGO_PKG_VERSION")
        );
        assert!(sentence.contains(&version), "{sentence}");
    }
}

#[derive(Serialize)]
enum LaterLayout {
    Spread { zones: u32 },
}

#[derive(Serialize)]
struct LaterTopic {
    name: &'static str,
    layout: LaterLayout,
    configs: (),
}

#[derive(Serialize)]
struct LaterTopics {
    topics: Vec<LaterTopic>,
    validate_only: bool,
}

#[tokio::test]
async fn an_unknown_variant_is_named_together_with_the_version() {
    let rig = Rig::start().await;
    let topics = LaterTopics {
        topics: vec![LaterTopic {
            name: "a",
            layout: LaterLayout::Spread { zones: 3 },
            configs: (),
        }],
        validate_only: false,
    };
    let path = "/tidegate.cluster.Controller/create_topics";
    let sentence = say(&rig, path, packed(&topics)).await.unwrap_err();
    assert!(sentence.contains("unknown variant `Spread`"), "{sentence}");
    assert!(sentence.contains("protocol version"), "{sentence}");
    assert_eq!(rig.controller.create_topics.count(), 0);
}

#[derive(Serialize)]
struct LaterHeartbeat {
    sequence: u64,
    temperature: f64,
}

#[test]
fn unknown_fields_are_skipped_and_missing_ones_get_their_default() {
    let later = LaterHeartbeat {
        sequence: 3,
        temperature: 36.6,
    };
    let read: Heartbeat = Outgoing::new(later).to_incoming().decode().unwrap();
    let expected = Heartbeat {
        sequence: 3,
        ..Heartbeat::default()
    };
    assert_eq!(read, expected);
}

#[derive(Serialize)]
enum LaterFeedItem {
    Weather { rain: bool },
}

#[derive(Serialize)]
enum LaterDown {
    Item(LaterFeedItem),
}

#[test]
fn an_unknown_item_of_the_feed_is_told_from_garbage() {
    let later = LaterDown::Item(LaterFeedItem::Weather { rain: true });
    let read = Outgoing::new(later).to_incoming().decode::<Down>();
    assert!(
        matches!(read, Err(Undecodable::UnknownVariant(_))),
        "{read:?}"
    );
    let read = Outgoing::new(3_u8).to_incoming().decode::<Down>();
    assert!(matches!(read, Err(Undecodable::Malformed(_))), "{read:?}");
}

#[test]
fn batches_are_carried_as_one_run_of_bytes() {
    let item = FollowItem::Batches {
        leader_epoch: epoch(2),
        bytes: bytes(10_000),
        high_watermark: offset(9),
    };
    let encoded = TailMessage::Item(item.clone())
        .into_outgoing()
        .to_incoming();
    assert!(encoded.bytes().len() < 10_100, "{}", encoded.bytes().len());
    assert_eq!(
        encoded.decode::<TailMessage>().unwrap(),
        TailMessage::Item(item)
    );
}

/// What the wire form looks like must not change by accident: brokers of two versions meet in an upgrade.
#[test]
fn the_wire_form_is_what_it_was() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Wire {
        controller_epoch: u64,
        items: Vec<WireSeal>,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct WireSeal {
        partition: WirePartition,
        leader_epoch: u32,
        order: u64,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct WirePartition {
        topic: uuid::Uuid,
        index: u32,
    }
    let sent = orders(Seal {
        partition: partition(3),
        leader_epoch: epoch(2),
        order: 4,
    });
    let encoded = Outgoing::new(sent).to_incoming();
    let mut expected = Vec::new();
    expected.extend_from_slice(b"\x82\xb0controller_epoch\x05\xa5items\x91\x83\xa9partition\x82");
    expected
        .extend_from_slice(b"\xa5topic\xc4\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xfe\xed\xa5index\x03");
    expected.extend_from_slice(b"\xacleader_epoch\x02\xa5order\x04");
    assert_eq!(encoded.bytes(), expected);
    let read: Wire = encoded.decode().unwrap();
    assert_eq!(read.items[0].partition.topic, topic().uuid());
}

/// A gRPC server that knows none of our methods.
async fn stranger() -> tidegate_metadata::Endpoint {
    use std::convert::Infallible;
    use std::task::{Context, Poll};
    use tonic::body::Body;
    use tonic::codegen::{Service, http};

    #[derive(Clone)]
    struct Stranger;
    impl Service<http::Request<Body>> for Stranger {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<http::Response<Body>, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            std::future::ready(Ok(Status::unimplemented("never heard of it").into_http()))
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = endpoint_of(&listener);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(Stranger, incoming));
    endpoint
}

#[tokio::test]
async fn unimplemented_methods_are_told_from_failures() {
    let endpoint = stranger().await;
    let rig = Rig::start().await;
    let controller = RemoteController::new(rig.connections.clone(), endpoint.clone());
    assert_eq!(
        controller.led_by(broker(1)).await,
        Err(ControllerUnavailable::NoController)
    );
    let text = "never heard of it".to_owned();
    let admin = RemoteAdmin::new(rig.connections.clone(), endpoint.clone());
    assert_eq!(
        admin.set_balance(true).await,
        Err(AdminError::Unsupported(text.clone()))
    );
    let unseal: Orders<Unseal> = Orders {
        controller_epoch: tidegate_types::ControllerEpoch::new(5),
        items: vec![],
    };
    let peers = rig.peers();
    assert_eq!(
        peers.orders(broker(1), &endpoint).unseal(unseal).await,
        Err(OrderError::Unknown(text.clone()))
    );
    let follow = FollowRequest {
        partition: partition(3),
        leader_epoch: epoch(2),
    };
    let followed = peers.tails(broker(1), &endpoint).follow(follow).await;
    assert_eq!(followed.err(), Some(FollowError::Failed(text)));
}

#[test]
fn a_refusal_survives_its_way_as_a_status() {
    let known: Option<(BrokerId, _)> = Some((broker(2), endpoint(9094)));
    for refusal in [
        Refusal::NotController { known },
        Refusal::NotController { known: None },
        Refusal::Busy,
        Refusal::NotServing,
        Refusal::Malformed("m".to_owned()),
        Refusal::Unsupported("u".to_owned()),
    ] {
        let status = refusal.clone().into_status();
        assert_eq!(Refusal::of(&status), Some(refusal));
    }
    assert_eq!(Refusal::of(&Status::unavailable("by the transport")), None);
}
