//! The version of this build.

/// The package's version and the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT"), ")");
/// The commit, or `unknown` where the sources weren't in their git repository.
pub const COMMIT: &str = env!("BUILD_COMMIT");

#[cfg(test)]
mod tests {
    /// `cargo run` starts the broker with the variables of its build.
    #[test]
    fn the_build_sets_no_variable_that_the_broker_would_refuse() {
        let script = include_str!("../build.rs");
        let mut set = script
            .split("rustc-env=")
            .skip(1)
            .map(|rest| rest.split('=').next())
            .peekable();
        assert!(set.peek().is_some(), "the build tells its commit otherwise");
        for name in set {
            assert!(
                name.is_some_and(|name| !name.starts_with("TIDEGATE_")),
                "{name:?}"
            );
        }
    }
}
