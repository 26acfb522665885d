//! A proxy that makes a near S3 server as slow as a far one: the first byte of each answer leaves it no sooner
//! than a drawn time after the last byte of the request.
//!
//! It takes no look into what passes: on an HTTP/1.1 connection without pipelining, bytes from the client after
//! bytes from the server begin the next request. The drawn times are lognormal: skewed to the right, as
//! measured times of object stores are. What the server itself takes is within the drawn time, unless it takes longer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::args::StoreLatency;
use crate::payload::SplitMix;

const BUFFER_BYTES: usize = 64 * 1024;

/// A running proxy; it stops when dropped.
pub struct DelayProxy {
    address: SocketAddr,
    /// Its own runtime, so that nothing else of this process delays it.
    _runtime: Runtime,
}

impl DelayProxy {
    /// Starts a proxy before `endpoint`, such as `http://127.0.0.1:9000`.
    pub fn start(endpoint: &str, latency: StoreLatency, seed: u64) -> Result<Self> {
        let upstream = host_and_port(endpoint)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("delay-proxy")
            .enable_all()
            .build()
            .context("could not start a runtime")?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("could not listen for the brokers' S3 requests")?;
        let address = listener.local_addr()?;
        let delays = Arc::new(Mutex::new(Delays::new(latency, seed)));
        runtime.spawn(accept(listener, upstream, delays));
        Ok(Self {
            address,
            _runtime: runtime,
        })
    }

    /// What clients use in the place of the endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn host_and_port(endpoint: &str) -> Result<String> {
    let Some(rest) = endpoint.strip_prefix("http://") else {
        bail!("--s3-latency-ms needs an endpoint without TLS, `http://..`, not {endpoint}");
    };
    let host = rest.split('/').next().unwrap_or(rest);
    Ok(if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    })
}

async fn accept(listener: TcpListener, upstream: String, delays: Arc<Mutex<Delays>>) {
    let mut connections = JoinSet::new();
    loop {
        // A connection that fails shows at its client, which tries again.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(carry(client, upstream.clone(), Arc::clone(&delays)));
    }
}

/// When the last byte of a request passed that isn't answered yet.
type Asked = Mutex<Option<Instant>>;

async fn carry(client: TcpStream, upstream: String, delays: Arc<Mutex<Delays>>) {
    let Ok(server) = TcpStream::connect(&upstream).await else {
        return;
    };
    // Without it a small answer would wait for the other side's acknowledgement.
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asked = Asked::default();
    // Either side's end ends the connection: HTTP doesn't use half-closed ones.
    tokio::select! {
        _ = forward(&mut from_client, &mut to_server, &asked) => {}
        _ = answer(&mut from_server, &mut to_client, &asked, &delays) => {}
    }
}

async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    asked: &Asked,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        to.write_all(&buffer[..count]).await?;
    }
}

async fn answer(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    asked: &Asked,
    delays: &Mutex<Delays>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let begun = asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(begun) = begun {
            let delay = delays.lock().unwrap_or_else(PoisonError::into_inner).next();
            sleep_until(begun + delay).await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Lognormal times with a given median and 99th percentile.
struct Delays {
    random: SplitMix,
    /// Mean and standard deviation of the logarithm.
    mean: f64,
    deviation: f64,
}

impl Delays {
    fn new(latency: StoreLatency, seed: u64) -> Self {
        /// The 99th percentile of the standard normal distribution.
        const Z99: f64 = 2.326_348;
        Self {
            random: SplitMix(seed),
            mean: latency.p50_ms.ln(),
            deviation: (latency.p99_ms / latency.p50_ms).ln() / Z99,
        }
    }

    fn next(&mut self) -> Duration {
        // Box and Muller's transform of two even numbers, the first of them never 0.
        let (first, second) = (1.0 - self.even(), self.even());
        let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
        let ms = (self.mean + self.deviation * normal).exp();
        Duration::from_secs_f64(ms.min(60_000.0) / 1e3)
    }

    /// Evenly spread over 0 (included) to 1 (excluded).
    fn even(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn the_drawn_times_have_the_percentiles_asked_for() {
        let latency = StoreLatency {
            p50_ms: 60.0,
            p99_ms: 140.0,
        };
        let mut delays = Delays::new(latency, 7);
        let mut drawn: Vec<f64> = (0..20_000)
            .map(|_| delays.next().as_secs_f64() * 1e3)
            .collect();
        drawn.sort_by(f64::total_cmp);
        assert!((drawn[10_000] - 60.0).abs() < 2.0, "{}", drawn[10_000]);
        assert!((drawn[19_800] - 140.0).abs() < 8.0, "{}", drawn[19_800]);
    }

    #[test]
    fn an_endpoint_with_tls_is_refused() {
        assert!(host_and_port("https://s3.example").is_err());
        assert_eq!(
            host_and_port("http://s3.example/x").ok().as_deref(),
            Some("s3.example:80")
        );
    }

    #[test]
    fn each_answer_of_a_connection_is_delayed_and_passed_unchanged() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let upstream = server.local_addr().expect("the listener has an address");
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("the proxy connects");
            let mut request = [0; 4];
            while stream.read_exact(&mut request).is_ok() {
                stream.write_all(&request).expect("the proxy reads");
            }
        });
        let latency = StoreLatency {
            p50_ms: 40.0,
            p99_ms: 40.0,
        };
        let proxy =
            DelayProxy::start(&format!("http://{upstream}"), latency, 1).expect("the proxy starts");
        let mut client = std::net::TcpStream::connect(proxy.address).expect("the proxy listens");
        for request in [b"one.", b"two."] {
            let begun = std::time::Instant::now();
            client.write_all(request).expect("the proxy reads");
            let mut answer = [0; 4];
            client.read_exact(&mut answer).expect("the proxy answers");
            assert_eq!(&answer, request);
            assert!(begun.elapsed() >= Duration::from_millis(39));
        }
    }
}
