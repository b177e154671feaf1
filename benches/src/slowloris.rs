//! Ten thousand clients that send a byte a second, against our server in a process of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::options::Options;
use crate::peers::Peer;
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::{Outcome, proc};

/// As many as an open-file limit of 20,000 leaves room for in either process.
const CLIENTS: usize = 10_000;

/// Descriptors that either side needs besides.
const SPARE: u64 = 256;

/// How much of a core the server may use while they drip.
const SHARE: f64 = 0.10;

/// The head's deadline, by default.
const DEADLINE: Duration = Duration::from_secs(20);

/// How late a connection may be seen to end: this program looks five times a second, and is late itself.
const LATE: Duration = Duration::from_secs(5);

/// No head ends before its deadline.
const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";

const COLUMNS: &[&str] = &[
    "server",
    "clients",
    "cpu %",
    "KiB more",
    "408",
    "first gone s",
    "last gone s",
    "good requests",
    "slowest ms",
    "note",
];

/// A client that drips.
struct Slow {
    stream: TcpStream,
    /// When its first byte was sent.
    start: Instant,
    /// Bytes of the head so far.
    sent: usize,
    told: bool,
    gone: Option<Duration>,
}

pub(crate) fn run(_: &Options, report: &mut Report) -> Outcome<()> {
    let peer = Peer::ours()?;
    let title = format!("{CLIENTS} clients that send a byte a second, and one that does not");
    let mut table = Table::new(title, COLUMNS);
    let row = vec![Cell::text(&peer.name), Cell::number(CLIENTS as f64, 0)];
    let room = proc::open_file_limit()? >= CLIENTS as u64 + SPARE;
    match if room { measure(&peer) } else { Err("missing: the limit of open files is too low".into()) } {
        Ok(figures) => table.row([row, figures].concat()),
        Err(error) => report.gap(&mut table, row, &error.to_string()),
    }
    report.add(table);
    report.note(format!(
        "cpu: of the server from the last connection made to just before the first deadline, of one core; above {} %, \
         a connection that lives on or ends early, and a good request that fails are failures",
        SHARE * 100.0
    ));
    Ok(())
}

fn measure(peer: &Peer) -> Outcome<Vec<Cell>> {
    let mut server = Server::start(peer, &Launch::default())?;
    let mut client = server.connect()?;
    client.get()?;
    let before = proc::resident(server.pid())?;
    let stop = AtomicBool::new(false);
    let (mut slow, drip, good) = thread::scope(|scope| -> Outcome<_> {
        let good = scope.spawn(|| serve_one(client, &stop));
        let drip = drip(&server);
        stop.store(true, Ordering::Relaxed);
        let good = good.join().map_err(|_| "the good client panicked")?;
        let (slow, drip) = drip?;
        Ok((slow, drip, good?))
    })?;
    server.still_runs()?;
    server.stop()?;
    slow.sort_by_key(|slow| slow.gone);
    let gone =
        |slow: Option<&Slow>| slow.and_then(|slow| slow.gone).ok_or("a slow client was never told to go");
    let (first, last) = (gone(slow.iter().find(|slow| slow.gone.is_some()))?, gone(slow.last())?);
    let lives = slow.iter().filter(|slow| slow.gone.is_none()).count();
    if lives > 0 {
        return Err(format!("{lives} connections live on {:?} after their deadline", LATE).into());
    }
    if first < DEADLINE {
        return Err(format!("a connection ended after {first:?}").into());
    }
    if drip.share > SHARE {
        return Err(format!("used {:.1} % of a core", drip.share * 100.0).into());
    }
    Ok(vec![
        Cell::number(drip.share * 100.0, 1),
        Cell::number(drip.resident.saturating_sub(before) as f64 / 1024.0, 0),
        Cell::number(slow.iter().filter(|slow| slow.told).count() as f64, 0),
        Cell::number(first.as_secs_f64(), 1),
        Cell::number(last.as_secs_f64(), 1),
        Cell::number(good.0 as f64, 0),
        Cell::number(good.1.as_secs_f64() * 1000.0, 1),
        Cell::text(""),
    ])
}

/// A request every tenth of a second until told to stop: how many, and the slowest.
fn serve_one(mut client: Client, stop: &AtomicBool) -> Outcome<(usize, Duration)> {
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        client.get()?;
        slowest = slowest.max(start.elapsed());
        count += 1;
        thread::sleep(Duration::from_millis(100));
    }
    Ok((count, slowest))
}

/// What was seen while nobody was due.
struct Drip {
    share: f64,
    resident: u64,
}

/// Connects all, sends each a byte a second, a fifth of them at a time, and watches when each is told to go.
fn drip(server: &Server) -> Outcome<(Vec<Slow>, Drip)> {
    let mut slow = Vec::with_capacity(CLIENTS);
    for n in 0..CLIENTS {
        let mut stream =
            TcpStream::connect(server.address).map_err(|error| format!("connection {}: {error}", n + 1))?;
        stream.set_nonblocking(true)?;
        stream.write_all(&HEAD[..1])?;
        slow.push(Slow { stream, start: Instant::now(), sent: 1, told: false, gone: None });
    }
    let (Some(first), Some(last)) = (slow.first(), slow.last()) else { return Err("no clients".into()) };
    let (quiet, end) = (first.start + DEADLINE - Duration::from_secs(1), last.start + DEADLINE + LATE);
    if Instant::now() + Duration::from_secs(5) > quiet {
        return Err("this machine is too busy: connecting took most of the time".into());
    }
    let (start, start_cpu) = (Instant::now(), proc::cpu(server.pid())?);
    let mut seen = None;
    for step in 0.. {
        let next = start + Duration::from_millis(200) * step;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if seen.is_none() && Instant::now() >= quiet {
            let used = proc::cpu(server.pid())?.since(start_cpu).run;
            let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
            seen = Some(Drip { share, resident: proc::resident(server.pid())? });
        }
        for slow in slow.iter_mut().skip(step as usize % 5).step_by(5).filter(|slow| slow.gone.is_none()) {
            let byte = HEAD.get(slow.sent..=slow.sent).ok_or("the head is too short")?;
            // Once it is told to go, this may fail; that is seen below.
            slow.sent += slow.stream.write(byte).unwrap_or(0);
        }
        if seen.is_some() {
            slow.iter_mut().filter(|slow| slow.gone.is_none()).for_each(look);
        }
        if slow.iter().all(|slow| slow.gone.is_some()) || Instant::now() > end {
            break;
        }
    }
    Ok((slow, seen.ok_or("ended before the deadline")?))
}

/// Sees whether the server has told a client to go: by an answer, an end or a reset.
fn look(slow: &mut Slow) {
    let mut block = [0; 512];
    match slow.stream.read(&mut block) {
        Ok(n) => {
            slow.told |= block[..n].starts_with(b"HTTP/1.1 408 ");
            slow.gone = Some(slow.start.elapsed());
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(_) => slow.gone = Some(slow.start.elapsed()),
    }
}
