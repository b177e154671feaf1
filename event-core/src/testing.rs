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

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::base::EventBase;
use crate::bufferevent::BufferEvent;
use crate::config::Config;
use crate::error::Error;
use crate::interest::{Ready, Report};
use crate::reactor::LoopHandle;
use crate::sys::{By, Fault, Faulty, ObjId, Plan, Step, Sys, World};

pub use crate::sys::{Call, Calls};

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
    pub fn connect(&self, address: &crate::Address) -> io::Result<Peer> {
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
    pub fn listen(&self, address: &crate::Address) -> io::Result<PeerListener> {
        let id = self.world.with(|state| state.listen(address, 128))?;
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

/// The test's end of a stream. It has no number, and neither chance nor [`Faults`] touch it.
///
/// Dropping it closes it, as [`Peer::close`] does.
pub struct Peer {
    world: Rc<World>,
    id: ObjId,
}

impl Peer {
    /// Writes what there is room for and says how much that was.
    ///
    /// # Errors
    /// - `EAGAIN` (`WouldBlock`) if the buffer is full or the stream is not connected yet.
    /// - `EPIPE` or `ECONNRESET` if the program closed or reset the stream.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.world.with(|state| state.send(self.id, &[IoSlice::new(bytes)], By::Test))
    }

    /// Writes all of `bytes` or, if there is an error, nothing.
    ///
    /// # Errors
    /// - As for [`Peer::write`]; `WouldBlock` also if there is room for a part only.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.world.with(|state| {
            if state.room(self.id)? < bytes.len() {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            state.send(self.id, &[IoSlice::new(bytes)], By::Test).map(|_| ())
        })
    }

    /// Takes all that is there now, which may be nothing.
    pub fn read(&self) -> Vec<u8> {
        self.read_available(usize::MAX)
    }

    /// Takes at most `max` bytes of what is there now.
    pub fn read_available(&self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // An error tells no more than `is_reset` and `is_eof` do.
        let _ = self.world.with(|state| state.recv(self.id, &mut bytes, max, By::Test));
        bytes
    }

    /// Whether the program has closed its sending side and everything it sent was read.
    pub fn is_eof(&self) -> bool {
        self.world.with(|state| state.is_ended(self.id))
    }

    /// Whether the program has reset the stream: an RST, a unix socket closed with input unread, a pipe without reader.
    pub fn is_reset(&self) -> bool {
        self.world.with(|state| state.is_reset(self.id))
    }

    /// Whether the stream is connected: false while a connect is under way or waits, and after a reset.
    pub fn is_connected(&self) -> bool {
        self.world.with(|state| state.is_connected(self.id))
    }

    /// Takes the error that is waiting, `SO_ERROR`: `ECONNREFUSED` after a failed connect.
    pub fn take_error(&self) -> Option<io::Error> {
        self.world.with(|state| state.take_error(self.id)).ok().flatten()
    }

    /// Shuts down one direction or both.
    ///
    /// # Errors
    /// - `ENOTCONN` if the stream is not connected, `ENOTSOCK` for a pipe.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.world.with(|state| state.shutdown(self.id, how))
    }

    /// Closes the stream: with a FIN, or with an RST if something that arrived was not read, as TCP does.
    pub fn close(self) {}

    /// Closes the stream with an RST, as `SO_LINGER` with a time of 0 does.
    pub fn reset(self) {
        self.world.with(|state| state.abort(self.id));
    }

    /// Sets how many bytes the test may have sent without the program having read them; at least 1.
    pub fn set_send_buffer(&self, bytes: usize) {
        let _ = self.world.with(|state| state.set_capacity(self.id, bytes));
    }

    /// Sets the latency of the stream both ways; does nothing to a pipe.
    pub fn set_latency(&self, latency: Duration) {
        let _ = self.world.with(|state| state.set_latency(self.id, latency));
    }

    /// The address of this end.
    ///
    /// # Errors
    /// - `ENOTSOCK` for a pipe.
    pub fn local_address(&self) -> io::Result<crate::Address> {
        self.world.with(|state| state.local_address(self.id))
    }

    /// The address of the program's end.
    ///
    /// # Errors
    /// - `ENOTCONN` if the stream is not connected, `ENOTSOCK` for a pipe.
    pub fn peer_address(&self) -> io::Result<crate::Address> {
        self.world.with(|state| state.peer_address(self.id))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.world.with(|state| state.release(self.id));
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("id", &self.id).field("connected", &self.is_connected()).finish()
    }
}

/// A listener of the test's. Dropping it closes it: what waits in its backlog is reset.
pub struct PeerListener {
    world: Rc<World>,
    id: ObjId,
}

impl PeerListener {
    /// Takes the oldest connection that waits, if there is one.
    pub fn accept(&self) -> Option<Peer> {
        let id = self.world.with(|state| state.accept(self.id, By::Test)).ok()?;
        Some(Peer { world: Rc::clone(&self.world), id })
    }

    /// Where it listens, with the port that was picked.
    ///
    /// # Errors
    /// - None at present.
    pub fn address(&self) -> io::Result<crate::Address> {
        self.world.with(|state| state.local_address(self.id))
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.world.with(|state| state.release(self.id));
    }
}

impl fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerListener").field("address", &self.address().ok()).finish()
    }
}

/// A file whose readiness the test sets by hand, for raw `Event`s.
///
/// The number is the program's to close ([`Sim::close`]); dropping this value does nothing. Reads and writes of it
/// answer `EAGAIN`.
#[derive(Clone, Debug)]
pub struct SimFd {
    sim: Sim,
    fd: RawFd,
}

impl SimFd {
    /// The number.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Says what the file is ready for from now on: `READ`, `WRITE` and `CLOSED`; other bits mean nothing.
    ///
    /// Each call is an edge, also one that changes nothing. Does nothing once the number is closed.
    pub fn set_ready(&self, ready: Ready) {
        // The bits of both sets are the same.
        self.set(Report::READ | Report::WRITE | Report::CLOSED, Report::from_bits_truncate(ready.bits()));
    }

    /// Says whether the file is hung up (`EPOLLHUP`), which is reported whether asked for or not.
    pub fn set_hang_up(&self, hung_up: bool) {
        self.set(Report::HUP, if hung_up { Report::HUP } else { Report::empty() });
    }

    /// Says whether the file has an error (`EPOLLERR`), which is reported whether asked for or not.
    pub fn set_error(&self, error: bool) {
        self.set(Report::ERR, if error { Report::ERR } else { Report::empty() });
    }

    fn set(&self, mask: Report, value: Report) {
        let _ = self.sim.world.with(|state| state.set_plain(self.fd, mask, value));
    }
}

/// Lays things in the way of the next calls on one open file; made by [`Sim::script`].
///
/// The steps for reads and accepts are met in the order in which they were laid, and apart from them those for writes.
/// A failure meets the next call whatever it could have done; a cut meets the next one that would move something.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    sim: &'a Sim,
    fd: RawFd,
}

impl Script<'_> {
    /// Has the next receive or accept fail with `errno`.
    pub fn recv_fails(self, errno: i32) -> Self {
        self.lay(true, Step::Fail(errno))
    }

    /// Has the next receive take at most `bytes`, but at least 1.
    pub fn recv_at_most(self, bytes: usize) -> Self {
        self.lay(true, Step::AtMost(bytes))
    }

    /// Has the next send fail with `errno`.
    pub fn send_fails(self, errno: i32) -> Self {
        self.lay(false, Step::Fail(errno))
    }

    /// Has the next send take at most `bytes`, but at least 1.
    pub fn send_at_most(self, bytes: usize) -> Self {
        self.lay(false, Step::AtMost(bytes))
    }

    fn lay(self, taking: bool, step: Step) -> Self {
        if let Err(error) = self.sim.world.with(|state| state.lay(self.fd, taking, step)) {
            panic!("no script for fd {}: {error}", self.fd);
        }
        self
    }
}

/// Faults to come: has chosen calls of the library to its kernel, real or simulated, fail or move less.
///
/// Calls are numbered from 1 on, for each kind, from the making of this value, over all loops that follow it. So a test
/// runs once without faults, reads [`Faults::count`], and then runs again for each number with new faults. A clone is
/// another handle on the same plan.
///
/// An `EAGAIN` made up here takes an edge-triggered report away for good; [`Script`] does not.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Rc<Plan>,
}

impl Faults {
    /// Makes a plan in which nothing fails.
    pub fn new() -> Faults {
        Faults::default()
    }

    /// A loop on a real kernel, with faults.
    ///
    /// # Errors
    /// As `EventBase::with_config`, and those of the faults that hit the making of the loop.
    pub fn event_base(&self, config: Config) -> Result<EventBase, Error> {
        EventBase::on(self.wrap(config.kernel()?))
    }

    /// The kernel `sys` with these faults.
    pub(crate) fn wrap(&self, sys: Rc<dyn Sys>) -> Rc<dyn Sys> {
        Rc::new(Faulty::new(sys, Rc::clone(&self.plan)))
    }

    /// Has the `nth` call of a kind fail with `errno`, without doing anything.
    ///
    /// # Panics
    /// If calls of this kind cannot fail: see [`Call::is_fallible`].
    pub fn fail(&self, call: Call, nth: u64, errno: i32) {
        assert!(call.is_fallible(), "{call:?} cannot fail");
        self.plan.add(call, nth, false, Fault::Fail(errno));
    }

    /// Has the `nth` call of a kind and all after it fail with `errno`, until [`Faults::clear`].
    ///
    /// # Panics
    /// If calls of this kind cannot fail: see [`Call::is_fallible`].
    pub fn fail_from(&self, call: Call, nth: u64, errno: i32) {
        assert!(call.is_fallible(), "{call:?} cannot fail");
        self.plan.add(call, nth, true, Fault::Fail(errno));
    }

    /// Has the `nth` call of a kind move at most `bytes`, but at least 1.
    ///
    /// # Panics
    /// If calls of this kind move no bytes: see [`Call::moves_bytes`].
    pub fn cut(&self, call: Call, nth: u64, bytes: usize) {
        assert!(call.moves_bytes(), "{call:?} moves no bytes");
        self.plan.add(call, nth, false, Fault::Cut(bytes));
    }

    /// Takes back all faults that have not happened. The counts go on.
    pub fn clear(&self) {
        self.plan.clear();
    }

    /// How many calls of a kind were made so far, failed ones included.
    pub fn count(&self, call: Call) -> u64 {
        self.plan.calls()[call]
    }

    /// How many calls of each kind were made so far.
    pub fn calls(&self) -> Calls {
        self.plan.calls()
    }
}
