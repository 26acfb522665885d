use std::sync::Arc;

use tidegate_metadata::api::{QuotaEntity, QuotaLimit, QuotaName};
use tidegate_runtime::ManualClock;
use tidegate_types::TimestampMs;

use super::*;

struct Rig {
    clock: Arc<ManualClock>,
    quotas: Quotas,
    table: QuotaTable,
}

const ALICE: Asker<'static> = Asker {
    user: "alice",
    client_id: "a",
};

impl Rig {
    /// One limit on each user as a whole, or on each address.
    fn new(key: &str, limit: f64) -> Self {
        let default = Some(QuotaName::Default);
        let entity = match key {
            CONNECTION_RATE => QuotaEntity {
                ip: default,
                ..QuotaEntity::default()
            },
            _ => QuotaEntity {
                user: default,
                ..QuotaEntity::default()
            },
        };
        let limits = [(key.to_owned(), QuotaLimit::try_from(limit).unwrap())].into();
        let clock = Arc::new(ManualClock::new(TimestampMs::new(0)));
        Self {
            quotas: Quotas::new(clock.clone(), QuotaMetrics::default()),
            clock,
            table: QuotaTable::new(&[(entity, limits)].into()),
        }
    }

    fn quoted<'a>(&'a self, asker: Asker<'a>) -> Quoted<'a> {
        Quoted {
            table: &self.table,
            asker,
        }
    }
}

#[test]
fn a_users_clients_share_its_limit_and_other_users_have_their_own() {
    let rig = Rig::new("producer_byte_rate", 100.0);
    let produced = |asker, bytes| rig.quotas.produced(rig.quoted(asker), bytes);
    assert!(produced(ALICE, 600).is_zero());
    let other_client = Asker {
        client_id: "b",
        ..ALICE
    };
    assert!(!produced(other_client, 600).is_zero());
    let bob = Asker {
        user: "bob",
        client_id: "a",
    };
    assert!(produced(bob, 600).is_zero());
}

#[test]
fn a_fetch_over_the_limit_costs_nothing_and_passes_later() {
    let rig = Rig::new("consumer_byte_rate", 100.0);
    let most = rig.quotas.most_fetched(rig.quoted(ALICE));
    assert_eq!(most, 1_000);
    let fetched = || rig.quotas.fetched(rig.quoted(ALICE), most);
    assert!(fetched().is_zero());
    let wait = fetched();
    assert!(!wait.is_zero());
    assert_eq!(fetched(), wait, "what wasn't answered isn't counted");
    rig.clock.advance(wait + Duration::from_secs(2));
    assert!(fetched().is_zero());
}

#[test]
fn no_request_is_held_back_for_longer_than_a_second_by_the_time_it_took() {
    let rig = Rig::new("request_percentage", 0.01);
    let busy = Duration::from_millis(500);
    assert_eq!(rig.quotas.ran(rig.quoted(ALICE), busy), SHORT);
    let none = QuotaTable::default();
    assert!(
        rig.quotas
            .ran(
                Quoted {
                    table: &none,
                    asker: ALICE
                },
                busy
            )
            .is_zero()
    );
}

#[test]
fn connections_over_the_rate_are_not_counted() {
    let rig = Rig::new(CONNECTION_RATE, 1.0);
    let from = |ip: [u8; 4]| rig.quotas.connected(&rig.table, ip.into());
    let refused = (0..30).filter(|_| !from([10, 0, 0, 1]).is_zero()).count();
    assert_eq!(refused, 20, "ten seconds' worth is taken at once");
    assert!(from([10, 0, 0, 2]).is_zero());
    rig.clock.advance(Duration::from_secs(12));
    assert!(from([10, 0, 0, 1]).is_zero());
}

#[test]
fn strict_changes_are_refused_over_the_limit_and_others_are_made_to_wait() {
    let rig = Rig::new("controller_mutation_rate", 1.0);
    let mutations = |strict| rig.quotas.mutations(rig.quoted(ALICE), strict);
    let mut strict = mutations(true);
    // The burst of eleven seconds, and one change that goes below zero.
    assert_eq!(strict.take(15), Ok(()));
    assert!(strict.throttle().is_zero());
    assert_eq!(strict.take(1), Err(MutationRefused));
    assert_eq!(strict.throttle(), Duration::from_secs(4));
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(strict.throttle(), Duration::from_secs(3));
    let mut permissive = mutations(false);
    assert_eq!(permissive.take(2), Ok(()));
    assert_eq!(permissive.throttle(), Duration::from_secs(5));
    rig.clock.advance(Duration::from_secs(5));
    assert_eq!(mutations(true).take(1), Ok(()));
}
