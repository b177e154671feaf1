//! Helpers shared by the behaviour tests: every backend, and the other end of a stream on each.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod answers;
pub mod cases;
pub mod connects;
pub mod events;
pub mod http;
pub mod random;
pub mod reference;
pub mod streams;
pub mod tools;
pub mod turn_chart;
pub mod under_test;

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::testing::{self, Faults, Sim};
use event_core::{Address, BufferEvent, Config, EventBase, LoopFlags, LoopHandle};

/// How long a test on a real kernel may wait for something before it fails.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 1000 } else { 20 });

/// `all` of something, or `few` under Miri, where a step takes a thousand times as long.
pub const fn few_under_miri<T: Copy>(all: T, few: T) -> T {
    if cfg!(miri) { few } else { all }
}

/// The seeds a behaviour test runs under on the simulation. `SIM_SEEDS=n` runs n of them.
fn seeds() -> u64 {
    std::env::var("SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(few_under_miri(3, 1))
}

/// Runs a behaviour test on every backend: each real one, and the simulation under several seeds.
pub fn each_backend(test: impl Fn(&Bed)) {
    // Miri knows no kernel: there the simulation alone is run.
    for method in EventBase::supported_methods().filter(|_| !cfg!(miri)) {
        run(Bed { method, sim: None }, &test);
    }
    each_seed(test);
}

/// Runs a behaviour test on the simulation alone, under several seeds.
pub fn each_seed(test: impl Fn(&Bed)) {
    for seed in 1..=seeds() {
        run(Bed { method: "simulation", sim: Some((Sim::new(seed), seed)) }, &test);
    }
}

fn run(bed: Bed, test: &impl Fn(&Bed)) {
    let _on = Named(format!("{} (seed {:?})", bed.method, bed.sim.as_ref().map(|sim| sim.1)));
    test(&bed);
}

/// Says which backend and which seed it was, if the test fails.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed on {}", self.0);
        }
    }
}

/// One backend, and what a test needs of the world around it.
pub struct Bed {
    /// The backend's name.
    pub method: &'static str,
    sim: Option<(Sim, u64)>,
}

impl Bed {
    /// A loop on this backend.
    pub fn base(&self) -> EventBase {
        let base = match &self.sim {
            Some((sim, _)) => sim.event_base(),
            None => EventBase::with_config(self.config()),
        };
        self.checked(base.unwrap())
    }

    /// A loop on this backend with settings of its own.
    pub fn base_configured(&self, config: Config) -> EventBase {
        let base = match &self.sim {
            Some((sim, _)) => sim.event_base_configured(&config),
            None => EventBase::with_config(self.only(config)),
        };
        self.checked(base.unwrap())
    }

    /// A loop on this backend whose calls to the kernel are counted and may be made to fail.
    pub fn base_with(&self, faults: &Faults) -> EventBase {
        let base = match &self.sim {
            Some((sim, _)) => sim.event_base_with(faults),
            None => faults.event_base(self.config()),
        };
        self.checked(base.unwrap())
    }

    fn config(&self) -> Config {
        self.only(Config::new())
    }

    fn only(&self, config: Config) -> Config {
        EventBase::supported_methods()
            .filter(|method| *method != self.method)
            .fold(config.ignore_env(), |config, method| config.avoid_method(method))
    }

    fn checked(&self, base: EventBase) -> EventBase {
        assert_eq!(base.method(), self.method);
        base
    }

    /// Lets time pass in which the program does not run its loop.
    pub fn stall(&self, time: Duration) {
        match &self.sim {
            Some((sim, _)) => sim.advance(time),
            None => std::thread::sleep(time),
        }
    }

    /// The simulation, if this is one.
    pub fn sim(&self) -> Option<&Sim> {
        self.sim.as_ref().map(|sim| &sim.0)
    }

    /// The seed of the simulation; 0 on a real kernel.
    pub fn seed(&self) -> u64 {
        self.sim.as_ref().map_or(0, |sim| sim.1)
    }

    /// A stream for the program and its other end for the test. A unix-domain pair on real kernels.
    pub fn stream(&self, handle: &LoopHandle) -> (BufferEvent, Peer) {
        match &self.sim {
            Some((sim, _)) => {
                let (stream, peer) = sim.stream(handle);
                (stream, Peer::Sim(peer))
            }
            None => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                theirs.set_nonblocking(true).unwrap();
                (BufferEvent::new(handle, ours).unwrap(), Peer::Unix(theirs))
            }
        }
    }

    /// A TCP stream for the program and its other end for the test.
    pub fn tcp_stream(&self, handle: &LoopHandle) -> (BufferEvent, Peer) {
        if self.sim.is_some() {
            return self.stream(handle);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (BufferEvent::new(handle, OwnedFd::from(ours)).unwrap(), Peer::Tcp(theirs))
    }

    /// An fd for the program's own events and the other end for the test. The fd lives as long as the guard.
    pub fn fd(&self) -> (Fd, Peer) {
        match &self.sim {
            Some((sim, _)) => {
                let (fd, peer) = sim.pair();
                (Fd::Sim(sim.clone(), fd), Peer::Sim(peer))
            }
            None => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                theirs.set_nonblocking(true).unwrap();
                (Fd::Unix(ours), Peer::Unix(theirs))
            }
        }
    }

    /// Connects to where the program listens. On real kernels the connection is made when this returns; on the
    /// simulation once the loop accepts it.
    pub fn connect(&self, address: &Address) -> Peer {
        match (&self.sim, address) {
            (Some((sim, _)), address) => Peer::Sim(sim.connect(address).unwrap()),
            (None, Address::Ip(address)) => Peer::tcp(*address),
            (None, Address::Unix(Some(path))) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_nonblocking(true).unwrap();
                Peer::Unix(stream)
            }
            (None, other) => panic!("cannot connect to {other:?}"),
        }
    }

    /// Runs the loop until `done` says so. Fails the test when that takes too long.
    pub fn run_until(&self, base: &mut EventBase, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < PATIENCE, "the loop did not get there in {PATIENCE:?}");
            let flags = LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY;
            base.run(flags).unwrap();
            if self.sim.is_none() {
                std::thread::yield_now();
            }
        }
    }

    /// Runs the loop while anything happens without waiting, and a few turns more.
    pub fn settle(&self, base: &mut EventBase) {
        for _ in 0..few_under_miri(20, 6) {
            base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        }
    }

    /// Lets simulated time pass, running what comes due; on a real kernel waits for it by running the loop.
    pub fn pass(&self, base: &mut EventBase, time: Duration) {
        match &self.sim {
            Some((sim, _)) => {
                let end = sim.elapsed() + time;
                while sim.elapsed() < end {
                    let next = base.next_deadline().map(|at| at.saturating_duration_since(base.now()));
                    let left = end - sim.elapsed();
                    sim.advance(next.unwrap_or(left).clamp(Duration::from_nanos(1), left));
                    self.settle(base);
                }
            }
            None => {
                let start = Instant::now();
                self.run_until(base, || start.elapsed() >= time);
                // The time may have passed between two turns.
                self.settle(base);
            }
        }
    }
}

/// What callbacks note down, in order. A clone writes into the same list.
#[derive(Debug)]
pub struct Log<T>(Rc<RefCell<Vec<T>>>);

impl<T> Log<T> {
    /// An empty list.
    pub fn new() -> Log<T> {
        Log(Rc::default())
    }

    /// Notes one thing down.
    pub fn push(&self, entry: T) {
        self.0.borrow_mut().push(entry);
    }

    /// How many things are noted.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what was noted.
    pub fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

impl<T> Default for Log<T> {
    fn default() -> Log<T> {
        Log::new()
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Log<T> {
        Log(self.0.clone())
    }
}

/// Counts how many of its tokens are alive: what callbacks capture to tell that they were dropped.
#[derive(Debug, Default)]
pub struct Alive(Rc<Cell<usize>>);

impl Alive {
    /// One more token.
    pub fn token(&self) -> Token {
        self.0.set(self.0.get() + 1);
        Token(self.0.clone())
    }

    /// How many are alive.
    pub fn count(&self) -> usize {
        self.0.get()
    }
}

/// Counted while it is alive.
#[derive(Debug)]
pub struct Token(Rc<Cell<usize>>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs a closure when it is dropped: the user code that hides in a captured value.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `f`, which must panic with the text `message`, and keeps the report of the panic off the terminal.
pub fn must_panic<R>(message: &str, f: impl FnOnce() -> R) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("no panic came out") };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    assert_eq!(text.as_deref(), Some(message));
}

/// Panics without a report on the terminal.
pub fn quiet_panic(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

/// Whether this process is the one that [`child`] started for the test `name`.
pub fn is_child(name: &str) -> bool {
    std::env::var("TESTS_CHILD").is_ok_and(|child| child == name)
}

/// The command that runs one test of this binary in a process of its own, where it finds [`is_child`] true.
pub fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env("TESTS_CHILD", name);
    command
}

/// The program's fd in a test, closed with this value.
pub enum Fd {
    /// In the simulation.
    Sim(Sim, i32),
    /// A real one.
    Unix(UnixStream),
}

impl Fd {
    /// The number.
    pub fn raw(&self) -> i32 {
        match self {
            Fd::Sim(_, fd) => *fd,
            Fd::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Reads what is there, as the program's callback would.
    pub fn read(&self) -> Vec<u8> {
        match self {
            Fd::Sim(sim, fd) => sim.read(*fd, 1 << 20).unwrap_or_default(),
            Fd::Unix(stream) => read_all(&mut &*stream).0,
        }
    }

    /// Writes, as the program's callback would.
    pub fn write(&self, bytes: &[u8]) -> usize {
        match self {
            Fd::Sim(sim, fd) => sim.write(*fd, bytes).unwrap_or(0),
            Fd::Unix(stream) => (&mut &*stream).write(bytes).unwrap_or(0),
        }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if let Fd::Sim(sim, fd) = self {
            let _ = sim.close(*fd);
        }
    }
}

/// The test's end of a stream. Nothing here waits: the test runs the loop in between.
pub enum Peer {
    /// In the simulation.
    Sim(testing::Peer),
    /// A TCP connection.
    Tcp(TcpStream),
    /// A unix-domain connection.
    Unix(UnixStream),
}

impl Peer {
    /// A TCP connection to a real server.
    pub fn tcp(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        Peer::Tcp(stream)
    }

    /// Writes as much as is taken and returns how much; 0 if nothing is taken now or the other end is gone.
    pub fn write(&self, bytes: &[u8]) -> usize {
        match self {
            Peer::Sim(peer) => peer.write(bytes).unwrap_or(0),
            Peer::Tcp(stream) => (&mut &*stream).write(bytes).unwrap_or(0),
            Peer::Unix(stream) => (&mut &*stream).write(bytes).unwrap_or(0),
        }
    }

    /// Writes everything, which must fit.
    pub fn write_all(&self, bytes: &[u8]) {
        assert_eq!(self.write(bytes), bytes.len(), "the other end takes no more");
    }

    /// Reads what is there, and whether the stream has ended (EOF or reset) behind it.
    pub fn read(&self) -> (Vec<u8>, bool) {
        match self {
            Peer::Sim(peer) => {
                let bytes = peer.read();
                (bytes, peer.is_eof() || peer.is_reset())
            }
            Peer::Tcp(stream) => read_all(&mut &*stream),
            Peer::Unix(stream) => read_all(&mut &*stream),
        }
    }

    /// Says that it will write no more; nothing happens if the other end has reset the stream.
    pub fn shutdown_write(&self) {
        match self {
            Peer::Sim(peer) if peer.is_reset() => {}
            Peer::Sim(peer) => peer.shutdown(Shutdown::Write).unwrap(),
            Peer::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Peer::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
        }
    }

    /// Closes with a reset where the kind of stream has one.
    pub fn reset(self) {
        match self {
            Peer::Sim(peer) => peer.reset(),
            Peer::Tcp(stream) => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            Peer::Unix(_) => {}
        }
    }
}

/// Reads until nothing is there; an error counts as the end.
fn read_all(stream: &mut impl Read) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return (bytes, true),
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (bytes, false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return (bytes, true),
        }
    }
}
