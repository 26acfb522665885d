//! The suites, in the order they run.

use std::time::Duration;

use crate::build::TestProgram;

/// How a suite is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// `cargo fmt --check`.
    Format,
    /// `cargo clippy` with warnings as errors.
    Lint,
    /// `cargo deny`: licences, bans, sources. Advisories need a database from the net and aren't asked.
    Licences,
    /// The examples in the documentation.
    DocTests,
    /// xtask's own tests.
    Xtask,
    /// The test programs that `takes` names.
    Programs,
}

/// One suite.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) work: Work,
    /// Which programs it runs: a package's folder and a target's name.
    pub(crate) takes: fn(&TestProgram) -> bool,
    /// Arguments for the test programs.
    pub(crate) arguments: &'static [&'static str],
    /// Each program is killed after this time.
    pub(crate) limit: Duration,
    /// Needs the installed tools: clients, S3 server.
    pub(crate) needs_tools: bool,
}

fn nothing(_: &TestProgram) -> bool {
    false
}

fn is(program: &TestProgram, package: &str, target: &str) -> bool {
    program.integration && program.package == package && program.target == target
}

/// The end-to-end targets, each with a suite of its own; all other programs are `unit`.
fn is_end_to_end(program: &TestProgram) -> bool {
    ["cases", "clients", "franz_go"]
        .iter()
        .any(|target| is(program, "tests/clients", target))
        || is(program, "tests/cluster", "crash")
        || is_chaos(program)
        || is_application(program)
        || is_model(program)
}

/// Random acts while clients write, and the same with transactions.
fn is_chaos(program: &TestProgram) -> bool {
    is(program, "tests/cluster", "chaos") || is(program, "tests/cluster", "transactions")
}

/// What people run on a cluster: Streams, Connect, Flink.
fn is_application(program: &TestProgram) -> bool {
    is(program, "tests/applications", "applications")
}

/// The handover and failover protocols as a model.
fn is_model(program: &TestProgram) -> bool {
    program.package == "tests/model"
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

const fn step(name: &'static str, what: &'static str, work: Work) -> Suite {
    Suite {
        name,
        what,
        work,
        takes: nothing,
        arguments: &[],
        limit: minutes(20),
        needs_tools: false,
    }
}

/// All suites, cheap ones first: a slip is known early.
pub(crate) fn all() -> Vec<Suite> {
    let programs = |name, what, takes, arguments, limit| Suite {
        name,
        what,
        work: Work::Programs,
        takes,
        arguments,
        limit: minutes(limit),
        needs_tools: true,
    };
    let one_at_a_time: &[&str] = &["--test-threads=1", "--nocapture"];
    vec![
        step("format", "cargo fmt --check", Work::Format),
        step("xtask", "xtask's own tests", Work::Xtask),
        programs(
            "unit",
            "unit, property, contract and format tests of all crates",
            |p| !is_end_to_end(p),
            &[],
            10,
        ),
        Suite {
            needs_tools: false,
            ..programs(
                "model",
                "handover and failover as a model, all interleavings of small cases",
                is_model,
                &["--nocapture"],
                10,
            )
        },
        step("doc-tests", "examples in the documentation", Work::DocTests),
        step("lint", "cargo clippy, warnings are errors", Work::Lint),
        Suite {
            needs_tools: true,
            ..step(
                "licences",
                "cargo deny: licences, bans, sources",
                Work::Licences,
            )
        },
        programs(
            "cases",
            "bug reports of the field, by raw protocol",
            |p| is(p, "tests/clients", "cases"),
            &[],
            10,
        ),
        programs(
            "clients",
            "real clients",
            |p| is(p, "tests/clients", "clients"),
            &[],
            10,
        ),
        programs(
            "franz-go",
            "franz-go's own suite",
            |p| is(p, "tests/clients", "franz_go"),
            one_at_a_time,
            20,
        ),
        programs(
            "applications",
            "Kafka Streams, Kafka Connect and Flink while brokers move partitions and die",
            is_application,
            one_at_a_time,
            20,
        ),
        programs(
            "crash",
            "kill -9 at random moments",
            |p| is(p, "tests/cluster", "crash"),
            one_at_a_time,
            15,
        ),
        programs(
            "chaos",
            "clusters under random acts: plain producers and groups, and transactions",
            is_chaos,
            one_at_a_time,
            15,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_belongs_to_exactly_one_suite() {
        let program = |package: &str, target: &str, integration| TestProgram {
            package: package.into(),
            target: target.into(),
            integration,
            executable: "x".into(),
        };
        for program in [
            program("tests/clients", "cases", true),
            program("tests/clients", "a_new_target", true),
            program("tests/applications", "applications", true),
            program("tests/cluster", "crash", true),
            program("tests/cluster", "chaos", true),
            program("tests/cluster", "transactions", true),
            program("tests/cluster", "tidegate_tests_cluster", false),
            program("crates/wal", "tidegate_wal", false),
        ] {
            let takers = all().iter().filter(|suite| (suite.takes)(&program)).count();
            assert_eq!(takers, 1, "{program:?}");
        }
    }
}
