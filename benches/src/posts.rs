//! Messages from four threads to one loop.

use crate::options::Options;
use crate::programs::{Program, Row, Source, rounds, yard_sticks};
use crate::report::{Cell, Report, Table};
use crate::{Outcome, proc};

const MESSAGES: u64 = 1_000_000;

const BARE: [Row; 2] = yard_sticks("posts_bare", &["-lpthread"]);

const ROWS: [Row; 8] = [
    BARE[0],
    BARE[1],
    Row::c("libevent", "posts_libevent", &["-levent", "-levent_pthreads", "-lpthread"]),
    Row::c("libev", "posts_libev", &["-lev", "-lpthread"]),
    Row::c("libuv", "posts_libuv", &["-luv", "-lpthread"]),
    Row { name: "mio", source: Source::Mio, before: &["posts"], after: &[] },
    Row { name: "event-core mailbox", source: Source::Ours, before: &["posts"], after: &["mailbox"] },
    Row { name: "event-core closures", source: Source::Ours, before: &["posts"], after: &["closures"] },
];

const COLUMNS: &[&str] =
    &["program", "ns/message", "to bare", "cpu ns/message", "cpu to bare", "wake-ups", "note"];

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let programs = Program::all(&ROWS, options)?;
    let title = format!("{MESSAGES} messages from four threads: {} rounds", options.rounds);
    let mut table = Table::new(title, COLUMNS);
    for run in rounds(programs.iter(), &[MESSAGES.to_string()], None, options.rounds) {
        let mut row = vec![Cell::text(&run.name)];
        if let Some(why) = &run.error {
            report.gap(&mut table, row, why);
            continue;
        }
        row.extend([
            Cell::spread(run.values("ns"), 0),
            Cell::spread(run.ratios("ns"), 2),
            Cell::spread(run.values("cpu"), 0),
            Cell::spread(run.ratios("cpu"), 2),
            Cell::spread(run.values("wakes"), 0),
            Cell::text(""),
        ]);
        table.row(row);
    }
    report.add(table);
    report.note(format!(
        "five threads on {} processors; every program checks that no message is lost and that each thread's come \
         in its order; ratios are taken within a round, bare again is the control",
        proc::allowed_cpus()?.len()
    ));
    Ok(())
}
