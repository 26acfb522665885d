//! The smallest HTTP client that can use the admin API.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// Status and body of an answer.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// `GET path` from `address` (host:port), with a time limit of five seconds.
pub fn http_get(address: &str, path: &str) -> Result<HttpResponse> {
    exchange(address, "GET", path, "", Duration::from_secs(5))
}

/// `POST path` with a JSON body.
pub fn http_post(address: &str, path: &str, json: &str, limit: Duration) -> Result<HttpResponse> {
    exchange(address, "POST", path, json, limit)
}

fn exchange(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
    limit: Duration,
) -> Result<HttpResponse> {
    let socket: SocketAddr = address
        .parse()
        .with_context(|| format!("{address} isn't an address"))?;
    let mut stream = TcpStream::connect_timeout(&socket, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    // HTTP/1.0 spares us chunked bodies.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n"
    )?;
    if !body.is_empty() {
        write!(
            stream,
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        )?;
    }
    write!(stream, "\r\n{body}")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the answer has no head")?;
    let status = head
        .split_whitespace()
        .nth(1)
        .context("the answer has no status")?
        .parse()?;
    Ok(HttpResponse {
        status,
        body: body.to_owned(),
    })
}
