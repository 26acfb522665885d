//! The brokers' admin API, as much of it as moves and failovers need.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};

use super::http;

/// Beyond the time the server may take by our own request.
const GRACE: Duration = Duration::from_secs(10);

/// Any broker answers; the first that can be reached is asked.
#[derive(Clone)]
pub struct AdminApi {
    addresses: Vec<String>,
}

/// A wanted move.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub partition: i32,
    pub to: i32,
}

/// A move that took place, with what the brokers say about their part in it, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    pub prepare: f64,
    pub seal: f64,
    pub hold: f64,
    pub commit: f64,
    pub total: f64,
}

/// Who is the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    pub broker: i32,
    pub epoch: i64,
}

impl AdminApi {
    pub fn new(addresses: Vec<String>) -> Self {
        Self { addresses }
    }

    /// The same without one broker.
    pub fn without(&self, address: &str) -> Self {
        let others = self.addresses.iter().filter(|one| *one != address);
        Self::new(others.cloned().collect())
    }

    /// Moves partitions of a topic and waits for it; one answer per move, in their order.
    pub fn reassign(
        &self,
        topic: &str,
        moves: &[Wanted],
        patience: Duration,
    ) -> Result<Vec<Result<Phases, String>>> {
        let list: Vec<Value> = moves
            .iter()
            .map(|one| json!({"topic": topic, "partition": one.partition, "to": one.to}))
            .collect();
        let timeout_ms = u64::try_from(patience.as_millis())?;
        let body = json!({"moves": list, "timeout_ms": timeout_ms});
        let answer = self.ask("POST", "/v1/reassignments", Some(&body), patience + GRACE)?;
        let answers = answer
            .get("moves")
            .and_then(Value::as_array)
            .context("the answer to a reassignment has no list of moves")?;
        if answers.len() != moves.len() {
            bail!(
                "{} moves were asked for, {} were answered",
                moves.len(),
                answers.len()
            );
        }
        Ok(answers.iter().map(read_move).collect())
    }

    /// Has a broker give its partitions away.
    pub fn drain(&self, broker: i32) -> Result<()> {
        let path = format!("/v1/brokers/{broker}/drain");
        self.ask("POST", &path, Some(&json!({})), GRACE).map(drop)
    }

    /// The controller, if a broker knows one.
    pub fn controller(&self) -> Result<Controller> {
        let answer = self.ask("GET", "/v1/cluster", None, GRACE)?;
        let number = |name: &str| answer.get(name).and_then(Value::as_i64);
        let broker = number("controller").context("the cluster's status names no controller")?;
        let epoch = number("controller_epoch").context("it has no controller epoch")?;
        Ok(Controller {
            broker: i32::try_from(broker)?,
            epoch,
        })
    }

    /// The ids of the brokers that are alive.
    pub fn alive(&self) -> Result<Vec<i32>> {
        let answer = self.ask("GET", "/v1/brokers", None, GRACE)?;
        let brokers = answer
            .get("brokers")
            .and_then(Value::as_array)
            .context("the answer has no list of brokers")?;
        let mut ids: Vec<i32> = brokers
            .iter()
            .filter(|broker| broker.get("alive").and_then(Value::as_bool) == Some(true))
            .filter_map(|broker| broker.get("id")?.as_i64()?.try_into().ok())
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Asks the first broker that can be reached and takes only success for an answer.
    fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value> {
        let mut failure = anyhow!("no admin address is known");
        for address in &self.addresses {
            match http::request(address, method, path, body, patience) {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    return match answer.body.trim() {
                        "" => Ok(Value::Null),
                        text => serde_json::from_str(text)
                            .with_context(|| format!("{method} {path}: the answer isn't JSON")),
                    };
                }
                Ok(answer) => bail!(
                    "{method} {path} at {address}: status {}: {}",
                    answer.status,
                    answer.body
                ),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn read_move(answer: &Value) -> Result<Phases, String> {
    let number = |name: &str| answer.get(name).and_then(Value::as_f64);
    let phases = || {
        Some(Phases {
            prepare: number("prepare_ms")?,
            seal: number("seal_ms")?,
            hold: number("hold_ms")?,
            commit: number("commit_ms")?,
            total: number("total_ms")?,
        })
    };
    phases().ok_or_else(|| {
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str);
        text("/problem/detail")
            .or_else(|| text("/problem/title"))
            .or_else(|| text("/status"))
            .map_or_else(|| answer.to_string(), str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_read_with_its_phases() {
        let answer = json!({"topic": "t", "partition": 0, "from": 1, "to": 2, "leader_epoch": 3,
            "sealed_end_offset": 9, "prepare_ms": 1.0, "seal_ms": 2.0, "hold_ms": 3.0, "commit_ms": 4.0,
            "total_ms": 10.5});
        let phases = read_move(&answer).expect("the move took place");
        assert!((phases.total - 10.5).abs() < 1e-9);
    }

    #[test]
    fn a_move_that_did_not_take_place_says_why() {
        let failed = json!({"partition": 0, "status": "failed",
            "problem": {"title": "Broker not alive", "detail": "broker 9 isn't alive"}});
        assert_eq!(
            read_move(&failed).err().as_deref(),
            Some("broker 9 isn't alive")
        );
        let there = json!({"partition": 0, "status": "already_there", "leader_epoch": 3});
        assert_eq!(read_move(&there).err().as_deref(), Some("already_there"));
    }
}
