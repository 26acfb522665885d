//! What isn't this protocol costs a closed connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, no_tails, soon, until};
use super::samples::broker;
use crate::rpc::{ClientOptions, ServerOptions};
use tidegate_metadata::ControllerApi;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async fn impatient() -> Rig {
    let options = ServerOptions {
        greeting: Duration::from_millis(100),
        ..ServerOptions::default()
    };
    Rig::with(no_tails(), options, ClientOptions::default()).await
}

async fn connect(rig: &Rig) -> TcpStream {
    TcpStream::connect((rig.endpoint.host.as_str(), rig.endpoint.port))
        .await
        .unwrap()
}

/// Says it, and reads until the server hangs up; answers how much it said.
async fn say(rig: &Rig, words: &[u8]) -> usize {
    let mut stream = connect(rig).await;
    // The server may hang up in the middle.
    let _ = stream.write_all(words).await;
    let mut answer = Vec::new();
    let _ = soon("the server hangs up", stream.read_to_end(&mut answer)).await;
    answer.len()
}

async fn still_serves(rig: &Rig) {
    rig.controller.led_by.answers(Ok(vec![]));
    assert_eq!(rig.remote_controller().led_by(broker(1)).await, Ok(vec![]));
    until("only our connection is left", || {
        rig.metrics.connections.get() == 1
    })
    .await;
    assert_eq!(rig.metrics.calls.get(), 0);
}

#[tokio::test]
async fn other_protocols_are_hung_up_on() {
    let rig = impatient().await;
    let noise: Vec<u8> = (0..1_u32 << 20)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let words: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[
            0, 0, 0, 20, 0, 18, 0, 3, 0, 0, 0, 1, 0, 4, b't', b'e', b's', b't',
        ],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &noise,
        &[PREFACE, &noise].concat(),
    ];
    for words in words {
        let answered = say(&rig, words).await;
        assert!(answered < 1_000, "{answered} bytes were answered");
    }
    still_serves(&rig).await;
}

#[tokio::test]
async fn who_says_nothing_or_half_a_greeting_is_hung_up_on() {
    let rig = impatient().await;
    for words in [b"".as_slice(), &PREFACE[..10]] {
        assert!(say(&rig, words).await < 1_000);
    }
    still_serves(&rig).await;
}

#[tokio::test]
async fn a_message_that_claims_more_than_it_holds_is_refused() {
    let rig = impatient().await;
    // An array of 2^32-1 elements, and nested arrays without end.
    for message in [vec![0xdd, 0xff, 0xff, 0xff, 0xff], vec![0x91; 100_000]] {
        let refused = super::versions::say(&rig, "/tidegate.cluster.Controller/led_by", message);
        let refused = refused.await.unwrap_err();
        assert!(refused.contains("can't be read"), "{refused}");
    }
    still_serves(&rig).await;
}
