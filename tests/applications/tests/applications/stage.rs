//! Three brokers over one bucket, and what happens to them while an application runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidegate_harness::{BrokerOptions, Cluster, Durability, Process, S3Server, Setting, Store};

const READY: Duration = Duration::from_secs(60);
const BUCKET: &str = "applications";

/// Few, so that a moved one is likely to be of use.
const INTERNAL_PARTITIONS: u32 = 4;

/// The topics of the coordinators, which move as well.
pub(crate) fn internal() -> [(String, u32); 2] {
    ["__consumer_offsets", "__transaction_state"].map(|name| (name.to_owned(), INTERNAL_PARTITIONS))
}

/// The brokers, the S3 server below them, and the chance that picks what is done to them.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    random: StdRng,
    // Dropped last: brokers that stop still write.
    _s3: S3Server,
}

/// What is done to the brokers, or is to be done to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Move,
    KillBroker,
    KillApplication,
}

/// All parts of a test happen to it, in a mixed order.
const ACTS: [Act; 12] = [
    Act::Move,
    Act::Move,
    Act::KillBroker,
    Act::Move,
    Act::KillApplication,
    Act::Move,
    Act::Move,
    Act::KillBroker,
    Act::Move,
    Act::KillApplication,
    Act::KillBroker,
    Act::Move,
];

impl Stage {
    pub(crate) fn set(durability: Durability) -> Result<Self> {
        let seed = match std::env::var("TIDEGATE_TEST_SEED") {
            Ok(text) => text.parse().context("TIDEGATE_TEST_SEED isn't a number")?,
            Err(_) => rand::rng().random_range(1..1_000_000),
        };
        println!("TIDEGATE_TEST_SEED={seed}");
        let s3 = S3Server::start_with_bucket(BUCKET)?;
        let options = BrokerOptions::default()
            .tidegate_only()
            .durability(durability)
            .store(Store::S3 {
                endpoint: s3.address(),
                bucket: BUCKET.into(),
                prefix: "cluster".into(),
            })
            .set(Setting::UploadAgeMs, 1_000)
            .set(Setting::UploadSizeBytes, 1 << 20)
            .set(Setting::OffsetsPartitions, INTERNAL_PARTITIONS)
            .set(Setting::TransactionStatePartitions, INTERNAL_PARTITIONS);
        Ok(Self {
            cluster: Cluster::start(3, &options)?,
            random: StdRng::seed_from_u64(seed),
            _s3: s3,
        })
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    /// Does one act after the other; partitions of `topics` (name, partitions) move, the application's end is the
    /// caller's to bring about.
    pub(crate) fn play(
        &mut self,
        topics: &[(String, u32)],
        mut kill_application: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        for act in ACTS {
            println!("{act:?}");
            match act {
                Act::Move => self.move_something(topics)?,
                Act::KillBroker => self.kill_broker()?,
                Act::KillApplication => kill_application()?,
            }
            std::thread::sleep(Duration::from_millis(self.random.random_range(300..2_000)));
        }
        for broker in self.cluster.brokers() {
            broker.wait_ready(READY)?;
        }
        Ok(())
    }

    fn move_something(&mut self, topics: &[(String, u32)]) -> Result<()> {
        let (topic, partitions) = &topics[self.random.random_range(0..topics.len())];
        // Several at once: one alone might be where it shall go already.
        for _ in 0..3 {
            let partition = self.random.random_range(0..*partitions);
            let to = self.random.random_range(1..=3);
            self.cluster.reassign(topic, partition, to)?;
        }
        Ok(())
    }

    fn kill_broker(&mut self) -> Result<()> {
        let id = self.random.random_range(1..=3);
        let down = Duration::from_millis(self.random.random_range(0..3_000));
        let broker = self.cluster.broker(id)?;
        broker.kill()?;
        std::thread::sleep(down);
        broker.launch()?;
        broker.wait_ready(READY)
    }
}

/// Starts a Java program from its source text; standard output and error go to `log`.
pub(crate) fn start_java(
    name: &str,
    classpath: &str,
    source: &str,
    arguments: &[&str],
    log: &Path,
) -> Result<Process> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("java")
        .join(source);
    let source = source.display().to_string();
    let mut all = vec![
        "-Xmx384m",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "-cp",
        classpath,
        &source,
    ];
    all.extend_from_slice(arguments);
    Process::spawn(name, Path::new("java"), all, &[], log)
}
