//! `tidegate demo`: a cluster that a newcomer can watch moving partitions and losing a broker, on this machine alone.
//!
//! Three brokers are children of this process, over one store in a folder. A producer writes to every partition and a
//! consumer reads; meanwhile partitions move from broker to broker, and a broker is killed and comes back. The demo
//! tells how long each partition stood still for either client, and at the end that every acknowledged record was
//! read once.
//!
//! ```text
//! mod (the command) ─► stage ─► children (processes), producer and consumer ─► kafka (a small client)
//!                        │                                 └─► ledger (what was acknowledged and read, and when)
//!                        └─► acts (what happens) ─► administration (the admin API), report (lines or JSON)
//! ```
//!
//! It promises:
//!
//! * The figures are what a client sees. A gap is the longest time without an acknowledgement (or without a record
//!   read) around an act, less what is normal between two.
//! * Topics are durable in object storage, so that partitions of a killed broker go on elsewhere.
//! * When it ends, also by Ctrl-C or by being killed itself, its brokers end; a temporary folder is removed.
//! * Exit codes: 0 all was well, 1 something was lost, repeated or failed, 130 it was told twice to stop.
//!
//! It deliberately knows the brokers only from outside: their command line, their admin API, Kafka's protocol.

mod acts;
mod administration;
mod children;
mod consumer;
mod kafka;
mod ledger;
mod producer;
mod report;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use self::children::{Broker, Folder, FreePorts};
use self::report::{Event, Teller};
use self::stage::{Stage, Stuck};
use crate::config::Setting;
use crate::signals::StopSignals;

const BROKERS: u32 = 3;
const EXIT_NOT_WELL: u8 = 1;
const EXIT_AT_ONCE: u8 = 130;

/// What `tidegate demo` takes.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// End after so long, as 30s or 5m; else at Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// End after one round of moves, one killed broker and its return
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// Partitions of the topic
    #[arg(long, value_name = "NUMBER", default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=200))]
    partitions: u32,
    /// Keep store, broker folders and logs here, instead of in a temporary folder
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    Setting::parse(text)
}

/// How the demo ended.
enum End {
    Well,
    NotWell,
    AtOnce,
}

/// Shows it.
pub fn run(options: &Options) -> ExitCode {
    // One thread does all, for its whole life: brokers are tied to the life of the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let shown = match runtime {
        Ok(runtime) => runtime.block_on(Box::pin(show(options))),
        Err(error) => Err(format!("can't start: {error}")),
    };
    match shown {
        Ok(End::Well) => ExitCode::SUCCESS,
        Ok(End::NotWell) => ExitCode::from(EXIT_NOT_WELL),
        Ok(End::AtOnce) => ExitCode::from(EXIT_AT_ONCE),
        Err(stuck) => {
            eprintln!("error: {stuck}");
            ExitCode::from(EXIT_NOT_WELL)
        }
    }
}

async fn show(options: &Options) -> Result<End, Stuck> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    let mut signals = StopSignals::listen().map_err(told("can't listen for signals"))?;
    let folder = Folder::prepare(options.folder.clone()).map_err(told("can't make the folder"))?;
    let mut ports = FreePorts::new();
    let mut brokers = Vec::new();
    for id in 1..=BROKERS {
        let broker = Broker::prepare(id, folder.path(), &mut ports);
        brokers.push(broker.map_err(told("can't prepare a broker"))?);
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let topic = format!("demo-{}", since.map_or(0, |since| since.as_secs()));
    let teller = Teller { json: options.json };
    let mut stage = Stage::new(brokers, topic, options.partitions, teller)?;
    stage.tell(&Event::Starting {
        brokers: BROKERS,
        folder: folder.path().display().to_string(),
        kafka: stage.brokers.iter().map(|one| one.kafka.clone()).collect(),
        admin: stage.brokers.iter().map(|one| one.admin.clone()).collect(),
    });
    for broker in &mut stage.brokers {
        broker.start().map_err(told("can't start a broker"))?;
    }
    // Cancel-safe: what is left of an act is ended or summed up below.
    let played = tokio::select! {
        played = Box::pin(play(&mut stage, options)) => played,
        _ = signals.next() => Ok(()),
    };
    let ended = tokio::select! {
        ended = Box::pin(sum_up(&mut stage, &folder, played)) => ended,
        _ = signals.next() => Ok(End::AtOnce),
    };
    // Brokers first, then the folder they write to.
    drop(stage);
    drop(folder);
    ended
}

async fn play(stage: &mut Stage, options: &Options) -> Result<(), Stuck> {
    stage.set().await?;
    let end = options.duration.map(|duration| Instant::now() + duration);
    let over = || end.is_some_and(|end| Instant::now() >= end);
    let mut number = 0;
    loop {
        stage.round(number, over).await?;
        if options.once || over() {
            return Ok(());
        }
        number += 1;
    }
}

async fn sum_up(
    stage: &mut Stage,
    folder: &Folder,
    played: Result<(), Stuck>,
) -> Result<End, Stuck> {
    if !stage.has_clients() {
        children::end(&mut stage.brokers, folder).await;
        return played.map(|()| End::Well);
    }
    if let Err(stuck) = played {
        stage.ledger.fail(stuck);
    }
    let summary = stage.finish().await;
    let end = if summary.is_good() {
        End::Well
    } else {
        End::NotWell
    };
    stage.tell(&Event::Summary(summary));
    children::end(&mut stage.brokers, folder).await;
    Ok(end)
}
