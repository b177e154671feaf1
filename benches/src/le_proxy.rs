//! Two whole proxies: our example `le_proxy` and the same in C on libevent, one connection of large blocks through each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::report::{Cell, Report, Table};
use crate::tools::{built_by_cargo, compiled};
use crate::{Outcome, proc};

/// How much passes in a run.
const MIB: usize = 512;

/// What the source writes at a time.
const BLOCK: usize = 256 << 10;

/// How long the proxy may take for a read or write of ours.
const PATIENCE: Duration = Duration::from_secs(60);

const COLUMNS: &[&str] = &["program", "MB/s", "to libevent", "cpu ns/KiB", "cpu to libevent", "note"];

/// One program through all rounds.
struct Proxy {
    name: &'static str,
    program: Result<PathBuf, String>,
    /// How it is told to take any port that is free.
    listen: &'static str,
    ns: Vec<f64>,
    cpu: Vec<f64>,
    error: Option<String>,
}

impl Proxy {
    fn new(name: &'static str, listen: &'static str, program: Result<PathBuf, String>) -> Self {
        Self { name, program, listen, ns: Vec::new(), cpu: Vec::new(), error: None }
    }

    fn run(&mut self) {
        if self.error.is_some() {
            return;
        }
        let run = match &self.program {
            Ok(path) => pass(path, self.listen),
            Err(why) => Err(format!("missing: {why}").into()),
        };
        match run {
            Ok((ns, cpu)) => {
                self.ns.push(ns);
                self.cpu.push(cpu);
            }
            Err(error) => self.error = Some(error.to_string()),
        }
    }
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let example = built_by_cargo(&["-p", "examples", "--example", "le_proxy"], "examples/le_proxy")?;
    let peer = compiled("le_proxy_libevent", &["-levent"])?;
    let mut proxies =
        [Proxy::new("libevent", "127.0.0.1", peer), Proxy::new("event-core", "127.0.0.1:0", example)];
    for _ in 0..options.rounds {
        proxies.iter_mut().for_each(Proxy::run);
    }
    let mut table = Table::new(format!("le-proxy: {} rounds", options.rounds), COLUMNS);
    let of_libevent = (proxies[0].ns.clone(), proxies[0].cpu.clone());
    for proxy in &proxies {
        let mut row = vec![Cell::text(proxy.name)];
        if let Some(why) = &proxy.error {
            report.gap(&mut table, row, why);
            continue;
        }
        let ratio = |ours: &[f64], theirs: &[f64]| -> Vec<f64> {
            ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
        };
        row.extend([
            Cell::spread(proxy.ns.iter().map(|ns| 1024.0 * 1000.0 / ns).collect(), 0),
            Cell::spread(ratio(&of_libevent.0, &proxy.ns), 2),
            Cell::spread(proxy.cpu.clone(), 0),
            Cell::spread(ratio(&proxy.cpu, &of_libevent.1), 2),
            Cell::text(""),
        ]);
        table.row(row);
    }
    report.add(table);
    report.note(format!(
        "{MIB} MiB through one TCP connection on each side; cpu is that of the proxy's process"
    ));
    Ok(())
}

/// A proxy that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _has_ended = self.0.kill();
        let _nothing_to_do = self.0.wait();
    }
}

/// Starts a proxy to `behind`; where it listens is in the first line that it prints.
fn start(program: &Path, listen: &str, behind: SocketAddr) -> Outcome<(Running, SocketAddr)> {
    let mut command = Command::new(program);
    command.args([listen, &behind.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let mut running = Running(child);
    let stdout = running.0.stdout.take().ok_or("standard output was not piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.split_whitespace().find_map(|word| word.parse().ok());
    Ok((running, address.ok_or_else(|| format!("it does not say where it listens: {line:?}"))?))
}

/// Has everything pass a proxy once: ns and the proxy's processor time for a KiB.
fn pass(program: &Path, listen: &str) -> Outcome<(f64, f64)> {
    let behind = TcpListener::bind("127.0.0.1:0")?;
    let (proxy, address) = start(program, listen, behind.local_addr()?)?;
    let mut source = TcpStream::connect(address)?;
    let (mut sink, _) = behind.accept()?;
    source.set_write_timeout(Some(PATIENCE))?;
    sink.set_read_timeout(Some(PATIENCE))?;
    let before = proc::cpu(proxy.0.id())?;
    let start = Instant::now();
    let writer = thread::spawn(move || {
        let block = vec![b'x'; BLOCK];
        for _ in 0..(MIB << 20) / BLOCK {
            source.write_all(&block)?;
        }
        source.shutdown(Shutdown::Write)?;
        // Open until all has arrived.
        Ok::<TcpStream, std::io::Error>(source)
    });
    let mut room = vec![0; BLOCK];
    let mut arrived = 0;
    loop {
        match sink.read(&mut room)? {
            0 => break,
            n => arrived += n,
        }
    }
    let took = start.elapsed();
    let cpu = proc::cpu(proxy.0.id())?.since(before).run;
    writer.join().map_err(|_| "the writer panicked")??;
    if arrived != MIB << 20 {
        return Err(format!("{arrived} of {} bytes arrived", MIB << 20).into());
    }
    let kib = (MIB << 10) as f64;
    Ok((took.as_secs_f64() * 1e9 / kib, cpu.as_secs_f64() * 1e9 / kib))
}
