//! `tidegate group`.

use tidegate_admin_api::v1::{GroupDetails, Groups};

use super::api::{Api, CallError, segment};
use super::arguments::ConsumerGroup;
use super::table::{or_nothing, table};
use super::{Said, Style};

pub async fn carry_out(api: &Api, style: Style, command: ConsumerGroup) -> Result<Said, CallError> {
    match command {
        ConsumerGroup::List => {
            let answer = api.get("/v1/groups").await?;
            style.show(answer, groups).map(Said::done)
        }
        ConsumerGroup::Describe { group } => {
            let answer = api.get(&format!("/v1/groups/{}", segment(&group))).await?;
            style.show(answer, details).map(Said::done)
        }
    }
}

fn groups(all: Groups) -> String {
    let rows: Vec<[String; 4]> = all
        .groups
        .into_iter()
        .map(|group| {
            [
                group.group,
                group.state,
                group.protocol_type,
                group.coordinator.to_string(),
            ]
        })
        .collect();
    let page = table(["GROUP", "STATE", "TYPE", "COORDINATOR"], &rows);
    all.incomplete.iter().fold(page, |page, cause| {
        page + &format!("some may be missing: {cause}\n")
    })
}

fn details(one: GroupDetails) -> String {
    let members: Vec<[String; 4]> = one
        .members
        .iter()
        .map(|member| {
            let assigned: Vec<String> = member
                .assigned
                .iter()
                .map(|part| format!("{}/{}", part.topic, part.partition))
                .collect();
            [
                member.member_id.clone(),
                member.client_id.clone(),
                member.client_host.trim_start_matches('/').to_owned(),
                assigned.join(" "),
            ]
        })
        .collect();
    let offsets: Vec<[String; 5]> = one
        .offsets
        .iter()
        .map(|part| {
            [
                part.topic.clone(),
                part.partition.to_string(),
                part.offset.to_string(),
                or_nothing(part.high_watermark),
                or_nothing(part.lag),
            ]
        })
        .collect();
    format!(
        "group        {}\nstate        {}\ncoordinator  broker {}\nprotocol     {}\ngeneration   {}\nlag          {}\n\n{}\n{}",
        one.group.group,
        one.group.state,
        one.group.coordinator,
        one.protocol,
        one.generation,
        one.lag,
        table(["MEMBER", "CLIENT", "HOST", "READS"], &members),
        table(["TOPIC", "PARTITION", "OFFSET", "END", "LAG"], &offsets),
    )
}
