//! Tools for tests: a simulated kernel with its own time, and faults on demand.
//!
//! A program that runs on a [`Sim`] uses no socket, no real time and no luck: whatever a real kernel leaves open is
//! decided by a seed. The test holds the other end of every stream as a [`Peer`], moves the clock, and reads from
//! [`Sim::calls`] what the program asked of its kernel.
//!
//! The simulation knows the library's own calls. A program that does `read(2)` on an fd from here reads some other
//! file; it has to go through [`Sim::read`] and its kin.
//!
//! ```
//! use event_core::testing::Sim;
//!
//! let sim = Sim::new(1);
//! let (fd, peer) = sim.pair(); // `fd` for the program, `peer` for the test
//! peer.write_all(b"ping")?;
//! assert_eq!(sim.read(fd, 100)?, b"ping");
//! sim.close(fd)?;
//! assert!(peer.is_eof());
//! # Ok::<(), std::io::Error>(())
//! ```

mod faults;
mod peer;
mod resolver;
mod script;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::base::EventBase;
use crate::bufferevent::BufferEvent;
use crate::config::Config;
use crate::error::Error;
use crate::reactor::LoopHandle;
use crate::sys::{Address, By, ListenOptions, ObjId, Sys, World};

pub use crate::sys::{Call, Calls, Reach};
pub use faults::Faults;
pub use peer::{Peer, PeerListener};
pub use resolver::ScriptedResolver;
pub use script::{Script, SimFd};

/// A simulated world: its files, its clock and all that is yet to happen in it.
///
/// A clone is another handle on the same world, which lasts as long as a handle, a loop or a [`Peer`] does. Several
/// loops may live in one world; time then jumps when the one that waits has nothing to do, whatever the others have.
///
/// Streams behave as those of Linux do, down to what a poll reports of a half-closed or reset one: see tcp(7), unix(7)
/// and pipe(7). Readiness comes in a random order, which the seed decides. Time stands still while the program runs;
/// a wait that finds nothing ready jumps to the next thing that is to happen or to its timeout, whichever is nearer.
///
/// A wait without a timeout, with nothing ready and nothing to come, sleeps until another thread wakes the loop. After
/// 30 s of real time it panics: "simulation deadlock". A million reports in a row that the program answers with no call
/// at all panic, too: "simulation livelock".
#[derive(Clone)]
pub struct Sim {
    world: Rc<World>,
}

impl Sim {
    /// Makes an empty world. It begins at 2026-01-01T00:00:00Z; `seed` decides whatever is left to chance.
    pub fn new(seed: u64) -> Sim {
        Sim { world: Rc::new(World::new(seed)) }
    }

    /// The kernel for one more loop.
    pub(crate) fn sys(&self) -> Rc<dyn Sys> {
        Rc::new(crate::sys::Sim::new(Rc::clone(&self.world)))
    }

    /// A loop that runs in this world.
    ///
    /// # Errors
    /// None that a simulated kernel gives by itself.
    pub fn event_base(&self) -> Result<EventBase, Error> {
        EventBase::on(self.sys())
    }

    /// A loop that runs in this world, with the settings of a configuration. What it says of backends, and the
    /// environment, are not looked at: there is one world.
    ///
    /// # Errors
    /// None that a simulated kernel gives by itself.
    pub fn event_base_configured(&self, config: &Config) -> Result<EventBase, Error> {
        EventBase::configured(self.sys(), config)
    }

    /// A loop that runs in this world, with faults.
    ///
    /// # Errors
    /// Those of the faults that hit the making of the loop.
    pub fn event_base_with(&self, faults: &Faults) -> Result<EventBase, Error> {
        EventBase::on(faults.wrap(self.sys()))
    }

    /// Makes a connected stream for a loop of this world: the program's `BufferEvent` and the test's end.
    pub fn stream(&self, handle: &LoopHandle) -> (BufferEvent, Peer) {
        let (fd, peer) = self.pair();
        (BufferEvent::accepted(handle, fd), peer)
    }

    /// Gives a stream another fd of this world, as [`BufferEvent::replace_fd`] does with a real one; the test's end.
    ///
    /// # Errors
    /// As `BufferEvent::replace_fd`.
    pub fn replace_fd(&self, stream: &BufferEvent) -> Result<Peer, Error> {
        let (fd, peer) = self.pair();
        self.attach(stream, fd)?;
        Ok(peer)
    }

    /// Gives a stream an fd of this world, as [`BufferEvent::replace_fd`] does with a real one.
    ///
    /// # Errors
    /// As `BufferEvent::replace_fd`.
    pub fn attach(&self, stream: &BufferEvent, fd: RawFd) -> Result<(), Error> {
        stream.replace_raw_fd(fd)
    }

    // Files for the program.

    /// Makes a connected TCP stream: the number is the program's, the other end the test's.
    ///
    /// The number is the lowest free one from 3 on, as everywhere here. The limit on open files does not apply.
    pub fn pair(&self) -> (RawFd, Peer) {
        self.split(|world| world.with(|state| state.pair(false)))
    }

    /// Makes a connected stream of unix sockets, which differ in what a close tells the other end.
    pub fn unix_pair(&self) -> (RawFd, Peer) {
        self.split(|world| world.with(|state| state.pair(true)))
    }

    /// Makes a pipe with both ends the program's: (reading end, writing end).
    pub fn pipe(&self) -> (RawFd, RawFd) {
        self.world.with(|state| {
            let (reader, writer) = state.pipe();
            (state.install(reader), state.install(writer))
        })
    }

    /// Makes a pipe from which the program reads and to which the test writes.
    pub fn pipe_reader(&self) -> (RawFd, Peer) {
        self.split(|world| world.with(|state| state.pipe()))
    }

    /// Makes a pipe to which the program writes and from which the test reads.
    pub fn pipe_writer(&self) -> (RawFd, Peer) {
        self.split(|world| {
            let (reader, writer) = world.with(|state| state.pipe());
            (writer, reader)
        })
    }

    /// Makes a file that is ready for what the test says, and for nothing at first.
    pub fn plain(&self) -> SimFd {
        SimFd { sim: self.clone(), fd: self.world.with(|state| state.plain()) }
    }

    fn split(&self, make: impl FnOnce(&World) -> (ObjId, ObjId)) -> (RawFd, Peer) {
        let (program, test) = make(&self.world);
        (self.world.with(|state| state.install(program)), self.peer(test))
    }

    fn peer(&self, id: ObjId) -> Peer {
        Peer { world: Rc::clone(&self.world), id }
    }

    // The test as client and as server.

    /// Connects to a listener of the program.
    ///
    /// The result is connected unless the backlog is full or the world has a latency: see [`Peer::is_connected`].
    ///
    /// # Errors
    /// - `ECONNREFUSED` if nobody listens there, which with a latency is known later: see [`Peer::take_error`].
    /// - `ENOENT` if nobody ever listened on the path, and `EAGAIN` if the backlog of a unix listener is full.
    pub fn connect(&self, address: &Address) -> io::Result<Peer> {
        let id = self.world.with(|state| state.connect(address))?;
        let peer = self.peer(id);
        match peer.take_error() {
            Some(error) => Err(error),
            None => Ok(peer),
        }
    }

    /// Listens, so that the program can connect to the test. At most 128 connections wait to be accepted.
    ///
    /// # Errors
    /// - `EADDRINUSE` if somebody listens there.
    pub fn listen(&self, address: &Address) -> io::Result<PeerListener> {
        let options = ListenOptions { backlog: 128, ..ListenOptions::default() };
        let id = self.world.with(|state| state.listen(address, &options))?;
        Ok(PeerListener { world: Rc::clone(&self.world), id })
    }

    // What the program does behind the library's back.

    /// The program's own `read(2)`: at most `max` bytes, none at the end of the stream. Not counted in [`Sim::calls`].
    ///
    /// # Errors
    /// - Those of a non-blocking read: `EAGAIN`, `EBADF`, `ECONNRESET`.
    pub fn read(&self, fd: RawFd, max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.world.with(|state| {
            let id = state.file_of(fd)?;
            state.recv(id, &mut bytes, max, By::Program)
        })?;
        Ok(bytes)
    }

    /// The program's own `write(2)`; says how much was written. Not counted in [`Sim::calls`].
    ///
    /// # Errors
    /// - Those of a non-blocking write: `EAGAIN`, `EBADF`, `ECONNRESET`, `EPIPE`.
    pub fn write(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.world.with(|state| {
            let id = state.file_of(fd)?;
            state.send(id, &[IoSlice::new(bytes)], By::Program)
        })
    }

    /// The program's own `close(2)`. Not counted in [`Sim::calls`].
    ///
    /// # Errors
    /// - `EBADF` if `fd` is not open.
    pub fn close(&self, fd: RawFd) -> io::Result<()> {
        self.world.with(|state| state.close(fd))
    }

    /// The program's own `dup(2)`: another number for the same open file.
    ///
    /// # Errors
    /// - `EBADF` if `fd` is not open, `EMFILE` if the limit on open files is reached.
    pub fn dup(&self, fd: RawFd) -> io::Result<RawFd> {
        self.world.with(|state| state.dup(fd))
    }

    /// The numbers that are open, in order: what a test looks at for leaks.
    pub fn open_fds(&self) -> Vec<RawFd> {
        self.world.with(|state| state.open_fds())
    }

    // Time and events.

    /// Moves the clock on. Bytes that are under way arrive; timers and actions that fall due run in the next wait.
    pub fn advance(&self, by: Duration) {
        self.world.with(|state| state.advance(by));
    }

    /// The time since the world's beginning.
    pub fn elapsed(&self) -> Duration {
        self.world.with(|state| state.elapsed())
    }

    /// The time of day.
    pub fn wall(&self) -> SystemTime {
        self.world.with(|state| state.wall())
    }

    /// Has a loop's wait call `action` once `delay` has passed, before it looks at what is ready.
    ///
    /// Nothing is borrowed then: the action may do whatever a test may. For equal times the order is that of the calls
    /// to `at`. What has not run when the last loop of the world is dropped is dropped with it.
    pub fn at(&self, delay: Duration, action: impl FnOnce() + 'static) {
        self.world.with(|state| state.at(delay, Box::new(action)));
    }

    /// Delivers `signal` to every loop that has an event for it, and says whether one has.
    pub fn raise(&self, signal: i32) -> bool {
        self.world.with(|state| state.raise(signal))
    }

    /// How long, in real time, a wait lets other threads wake the loop before simulated time jumps. Zero at first.
    ///
    /// For tests with threads whose loop also has timers: without patience the timers always win.
    pub fn set_patience(&self, patience: Duration) {
        self.world.set_patience(patience);
    }

    // Obstacles.

    /// Lays something in the way of the next calls on the open file under `fd`, also under its other numbers.
    ///
    /// # Panics
    /// The methods of the result panic if `fd` is not open.
    pub fn script(&self, fd: RawFd) -> Script<'_> {
        Script { sim: self, fd }
    }

    /// Whether the program's reads, writes and accepts are at random cut short or answered with `EAGAIN`.
    ///
    /// What stays possible stays reported, and at most two refusals come in a row. Off at first.
    pub fn set_cuts(&self, cuts: bool) {
        self.world.with(|state| state.cuts = cuts);
    }

    /// Sets how many bytes each end of a *new* stream may have sent without the other having read them; at least 1,
    /// 65,536 at first.
    ///
    /// An end whose buffer is full is reported writable again when a third of it is free, as by Linux.
    pub fn set_send_buffer(&self, bytes: usize) {
        self.world.with(|state| state.default_capacity = bytes.max(1));
    }

    /// Sets the send buffer of the stream under `fd`, for what the program sends.
    ///
    /// # Errors
    /// - `EBADF` if `fd` is not open, `ENOTSOCK` or `ENOTCONN` if it is no stream.
    pub fn set_send_buffer_of(&self, fd: RawFd, bytes: usize) -> io::Result<()> {
        self.world.with(|state| {
            let id = state.file_of(fd)?;
            state.set_capacity(id, bytes)
        })
    }

    /// Sets how long everything sent on a *new* TCP stream is under way, and how long a connect takes. Zero at first.
    ///
    /// With `Duration::MAX` nothing arrives, ever.
    pub fn set_latency(&self, latency: Duration) {
        self.world.with(|state| state.default_latency = latency);
    }

    /// Sets the latency of the socket under `fd`, both ways, for what is sent from now on. Nothing overtakes what is
    /// already under way.
    ///
    /// # Errors
    /// - `EBADF` if `fd` is not open, `ENOTSOCK` or `ENOTCONN` if it is no connected socket.
    pub fn set_latency_of(&self, fd: RawFd, latency: Duration) -> io::Result<()> {
        self.world.with(|state| {
            let id = state.file_of(fd)?;
            state.set_latency(id, latency)
        })
    }

    /// Says what becomes of every connect to this IP address and port from now on, whoever listens there; with `None`
    /// it is as usual.
    pub fn set_reach(&self, address: &Address, reach: Option<Reach>) {
        self.world.with(|state| state.set_reach(address, reach));
    }

    /// Sets the limit on open files, which is on the number and not on the count: 1024 at first.
    pub fn set_open_file_limit(&self, limit: usize) {
        self.world.with(|state| state.set_open_file_limit(limit));
    }

    /// How many calls of each kind the loops of this world have made so far.
    pub fn calls(&self) -> Calls {
        self.world.with(|state| state.calls())
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("elapsed", &self.elapsed()).field("calls", &self.calls()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::interest::{Interest, Report};

    #[test]
    fn the_world_lives_as_long_as_somebody_holds_it() {
        let sim = Sim::new(1);
        let sys = sim.sys();
        let (fd, peer) = sim.pair();
        drop(sim);
        peer.write_all(b"x").unwrap();
        sys.change(fd, 7, Interest::empty(), Interest::READ).unwrap();
        let mut out = Vec::new();
        sys.wait(&mut out, None).unwrap();
        assert_eq!(out[0].tag(), 7);
    }

    #[test]
    fn an_action_has_the_whole_world() {
        let sim = Sim::new(1);
        let sys = sim.sys();
        let (fd, peer) = sim.pair();
        let handle = sim.clone();
        sim.at(Duration::from_secs(3), move || {
            peer.write_all(b"x").unwrap();
            peer.close();
            handle.advance(Duration::from_secs(1));
            handle.raise(libc::SIGHUP);
            handle.at(Duration::ZERO, || {});
        });
        sys.change(fd, 7, Interest::empty(), Interest::CLOSED).unwrap();
        let mut out = Vec::new();
        sys.wait(&mut out, None).unwrap();
        assert_eq!(out[0].report(), Report::CLOSED);
        assert_eq!(sim.elapsed(), Duration::from_secs(4));
    }

    #[test]
    fn the_programs_own_calls_are_not_counted_and_those_of_its_loops_are() {
        let sim = Sim::new(1);
        let sys = sim.sys();
        let (fd, peer) = sim.pair();
        sim.write(fd, b"x").unwrap();
        sys.send(fd, &Cell::default(), b"y").unwrap();
        assert_eq!(peer.read(), b"xy");
        assert_eq!((sim.calls()[Call::Send], sim.calls().total()), (1, 1));
    }

    #[test]
    fn settings_reach_the_streams_they_name() {
        let sim = Sim::new(1);
        let code = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        sim.set_send_buffer(3);
        sim.set_latency(Duration::from_millis(1));
        let (fd, peer) = sim.pair();
        assert_eq!(sim.write(fd, b"abcdef").unwrap(), 3);
        assert_eq!(peer.read(), b"");
        sim.advance(Duration::from_millis(1));
        assert_eq!(peer.read(), b"abc");
        sim.set_send_buffer_of(fd, 5).unwrap();
        sim.set_latency_of(fd, Duration::ZERO).unwrap();
        assert_eq!(sim.write(fd, b"abcdef").unwrap(), 5);
        assert_eq!(peer.read(), b"abcde");
        let (reader, _writer) = sim.pipe();
        assert_eq!(code(sim.set_latency_of(reader, Duration::ZERO)), Some(libc::ENOTSOCK));
        assert_eq!(code(sim.set_send_buffer_of(99, 1)), Some(libc::EBADF));
        sim.set_open_file_limit(5);
        assert_eq!(code(sim.dup(fd).map(|_| ())), Some(libc::EMFILE));
        assert_eq!(sim.open_fds(), [fd, reader, reader + 1]);
    }

    #[test]
    fn cuts_disturb_the_program_and_never_the_test() {
        let sim = Sim::new(1);
        sim.set_cuts(true);
        let (fd, peer) = sim.pair();
        let mut disturbed = 0;
        for _ in 0..50 {
            assert_eq!(peer.write(b"0123456789").unwrap(), 10);
            disturbed += u32::from(sim.read(fd, 10).is_ok_and(|bytes| bytes.len() == 10));
            while sim.read(fd, 10).is_ok_and(|bytes| !bytes.is_empty()) {}
        }
        assert!((1..50).contains(&disturbed), "{disturbed}");
    }
}
