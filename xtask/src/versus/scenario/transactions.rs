//! What transactions cost: the same client writes the same records without and with them, and both ways of reading
//! them are compared.

use anyhow::Result;

use super::super::client::{Transactions, java_produce};
use super::super::results::Metric;
use super::{Bout, Scenario};

impl Bout<'_> {
    /// Kafka's own performance client, since it is idempotent either way; a transaction ends each 100 ms.
    pub(super) fn transactions(&mut self) -> Result<()> {
        let scenario = Scenario::Transactions;
        for (topic, transactions, metric) in [
            ("plain", Transactions::None, Metric::PlainThroughput),
            (
                "transactional",
                Transactions::EachTenthOfASecond,
                Metric::Throughput,
            ),
        ] {
            self.client(
                "produce",
                &["--topic", topic, "--create", "--bytes", "1KiB"],
            )?;
            let answer = java_produce(
                &self.installed.kafka_library,
                &self.deployment.bootstrap(),
                topic,
                self.scale.java_records,
                transactions,
            )?;
            self.await_quiet()?;
            self.add(scenario, metric, answer.mb_per_s);
        }
        for (isolation, metric) in [
            ("read_uncommitted", Metric::ReadUncommitted),
            ("read_committed", Metric::ReadCommitted),
        ] {
            let isolation = format!("isolation.level={isolation}");
            let answer = self.client(
                "consume",
                &[
                    "--topic",
                    "transactional",
                    "--repeat",
                    "3",
                    "--set",
                    &isolation,
                ],
            )?;
            self.add(scenario, metric, answer.number("/throughput/mb_per_s")?);
        }
        self.delete("plain")?;
        self.delete("transactional")
    }
}
