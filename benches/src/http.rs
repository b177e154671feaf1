//! Requests a second, latency, memory and processor time a request, under wrk: all servers in turn in each round.

use std::path::Path;
use std::time::Instant;

use crate::modes::{Load, MODES, Mode};
use crate::options::Options;
use crate::peers::{CONTROL, Peer, YARD_STICK};
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::tools::find_tool;
use crate::work::Work;
use crate::wrk::Wrk;
use crate::{Outcome, paired, proc, syscalls};

/// Requests that warm a server up before its first round; of large ones, fewer.
const WARM_UP: usize = 2_000;
const WARM_UP_LARGE: usize = 20;

/// How often a round is begun.
const TRIES: usize = 3;

/// What a server needs in a mode besides its rounds, in seconds: to be started, warmed up, counted under strace.
const ASIDE: f64 = 4.0;

/// What a round takes besides its load, in seconds.
const BETWEEN: f64 = 0.2;

const COLUMNS: &[&str] = &[
    "mode",
    "server",
    "req/s",
    "cpu us/req",
    "user",
    "system",
    "cpu to bare",
    "p50 us",
    "p99 us",
    "RSS KiB",
    "calls/req",
    "busy %",
    "answer bytes",
    "failed",
    "note",
];

/// What one round of one server gave.
struct Sample {
    per_second: f64,
    /// Processor time a request, in microseconds: all, in user mode, in the kernel.
    cpu: f64,
    split: Option<(f64, f64)>,
    /// Share of one processor that the server kept busy.
    busy: f64,
    latency: Option<(f64, f64)>,
    /// Bytes in the middle of the load.
    resident: Option<u64>,
    failed: u64,
}

/// One server through all rounds of one mode.
struct Run {
    name: String,
    /// Gone after its first error, which then stands in `error`.
    server: Option<Server>,
    answer_bytes: usize,
    /// One a round; none for the rounds after an error.
    samples: Vec<Option<Sample>>,
    /// System calls a request; nothing if they are not counted.
    calls: Cell,
    error: Option<String>,
}

impl Run {
    fn values(&self, value: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(value).collect()
    }

    fn cpu(&self) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| Some(sample.as_ref()?.cpu)).collect()
    }
}

/// The processor of the servers and that of the load.
struct Cpus {
    server: usize,
    load: usize,
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    let peers = Peer::all(options)?;
    let title = format!("HTTP under wrk: {} rounds of {} s", options.rounds, options.seconds);
    let mut table = Table::new(title, COLUMNS);
    let Some(wrk) = find_tool("wrk") else {
        for peer in &peers {
            report.gap(&mut table, vec![Cell::text("all"), Cell::text(&peer.name)], "missing: wrk");
        }
        report.add(table);
        return Ok(());
    };
    let strace = find_tool("strace");
    if strace.is_none() {
        report.note("calls/req: missing: strace");
    }
    let allowed = proc::allowed_cpus()?;
    let cpus = Cpus { server: allowed[allowed.len() - 1], load: allowed[0] };
    if cpus.server == cpus.load {
        report.note("only one processor: servers and load share it, req/s and busy % mean little");
    }
    eprintln!(
        "http: {} modes, {} servers, {} rounds of {} s: about {:.0} minutes",
        modes.len(),
        peers.len(),
        options.rounds,
        options.seconds,
        (estimate(options, &modes, peers.len()) / 60.0).ceil()
    );
    for (at, &mode) in modes.iter().enumerate() {
        eprintln!("http: {} ({} of {})", mode.name, at + 1, modes.len());
        let wrk = Wrk::new(&wrk, mode, options.seconds, cpus.load)?;
        let mut runs = measure(&mode.load, &peers, &wrk, &cpus, options.rounds);
        if let Some(strace) = &strace {
            count_calls(&mut runs, &mode.load, &peers, strace);
        }
        let bare = runs.iter().find(|run| run.name == YARD_STICK).map(Run::cpu).unwrap_or_default();
        for run in &runs {
            add_row(&mut table, report, mode, run, &bare);
        }
    }
    report.add(table);
    report.note(format!(
        "servers on processor {}, wrk on processor {}; figures are median (min-max) over the rounds; \
         cpu to bare is taken within a round; bare again is the control",
        cpus.server, cpus.load
    ));
    for mode in modes {
        report.note(format!("{}: {}", mode.name, mode.words()));
    }
    Ok(())
}

/// Seconds that the whole measurement takes, about.
fn estimate(options: &Options, modes: &[&Mode], servers: usize) -> f64 {
    let of_mode = |mode: &&Mode| {
        let round = mode.seconds(options.seconds) as f64 + BETWEEN;
        servers as f64 * (options.rounds as f64 * round + ASIDE)
    };
    modes.iter().map(of_mode).sum()
}

/// Starts all servers once, then loads them in turn, round after round.
fn measure(load: &Load, peers: &[Peer], wrk: &Wrk, cpus: &Cpus, rounds: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = peers.iter().map(|peer| start(peer, load, cpus)).collect();
    for _ in 0..rounds {
        for run in &mut runs {
            let sample = run.server.as_mut().map(|server| one_round(server, load.work, wrk));
            match sample.transpose() {
                Ok(sample) => run.samples.push(sample),
                Err(error) => {
                    run.error = Some(error.to_string());
                    run.server = None;
                    run.samples.push(None);
                }
            }
        }
    }
    for run in &mut runs {
        if let Some(server) = run.server.take()
            && let Err(error) = server.stop()
        {
            run.error = Some(error.to_string());
        }
    }
    runs
}

fn start(peer: &Peer, load: &Load, cpus: &Cpus) -> Run {
    let launch = Launch {
        cpu: Some(cpus.server),
        work: load.work,
        connections: load.connections,
        ..Launch::default()
    };
    let mut run = Run {
        name: peer.name.clone(),
        server: None,
        answer_bytes: 0,
        samples: Vec::new(),
        calls: Cell::Missing,
        error: None,
    };
    match Server::start(peer, &launch).and_then(|server| Ok((warm_up(&server, load)?, server))) {
        Ok((answer_bytes, server)) => {
            run.answer_bytes = answer_bytes;
            run.server = Some(server);
        }
        Err(error) => run.error = Some(error.to_string()),
    }
    run
}

/// Checks the answers byte for byte, which wrk does not do; returns the length of one.
fn warm_up(server: &Server, load: &Load) -> Outcome<usize> {
    let requests = if load.is_large() { WARM_UP_LARGE } else { WARM_UP };
    if load.work == Work::Close {
        let once = || {
            let mut client = server.connect()?;
            client.send()?;
            client.last_answer()
        };
        for _ in 0..requests / 10 {
            once()?;
        }
        return once();
    }
    let mut client = server.connect()?;
    for _ in 0..requests / load.depth {
        client.get_pipelined(load.depth)?;
    }
    client.get()
}

fn one_round(server: &mut Server, work: Work, wrk: &Wrk) -> Outcome<Sample> {
    for _ in 0..TRIES {
        if let Some(sample) = try_round(server, work, wrk)? {
            return Ok(sample);
        }
    }
    Err("wrk made no request".into())
}

/// Nothing if wrk was done before it had begun: on a busy machine, with thousands of connections to make.
fn try_round(server: &mut Server, work: Work, wrk: &Wrk) -> Outcome<Option<Sample>> {
    server.still_runs()?;
    let pid = server.pid();
    let before = proc::cpu(pid)?;
    let began = Instant::now();
    let mut resident = None;
    let figures = wrk.load(&format!("http://{}{}", server.address, work.path()), || {
        resident = proc::resident(pid).ok();
    })?;
    let wall = began.elapsed();
    server.still_runs()?;
    let used = proc::cpu(pid)?.since(before);
    if figures.requests == 0 && figures.failed == 0 {
        return Ok(None);
    }
    if figures.requests == 0 {
        return Err(format!("no request succeeded, {} failed", figures.failed).into());
    }
    let cpu = used.run.as_secs_f64() * 1e6 / figures.requests as f64;
    Ok(Some(Sample {
        per_second: figures.requests as f64 / figures.seconds,
        cpu,
        split: used.user_share().map(|user| (cpu * user, cpu * (1.0 - user))),
        busy: 100.0 * used.run.as_secs_f64() / wall.as_secs_f64(),
        latency: figures.latency,
        resident,
        failed: figures.failed,
    }))
}

/// What is counted comes out alike: the control is left out.
fn count_calls(runs: &mut [Run], load: &Load, peers: &[Peer], strace: &Path) {
    for (run, peer) in runs.iter_mut().zip(peers) {
        if run.error.is_some() || run.name == CONTROL {
            continue;
        }
        match syscalls::in_step(peer, strace, load) {
            Ok(slope) => run.calls = Cell::number(slope.values().sum(), 2),
            Err(error) => run.error = Some(format!("under strace: {error}")),
        }
    }
}

fn add_row(table: &mut Table, report: &mut Report, mode: &Mode, run: &Run, bare: &[Option<f64>]) {
    let head = vec![Cell::text(mode.name), Cell::text(&run.name)];
    let note = run.error.as_deref().unwrap_or_default();
    if run.samples.iter().flatten().next().is_none() {
        report.gap(table, head, note);
        return;
    }
    if !note.is_empty() {
        report.failure(format!("{} {}: {note}", mode.name, run.name));
    }
    let failed: u64 = run.samples.iter().flatten().map(|sample| sample.failed).sum();
    if failed > 0 {
        report.failure(format!("{} {}: {failed} requests failed", mode.name, run.name));
    }
    let mut row = head;
    row.extend([
        Cell::spread(run.values(|sample| Some(sample.per_second)), 0),
        Cell::spread(run.values(|sample| Some(sample.cpu)), 2),
        Cell::spread(run.values(|sample| Some(sample.split?.0)), 2),
        Cell::spread(run.values(|sample| Some(sample.split?.1)), 2),
        Cell::spread(paired::ratios(&run.cpu(), bare), 2),
        Cell::spread(run.values(|sample| Some(sample.latency?.0)), 0),
        Cell::spread(run.values(|sample| Some(sample.latency?.1)), 0),
        Cell::spread(run.values(|sample| Some(sample.resident? as f64 / 1024.0)), 0),
        run.calls.clone(),
        Cell::spread(run.values(|sample| Some(sample.busy)), 0),
        Cell::number(run.answer_bytes as f64, 0),
        Cell::number(failed as f64, 0),
        Cell::text(note),
    ]);
    table.row(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu: f64, failed: u64) -> Option<Sample> {
        Some(Sample {
            per_second: 1e6 / cpu,
            cpu,
            split: None,
            busy: 100.0,
            latency: Some((1.0, 2.0)),
            resident: Some(2048),
            failed,
        })
    }

    fn run(name: &str, samples: Vec<Option<Sample>>) -> Run {
        Run {
            name: name.to_owned(),
            server: None,
            answer_bytes: 100,
            samples,
            calls: Cell::number(3.0, 2),
            error: None,
        }
    }

    fn shown(run: &Run, bare: &[Option<f64>]) -> (Report, String) {
        let (mut report, mut table) = (Report::new("http"), Table::new("t", COLUMNS));
        add_row(&mut table, &mut report, &MODES[1], run, bare);
        report.add(table);
        let text = report.text();
        (report, text)
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() {
        let bare = run(YARD_STICK, vec![sample(1.0, 0), sample(2.0, 0), sample(10.0, 0)]);
        let other = run("x", vec![sample(2.0, 0), sample(6.0, 0), sample(10.0, 0)]);
        let (report, text) = shown(&other, &bare.cpu());
        assert!(report.is_clean());
        // Of the ratios 2, 3 and 1; the medians 6 and 2 would give 3.
        assert!(text.contains("2.00 (1.00-3.00)"), "{text}");
    }

    #[test]
    fn a_request_that_failed_makes_the_run_a_failure() {
        let (report, text) = shown(&run("x", vec![sample(1.0, 0), sample(1.0, 2)]), &[]);
        assert!(!report.is_clean());
        assert!(text.contains("FAILED: k64 x: 2 requests failed"), "{text}");
    }

    #[test]
    fn a_server_that_fails_in_a_later_round_keeps_its_figures_and_is_a_failure() {
        let mut broken = run("x", vec![sample(2.0, 0), None, None]);
        broken.error = Some("ended by itself".to_owned());
        let (report, text) = shown(&broken, &[Some(1.0), Some(1.0), Some(1.0)]);
        assert!(!report.is_clean());
        assert!(text.contains(" 2.00 ") && text.contains("ended by itself"), "{text}");
    }

    #[test]
    fn a_mode_that_a_server_does_not_have_is_a_row_without_figures_and_no_failure() {
        let mut other = run("x", vec![None]);
        other.error = Some("no such mode: it has one answer".to_owned());
        let (report, text) = shown(&other, &[Some(1.0)]);
        assert!(report.is_clean());
        assert!(text.contains("no such mode: it has one answer"), "{text}");
    }

    #[test]
    fn what_is_announced_grows_with_modes_servers_rounds_and_seconds() {
        let of = |line: &str| {
            let options = Options::parse(line.split(' ').map(str::to_owned)).unwrap();
            estimate(&options, &MODES.iter().collect::<Vec<_>>(), 9)
        };
        assert!(of("http --rounds 7 --seconds 3") > 90.0 * 7.0 * 3.0);
        assert!(of("http --rounds 1 --seconds 1") < of("http --rounds 2 --seconds 1"));
    }
}
