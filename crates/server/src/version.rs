//! The version of this build.

/// The package's version and the commit it was built from.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TIDEGATE_COMMIT"),
    ")"
);
/// The commit, or `unknown` where the sources weren't in their git repository.
pub const COMMIT: &str = env!("TIDEGATE_COMMIT");
