//! A server with some of everything: commands, one a line, with an idle timeout, a worker thread for what takes long,
//! signals, and a status page over HTTP. It is the port of a program in C on libevent, `tests/c/line_server.c`.
//!
//! Try: cargo run --example line_server            (or: cargo run --example line_server -- -l 0 -s 0 -i 5000)
//! and in another terminal: nc 127.0.0.1 7780, then one of these; or curl http://127.0.0.1:7781/status
//!
//!   echo TEXT       TEXT
//!   set KEY VALUE   ok
//!   get KEY         value VALUE, or none
//!   factor N        factors N: P Q ..., by the worker; other answers may come first
//!   quit            bye, and the connection is closed

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use event_core::{BufferEvent, Callbacks, Direction, Eol, EventBase, Listener, Signal, StreamEvent};
use event_http::{Error, Server};
use examples::{cannot_listen, getopt, number};

const USAGE: &str = "usage: line_server [-l port] [-s port] [-i milliseconds]";

const MAX_LINE: usize = 1024;
const MAX_KEYS: usize = 1000;
const MAX_JOBS: usize = 16;
const MAX_NUMBER: u64 = 1_000_000_000_000;

/// A number to factor, and which client wants to know.
type Job = (usize, u64);

/// What all callbacks share. The loop is one thread, so cells do.
struct Shared {
    clients: RefCell<BTreeMap<usize, Open>>,
    client_count: Cell<usize>,
    lines: Cell<u64>,
    jobs_done: Cell<u64>,
    store: RefCell<HashMap<Vec<u8>, Vec<u8>>>,
    worker: mpsc::Sender<Job>,
}

/// A client that is to get answers: those that are being closed are not.
struct Open {
    bev: BufferEvent,
    jobs: usize,
}

impl Shared {
    /// Sends what is there and a last line, then closes.
    fn close(&self, id: usize, last: &str) {
        // Let go of first: closing may drop the client, which takes itself off the list.
        let client = self.clients.borrow_mut().remove(&id);
        if let Some(client) = client {
            let _ = client.bev.write(last);
            client.bev.close_after_flush();
        }
    }

    /// In the loop: the worker has finished a job. The client may be gone.
    fn job_finished(&self, id: usize, answer: String) {
        self.jobs_done.set(self.jobs_done.get() + 1);
        if let Some(client) = self.clients.borrow_mut().get_mut(&id) {
            client.jobs -= 1;
            let _ = client.bev.write(answer);
        }
    }

    fn queue_job(&self, id: usize, number: &[u8]) -> Result<(), &'static str> {
        let number = std::str::from_utf8(number).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let number = number
            .and_then(|text| text.parse().ok())
            .filter(|number| (1..=MAX_NUMBER).contains(number))
            .ok_or("error: not a number from 1 to 1000000000000")?;
        let mut clients = self.clients.borrow_mut();
        let client = clients.get_mut(&id).filter(|client| client.jobs < MAX_JOBS);
        client.ok_or("error: too many jobs")?.jobs += 1;
        self.worker.send((id, number)).map_err(|_| "error: no worker")
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let mut store = self.store.borrow_mut();
        if store.len() == MAX_KEYS && !store.contains_key(key) {
            return Err("error: full");
        }
        store.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn status(&self) -> String {
        let (clients, lines, jobs) = (self.client_count.get(), self.lines.get(), self.jobs_done.get());
        format!("clients {clients}\nlines {lines}\njobs {jobs}\nkeys {}\n", self.store.borrow().len())
    }
}

/// One connection. The stream owns this object, and drops it when it is freed.
struct Client {
    id: usize,
    shared: Rc<Shared>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.clients.borrow_mut().remove(&self.id);
        self.shared.client_count.set(self.shared.client_count.get() - 1);
    }
}

/// The text before the first blank, and what follows it.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

impl Client {
    /// Runs one command. False if it was the last.
    fn run(&self, bev: &BufferEvent, line: &[u8]) -> bool {
        let shared = &self.shared;
        shared.lines.set(shared.lines.get() + 1);
        let (command, rest) = split(line);
        let answer = match (command, rest, rest.map(split)) {
            (b"echo", _, _) => Ok([rest.unwrap_or_default(), b"\n"].concat()),
            (b"set", _, Some((key, Some(value)))) => shared.set(key, value).map(|()| b"ok\n".to_vec()),
            (b"get", Some(key), _) => Ok(match shared.store.borrow().get(key) {
                Some(value) => [b"value ", &value[..], b"\n"].concat(),
                None => b"none\n".to_vec(),
            }),
            (b"factor", Some(number), _) => shared.queue_job(self.id, number).map(|()| Vec::new()),
            (b"quit", _, _) => {
                shared.close(self.id, "bye\n");
                return false;
            }
            _ => Err("error: no such command"),
        };
        let _ = bev.write(answer.unwrap_or_else(|wrong| format!("{wrong}\n").into_bytes()));
        true
    }
}

impl Callbacks for Client {
    fn on_read(&mut self, bev: &BufferEvent) {
        loop {
            let line = bev.input().readln(Eol::Crlf);
            // A line that is not whole yet stays in the input.
            let length = line.as_ref().map_or_else(|| bev.pending_input(), Vec::len);
            if length > MAX_LINE {
                return self.shared.close(self.id, "error: line too long\n");
            }
            let Some(line) = line else { return };
            if !self.run(bev, &line) {
                return;
            }
        }
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::TIMEOUT | StreamEvent::READING) {
            self.shared.close(self.id, "bye: idle\n");
        } else if event.contains(StreamEvent::EOF) {
            self.shared.close(self.id, "");
        } else {
            bev.free();
        }
    }
}

/// The factors, as the line that answers.
fn factor(number: u64) -> String {
    let mut answer = format!("factors {number}:");
    let (mut rest, mut p) = (number, 2);
    while p * p <= rest {
        while rest.is_multiple_of(p) {
            answer += &format!(" {p}");
            rest /= p;
        }
        p += 1;
    }
    if rest > 1 || number == 1 {
        answer += &format!(" {rest}");
    }
    answer + "\n"
}

fn main() -> Result<(), Error> {
    let (mut line_port, mut status_port, mut idle): (u16, u16, u64) = (7780, 7781, 30_000);
    let (options, _) = getopt("l:s:i:", USAGE);
    for (option, value) in options {
        match option {
            'l' => line_port = number(&value, USAGE),
            's' => status_port = number(&value, USAGE),
            _ => idle = number(&value, USAGE),
        }
    }
    let idle = Some(Duration::from_millis(idle));

    let mut base = EventBase::new()?;
    let (worker, jobs) = mpsc::channel::<Job>();
    let shared = Rc::new(Shared {
        clients: RefCell::default(),
        client_count: Cell::default(),
        lines: Cell::default(),
        jobs_done: Cell::default(),
        store: RefCell::default(),
        worker,
    });

    // The thread ends when nobody can send it a job any more, or take an answer.
    let finished = shared.clone();
    let (_mailbox, answers) = base.mailbox(move |(id, answer)| finished.job_finished(id, answer))?;
    thread::spawn(move || jobs.into_iter().try_for_each(|(id, number)| answers.send((id, factor(number)))));

    let (accepting, mut last) = (shared.clone(), 0);
    let address = format!("127.0.0.1:{line_port}");
    let listener = Listener::bind(&base, &address, move |_, accepted| {
        last += 1;
        let bev = accepted.into_stream();
        bev.set_timeouts(idle, idle);
        accepting.client_count.set(accepting.client_count.get() + 1);
        accepting.clients.borrow_mut().insert(last, Open { bev: bev.clone(), jobs: 0 });
        bev.set_callbacks(Client { id: last, shared: accepting.clone() });
        let _ = bev.enable(Direction::READ);
    })
    .unwrap_or_else(|error| cannot_listen(&address, error));

    let http = Server::new(&base)?;
    let address = format!("127.0.0.1:{status_port}");
    let bound = http.bind(&address).unwrap_or_else(|error| cannot_listen(&address, error));
    let status = shared.clone();
    http.set_cb("/status", move |mut req| {
        req.add_header("Content-Type", "text/plain")?;
        req.send_reply(200, "OK", status.status())
    })?;

    println!("lines on {}, status on {}", listener.local_address()?, bound.local_address()?);
    let report = shared.clone();
    let usr1 = Signal::new(&base, Signal::USR1, move |_| {
        let (clients, lines, jobs) = (report.client_count.get(), report.lines.get(), report.jobs_done.get());
        println!("{clients} clients, {lines} lines, {jobs} jobs");
    })?;
    usr1.add()?;
    usr1.set_background(true)?;

    // Stops accepting, tells everybody, and leaves the loop nothing to wait for but what is still to be sent.
    for signal in [Signal::INT, Signal::TERM] {
        let (shared, listener, http) = (shared.clone(), listener.clone(), http.clone());
        let stop = Signal::new(&base, signal, move |_| {
            println!("stopping");
            listener.free();
            http.free();
            let ids: Vec<usize> = shared.clients.borrow().keys().copied().collect();
            ids.into_iter().for_each(|id| shared.close(id, "bye: stopping\n"));
        })?;
        stop.add()?;
        stop.set_background(true)?;
        stop.detach();
    }
    base.dispatch()?;
    println!("done");
    Ok(())
}
