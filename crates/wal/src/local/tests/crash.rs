//! Any crash at any point, again and again: what was promised is there, once, in order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidegate_runtime::LockError;

use super::*;

/// What the WAL was asked and what it has promised, over all its lives.
#[derive(Default)]
struct Model {
    lengths: BTreeMap<u64, usize>,
    /// Reported durable, or handed out by a recovery, and not trimmed.
    promised: BTreeMap<u64, WalPosition>,
    refused: BTreeSet<u64>,
    next_id: u64,
}

impl Model {
    fn check(&mut self, life: &Life) {
        let ids = life.recovered_ids();
        assert!(ids.is_sorted_by(|a, b| a < b), "order or doubles: {ids:?}");
        for (id, position) in &self.promised {
            let found = life
                .recovered
                .iter()
                .find(|found| id_of(&found.entry.batches) == *id);
            let found = found.unwrap_or_else(|| panic!("{id} at {position} is lost: {ids:?}"));
            assert_eq!(found.position, *position);
        }
        for found in &life.recovered {
            let id = id_of(&found.entry.batches);
            assert!(!self.refused.contains(&id), "{id} was refused");
            assert_same(found, self.lengths[&id]);
            self.promised.insert(id, found.position);
        }
    }

    fn hear(&mut self, life: &mut Life) {
        while let Ok((id, said)) = life.receiver.try_recv() {
            self.note(id, &said);
        }
    }

    fn note(&mut self, id: u64, said: &Said) {
        match said {
            Said::Durable(position) => {
                assert!(self.promised.insert(id, *position).is_none());
            }
            Said::Failed => {}
        }
    }

    fn append(&mut self, life: &Life, length: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.lengths.insert(id, length);
        if life.append(id, length).is_err() {
            self.refused.insert(id);
        }
        id
    }

    /// Drops about the older half of what is promised.
    fn trim(&mut self, life: &Life) {
        if let Some((_, position)) = self.promised.iter().nth(self.promised.len() / 2) {
            let position = *position;
            life.wal.trim(position);
            self.promised.retain(|_, at| *at >= position);
        }
    }
}

#[derive(Debug, Clone)]
enum Action {
    Append(usize),
    /// Append and wait for the answer.
    AppendAndWait(usize),
    Trim,
}

#[derive(Debug, Clone)]
enum End {
    PowerCut,
    ProcessCrash,
    CleanClose,
}

#[derive(Debug, Clone)]
struct Plan {
    actions: Vec<Action>,
    cut_in: Option<u64>,
    fail_sync_in: Option<u64>,
    end: End,
}

fn plan() -> impl Strategy<Value = Plan> {
    let length = prop_oneof![8usize..200, 8usize..200, 200usize..6_000];
    let action = prop_oneof![
        4 => length.clone().prop_map(Action::Append),
        3 => length.prop_map(Action::AppendAndWait),
        1 => Just(Action::Trim),
    ];
    (
        prop::collection::vec(action, 0..40),
        prop::option::weighted(0.6, 0u64..60),
        prop::option::weighted(0.2, 0u64..20),
        prop_oneof![
            Just(End::PowerCut),
            Just(End::ProcessCrash),
            Just(End::CleanClose)
        ],
    )
        .prop_map(|(actions, cut_in, fail_sync_in, end)| Plan {
            actions,
            cut_in,
            fail_sync_in,
            end,
        })
}

/// One life of a broker, on a handle of its own. It may end before the plan does.
fn live(disk: &SimDisk, plan: &Plan, model: &mut Model) {
    if let Some(calls) = plan.cut_in {
        disk.power_cut_in(calls);
    }
    if let Some(calls) = plan.fail_sync_in {
        disk.fail_sync_in(calls);
    }
    let mut life = match Life::open(disk.shared(), &dir(), &options()) {
        Ok(life) => life,
        Err(OpenError::Io { .. } | OpenError::Locked(LockError::Io { .. })) => return,
        Err(error) => panic!("a crash was taken for something else: {error}"),
    };
    model.check(&life);
    for action in &plan.actions {
        match action {
            Action::Append(length) => {
                model.append(&life, *length);
            }
            Action::AppendAndWait(length) => {
                let id = model.append(&life, *length);
                while !model.refused.contains(&id) {
                    let (heard, said) = life.receiver.recv_timeout(PATIENCE).expect("an answer");
                    model.note(heard, &said);
                    if heard == id {
                        break;
                    }
                }
            }
            Action::Trim => model.trim(&life),
        }
        model.hear(&mut life);
    }
    match plan.end {
        End::PowerCut => disk.power_cut(),
        End::ProcessCrash => {}
        End::CleanClose => life.wal.inner.begin_close(),
    }
    // All answers, before the next life looks.
    drop(life.sender);
    let receiver = life.receiver;
    if matches!(plan.end, End::ProcessCrash) {
        disk.restart();
    }
    drop(life.wal);
    while let Ok((id, said)) = receiver.recv_timeout(PATIENCE) {
        model.note(id, &said);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_entries_survive_any_row_of_crashes(
        seed in any::<u64>(),
        plans in prop::collection::vec(plan(), 1..6),
    ) {
        let mut disk = SimDisk::new(seed);
        let mut model = Model::default();
        for plan in &plans {
            live(&disk, plan, &mut model);
            disk = disk.restart();
        }
        model.check(&Life::sim(&disk));
    }
}
