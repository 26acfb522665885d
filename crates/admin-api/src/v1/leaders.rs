//! What lives on other brokers: asks all that are concerned at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::join_all;
use tidegate_cluster::orders::OrderError;
use tidegate_cluster::queries::{BrokerQueries, LogStatus};
use tidegate_cluster::view::ClusterView;
use tidegate_metadata::{ClusterImage, Endpoint};
use tidegate_types::{BrokerId, PartitionId};

/// Logs as their leaders have them, or why a leader didn't say.
pub(super) type Statuses = HashMap<PartitionId, Result<LogStatus, String>>;

fn unreachable(cause: &str) -> OrderError {
    OrderError::Unreachable(cause.to_owned())
}

/// How a broker is asked; an error if it can't be.
fn asked(
    view: &ClusterView,
    image: &ClusterImage,
    broker: BrokerId,
) -> Result<Arc<dyn BrokerQueries>, OrderError> {
    if broker == view.me {
        // It is reached without a detour, so that its address doesn't matter.
        let nowhere = Endpoint {
            host: String::new(),
            port: 0,
        };
        return Ok(view.peers.queries(broker, &nowhere));
    }
    let row = image
        .broker(broker)
        .ok_or_else(|| unreachable("it isn't registered"))?;
    if !row.alive {
        return Err(unreachable("it isn't alive"));
    }
    let endpoint = row
        .internal
        .as_ref()
        .ok_or_else(|| unreachable("it doesn't say where"))?;
    Ok(view.peers.queries(broker, endpoint))
}

/// Asks the leaders of these partitions. One that has no leader isn't in the answer.
pub(super) async fn log_statuses(
    view: &ClusterView,
    image: &ClusterImage,
    partitions: impl IntoIterator<Item = PartitionId>,
) -> Statuses {
    let mut by_leader: BTreeMap<BrokerId, Vec<PartitionId>> = BTreeMap::new();
    for id in partitions {
        let topic = image.topic_by_id(id.topic);
        let leader = topic.and_then(|topic| topic.partition(id.index)?.leader);
        if let Some(leader) = leader {
            by_leader.entry(leader).or_default().push(id);
        }
    }
    let asking = by_leader.into_iter().map(|(leader, ids)| async move {
        let answer = match asked(view, image, leader) {
            Ok(queries) => queries.log_statuses(ids.clone()).await,
            Err(error) => Err(error),
        };
        let statuses: Vec<Result<LogStatus, String>> = match answer {
            Err(error) => ids
                .iter()
                .map(|_| Err(format!("broker {leader}: {error}")))
                .collect(),
            Ok(statuses) => statuses
                .into_iter()
                .map(|status| {
                    status.ok_or_else(|| format!("broker {leader} doesn't lead it at this moment"))
                })
                .collect(),
        };
        ids.into_iter().zip(statuses)
    });
    join_all(asking).await.into_iter().flatten().collect()
}

/// Asks all brokers that live the same.
pub(super) async fn ask_all<T, F>(
    view: &ClusterView,
    image: &ClusterImage,
    ask: impl Fn(Arc<dyn BrokerQueries>) -> F,
) -> Vec<(BrokerId, Result<T, OrderError>)>
where
    F: Future<Output = Result<T, OrderError>>,
{
    let alive = image.brokers().filter(|broker| broker.alive);
    let asking = alive.map(|broker| {
        let asked = asked(view, image, broker.id).map(&ask);
        async move {
            let answer = match asked {
                Ok(answer) => answer.await,
                Err(error) => Err(error),
            };
            (broker.id, answer)
        }
    });
    join_all(asking).await
}
