//! Subscriptions by regular expression, which the coordinator resolves (KIP-848, heartbeat version 1).
//!
//! The language is RE2's. The `regex` crate speaks it but for `\Q…\E`, which is translated. Like RE2 it needs
//! time linear in the topic's name, whatever the expression.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};

use crate::{ClusterView, GroupError};

/// The most memory that one compiled expression may take.
const COMPILED_BYTES: usize = 1 << 20;

/// What an expression matched when it was last looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResolvedRegex {
    pub(crate) topics: BTreeSet<String>,
    /// Kafka's version of the metadata; ours counts the views that this coordinator has had.
    pub(crate) version: i64,
    pub(crate) resolved_at_ms: i64,
}

/// An expression that must match a topic's whole name.
///
/// # Errors
/// [`GroupError::InvalidRegularExpression`] if it isn't one, or would take too much memory.
pub(crate) fn compile(expression: &str) -> Result<Regex, GroupError> {
    let whole = format!("^(?:{})$", unquoted(expression));
    RegexBuilder::new(&whole)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(COMPILED_BYTES)
        .build()
        .map_err(|_| GroupError::InvalidRegularExpression)
}

/// Replaces `\Q…\E` by the same text with its special characters escaped.
fn unquoted(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some(at) = quote_start(rest) {
        out.push_str(&rest[..at]);
        let quoted = &rest[at + 2..];
        let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
        out.push_str(&regex::escape(text));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Where the next `\Q` is whose backslash isn't escaped itself.
fn quote_start(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        match (bytes[at], bytes[at + 1]) {
            (b'\\', b'Q') => return Some(at),
            (b'\\', _) => at += 2,
            _ => at += 1,
        }
    }
    None
}

/// The topics that each expression matches now. One that can't be compiled matches nothing: it was checked when a
/// member brought it, so it comes from a log that another build has written.
pub(crate) fn resolve(
    expressions: &BTreeSet<String>,
    view: &dyn ClusterView,
) -> BTreeMap<String, BTreeSet<String>> {
    let compiled: Vec<(&String, Option<Regex>)> = expressions
        .iter()
        .map(|expression| (expression, compile(expression).ok()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, topic: &str) -> bool {
        compile(expression).unwrap().is_match(topic)
    }

    #[test]
    fn an_expression_must_match_the_whole_name() {
        assert!(matches("orders-.*", "orders-eu"));
        assert!(!matches("orders", "orders-eu"));
        assert!(!matches("eu", "orders-eu"));
        assert!(matches("a|b", "b"));
        assert!(!matches("a|b", "ab"));
    }

    #[test]
    fn quoted_text_is_taken_literally_as_in_re2() {
        assert!(matches(r"\Qa.b\E.*", "a.b-c"));
        assert!(!matches(r"\Qa.b\E.*", "axb-c"));
        assert!(matches(r"\Qa.b", "a.b"));
        assert!(!matches(r"a\\Qb", "aQb"));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for bad in ["[", "(", "a{2,1}", "(?=a)", r"(a)\1", "a{1000}{1000}{1000}"] {
            assert_eq!(
                compile(bad).map(|_| ()),
                Err(GroupError::InvalidRegularExpression),
                "{bad}"
            );
        }
    }
}
