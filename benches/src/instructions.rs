//! Our own user instructions, held against a file: the one kind of speed that CI can check.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::callgrind::{self, Lengths};
use crate::options::Options;
use crate::peers::Peer;
use crate::report::{Cell, Report, Table};
use crate::tools::find_tool;
use crate::work::Work;
use crate::{Outcome, dispatch, throughput, timers};

/// A figure may be this much above the file's: the C library picks its copying loops by processor, and the date of an
/// answer is made anew each second, however many requests that second has.
const ALLOWED: f64 = 1.03;

/// What is measured of the server. Bodies of megabytes are not: how many reads and sends those take depends on when the
/// other side gets to run, and the figures move by two in a hundred.
struct Request {
    name: &'static str,
    work: Work,
    /// Requests in one write.
    depth: usize,
    lengths: Lengths,
}

/// What is measured of the loop.
const EVENTS: [(&str, dispatch::Shape); 2] =
    [("event, 1 ready", dispatch::ONE), ("event, 100 ready", dispatch::MANY)];

/// One of a thousand timers: the name of a row, and of what is done.
const TIMERS: [(&str, &str); 3] =
    [("timer, add and cancel", "cancel"), ("timer, add and fire", "fire"), ("timer, change", "change")];

/// A MiB through streams: its name, and the mode of `throughput`.
const STREAMS: [(&str, &str); 2] =
    [("MiB in 256 KiB blocks", "pair"), ("MiB in 256 KiB blocks, 3 filters", "filters")];

const MANY: Lengths = Lengths { short: 300, long: 1_800 };
const BATCHES: Lengths = Lengths { short: 50, long: 250 };

const REQUESTS: [Request; 4] = [
    Request { name: "request, depth 1", work: Work::Get, depth: 1, lengths: MANY },
    Request { name: "request, depth 16", work: Work::Get, depth: 16, lengths: BATCHES },
    Request { name: "request and close", work: Work::Close, depth: 1, lengths: MANY },
    Request { name: "request, POST 1 KiB", work: Work::Post(1024), depth: 1, lengths: MANY },
];

const HEAD: &str = "\
# User instructions for one piece of work, by `cargo run --release -p benches -- instructions`; see README.md.
";

const COLUMNS: &[&str] = &["name", "instructions", "in the file", "change %", "note"];

/// Instructions by name.
type Counts = BTreeMap<String, f64>;

/// How a figure compares with the file's.
#[derive(Debug, PartialEq)]
enum Verdict {
    Fewer,
    More,
    New,
    Same,
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv");
    let before = match fs::read_to_string(&path) {
        Ok(text) => parse(&text)?,
        Err(_) if options.update => Counts::new(),
        Err(error) => return Err(format!("{}: {error}; --update makes it", path.display()).into()),
    };
    let mut table = Table::new("user instructions, ours, against benches/instructions.tsv", COLUMNS);
    let mut now = Counts::new();
    let mut worse = false;
    let mut measured = Vec::new();
    for (name, count) in measurements()? {
        measured.push(name);
        match count {
            Ok(count) => {
                let old = before.get(name).copied();
                worse |= verdict(old, count) == Verdict::More;
                table.row(row(name, old, count, options.update));
                now.insert(name.to_owned(), count);
            }
            Err(error) => report.gap(&mut table, vec![Cell::text(name)], &error.to_string()),
        }
    }
    let complete = now.len() == measured.len();
    if !complete && std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty()) {
        report.failure("not everything could be measured");
    }
    for name in before.keys().filter(|name| !options.update && !measured.contains(&name.as_str())) {
        report.failure(format!("instructions.tsv has `{name}`, and nothing measures that"));
    }
    report.add(table);
    let tools = versions();
    if options.update {
        if !complete {
            return Err("not everything could be measured; the file is left as it was".into());
        }
        fs::write(&path, text(&now, &tools)).map_err(|error| format!("{}: {error}", path.display()))?;
        report.note(format!("{} is written anew: commit it, and say in the commit why", path.display()));
    } else if worse {
        report.failure(format!(
            "more instructions than {} allows. If that is the price of something wanted, or of another compiler \
             (now: {tools}), write the file anew with `cargo run --release -p benches -- instructions --update` and \
             say why in the commit",
            path.display()
        ));
    }
    Ok(())
}

/// Everything that has a row, measured.
fn measurements() -> Outcome<Vec<(&'static str, Outcome<f64>)>> {
    let server = Peer::ours()?;
    let of_request = |request: &Request| -> Outcome<f64> {
        let valgrind: PathBuf = find_tool("valgrind").ok_or("missing: valgrind")?;
        callgrind::of_server(&server, &valgrind, &request.lengths, request.work, request.depth)
    };
    let mut all: Vec<_> =
        EVENTS.iter().map(|&(name, shape)| (name, dispatch::our_instructions(shape))).collect();
    all.extend(STREAMS.iter().map(|&(name, mode)| (name, throughput::our_instructions(mode))));
    all.extend(REQUESTS.iter().map(|request| (request.name, of_request(request))));
    all.extend(TIMERS.iter().map(|&(name, what)| (name, timers::our_instructions(what))));
    Ok(all)
}

fn verdict(before: Option<f64>, now: f64) -> Verdict {
    match before {
        None => Verdict::New,
        Some(before) if now > before * ALLOWED => Verdict::More,
        Some(before) if now < before / ALLOWED => Verdict::Fewer,
        Some(_) => Verdict::Same,
    }
}

fn row(name: &str, before: Option<f64>, now: f64, update: bool) -> Vec<Cell> {
    let note = match verdict(before, now) {
        Verdict::Fewer if !update => "fewer: --update keeps what was won",
        Verdict::More if !update => "MORE",
        Verdict::New if !update => "not in the file: --update",
        _ => "",
    };
    vec![
        Cell::text(name),
        Cell::number(now, 1),
        before.map_or(Cell::Missing, |before| Cell::number(before, 1)),
        before.map_or(Cell::Missing, |before| Cell::number(100.0 * (now / before - 1.0), 2)),
        Cell::text(note),
    ]
}

fn parse(text: &str) -> Outcome<Counts> {
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (name, count) = line.split_once('\t').ok_or_else(|| format!("no tab in {line:?}"))?;
        let count = count.trim().parse().map_err(|_| format!("no number in {line:?}"))?;
        if counts.insert(name.to_owned(), count).is_some() {
            return Err(format!("{name} is there twice").into());
        }
    }
    Ok(counts)
}

fn text(counts: &Counts, tools: &str) -> String {
    let mut text = format!("{HEAD}# {tools}\n");
    for (name, count) in counts {
        let _infallible = writeln!(text, "{name}\t{count:.1}");
    }
    text
}

/// What the figures depend on besides our own code.
fn versions() -> String {
    let of = |tool: &str| {
        let output = Command::new(tool).arg("--version").output().ok()?;
        String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
    };
    let known = |tool| of(tool).unwrap_or_else(|| format!("no {tool}"));
    format!("{}, {}, {}", known("rustc"), known("valgrind"), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_percent_more_is_allowed_and_no_more() {
        assert_eq!(verdict(Some(1_000.0), 1_029.0), Verdict::Same);
        assert_eq!(verdict(Some(1_000.0), 1_031.0), Verdict::More);
        assert_eq!(verdict(Some(1_000.0), 950.0), Verdict::Fewer);
        assert_eq!(verdict(None, 950.0), Verdict::New);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let counts = Counts::from([("a b".to_owned(), 12.5), ("c".to_owned(), 3.0)]);
        assert_eq!(parse(&text(&counts, "rustc 1")).unwrap(), counts);
        for bad in ["a 1", "a\tmany", "a\t1\na\t2"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_row_of_the_file_is_measured_and_every_measurement_has_a_row() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv");
        let counts = parse(&fs::read_to_string(path).unwrap()).unwrap();
        let mut wanted = EVENTS.map(|(name, _)| name).to_vec();
        wanted.extend(STREAMS.map(|(name, _)| name));
        wanted.extend(REQUESTS.map(|request| request.name));
        wanted.extend(TIMERS.map(|(name, _)| name));
        wanted.sort_unstable();
        assert!(counts.keys().eq(&wanted), "{counts:?}");
    }
}
