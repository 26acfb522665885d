//! `tidegate partition`, `tidegate reassignment`.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tidegate_admin_api::v1::{
    MoveAnswer, MoveStatus, Partition as Described, ReassignAnswer, ReassignRequest, Reassignments,
    WantedMove,
};

use super::api::{Api, CallError, read, segment};
use super::arguments::{Partition, Reassignment};
use super::progress::Progress;
use super::table::{bytes, list as numbers, or_nothing, table};
use super::{Said, Style};

/// How often a move that takes its time is looked at.
const LOOK: Duration = Duration::from_millis(500);

pub async fn carry_out(api: &Api, style: Style, command: Partition) -> Result<Said, CallError> {
    match command {
        Partition::Describe { topic, partition } => {
            let path = format!("/v1/topics/{}/partitions/{partition}", segment(&topic));
            let answer = api.get(&path).await?;
            style.show(answer, description).map(Said::done)
        }
        Partition::Move {
            topic,
            partition,
            to,
            timeout,
        } => {
            let wanted = WantedMove {
                topic,
                partition,
                to,
            };
            let answer = move_one(api, wanted, Duration::from_secs(timeout)).await?;
            let read: ReassignAnswer = read(answer.clone())?;
            let done = read
                .moves
                .iter()
                .all(|one| matches!(one.status, MoveStatus::Moved | MoveStatus::AlreadyThere));
            let text = style.show(answer, |answer: ReassignAnswer| {
                answer.moves.iter().map(outcome).collect()
            })?;
            Ok(Said { text, done })
        }
    }
}

pub async fn list(api: &Api, style: Style, command: Reassignment) -> Result<Said, CallError> {
    let Reassignment::List = command;
    let answer = api.get("/v1/reassignments").await?;
    style.show(answer, reassignments).map(Said::done)
}

async fn move_one(api: &Api, wanted: WantedMove, wait: Duration) -> Result<Value, CallError> {
    let name = format!(
        "{} {} to broker {}",
        wanted.topic, wanted.partition, wanted.to
    );
    let (topic, partition) = (wanted.topic.clone(), wanted.partition);
    let request = ReassignRequest {
        moves: vec![wanted],
        timeout_ms: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
    };
    let mut asking = Box::pin(api.send_json(Method::POST, "/v1/reassignments", &request, wait));
    let mut progress = Progress::start();
    loop {
        // Cancel-safe: the request goes on in the next round.
        tokio::select! {
            answer = &mut asking => return answer,
            () = tokio::time::sleep(LOOK) => {}
        }
        let listed = api.get("/v1/reassignments").await.and_then(read);
        let phase = listed.ok().and_then(|listed: Reassignments| {
            let mut moves = listed.reassignments.into_iter();
            moves.find(|one| one.topic == topic && one.partition == partition)
        });
        let text = match phase {
            Some(one) => match one.last_failure {
                Some(failure) => format!("{name}: {}, after: {failure}", one.phase),
                None => format!("{name}: {}", one.phase),
            },
            None => name.clone(),
        };
        progress.show(&text);
    }
}

fn outcome(one: &MoveAnswer) -> String {
    let name = format!("{} {}", one.topic, one.partition);
    match one.status {
        MoveStatus::Moved => {
            let ms = |value: Option<f64>| or_nothing(value.map(|ms| format!("{ms:.1} ms")));
            let facts = [
                (
                    "from",
                    format!("broker {} to broker {}", or_nothing(one.from), one.to),
                ),
                ("leader epoch", or_nothing(one.leader_epoch)),
                ("sealed at", or_nothing(one.sealed_end_offset)),
                ("prepare", ms(one.prepare_ms)),
                ("seal", ms(one.seal_ms)),
                ("hold", ms(one.hold_ms)),
                ("commit", ms(one.commit_ms)),
                ("total", ms(one.total_ms)),
            ];
            facts
                .iter()
                .fold(format!("{name} moved\n"), |page, (what, value)| {
                    page + &format!("  {what:<13}{value}\n")
                })
        }
        MoveStatus::AlreadyThere => format!("{name} is at broker {} already\n", one.to),
        MoveStatus::UnderWay | MoveStatus::Failed => {
            let cause = one.problem.as_ref().map_or("", |problem| &problem.detail);
            format!("{name} isn't at broker {}: {cause}\n", one.to)
        }
    }
}

fn reassignments(all: Reassignments) -> String {
    let rows: Vec<[String; 7]> = all
        .reassignments
        .into_iter()
        .map(|one| {
            [
                one.topic,
                one.partition.to_string(),
                or_nothing(one.leader),
                one.to.to_string(),
                numbers(&one.placement),
                one.phase,
                one.last_failure.unwrap_or_default(),
            ]
        })
        .collect();
    let titles = [
        "TOPIC",
        "PARTITION",
        "LEADER",
        "TO",
        "PLACEMENT",
        "PHASE",
        "LAST FAILURE",
    ];
    table(titles, &rows)
}

fn description(one: Described) -> String {
    let epochs: Vec<String> = one
        .epochs
        .iter()
        .map(|epoch| format!("{} from {}", epoch.epoch, epoch.start))
        .collect();
    let facts = [
        ("topic", one.topic),
        ("partition", one.partition.to_string()),
        ("leader", or_nothing(one.leader)),
        ("leader epoch", one.leader_epoch.to_string()),
        ("epochs", epochs.join(", ")),
        ("placement", numbers(&one.placement)),
        ("durability", or_nothing(one.durability)),
        ("log start", one.log_start.to_string()),
        ("uploaded end", one.uploaded_end.to_string()),
        ("last stable", or_nothing(one.last_stable)),
        ("high watermark", or_nothing(one.high_watermark)),
        ("log end", or_nothing(one.log_end)),
        ("segments", one.segments.to_string()),
        ("stored", bytes(one.stored_bytes)),
        (
            "not uploaded",
            or_nothing(one.not_uploaded_bytes.map(bytes)),
        ),
    ];
    let page = facts.iter().fold(String::new(), |page, (what, value)| {
        page + &format!("{what:<15}{value}\n")
    });
    match one.leader_silent {
        Some(cause) => page + &format!("the leader didn't say more: {cause}\n"),
        None => page,
    }
}
