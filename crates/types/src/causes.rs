use std::error::Error;
use std::fmt;

/// Shows an error with its causes on one line, outermost first: `can't open the log: permission denied`.
///
/// A cause that its parent quotes already isn't repeated: errors of other people's crates do that.
#[derive(Debug, Clone, Copy)]
pub struct WithCauses<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let causes = std::iter::successors(self.0.source(), |cause| (*cause).source());
        for cause in causes {
            let text = cause.to_string();
            if !last.contains(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    fn link(text: &'static str, source: Option<Link>) -> Link {
        Link {
            text,
            source: source.map(Box::new),
        }
    }

    #[test]
    fn causes_follow_on_one_line_and_a_quoted_one_only_once() {
        let refused = || link("refused", None);
        let plain = link("no start", Some(link("no port", Some(refused()))));
        assert_eq!(WithCauses(&plain).to_string(), "no start: no port: refused");
        let quoting = link("no port: refused", Some(refused()));
        assert_eq!(WithCauses(&quoting).to_string(), "no port: refused");
        let behind = link("no port: gone", Some(link("gone", Some(refused()))));
        assert_eq!(WithCauses(&behind).to_string(), "no port: gone: refused");
    }
}
