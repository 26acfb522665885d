//! What the controller moves by itself: drains, and balance.
//!
//! Looks a few times a second at who leads what and stores wishes; the mover carries them out. Nothing is
//! remembered that a new controller would miss: a drain is a mark in the broker's row.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_metadata::ClusterImage;
use tidegate_metadata::api::{BrokerView, WantedMove};
use tidegate_types::{BrokerId, PartitionId};

use super::Core;
use super::balance::{self, Led};
use super::drain::{self, Candidate, Leaving};
use super::moves::Origin;

/// Wishes stored in one change.
const CHUNK: usize = 512;
/// How often to look.
const LOOK: Duration = Duration::from_millis(200);

/// What is switched at run time.
#[derive(Debug)]
pub(crate) struct Planner {
    pub(crate) balance: AtomicBool,
}

impl Planner {
    pub(crate) fn new(balance: bool) -> Self {
        Self {
            balance: AtomicBool::new(balance),
        }
    }
}

/// Plans until the conductor stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut balancing = false;
    loop {
        let views = core.brokers.all();
        if views
            .values()
            .any(|view| view.draining && view.alive && view.leaders > 0)
        {
            drain(&core, &views).await;
        }
        if core.planner.balance.load(Ordering::Relaxed) {
            balance(&core, &views, &mut balancing).await;
        } else {
            balancing = false;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// How many partitions each broker leads, or will once what is under way is done.
fn loads(
    views: &BTreeMap<BrokerId, BrokerView>,
    image: &ClusterImage,
    moves: &HashMap<PartitionId, (BrokerId, Origin)>,
) -> BTreeMap<BrokerId, u64> {
    let mut loads: BTreeMap<BrokerId, u64> =
        views.values().map(|view| (view.id, view.leaders)).collect();
    for (partition, (to, _)) in moves {
        if let Some(from) = leader(image, *partition)
            && from != *to
        {
            let load = loads.entry(from).or_default();
            *load = load.saturating_sub(1);
            *loads.entry(*to).or_default() += 1;
        }
    }
    loads
}

fn leader(image: &ClusterImage, partition: PartitionId) -> Option<BrokerId> {
    image
        .topic_by_id(partition.topic)?
        .partition(partition.index)?
        .leader
}

/// Every partition that a living broker leads, with its placement.
fn led(image: &ClusterImage) -> impl Iterator<Item = (PartitionId, BrokerId, &[BrokerId])> {
    image.topics().flat_map(|topic| {
        (0..).zip(&topic.partitions).filter_map(|(index, one)| {
            let partition = PartitionId {
                topic: topic.id,
                index: tidegate_types::PartitionIndex::new(index).ok()?,
            };
            Some((partition, one.leader?, one.placement.as_slice()))
        })
    })
}

async fn drain(core: &Core, views: &BTreeMap<BrokerId, BrokerView>) {
    let image = core.image();
    let moves = core.moves.all();
    let loads = loads(views, &image, &moves);
    let mut candidates: Vec<Candidate> = views
        .values()
        .filter(|view| view.takes_partitions())
        .map(|view| Candidate {
            id: view.id,
            rack: view.rack.clone(),
            led: loads.get(&view.id).copied().unwrap_or(0),
        })
        .collect();
    for view in views.values().filter(|view| view.draining && view.alive) {
        let leaving: Vec<Leaving> = led(&image)
            .filter(|(partition, leader, _)| *leader == view.id && !moves.contains_key(partition))
            .map(|(partition, _, placement)| Leaving {
                partition,
                placement: placement.to_vec(),
            })
            .collect();
        let planned = drain::spread(&leaving, &candidates, view.rack.as_deref());
        for (_, to) in &planned {
            if let Some(taker) = candidates.iter_mut().find(|c| c.id == *to) {
                taker.led += 1;
            }
        }
        // The placement keeps its order: the broker may come back.
        store(core, &planned, Origin::Drain, false).await;
    }
}

async fn balance(core: &Core, views: &BTreeMap<BrokerId, BrokerView>, balancing: &mut bool) {
    let takers: Vec<BrokerId> = views
        .values()
        .filter(|view| view.takes_partitions())
        .map(|view| view.id)
        .collect();
    if takers.len() < 2 {
        return;
    }
    let image = core.image();
    let moves = core.moves.all();
    let mut shares = loads(views, &image, &moves);
    shares.retain(|broker, _| takers.contains(broker));
    *balancing |= balance::is_uneven(&core.options.balance, &shares);
    if !*balancing {
        return;
    }
    let own = |origin: Origin| origin == Origin::Balance;
    let under_way = moves.values().filter(|(_, origin)| own(*origin)).count();
    let room = core.options.balance.max_under_way.saturating_sub(under_way);
    let pinned = core.moves.pinned(core.clock.now());
    let all: Vec<Led> = led(&image)
        .map(|(partition, leader, placement)| {
            let moving = moves.get(&partition).map(|(to, _)| *to);
            Led {
                partition,
                leader: moving.unwrap_or(leader),
                preferred: placement.first().copied(),
                weight: 1,
                pinned: moving.is_some() || pinned.contains(&partition),
            }
        })
        .collect();
    let planned = balance::plan(&takers, &all, room);
    if planned.is_empty() {
        *balancing = room == 0;
        return;
    }
    tracing::info!(
        moves = planned.len(),
        "moving partitions to even out leaders"
    );
    core.metrics.balance_moves.inc_by(planned.len() as u64);
    let planned: Vec<(PartitionId, BrokerId)> =
        planned.iter().map(|one| (one.partition, one.to)).collect();
    store(core, &planned, Origin::Balance, true).await;
}

/// What can't be stored now is planned again in the next round.
async fn store(core: &Core, planned: &[(PartitionId, BrokerId)], origin: Origin, prefer: bool) {
    for chunk in planned.chunks(CHUNK) {
        let moves = chunk
            .iter()
            .map(|(partition, to)| WantedMove {
                partition: *partition,
                to: *to,
                prefer,
            })
            .collect();
        match core.wishes.want(moves, origin).await {
            Ok(wishes) => {
                for refused in wishes.into_iter().filter_map(Result::err) {
                    tracing::debug!(reason = %refused, "a planned move was refused");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "planned moves can't be stored at present");
                return;
            }
        }
    }
}
