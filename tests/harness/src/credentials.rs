//! A service that hands out S3 credentials of a short life, as the ones inside container platforms do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tempfile::TempDir;

use crate::s3::{ACCESS_KEY, SECRET_KEY};
use crate::scratch::scratch;

/// Answers each question for credentials with new ones, valid for the service's lifetime. They are always the S3
/// server's one key pair, without a session token, which it doesn't know.
#[derive(Debug)]
pub struct CredentialService {
    shared: Arc<Shared>,
    work: TempDir,
}

#[derive(Debug)]
struct Shared {
    address: String,
    lifetime: Duration,
    renews: AtomicBool,
    stopped: AtomicBool,
    handed_out: AtomicUsize,
    latest: Mutex<Duration>,
}

impl CredentialService {
    /// Starts on a port of its own.
    pub fn start(lifetime: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?.to_string(),
            lifetime,
            renews: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            handed_out: AtomicUsize::new(0),
            latest: Mutex::default(),
        });
        let work = scratch("credentials")?;
        std::fs::write(work.path().join("token"), "who asks")?;
        let serving = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("credential-service".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if serving.stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    // A client that has gone away is no news to a test.
                    let _ = stream.and_then(|stream| serving.answer(stream));
                }
            })?;
        Ok(Self { shared, work })
    }

    /// Whether new credentials are handed out, or the latest again and again although they expire.
    pub fn renew(&self, renews: bool) {
        self.shared.renews.store(renews, Ordering::Relaxed);
    }

    /// How many different credentials were handed out.
    pub fn handed_out(&self) -> usize {
        self.shared.handed_out.load(Ordering::Relaxed)
    }

    /// Says whether all credentials that were handed out have expired: a store would refuse its requests then.
    pub fn expired(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || *shared.latest() <= since_1970()
    }

    /// What a client needs to ask here. The file that proves who asks never changes.
    pub(crate) fn client_environment(&self) -> Vec<(String, String)> {
        let token_file = self.work.path().join("token").display().to_string();
        [
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                format!("http://{}/", self.shared.address),
            ),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token_file),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }
}

impl Drop for CredentialService {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread, which looks at the flag.
        let _ = TcpStream::connect(&self.shared.address);
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let until = self.until();
        let body = format!(
            r#"{{"AccessKeyId":"{ACCESS_KEY}","SecretAccessKey":"{SECRET_KEY}","Token":"","Expiration":"{}"}}"#,
            rfc_3339(until.as_secs()),
        );
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn until(&self) -> Duration {
        let mut latest = self.latest();
        if self.renews.load(Ordering::Relaxed) {
            *latest = since_1970() + self.lifetime;
            self.handed_out.fetch_add(1, Ordering::Relaxed);
        }
        *latest
    }

    fn latest(&self) -> MutexGuard<'_, Duration> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970")
}

/// `1994-11-06T08:49:37Z` of the seconds since 1970.
fn rfc_3339(seconds: u64) -> String {
    let (mut day, in_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!(
        "{year}-{month:02}-{:02}T{:02}:{:02}:{:02}Z",
        day + 1,
        in_day / 3600,
        in_day / 60 % 60,
        in_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc_3339(seconds), text);
        }
    }
}
