//! One broker under test: start, kill, pause, stop, restart, ask.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::kafka::{KafkaLaunch, launch as launch_kafka};
use crate::options::{BrokerOptions, Setting, Store, Target};
use crate::scratch::scratch;
use crate::{HttpResponse, Process, S3Server, free_port, http_get, wait_for};

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
            if let Some(credentials) = &self.options.credentials {
                environment.retain(|(name, _)| {
                    !["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&&**name)
                });
                environment.extend(credentials.iter().cloned());
            }
        }
        arguments.extend(["--kafka-listen".into(), address(self.kafka_port)]);
        arguments.extend(["--kafka-advertise".into(), address(self.kafka_port)]);
        arguments.extend(["--admin-listen".into(), address(self.admin_port)]);
        arguments.extend(["--internal-listen".into(), address(self.internal_port)]);
        if let Some(id) = self.options.broker_id {
            arguments.extend(["--broker-id".into(), id.to_string()]);
        }
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

    /// host:port of the admin API.
    pub fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin_port)
    }

    /// The number it was started with.
    pub fn id(&self) -> Option<u32> {
        self.options.broker_id
    }

    /// Whether its process runs (or is paused).
    pub fn is_running(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| process.exit_status().is_none())
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
pub fn tidegate_binary() -> Result<PathBuf> {
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
