//! Who a connection speaks for.

/// A principal (KIP-12). Until clients can authenticate, every connection is that of the anonymous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    name: Box<str>,
}

impl Principal {
    /// `User:ANONYMOUS`, as Kafka calls whoever didn't authenticate.
    pub(crate) fn anonymous() -> Self {
        Self {
            name: "ANONYMOUS".into(),
        }
    }

    /// Its name, without its type.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
