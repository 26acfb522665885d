//! What the demo asks of the cluster over the admin API: of any broker that lives.

use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use tidegate_admin_api::v1::{
    Brokers, Cluster, CreateTopic, MoveAnswer, ReassignAnswer, ReassignRequest, Topic, WantedMove,
};
use tokio::time::Instant;

use crate::client::{Api, CallError, read};

/// How long a cluster without controller is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// How long moves are waited for.
const MOVE_LIMIT: Duration = Duration::from_secs(30);

/// The admin APIs of all brokers.
pub struct Administration {
    apis: Vec<Api>,
}

impl Administration {
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, CallError> {
        let apis = urls.into_iter().map(|url| Api::new(url, None));
        Ok(Self {
            apis: apis.collect::<Result<_, _>>()?,
        })
    }

    /// Asks one broker after another until one answers with anything that isn't a passing lack.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
        wait: Duration,
    ) -> Result<T, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut last = String::new();
            for api in &self.apis {
                let answer = if method == Method::GET {
                    api.get(path).await
                } else {
                    api.send_json(method.clone(), path, body, wait).await
                };
                match answer.and_then(read) {
                    Ok(answer) => return Ok(answer),
                    Err(error) if error.is_unavailable() => last = error.to_string(),
                    Err(error) => return Err(error.to_string()),
                }
            }
            if Instant::now() >= deadline {
                return Err(last);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn cluster(&self) -> Result<Cluster, String> {
        self.ask(Method::GET, "/v1/cluster", &(), Duration::ZERO)
            .await
    }

    /// The brokers that have a session with the controller.
    pub async fn alive(&self) -> Result<Vec<u32>, String> {
        let all: Brokers = self
            .ask(Method::GET, "/v1/brokers", &(), Duration::ZERO)
            .await?;
        let alive = all.brokers.into_iter().filter(|broker| broker.alive);
        Ok(alive.map(|broker| broker.id).collect())
    }

    pub async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        brokers: u32,
    ) -> Result<(), String> {
        let wanted = CreateTopic {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication_factor: u16::try_from(brokers).ok(),
            ..CreateTopic::default()
        };
        let _: Topic = self
            .ask(Method::POST, "/v1/topics", &wanted, Duration::ZERO)
            .await?;
        Ok(())
    }

    /// Moves partitions by one request. Every move has an answer.
    pub async fn reassign(
        &self,
        topic: &str,
        moves: &[(u32, u32)],
    ) -> Result<Vec<MoveAnswer>, String> {
        let moves = moves.iter().map(|(partition, to)| WantedMove {
            topic: topic.to_owned(),
            partition: *partition,
            to: *to,
        });
        let request = ReassignRequest {
            moves: moves.collect(),
            timeout_ms: u64::try_from(MOVE_LIMIT.as_millis()).ok(),
        };
        let answer: ReassignAnswer = self
            .ask(Method::POST, "/v1/reassignments", &request, MOVE_LIMIT)
            .await?;
        Ok(answer.moves)
    }
}
