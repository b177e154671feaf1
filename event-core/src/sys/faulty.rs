//! A kernel that fails on demand: wraps another one and has chosen calls fail or move less than they could.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Time;
use crate::interest::{Features, Interest};

use super::calls::{Call, Calls};
use super::seam::{Address, FdKind, ListenOptions, Reported, Sys, Wake};

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
        self.plan.check(Call::Change)?;
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

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<RawFd> {
        self.plan.check(Call::Listen)?;
        self.inner.listen(address, options)
    }

    fn accept(&self, fd: RawFd) -> io::Result<(RawFd, Address)> {
        self.plan.check(Call::Accept)?;
        self.inner.accept(fd)
    }

    fn connect(&self, address: &Address) -> io::Result<RawFd> {
        self.plan.check(Call::Connect)?;
        self.inner.connect(address)
    }

    fn take_error(&self, fd: RawFd) -> io::Result<Option<io::Error>> {
        self.plan.check(Call::TakeError)?;
        self.inner.take_error(fd)
    }

    fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        self.plan.check(Call::Shutdown)?;
        self.inner.shutdown(fd, how)
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
