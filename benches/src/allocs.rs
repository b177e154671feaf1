//! Heap allocations of one piece of work: in this process by a counting allocator, in others by valgrind.

use std::cell::Cell as StdCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use event_core::{Event, EventBase, LoopFlags, Timer, What};

use crate::Outcome;
use crate::client::{Client, REASON, Script};
use crate::options::Options;
use crate::peers::Peer;
use crate::report::{Cell, Report, Table};
use crate::servers::{Launch, Server};
use crate::tools::{find_tool, scratch_file};
use crate::work::{THANKS, Work};

/// Calls before the counted ones: buffers have grown and lazily made things exist.
const WARM_UP: u64 = 1_000;

/// Counted calls.
const CALLS: u64 = 10_000;

/// Requests of the two runs under valgrind, between which the slope is taken.
const SHORT: u64 = 200;
const LONG: u64 = 1_200;

const COLUMNS: &[&str] = &["what", "allocations", "bytes", "kept", "note"];

/// Heap use of one call of what was measured.
#[derive(Debug)]
struct Figures {
    name: String,
    allocations: f64,
    bytes: f64,
    /// Allocated and not freed.
    kept: f64,
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut table = Table::new("allocations a call, in this process, one thread counted", COLUMNS);
    for figures in in_process()? {
        table.row(row(&figures));
    }
    report.add(table);

    let mut table = Table::new("allocations a warm keep-alive GET, whole server under valgrind", COLUMNS);
    let valgrind = find_tool("valgrind");
    for peer in Peer::all(options)? {
        let outcome = match &valgrind {
            Some(valgrind) => in_valgrind(&peer, valgrind),
            None => Err("missing: valgrind".into()),
        };
        match outcome {
            Ok(figures) => table.row(row(&figures)),
            Err(error) => report.gap(&mut table, vec![Cell::text(&peer.name)], &error.to_string()),
        }
    }
    report.add(table);
    report.note(
        "a reallocation counts as an allocation; kept: blocks allocated and not freed in the same call",
    );
    Ok(())
}

/// Measures everything that runs inside this program.
///
/// A measured closure makes exactly one event or one request happen, on this thread. For an HTTP server:
/// start `Requests` on its address, let the closure turn the loop until one more request has been answered,
/// and free the server before `Requests::end`.
fn in_process() -> Outcome<Vec<Figures>> {
    // The two controls show that the counter counts, and that it counts nothing else.
    let mut all = vec![
        measure("control: nothing", || Ok(()))?,
        measure("control: one Box", || {
            std::hint::black_box(Box::new(7_u64));
            Ok(())
        })?,
    ];

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let requests = Requests::start(listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let answer =
        [b"HTTP/1.1 200 Client\r\nContent-Length: 23\r\n\r\n".as_slice(), THANKS].concat().into_boxed_slice();
    all.push(measure("control: blocking server without a heap, one GET", || {
        let (mut block, mut len) = ([0; 1024], 0);
        while !block[..len].ends_with(b"\r\n\r\n") {
            match stream.read(&mut block[len..])? {
                0 => return Err("the client closed, or its request does not fit".into()),
                n => len += n,
            }
        }
        Ok(stream.write_all(&answer)?)
    })?);
    drop(stream);
    requests.end()?;

    all.push(warm_event()?);
    all.push(warm_timer()?);
    all.push(warm_get()?);
    Ok(all)
}

/// A persistent event that is activated and run, one turn a call.
fn warm_event() -> Outcome<Figures> {
    let mut base = EventBase::new()?;
    let (ours, mut theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let event = Event::new(&base, ours.as_raw_fd(), What::READ | What::PERSIST, move |_, _| {
        let mut byte = [0];
        std::hint::black_box((&ours).read(&mut byte).is_ok());
    })?;
    event.add(None)?;
    measure("event-core: dispatch of a warm event", || {
        theirs.write_all(b"x")?;
        base.run(LoopFlags::ONCE)?;
        Ok(())
    })
}

/// A persistent timer of no length, one turn a call.
fn warm_timer() -> Outcome<Figures> {
    let mut base = EventBase::new()?;
    let timer = Timer::persistent(&base, |_| {})?;
    timer.add(Duration::ZERO)?;
    measure("event-core: a persistent timer", || {
        base.run(LoopFlags::ONCE)?;
        Ok(())
    })
}

/// The server of the example, with the client on another thread.
fn warm_get() -> Outcome<Figures> {
    let mut base = EventBase::new()?;
    let http = event_http::Server::new(&base)?;
    let address = http.bind("127.0.0.1:0")?.local_address()?.socket_addr().ok_or("no IP address")?;
    let served = Rc::new(StdCell::new(0_u64));
    let count = served.clone();
    http.set_gencb(move |req| {
        count.set(count.get() + 1);
        req.send_reply(200, "Client", THANKS)
    });
    let requests = Requests::start(address);
    let figures = measure("event-http: warm keep-alive GET, the handler's body included", || {
        let before = served.get();
        while served.get() == before {
            base.run(LoopFlags::ONCE)?;
        }
        Ok(())
    })?;
    http.free();
    base.run(LoopFlags::NONBLOCK)?;
    requests.end()?;
    Ok(figures)
}

/// Counts the allocations of `f` on this thread, a call, after it has been called often enough to be warm.
fn measure(name: &str, mut f: impl FnMut() -> Outcome<()>) -> Outcome<Figures> {
    for _ in 0..WARM_UP {
        f()?;
    }
    let mut outcome = Ok(());
    let info = allocation_counter::measure(|| outcome = (0..CALLS).try_for_each(|_| f()));
    outcome.map_err(|error| format!("{name}: {error}"))?;
    let each = |sum: f64| sum / CALLS as f64;
    Ok(Figures {
        name: name.to_owned(),
        allocations: each(info.count_total as f64),
        bytes: each(info.bytes_total as f64),
        kept: each(info.count_current as f64),
    })
}

/// A thread that makes one request after the other on one connection until the server closes it.
struct Requests {
    thread: JoinHandle<Outcome<u64>>,
}

impl Requests {
    fn start(address: SocketAddr) -> Self {
        let thread = thread::spawn(move || {
            let script = Arc::new(Script::new(address, Work::Get, REASON));
            let mut client = Client::connect(address, &script)?;
            let mut answered = 0;
            while client.get().is_ok() {
                answered += 1;
            }
            Ok(answered)
        });
        Self { thread }
    }

    /// Waits for the end of the connection; an error if fewer requests were answered than were counted.
    fn end(self) -> Outcome<()> {
        let answered = self.thread.join().map_err(|_| "the client thread panicked")??;
        if answered + 1 < WARM_UP + CALLS {
            return Err(format!("only {answered} requests were answered").into());
        }
        Ok(())
    }
}

/// Totals of a whole process.
#[derive(Debug, PartialEq)]
struct Totals {
    allocations: u64,
    frees: u64,
    bytes: u64,
}

fn in_valgrind(peer: &Peer, valgrind: &Path) -> Outcome<Figures> {
    let short = totals(peer, valgrind, SHORT)?;
    let long = totals(peer, valgrind, LONG)?;
    let each = |short: u64, long: u64| (long as f64 - short as f64) / (LONG - SHORT) as f64;
    let allocations = each(short.allocations, long.allocations);
    Ok(Figures {
        name: peer.name.clone(),
        allocations,
        bytes: each(short.bytes, long.bytes),
        kept: allocations - each(short.frees, long.frees),
    })
}

/// Lets a server answer `requests` on one connection, ends it, and reads what valgrind has counted.
fn totals(peer: &Peer, valgrind: &Path, requests: u64) -> Outcome<Totals> {
    let log = scratch_file("valgrind")?;
    let mut log_file = std::ffi::OsString::from("--log-file=");
    log_file.push(&log);
    let launch =
        Launch { wrapper: vec![valgrind.into(), "--leak-check=no".into(), log_file], ..Launch::default() };
    let server = Server::start(peer, &launch)?;
    let mut client = server.connect()?;
    for _ in 0..requests {
        client.get()?;
    }
    server.stop()?;
    let text = fs::read_to_string(&log).map_err(|error| format!("valgrind left no log: {error}"))?;
    fs::remove_file(&log)?;
    parse(&text).ok_or_else(|| "valgrind's log has no heap summary".into())
}

/// Finds the "total heap usage" line of valgrind.
fn parse(log: &str) -> Option<Totals> {
    let line = log.lines().find(|line| line.contains("total heap usage:"))?;
    let (_, usage) = line.split_once("usage:")?;
    let mut numbers = usage.split(", ").map(|part| {
        let number = part.trim().split(' ').next()?;
        number.replace(',', "").parse().ok()
    });
    let mut next = || numbers.next()?;
    Some(Totals { allocations: next()?, frees: next()?, bytes: next()? })
}

fn row(figures: &Figures) -> Vec<Cell> {
    vec![
        Cell::text(&figures.name),
        Cell::number(figures.allocations, 2),
        Cell::number(figures.bytes, 0),
        Cell::number(figures.kept, 2),
        Cell::text(""),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_counts_every_allocation_and_what_is_kept() {
        let mut kept = Vec::with_capacity((WARM_UP + CALLS) as usize);
        let figures = measure("two, one kept", || {
            std::hint::black_box(vec![0_u8; 100]);
            kept.push(Box::new(1_u64));
            Ok(())
        })
        .unwrap();
        assert_eq!((figures.allocations, figures.bytes, figures.kept), (2.0, 108.0, 1.0));
    }

    #[test]
    fn the_controls_and_the_library_allocate_what_they_should() {
        let counts: Vec<f64> = in_process().unwrap().iter().map(|figures| figures.allocations).collect();
        // Nothing, one box, nothing; a warm event, a timer; a warm GET, of which the one is the handler's body.
        assert_eq!(counts, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn the_heap_summary_of_valgrind_is_read_through_its_commas() {
        let log = "==7== HEAP SUMMARY:\n==7==   total heap usage: 1,220 allocs, 207 frees, 78,773 bytes allocated\n";
        assert_eq!(parse(log), Some(Totals { allocations: 1220, frees: 207, bytes: 78773 }));
        assert_eq!(parse("==7== killed"), None);
    }
}
