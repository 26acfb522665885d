//! `raw-put`: PUTs straight to an object store. A broker that acknowledges from the store can't be faster
//! than this, so this is what it is measured against.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cli::RawPutArgs;
use crate::payload::SplitMix;
use crate::produce::{new_mark, window};
use crate::recorder::{Nanos, Recorder, nanos_since};
use crate::report::{Report, Throughput};
use crate::timeline::{Progress, Timeline};

pub fn run(args: &RawPutArgs) -> Result<Report> {
    let (store, prefix) = open(&args.store)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start a runtime")?;
    runtime.block_on(measure(args, store, prefix))
}

/// Opens the store without retries: a second try would hide in the latency.
fn open(url: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let retry = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("file", url));
    let prefix = rest.split_once('/').map_or("", |(_, prefix)| prefix);
    let store: Arc<dyn ObjectStore> = match scheme {
        "s3" => Arc::new(
            AmazonS3Builder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()?,
        ),
        "gs" => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()?,
        ),
        "az" => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_url(url)
                .with_retry(retry)
                .build()?,
        ),
        "file" => {
            std::fs::create_dir_all(rest)
                .with_context(|| format!("could not create the folder {rest}"))?;
            let store = LocalFileSystem::new_with_prefix(rest)
                .with_context(|| format!("could not open the folder {rest}"))?;
            return Ok((Arc::new(store), Path::default()));
        }
        other => bail!("`{other}://` is no store: use s3://, gs://, az:// or a folder"),
    };
    Ok((
        store,
        Path::parse(prefix).with_context(|| format!("`{prefix}` is no prefix"))?,
    ))
}

/// One PUT after another, all what a task needs.
#[derive(Clone)]
struct Putter {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    payload: PutPayload,
    mode: PutMode,
    size: u64,
    recorder: Arc<Recorder>,
}

impl Putter {
    fn key(&self, index: u64) -> Path {
        self.folder.clone().join(format!("{index:08}"))
    }

    async fn put(&self, index: u64, planned: Nanos) {
        let options = PutOptions::from(self.mode.clone());
        match self
            .store
            .put_opts(&self.key(index), self.payload.clone(), options)
            .await
        {
            Ok(_) => self.recorder.arrived(planned, self.size),
            Err(error) => self.recorder.failed(kind(&error)),
        }
    }
}

/// What failed, without what differs from PUT to PUT (key, duration, request id).
fn kind(error: &object_store::Error) -> String {
    let text = error.to_string();
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code);
    let status = text
        .split_once("status code: ")
        .map(|(_, rest)| rest.split(':').next().unwrap_or(rest));
    match (code, status) {
        (Some(code), Some(status)) => format!("{code} ({})", status.trim()),
        (None, Some(status)) => status.trim().to_owned(),
        (_, None) => match error {
            object_store::Error::Generic { source, .. } => root_cause(source.as_ref()),
            object_store::Error::AlreadyExists { .. } => "the object exists already".to_owned(),
            other => other.to_string(),
        },
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// One PUT before the clock runs: a missing bucket or a wrong key is an error, not a measurement.
async fn try_once(putter: &Putter, target: &str) -> Result<()> {
    let key = putter.folder.clone().join("trial");
    let options = PutOptions::from(putter.mode.clone());
    let put = putter
        .store
        .put_opts(&key, putter.payload.clone(), options)
        .await;
    if let Err(error) = put {
        bail!("can't PUT to {target}: {}", kind(&error));
    }
    putter
        .store
        .delete(&key)
        .await
        .with_context(|| format!("can't delete from {target}"))
}

async fn measure(args: &RawPutArgs, store: Arc<dyn ObjectStore>, prefix: Path) -> Result<Report> {
    let mut report = Report::begin("raw-put", &args.store, args)?;
    let mark = new_mark();
    let size = usize::try_from(args.size).context("the object size is too large")?;
    let mut payload = vec![0; size];
    SplitMix(mark).fill(&mut payload);
    let mut putter = Putter {
        store,
        folder: prefix.join("raw-put").join(format!("{mark:016x}")),
        payload: payload.into(),
        mode: if args.overwrite {
            PutMode::Overwrite
        } else {
            PutMode::Create
        },
        size: args.size,
        recorder: Arc::new(Recorder::new(
            Instant::now(),
            window(args.warmup, args.duration),
        )),
    };
    try_once(&putter, &args.store).await?;
    let origin = Instant::now();
    putter.recorder = Arc::new(Recorder::new(origin, window(args.warmup, args.duration)));
    let progress = Progress::new("raw-put", Some(args.warmup + args.duration));
    let mut timeline = Timeline::new(origin, args.output.interval, progress);
    let planned = match args.rate {
        None => one_after_another(args, &putter, origin, &mut timeline).await,
        Some(rate) => at_a_rate(args, rate, &putter, origin, &mut timeline).await,
    };
    report.timeline = timeline.finish();
    for index in 0..planned {
        if let Err(error) = putter.store.delete(&putter.key(index)).await
            && !matches!(error, object_store::Error::NotFound { .. })
        {
            report.notes.push(format!(
                "objects are left under {}: {}",
                putter.folder,
                kind(&error)
            ));
            break;
        }
    }
    let recorded = putter.recorder.recorded();
    report.throughput = Some(Throughput::of(recorded.measured, args.duration));
    report.add_latency("put", &recorded.latencies);
    report.errors = recorded.errors;
    report.finish(recorded.all);
    Ok(report)
}

/// Answers how many PUTs were tried.
async fn one_after_another(
    args: &RawPutArgs,
    putter: &Putter,
    origin: Instant,
    timeline: &mut Timeline,
) -> u64 {
    let mut index = 0;
    while origin.elapsed() < args.warmup + args.duration {
        putter.put(index, nanos_since(origin)).await;
        index += 1;
        if timeline.due() {
            timeline.sample(&[&putter.recorder], None);
        }
    }
    index
}

/// Keeps to the plan `index / rate`; a PUT that must wait for its turn is late from its planned time on.
async fn at_a_rate(
    args: &RawPutArgs,
    rate: f64,
    putter: &Putter,
    origin: Instant,
    timeline: &mut Timeline,
) -> u64 {
    let turns = Arc::new(Semaphore::new(args.in_flight as usize));
    let mut puts = JoinSet::new();
    let end = (args.warmup + args.duration).as_nanos() as f64;
    let mut index = 0_u64;
    loop {
        let planned = index as f64 / rate * 1e9;
        if planned >= end {
            break;
        }
        let mut planned = planned as Nanos;
        tokio::time::sleep_until((origin + Duration::from_nanos(planned)).into()).await;
        if turns.available_permits() > 0 {
            // The timer wakes up to a millisecond late, which is no fault of the store.
            planned = nanos_since(origin);
        }
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            break;
        };
        let task = putter.clone();
        puts.spawn(async move {
            task.put(index, planned).await;
            drop(turn);
        });
        while puts.try_join_next().is_some() {}
        index += 1;
        if timeline.due() {
            timeline.sample(&[&putter.recorder], None);
        }
    }
    while puts.join_next().await.is_some() {}
    index
}
