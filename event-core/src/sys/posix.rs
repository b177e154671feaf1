//! The calls of `linux` made from what every unix has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::common::millis_up;
use super::{net, sigpipe};

/// No bit: not every system has one.
pub(super) const POLL_CLOSED: libc::c_short = 0;

/// A stream socket, non-blocking and close-on-exec (from birth where socket2 knows how).
pub(super) fn stream_socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// accept(2), with the new socket non-blocking and close-on-exec.
pub(super) fn accept(fd: BorrowedFd<'_>) -> io::Result<(Socket, SockAddr)> {
    let (socket, address) = SockRef::from(&fd).accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Both ends of a new pipe, reader first.
pub(super) fn wake_ends() -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let (reader, writer) = io::pipe()?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    net::set_nonblocking(reader.as_raw_fd())?;
    net::set_nonblocking(writer.as_raw_fd())?;
    Ok((reader, Some(writer)))
}

/// Makes the number `old` mean what `new` means, close-on-exec; what it meant before loses this reference only.
pub(super) fn replace(old: &OwnedFd, new: OwnedFd) -> io::Result<()> {
    // SAFETY: dup2(2) takes numbers; both are owned by us, and no other owner relies on what `old` meant.
    while unsafe { libc::dup2(new.as_raw_fd(), old.as_raw_fd()) } < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
    // SAFETY: fcntl(2) F_SETFD takes a number.
    if unsafe { libc::fcntl(old.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// poll(2), to the millisecond above.
pub(super) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    // SAFETY: poll(2) writes the `revents` of `fds.len()` elements, which outlive the call.
    let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, millis_up(timeout)) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Takes a pending signal of `set`, which is blocked in this thread, without waiting.
pub(super) fn take_pending(set: &libc::sigset_t) {
    if !sigpipe::is_pending() {
        return;
    }
    let mut taken = 0;
    // SAFETY: sigwait(3) reads the set and writes one number; one of the set is pending, so it does not wait.
    unsafe { libc::sigwait(set, &mut taken) };
}
