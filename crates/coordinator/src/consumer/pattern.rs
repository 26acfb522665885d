//! Subscriptions by regular expression, which the coordinator resolves (KIP-848, heartbeat version 1).

use std::collections::{BTreeMap, BTreeSet};

use crate::ClusterView;
use crate::expression::Expression;

/// What an expression matched when it was last looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResolvedRegex {
    pub(crate) topics: BTreeSet<String>,
    /// Kafka's version of the metadata; ours counts the views that this coordinator has had.
    pub(crate) version: i64,
    pub(crate) resolved_at_ms: i64,
}

/// The topics that each expression matches now. One that can't be compiled matches nothing: it was checked when a
/// member brought it, so it comes from a log that another build has written.
pub(crate) fn resolve(
    expressions: &BTreeSet<String>,
    view: &dyn ClusterView,
) -> BTreeMap<String, BTreeSet<String>> {
    let compiled: Vec<(&String, Option<Expression>)> = expressions
        .iter()
        .map(|expression| (expression, Expression::parse(expression).ok()))
        .collect();
    let mut matched: BTreeMap<String, BTreeSet<String>> = expressions
        .iter()
        .map(|expression| (expression.clone(), BTreeSet::new()))
        .collect();
    view.each_topic(&mut |name| {
        for (expression, regex) in &compiled {
            if regex.as_ref().is_some_and(|r| r.is_match(name.as_str()))
                && let Some(topics) = matched.get_mut(*expression)
            {
                topics.insert(name.as_str().to_owned());
            }
        }
    });
    matched
}
