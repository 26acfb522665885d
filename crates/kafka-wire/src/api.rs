//! Which APIs and versions a broker offers, and what that means for headers.

use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use crate::schema;

/// Versions from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    pub min: i16,
    pub max: i16,
}

impl VersionRange {
    pub fn contains(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}–{}", self.min, self.max)
    }
}

/// The versions this crate decodes, or none for an API that it doesn't know.
pub fn supported_versions(api_key: ApiKey) -> Option<VersionRange> {
    schema::of(api_key).map(|schema| VersionRange {
        min: schema.min_version,
        max: schema.max_version,
    })
}

/// The header version of a request.
pub fn request_header_version(api_key: ApiKey, version: i16) -> i16 {
    api_key.request_header_version(version)
}

/// The header version of a response. ApiVersions has 0 always, so that a client of any age can read it
/// (KIP-511).
pub fn response_header_version(api_key: ApiKey, version: i16) -> i16 {
    api_key.response_header_version(version)
}

/// A wrong entry in a list of APIs to advertise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdvertiseError {
    #[error("{api_key:?} has no decoder")]
    NotDecodable { api_key: ApiKey },
    #[error("{api_key:?} is listed twice")]
    Twice { api_key: ApiKey },
    #[error("{api_key:?} isn't in the list")]
    NotListed { api_key: ApiKey },
    #[error("{api_key:?} is limited to {min}–{max}, and only {supported} is decodable")]
    NoVersions {
        api_key: ApiKey,
        min: i16,
        max: i16,
        supported: VersionRange,
    },
}

/// The APIs a listener offers: what ApiVersions lists, and what [`crate::request`] accepts. The two differ
/// in one place. Produce is *listed* from version 0 and accepted from version 3, as in Apache Kafka 4:
/// librdkafka takes the old versions as its sign that the broker supports compression, and would silently
/// send uncompressed without them (KIP-896, KAFKA-18659). A request of a listed but refused version gets
/// what any other unsupported version gets: no answer, and the connection closed.
#[derive(Debug, Clone)]
pub struct Advertised {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    api_key: ApiKey,
    accepted: VersionRange,
}

impl Row {
    fn listed(&self) -> VersionRange {
        let min = match self.api_key {
            ApiKey::Produce => 0,
            _ => self.accepted.min,
        };
        VersionRange {
            min,
            max: self.accepted.max,
        }
    }
}

impl Advertised {
    /// Offers these APIs, each in all the versions this crate decodes.
    pub fn new(api_keys: impl IntoIterator<Item = ApiKey>) -> Result<Self, AdvertiseError> {
        let mut rows = Vec::new();
        for api_key in api_keys {
            let accepted =
                supported_versions(api_key).ok_or(AdvertiseError::NotDecodable { api_key })?;
            rows.push(Row { api_key, accepted });
        }
        rows.sort_by_key(|row| row.api_key as i16);
        if let Some(twice) = rows
            .windows(2)
            .find(|pair| pair[0].api_key == pair[1].api_key)
        {
            return Err(AdvertiseError::Twice {
                api_key: twice[0].api_key,
            });
        }
        Ok(Self { rows })
    }

    /// Narrows one API to versions `min` to `max`, for one that isn't wholly implemented.
    pub fn limited_to(
        mut self,
        api_key: ApiKey,
        min: i16,
        max: i16,
    ) -> Result<Self, AdvertiseError> {
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.api_key == api_key)
            .ok_or(AdvertiseError::NotListed { api_key })?;
        let supported = row.accepted;
        if min > max || !supported.contains(min) || !supported.contains(max) {
            return Err(AdvertiseError::NoVersions {
                api_key,
                min,
                max,
                supported,
            });
        }
        row.accepted = VersionRange { min, max };
        Ok(self)
    }

    /// The versions accepted of an API, if it is offered.
    pub fn accepted(&self, api_key: ApiKey) -> Option<VersionRange> {
        self.rows
            .binary_search_by_key(&(api_key as i16), |row| row.api_key as i16)
            .ok()
            .map(|index| self.rows[index].accepted)
    }

    /// Every API offered with the versions that ApiVersions lists, in the order of the keys.
    pub fn listed(&self) -> impl Iterator<Item = (ApiKey, VersionRange)> + '_ {
        self.rows.iter().map(|row| (row.api_key, row.listed()))
    }

    /// The rows of an ApiVersions response.
    pub fn response_rows(&self) -> Vec<ApiVersion> {
        self.listed()
            .map(|(api_key, versions)| {
                ApiVersion::default()
                    .with_api_key(api_key as i16)
                    .with_min_version(versions.min)
                    .with_max_version(versions.max)
            })
            .collect()
    }
}

/// Whether a client's software name or version is one that KIP-511 allows: letters, digits, `-` and `.`,
/// beginning and ending with a letter or digit. ApiVersions answers others with INVALID_REQUEST.
pub fn is_valid_client_software(value: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = value.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes
            .iter()
            .all(|byte| alphanumeric(byte) || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests;
