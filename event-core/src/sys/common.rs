//! What all backends on a real kernel share.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{cell::Cell, net::Shutdown};

use crate::clock::Time;
use crate::interest::{Features, Interest};

use super::seam::{Address, FdKind, FileId, ListenOptions, Reported, Sys, Wake};
use super::sig::Subscription;
use super::wake::Waker;
use super::{fork, listening, net, os};

/// One way to wait for fds; the same words as in `Sys`, less what all of them share.
pub(super) trait Backend: Sized {
    const NAME: &'static str;
    const FEATURES: Features;

    /// An empty set that watches `waker` under `WAKE_TAG`.
    fn new(waker: &Arc<Waker>) -> io::Result<Self>;

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()>;

    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()>;

    /// Like `new` under the same fd number. The waker has its new object already.
    fn after_fork(&self) -> io::Result<()>;

    fn poll_fd(&self) -> Option<RawFd>;
}

/// A backend that a program can choose.
pub(crate) struct Method {
    /// As `Sys::name` gives it, and as `EVENT_NO..` in the environment spells it in capitals.
    pub(crate) name: &'static str,
    /// As `Sys::features` gives it.
    pub(crate) features: Features,
    pub(crate) make: fn() -> io::Result<Rc<dyn Sys>>,
}

impl Method {
    pub(super) const fn of<B: Backend + 'static>() -> Method {
        Method { name: B::NAME, features: B::FEATURES, make: Common::<B>::make }
    }
}

/// A backend made whole.
///
/// It may be moved between threads and, under a lock outside, be called by several; `change` and the waker may be
/// used while another thread sleeps in `wait`. Nothing is borrowed across that sleep.
struct Common<B> {
    /// Before the waker: a subscription ends while its wake fd is still open.
    signals: Subscription,
    backend: B,
    waker: Arc<Waker>,
    clock: os::Clock,
}

impl<B: Backend + 'static> Common<B> {
    fn make() -> io::Result<Rc<dyn Sys>> {
        // Forks are counted from the first loop on: the signal table relies on it too.
        fork::fork_count();
        let waker = Arc::new(Waker::new()?);
        let backend = B::new(&waker)?;
        let signals = Subscription::new(Arc::clone(&waker));
        Ok(Rc::new(Common { signals, backend, waker, clock: os::Clock::new() }))
    }
}

impl<B: Backend> Sys for Common<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }

    fn features(&self) -> Features {
        B::FEATURES
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.nanos())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        self.backend.change(fd, tag, old, new)
    }

    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        self.backend.wait(out, timeout)
    }

    fn after_fork(&self) -> io::Result<()> {
        self.waker.after_fork()?;
        self.backend.after_fork()?;
        self.signals.after_fork();
        // A wake that was pending at the fork was the old object's, and so was one for a signal since then. The flag
        // that coalesces wakes may say that there is one: without this the loop would never be woken again.
        self.waker.wake();
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.backend.poll_fd()
    }

    fn recv(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        net::recv(fd, kind, buf, max)
    }

    fn send(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &[u8]) -> io::Result<usize> {
        net::send(fd, kind, buf)
    }

    fn sendv(&self, fd: RawFd, kind: &Cell<FdKind>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        net::sendv(fd, kind, bufs)
    }

    fn sendfile(&self, fd: RawFd, file: &File, offset: u64, max: usize) -> io::Result<usize> {
        net::sendfile(fd, file, offset, max)
    }

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<RawFd> {
        listening::listen(address, options)
    }

    fn adopt(&self, fd: RawFd, backlog: i32) -> io::Result<()> {
        listening::adopt(fd, backlog)
    }

    fn own(&self, fd: RawFd) -> io::Result<OwnedFd> {
        listening::own(fd)
    }

    fn accept(&self, fd: RawFd) -> io::Result<(RawFd, Address)> {
        net::accept(fd)
    }

    fn connect(&self, address: &Address) -> io::Result<RawFd> {
        net::connect(address)
    }

    fn socket(&self, address: &Address) -> io::Result<RawFd> {
        net::socket(address)
    }

    fn bind(&self, fd: RawFd, source: &Address) -> io::Result<()> {
        net::bind(fd, source)
    }

    fn start_connect(&self, fd: RawFd, address: &Address) -> io::Result<()> {
        net::start_connect(fd, address)
    }

    fn borrow<'a>(&self, fd: RawFd) -> Option<BorrowedFd<'a>> {
        net::borrow(fd).ok()
    }

    fn take_error(&self, fd: RawFd) -> io::Result<Option<io::Error>> {
        net::take_error(fd)
    }

    fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        net::shutdown(fd, how)
    }

    fn reset_on_close(&self, fd: RawFd) -> io::Result<()> {
        net::reset_on_close(fd)
    }

    fn close(&self, fd: RawFd) {
        net::close(fd);
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        net::local_address(fd)
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        net::peer_address(fd)
    }

    fn set_nonblocking(&self, fd: RawFd) -> io::Result<()> {
        net::set_nonblocking(fd)
    }

    fn file_at(&self, path: &Path) -> Option<FileId> {
        net::file_at(path)
    }

    fn unlink(&self, path: &Path) {
        // Gone already is as good.
        let _ = std::fs::remove_file(path);
    }

    fn open_file_limit(&self) -> usize {
        net::open_file_limit()
    }

    fn signal_add(&self, signal: i32) -> io::Result<()> {
        self.signals.add(signal)
    }

    fn signal_del(&self, signal: i32) {
        self.signals.del(signal);
    }

    fn take_signals(&self, out: &mut Vec<(i32, u32)>) {
        self.signals.take(out);
    }
}

/// The longest single sleep. A kernel that counts ticks in 32 bits overflows above it; a loop that is woken with
/// nothing to do looks at its deadlines and sleeps again.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(35 * 60);

/// A timeout as epoll_wait(2) and poll(2) want it: whole milliseconds, rounded up, since a deadline half a millisecond
/// away that became 0 would make the loop spin until it is due.
pub(super) fn millis_up(timeout: Option<Duration>) -> libc::c_int {
    let Some(timeout) = timeout else { return -1 };
    // Not by way of `as_nanos`: dividing 128 bits costs more than the rest of a wait.
    let (secs, nanos) = (timeout.as_secs(), timeout.subsec_nanos());
    let (secs, nanos) =
        if secs < LONGEST_WAIT.as_secs() { (secs, nanos) } else { (LONGEST_WAIT.as_secs(), 0) };
    // At most 2,100,000.
    (secs * 1_000) as libc::c_int + nanos.div_ceil(1_000_000) as libc::c_int
}

/// A timeout to the nanosecond.
pub(super) fn timespec(timeout: Option<Duration>) -> Option<libc::timespec> {
    timeout.map(|timeout| timeout.min(LONGEST_WAIT)).map(|timeout| libc::timespec {
        // Both fit: the first is 2,100 at most, the second below a thousand million.
        tv_sec: timeout.as_secs() as _,
        tv_nsec: timeout.subsec_nanos() as _,
    })
}

#[cfg(test)]
mod tests {
    use super::super::METHODS;
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_to_milliseconds_and_capped() {
        assert_eq!(millis_up(None), -1);
        assert_eq!(millis_up(Some(Duration::ZERO)), 0);
        assert_eq!(millis_up(Some(Duration::from_nanos(1))), 1);
        assert_eq!(millis_up(Some(Duration::from_micros(1000))), 1);
        assert_eq!(millis_up(Some(Duration::from_micros(1001))), 2);
        assert_eq!(millis_up(Some(Duration::MAX)), 35 * 60 * 1000);
    }

    #[test]
    fn timeouts_in_nanoseconds_are_exact_and_capped() {
        let parts = |timeout| timespec(timeout).map(|spec| (spec.tv_sec, spec.tv_nsec));
        assert_eq!(parts(None), None);
        assert_eq!(parts(Some(Duration::ZERO)), Some((0, 0)));
        assert_eq!(parts(Some(Duration::from_nanos(1))), Some((0, 1)));
        assert_eq!(parts(Some(Duration::new(7, 999_999_999))), Some((7, 999_999_999)));
        assert_eq!(parts(Some(Duration::MAX)), Some((35 * 60, 0)));
    }

    #[test]
    fn both_clocks_start_at_nothing_and_go_on_together() {
        let (ours, plain) = (os::Clock::new(), crate::sys::posix::Clock::new());
        assert!(ours.nanos() < 10_000_000_000 && plain.nanos() < 10_000_000_000);
        std::thread::sleep(Duration::from_millis(2));
        let (first, between, last) = (ours.nanos(), plain.nanos(), ours.nanos());
        assert!(first >= 2_000_000 && first <= last);
        assert!(between.abs_diff(first) < 1_000_000_000, "{first} {between} {last}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn the_table_tells_the_truth_before_anything_is_made() {
        for method in METHODS {
            let sys = (method.make)().unwrap();
            assert_eq!(sys.name(), method.name);
            assert_eq!(sys.features(), method.features);
        }
        assert_eq!(METHODS.last().map(|m| m.name), Some("poll"));
    }
}
