//! What a loop costs between readiness and callback: bytes that travel from socket pair to socket pair.

use crate::callgrind::{self, Lengths};
use crate::options::Options;
use crate::peers::{CONTROL, YARD_STICK};
use crate::programs::{Program, Row, Run, Source, rounds, yard_sticks};
use crate::report::{Cell, Report, Table};
use crate::tools::find_tool;
use crate::{Outcome, proc, syscalls};

/// How many pairs there are, and how many bytes travel at once.
struct Mode {
    name: &'static str,
    pairs: u64,
    active: u64,
}

const MODES: [Mode; 3] = [
    Mode { name: "100/1", pairs: 100, active: 1 },
    Mode { name: "1000/100", pairs: 1_000, active: 100 },
    Mode { name: "9000/100", pairs: 9_000, active: 100 },
];

/// Bytes that are passed on in a timed run.
const WRITES: u64 = 100_000;

/// Descriptors that a program needs besides its pairs.
const SPARE: u64 = 64;

const BARE: [Row; 2] = yard_sticks("dispatch_bare", &[]);

const OURS: Row = Row { name: "event-core", source: Source::Ours, before: &["dispatch"], after: &["events"] };

const ROWS: [Row; 8] = [
    BARE[0],
    BARE[1],
    Row::c("libevent", "dispatch_libevent", &["-levent"]),
    Row::c("libev", "dispatch_libev", &["-lev"]),
    Row::c("libuv", "dispatch_libuv", &["-luv"]),
    Row { name: "mio", source: Source::Mio, before: &["dispatch"], after: &[] },
    OURS,
    Row { name: "event-core tokens", source: Source::Ours, before: &["dispatch"], after: &["tokens"] },
];

const TIMED: &[&str] = &["pairs/active", "program", "ns/event", "to bare", "calls/event", "by name", "note"];

const COUNTED: &[&str] =
    &["program", "100 ready", "1 ready", "1 ready, pass", "100 to bare", "1 to bare", "note"];

/// How many are ready in a wait, and whether the loop is entered once or for every pass.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    ready: u64,
    how: &'static str,
}

pub(crate) const MANY: Shape = Shape { ready: 100, how: "stay" };
pub(crate) const ONE: Shape = Shape { ready: 1, how: "stay" };
const ONE_A_PASS: Shape = Shape { ready: 1, how: "pass" };

/// Bytes passed on in the two runs under strace and under callgrind.
const CALLS: Lengths = Lengths { short: 1_000, long: 5_000 };
const INSTRUCTIONS: Lengths = Lengths { short: 2_000, long: 12_000 };

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    let programs = Program::all(&ROWS, options)?;
    let allowed = proc::allowed_cpus()?;
    let cpu = allowed[allowed.len() - 1];
    let title = format!("dispatch of readable socket pairs: {} rounds of {WRITES} events", options.rounds);
    let mut table = Table::new(title, TIMED);
    for mode in modes {
        if let Err(why) = enough_files(mode.pairs) {
            report.gap(&mut table, vec![Cell::text(mode.name), Cell::text("all")], &why.to_string());
            continue;
        }
        let args = args(mode.pairs, mode.active, WRITES, "pass");
        let runs = rounds(programs.iter(), &args, Some(cpu), options.rounds);
        for (program, run) in programs.iter().zip(&runs) {
            add_row(&mut table, report, mode, program, run);
        }
    }
    report.add(table);
    instructions(&programs, report);
    report.note(format!(
        "all on processor {cpu}, one after the other; to bare is taken within a round, bare again is the control; \
         calls: slope between two runs under strace, set-up does not count"
    ));
    Ok(())
}

/// An error if that many pairs cannot be open at once.
fn enough_files(pairs: u64) -> Outcome<()> {
    let needed = 2 * pairs + SPARE;
    if proc::open_file_limit()? < needed {
        return Err(format!("missing: an open-file limit of {needed}").into());
    }
    Ok(())
}

fn args(pairs: u64, active: u64, writes: u64, how: &str) -> Vec<String> {
    vec![pairs.to_string(), active.to_string(), writes.to_string(), how.to_owned()]
}

fn add_row(table: &mut Table, report: &mut Report, mode: &Mode, program: &Program, run: &Run) {
    let head = vec![Cell::text(mode.name), Cell::text(&run.name)];
    if let Some(why) = &run.error {
        report.gap(table, head, why);
        return;
    }
    let mut row = head;
    row.extend([Cell::spread(run.values("ns"), 0), Cell::spread(run.ratios("ns"), 2)]);
    // What is counted comes out alike: no control is needed.
    let calls =
        if run.name == CONTROL { Ok(vec![Cell::Missing, Cell::Missing]) } else { calls(mode, program) };
    match calls {
        Ok(cells) => row.extend(cells),
        Err(error) => {
            report.gap(table, row, &error.to_string());
            return;
        }
    }
    row.push(Cell::text(""));
    table.row(row);
}

fn calls(mode: &Mode, program: &Program) -> Outcome<Vec<Cell>> {
    let strace = find_tool("strace").ok_or("missing: strace")?;
    let count = |writes| -> Outcome<syscalls::Counts> {
        let args = args(mode.pairs, mode.active, writes, "pass");
        Ok(syscalls::parse(&program.run_under(&strace, &["-f", "-c"], "-o", &args)?))
    };
    let (short, long) = (count(CALLS.short)?, count(CALLS.long)?);
    let slope = syscalls::difference(&short, &long, (CALLS.long - CALLS.short) as f64);
    Ok(vec![Cell::number(slope.values().sum(), 2), Cell::text(syscalls::by_name(&slope))])
}

fn instructions(programs: &[Program], report: &mut Report) {
    let mut table =
        Table::new("user instructions a dispatched event, the callback's own calls included", COUNTED);
    let mut bare = None;
    for program in programs.iter().filter(|program| program.name != CONTROL) {
        let counts = [MANY, ONE, ONE_A_PASS].map(|shape| of_events(program, shape));
        let counts: Outcome<Vec<f64>> = counts.into_iter().collect();
        match counts {
            Ok(counts) => {
                if program.name == YARD_STICK {
                    bare = Some((counts[0], counts[1]));
                }
                let mut row = vec![Cell::text(&program.name)];
                row.extend(counts.iter().map(|&count| Cell::number(count, 1)));
                row.extend(match bare {
                    Some((many, one)) => {
                        [Cell::number(counts[0] / many, 2), Cell::number(counts[1] / one, 2)]
                    }
                    None => [Cell::Missing, Cell::Missing],
                });
                row.push(Cell::text(""));
                table.row(row);
            }
            Err(error) => report.gap(&mut table, vec![Cell::text(&program.name)], &error.to_string()),
        }
    }
    report.add(table);
}

/// User instructions for each event of a program.
fn of_events(program: &Program, shape: Shape) -> Outcome<f64> {
    let valgrind = find_tool("valgrind").ok_or("missing: valgrind")?;
    let pairs = 10 * shape.ready;
    enough_files(pairs)?;
    callgrind::of_program(program, &valgrind, &INSTRUCTIONS, |writes| {
        args(pairs, shape.ready, writes, shape.how)
    })
}

/// User instructions for each event of our own program.
pub(crate) fn our_instructions(shape: Shape) -> Outcome<f64> {
    of_events(&Program::build(&OURS)?, shape)
}
