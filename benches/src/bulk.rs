//! What bodies of 1 GiB cost our server in memory: uploads that are counted, fast and slowly, and downloads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::peers::Peer;
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::{Outcome, proc};

/// Of each body.
const BYTES: u64 = 1 << 30;

/// What the server may hold on top of what it has at first: the bound of unsent output (1 MiB), blocks of 64 KiB, and what
/// the allocator keeps.
const GROWTH: u64 = 4 << 20;

/// Longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Mode {
    name: &'static str,
    what: &'static str,
    path: Option<&'static str>,
    /// The client rests after each MiB that it has read.
    slow_reader: bool,
}

const MODES: [Mode; 4] = [
    Mode { name: "up", what: "an upload to a callback", path: Some("/up"), slow_reader: false },
    Mode { name: "slow-up", what: "one that pauses 5 ms a MiB", path: Some("/slow"), slow_reader: false },
    Mode { name: "down", what: "a download", path: None, slow_reader: false },
    Mode { name: "slow-down", what: "one that pauses 5 ms a MiB", path: None, slow_reader: true },
];

const COLUMNS: &[&str] = &["mode", "what", "MiB", "MiB/s", "before KiB", "peak KiB", "growth KiB", "note"];

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let modes = options.chosen(&MODES, |mode| mode.name)?;
    let peer = Peer::bulk()?;
    let mut table = Table::new("resident memory of event-http with one body of 1 GiB", COLUMNS);
    for mode in modes {
        let row = vec![Cell::text(mode.name), Cell::text(mode.what), Cell::number((BYTES >> 20) as f64, 0)];
        match measure(&peer, mode) {
            Ok(figures) => table.row([row, figures].concat()),
            Err(error) => report.gap(&mut table, row, &error.to_string()),
        }
    }
    report.add(table);
    report.note(format!("each in a process of its own; a growth above {} KiB is a failure", GROWTH >> 10));
    Ok(())
}

fn measure(peer: &Peer, mode: &Mode) -> Outcome<Vec<Cell>> {
    let mut server = Server::start(peer, &Launch::default())?;
    let before = proc::resident(server.pid())?;
    let start = Instant::now();
    match mode.path {
        Some(path) => upload(&server, path)?,
        None => download(&server, mode.slow_reader)?,
    }
    let took = start.elapsed();
    server.still_runs()?;
    let peak = proc::peak(server.pid())?;
    server.stop()?;
    let growth = peak.saturating_sub(before);
    if growth > GROWTH {
        return Err(format!("grew by {} KiB", growth >> 10).into());
    }
    let kib = |bytes: u64| Cell::number(bytes as f64 / 1024.0, 0);
    let speed = (BYTES >> 20) as f64 / took.as_secs_f64();
    Ok(vec![Cell::number(speed, 0), kib(before), kib(peak), kib(growth), Cell::text("")])
}

fn connected(server: &Server) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(server.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn upload(server: &Server, path: &str) -> Outcome<()> {
    let mut stream = connected(server)?;
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n")?;
    let block = vec![b'x'; 256 << 10];
    let mut left = BYTES;
    while left > 0 {
        let piece = left.min(block.len() as u64);
        stream.write_all(&block[..piece as usize])?;
        left -= piece;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let got = answer.rsplit_once("\r\n\r\n").map(|(_, body)| body);
    if got == Some(&BYTES.to_string()) { Ok(()) } else { Err(format!("answered {answer:?}").into()) }
}

fn download(server: &Server, slowly: bool) -> Outcome<()> {
    let mut stream = connected(server)?;
    write!(stream, "GET /down/{BYTES} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut block = vec![0; 1 << 20];
    let (mut head, mut got, mut rested) = (Vec::new(), 0, 0);
    let mut in_body = false;
    loop {
        let n = stream.read(&mut block)?;
        if n == 0 {
            break;
        }
        if in_body {
            got += n as u64;
        } else {
            head.extend_from_slice(&block[..n]);
            if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                in_body = true;
                got = (head.len() - end - 4) as u64;
            }
        }
        if slowly && got - rested >= 1 << 20 {
            rested = got;
            thread::sleep(Duration::from_millis(5));
        }
    }
    if got == BYTES { Ok(()) } else { Err(format!("{got} bytes came of {BYTES}").into()) }
}
