//! The layout of every request a client may send, version by version.
//!
//! One [`Field`] a line, with the versions it exists in, so that the whole protocol fits on a few pages.
//! The table isn't a decoder: [`crate::bounds`] walks it to check a body before anything is allocated for
//! it, and the tests walk it to generate bodies. The versions are the ones `kafka-protocol` 0.18 decodes,
//! which is Kafka 4.1's protocol. A test decodes generated bodies of every version with that crate, so a
//! wrong line here fails the build.
//!
//! To support a later version, raise the last number of the request's line and mark what is new with
//! `since`; the tests then decode the new version too.
//!
//! The crate's own `ApiKey::valid_versions` can't serve as the table of versions: it lists OffsetCommit and
//! OffsetFetch version 10, which the crate's decoders refuse.

use kafka_protocol::messages::ApiKey;

mod admin;
mod data;
mod groups;
mod security;
mod transactions;

/// "In no version".
pub const NEVER: i16 = i16::MAX;

/// What one field holds.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    /// A structure. Nullable, it is preceded by one byte: 1, or -1 for null.
    Structure(&'static [Field]),
    /// An array of values that aren't structures.
    Array(&'static Kind),
    /// An array of structures.
    Structures(&'static [Field]),
}

/// One field of a request or of a structure in it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// First version that has the field.
    pub since: i16,
    /// Last version that has the field.
    pub until: i16,
    /// First version in which it may be null.
    pub nullable_since: i16,
    /// The tag, if the field travels in the tagged section (KIP-482).
    pub tag: Option<u32>,
}

impl Field {
    const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    const fn nullable(mut self, since: i16) -> Self {
        self.nullable_since = since;
        self
    }

    const fn tagged(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Whether `version` has this field.
    pub fn exists_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    /// Whether the field may be null in `version`.
    pub fn is_nullable_in(&self, version: i16) -> bool {
        self.nullable_since <= version
    }
}

/// The layout of one API's requests.
#[derive(Debug, Clone, Copy)]
pub struct RequestSchema {
    pub api_key: ApiKey,
    /// First version there is a layout for.
    pub min_version: i16,
    /// Last version there is a layout for.
    pub max_version: i16,
    /// First version with compact lengths and tagged fields (KIP-482), and so with request header 2.
    pub flexible_since: i16,
    pub fields: &'static [Field],
}

impl RequestSchema {
    /// Whether there is a layout for `version`.
    pub fn covers(&self, version: i16) -> bool {
        self.min_version <= version && version <= self.max_version
    }

    /// Whether `version` uses compact lengths and tagged fields.
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }
}

/// The layout of an API's requests, or none if this crate doesn't decode them.
pub fn of(api_key: ApiKey) -> Option<&'static RequestSchema> {
    let slot = usize::try_from(api_key as i16).ok()?;
    BY_KEY.get(slot).copied().flatten()
}

/// Every API with a layout, in the order of their keys.
pub fn all() -> impl Iterator<Item = &'static RequestSchema> {
    BY_KEY.iter().copied().flatten()
}

/// One more than the highest key with a layout.
const KEYS: usize = 76;

static BY_KEY: [Option<&'static RequestSchema>; KEYS] = index();

const fn index() -> [Option<&'static RequestSchema>; KEYS] {
    let groups = [
        data::REQUESTS,
        groups::REQUESTS,
        admin::REQUESTS,
        transactions::REQUESTS,
        security::REQUESTS,
    ];
    let mut by_key = [None; KEYS];
    let mut group = 0;
    while group < groups.len() {
        let requests = groups[group];
        let mut next = 0;
        while next < requests.len() {
            let request = &requests[next];
            let slot = request.api_key as usize;
            assert!(by_key[slot].is_none(), "an API is listed twice");
            by_key[slot] = Some(request);
            next += 1;
        }
        group += 1;
    }
    by_key
}

const BOOL: Kind = Kind::Bool;
const INT8: Kind = Kind::Int8;
const INT16: Kind = Kind::Int16;
const INT32: Kind = Kind::Int32;
const INT64: Kind = Kind::Int64;
const FLOAT64: Kind = Kind::Float64;
const UUID: Kind = Kind::Uuid;
const STRING: Kind = Kind::String;
const BYTES: Kind = Kind::Bytes;

const fn array(element: &'static Kind) -> Kind {
    Kind::Array(element)
}

const fn structure(fields: &'static [Field]) -> Kind {
    Kind::Structure(fields)
}

const fn structures(fields: &'static [Field]) -> Kind {
    Kind::Structures(fields)
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        since: 0,
        until: NEVER,
        nullable_since: NEVER,
        tag: None,
    }
}

const fn request(
    api_key: ApiKey,
    min_version: i16,
    max_version: i16,
    flexible_since: i16,
    fields: &'static [Field],
) -> RequestSchema {
    RequestSchema {
        api_key,
        min_version,
        max_version,
        flexible_since,
        fields,
    }
}
