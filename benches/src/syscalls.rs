//! System calls a request, by name, counted by strace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::client::Client;
use crate::modes::Load;
use crate::options::Options;
use crate::peers::Peer;
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::tools::{find_tool, scratch_file};
use crate::work::Work;
use crate::{Outcome, proc};

/// Requests, of large ones fewer, by which the longer of two runs exceeds the shorter; at least four rounds.
const MORE: usize = 1_000;
const MORE_LARGE: usize = 80;

/// Rounds of requests in the shorter of two runs, fewer where a round is much: what happens once has happened then.
const SHORT: usize = 50;
const SHORT_OF_MANY: usize = 2;

/// Requests sent in one write.
const DEPTH: usize = 16;

const SINGLE: Load = Load { work: Work::Get, connections: 1, depth: 1 };
const BATCH: Load = Load { work: Work::Get, connections: 1, depth: DEPTH };

/// The calls that can carry an answer.
const SENDS: [&str; 6] = ["send", "sendmmsg", "sendmsg", "sendto", "write", "writev"];

const COLUMNS: &[&str] = &["server", "calls", "sends", "by name", "note"];

/// Calls by name.
pub(crate) type Counts = BTreeMap<String, u64>;

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let peers = Peer::all(options)?;
    let strace = find_tool("strace");
    for (title, load) in [
        ("system calls a keep-alive request, one connection".to_owned(), SINGLE),
        (format!("system calls a batch of {DEPTH} pipelined requests, one connection"), BATCH),
    ] {
        let mut table = Table::new(title, COLUMNS);
        for peer in &peers {
            let name = Cell::text(&peer.name);
            let slope = match &strace {
                Some(strace) => of_rounds(peer, strace, &load),
                None => Err("missing: strace".into()),
            };
            match slope {
                Ok(slope) => table.row(row(name, &slope)),
                Err(error) => report.gap(&mut table, vec![name], &error.to_string()),
            }
        }
        report.add(table);
    }
    report.note(
        "slope between a short and a long run, so start-up does not count; a timer that fires now and then shows \
         as a fraction",
    );
    Ok(())
}

/// Calls by name for one request of a load: in each round, every client sends, then every client reads.
pub(crate) fn in_step(peer: &Peer, strace: &Path, load: &Load) -> Outcome<BTreeMap<String, f64>> {
    let requests = (load.connections * load.depth) as f64;
    let round = of_rounds(peer, strace, load)?;
    Ok(round.into_iter().map(|(name, calls)| (name, calls / requests)).collect())
}

/// Calls by name for one round.
fn of_rounds(peer: &Peer, strace: &Path, load: &Load) -> Outcome<BTreeMap<String, f64>> {
    let requests = load.connections * load.depth;
    let short = if requests < SHORT && !load.is_large() { SHORT } else { SHORT_OF_MANY };
    let more = if load.is_large() { MORE_LARGE } else { MORE };
    let long = short + (more / requests).max(4);
    let (few, many) = (count(peer, strace, load, short)?, count(peer, strace, load, long)?);
    Ok(difference(&few, &many, (long - short) as f64))
}

/// What the longer of two runs has called more often, by name, for each of the `pieces` of work that it did more.
pub(crate) fn difference(short: &Counts, long: &Counts, pieces: f64) -> BTreeMap<String, f64> {
    let mut slope = BTreeMap::new();
    for name in short.keys().chain(long.keys()) {
        let calls = |counts: &Counts| counts.get(name).copied().unwrap_or(0) as f64;
        let more = calls(long) - calls(short);
        // Two calls more or fewer are noise of the run as a whole, not work of a piece.
        if more.abs() > 2.0 {
            slope.insert(name.clone(), more / pieces);
        }
    }
    slope
}

/// One line of calls by name.
pub(crate) fn by_name(slope: &BTreeMap<String, f64>) -> String {
    let names: Vec<String> = slope.iter().map(|(name, each)| format!("{name} {each:.2}")).collect();
    names.join(", ")
}

/// All calls of a server that lives for `rounds` of a load.
fn count(peer: &Peer, strace: &Path, load: &Load, rounds: usize) -> Outcome<Counts> {
    let file = scratch_file("strace")?;
    let launch = Launch {
        wrapper: vec![strace.into(), "-f".into(), "-c".into(), "-o".into(), file.clone().into()],
        work: load.work,
        connections: load.connections,
        ..Launch::default()
    };
    let server = Server::start(peer, &launch)?;
    if proc::family(server.pid()).len() < 2 {
        return Err("cannot see the server under strace (CONFIG_PROC_CHILDREN)".into());
    }
    let clients = || -> Outcome<Vec<Client>> { (0..load.connections).map(|_| server.connect()).collect() };
    let mut kept = if load.work == Work::Close { Vec::new() } else { clients()? };
    for _ in 0..rounds {
        if load.work == Work::Close {
            let mut once = clients()?;
            once.iter_mut().try_for_each(Client::send)?;
            once.into_iter().try_for_each(|client| client.last_answer().map(drop))?;
            continue;
        }
        kept.iter_mut().try_for_each(|client| client.send_pipelined(load.depth))?;
        for client in &mut kept {
            (0..load.depth).try_for_each(|_| client.answer().map(drop))?;
        }
    }
    server.stop()?;
    let text = fs::read_to_string(&file).map_err(|error| format!("strace left no table: {error}"))?;
    fs::remove_file(&file)?;
    Ok(parse(&text))
}

/// Reads the table of `strace -c`: share, seconds, microseconds a call, calls, errors or nothing, name.
pub(crate) fn parse(table: &str) -> Counts {
    let mut counts = Counts::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, calls, .., name] = fields[..] else { continue };
        if let Ok(calls) = calls.parse::<u64>()
            && name != "total"
        {
            *counts.entry(name.to_owned()).or_default() += calls;
        }
    }
    counts
}

fn row(name: Cell, slope: &BTreeMap<String, f64>) -> Vec<Cell> {
    let total: f64 = slope.values().sum();
    let sends: f64 = SENDS.iter().filter_map(|&send| slope.get(send)).sum();
    vec![name, Cell::number(total, 2), Cell::number(sends, 2), Cell::text(by_name(slope)), Cell::text("")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read_with_and_without_errors() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300           3       100         1 recvfrom
 40.00    0.000200           2        99           sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500           2       199         1 total
";
        let wanted = [("recvfrom".to_owned(), 100), ("sendto".to_owned(), 99)];
        assert_eq!(parse(table), Counts::from(wanted));
    }
}
