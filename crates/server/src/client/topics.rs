//! `tidegate topic`.

use std::time::Duration;

use reqwest::Method;
use tidegate_admin_api::v1::{CreateTopic, TopicDescription, Topics};

use super::api::{Api, CallError, segment};
use super::arguments::Topic;
use super::table::{bytes, list, or_nothing, table, yes_no};
use super::{Said, Style};

pub async fn carry_out(api: &Api, style: Style, command: Topic) -> Result<Said, CallError> {
    match command {
        Topic::List => {
            let answer = api.get("/v1/topics").await?;
            style.show(answer, topics).map(Said::done)
        }
        Topic::Describe { topic } => {
            let answer = api.get(&format!("/v1/topics/{}", segment(&topic))).await?;
            style.show(answer, description).map(Said::done)
        }
        Topic::Create {
            topic,
            partitions,
            replication_factor,
            config,
        } => {
            let wanted = CreateTopic {
                name: topic,
                partitions,
                replication_factor,
                configs: config.into_iter().collect(),
                validate_only: false,
            };
            let path = "/v1/topics";
            let answer = api
                .send_json(Method::POST, path, &wanted, Duration::ZERO)
                .await?;
            let show = |topic: tidegate_admin_api::v1::Topic| {
                format!(
                    "topic {} with {} partitions, id {}\n",
                    topic.name, topic.partitions, topic.id
                )
            };
            style.show(answer, show).map(Said::done)
        }
        Topic::Delete { topic } => {
            api.delete(&format!("/v1/topics/{}", segment(&topic)))
                .await?;
            Ok(Said::done(if style.json {
                String::new()
            } else {
                format!("topic {topic} is deleted\n")
            }))
        }
    }
}

fn topics(all: Topics) -> String {
    let rows: Vec<[String; 4]> = all
        .topics
        .into_iter()
        .map(|topic| {
            let configs: Vec<String> = topic
                .configs
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            [
                topic.name,
                topic.partitions.to_string(),
                yes_no(topic.internal),
                configs.join(" "),
            ]
        })
        .collect();
    table(["TOPIC", "PARTITIONS", "INTERNAL", "CONFIGS"], &rows)
}

fn description(described: TopicDescription) -> String {
    let topic = described.topic;
    let mut page = format!("topic  {}\nid     {}\n", topic.name, topic.id);
    for (name, value) in &topic.configs {
        page += &format!("config {name}={value}\n");
    }
    let rows: Vec<[String; 8]> = described
        .partition_list
        .into_iter()
        .map(|one| {
            [
                one.partition.to_string(),
                or_nothing(one.leader),
                one.leader_epoch.to_string(),
                list(&one.placement),
                or_nothing(one.log_start),
                or_nothing(one.high_watermark),
                or_nothing(one.stored_bytes.map(bytes)),
                or_nothing(one.not_uploaded_bytes.map(bytes)),
            ]
        })
        .collect();
    let titles = [
        "PARTITION",
        "LEADER",
        "EPOCH",
        "PLACEMENT",
        "START",
        "END",
        "STORED",
        "NOT UPLOADED",
    ];
    page + "\n" + &table(titles, &rows)
}
