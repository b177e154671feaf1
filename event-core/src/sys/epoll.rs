//! The epoll backend.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use libc::{c_int, epoll_event};

use crate::interest::{Features, Interest};

use super::common::{Backend, millis_up};
use super::os;
use super::seam::{Reported, WAKE_TAG, wake_first};
use super::wake::Waker;

/// Events that a first wait can report.
const FIRST_EVENTS: usize = 32;

/// Events that a wait can report at most (48 KiB of them); what is left comes with the next.
const MOST_EVENTS: usize = 4096;

/// An epoll set. What an event carries is the tag alone, so an event of an fd that has been given up is known by it.
pub(crate) struct Epoll {
    fd: OwnedFd,
    waker: Arc<Waker>,
}

impl Epoll {
    fn control(&self, op: c_int, fd: RawFd, tag: u64, interest: Interest) -> io::Result<()> {
        let mut event = epoll_event { events: bits(interest), u64: tag };
        // SAFETY: epoll_ctl(2) reads one event.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// At first, and after a wait that has left no room.
    #[cold]
    #[inline(never)]
    fn wait_with_more(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        let room = (2 * out.capacity()).clamp(FIRST_EVENTS, MOST_EVENTS);
        out.clear();
        out.reserve_exact(room);
        self.wait(out, timeout)
    }

    fn watch_waker(&self) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, self.waker.fd(), WAKE_TAG, Interest::READ)
    }
}

impl Backend for Epoll {
    const NAME: &'static str = "epoll";
    const FEATURES: Features = Features::EDGE.union(Features::O1).union(Features::EARLY_CLOSE);

    fn new(waker: &Arc<Waker>) -> io::Result<Epoll> {
        let epoll = Epoll { fd: create()?, waker: Arc::clone(waker) };
        epoll.watch_waker()?;
        Ok(epoll)
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        let errno = |result: &io::Result<()>| result.as_ref().err().and_then(io::Error::raw_os_error);
        match (old.is_empty(), new.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => {
                let added = self.control(libc::EPOLL_CTL_ADD, fd, tag, new);
                // Still there under the same number and file: closed and opened again as a dup of what it was.
                if errno(&added) == Some(libc::EEXIST) {
                    return self.control(libc::EPOLL_CTL_MOD, fd, tag, new);
                }
                added
            }
            (false, false) => {
                let changed = self.control(libc::EPOLL_CTL_MOD, fd, tag, new);
                // What cannot be watched was never added: the number has become a regular file.
                if errno(&changed) == Some(libc::EPERM) {
                    return Err(io::Error::from_raw_os_error(libc::ENOENT));
                }
                changed
            }
            (false, true) => {
                let removed = self.control(libc::EPOLL_CTL_DEL, fd, tag, new);
                // Closed, or the number is another file by now, maybe one that cannot be watched.
                if let Some(libc::ENOENT | libc::EBADF | libc::EPERM) = errno(&removed) {
                    return Ok(());
                }
                removed
            }
        }
    }

    #[inline]
    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        if out.len() == out.capacity() {
            return self.wait_with_more(out, timeout);
        }
        // What `wait_with_more` has asked for, so it fits.
        let room = out.capacity() as c_int;
        // SAFETY: epoll_wait(2) writes at most `room` events, which `out` has space for: a `Reported` is one, and the
        // vector is nobody else's.
        let n = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), out.as_mut_ptr().cast(), room, millis_up(timeout))
        };
        let Ok(count) = usize::try_from(n) else { return failed(out) };
        // SAFETY: the kernel has written that many.
        unsafe { out.set_len(count) };
        for reported in out.iter() {
            if reported.tag() == WAKE_TAG {
                return woken(out);
            }
        }
        Ok(())
    }

    fn after_fork(&self) -> io::Result<()> {
        os::replace(&self.fd, create()?)?;
        self.watch_waker()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

/// Out of the way of the loop that seldom comes here, as is the next.
#[cold]
#[inline(never)]
fn woken(out: &mut [Reported]) -> io::Result<()> {
    wake_first(out);
    Ok(())
}

#[cold]
#[inline(never)]
fn failed(out: &mut Vec<Reported>) -> io::Result<()> {
    out.clear();
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
        error => Err(error),
    }
}

fn create() -> io::Result<OwnedFd> {
    // SAFETY: epoll_create1(2) takes a number.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: epoll_create1(2) has made this fd for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What to ask of the kernel. READ does not ask for EPOLLRDHUP: an end of file is readable anyway, and nobody wants to
/// be woken for it twice.
fn bits(interest: Interest) -> u32 {
    let pairs = [
        (Interest::READ, libc::EPOLLIN),
        (Interest::WRITE, libc::EPOLLOUT),
        (Interest::CLOSED, libc::EPOLLRDHUP),
        (Interest::EDGE, libc::EPOLLET),
    ];
    // The topmost bit is among them (EPOLLET), so the cast is of bits, not of a number.
    pairs.iter().filter(|(i, _)| interest.contains(*i)).fold(0, |bits, (_, bit)| bits | *bit as u32)
}
