//! Regular expressions over names, as clients send them.
//!
//! The language is RE2's. The `regex` crate speaks it but for `\Q…\E`, which is translated. Like RE2 it needs time
//! linear in the name, whatever the expression.

use regex::{Regex, RegexBuilder};

/// The most memory that one compiled expression may take.
const COMPILED_BYTES: usize = 1 << 20;

/// An expression that must match a whole name.
#[derive(Debug, Clone)]
pub struct Expression(Regex);

/// It isn't an expression, or would take too much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it isn't a regular expression, or one that takes too much memory")]
pub struct InvalidExpression;

impl Expression {
    pub fn parse(expression: &str) -> Result<Self, InvalidExpression> {
        let whole = format!("^(?:{})$", unquoted(expression));
        RegexBuilder::new(&whole)
            .size_limit(COMPILED_BYTES)
            .dfa_size_limit(COMPILED_BYTES)
            .build()
            .map(Self)
            .map_err(|_| InvalidExpression)
    }

    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, name: &str) -> bool {
        Expression::parse(expression).unwrap().is_match(name)
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
                Expression::parse(bad).map(|_| ()),
                Err(InvalidExpression),
                "{bad}"
            );
        }
    }
}
