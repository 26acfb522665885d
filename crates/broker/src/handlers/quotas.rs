//! DescribeClientQuotas and AlterClientQuotas (KIP-546); DescribeUserScramCredentials, which tools ask together with
//! a user's quotas.

use std::collections::HashSet;
use std::net::IpAddr;

use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse, alter_client_quotas_request as alter_request,
    alter_client_quotas_response as alter_response, describe_client_quotas_response,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_metadata::api::{AlterQuotas, QuotaChange, QuotaEntity, QuotaLimit, QuotaName};

use super::text;
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::quotas::{CONNECTION_RATE, QuotaKind};

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

type Refusal = (ErrorCode, String);

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err((ErrorCode::InvalidRequest, message.into()))
}

/// The parts of an entity that are set, with their types.
fn parts(entity: &QuotaEntity) -> impl Iterator<Item = (&'static str, &QuotaName)> {
    let parts = [
        (USER, &entity.user),
        (CLIENT_ID, &entity.client_id),
        (IP, &entity.ip),
    ];
    parts
        .into_iter()
        .filter_map(|(kind, part)| Some((kind, part.as_ref()?)))
}

fn part_of<'a>(entity: &'a QuotaEntity, kind: &str) -> Option<&'a QuotaName> {
    parts(entity).find_map(|(name, part)| (name == kind).then_some(part))
}

/// `None` on the wire is the default.
fn wire_name(name: &QuotaName) -> Option<StrBytes> {
    match name {
        QuotaName::Default => None,
        QuotaName::Named(name) => Some(text(name.as_str())),
    }
}

/// What one component of a filter lets through.
enum Wanted {
    This(QuotaName),
    AnyOfKind,
}

impl Wanted {
    fn lets_through(&self, part: &QuotaName) -> bool {
        match self {
            Self::This(name) => part == name,
            Self::AnyOfKind => true,
        }
    }
}

fn filter(components: &[ComponentData]) -> Result<Vec<(&str, Wanted)>, Refusal> {
    let mut seen = HashSet::new();
    let mut wanted = Vec::with_capacity(components.len());
    for component in components {
        let kind = component.entity_type.as_str();
        if kind.is_empty() {
            return invalid("Invalid empty entity type.");
        }
        if !seen.insert(kind) {
            return invalid(format!(
                "Entity type {kind} cannot appear more than once in the filter."
            ));
        }
        if ![USER, CLIENT_ID, IP].contains(&kind) {
            let message = format!("Unsupported entity type {kind}");
            return Err((ErrorCode::UnsupportedVersion, message));
        }
        let one = match (component.match_type, &component._match) {
            (EXACT, Some(name)) => Wanted::This(QuotaName::Named(name.as_str().to_owned())),
            (DEFAULT, None) => Wanted::This(QuotaName::Default),
            (ANY, None) => Wanted::AnyOfKind,
            (EXACT, None) => {
                return invalid(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.",
                );
            }
            (DEFAULT | ANY, Some(_)) => {
                return invalid(
                    "Request specified a match string with a match type that has none.",
                );
            }
            (other, _) => return invalid(format!("Unknown match type {other}")),
        };
        wanted.push((kind, one));
    }
    if seen.contains(IP) && seen.len() > 1 {
        return invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.",
        );
    }
    Ok(wanted)
}

fn is_wanted(entity: &QuotaEntity, wanted: &[(&str, Wanted)], strict: bool) -> bool {
    if strict && parts(entity).count() != wanted.len() {
        return false;
    }
    wanted
        .iter()
        .all(|(kind, one)| part_of(entity, kind).is_some_and(|part| one.lets_through(part)))
}

pub(crate) fn describe_client_quotas(
    broker: &Broker,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    use describe_client_quotas_response::{EntityData, EntryData, ValueData};
    let wanted = match filter(&request.components) {
        Ok(wanted) => wanted,
        Err((code, message)) => {
            return DescribeClientQuotasResponse::default()
                .with_error_code(code.code())
                .with_error_message(Some(text(message)))
                .with_entries(None);
        }
    };
    let catalog = broker.catalog.load_full();
    let entries = catalog
        .image
        .quotas()
        .iter()
        .filter(|(entity, _)| is_wanted(entity, &wanted, request.strict))
        .map(|(entity, limits)| {
            let entity = parts(entity).map(|(kind, name)| {
                EntityData::default()
                    .with_entity_type(StrBytes::from_static_str(kind))
                    .with_entity_name(wire_name(name))
            });
            let values = limits.iter().map(|(key, limit)| {
                ValueData::default()
                    .with_key(text(key.as_str()))
                    .with_value(limit.get())
            });
            EntryData::default()
                .with_entity(entity.collect())
                .with_values(values.collect())
        })
        .collect();
    DescribeClientQuotasResponse::default()
        .with_error_message(None)
        .with_entries(Some(entries))
}

fn entity(wire: &[alter_request::EntityData]) -> Result<QuotaEntity, Refusal> {
    let mut entity = QuotaEntity::default();
    for data in wire {
        let kind = data.entity_type.as_str();
        let part = match kind {
            USER => &mut entity.user,
            CLIENT_ID => &mut entity.client_id,
            IP => &mut entity.ip,
            _ => return invalid(format!("Unhandled client quota entity type: {kind}")),
        };
        let name = match &data.entity_name {
            None => QuotaName::Default,
            Some(name) if name.is_empty() => return invalid(format!("Empty {kind} not supported")),
            Some(name) if name.len() > QuotaEntity::MAX_NAME_BYTES => {
                return invalid(format!(
                    "a {kind} of more than {} bytes can't have a quota",
                    QuotaEntity::MAX_NAME_BYTES
                ));
            }
            Some(name) => QuotaName::Named(name.as_str().to_owned()),
        };
        // Of two parts of one kind the last counts, as in Kafka's own map.
        *part = Some(name);
    }
    if entity == QuotaEntity::default() {
        return invalid("Invalid empty client quota entity");
    }
    if entity.ip.is_some() && (entity.user.is_some() || entity.client_id.is_some()) {
        return invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        );
    }
    if let Some(QuotaName::Named(ip)) = &entity.ip
        && ip.parse::<IpAddr>().is_err()
    {
        return invalid(format!(
            "{ip} is not a valid IP. Names aren't resolved: a quota must mean the same to all brokers."
        ));
    }
    Ok(entity)
}

/// How a limit is written, by its greatest value; `None`: with a fraction, and of any size.
fn greatest(entity: &QuotaEntity, key: &str) -> Option<Option<f64>> {
    let kind = QuotaKind::ALL.into_iter().find(|kind| kind.key() == key);
    match (entity.ip.is_some(), kind) {
        (true, _) => (key == CONNECTION_RATE).then_some(Some(f64::from(i32::MAX))),
        (false, Some(QuotaKind::Produce | QuotaKind::Fetch)) => Some(Some(i64::MAX as f64)),
        (false, Some(QuotaKind::Request | QuotaKind::Mutation)) => Some(None),
        (false, None) => None,
    }
}

fn change(entity: &QuotaEntity, op: &alter_request::OpData) -> Result<QuotaChange, Refusal> {
    let (key, value) = (op.key.as_str(), op.value);
    let limit = if op.remove {
        None
    } else {
        let Some(greatest) = greatest(entity, key) else {
            return invalid(format!("Invalid configuration key {key}"));
        };
        let Ok(limit) = QuotaLimit::try_from(value) else {
            return invalid(format!("Quota {key} must be greater than 0"));
        };
        if greatest.is_some_and(|greatest| value > greatest) {
            return invalid(format!("Proposed value for {key} is too large."));
        }
        if greatest.is_some() && (value % 1.0).abs() > 1e-6 {
            return invalid(format!("{key} cannot be a fractional value."));
        }
        Some(limit)
    };
    Ok(QuotaChange {
        key: key.to_owned(),
        limit,
    })
}

fn alteration(
    entry: &alter_request::EntryData,
) -> Result<(QuotaEntity, Vec<QuotaChange>), Refusal> {
    let entity = entity(&entry.entity)?;
    let mut keys = HashSet::new();
    for op in &entry.ops {
        if !keys.insert(op.key.as_str()) {
            return invalid(format!(
                "Duplicate quota key {}, not updating quota for this entity",
                op.key.as_str()
            ));
        }
    }
    let changes = entry.ops.iter().map(|op| change(&entity, op));
    let changes = changes.collect::<Result<_, _>>()?;
    Ok((entity, changes))
}

pub(crate) async fn alter_client_quotas(
    broker: &Broker,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse {
    let mut seen = HashSet::new();
    let wanted: Vec<Result<(QuotaEntity, Vec<QuotaChange>), Refusal>> = request
        .entries
        .iter()
        .map(|entry| {
            let altered = alteration(entry)?;
            if seen.insert(altered.0.clone()) {
                Ok(altered)
            } else {
                invalid("the entity is named more than once in the request")
            }
        })
        .collect();
    let command = AlterQuotas {
        entities: wanted
            .iter()
            .filter_map(|w| w.as_ref().ok().cloned())
            .collect(),
        validate_only: request.validate_only,
    };
    let answered = broker.controller.alter_quotas(command).await;
    let mut answers = match answered {
        Ok(answers) => answers
            .into_iter()
            .map(|a| a.map_err(|e| (ErrorCode::PolicyViolation, e.to_string())))
            .collect::<Vec<_>>(),
        Err(error) => vec![Err((ErrorCode::from(&error), error.to_string())); wanted.len()],
    }
    .into_iter();
    let entries = request
        .entries
        .into_iter()
        .zip(wanted)
        .map(|(entry, wanted)| {
            let result = wanted.and_then(|_| answers.next().unwrap_or(Ok(())));
            alter_answer(entry, result)
        })
        .collect();
    AlterClientQuotasResponse::default().with_entries(entries)
}

fn alter_answer(
    entry: alter_request::EntryData,
    result: Result<(), Refusal>,
) -> alter_response::EntryData {
    let entity = entry.entity.into_iter().map(|data| {
        alter_response::EntityData::default()
            .with_entity_type(data.entity_type)
            .with_entity_name(data.entity_name)
    });
    let answer = alter_response::EntryData::default().with_entity(entity.collect());
    match result {
        Ok(()) => answer.with_error_message(None),
        Err((code, message)) => answer
            .with_error_code(code.code())
            .with_error_message(Some(text(message))),
    }
}

/// Nobody has credentials, as there is no authentication yet.
pub(crate) fn describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let mut counts: Vec<(StrBytes, usize)> = Vec::new();
    let mut positions = std::collections::HashMap::new();
    for user in request.users.into_iter().flatten() {
        let at = *positions.entry(user.name.clone()).or_insert(counts.len());
        match counts.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => counts.push((user.name, 1)),
        }
    }
    let results = counts.into_iter().map(|(user, count)| {
        let (code, message) = if count > 1 {
            let message = format!(
                "Cannot describe SCRAM credentials for the same user twice in a single request: {}",
                user.as_str()
            );
            (ErrorCode::DuplicateResource, message)
        } else {
            let message = format!(
                "Attempt to describe a user credential that does not exist: {}",
                user.as_str()
            );
            (ErrorCode::ResourceNotFound, message)
        };
        DescribeUserScramCredentialsResult::default()
            .with_user(user)
            .with_error_code(code.code())
            .with_error_message(Some(text(message)))
    });
    DescribeUserScramCredentialsResponse::default()
        .with_error_message(None)
        .with_results(results.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, name: Option<&str>) -> alter_request::EntityData {
        alter_request::EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.map(text))
    }

    fn op(key: &str, value: f64) -> alter_request::OpData {
        alter_request::OpData::default()
            .with_key(text(key))
            .with_value(value)
    }

    fn entry(
        entity: &[(&str, Option<&str>)],
        ops: Vec<alter_request::OpData>,
    ) -> alter_request::EntryData {
        let entity = entity.iter().map(|(kind, name)| named(kind, *name));
        alter_request::EntryData::default()
            .with_entity(entity.collect())
            .with_ops(ops)
    }

    #[test]
    fn what_no_quota_can_be_is_refused() {
        let user = &[("user", Some("u"))][..];
        let ip = &[("ip", Some("10.0.0.1"))][..];
        let refused = [
            entry(&[], vec![]),
            entry(&[("group", Some("g"))], vec![]),
            entry(&[("user", Some(""))], vec![]),
            entry(&[("ip", Some("not an address"))], vec![]),
            entry(&[("ip", None), ("user", None)], vec![]),
            entry(user, vec![op("connection_creation_rate", 1.0)]),
            entry(ip, vec![op("producer_byte_rate", 1.0)]),
            entry(ip, vec![op("connection_creation_rate", 1.5)]),
            entry(ip, vec![op("connection_creation_rate", 3e9)]),
            entry(user, vec![op("producer_byte_rate", 0.0)]),
            entry(user, vec![op("producer_byte_rate", -1.0)]),
            entry(user, vec![op("producer_byte_rate", 0.5)]),
            entry(user, vec![op("producer_byte_rate", 1e19)]),
            entry(user, vec![op("request_percentage", f64::NAN)]),
            entry(user, vec![op("no_such_rate", 1.0)]),
            entry(
                user,
                vec![op("request_percentage", 1.0), op("request_percentage", 2.0)],
            ),
        ];
        for entry in refused {
            let refusal = alteration(&entry).map_err(|(code, _)| code);
            assert_eq!(refusal, Err(ErrorCode::InvalidRequest), "{entry:?}");
        }
    }

    #[test]
    fn what_quotas_can_be_is_taken() {
        let taken = [
            entry(&[("user", None)], vec![op("request_percentage", 0.25)]),
            entry(
                &[("user", Some("u")), ("client-id", None)],
                vec![op("controller_mutation_rate", 0.5)],
            ),
            entry(
                &[("ip", Some("::1"))],
                vec![op("connection_creation_rate", 7.0)],
            ),
            // What isn't known can be taken away: an older version may have set it.
            entry(
                &[("user", Some("u"))],
                vec![op("no_such_rate", 0.0).with_remove(true)],
            ),
        ];
        for entry in taken {
            assert!(alteration(&entry).is_ok(), "{entry:?}");
        }
    }

    #[test]
    fn filters_match_as_kafkas_do() {
        let entity = |user: Option<&str>, client: Option<Option<&str>>| QuotaEntity {
            user: user.map(|name| QuotaName::Named(name.to_owned())),
            client_id: client
                .map(|name| name.map_or(QuotaName::Default, |n| QuotaName::Named(n.to_owned()))),
            ip: None,
        };
        let component = |kind: &str, match_type, name: Option<&str>| {
            ComponentData::default()
                .with_entity_type(text(kind))
                .with_match_type(match_type)
                .with_match(name.map(text))
        };
        let pair = entity(Some("u"), Some(None));
        let alone = entity(Some("u"), None);
        let user_u = [component("user", EXACT, Some("u"))];
        let wanted = filter(&user_u).unwrap();
        assert!(is_wanted(&pair, &wanted, false) && is_wanted(&alone, &wanted, false));
        assert!(!is_wanted(&pair, &wanted, true) && is_wanted(&alone, &wanted, true));
        let defaults = [
            component("user", ANY, None),
            component("client-id", DEFAULT, None),
        ];
        let wanted = filter(&defaults).unwrap();
        assert!(is_wanted(&pair, &wanted, true) && !is_wanted(&alone, &wanted, false));
        assert!(!is_wanted(
            &entity(Some("u"), Some(Some("c"))),
            &wanted,
            true
        ));
        assert!(is_wanted(&pair, &[], false) && !is_wanted(&pair, &[], true));
        for (refused, code) in [
            (component("user", EXACT, None), ErrorCode::InvalidRequest),
            (
                component("user", DEFAULT, Some("u")),
                ErrorCode::InvalidRequest,
            ),
            (component("user", 3, None), ErrorCode::InvalidRequest),
            (component("", ANY, None), ErrorCode::InvalidRequest),
            (component("group", ANY, None), ErrorCode::UnsupportedVersion),
        ] {
            let refusal = filter(&[refused]).map(drop).map_err(|(code, _)| code);
            assert_eq!(refusal, Err(code));
        }
        let twice = [component("ip", ANY, None), component("ip", ANY, None)];
        assert!(filter(&twice).is_err());
        let mixed = [component("ip", ANY, None), component("user", ANY, None)];
        assert!(filter(&mixed).is_err());
    }
}
