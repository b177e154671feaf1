//! Requests a second and processor time a request, under wrk, all servers in turn in each round.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Peer, Server, YARD_STICK};
use crate::tools::{find_tool, scratch_dir};
use crate::{Outcome, proc};

/// One kind of load.
struct Mode {
    name: &'static str,
    what: &'static str,
    connections: usize,
    /// Each connection carries one request.
    one_request: bool,
    /// Requests sent in one write, before any answer is read.
    depth: usize,
}

const MODES: [Mode; 5] = [
    Mode { name: "k1", what: "keep-alive", connections: 1, one_request: false, depth: 1 },
    Mode { name: "k64", what: "keep-alive", connections: 64, one_request: false, depth: 1 },
    Mode { name: "k400", what: "keep-alive", connections: 400, one_request: false, depth: 1 },
    Mode { name: "close64", what: "one connection a request", connections: 64, one_request: true, depth: 1 },
    Mode { name: "pipe16", what: "16 requests pipelined", connections: 64, one_request: false, depth: 16 },
];

/// Requests that warm a server up before its first round.
const WARM_UP: usize = 2_000;

const COLUMNS: &[&str] = &[
    "mode",
    "server",
    "req/s",
    "cpu us/req",
    "user",
    "system",
    "cpu to bare",
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
    failed: u64,
}

/// One server through all rounds of one mode.
struct Run {
    name: String,
    /// Gone after its first error, which then stands in `error`.
    server: Option<Server>,
    answer_bytes: usize,
    samples: Vec<Sample>,
    /// Ratios to the yard-stick in the same round.
    ratios: Vec<f64>,
    error: Option<String>,
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
    let allowed = proc::allowed_cpus()?;
    let cpus = Cpus { server: allowed[allowed.len() - 1], load: allowed[0] };
    if cpus.server == cpus.load {
        report.note("only one processor: servers and load share it, req/s and busy % mean little");
    }
    for &mode in &modes {
        let script = script(mode)?;
        let wrk = Wrk { program: wrk.clone(), script, seconds: options.seconds, cpu: cpus.load };
        for run in measure(mode, &peers, &wrk, &cpus, options.rounds)? {
            add_row(&mut table, report, mode, &run);
        }
    }
    report.add(table);
    report.note(format!(
        "servers on processor {}, wrk on processor {}; figures are median (min-max) over the rounds; \
         cpu to bare is taken within a round; bare again is the control",
        cpus.server, cpus.load
    ));
    for mode in modes {
        report.note(format!("{}: {}, {} connections", mode.name, mode.what, mode.connections));
    }
    Ok(())
}

/// Starts all servers once, then loads them in turn, round after round.
fn measure(mode: &Mode, peers: &[Peer], wrk: &Wrk, cpus: &Cpus, rounds: usize) -> Outcome<Vec<Run>> {
    let mut runs: Vec<Run> = peers.iter().map(|peer| start(peer, mode, cpus)).collect();
    for _ in 0..rounds {
        let mut yard_stick = None;
        for run in &mut runs {
            let Some(server) = &mut run.server else { continue };
            match one_round(server, mode, wrk) {
                Ok(sample) => {
                    if run.name == YARD_STICK {
                        yard_stick = Some(sample.cpu);
                    }
                    run.ratios.extend(yard_stick.map(|cpu| sample.cpu / cpu));
                    run.samples.push(sample);
                }
                Err(error) => {
                    run.error = Some(error.to_string());
                    run.server = None;
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
    Ok(runs)
}

fn start(peer: &Peer, mode: &Mode, cpus: &Cpus) -> Run {
    let launch = Launch { cpu: Some(cpus.server), one_request: mode.one_request, ..Launch::default() };
    let mut run = Run {
        name: peer.name.clone(),
        server: None,
        answer_bytes: 0,
        samples: Vec::new(),
        ratios: Vec::new(),
        error: None,
    };
    match Server::start(peer, &launch).and_then(|server| Ok((warm_up(&server, mode)?, server))) {
        Ok((answer_bytes, server)) => {
            run.answer_bytes = answer_bytes;
            run.server = Some(server);
        }
        Err(error) => run.error = Some(error.to_string()),
    }
    run
}

/// Checks the answers byte for byte, which wrk does not do; returns the length of one.
fn warm_up(server: &Server, mode: &Mode) -> Outcome<usize> {
    if mode.one_request {
        for _ in 0..WARM_UP / 10 {
            server.connect()?.get_and_close()?;
        }
        return server.connect()?.get_and_close();
    }
    let mut client = server.connect()?;
    for _ in 0..WARM_UP / mode.depth {
        client.get_pipelined(mode.depth)?;
    }
    client.get()
}

fn one_round(server: &mut Server, mode: &Mode, wrk: &Wrk) -> Outcome<Sample> {
    server.still_runs()?;
    let before = proc::cpu(server.pid())?;
    let began = Instant::now();
    let figures = wrk.load(&format!("http://{}/", server.address), mode.connections)?;
    let wall = began.elapsed();
    server.still_runs()?;
    let used = proc::cpu(server.pid())?.since(before);
    if figures.requests == 0 {
        return Err(format!("no request succeeded, {} failed", figures.failed).into());
    }
    let cpu = used.run.as_secs_f64() * 1e6 / figures.requests as f64;
    Ok(Sample {
        per_second: figures.requests as f64 / figures.seconds,
        cpu,
        split: used.user_share().map(|user| (cpu * user, cpu * (1.0 - user))),
        busy: 100.0 * used.run.as_secs_f64() / wall.as_secs_f64(),
        failed: figures.failed,
    })
}

fn add_row(table: &mut Table, report: &mut Report, mode: &Mode, run: &Run) {
    let head = vec![Cell::text(mode.name), Cell::text(&run.name)];
    let note = run.error.as_deref().unwrap_or_default();
    if run.samples.is_empty() {
        report.gap(table, head, note);
        return;
    }
    if !note.is_empty() {
        report.failure(format!("{} {}: {note}", mode.name, run.name));
    }
    let spread = |value: &dyn Fn(&Sample) -> Option<f64>, decimals| {
        Cell::spread(run.samples.iter().filter_map(value).collect(), decimals)
    };
    let failed: u64 = run.samples.iter().map(|sample| sample.failed).sum();
    if failed > 0 {
        report.failure(format!("{} {}: {failed} requests failed", mode.name, run.name));
    }
    let mut row = head;
    row.extend([
        spread(&|sample| Some(sample.per_second), 0),
        spread(&|sample| Some(sample.cpu), 2),
        spread(&|sample| Some(sample.split?.0), 2),
        spread(&|sample| Some(sample.split?.1), 2),
        Cell::spread(run.ratios.clone(), 2),
        spread(&|sample| Some(sample.busy), 0),
        Cell::number(run.answer_bytes as f64, 0),
        Cell::number(failed as f64, 0),
        Cell::text(note),
    ]);
    table.row(row);
}

/// The load generator, ready for one mode.
struct Wrk {
    program: PathBuf,
    script: PathBuf,
    seconds: u64,
    cpu: usize,
}

/// What wrk counted.
#[derive(Debug, PartialEq)]
struct Figures {
    requests: u64,
    seconds: f64,
    /// Errors of any kind: connect, read, write, status, timeout.
    failed: u64,
}

impl Wrk {
    fn load(&self, url: &str, connections: usize) -> Outcome<Figures> {
        let mut command = Command::new(&self.program);
        command
            .args(["-t", "1", "-c", &connections.to_string(), "-d", &format!("{}s", self.seconds), "-s"])
            .arg(&self.script)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = proc::pinned(self.cpu, || command.spawn())?
            .map_err(|error| format!("cannot start wrk: {error}"))?;
        let deadline = Instant::now() + Duration::from_secs(self.seconds + 30);
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Err("wrk did not end by itself".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        figures(&text).ok_or_else(|| format!("wrk gave no figures: {}", text.trim()).into())
    }
}

/// Writes the script that makes wrk send this mode's requests and print its counts in one line.
fn script(mode: &Mode) -> Outcome<PathBuf> {
    let mut text = String::from(
        "function done(summary, latency, requests)\n  \
           local e = summary.errors\n  \
           print(string.format(\"figures %d %d %d\", summary.requests, summary.duration,\n    \
             e.connect + e.read + e.write + e.status + e.timeout))\n\
         end\n",
    );
    if mode.one_request {
        text.push_str("wrk.headers[\"Connection\"] = \"close\"\n");
    }
    if mode.depth > 1 {
        text.push_str(&format!(
            "function init(args) batch = string.rep(wrk.format(), {}) end\n\
             function request() return batch end\n",
            mode.depth
        ));
    }
    let path: &Path = &scratch_dir()?.join(format!("{}.lua", mode.name));
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path.to_owned())
}

/// Finds the script's line in what wrk printed.
fn figures(text: &str) -> Option<Figures> {
    let line = text.lines().find_map(|line| line.strip_prefix("figures "))?;
    let mut numbers = line.split(' ').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some(Figures { requests: next()?, seconds: next()? as f64 / 1e6, failed: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_found_among_wrks_own() {
        let text = "Running 2s test\nRequests/sec: 5\nfigures 1000 2000000 3\n";
        assert_eq!(figures(text), Some(Figures { requests: 1000, seconds: 2.0, failed: 3 }));
        assert_eq!(figures("unable to connect"), None);
    }
}
