//! One stream of large blocks: how fast, and at what cost for each byte.

use crate::options::Options;
use crate::programs::{Program, Row, Run, Source, rounds, yard_sticks};
use crate::report::{Cell, Report, Table};
use crate::{Outcome, proc};

/// How much passes in a run.
const MIB: u64 = 1024;

/// What a program writes at a time.
const BLOCK_KIB: u64 = 256;

struct Mode {
    name: &'static str,
}

const MODES: [Mode; 2] = [Mode { name: "pair" }, Mode { name: "proxy" }];

const BARE: [Row; 2] = yard_sticks("throughput_bare", &["-lpthread"]);

/// Whom ours is held against.
const LIBEVENT: &str = "libevent";

const LIBRARIES: &[&str] = &["-levent", "-lpthread"];

const ROWS: [Row; 5] = [
    BARE[0],
    BARE[1],
    Row::c(LIBEVENT, "throughput_libevent", LIBRARIES),
    Row { after: &["large"], ..Row::c("libevent large", "throughput_libevent", LIBRARIES) },
    Row { name: "event-core", source: Source::Ours, before: &["throughput"], after: &[] },
];

const COLUMNS: &[&str] =
    &["mode", "program", "MB/s", "to libevent", "cpu ns/KiB", "cpu to bare", "cpu to libevent", "note"];

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    let programs = Program::all(&ROWS, options)?;
    let mut table = Table::new(format!("one stream of large blocks: {} rounds", options.rounds), COLUMNS);
    for mode in modes {
        let args = [mode.name.to_owned(), MIB.to_string(), BLOCK_KIB.to_string()];
        let runs = rounds(programs.iter(), &args, None, options.rounds);
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
    report.note(format!(
        "{MIB} MiB in blocks of {BLOCK_KIB} KiB over unix socket pairs, on {} processors; cpu is that of the loop's \
         thread; ratios are taken within a round, bare again is the control; libevent large: the caps on one round \
         lifted as far as they can be",
        proc::allowed_cpus()?.len()
    ));
    Ok(())
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
