//! What an idle keep-alive connection costs a server in resident memory, and an idle stream a loop.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::options::Options;
use crate::peers::Peer;
use crate::programs::{Program, Row, Source, rounds};
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::{Outcome, proc};

/// How long a server may take to see that all clients have gone.
const CLOSING: Duration = Duration::from_secs(20);

/// Descriptors that either side needs besides its connections.
const SPARE: u64 = 64;

/// Callbacks as one object a stream, and as closures, each of which is a box.
const STREAMS: [Row; 3] = [
    Row::c("libevent", "streams_libevent", &["-levent"]),
    Row { name: "event-core", source: Source::Ours, before: &["streams"], after: &["objects"] },
    Row { name: "event-core closures", source: Source::Ours, before: &["streams"], after: &["closures"] },
];

const COLUMNS: &[&str] = &["server", "pass", "before KiB", "low KiB", "high KiB", "bytes/connection", "note"];

/// Resident bytes of one pass.
struct Pass {
    name: &'static str,
    /// Without connections.
    before: u64,
    low: u64,
    high: u64,
    note: String,
}

/// One pass in a new process, one after all connections of the first have closed.
struct Passes {
    first: Pass,
    second: Pass,
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    servers(options, report)?;
    streams(options, report)
}

/// What one more idle stream costs.
fn streams(options: &Options, report: &mut Report) -> Outcome<()> {
    let programs = STREAMS
        .iter()
        .filter(|row| options.only.is_empty() || options.only.iter().any(|only| only == row.name))
        .map(Program::build)
        .collect::<Outcome<Vec<_>>>()?;
    let (low, high) = options.connections;
    let title = format!("resident memory with {low} and {high} idle streams: {} rounds", options.rounds);
    let mut table = Table::new(title, &["program", "bytes/stream", "note"]);
    let args = [low.to_string(), high.to_string()];
    for run in rounds(programs.iter(), &args, None, options.rounds) {
        let mut row = vec![Cell::text(&run.name)];
        if let Some(why) = &run.error {
            report.gap(&mut table, row, why);
            continue;
        }
        row.extend([Cell::spread(run.values("bytes"), 0), Cell::text("")]);
        table.row(row);
    }
    report.add(table);
    Ok(())
}

fn servers(options: &Options, report: &mut Report) -> Outcome<()> {
    let (low, high) = options.connections;
    let mut table = Table::new(format!("resident memory with {low} and {high} idle connections"), COLUMNS);
    let needed = high as u64 + SPARE;
    let room = proc::open_file_limit()? >= needed;
    for peer in Peer::all(options)? {
        let outcome = if room {
            measure(&peer, low, high)
        } else {
            Err(format!("missing: an open-file limit of {needed}").into())
        };
        match outcome {
            Ok(passes) => {
                table.row(row(&peer.name, &passes.first, high - low));
                table.row(row(&peer.name, &passes.second, high - low));
            }
            Err(error) => report.gap(&mut table, vec![Cell::text(&peer.name)], &error.to_string()),
        }
    }
    report.add(table);
    report.note(
        "each connection has made one request and got its answer; first: a new process, second: after all have \
         closed once. An allocator that keeps what was freed makes the second slope small: what one more \
         connection costs is the first",
    );
    Ok(())
}

fn measure(peer: &Peer, low: usize, high: usize) -> Outcome<Passes> {
    let mut server = Server::start(peer, &Launch { connections: high, ..Launch::default() })?;
    server.connect()?.get()?;
    let files = settled(&server, None)?;
    let first = climb(&mut server, "first", low, high)?;
    let left = settled(&server, Some(files))?;
    let mut second = climb(&mut server, "second", low, high)?;
    server.stop()?;
    if left > files {
        second.note = format!("kept {} descriptors of the first pass open", left - files);
    }
    Ok(Passes { first, second })
}

/// Opens connections up to `low`, then up to `high`, measures at both, and closes them all.
fn climb(server: &mut Server, name: &'static str, low: usize, high: usize) -> Outcome<Pass> {
    let before = proc::resident(server.pid())?;
    let mut clients = Vec::with_capacity(high);
    open(server, &mut clients, low)?;
    let at_low = proc::resident(server.pid())?;
    open(server, &mut clients, high)?;
    let at_high = proc::resident(server.pid())?;
    server.still_runs()?;
    // A server that has closed early would look frugal.
    let held = proc::open_files(server.pid())?;
    if held < high {
        return Err(format!("holds {held} descriptors with {high} connections open").into());
    }
    Ok(Pass { name, before, low: at_low, high: at_high, note: String::new() })
}

fn open(server: &Server, clients: &mut Vec<Client>, count: usize) -> Outcome<()> {
    while clients.len() < count {
        let mut client = server.connect()?;
        client.get().map_err(|error| format!("connection {}: {error}", clients.len() + 1))?;
        clients.push(client);
    }
    Ok(())
}

/// The number of descriptors the server holds, once that has come down to `wanted` or has stopped falling.
fn settled(server: &Server, wanted: Option<usize>) -> Outcome<usize> {
    let deadline = Instant::now() + CLOSING;
    let (mut files, mut since) = (usize::MAX, Instant::now());
    while Instant::now() < deadline {
        let now = proc::open_files(server.pid())?;
        if now != files {
            (files, since) = (now, Instant::now());
        }
        if wanted.is_some_and(|wanted| files <= wanted) || since.elapsed() > Duration::from_millis(500) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(files)
}

fn row(server: &str, pass: &Pass, between: usize) -> Vec<Cell> {
    let kib = |bytes: u64| Cell::number(bytes as f64 / 1024.0, 0);
    vec![
        Cell::text(server),
        Cell::text(pass.name),
        kib(pass.before),
        kib(pass.low),
        kib(pass.high),
        Cell::number((pass.high as f64 - pass.low as f64) / between as f64, 0),
        Cell::text(&pass.note),
    ]
}
