//! Several brokers of one cluster: one store, one folder each.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{Broker, BrokerOptions, Store, http_post, wait_for};

/// The brokers of one cluster, numbered from 1.
#[derive(Debug)]
pub struct Cluster {
    brokers: Vec<Broker>,
    options: BrokerOptions,
}

impl Cluster {
    /// Starts `count` brokers over the store of `options` and waits until all are ready.
    pub fn start(count: u32, options: &BrokerOptions) -> Result<Self> {
        if matches!(options.store, Store::Folder) {
            bail!("brokers of one cluster need a store they share");
        }
        let mut cluster = Self {
            brokers: Vec::new(),
            options: options.clone(),
        };
        for _ in 0..count {
            cluster.add()?;
        }
        for broker in &mut cluster.brokers {
            broker.wait_ready(Duration::from_secs(60))?;
        }
        Ok(cluster)
    }

    /// One more broker, started and not waited for. Answers its number.
    pub fn add(&mut self) -> Result<u32> {
        let id = u32::try_from(self.brokers.len())? + 1;
        let mut broker = Broker::prepare(self.options.clone().broker_id(Some(id)))?;
        broker.launch()?;
        self.brokers.push(broker);
        Ok(id)
    }

    /// The broker of this number.
    pub fn broker(&mut self, id: u32) -> Result<&mut Broker> {
        let at = usize::try_from(id)?.checked_sub(1);
        at.and_then(|at| self.brokers.get_mut(at))
            .with_context(|| format!("the cluster has no broker {id}"))
    }

    /// All brokers.
    pub fn brokers(&mut self) -> &mut [Broker] {
        &mut self.brokers
    }

    /// Asks for a partition to be moved. That the target is down, or that there is no such partition yet, is an answer
    /// like any other.
    pub fn reassign(&self, topic: &str, partition: u32, to: u32) -> Result<()> {
        let body =
            format!(r#"{{"moves":[{{"topic":"{topic}","partition":{partition},"to":{to}}}]}}"#);
        self.post("/v1/reassignments", &body)
    }

    /// Posts to the admin API of the first broker that answers.
    pub fn post(&self, path: &str, body: &str) -> Result<()> {
        let addresses: Vec<String> = self.brokers.iter().map(Broker::admin_address).collect();
        wait_for(
            "an answer of the admin API",
            Duration::from_secs(60),
            || {
                addresses.iter().find_map(|address| {
                    let answer = http_post(address, path, body, Duration::from_secs(30)).ok()?;
                    // No controller at present, or a time-out on the way to it: ask again.
                    (answer.status < 500).then_some(())
                })
            },
        )
    }

    /// All brokers' addresses, for Kafka clients.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self.brokers.iter().map(Broker::bootstrap).collect();
        addresses.join(",")
    }
}
