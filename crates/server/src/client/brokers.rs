//! `tidegate broker`.

use std::time::Duration;

use serde_json::Value;
use tidegate_admin_api::v1::{Broker as Described, Brokers, Drain};

use super::api::{Api, CallError, read};
use super::arguments::Broker;
use super::progress::Progress;
use super::table::{bytes, or_nothing, table};
use super::{Said, Style};

/// How often a drain is looked at.
const LOOK: Duration = Duration::from_millis(250);

pub async fn carry_out(api: &Api, style: Style, command: Broker) -> Result<Said, CallError> {
    match command {
        Broker::List => {
            let answer = api.get("/v1/brokers").await?;
            style
                .show(answer, |all: Brokers| brokers(&all.brokers))
                .map(Said::done)
        }
        Broker::Describe { broker } => {
            let answer = api.get(&format!("/v1/brokers/{broker}")).await?;
            style.show(answer, |one| description(&one)).map(Said::done)
        }
        Broker::Drain { broker, no_wait } => {
            let mut answer = api.post(&format!("/v1/brokers/{broker}/drain")).await?;
            if !no_wait {
                answer = drained(api, broker, answer).await?;
            }
            let drain: Drain = read(answer.clone())?;
            let text = style.show(answer, |drain: Drain| standing(&drain))?;
            Ok(Said {
                text,
                done: no_wait || drain.done,
            })
        }
        Broker::Undrain { broker } => {
            let answer = api.delete(&format!("/v1/brokers/{broker}/drain")).await?;
            style
                .show(answer, |drain: Drain| standing(&drain))
                .map(Said::done)
        }
    }
}

/// Looks at a drain until it is done or can't go on.
async fn drained(api: &Api, broker: u32, mut answer: Value) -> Result<Value, CallError> {
    let mut progress = Progress::start();
    loop {
        let drain: Drain = read(answer.clone())?;
        if drain.done || !drain.draining || drain.blocked.is_some() {
            return Ok(answer);
        }
        progress.show(&format!(
            "broker {broker}: {} partitions left, {} on their way",
            drain.led_partitions, drain.moving
        ));
        tokio::time::sleep(LOOK).await;
        answer = match api.get(&format!("/v1/brokers/{broker}/drain")).await {
            Ok(next) => next,
            // The controller's seat may move meanwhile.
            Err(error @ CallError::Problem(_)) if error.is_unavailable() => answer,
            Err(error) => return Err(error),
        };
    }
}

fn standing(drain: &Drain) -> String {
    let broker = drain.broker;
    if drain.done {
        return format!("broker {broker} leads nothing any more and gets nothing new\n");
    }
    if !drain.draining {
        return format!(
            "broker {broker} isn't draining; it leads {} partitions\n",
            drain.led_partitions
        );
    }
    match &drain.blocked {
        Some(cause) => format!(
            "broker {broker} still leads {} partitions: {cause}\n",
            drain.led_partitions
        ),
        None => format!(
            "broker {broker} is draining: {} partitions left, {} on their way\n",
            drain.led_partitions, drain.moving
        ),
    }
}

fn state(broker: &Described) -> String {
    let mut words = vec![if broker.alive { "alive" } else { "dead" }];
    if broker.draining {
        words.push("draining");
    }
    if broker.controller {
        words.push("controller");
    }
    words.join(", ")
}

pub fn brokers(all: &[Described]) -> String {
    let rows: Vec<[String; 8]> = all
        .iter()
        .map(|broker| {
            [
                broker.id.to_string(),
                state(broker),
                broker.led_partitions.to_string(),
                format!("{}/s", bytes(broker.bytes_in_per_s)),
                format!("{}/s", bytes(broker.bytes_out_per_s)),
                or_nothing(broker.rack.as_ref()),
                broker.kafka.clone(),
                broker.software_version.clone(),
            ]
        })
        .collect();
    let titles = [
        "BROKER", "STATE", "LEADS", "IN", "OUT", "RACK", "KAFKA", "VERSION",
    ];
    table(titles, &rows)
}

fn description(broker: &Described) -> String {
    let facts = [
        ("broker", broker.id.to_string()),
        ("state", state(broker)),
        ("epoch", broker.broker_epoch.to_string()),
        ("leads", broker.led_partitions.to_string()),
        ("in", format!("{}/s", bytes(broker.bytes_in_per_s))),
        ("out", format!("{}/s", bytes(broker.bytes_out_per_s))),
        ("requests", format!("{}/s", broker.requests_per_s)),
        ("rack", or_nothing(broker.rack.as_ref())),
        ("kafka", broker.kafka.clone()),
        ("internal", or_nothing(broker.internal.as_ref())),
        ("version", broker.software_version.clone()),
    ];
    facts.iter().fold(String::new(), |page, (what, value)| {
        page + &format!("{what:<10}{value}\n")
    })
}
