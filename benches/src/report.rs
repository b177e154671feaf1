//! Tables of figures, as plain text and as JSON.

use std::fmt::Write as _;

/// One figure, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Not measured: a tool, a server or a limit is in the way.
    Missing,
    Number {
        value: f64,
        decimals: usize,
    },
    /// One value a round; shown as median (min-max) if there was more than one.
    Spread {
        values: Vec<f64>,
        decimals: usize,
    },
    Text(String),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn number(value: f64, decimals: usize) -> Self {
        Self::Number { value, decimals }
    }

    /// The values of all rounds; `Missing` if there are none.
    pub(crate) fn spread(values: Vec<f64>, decimals: usize) -> Self {
        if values.is_empty() { Self::Missing } else { Self::Spread { values, decimals } }
    }

    fn shown(&self) -> String {
        match self {
            Self::Missing => "-".to_owned(),
            Self::Number { value, decimals } => format!("{value:.decimals$}"),
            Self::Spread { values, decimals } => {
                let (low, median, high) = summary(values);
                if values.len() == 1 {
                    return format!("{median:.decimals$}");
                }
                format!("{median:.decimals$} ({low:.decimals$}-{high:.decimals$})")
            }
            Self::Text(text) => text.clone(),
        }
    }

    fn json(&self) -> String {
        match self {
            Self::Missing => "null".to_owned(),
            Self::Number { value, .. } => json_number(*value),
            Self::Spread { values, .. } => {
                let (low, median, high) = summary(values);
                let all: Vec<String> = values.iter().map(|&value| json_number(value)).collect();
                format!(
                    "{{\"median\":{},\"min\":{},\"max\":{},\"values\":[{}]}}",
                    json_number(median),
                    json_number(low),
                    json_number(high),
                    all.join(",")
                )
            }
            Self::Text(text) => json_string(text),
        }
    }
}

/// Lowest value, median and highest value of a list that is not empty.
fn summary(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median =
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    (sorted[0], median, sorted[sorted.len() - 1])
}

/// Rows under one head line.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &'static [&'static str]) -> Self {
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row; columns that it does not reach are missing.
    pub(crate) fn row(&mut self, mut cells: Vec<Cell>) {
        cells.resize(self.columns.len(), Cell::Missing);
        self.rows.push(cells);
    }

    fn text(&self) -> String {
        let mut lines: Vec<Vec<String>> =
            vec![self.columns.iter().map(|&column| column.to_owned()).collect()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()));
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = format!("{}\n", self.title);
        for line in lines {
            let padded: Vec<String> =
                line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            let _infallible = writeln!(text, "  {}", padded.join("  ").trim_end());
        }
        text
    }

    fn json(&self) -> String {
        let rows: Vec<String> = self
            .rows
            .iter()
            .map(|row| {
                let fields: Vec<String> = self
                    .columns
                    .iter()
                    .zip(row)
                    .map(|(column, cell)| format!("{}:{}", json_string(column), cell.json()))
                    .collect();
                format!("{{{}}}", fields.join(","))
            })
            .collect();
        format!("{{\"title\":{},\"rows\":[\n{}\n]}}", json_string(&self.title), rows.join(",\n"))
    }
}

/// All that one run of the program has to say.
#[derive(Debug)]
pub(crate) struct Report {
    command: &'static str,
    machine: String,
    invocation: String,
    tables: Vec<Table>,
    notes: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(command: &'static str) -> Self {
        let (machine, invocation) = (String::new(), String::new());
        Self { command, machine, invocation, tables: Vec::new(), notes: Vec::new(), failures: Vec::new() }
    }

    /// On what and by which command all this was measured.
    pub(crate) fn set_origin(&mut self, machine: impl Into<String>, invocation: impl Into<String>) {
        self.machine = machine.into();
        self.invocation = invocation.into();
    }

    pub(crate) fn add(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds a row that has only its first cells, and the reason in the last column.
    ///
    /// A reason that begins with `missing: ` tells of a tool or server that is not there, one with `no such mode: ` of
    /// work that a server cannot do; any other is a failure.
    pub(crate) fn gap(&mut self, table: &mut Table, mut cells: Vec<Cell>, why: &str) {
        if !["missing: ", "no such mode: "].iter().any(|word| why.starts_with(word)) {
            let names: Vec<String> = cells.iter().map(Cell::shown).collect();
            self.failure(format!("{}, {}: {why}", table.title, names.join(" ")));
        }
        cells.resize(table.columns.len() - 1, Cell::Missing);
        cells.push(Cell::text(why));
        table.rows.push(cells);
    }

    /// Something the reader must know to read the tables.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Something that makes the figures void: the program then ends with a failure.
    pub(crate) fn failure(&mut self, failure: impl Into<String>) {
        self.failures.push(failure.into());
    }

    /// No failure was reported.
    pub(crate) fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let _infallible = writeln!(text, "{}", table.text());
        }
        for note in [&self.machine].into_iter().chain(&self.notes).filter(|note| !note.is_empty()) {
            let _infallible = writeln!(text, "note: {note}");
        }
        for failure in &self.failures {
            let _infallible = writeln!(text, "FAILED: {failure}");
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let tables: Vec<String> = self.tables.iter().map(Table::json).collect();
        let strings = |list: &[String]| list.iter().map(|s| json_string(s)).collect::<Vec<_>>().join(",");
        format!(
            "{{\"command\":{},\"machine\":{},\"invocation\":{},\"notes\":[{}],\"failures\":[{}],\"tables\":[{}]}}\n",
            json_string(self.command),
            json_string(&self.machine),
            json_string(&self.invocation),
            strings(&self.notes),
            strings(&self.failures),
            tables.join(",")
        )
    }
}

fn json_number(value: f64) -> String {
    // JSON has no word for infinity or "not a number" (RFC 8259 section 6).
    if value.is_finite() { value.to_string() } else { "null".to_owned() }
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c < ' ' => {
                let _infallible = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_shows_the_median_and_both_ends() {
        assert_eq!(Cell::spread(vec![3.0, 1.0, 2.0], 1).shown(), "2.0 (1.0-3.0)");
        assert_eq!(Cell::spread(vec![4.0, 1.0], 1).shown(), "2.5 (1.0-4.0)");
        assert_eq!(Cell::spread(vec![4.0], 1).shown(), "4.0");
        assert_eq!(Cell::spread(vec![], 1).shown(), "-");
    }

    #[test]
    fn a_gap_keeps_its_row_and_is_a_failure_unless_something_is_missing_or_cannot_be() {
        let mut report = Report::new("http");
        let mut table = Table::new("t", &["server", "calls", "note"]);
        report.gap(&mut table, vec![Cell::text("x")], "missing: program");
        report.gap(&mut Table::new("t", &["server", "note"]), vec![], "no such mode: one answer");
        assert!(report.is_clean());
        report.gap(&mut table, vec![Cell::text("y")], "crashed");
        assert!(!report.is_clean());
        let wanted =
            "t\n  server  calls  note\n  x       -      missing: program\n  y       -      crashed\n";
        assert_eq!(table.text(), wanted);
    }

    #[test]
    fn json_escapes_what_rfc_8259_section_7_wants_escaped() {
        assert_eq!(json_string("a\"b\\c\n\u{1}"), r#""a\"b\\c\n\u0001""#);
        let mut report = Report::new("http");
        report.set_origin("m", "i");
        let mut table = Table::new("t", &["a", "b"]);
        table.row(vec![Cell::number(1.5, 0)]);
        report.add(table);
        let wanted = "{\"command\":\"http\",\"machine\":\"m\",\"invocation\":\"i\",\"notes\":[],\"failures\":[],\
            \"tables\":[{\"title\":\"t\",\"rows\":[\n{\"a\":1.5,\"b\":null}\n]}]}\n";
        assert_eq!(report.json(), wanted);
    }
}
