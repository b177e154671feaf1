//! A kernel that fails on demand: wraps another one and has chosen calls fail or move less than they could.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Time;
use crate::interest::{Features, Interest};

use super::calls::{Call, Calls};
use super::seam::{Address, FdKind, FileId, ListenOptions, Reported, Sys, Wake};

/// What becomes of a call that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It moves at most this many bytes, but at least one.
    Cut(usize),
    /// It fails with this errno and does nothing.
    Fail(i32),
}

/// Which calls a rule applies to. Calls are numbered from 1, for each kind, from the plan's beginning.
#[derive(Clone, Copy, Debug)]
struct Rule {
    call: Call,
    first: u64,
    /// Every call from `first` on, or that one alone.
    endless: bool,
    fault: Fault,
}

/// What is to go wrong, shared by the test and the kernels that follow it; counts the calls that go through them.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    calls: Cell<Calls>,
    rules: RefCell<Vec<Rule>>,
}

impl Plan {
    /// Has the `nth` call of a kind, or every one from there on, meet `fault`. Of several rules for a call the newest
    /// counts.
    pub(crate) fn add(&self, call: Call, nth: u64, endless: bool, fault: Fault) {
        self.rules.borrow_mut().push(Rule { call, first: nth, endless, fault });
    }

    pub(crate) fn clear(&self) {
        self.rules.borrow_mut().clear();
    }

    pub(crate) fn calls(&self) -> Calls {
        self.calls.get()
    }

    /// Counts a call and says what becomes of it: an error, or the most it may move.
    fn meet(&self, call: Call) -> io::Result<Option<usize>> {
        let mut calls = self.calls.get();
        calls.add(call);
        self.calls.set(calls);
        let number = calls[call];
        let applies = |rule: &&Rule| {
            rule.call == call && (rule.first == number || (rule.endless && rule.first < number))
        };
        let fault = self.rules.borrow().iter().rev().find(applies).map(|rule| rule.fault);
        match fault {
            None => Ok(None),
            Some(Fault::Cut(most)) => Ok(Some(most.max(1))),
            Some(Fault::Fail(code)) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// For a call that either goes through or fails.
    fn check(&self, call: Call) -> io::Result<()> {
        self.meet(call).map(|_| ())
    }
}

/// Passes every call on that the plan does not want to fail.
pub(crate) struct Faulty {
    inner: Rc<dyn Sys>,
    plan: Rc<Plan>,
}

impl Faulty {
    pub(crate) fn new(inner: Rc<dyn Sys>, plan: Rc<Plan>) -> Faulty {
        Faulty { inner, plan }
    }
}

impl Sys for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn wall(&self) -> SystemTime {
        self.inner.wall()
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        let asked = self.plan.check(Call::Change);
        // No kernel refuses to watch what it knows for something else, or to forget it.
        if old.is_empty() || old == new {
            asked?;
        }
        self.inner.change(fd, tag, old, new)
    }

    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        self.plan.check(Call::Wait)?;
        self.inner.wait(out, timeout)
    }

    fn after_fork(&self) -> io::Result<()> {
        self.plan.check(Call::AfterFork)?;
        self.inner.after_fork()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.inner.poll_fd()
    }

    fn recv(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let most = self.plan.meet(Call::Recv)?;
        self.inner.recv(fd, kind, buf, most.map_or(max, |most| most.min(max)))
    }

    fn send(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &[u8]) -> io::Result<usize> {
        let most = self.plan.meet(Call::Send)?;
        self.inner.send(fd, kind, most.and_then(|most| buf.get(..most)).unwrap_or(buf))
    }

    fn sendv(&self, fd: RawFd, kind: &Cell<FdKind>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.plan.meet(Call::Sendv)? {
            Some(most) => self.inner.sendv(fd, kind, &cut(bufs, most)),
            None => self.inner.sendv(fd, kind, bufs),
        }
    }

    fn sendfile(&self, fd: RawFd, file: &File, offset: u64, max: usize) -> io::Result<usize> {
        let most = self.plan.meet(Call::Sendfile)?;
        self.inner.sendfile(fd, file, offset, most.map_or(max, |most| most.min(max)))
    }

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<RawFd> {
        self.plan.check(Call::Listen)?;
        self.inner.listen(address, options)
    }

    fn adopt(&self, fd: RawFd, backlog: i32) -> io::Result<()> {
        self.plan.check(Call::Listen)?;
        self.inner.adopt(fd, backlog)
    }

    fn own(&self, fd: RawFd) -> io::Result<OwnedFd> {
        self.inner.own(fd)
    }

    fn accept(&self, fd: RawFd) -> io::Result<(RawFd, Address)> {
        self.plan.check(Call::Accept)?;
        self.inner.accept(fd)
    }

    fn connect(&self, address: &Address) -> io::Result<RawFd> {
        self.plan.check(Call::Connect)?;
        self.inner.connect(address)
    }

    fn socket(&self, address: &Address) -> io::Result<RawFd> {
        self.plan.check(Call::Socket)?;
        self.inner.socket(address)
    }

    fn bind(&self, fd: RawFd, source: &Address) -> io::Result<()> {
        self.plan.check(Call::Bind)?;
        self.inner.bind(fd, source)
    }

    fn start_connect(&self, fd: RawFd, address: &Address) -> io::Result<()> {
        self.plan.check(Call::Connect)?;
        self.inner.start_connect(fd, address)
    }

    fn borrow<'a>(&self, fd: RawFd) -> Option<BorrowedFd<'a>> {
        self.inner.borrow(fd)
    }

    fn take_error(&self, fd: RawFd) -> io::Result<Option<io::Error>> {
        self.plan.check(Call::TakeError)?;
        self.inner.take_error(fd)
    }

    fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        self.plan.check(Call::Shutdown)?;
        self.inner.shutdown(fd, how)
    }

    fn reset_on_close(&self, fd: RawFd) -> io::Result<()> {
        self.plan.check(Call::Linger)?;
        self.inner.reset_on_close(fd)
    }

    fn close(&self, fd: RawFd) {
        // Counted only: a close cannot fail to close.
        let _ = self.plan.check(Call::Close);
        self.inner.close(fd);
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        self.plan.check(Call::LocalAddress)?;
        self.inner.local_address(fd)
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        self.plan.check(Call::PeerAddress)?;
        self.inner.peer_address(fd)
    }

    fn set_nonblocking(&self, fd: RawFd) -> io::Result<()> {
        self.plan.check(Call::SetNonblocking)?;
        self.inner.set_nonblocking(fd)
    }

    fn file_at(&self, path: &Path) -> Option<FileId> {
        self.inner.file_at(path)
    }

    fn unlink(&self, path: &Path) {
        self.inner.unlink(path);
    }

    fn open_file_limit(&self) -> usize {
        self.inner.open_file_limit()
    }

    fn signal_add(&self, signal: i32) -> io::Result<()> {
        self.plan.check(Call::SignalAdd)?;
        self.inner.signal_add(signal)
    }

    fn signal_del(&self, signal: i32) {
        let _ = self.plan.check(Call::SignalDel);
        self.inner.signal_del(signal);
    }

    fn take_signals(&self, out: &mut Vec<(i32, u32)>) {
        self.inner.take_signals(out);
    }
}

/// The first `most` bytes of `bufs`.
fn cut<'a>(bufs: &'a [IoSlice<'_>], most: usize) -> Vec<IoSlice<'a>> {
    let mut left = most;
    let mut pieces = Vec::new();
    for buf in bufs {
        let taken = buf.len().min(left);
        pieces.push(IoSlice::new(&buf[..taken]));
        left -= taken;
        if left == 0 {
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::sim::{Sim, World};

    /// A faulty kernel over an empty world, with its plan.
    fn stage() -> (Faulty, Rc<Plan>, Rc<World>) {
        let (world, plan) = (Rc::new(World::new(1)), Rc::new(Plan::default()));
        let sys = Rc::new(Sim::new(Rc::clone(&world)));
        (Faulty::new(sys, Rc::clone(&plan)), plan, world)
    }

    fn pair(world: &World) -> (RawFd, RawFd) {
        world.with(|state| {
            let (one, other) = state.pair(false);
            (state.install(one), state.install(other))
        })
    }

    fn code<T>(result: io::Result<T>) -> i32 {
        result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
    }

    fn recv(sys: &Faulty, fd: RawFd) -> io::Result<Vec<u8>> {
        let mut buf = Vec::with_capacity(100);
        sys.recv(fd, &Cell::default(), &mut buf, 100).map(|_| buf)
    }

    #[test]
    fn the_nth_call_of_a_kind_fails_without_effect_and_the_others_pass() {
        let (sys, plan, world) = stage();
        let (a, b) = pair(&world);
        plan.add(Call::Send, 2, false, Fault::Fail(libc::ENOBUFS));
        let send = |bytes| code(sys.send(a, &Cell::default(), bytes));
        assert_eq!([send(b"a"), send(b"b"), send(b"c")], [0, libc::ENOBUFS, 0]);
        assert_eq!(recv(&sys, b).unwrap(), b"ac");
        assert_eq!((plan.calls()[Call::Send], plan.calls()[Call::Recv]), (3, 1));
    }

    #[test]
    fn an_endless_fault_lasts_until_it_is_cleared() {
        let (sys, plan, world) = stage();
        let (a, _) = pair(&world);
        plan.add(Call::Send, 2, true, Fault::Fail(libc::EIO));
        let send = || code(sys.send(a, &Cell::default(), b"x"));
        assert_eq!([send(), send(), send()], [0, libc::EIO, libc::EIO]);
        plan.clear();
        assert_eq!((send(), plan.calls()[Call::Send]), (0, 4));
    }

    #[test]
    fn the_newest_rule_for_a_call_counts() {
        let (sys, plan, _world) = stage();
        plan.add(Call::Wait, 1, true, Fault::Fail(libc::EIO));
        plan.add(Call::Wait, 2, false, Fault::Fail(libc::EBADF));
        let wait = || code(sys.wait(&mut Vec::new(), Some(Duration::ZERO)));
        assert_eq!([wait(), wait(), wait()], [libc::EIO, libc::EBADF, libc::EIO]);
    }

    #[test]
    fn cuts_shorten_reads_and_writes_but_never_to_nothing() {
        let (sys, plan, world) = stage();
        let (a, b) = pair(&world);
        let kind = Cell::default();
        plan.add(Call::Send, 1, false, Fault::Cut(2));
        plan.add(Call::Send, 2, false, Fault::Cut(50));
        assert_eq!(sys.send(a, &kind, b"abc").unwrap(), 2);
        assert_eq!(sys.send(a, &kind, b"c").unwrap(), 1);
        plan.add(Call::Sendv, 1, false, Fault::Cut(4));
        let pieces = [b"de".as_slice(), b"", b"fgh", b"i"].map(IoSlice::new);
        assert_eq!(sys.sendv(a, &kind, &pieces).unwrap(), 4);
        assert_eq!(sys.sendv(a, &kind, &pieces[3..]).unwrap(), 1);
        plan.add(Call::Recv, 1, false, Fault::Cut(0));
        assert_eq!(recv(&sys, b).unwrap(), b"a");
        assert_eq!(recv(&sys, b).unwrap(), b"bcdefgi");
    }

    /// Makes one call of each kind; says which failed.
    fn round(sys: &Faulty) -> Vec<Call> {
        let anywhere = Address::Ip(([127, 0, 0, 1], 0).into());
        let options = ListenOptions { backlog: 1, ..ListenOptions::default() };
        let kind = Cell::default();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let listener = sys.listen(&anywhere, &options);
        // Where a call failed that others need, these go to an fd that is not open; who comes first has failed.
        let at = listener.as_ref().ok().and_then(|&fd| sys.inner.local_address(fd).ok()).unwrap_or(anywhere);
        let server = listener.as_ref().copied().unwrap_or(-1);
        let client = sys.connect(&at);
        let fd = client.as_ref().copied().unwrap_or(-1);
        let accepted = sys.accept(server).map(|(fd, _)| fd);
        let end = accepted.as_ref().copied().unwrap_or(-1);
        let other = sys.socket(&at);
        let second = other.as_ref().copied().unwrap_or(-1);
        let outcomes = [
            (Call::Socket, other.is_err()),
            (Call::Bind, sys.bind(second, &Address::Ip(([127, 0, 0, 1], 0).into())).is_err()),
            (Call::Listen, listener.is_err()),
            (Call::Connect, client.is_err()),
            (Call::Accept, accepted.is_err()),
            (Call::AfterFork, sys.after_fork().is_err()),
            (Call::Change, sys.change(fd, 0, Interest::empty(), Interest::READ).is_err()),
            (Call::LocalAddress, sys.local_address(fd).is_err()),
            (Call::PeerAddress, sys.peer_address(fd).is_err()),
            (Call::Send, sys.send(fd, &kind, b"x").is_err()),
            (Call::Sendfile, sys.sendfile(fd, &file, 0, 1).is_err()),
            (Call::Sendv, sys.sendv(fd, &kind, &[IoSlice::new(b"yz")]).is_err()),
            (Call::Recv, !recv(sys, end).is_ok_and(|bytes| !bytes.is_empty())),
            (Call::Linger, sys.reset_on_close(fd).is_err()),
            (Call::SetNonblocking, sys.set_nonblocking(fd).is_err()),
            (Call::SignalAdd, sys.signal_add(libc::SIGHUP).is_err()),
            (Call::TakeError, sys.take_error(fd).is_err()),
            (Call::Shutdown, sys.shutdown(fd, Shutdown::Both).is_err()),
            (Call::Wait, sys.wait(&mut Vec::new(), Some(Duration::ZERO)).is_err()),
        ];
        sys.signal_del(libc::SIGHUP);
        for fd in [server, fd, end, second] {
            sys.close(fd);
        }
        outcomes.into_iter().filter(|&(_, failed)| failed).map(|(call, _)| call).collect()
    }

    #[test]
    fn every_kind_of_call_is_counted_and_can_be_made_to_fail() {
        let (sys, plan, world) = stage();
        assert_eq!(round(&sys), []);
        for call in Call::ALL {
            assert_ne!(plan.calls()[call], 0, "{call:?} is not counted");
        }
        let inner = world.with(|state| state.calls());
        // `round` asks the inner kernel once itself.
        assert_eq!(inner.total(), plan.calls().total() + 1, "every call is passed on");
        for call in Call::ALL.into_iter().filter(|call| call.is_fallible()) {
            let (sys, plan, world) = stage();
            plan.add(call, 1, false, Fault::Fail(libc::EIO));
            let failed = round(&sys);
            let expected: &[Call] = match call {
                Call::Socket => &[Call::Socket, Call::Bind],
                Call::Listen => &[
                    Call::Listen,
                    Call::Accept,
                    // The connect is refused.
                    Call::PeerAddress,
                    Call::Send,
                    Call::Sendfile,
                    Call::Sendv,
                    Call::Recv,
                    Call::Shutdown,
                ],
                Call::Connect => &[
                    Call::Connect,
                    Call::Accept,
                    Call::Change,
                    Call::LocalAddress,
                    Call::PeerAddress,
                    Call::Send,
                    Call::Sendfile,
                    Call::Sendv,
                    Call::Recv,
                    Call::Linger,
                    Call::SetNonblocking,
                    Call::TakeError,
                    Call::Shutdown,
                ],
                Call::Accept => &[Call::Accept, Call::Recv],
                _ => std::slice::from_ref(&call),
            };
            assert_eq!(failed, expected, "with the first {call:?} failing");
            assert_eq!(world.with(|state| state.open_fds()), [], "after the first {call:?} failed");
        }
    }
}
