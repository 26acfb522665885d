//! Which brokers partitions go to: when a topic is made, and when a broker has died.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_types::BrokerId;

use super::State;
use crate::rows::PartitionRow;

struct Candidate {
    id: BrokerId,
    rack: Option<String>,
}

/// Places new partitions. Of one topic, leaders spread evenly over the brokers and so do those who would follow
/// each leader; the brokers of one partition lie in as many racks as there are. Between equals it takes turns,
/// starting where the last topic stopped.
pub(crate) struct Placer {
    brokers: Vec<Candidate>,
    next: usize,
    /// Of the topic being placed: leaders on each broker.
    leaders: HashMap<BrokerId, u32>,
    /// Of the topic being placed: how often a broker comes right behind that leader.
    seconds: HashMap<(BrokerId, BrokerId), u32>,
    /// Of the topic being placed: partitions that each broker may lead.
    places: HashMap<BrokerId, u32>,
}

impl Placer {
    /// Chooses among the brokers that live and aren't draining; if there are none, among all.
    pub(crate) fn new(state: &State) -> Self {
        let those = |wanted: &dyn Fn(BrokerId, bool) -> bool| -> Vec<Candidate> {
            state
                .brokers()
                .filter(|(id, row)| wanted(*id, row.draining))
                .map(|(id, row)| Candidate {
                    id,
                    rack: row.rack.clone(),
                })
                .collect()
        };
        let mut brokers = those(&|id, draining| state.is_alive(id) && !draining);
        if brokers.is_empty() {
            brokers = those(&|id, _| state.is_alive(id));
        }
        if brokers.is_empty() {
            brokers = those(&|_, _| true);
        }
        Self {
            brokers,
            next: usize::try_from(state.partition_count()).unwrap_or(0),
            leaders: HashMap::new(),
            seconds: HashMap::new(),
            places: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }

    /// The partitions placed from now on belong to a topic that has these already.
    pub(crate) fn begin_topic(&mut self, partitions: &[PartitionRow]) {
        self.leaders.clear();
        self.seconds.clear();
        self.places.clear();
        for row in partitions {
            self.note(&row.placement);
        }
    }

    fn note(&mut self, placement: &[BrokerId]) {
        if let Some(leader) = placement.first() {
            *self.leaders.entry(*leader).or_default() += 1;
            if let Some(second) = placement.get(1) {
                *self.seconds.entry((*leader, *second)).or_default() += 1;
            }
        }
        for broker in placement {
            *self.places.entry(*broker).or_default() += 1;
        }
    }

    /// One placement, as long as the factor says or as there are brokers.
    pub(crate) fn place(&mut self, replication_factor: u16) -> Vec<BrokerId> {
        let count = usize::from(replication_factor).min(self.brokers.len());
        let first = self.next;
        self.next = self.next.wrapping_add(1);
        let mut placement: Vec<BrokerId> = Vec::with_capacity(count);
        let mut racks: BTreeSet<&str> = BTreeSet::new();
        while placement.len() < count {
            let leader = placement.first().copied();
            let cost = |(turn, candidate): &(usize, &Candidate)| {
                let same_rack = candidate
                    .rack
                    .as_deref()
                    .is_some_and(|rack| racks.contains(rack));
                let id = candidate.id;
                let load = match leader {
                    None => self.leaders.get(&id),
                    Some(leader) if placement.len() == 1 => self.seconds.get(&(leader, id)),
                    Some(_) => None,
                };
                let places = self.places.get(&id);
                let places = places.filter(|_| leader.is_some());
                (same_rack, load.copied(), places.copied(), *turn)
            };
            let turns = self.brokers.len();
            let chosen = (0..turns)
                .map(|turn| (turn, &self.brokers[(first % turns + turn) % turns]))
                .filter(|(_, candidate)| !placement.contains(&candidate.id))
                .min_by_key(cost);
            let Some((_, candidate)) = chosen else { break };
            placement.push(candidate.id);
            racks.extend(candidate.rack.as_deref());
        }
        self.note(&placement);
        placement
    }
}

/// Who takes over from a dead broker.
pub(crate) struct Survivors {
    /// Partitions that each leads, with those given to it since.
    leaders: BTreeMap<BrokerId, u64>,
}

impl Survivors {
    /// The brokers that can lead; draining ones only if there is no other.
    pub(crate) fn new(state: &State) -> Self {
        let those = |wanted: &dyn Fn(BrokerId) -> bool| -> BTreeMap<BrokerId, u64> {
            let ids = state.brokers().map(|(id, _)| id);
            ids.filter(|id| wanted(*id))
                .map(|id| (id, state.led_count(id)))
                .collect()
        };
        let mut leaders = those(&|id| state.takes_partitions(id));
        if leaders.is_empty() {
            leaders = those(&|id| state.may_lead(id));
        }
        Self { leaders }
    }

    /// The wanted leader, else the first of the placement that lives, else who leads the fewest.
    pub(crate) fn heir(&mut self, row: &PartitionRow) -> Option<BrokerId> {
        let wanted = row.target.as_ref().map(|target| target.to);
        let named = wanted
            .into_iter()
            .chain(row.placement.iter().copied())
            .find(|id| self.leaders.contains_key(id));
        let least = || self.leaders.iter().min_by_key(|(_, count)| **count);
        let heir = named.or_else(|| least().map(|(id, _)| *id))?;
        if let Some(count) = self.leaders.get_mut(&heir) {
            *count += 1;
        }
        Some(heir)
    }
}

/// The placement after `to` has taken the lead from `from`: unless it was in it, it takes that one's place, or
/// the last if that one has none. With `prefer` it comes first.
pub(crate) fn placement_after(
    placement: &[BrokerId],
    from: Option<BrokerId>,
    to: BrokerId,
    prefer: bool,
) -> Vec<BrokerId> {
    let mut after = placement.to_vec();
    if !after.contains(&to) {
        let place = after.iter().position(|id| Some(*id) == from);
        match place.or(after.len().checked_sub(1)) {
            Some(place) => after[place] = to,
            None => after.push(to),
        }
    }
    if prefer {
        after.retain(|id| *id != to);
        after.insert(0, to);
    }
    after
}
