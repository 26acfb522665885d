//! A Kafka connection that hides nothing: requests at any version, frames, bytes.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an answer may take before the test fails. Longer than any `max_wait` a test uses.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A raw connection. Requests can be pipelined: send several, then receive their answers in order.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    next_correlation_id: i32,
    client_id: StrBytes,
}

impl RawClient {
    /// Connects to host:port.
    pub async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("can't connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            next_correlation_id: 1,
            client_id: StrBytes::from_static_str("raw-test-client"),
        })
    }

    /// Sends a request and gives its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<i32> {
        let correlation_id = self.take_correlation_id();
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(Some(self.client_id.clone()));
        let mut body = BytesMut::new();
        header.encode(&mut body, R::header_version(version))?;
        request.encode(&mut body, version)?;
        self.send_frame(&body).await?;
        Ok(correlation_id)
    }

    /// Receives the answer to the request with this correlation id, which must be the next one.
    pub async fn receive<R: Request>(
        &mut self,
        version: i16,
        correlation_id: i32,
    ) -> Result<R::Response> {
        let mut frame = self.receive_frame().await?;
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))?;
        ensure!(
            header.correlation_id == correlation_id,
            "answer {} came where {correlation_id} was due",
            header.correlation_id
        );
        let response = R::Response::decode(&mut frame, version)?;
        ensure!(
            !frame.has_remaining(),
            "{} bytes are left after the answer",
            frame.remaining()
        );
        Ok(response)
    }

    /// Sends a request and receives its answer.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let correlation_id = self.send(version, request).await?;
        self.receive::<R>(version, correlation_id).await
    }

    /// Sends a request built by hand: a version-1 header (api key, version, correlation id, client id), then `body`.
    pub async fn send_by_hand(&mut self, api_key: i16, version: i16, body: &[u8]) -> Result<i32> {
        let correlation_id = self.take_correlation_id();
        let mut frame = BytesMut::new();
        frame.put_i16(api_key);
        frame.put_i16(version);
        frame.put_i32(correlation_id);
        frame.put_i16(i16::try_from(self.client_id.len())?);
        frame.put_slice(self.client_id.as_bytes());
        frame.put_slice(body);
        self.send_frame(&frame).await?;
        Ok(correlation_id)
    }

    /// Sends bytes with their length in front.
    pub async fn send_frame(&mut self, frame: &[u8]) -> Result<()> {
        let mut bytes = BytesMut::with_capacity(frame.len() + 4);
        bytes.put_i32(i32::try_from(frame.len())?);
        bytes.put_slice(frame);
        self.send_bytes(&bytes).await
    }

    /// Sends bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await.context("can't send")
    }

    /// Receives one frame without its length; an error when the broker closes or stays silent.
    pub async fn receive_frame(&mut self) -> Result<Bytes> {
        let read = async {
            let length = self
                .stream
                .read_i32()
                .await
                .context("the broker closed the connection")?;
            let length = usize::try_from(length).context("negative frame length")?;
            ensure!(length <= 256 << 20, "an answer of {length} bytes");
            let mut frame = BytesMut::zeroed(length);
            self.stream
                .read_exact(&mut frame)
                .await
                .context("the broker closed in the middle of an answer")?;
            Ok(frame.freeze())
        };
        match tokio::time::timeout(ANSWER_LIMIT, read).await {
            Ok(result) => result,
            Err(_) => bail!("no answer within {ANSWER_LIMIT:?}"),
        }
    }

    /// Succeeds when the broker closes without a further byte.
    pub async fn expect_closed(&mut self, within: Duration) -> Result<()> {
        let mut byte = [0_u8; 1];
        match tokio::time::timeout(within, self.stream.read(&mut byte)).await {
            Ok(Ok(0)) => Ok(()),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Ok(Ok(_)) => bail!("the broker answered where it should have closed"),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => bail!("the connection is still open after {within:?}"),
        }
    }

    /// Succeeds when nothing comes and the connection stays open.
    pub async fn expect_silence(&mut self, during: Duration) -> Result<()> {
        let mut byte = [0_u8; 1];
        match tokio::time::timeout(during, self.stream.peek(&mut byte)).await {
            Err(_) => Ok(()),
            Ok(Ok(0)) => bail!("the broker closed the connection"),
            Ok(Ok(_)) => bail!("the broker answered where it should have been silent"),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    fn take_correlation_id(&mut self) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id += 1;
        id
    }
}
