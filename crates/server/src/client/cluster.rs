//! `tidegate cluster`.

use std::time::Duration;

use reqwest::Method;
use tidegate_admin_api::v1::{Balance, Cluster as Described};

use super::api::{Api, CallError};
use super::arguments::Cluster;
use super::brokers::brokers;
use super::table::{or_nothing, table};
use super::{Said, Style};

pub async fn carry_out(api: &Api, style: Style, command: Cluster) -> Result<Said, CallError> {
    match command {
        Cluster::Status => {
            let answer = api.get("/v1/cluster").await?;
            style
                .show(answer, |cluster| description(&cluster))
                .map(Said::done)
        }
        Cluster::Balance { switch } => {
            let wanted = Balance {
                enabled: switch == "on",
            };
            let path = "/v1/cluster/balance";
            let answer = api
                .send_json(Method::PUT, path, &wanted, Duration::ZERO)
                .await?;
            style
                .show(answer, |now: Balance| {
                    format!("balance is {}\n", on_off(now.enabled))
                })
                .map(Said::done)
        }
    }
}

fn on_off(enabled: bool) -> &'static str {
    if enabled { "on" } else { "off" }
}

fn description(cluster: &Described) -> String {
    let facts = [
        ("cluster", cluster.cluster_id.clone()),
        (
            "controller",
            format!(
                "broker {}, epoch {}",
                cluster.controller, cluster.controller_epoch
            ),
        ),
        ("topics", cluster.topics.to_string()),
        ("partitions", cluster.partitions.to_string()),
        ("offline", cluster.offline_count.to_string()),
        ("moves", cluster.reassignments.to_string()),
        ("balance", on_off(cluster.balance).to_owned()),
    ];
    let page = facts.iter().fold(String::new(), |page, (what, value)| {
        page + &format!("{what:<12}{value}\n")
    });
    let page = page + "\n" + &brokers(&cluster.brokers);
    if cluster.offline.is_empty() {
        return page;
    }
    let rows: Vec<[String; 3]> = cluster
        .offline
        .iter()
        .map(|one| {
            [
                one.topic.clone(),
                one.partition.to_string(),
                or_nothing(one.waits_for.map(|broker| format!("broker {broker}"))),
            ]
        })
        .collect();
    page + "\n" + &table(["NOBODY SERVES", "PARTITION", "WAITS FOR"], &rows)
}
