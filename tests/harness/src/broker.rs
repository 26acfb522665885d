//! One broker under test: start, kill, pause, stop, restart, ask.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::kafka::{KafkaLaunch, launch as launch_kafka};
use crate::scratch::scratch;
use crate::{HttpResponse, Process, S3Server, free_port, http_get, wait_for};

/// Which product a broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The `tidegate` binary: `TIDEGATE_BIN`, else `target/debug/tidegate`.
    Tidegate,
    /// Apache Kafka, to prove an expectation.
    ApacheKafka,
}

impl Target {
    /// `TIDEGATE_TEST_TARGET`: `tidegate` (default) or `kafka`.
    pub fn from_environment() -> Self {
        match std::env::var("TIDEGATE_TEST_TARGET").as_deref() {
            Ok("kafka") => Self::ApacheKafka,
            _ => Self::Tidegate,
        }
    }
}

/// The broker's default durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged from the local disk.
    Local,
    /// Acknowledged from object storage.
    Object,
}

impl Durability {
    fn flag(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Object => "object",
        }
    }
}

/// Where the broker keeps its objects.
#[derive(Debug, Clone)]
pub enum Store {
    /// A folder in the data dir: the embedded default.
    Folder,
    /// A bucket and prefix of an S3 server, reached through `endpoint` (host:port).
    S3 {
        /// The server itself or a fault proxy before it.
        endpoint: String,
        /// Bucket name.
        bucket: String,
        /// Prefix within the bucket.
        prefix: String,
    },
}

/// A setting that a test turns, with its name in either product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// How long committed offsets of an empty group are kept, in minutes.
    OffsetsRetentionMinutes,
    /// How often expired offsets are looked for, in milliseconds.
    OffsetsRetentionCheckIntervalMs,
    /// How long a new group waits for more members, in milliseconds.
    GroupInitialRebalanceDelayMs,
    /// Whether Metadata creates topics, `true` or `false`.
    AutoCreateTopics,
    /// Partitions of a topic created with −1.
    DefaultPartitions,
    /// Biggest request frame in bytes.
    MaxRequestBytes,
    /// Not-yet-uploaded bytes at which an object is cut.
    UploadSizeBytes,
    /// Age at which not-yet-uploaded records are cut into an object, in milliseconds.
    UploadAgeMs,
    /// Bytes of local disk that the WAL may take.
    WalCapacityBytes,
    /// Bytes of one WAL file.
    WalFileBytes,
}

impl Setting {
    fn kafka_property(self) -> Option<&'static str> {
        Some(match self {
            Self::OffsetsRetentionMinutes => "offsets.retention.minutes",
            Self::OffsetsRetentionCheckIntervalMs => "offsets.retention.check.interval.ms",
            Self::GroupInitialRebalanceDelayMs => "group.initial.rebalance.delay.ms",
            Self::AutoCreateTopics => "auto.create.topics.enable",
            Self::DefaultPartitions => "num.partitions",
            Self::MaxRequestBytes => "socket.request.max.bytes",
            Self::UploadSizeBytes
            | Self::UploadAgeMs
            | Self::WalCapacityBytes
            | Self::WalFileBytes => return None,
        })
    }

    /// The environment variable and the text for a value in the setting's own unit.
    fn tidegate_variable(self, value: &str) -> (&'static str, String) {
        let (name, unit) = match self {
            Self::OffsetsRetentionMinutes => ("TIDEGATE_GROUPS_OFFSETS_RETENTION", "m"),
            Self::OffsetsRetentionCheckIntervalMs => {
                ("TIDEGATE_GROUPS_OFFSETS_RETENTION_CHECK", "ms")
            }
            Self::GroupInitialRebalanceDelayMs => ("TIDEGATE_GROUPS_INITIAL_REBALANCE_DELAY", "ms"),
            Self::AutoCreateTopics => ("TIDEGATE_TOPICS_AUTO_CREATE", ""),
            Self::DefaultPartitions => ("TIDEGATE_TOPICS_DEFAULT_PARTITIONS", ""),
            Self::MaxRequestBytes => ("TIDEGATE_KAFKA_MAX_REQUEST_BYTES", ""),
            Self::UploadSizeBytes => ("TIDEGATE_UPLOAD_SIZE_BYTES", ""),
            Self::UploadAgeMs => ("TIDEGATE_UPLOAD_AGE", "ms"),
            Self::WalCapacityBytes => ("TIDEGATE_WAL_CAPACITY_BYTES", ""),
            Self::WalFileBytes => ("TIDEGATE_WAL_FILE_BYTES", ""),
        };
        (name, format!("{value}{unit}"))
    }
}

/// How a broker is started.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    target: Target,
    durability: Durability,
    store: Store,
    data_dir: Option<PathBuf>,
    settings: Vec<(Setting, String)>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            target: Target::from_environment(),
            durability: Durability::Local,
            store: Store::Folder,
            data_dir: None,
            settings: vec![(Setting::GroupInitialRebalanceDelayMs, "0".into())],
        }
    }
}

impl BrokerOptions {
    /// The default durability of topics.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The object store.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// A data dir of the test's choice (a small file system, say).
    pub fn data_dir(mut self, data_dir: &Path) -> Self {
        self.data_dir = Some(data_dir.to_owned());
        self
    }

    /// Turns one setting.
    pub fn set(mut self, setting: Setting, value: impl ToString) -> Self {
        self.settings.retain(|(known, _)| *known != setting);
        self.settings.push((setting, value.to_string()));
        self
    }

    /// This product, whatever the environment says: for tests of what Kafka hasn't got.
    pub fn tidegate_only(mut self) -> Self {
        self.target = Target::Tidegate;
        self
    }
}

/// A broker process, running or not; its folder and ports stay the same over restarts.
#[derive(Debug)]
pub struct Broker {
    // Dropped first: its log lies in the folder below.
    process: Option<Process>,
    options: BrokerOptions,
    work: TempDir,
    data_dir: PathBuf,
    kafka_port: u16,
    admin_port: u16,
    internal_port: u16,
}

impl Broker {
    /// Starts a broker and waits until it is ready.
    pub fn start(options: BrokerOptions) -> Result<Self> {
        let mut broker = Self::prepare(options)?;
        broker.launch()?;
        broker.wait_ready(Duration::from_secs(60))?;
        Ok(broker)
    }

    /// Makes folder and ports, starts nothing.
    pub fn prepare(options: BrokerOptions) -> Result<Self> {
        let work = scratch("broker")?;
        let data_dir = options
            .data_dir
            .clone()
            .unwrap_or_else(|| work.path().join("data"));
        Ok(Self {
            options,
            data_dir,
            work,
            kafka_port: free_port(),
            admin_port: free_port(),
            internal_port: free_port(),
            process: None,
        })
    }

    /// Starts the process and doesn't wait.
    pub fn launch(&mut self) -> Result<()> {
        if self
            .process
            .as_mut()
            .is_some_and(|process| process.exit_status().is_none())
        {
            bail!("the broker is running already");
        }
        let process = match self.options.target {
            Target::Tidegate => self.launch_tidegate()?,
            Target::ApacheKafka => self.launch_kafka()?,
        };
        self.process = Some(process);
        Ok(())
    }

    fn launch_tidegate(&self) -> Result<Process> {
        let binary = tidegate_binary()?;
        let address = |port: u16| format!("127.0.0.1:{port}");
        let mut environment = Vec::new();
        let mut arguments = vec![
            "serve".to_owned(),
            "--data-dir".into(),
            self.data_dir.display().to_string(),
        ];
        if let Store::S3 {
            endpoint,
            bucket,
            prefix,
        } = &self.options.store
        {
            arguments.extend(["--store".into(), format!("s3://{bucket}/{prefix}")]);
            environment.extend(S3Server::client_environment(endpoint));
        }
        arguments.extend(["--kafka-listen".into(), address(self.kafka_port)]);
        arguments.extend(["--kafka-advertise".into(), address(self.kafka_port)]);
        arguments.extend(["--admin-listen".into(), address(self.admin_port)]);
        arguments.extend(["--internal-listen".into(), address(self.internal_port)]);
        arguments.extend(["--broker-id".into(), "1".into()]);
        arguments.extend(["--durability".into(), self.options.durability.flag().into()]);
        for (setting, value) in &self.options.settings {
            let (name, text) = setting.tidegate_variable(value);
            if *setting == Setting::UploadSizeBytes {
                // What gets an object of its own can't be more than what makes an object.
                environment.push(("TIDEGATE_UPLOAD_OWN_OBJECT_BYTES".to_owned(), text.clone()));
            }
            environment.push((name.to_owned(), text));
        }
        Process::spawn(
            "tidegate",
            &binary,
            arguments,
            &environment,
            &self.log_path(),
        )
    }

    fn launch_kafka(&self) -> Result<Process> {
        std::fs::create_dir_all(&self.data_dir)?;
        let settings = self.options.settings.iter();
        let properties: Vec<(String, String)> = settings
            .filter_map(|(setting, value)| {
                Some((setting.kafka_property()?.to_owned(), value.clone()))
            })
            .collect();
        launch_kafka(&KafkaLaunch {
            work_dir: self.work.path(),
            data_dir: &self.data_dir,
            port: self.kafka_port,
            controller_port: self.internal_port,
            properties: &properties,
            log: &self.log_path(),
        })
    }

    /// Waits until the broker says that it is ready (Kafka: until it listens).
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<()> {
        let mut ended = Ok(());
        let ready = wait_for("the broker to be ready", timeout, || {
            if let Some(process) = self.process.as_mut()
                && let Err(error) = process.check_alive()
            {
                ended = Err(error);
                return Some(());
            }
            self.is_ready().then_some(())
        });
        ended?;
        ready.with_context(|| format!("end of the log:\n{}", self.log_tail(40)))
    }

    /// Whether `/readyz` answers 200.
    pub fn is_ready(&self) -> bool {
        match self.options.target {
            Target::Tidegate => self
                .admin_get("/readyz")
                .is_ok_and(|answer| answer.status == 200),
            Target::ApacheKafka => {
                std::net::TcpStream::connect(("127.0.0.1", self.kafka_port)).is_ok()
            }
        }
    }

    /// Whether `/healthz` answers 200.
    pub fn is_alive(&self) -> bool {
        self.admin_get("/healthz")
            .is_ok_and(|answer| answer.status == 200)
    }

    /// A page of the admin listener.
    pub fn admin_get(&self, path: &str) -> Result<HttpResponse> {
        http_get(&format!("127.0.0.1:{}", self.admin_port), path)
    }

    /// The sum of a metric over its labels, or `None` when `/metrics` hasn't got it.
    pub fn metric(&self, name: &str) -> Result<Option<f64>> {
        let page = self.admin_get("/metrics")?.body;
        let mut sum = None;
        for line in page.lines() {
            let Some(rest) = line.strip_prefix(name) else {
                continue;
            };
            if rest.starts_with(['{', ' '])
                && let Some(value) = rest
                    .rsplit(' ')
                    .next()
                    .and_then(|text| text.parse::<f64>().ok())
            {
                sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        Ok(sum)
    }

    /// host:port for Kafka clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.kafka_port)
    }

    /// The product under test.
    pub fn target(&self) -> Target {
        self.options.target
    }

    /// The running process.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the broker isn't running")
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.process()?.kill()?;
        self.process = None;
        Ok(())
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let status = self.process()?.terminate(timeout)?;
        self.process = None;
        Ok(status)
    }

    /// SIGSTOP.
    pub fn pause(&mut self) -> Result<()> {
        self.process()?.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&mut self) -> Result<()> {
        self.process()?.signal(Signal::CONT)
    }

    /// `kill -9` and start again, waiting until ready.
    pub fn crash_and_restart(&mut self) -> Result<()> {
        self.kill()?;
        self.launch()?;
        self.wait_ready(Duration::from_secs(60))
    }

    /// Deletes everything on the broker's disk. Only while it isn't running.
    pub fn wipe_data_dir(&self) -> Result<()> {
        if self.process.is_some() {
            bail!("the broker is running");
        }
        if self.data_dir.exists() {
            std::fs::remove_dir_all(&self.data_dir)?;
        }
        Ok(())
    }

    /// The data dir.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The whole log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Where the log is. Of a broker that tests share, it stays after the tests.
    pub fn log_path(&self) -> PathBuf {
        self.work.path().join("broker.log")
    }
}

/// The binary under test.
fn tidegate_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TIDEGATE_BIN") {
        return Ok(path.into());
    }
    // A test binary lies in target/<profile>/deps; the product beside it.
    let own = std::env::current_exe()?;
    let profile = own
        .parent()
        .and_then(Path::parent)
        .context("the test binary has no folder")?;
    let binary = profile.join("tidegate");
    if !binary.exists() {
        bail!(
            "{} is missing: `cargo build -p tidegate` makes it, `cargo xtask test` does all",
            binary.display()
        );
    }
    Ok(binary)
}
