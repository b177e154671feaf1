//! Calls that Linux has and POSIX has not, or that do more there at once. Same names as in `posix`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::common::timespec;

/// The poll(2) bit for "the peer has shut down its writing half".
pub(super) const POLL_CLOSED: libc::c_short = libc::POLLRDHUP;

/// A stream socket, non-blocking and close-on-exec from birth.
pub(super) fn stream_socket(domain: Domain) -> io::Result<Socket> {
    Socket::new_raw(domain, Type::STREAM.cloexec().nonblocking(), None)
}

/// accept(2), with the new socket non-blocking and close-on-exec from birth.
pub(super) fn accept(fd: BorrowedFd<'_>) -> io::Result<(Socket, SockAddr)> {
    SockRef::from(&fd).accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
}

/// Has the kernel spread new connections over all sockets that listen on the same port.
pub(super) fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// Has the kernel find out peers that are gone: after `idle`, and then thrice at a third of it.
pub(super) fn keep_alive(socket: &Socket, idle: Duration) -> io::Result<()> {
    // In whole seconds from 1 to 32,767: all else is EINVAL (MAX_TCP_KEEPIDLE).
    let idle = idle.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
    let interval = (idle / 3).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(3))
}

/// Has a connection told once its first bytes have come, or after a second without any.
pub(super) fn defer_accept(socket: &Socket) -> io::Result<()> {
    let seconds: libc::c_int = 1;
    let len = size_of_val(&seconds) as libc::socklen_t;
    let value = (&raw const seconds).cast();
    // SAFETY: setsockopt(2) reads `len` bytes at `value`, which is an int.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value, len)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A new wake fd; `None` because an eventfd is both of its ends.
pub(super) fn wake_ends() -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    // SAFETY: eventfd(2) takes two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: eventfd(2) has made this fd for us alone.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, None))
}

/// Makes the number `old` mean what `new` means, close-on-exec; what it meant before loses this reference only.
pub(super) fn replace(old: &OwnedFd, new: OwnedFd) -> io::Result<()> {
    loop {
        // SAFETY: dup3(2) takes numbers; both are owned by us, and no other owner relies on what `old` meant.
        if unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } >= 0 {
            return Ok(());
        }
        // EBUSY: another thread is about to open something under a free number.
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) {
            return Err(error);
        }
    }
}

/// poll(2) to the nanosecond.
pub(super) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timespec(timeout);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: ppoll(2) writes the `revents` of `fds.len()` elements and reads one timespec, or none at null; a null
    // mask leaves the signal mask alone. All outlive the call.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, timeout, std::ptr::null()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// sendfile(2) from a place in the file, whose own position stays.
pub(super) fn sendfile(
    to: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    max: usize,
) -> io::Result<usize> {
    let Ok(mut offset) = libc::off64_t::try_from(offset) else {
        return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
    };
    // SAFETY: sendfile64(2) takes two numbers and a length, and reads and writes one offset.
    let n = unsafe { libc::sendfile64(to.as_raw_fd(), file.as_raw_fd(), &mut offset, max) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Takes a pending signal of `set`, which is blocked in this thread, without waiting.
pub(super) fn take_pending(set: &libc::sigset_t) {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        // SAFETY: sigtimedwait(2) reads the set and the timespec and takes null for the information we do not want.
        let taken = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &zero) };
        if taken >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// The monotonic clock, read without the detour over `Instant`'s two numbers: a turn reads it twice.
pub(super) struct Clock {
    origin: u64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { origin: monotonic() }
    }

    /// Nanoseconds since this value was made.
    pub(super) fn nanos(&self) -> u64 {
        monotonic().saturating_sub(self.origin)
    }
}

fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec. It cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // Neither is negative: this clock starts at boot.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
