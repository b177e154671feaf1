//! One stream of large blocks: how fast, and at what cost for each byte.

use std::collections::BTreeMap;

use crate::callgrind::{self, Lengths};
use crate::options::Options;
use crate::programs::{Program, Row, Run, Source, rounds, yard_sticks};
use crate::report::{Cell, Report, Table};
use crate::tools::find_tool;
use crate::{Outcome, le_proxy, proc};

/// How much passes in a run.
const MIB: u64 = 1024;

/// What a program writes at a time.
const BLOCK_KIB: u64 = 256;

struct Mode {
    name: &'static str,
}

const MODES: [Mode; 4] =
    [Mode { name: PAIR }, Mode { name: FILTERS }, Mode { name: "proxy" }, Mode { name: LE_PROXY }];

const PAIR: &str = "pair";

/// The same with three filters at each end that pass everything on.
const FILTERS: &str = "filters";

/// Whole programs, over TCP: see `le_proxy`.
const LE_PROXY: &str = "le-proxy";

const BARE: [Row; 2] = yard_sticks("throughput_bare", &["-lpthread"]);

/// In MiB.
const LENGTHS: Lengths = Lengths { short: 16, long: 64 };

/// Whom ours is held against.
const LIBEVENT: &str = "libevent";

const OURS: Row = Row { name: "event-core", source: Source::Ours, before: &["throughput"], after: &[] };

const LIBRARIES: &[&str] = &["-levent", "-lpthread"];

const ROWS: [Row; 5] = [
    BARE[0],
    BARE[1],
    Row::c(LIBEVENT, "throughput_libevent", LIBRARIES),
    Row { after: &["large"], ..Row::c("libevent large", "throughput_libevent", LIBRARIES) },
    OURS,
];

const COLUMNS: &[&str] =
    &["mode", "program", "MB/s", "to libevent", "cpu ns/KiB", "cpu to bare", "cpu to libevent", "note"];

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    if modes.iter().any(|mode| mode.name == LE_PROXY) {
        le_proxy::run(options, report)?;
    }
    let modes: Vec<_> = modes.into_iter().filter(|mode| mode.name != LE_PROXY).collect();
    if modes.is_empty() {
        return Ok(());
    }
    let programs = Program::all(&ROWS, options)?;
    let mut table = Table::new(format!("one stream of large blocks: {} rounds", options.rounds), COLUMNS);
    let mut of_ours = BTreeMap::new();
    for mode in modes {
        let args = [mode.name.to_owned(), MIB.to_string(), BLOCK_KIB.to_string()];
        let runs = rounds(programs.iter(), &args, None, options.rounds);
        of_ours.extend(
            runs.iter().filter(|run| run.name == OURS.name).map(|run| (mode.name, run.values("cpu"))),
        );
        let libevent = runs.iter().find(|run| run.name == LIBEVENT);
        for run in &runs {
            let mut row = vec![Cell::text(mode.name), Cell::text(&run.name)];
            if let Some(why) = &run.error {
                report.gap(&mut table, row, why);
                continue;
            }
            row.extend([
                Cell::spread(run.values("ns").iter().map(|ns| speed(*ns)).collect(), 0),
                Cell::spread(against(libevent, run, "ns").iter().map(|ratio| 1.0 / ratio).collect(), 2),
                Cell::spread(run.values("cpu"), 0),
                Cell::spread(run.ratios("cpu"), 2),
                Cell::spread(against(libevent, run, "cpu"), 2),
                Cell::text(""),
            ]);
            table.row(row);
        }
    }
    report.add(table);
    if let (Some(filters), Some(pair)) = (of_ours.get(FILTERS), of_ours.get(PAIR)) {
        let ratios = filters.iter().zip(pair).map(|(filters, pair)| filters / pair).collect();
        let mut table = Table::new("what three filters at each end cost", &["program", "cpu to none"]);
        table.row(vec![Cell::text(OURS.name), Cell::spread(ratios, 2)]);
        report.add(table);
    }
    report.note(format!(
        "{MIB} MiB in blocks of {BLOCK_KIB} KiB over unix socket pairs, on {} processors; cpu is that of the loop's \
         thread; ratios are taken within a round, bare again is the control; libevent large: the caps on one round \
         lifted as far as they can be",
        proc::allowed_cpus()?.len()
    ));
    Ok(())
}

/// User instructions for a MiB of ours.
pub(crate) fn our_instructions(mode: &str) -> Outcome<f64> {
    let valgrind = find_tool("valgrind").ok_or("missing: valgrind")?;
    callgrind::of_program(&Program::build(&OURS)?, &valgrind, &LENGTHS, |mib| {
        vec![mode.to_owned(), mib.to_string(), BLOCK_KIB.to_string()]
    })
}

/// MB/s from ns for a KiB.
fn speed(ns: f64) -> f64 {
    1024.0 * 1000.0 / ns
}

/// The ratio of `run` to `other` in each round.
fn against(other: Option<&Run>, run: &Run, name: &str) -> Vec<f64> {
    let Some(other) = other.filter(|other| other.error.is_none()) else { return Vec::new() };
    run.values(name).iter().zip(other.values(name)).map(|(ours, theirs)| ours / theirs).collect()
}
