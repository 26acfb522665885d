//! The least of a Kafka client: is there a broker that answers Metadata?

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::process::Server;

/// Api key of Metadata.
const METADATA: i16 = 3;
/// A version that every broker since Kafka 1.0 answers, and the last but few without tagged fields.
const METADATA_VERSION: i16 = 4;
const CORRELATION: i32 = 1;
/// More than a list of brokers needs.
const LARGEST_ANSWER: u32 = 1 << 20;
/// Between two tries; a start-up time is as exact as this.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// A free port of the loopback interface. Another process may take it before it is used; then that fails.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Time from `started` to the first Metadata answer that names a broker.
pub fn await_metadata(
    server: &mut Server,
    port: u16,
    started: Instant,
    patience: Duration,
) -> Result<Duration> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    loop {
        match metadata_names_a_broker(address) {
            Ok(true) => return Ok(started.elapsed()),
            Ok(false) => {}
            Err(error) if started.elapsed() > patience => {
                return Err(error.context(format!("no answer on port {port} after {patience:?}")));
            }
            Err(_) => {}
        }
        if started.elapsed() > patience {
            bail!("the answer on port {port} still names no broker after {patience:?}");
        }
        server.check_alive()?;
        std::thread::sleep(RETRY_PAUSE);
    }
}

fn metadata_names_a_broker(address: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_nodelay(true)?;
    stream.write_all(&metadata_request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LARGEST_ANSWER {
        bail!("an answer of {length} bytes is no Metadata answer");
    }
    let mut answer = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut answer)?;
    broker_count(&answer).map(|count| count > 0)
}

/// Asks for the brokers and no topic.
fn metadata_request() -> Vec<u8> {
    let client = b"versus";
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(METADATA_VERSION.to_be_bytes());
    body.extend(CORRELATION.to_be_bytes());
    body.extend((client.len() as i16).to_be_bytes());
    body.extend(client);
    body.extend(0_i32.to_be_bytes()); // no topics
    body.push(0); // and create none
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Correlation id, throttle time, then the array of brokers.
fn broker_count(answer: &[u8]) -> Result<i32> {
    let field = |at: usize| -> Result<i32> {
        let bytes = answer
            .get(at..at + 4)
            .context("the Metadata answer is cut short")?;
        Ok(i32::from_be_bytes(bytes.try_into()?))
    };
    if field(0)? != CORRELATION {
        bail!("the answer is for another request");
    }
    field(8)
}

/// Whether a GET of `path` is answered with 200.
pub fn http_ok(port: u16, path: &str) -> bool {
    let get = || -> Result<bool> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head.ends_with(b" 200"))
    };
    get().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokers_of_an_answer_are_counted() {
        let mut answer = CORRELATION.to_be_bytes().to_vec();
        answer.extend(0_i32.to_be_bytes());
        answer.extend(3_i32.to_be_bytes());
        assert_eq!(broker_count(&answer).ok(), Some(3));
        assert!(broker_count(&answer[..10]).is_err());
        answer[3] = 9;
        assert!(broker_count(&answer).is_err());
    }

    #[test]
    fn the_request_states_its_own_length() {
        let request = metadata_request();
        let stated = u32::from_be_bytes([request[0], request[1], request[2], request[3]]);
        assert_eq!(stated as usize, request.len() - 4);
    }
}
