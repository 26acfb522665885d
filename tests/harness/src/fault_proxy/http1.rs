//! As much of HTTP/1.1 (RFC 9112) as S3 clients and servers speak.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request or an answer, body included. Chunked bodies are stored joined.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// Request line or status line.
    pub(super) start: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    has_length: bool,
}

impl Message {
    pub(super) fn answer(status: u16, body: &str) -> Self {
        let reason = if status == 200 { "OK" } else { "Injected" };
        Self {
            start: format!("HTTP/1.1 {status} {reason}"),
            headers: vec![
                ("Content-Type".into(), "application/xml".into()),
                ("Content-Length".into(), body.len().to_string()),
            ],
            body: body.as_bytes().to_vec(),
            has_length: true,
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn status(&self) -> u16 {
        self.start
            .split(' ')
            .nth(1)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    pub(super) fn is_head(&self) -> bool {
        self.start.starts_with("HEAD ")
    }

    pub(super) fn closes(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
            || !self.has_length
    }

    pub(super) fn set_body(&mut self, body: Vec<u8>) {
        self.headers
            .retain(|(key, _)| !key.eq_ignore_ascii_case("content-length"));
        self.headers
            .push(("Content-Length".into(), body.len().to_string()));
        self.body = body;
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.start);
        for (key, value) in &self.headers {
            head.push_str(&format!("{key}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The next request, or `None` when the client has closed.
pub(super) async fn read_request(stream: &mut TcpStream) -> Result<Option<Message>> {
    let Some((start, headers)) = read_head(stream).await? else {
        return Ok(None);
    };
    let mut message = Message {
        start,
        headers,
        body: Vec::new(),
        has_length: true,
    };
    if message.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        message
            .headers
            .retain(|(key, _)| !key.eq_ignore_ascii_case("expect"));
    }
    read_body(stream, &mut message).await?;
    Ok(Some(message))
}

/// The answer to a request just sent. `to_head`: it has no body whatever its headers say.
pub(super) async fn read_response(stream: &mut TcpStream, to_head: bool) -> Result<Message> {
    loop {
        let (start, headers) = read_head(stream)
            .await?
            .context("the S3 server closed the connection")?;
        let mut message = Message {
            start,
            headers,
            body: Vec::new(),
            has_length: true,
        };
        let status = message.status();
        if status == 100 {
            continue;
        }
        if to_head || status == 204 || status == 304 {
            return Ok(message);
        }
        if message.header("content-length").is_none()
            && message.header("transfer-encoding").is_none()
        {
            message.has_length = false;
            stream.read_to_end(&mut message.body).await?;
            return Ok(message);
        }
        read_body(stream, &mut message).await?;
        return Ok(message);
    }
}

type Head = (String, Vec<(String, String)>);

async fn read_head(stream: &mut TcpStream) -> Result<Option<Head>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // Byte by byte would be a system call each: look ahead, then take exactly the head.
        let mut window = [0_u8; 4096];
        let seen = stream.peek(&mut window).await?;
        if seen == 0 {
            return if head.is_empty() {
                Ok(None)
            } else {
                bail!("a head is cut off")
            };
        }
        let before = head.len();
        head.extend_from_slice(&window[..seen]);
        let search_from = before.saturating_sub(3);
        let taken = match head[search_from..]
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        {
            Some(at) => search_from + at + 4 - before,
            None => seen,
        };
        head.truncate(before + taken);
        stream.read_exact(&mut window[..taken]).await?;
        if head.len() > 1 << 20 {
            bail!("a head of more than 1 MiB");
        }
    }
    let text = String::from_utf8(head).context("a head isn't text")?;
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
    let start = lines.next().context("an empty head")?.to_owned();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();
    Ok(Some((start, headers)))
}

async fn read_body(stream: &mut TcpStream, message: &mut Message) -> Result<()> {
    if message
        .header("transfer-encoding")
        .is_some_and(|value| value.contains("chunked"))
    {
        let body = read_chunks(stream).await?;
        message
            .headers
            .retain(|(key, _)| !key.eq_ignore_ascii_case("transfer-encoding"));
        message.set_body(body);
        return Ok(());
    }
    let length: usize = message
        .header("content-length")
        .unwrap_or("0")
        .parse()
        .context("odd content length")?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    message.body = body;
    Ok(())
}

async fn read_chunks(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream).await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).context("odd chunk length")?;
        let start = body.len();
        body.resize(start + length, 0);
        stream.read_exact(&mut body[start..]).await?;
        // The line end after the data; after the last chunk, the empty line that ends the trailers.
        while !read_line(stream).await?.is_empty() {}
        if length == 0 {
            return Ok(body);
        }
    }
}

async fn read_line(stream: &mut TcpStream) -> Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
}
