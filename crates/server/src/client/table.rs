//! Tables and numbers for people.

/// Columns under their titles, two spaces between them. Columns of numbers are aligned to the right.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N)
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(titles[column].chars().count())
        })
        .collect();
    let numeric: Vec<bool> = (0..N)
        .map(|column| !rows.is_empty() && rows.iter().all(|row| is_number(&row[column])))
        .collect();
    let line = |cells: [&str; N]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths.iter().zip(&numeric))
            .map(|(cell, (&width, &right))| {
                if right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = line(titles);
    rows.iter().fold(head, |page, row| {
        page + &line(std::array::from_fn(|column| row[column].as_str()))
    })
}

fn is_number(cell: &str) -> bool {
    cell == NOTHING || cell.starts_with(|c: char| c.is_ascii_digit())
}

/// Stands where there is nothing to say.
pub const NOTHING: &str = "-";

pub fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

pub fn list(values: &[u32]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// A number of bytes with a unit, to one digit behind the point.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = count as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_lines_end_without_blanks() {
        let rows = [
            ["a".to_owned(), "7".to_owned(), String::new()],
            ["long".to_owned(), "1234".to_owned(), "x".to_owned()],
        ];
        let page = table(["NAME", "COUNT", "NOTE"], &rows);
        assert_eq!(page, "NAME  COUNT  NOTE\na         7\nlong   1234  x\n");
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
