//! A proxy between broker and S3 server that misbehaves by rule.
//!
//! Rules are asked in the order they were added; the first that matches and has uses left decides. They can be
//! added and removed at any time, also for requests on connections that are open already.

mod http1;
mod rules;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

pub use rules::{Action, LoggedRequest, Operation, RuleId, S3Request};

use http1::{Message, read_request, read_response};
use rules::{Rules, error_body};

/// A running proxy; it stops when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: String,
    rules: Arc<Rules>,
    // Its own runtime: the proxy works whether the test is async or not.
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// Starts a proxy before `upstream` (host:port).
    pub fn start(upstream: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let rules = Arc::new(Rules::default());
        runtime.spawn(accept(listener, upstream.to_owned(), Arc::clone(&rules)));
        Ok(Self {
            address,
            rules,
            runtime: Some(runtime),
        })
    }

    /// host:port for clients.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Adds a rule for every request that `matches`.
    pub fn add(
        &self,
        action: Action,
        matches: impl Fn(&S3Request) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.add(action, None, Box::new(matches))
    }

    /// Adds a rule for the next `uses` requests that `matches`.
    pub fn add_times(
        &self,
        uses: usize,
        action: Action,
        matches: impl Fn(&S3Request) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.add(action, Some(uses), Box::new(matches))
    }

    /// Removes one rule.
    pub fn remove(&self, id: RuleId) {
        self.rules.remove(id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.clear();
    }

    /// How often a rule has acted.
    pub fn uses(&self, id: RuleId) -> usize {
        self.rules.uses(id)
    }

    /// All requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.rules.log()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, upstream: String, rules: Arc<Rules>) {
    while let Ok((client, _)) = listener.accept().await {
        let (upstream, rules) = (upstream.clone(), Arc::clone(&rules));
        tokio::spawn(async move {
            // A connection ends when either side closes; that is no news to a test.
            let _ = serve(client, &upstream, &rules).await;
        });
    }
}

async fn serve(mut client: TcpStream, upstream: &str, rules: &Rules) -> Result<()> {
    client.set_nodelay(true)?;
    let mut server: Option<TcpStream> = None;
    loop {
        let Some(message) = read_request(&mut client).await? else {
            return Ok(());
        };
        let request = S3Request::parse(&message)?;
        let action = rules.decide(&request);
        let started = Instant::now();
        let answer = act(action, &message, &request, upstream, &mut server).await?;
        rules.record(&request, answer.as_ref().map(Message::status), started);
        match answer {
            Some(answer) => client.write_all(&answer.bytes()).await?,
            None => {
                // RST instead of FIN: the client can't take it for an answer's end.
                client.set_zero_linger()?;
                return Ok(());
            }
        }
    }
}

/// The answer for the client, or `None` to cut the connection.
async fn act(
    action: Option<Action>,
    message: &Message,
    request: &S3Request,
    upstream: &str,
    server: &mut Option<TcpStream>,
) -> Result<Option<Message>> {
    match action {
        None => Ok(Some(forward(message, upstream, server).await?)),
        Some(Action::Answer { status, code }) => Ok(Some(Message::answer(
            status,
            &error_body(code, &request.key),
        ))),
        Some(Action::WrongClock { date }) => {
            let body = error_body("RequestTimeTooSkewed", &request.key);
            let mut answer = Message::answer(403, &body);
            answer.headers.push(("Date".into(), date.into()));
            Ok(Some(answer))
        }
        Some(Action::Delay(duration)) => {
            tokio::time::sleep(duration).await;
            Ok(Some(forward(message, upstream, server).await?))
        }
        Some(Action::Hang) => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(None)
        }
        Some(Action::DropReply) => {
            forward(message, upstream, server).await?;
            Ok(None)
        }
        Some(Action::Reset) => Ok(None),
        Some(Action::ReplaceReply { status, code }) => {
            forward(message, upstream, server).await?;
            Ok(Some(Message::answer(
                status,
                &error_body(code, &request.key),
            )))
        }
        Some(Action::HideFromListing(hidden)) => {
            let mut answer = forward(message, upstream, server).await?;
            let filtered =
                rules::hide_keys(&String::from_utf8_lossy(&answer.body), |key| hidden(key));
            answer.set_body(filtered.into_bytes());
            Ok(Some(answer))
        }
    }
}

async fn forward(
    message: &Message,
    upstream: &str,
    server: &mut Option<TcpStream>,
) -> Result<Message> {
    // A kept-alive connection may have been closed meanwhile: a second try gets a fresh one.
    for fresh in [false, true] {
        if fresh || server.is_none() {
            let stream = TcpStream::connect(upstream)
                .await
                .context("the S3 server doesn't listen")?;
            stream.set_nodelay(true)?;
            *server = Some(stream);
        }
        let Some(stream) = server.as_mut() else {
            continue;
        };
        let result = async {
            stream.write_all(&message.bytes()).await?;
            read_response(stream, message.is_head()).await
        };
        match result.await {
            Ok(answer) => {
                if answer.closes() {
                    *server = None;
                }
                return Ok(answer);
            }
            Err(error) if fresh => return Err(error),
            Err(_) => *server = None,
        }
    }
    anyhow::bail!("unreachable: the second try returns")
}
