//! `tidegate serve`: the life of the process from its configuration to its exit code.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tidegate_admin_api::{AdminState, Readiness as Shown, Token};
use tidegate_broker::{Node, Readiness};
use tidegate_cluster::view::ClusterView;
use tidegate_runtime::{OnExit, StopReason, Tasks};
use tidegate_types::WithCauses;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::config::{Config, LogFormat};
use crate::logging;
use crate::settings::node_settings;
use crate::signals::StopSignals;
use crate::version::{COMMIT, VERSION};

/// Something that the operator must mend kept the broker from starting.
const EXIT_START: u8 = 1;
/// A part that mustn't end has ended (`EX_SOFTWARE` of sysexits).
const EXIT_PART_DIED: u8 = 70;
/// The cluster has ended this life of the broker, and the process couldn't begin another (`EX_TEMPFAIL`).
const EXIT_FENCED: u8 = 75;
/// Told twice to stop: 128 and the number of SIGINT, as shells have it.
const EXIT_AT_ONCE: i32 = 130;
/// What is left of the process after a part has died gets so long to stop.
const STOP_AFTER_DEATH: Duration = Duration::from_secs(5);
/// Requests to the admin API that are under way at the end, and blocking calls, get so long.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Threads for blocking calls: reads of files and of folders that are stores. Each keeps some memory of the
/// allocator's, so there are no more than a disk needs to be kept busy.
const BLOCKING_THREADS: usize = 16;

/// How the life of the process ended.
enum End {
    /// By a signal.
    Told,
    /// The broker found that it can't go on; it has logged why.
    Failed,
    /// The cluster went on without this broker; it may come back under a new registration.
    Fenced,
    PartDied,
}

/// Why it couldn't begin.
type StartFailure = Box<dyn Error + Send + Sync>;

/// Serves until a signal comes.
pub fn run(config: &Config) -> ExitCode {
    logging::start(
        &config.log,
        std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
    );
    let built = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidegate")
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => return refuse(config, &error),
    };
    let end = runtime.block_on(Box::pin(live(config)));
    runtime.shutdown_timeout(LAST_PATIENCE);
    match end {
        Ok(End::Told) => ExitCode::SUCCESS,
        Ok(End::Failed) => ExitCode::from(EXIT_START),
        Ok(End::Fenced) => begin_again(),
        Ok(End::PartDied) => ExitCode::from(EXIT_PART_DIED),
        Err(failure) => refuse(config, failure.as_ref()),
    }
}

/// Starts the process image anew, with the same arguments: no state of the life that ended can leak into the next.
fn begin_again() -> ExitCode {
    use std::os::unix::process::CommandExt;

    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "tidegate".into());
    // This names the running program even if its file was replaced or removed.
    let error = std::process::Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .exec();
    error!(
        error = &error as &dyn Error,
        "the broker can't begin anew by itself: start it again"
    );
    ExitCode::from(EXIT_FENCED)
}

/// Tells why the broker couldn't start: to people one line, to machines a log line.
fn refuse(config: &Config, failure: &(dyn Error + 'static)) -> ExitCode {
    let cause = WithCauses(failure);
    match config.log.format {
        LogFormat::Text => eprintln!("error: {cause}"),
        LogFormat::Json => error!(%cause, "the broker can't start"),
    }
    ExitCode::from(EXIT_START)
}

async fn live(config: &Config) -> Result<End, StartFailure> {
    let mut signals = StopSignals::listen()?;
    let tasks = Tasks::new("tidegate");
    // The port is taken first: nothing has been written if somebody else has it.
    let listener = bind_admin(config.admin.listen).await?;
    let admin_address = listener.local_addr()?;
    let admin = Tasks::new("admin");
    let (shown, readiness) = watch::channel(Shown::NotReady {
        cause: "starting".to_owned(),
    });
    let shown = Arc::new(shown);
    let (joined, cluster) = watch::channel(None);
    let shown_registry = Arc::new(OnceLock::new());
    // It answers while the write-ahead log is still being read.
    serve_admin(
        &admin,
        listener,
        AdminState {
            readiness,
            registry: shown_registry.clone(),
            cluster,
            token: Token::new(config.admin.token.expose()),
        },
    );
    let mut registry = Registry::with_prefix("tidegate");
    register_build(&mut registry);
    // Cancel-safe: a start that is given up leaves what a crash would leave, which the next start expects.
    let node = tokio::select! {
        started = Box::pin(Node::start(node_settings(config), &mut registry, tasks.child("broker"))) => started,
        signal = signals.next() => {
            info!(signal, "stopped while starting");
            end_admin(&admin).await;
            return Ok(End::Told);
        }
    };
    let node = match node {
        Ok(node) => node,
        Err(failure) => {
            end_admin(&admin).await;
            return Err(failure.into());
        }
    };
    // This is the only place that sets it.
    let _ = shown_registry.set(registry);
    show_cluster(&tasks, node.cluster(), joined);
    tell_start(config, &node, admin_address);
    show_readiness(&tasks, node.readiness(), shown.clone());

    let mut readiness = node.readiness();
    let end = tokio::select! {
        signal = signals.next() => {
            info!(signal, "told to stop");
            End::Told
        }
        reason = tasks.stop_requested() => part_died(&reason),
        reason = admin.stop_requested() => part_died(&reason),
        end = over(&mut readiness) => end,
    };
    shown.send_replace(Shown::NotReady {
        cause: "stopping".to_owned(),
    });
    let patience = match end {
        End::Told => config.top.stop_timeout,
        End::Failed | End::Fenced | End::PartDied => STOP_AFTER_DEATH,
    };
    tokio::select! {
        () = stop(node, &tasks, patience) => {}
        signal = signals.next() => {
            warn!(signal, "told again to stop: ending at once");
            std::process::exit(EXIT_AT_ONCE);
        }
    }
    end_admin(&admin).await;
    info!("stopped");
    Ok(end)
}

/// Ends the admin API after the requests under way.
async fn end_admin(admin: &Tasks) {
    if let Err(running) = admin.shutdown(LAST_PATIENCE).await {
        info!(
            requests = running.count,
            "requests to the admin API were cut off"
        );
    }
}

async fn bind_admin(address: SocketAddr) -> Result<TcpListener, StartFailure> {
    TcpListener::bind(address).await.map_err(|error| {
        format!("can't listen for the admin API on {address}: use another --admin-listen, or stop what holds the port: {error}")
            .into()
    })
}

fn serve_admin(tasks: &Tasks, listener: TcpListener, state: AdminState) {
    let token = tasks.token().clone();
    tasks.spawn("admin api", OnExit::StopProcess, async move {
        let served: io::Result<()> =
            tidegate_admin_api::serve(listener, state, token.cancelled_owned()).await;
        if let Err(error) = served {
            error!(error = &error as &dyn Error, "the admin API ended");
        }
    });
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: String,
    commit: String,
}

fn register_build(registry: &mut Registry) {
    let build = Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: COMMIT.to_owned(),
    };
    registry.register("build", "What runs", Info::new(build));
}

fn tell_start(config: &Config, node: &Node, admin: SocketAddr) {
    let summary = node.summary();
    info!(
        kafka = %summary.kafka,
        advertised = %format_args!("{}:{}", summary.advertised.host, summary.advertised.port),
        admin = %format_args!("http://{admin}"),
        store = %config.store_url(),
        durability = %config.top.durability,
        broker = %summary.broker.map_or_else(|| "new".to_owned(), |id| id.to_string()),
        data_dir = %summary.data_dir.display(),
        version = VERSION,
        "serving"
    );
    if !admin.ip().is_loopback() && config.admin.token.expose().is_empty() {
        warn!(
            "the admin API listens beyond this machine and asks for no token: set TIDEGATE_ADMIN_TOKEN"
        );
    }
}

/// Shows the broker's readiness to the admin API. The broker itself logs its changes.
fn show_readiness(
    tasks: &Tasks,
    mut readiness: watch::Receiver<Readiness>,
    shown: Arc<watch::Sender<Shown>>,
) {
    let token = tasks.token().clone();
    tasks.spawn("readiness", OnExit::Expected, async move {
        loop {
            let now = readiness.borrow_and_update().clone();
            shown.send_replace(match now {
                Readiness::Ready => Shown::Ready,
                Readiness::Starting { step } => Shown::NotReady {
                    cause: format!("starting: {step}"),
                },
                Readiness::StoreInaccessible { cause } => Shown::NotReady {
                    cause: format!("the object store is inaccessible: {cause}"),
                },
                Readiness::Failed { cause } | Readiness::Fenced { cause } => {
                    Shown::NotReady { cause }
                }
            });
            // Cancel-safe: a change that isn't waited for is seen by the next look.
            tokio::select! {
                () = token.cancelled() => return,
                changed = readiness.changed() => if changed.is_err() { return },
            }
        }
    });
}

/// Hands the cluster to the admin API once the broker has joined it.
fn show_cluster(
    tasks: &Tasks,
    mut cluster: watch::Receiver<Option<ClusterView>>,
    shown: watch::Sender<Option<ClusterView>>,
) {
    let token = tasks.token().clone();
    tasks.spawn("cluster view", OnExit::Expected, async move {
        // Cancel-safe: a change that isn't waited for is seen by the next look.
        tokio::select! {
            () = token.cancelled() => {}
            joined = cluster.wait_for(Option::is_some) => {
                if let Ok(joined) = joined {
                    shown.send_replace(joined.clone());
                }
            }
        }
    });
}

/// Waits until the broker says that its life is over.
async fn over(readiness: &mut watch::Receiver<Readiness>) -> End {
    let last = readiness
        .wait_for(|now| matches!(now, Readiness::Failed { .. } | Readiness::Fenced { .. }))
        .await
        .map(|last| matches!(*last, Readiness::Fenced { .. }));
    match last {
        Ok(true) => End::Fenced,
        Ok(false) => End::Failed,
        // The sender is gone without a last word: the broker's tasks decide.
        Err(_) => std::future::pending().await,
    }
}

fn part_died(reason: &StopReason) -> End {
    error!(owner = &*reason.owner, task = &*reason.task, cause = ?reason.cause, "a vital part has ended: the process must end");
    End::PartDied
}

/// Stops the broker, then what is left, within `patience`.
async fn stop(node: Node, tasks: &Tasks, patience: Duration) {
    if tokio::time::timeout(patience, Box::pin(node.stop(patience)))
        .await
        .is_err()
    {
        warn!(
            patience_ms = patience.as_millis(),
            "the broker didn't stop in time: its log is recovered at the next start"
        );
    }
    if let Err(running) = tasks.shutdown(LAST_PATIENCE).await {
        warn!(tasks = running.count, "tasks were cut off");
    }
}
