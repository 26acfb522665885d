//! The quotas of the cluster in the form in which requests are judged by them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use tidegate_metadata::api::{QuotaEntity, QuotaLimits, QuotaName};

/// What is limited for users and client ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QuotaKind {
    /// Bytes of produce requests per second.
    Produce,
    /// Bytes of records fetched per second.
    Fetch,
    /// Time that requests keep a thread busy, in percent of one thread's.
    Request,
    /// Partitions created and deleted per second.
    Mutation,
}

impl QuotaKind {
    pub(crate) const ALL: [Self; 4] = [Self::Produce, Self::Fetch, Self::Request, Self::Mutation];

    /// The name of its limit.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Produce => "producer_byte_rate",
            Self::Fetch => "consumer_byte_rate",
            Self::Request => "request_percentage",
            Self::Mutation => "controller_mutation_rate",
        }
    }
}

/// The name of the limit on new connections from an address, per second.
pub(crate) const CONNECTION_RATE: &str = "connection_creation_rate";

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// The principal's name.
    pub(crate) user: &'a str,
    /// Empty if the client doesn't say.
    pub(crate) client_id: &'a str,
}

/// A limit, and who shares it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    pub(super) limit: f64,
    pub(super) scope: Scope,
}

/// What the connections that share a limit have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    UserAndClient,
    User,
    Client,
}

#[derive(Debug, Default, PartialEq)]
struct ClientLimits {
    named: HashMap<String, f64>,
    others: Option<f64>,
}

impl ClientLimits {
    fn of(&self, client_id: &str) -> Option<f64> {
        self.named.get(client_id).copied().or(self.others)
    }

    fn set(&mut self, client: &QuotaName, limit: f64) {
        match client {
            QuotaName::Default => self.others = Some(limit),
            QuotaName::Named(name) => {
                self.named.insert(name.clone(), limit);
            }
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct UserLimits {
    by_client: ClientLimits,
    together: Option<f64>,
}

impl UserLimits {
    fn bound(&self, client_id: &str) -> Option<Bound> {
        let bound = |scope| move |limit| Bound { limit, scope };
        let of_pair = self.by_client.of(client_id);
        of_pair
            .map(bound(Scope::UserAndClient))
            .or_else(|| self.together.map(bound(Scope::User)))
    }
}

#[derive(Debug, Default, PartialEq)]
struct KindLimits {
    set: bool,
    users: HashMap<String, UserLimits>,
    other_users: UserLimits,
    clients: ClientLimits,
}

impl KindLimits {
    /// The most specific limit, by Kafka's order: what is set for the user comes before what is set for other users,
    /// and both before what is set for the client alone; within each, the pair comes before the user.
    fn bound(&self, asker: Asker<'_>) -> Option<Bound> {
        let own = self.users.get(asker.user);
        own.and_then(|limits| limits.bound(asker.client_id))
            .or_else(|| self.other_users.bound(asker.client_id))
            .or_else(|| {
                let limit = self.clients.of(asker.client_id)?;
                Some(Bound {
                    limit,
                    scope: Scope::Client,
                })
            })
    }

    fn set(&mut self, entity: &QuotaEntity, limit: f64) {
        let user = match &entity.user {
            None => None,
            Some(QuotaName::Default) => Some(&mut self.other_users),
            Some(QuotaName::Named(name)) => Some(self.users.entry(name.clone()).or_default()),
        };
        match (user, &entity.client_id) {
            (Some(user), Some(client)) => user.by_client.set(client, limit),
            (Some(user), None) => user.together = Some(limit),
            (None, Some(client)) => self.clients.set(client, limit),
            (None, None) => return,
        }
        self.set = true;
    }
}

/// All limits. Made anew when quotas change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct QuotaTable {
    produce: KindLimits,
    fetch: KindLimits,
    request: KindLimits,
    mutation: KindLimits,
    addresses: HashMap<IpAddr, f64>,
    other_addresses: Option<f64>,
}

impl QuotaTable {
    /// Names that this version doesn't know count as unset.
    pub(crate) fn new(quotas: &BTreeMap<QuotaEntity, QuotaLimits>) -> Self {
        let mut table = Self::default();
        for (entity, limits) in quotas {
            for kind in QuotaKind::ALL {
                if let Some(limit) = limits.get(kind.key()) {
                    table.kind_mut(kind).set(entity, limit.get());
                }
            }
            let rate = limits.get(CONNECTION_RATE).map(|limit| limit.get());
            match (&entity.ip, rate) {
                (Some(QuotaName::Default), Some(rate)) => table.other_addresses = Some(rate),
                (Some(QuotaName::Named(address)), Some(rate)) => {
                    if let Ok(address) = address.parse::<IpAddr>() {
                        table.addresses.insert(address.to_canonical(), rate);
                    }
                }
                (None, _) | (_, None) => {}
            }
        }
        table
    }

    /// Whether anybody's requests are limited in this way.
    pub(crate) fn limits(&self, kind: QuotaKind) -> bool {
        self.kind(kind).set
    }

    pub(super) fn bound(&self, kind: QuotaKind, asker: Asker<'_>) -> Option<Bound> {
        let limits = self.kind(kind);
        limits.set.then(|| limits.bound(asker)).flatten()
    }

    /// New connections per second from an address.
    pub(super) fn connection_rate(&self, address: IpAddr) -> Option<f64> {
        if self.addresses.is_empty() {
            return self.other_addresses;
        }
        let own = self.addresses.get(&address.to_canonical()).copied();
        own.or(self.other_addresses)
    }

    fn kind(&self, kind: QuotaKind) -> &KindLimits {
        match kind {
            QuotaKind::Produce => &self.produce,
            QuotaKind::Fetch => &self.fetch,
            QuotaKind::Request => &self.request,
            QuotaKind::Mutation => &self.mutation,
        }
    }

    fn kind_mut(&mut self, kind: QuotaKind) -> &mut KindLimits {
        match kind {
            QuotaKind::Produce => &mut self.produce,
            QuotaKind::Fetch => &mut self.fetch,
            QuotaKind::Request => &mut self.request,
            QuotaKind::Mutation => &mut self.mutation,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_metadata::api::QuotaLimit;

    use super::*;

    fn name(name: &str) -> Option<QuotaName> {
        match name {
            "" => None,
            "<default>" => Some(QuotaName::Default),
            name => Some(QuotaName::Named(name.to_owned())),
        }
    }

    fn table(entities: &[(&str, &str, f64)]) -> QuotaTable {
        let quotas = entities.iter().map(|(user, client, limit)| {
            let entity = QuotaEntity {
                user: name(user),
                client_id: name(client),
                ip: None,
            };
            let limit = QuotaLimit::try_from(*limit).unwrap();
            (
                entity,
                [(QuotaKind::Produce.key().to_owned(), limit)].into(),
            )
        });
        QuotaTable::new(&quotas.collect())
    }

    #[test]
    fn the_most_specific_of_the_eight_levels_binds() {
        let levels = [
            ("u", "c", Scope::UserAndClient),
            ("u", "<default>", Scope::UserAndClient),
            ("u", "", Scope::User),
            ("<default>", "c", Scope::UserAndClient),
            ("<default>", "<default>", Scope::UserAndClient),
            ("<default>", "", Scope::User),
            ("", "c", Scope::Client),
            ("", "<default>", Scope::Client),
        ];
        let asker = Asker {
            user: "u",
            client_id: "c",
        };
        let mut left: Vec<(&str, &str, f64)> = (1u32..)
            .zip(levels)
            .map(|(n, (user, client, _))| (user, client, f64::from(n)))
            .collect();
        for (_, _, scope) in levels {
            let bound = table(&left).bound(QuotaKind::Produce, asker).unwrap();
            assert_eq!((bound.limit, bound.scope), (left[0].2, scope));
            left.remove(0);
        }
        assert_eq!(table(&left).bound(QuotaKind::Produce, asker), None);
    }

    #[test]
    fn others_quotas_bind_nobody_else() {
        let table = table(&[("u", "c", 1.0), ("", "d", 2.0)]);
        let bound = |user, client_id| table.bound(QuotaKind::Produce, Asker { user, client_id });
        assert_eq!(bound("u", "x"), None);
        assert_eq!(bound("v", "c"), None);
        assert_eq!(bound("v", "d").unwrap().limit, 2.0);
        assert!(table.limits(QuotaKind::Produce));
        assert!(!table.limits(QuotaKind::Fetch));
    }

    #[test]
    fn an_address_has_its_own_rate_or_that_of_the_others() {
        let of = |ip: QuotaName, rate: f64| {
            let entity = QuotaEntity {
                ip: Some(ip),
                ..QuotaEntity::default()
            };
            let rate = QuotaLimit::try_from(rate).unwrap();
            (entity, [(CONNECTION_RATE.to_owned(), rate)].into())
        };
        let named = of(QuotaName::Named("10.0.0.1".to_owned()), 5.0);
        let table = QuotaTable::new(&[named.clone(), of(QuotaName::Default, 2.0)].into());
        assert_eq!(
            table.connection_rate("10.0.0.1".parse().unwrap()),
            Some(5.0)
        );
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(table.connection_rate(mapped), Some(5.0));
        assert_eq!(
            table.connection_rate("10.0.0.2".parse().unwrap()),
            Some(2.0)
        );
        let table = QuotaTable::new(&[named].into());
        assert_eq!(table.connection_rate("10.0.0.2".parse().unwrap()), None);
    }
}
