//! Counting: what test programs print at their end, and the summary.

use std::time::Duration;

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Count {
    pub(crate) const ONE_PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    pub(crate) const ONE_FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// The counts in the output of test programs: libtest's closing lines, and the `score:` lines with which a test
    /// reports on a suite that others wrote. `None` when there is neither.
    pub(crate) fn from_output(output: &str) -> Option<Self> {
        let mut count = None::<Self>;
        for line in output.lines() {
            let line = line.trim();
            let numbers = if let Some(rest) = line.strip_prefix("test result: ") {
                rest.split_once(". ").map(|(_, numbers)| numbers)
            } else if let Some(rest) = line.strip_prefix("score: ") {
                rest.split_once(' ').map(|(_, numbers)| numbers)
            } else {
                None
            };
            if let Some(numbers) = numbers {
                count.get_or_insert_default().add(Self::from_words(numbers));
            }
        }
        count
    }

    fn from_words(numbers: &str) -> Self {
        let mut count = Self::default();
        for part in numbers.split([';', ',']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => count.passed += number,
                "failed" => count.failed += number,
                "ignored" | "skipped" => count.skipped += number,
                _ => {}
            }
        }
        count
    }
}

/// One row of the summary.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) suite: String,
    pub(crate) count: Count,
    pub(crate) took: Duration,
    /// Why it failed, beyond what its tests said.
    pub(crate) remark: String,
}

/// Prints the table, the failed tests' names, and as the very last line the total. Gives that total.
pub(crate) fn print_summary(rows: &[Row], failed_tests: &[String], whole: Duration) -> Count {
    let mut total = Count::default();
    println!(
        "\n{:<16} {:>8} {:>8} {:>8} {:>9}",
        "suite", "passed", "failed", "skipped", "seconds"
    );
    for row in rows {
        total.add(row.count);
        let Count {
            passed,
            failed,
            skipped,
        } = row.count;
        let seconds = row.took.as_secs_f64();
        println!(
            "{:<16} {passed:>8} {failed:>8} {skipped:>8} {seconds:>9.1}  {}",
            row.suite, row.remark
        );
    }
    println!("{:<16} {:>35.1}", "whole run", whole.as_secs_f64());
    for name in failed_tests {
        println!("failed: {name}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    total
}

/// The names libtest prints as failed.
pub(crate) fn failed_names(output: &str) -> Vec<String> {
    let lines = output.lines().map(str::trim);
    lines
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(str::to_owned)
        .collect()
}

/// Why tests failed, as they printed it: what an `Error:` or a panic says, with the lines right below it.
pub(crate) fn causes(output: &str) -> Vec<String> {
    const LINES: usize = 6;
    let lines: Vec<&str> = output.lines().collect();
    let mut causes = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if lines[at].starts_with("Error: ") || lines[at].contains(" panicked at ") {
            let below = lines[at..].iter().take(LINES);
            let cause = below.take_while(|line| !line.starts_with("note: "));
            let cause: Vec<&str> = cause.map(|line| line.trim()).collect();
            at += cause.len();
            let said: Vec<&str> = cause.into_iter().filter(|line| !line.is_empty()).collect();
            causes.push(said.join(" | "));
        }
        at += 1;
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_what_errors_and_panics_say() {
        let output = "test a ... FAILED\n---- a stdout ----\nError: act 3, TIDEGATE_TEST_SEED=7\n\nCaused by:\n    no\nnote: x\n\
                      thread 'b' (12) panicked at tests/b.rs:3:5:\nassertion failed\nnote: run with\n";
        assert_eq!(
            causes(output),
            [
                "Error: act 3, TIDEGATE_TEST_SEED=7 | Caused by: | no",
                "thread 'b' (12) panicked at tests/b.rs:3:5: | assertion failed",
            ]
        );
    }

    #[test]
    fn closing_lines_of_several_programs_are_added() {
        let output = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; \
                      finished in 0.01s\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered \
                      out; finished in 1s\n";
        assert_eq!(
            Count::from_output(output),
            Some(Count {
                passed: 4,
                failed: 2,
                skipped: 1
            })
        );
    }

    #[test]
    fn scores_of_other_peoples_suites_count() {
        let output = "score: franz-go 110 passed, 1 failed, 6 skipped\n";
        assert_eq!(
            Count::from_output(output),
            Some(Count {
                passed: 110,
                failed: 1,
                skipped: 6
            })
        );
    }

    #[test]
    fn a_program_that_died_before_its_closing_line_has_no_count() {
        assert_eq!(Count::from_output("running 3 tests\ntest a ... ok\n"), None);
    }

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(
            failed_names("test x::a ... ok\ntest x::b ... FAILED\n"),
            ["x::b"]
        );
    }
}
