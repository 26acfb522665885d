//! Running the binary. (The harness of the end-to-end tests isn't used: no crate of the product imports it.)

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// The binary with nothing of this process's environment that it could read.
fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["TIDEGATE_", "AWS_"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// How a run ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary in `folder` to its end, which must come soon.
pub fn run(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = tidegate();
    command
        .current_dir(folder)
        .envs(environment.iter().copied())
        .args(arguments);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if watch.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::KILL).ok();
        }
    });
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// A port that nobody listens on, another one each time, and none that the system hands to outgoing connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + start.wrapping_add(step) % 10_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A broker process of its own, killed when dropped.
pub struct Serving {
    child: Child,
    log: PathBuf,
    pub kafka: String,
    pub admin: String,
}

/// The flags of a broker on ports of its own, with the addresses for Kafka and for the admin API.
pub fn own_ports() -> (Vec<String>, String, String) {
    let [kafka, admin, internal] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let flags = [
        ("--kafka-listen", &kafka),
        ("--admin-listen", &admin),
        ("--internal-listen", &internal),
    ];
    let flags = flags
        .iter()
        .flat_map(|(flag, address)| [(*flag).to_owned(), (*address).clone()]);
    (flags.collect(), kafka, admin)
}

impl Serving {
    /// Starts `tidegate serve` in `folder`, its log in the file `log-<port>`, and waits until it answers at all.
    pub fn start(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let (ports, kafka, admin) = own_ports();
        let log = folder.join(format!("log-{}", kafka.rsplit(':').next().unwrap()));
        let mut command = tidegate();
        command
            .current_dir(folder)
            .envs(environment.iter().copied());
        command.arg("serve").args(ports).args(arguments);
        let child = command
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut serving = Self {
            child,
            log,
            kafka,
            admin,
        };
        serving.wait("an answer of /healthz", |serving| {
            serving.get("/healthz").is_some()
        });
        serving
    }

    /// The same, and waits until it is ready.
    pub fn ready(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut serving = Self::start(folder, environment, arguments);
        serving.wait("readiness", |serving| {
            matches!(serving.get("/readyz"), Some((200, _)))
        });
        serving
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn wait(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "ended with {ended:?} instead of {what}:\n{}",
                self.log()
            );
            assert!(
                Instant::now() < deadline,
                "waited for {what} in vain:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Status and body of a page of the admin API, or `None` if it doesn't answer.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut socket = TcpStream::connect(&self.admin).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end; answers the exit code and the log.
    pub fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), self.log());
            }
            assert!(Instant::now() < deadline, "it doesn't end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn stop(self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        self.end()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Every file below a folder with its contents, to see what a run changed.
pub fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
                files.push((path, Vec::new()));
            } else {
                let bytes = std::fs::read(&path).unwrap();
                files.push((path, bytes));
            }
        }
    }
    files.sort();
    files
}
