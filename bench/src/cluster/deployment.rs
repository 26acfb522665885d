//! The brokers under test with their store: started here, or running already.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::admin::AdminApi;
use super::args::{ClusterArgs, Durability};
use super::delay_proxy::DelayProxy;
use super::process::{BrokerProcess, Launch};
use crate::produce::new_mark;

/// Where an S3 client looks for its endpoint.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Brokers started here.
pub struct Deployment {
    pub brokers: Vec<BrokerProcess>,
    launch: Launch,
    work: PathBuf,
    /// A store within the work folder, removed with it.
    own_store: Option<PathBuf>,
    keep: bool,
    patience: Duration,
    _proxy: Option<DelayProxy>,
}

impl Deployment {
    /// Starts all brokers and waits until they are ready.
    pub fn start(args: &ClusterArgs, default: Durability) -> Result<Self> {
        let work = args.work_dir.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("tidegate-bench-{:016x}", new_mark()))
        });
        std::fs::create_dir_all(&work)
            .with_context(|| format!("could not create the folder {}", work.display()))?;
        let work = work.canonicalize()?;
        let own_store = args.store.is_none().then(|| work.join("store"));
        let store = match (&args.store, &own_store) {
            (Some(url), _) => url.clone(),
            (None, Some(folder)) => folder.display().to_string(),
            (None, None) => bail!("there is no store"),
        };
        let mut environment = args.broker_env.clone();
        let proxy = delayed(args, &store, &mut environment)?;
        let launch = Launch {
            program: program(args)?,
            store,
            durability: args.durability.unwrap_or(default).flag(),
            environment,
        };
        let mut deployment = Self {
            brokers: Vec::new(),
            launch,
            work,
            own_store,
            keep: args.keep,
            patience: args.timeout,
            _proxy: proxy,
        };
        for _ in 0..args.brokers {
            deployment.add()?;
        }
        for broker in &mut deployment.brokers {
            broker.await_ready(args.timeout)?;
        }
        Ok(deployment)
    }

    /// Starts one more broker and doesn't wait. Answers its number.
    pub fn add(&mut self) -> Result<i32> {
        let id = i32::try_from(self.brokers.len())? + 1;
        let mut broker = BrokerProcess::prepare(id, &self.launch, &self.work)?;
        broker.start()?;
        self.brokers.push(broker);
        Ok(id)
    }

    pub fn broker(&mut self, id: i32) -> Result<&mut BrokerProcess> {
        self.brokers
            .iter_mut()
            .find(|broker| broker.id == id)
            .with_context(|| format!("broker {id} wasn't started here"))
    }

    /// Starts a killed broker again and waits until it is ready.
    pub fn restart(&mut self, id: i32) -> Result<()> {
        let patience = self.patience;
        let broker = self.broker(id)?;
        broker.start()?;
        broker.await_ready(patience)
    }

    pub fn bootstrap(&self) -> String {
        let all: Vec<String> = self.brokers.iter().map(BrokerProcess::bootstrap).collect();
        all.join(",")
    }

    pub fn admin(&self) -> AdminApi {
        AdminApi::new(self.brokers.iter().map(BrokerProcess::admin).collect())
    }

    /// Where logs and data are.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Ends the brokers of a run that went well; nothing stays but what `--keep` asks for.
    pub fn finish(mut self) -> Result<()> {
        self.brokers.clear();
        if self.keep {
            return Ok(());
        }
        // Anything else in a folder the user named isn't ours to remove.
        for id in 1.. {
            let folder = self.work.join(format!("broker-{id}"));
            if !folder.exists() {
                break;
            }
            std::fs::remove_dir_all(folder)?;
        }
        if let Some(store) = self.own_store.take().filter(|store| store.exists()) {
            std::fs::remove_dir_all(store)?;
        }
        // Refused while something else is in it.
        let _ = std::fs::remove_dir(&self.work);
        Ok(())
    }
}

impl Drop for Deployment {
    /// After a failure logs stay, and data doesn't: it is large and of no use without its brokers.
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for mut broker in self.brokers.drain(..) {
            let _ = broker.kill();
            let _ = std::fs::remove_dir_all(broker.data());
        }
        if let Some(store) = &self.own_store {
            let _ = std::fs::remove_dir_all(store);
        }
    }
}

/// The proxy before the S3 server, if one is asked for; the brokers' environment then names it.
fn delayed(
    args: &ClusterArgs,
    store: &str,
    environment: &mut Vec<(String, String)>,
) -> Result<Option<DelayProxy>> {
    let Some(latency) = args.s3_latency_ms else {
        return Ok(None);
    };
    if !store.starts_with("s3://") {
        bail!("--s3-latency-ms delays an S3 server: give one with --store s3://bucket/prefix");
    }
    let endpoint = ENDPOINTS
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .context("--s3-latency-ms needs AWS_ENDPOINT_URL: the S3 server before which to wait")?;
    let proxy = DelayProxy::start(&endpoint, latency, args.seed)?;
    for name in ENDPOINTS {
        environment.push((name.to_owned(), proxy.endpoint()));
    }
    environment.push(("AWS_ALLOW_HTTP".to_owned(), "true".to_owned()));
    Ok(Some(proxy))
}

/// The binary to start.
fn program(args: &ClusterArgs) -> Result<PathBuf> {
    if let Some(file) = &args.tidegate_bin {
        return Ok(file.clone());
    }
    let own = std::env::current_exe()?;
    let beside = own.parent().map(|folder| folder.join("tidegate"));
    if let Some(file) = beside.filter(|file| file.is_file()) {
        return Ok(file);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("tidegate"))
        .find(|file| file.is_file())
        .context("there is no `tidegate` beside this program or on the path: use --tidegate-bin")
}
