//! The calls of `linux` made from what every unix has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::common::millis_up;
use super::{net, sigpipe};

/// No bit: not every system has one.
#[cfg_attr(
    target_os = "linux",
    expect(dead_code, reason = "compiled for the tests, which poll with Linux's own")
)]
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

/// Has the kernel spread new connections over all sockets that listen on the same port. What is called so elsewhere lets
/// one of them have them all, so it is refused there.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "compiled for the tests"))]
pub(super) fn share_port(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "freebsd")]
    return socket.set_reuse_port_lb(true);
    #[cfg(not(target_os = "freebsd"))]
    {
        let _ = socket;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has the kernel find out peers that are gone, beginning after `idle`, in its own rhythm.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "compiled for the tests"))]
pub(super) fn keep_alive(socket: &Socket, idle: Duration) -> io::Result<()> {
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle.max(Duration::from_secs(1))))
}

/// Does nothing: it would only save a turn.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "compiled for the tests"))]
pub(super) fn defer_accept(_: &Socket) -> io::Result<()> {
    Ok(())
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

/// Not there: each system has a sendfile(2) of its own shape, and POSIX none. The bytes are read and sent instead.
pub(super) fn sendfile(_: BorrowedFd<'_>, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The monotonic clock, as the standard library reads it.
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Nanoseconds since this value was made.
    pub(super) fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;
    use std::{mem, ptr};

    use super::*;

    fn flags(fd: &impl AsRawFd) -> (bool, bool) {
        // SAFETY: fcntl(2) F_GETFL takes no further argument.
        let status = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: fcntl(2) F_GETFD takes no further argument.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        (status & libc::O_NONBLOCK != 0, flags & libc::FD_CLOEXEC != 0)
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn sockets_made_and_accepted_do_not_block_and_are_not_inherited() {
        let listener = stream_socket(Domain::IPV4).unwrap();
        assert_eq!(flags(&listener), (true, true));
        listener.bind(&SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        listener.listen(1).unwrap();
        assert_eq!(accept(listener.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let address = listener.local_addr().unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.connect(&address).unwrap();
        let (server, peer) = accept(listener.as_fd()).unwrap();
        assert_eq!(flags(&server), (true, true));
        assert_eq!(peer.as_socket(), client.local_addr().unwrap().as_socket());
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_replaced_fd_keeps_its_number_and_is_not_inherited() {
        let (reader, _writer) = io::pipe().unwrap();
        let old = OwnedFd::from(reader);
        let number = old.as_raw_fd();
        let (new, mut new_writer) = io::pipe().unwrap();
        replace(&old, new.into()).unwrap();
        assert_eq!(old.as_raw_fd(), number);
        assert!(flags(&old).1);
        io::Write::write_all(&mut new_writer, b"x").unwrap();
        assert_eq!(net::read(number, &mut [mem::MaybeUninit::uninit()]).unwrap(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn poll_waits_no_shorter_than_asked() {
        let (reader, writer) = io::pipe().unwrap();
        let mut fds = [libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        for micros in [1, 900, 1500] {
            let timeout = Duration::from_micros(micros);
            let start = Instant::now();
            assert_eq!(poll(&mut fds, Some(timeout)).unwrap(), 0);
            assert!(start.elapsed() >= timeout);
        }
        drop(writer);
        assert_eq!(poll(&mut fds, None).unwrap(), 1);
        assert_eq!(fds[0].revents, libc::POLLHUP);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_pending_signal_is_taken_and_none_is_not_waited_for() {
        // SAFETY: a `sigset_t` is plain bits, and all-zero is the empty one.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: sigaddset(3) changes a set.
        unsafe { libc::sigaddset(&mut set, libc::SIGPIPE) };
        // SAFETY: pthread_sigmask(3) reads a set; this thread is the test's own and ends with it.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        for take in [take_pending, super::super::os::take_pending] {
            assert!(!sigpipe::is_pending());
            take(&set);
            // SAFETY: raise(3) takes a number. The signal is blocked in this thread, to which it goes.
            unsafe { libc::raise(libc::SIGPIPE) };
            assert!(sigpipe::is_pending());
            take(&set);
            assert!(!sigpipe::is_pending());
        }
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
    }
}
