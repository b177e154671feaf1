//! What a timer costs: add, change, cancel, fire.

use crate::callgrind::{self, Lengths};
use crate::options::Options;
use crate::programs::{Program, Row, Source, rounds, yard_sticks};
use crate::report::{Cell, Report, Table};
use crate::tools::find_tool;
use crate::{Outcome, proc};

/// How many timers there are, and whether they share one duration.
struct Mode {
    name: &'static str,
    count: u64,
    shape: &'static str,
}

const MODES: [Mode; 4] = [
    Mode { name: "1000", count: 1_000, shape: "random" },
    Mode { name: "100000", count: 100_000, shape: "random" },
    Mode { name: "1000000", count: 1_000_000, shape: "random" },
    Mode { name: "one", count: 1_000_000, shape: ONE },
];

/// The shape in which all timers have the same duration.
const ONE: &str = "one";

const BARE: [Row; 2] = yard_sticks("timers_bare", &[]);

/// These take part where there is one duration only.
const COMMON: [Row; 2] = [
    Row { after: &["common"], ..Row::c("libevent common", "timers_libevent", &["-levent"]) },
    Row { name: "event-core common", source: Source::Ours, before: &["timers"], after: &["common"] },
];

const OURS: Row = Row { name: "event-core", source: Source::Ours, before: &["timers"], after: &["timers"] };

const ROWS: [Row; 10] = [
    BARE[0],
    BARE[1],
    Row::c("libevent", "timers_libevent", &["-levent"]),
    COMMON[0],
    Row::c("libev", "timers_libev", &["-lev"]),
    Row::c("libuv", "timers_libuv", &["-luv"]),
    Row { name: "mio", source: Source::None("it has no timers"), before: &[], after: &[] },
    OURS,
    COMMON[1],
    Row { name: "event-core tokens", source: Source::Ours, before: &["timers"], after: &["tokens"] },
];

/// What the programs print.
const PHASES: [&str; 4] = ["add", "change", "cancel", "fire"];

const COLUMNS: &[&str] = &[
    "timers",
    "program",
    "add ns",
    "change ns",
    "cancel ns",
    "fire ns",
    "add to bare",
    "change to bare",
    "cancel to bare",
    "fire to bare",
    "note",
];

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    let programs = Program::all(&ROWS, options)?;
    let allowed = proc::allowed_cpus()?;
    let cpu = allowed[allowed.len() - 1];
    let mut table = Table::new(format!("timers: {} rounds", options.rounds), COLUMNS);
    for mode in modes {
        let args = [mode.count.to_string(), mode.shape.to_owned()];
        let taking_part = programs
            .iter()
            .filter(|program| mode.shape == ONE || COMMON.iter().all(|row| row.name != program.name));
        for run in rounds(taking_part, &args, Some(cpu), options.rounds) {
            let mut row = vec![Cell::text(mode.name), Cell::text(&run.name)];
            if let Some(why) = &run.error {
                report.gap(&mut table, row, why);
                continue;
            }
            row.extend(PHASES.map(|phase| Cell::spread(run.values(phase), 0)));
            row.extend(PHASES.map(|phase| Cell::spread(run.ratios(phase), 2)));
            row.push(Cell::text(""));
            table.row(row);
        }
    }
    report.add(table);
    report.note(format!(
        "all on processor {cpu}, one after the other; ratios are taken within a round, bare again is the control; \
         one: a million timers of one duration"
    ));
    Ok(())
}

/// What `ours timers steps` does to a thousand timers.
const STEPS: Row = Row { name: "event-core", source: Source::Ours, before: &["timers", "steps"], after: &[] };
const CROWD: f64 = 1_000.0;
const TIMES: Lengths = Lengths { short: 5, long: 25 };

/// User instructions of our own for each timer of a step: `cancel`, which adds it first; `change`; `fire`, which adds it
/// first.
pub(crate) fn our_instructions(step: &str) -> Outcome<f64> {
    let valgrind = find_tool("valgrind").ok_or("missing: valgrind")?;
    let program = Program::build(&STEPS)?;
    let crowd =
        callgrind::of_program(&program, &valgrind, &TIMES, |times| vec![step.to_owned(), times.to_string()])?;
    Ok(crowd / CROWD)
}
