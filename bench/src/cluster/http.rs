//! The least of an HTTP client: one request on one connection to a broker's admin address.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// More than an answer about 20,000 partitions needs.
const LARGEST_ANSWER: u64 = 64 << 20;

/// What came back.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Sends one request to `address` (host:port); `patience` is for each wait, not for the whole.
pub fn request(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
    patience: Duration,
) -> Result<Answer> {
    let target = address
        .to_socket_addrs()?
        .next()
        .with_context(|| format!("{address} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&target, CONNECT_PATIENCE)
        .with_context(|| format!("can't reach {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream
        .take(LARGEST_ANSWER)
        .read_to_end(&mut bytes)
        .with_context(|| format!("no answer from {address} to {method} {path}"))?;
    read_answer(&bytes).with_context(|| format!("{address} answered {method} {path} oddly"))
}

fn read_answer(bytes: &[u8]) -> Result<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the answer has no end of its head")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("the answer has no status")?;
    if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        bail!("the answer comes in chunks, which isn't supported");
    }
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = read_answer(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}")
            .expect("the answer is well formed");
        assert_eq!((answer.status, answer.body.as_str()), (409, "{}"));
        assert!(read_answer(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(read_answer(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
