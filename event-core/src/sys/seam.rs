//! The seam under everything: what the reactor asks of a kernel, real or simulated.
//!
//! Nothing outside `sys/` names an operation on an fd. Methods take `&self`: an implementation keeps its state in
//! cells and moves its event buffer out for the length of a wait, so that nothing is borrowed while the loop sleeps.
//! No method runs user code.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{cell::Cell, net::Shutdown};

pub(crate) use crate::address::Address;
use crate::clock::Time;
use crate::interest::{Features, Interest, Report};

/// The tag under which a backend reports that its waker was used or a signal arrived.
pub(crate) const WAKE_TAG: u64 = u64::MAX;

/// One fd's readiness, with the tag that `change` gave it last; may be out of date, which the reactor checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) tag: u64,
    pub(crate) report: Report,
}

/// Puts the wake-up before the rest of what a wait has appended.
pub(super) fn wake_first(appended: &mut [Reported]) {
    if let Some(at) = appended.iter().position(|reported| reported.tag == WAKE_TAG) {
        appended.swap(0, at);
    }
}

/// Whether an fd takes `send` and `recv`, or answered `ENOTSOCK` once and gets `write` and `read` for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FdKind {
    File,
    #[default]
    Socket,
}

/// What tells one file from another: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(pub(crate) u64, pub(crate) u64);

/// How a listening socket is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenOptions {
    /// Connections the kernel keeps waiting; the system may allow fewer.
    pub(crate) backlog: i32,
    /// `SO_REUSEADDR`; TCP only.
    pub(crate) reuse_address: bool,
    /// Several sockets share the port and the kernel spreads connections over them; TCP only.
    pub(crate) reuse_port: bool,
    /// `IPV6_V6ONLY`, set either way; IPv6 only.
    pub(crate) only_v6: bool,
    /// `TCP_NODELAY`, which accepted sockets inherit; TCP only.
    pub(crate) no_delay: bool,
    /// `SO_KEEPALIVE` after so long, which accepted sockets inherit; TCP only.
    pub(crate) keep_alive: Option<Duration>,
    /// A connection is told once its first bytes have come, where the system can do that; TCP only.
    pub(crate) deferred_accept: bool,
    /// The permissions of the file; unix paths only.
    pub(crate) mode: Option<u32>,
    /// A socket at the path that nobody listens on is removed; unix paths only.
    pub(crate) replace_stale: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            // The kernel may allow fewer (`net.core.somaxconn` on Linux): enough for a burst of new clients.
            backlog: 4096,
            reuse_address: true,
            reuse_port: false,
            only_v6: true,
            no_delay: true,
            // As libevent: a peer that vanished is found out in the end, though nobody set a timeout.
            keep_alive: Some(Duration::from_secs(300)),
            deferred_accept: false,
            mode: None,
            replace_stale: false,
        }
    }
}

/// Wakes a waiting loop from any thread. Coalescing is the caller's affair (`remote`).
pub(crate) trait Wake: Send + Sync {
    /// Makes the current or next `wait` report `WAKE_TAG`. Async-signal-safe on real systems; keeps errno.
    fn wake(&self);

    /// Takes back what `wake` did. Called by the loop before it looks at what it was woken for.
    fn clear(&self);
}

/// A kernel: a readiness backend, its clock, sockets and signals.
pub(crate) trait Sys {
    /// The method's name as `event_base_get_method` gives it: `epoll`, `kqueue`, `poll`, `simulation`.
    fn name(&self) -> &'static str;

    fn features(&self) -> Features;

    /// The clock now. Never goes back.
    fn now(&self) -> Time;

    /// The time of day, for what is shown to people (`Date:`).
    fn wall(&self) -> SystemTime;

    /// Watches `fd` for `new` instead of `old`, reporting `tag`.
    ///
    /// From `EMPTY` it adds, to `EMPTY` it makes the kernel forget the fd; `old == new` with a non-empty set re-asserts
    /// the registration (and its tag), which fails with `ENOENT` or `EBADF` if the fd was closed or reused behind our
    /// back. Removing what is already gone is `Ok`.
    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()>;

    /// Appends what is ready, each with one bit at least, and the wake-up, if there is one, before the rest; waiting at most `timeout` (`None`: without limit), rounded **up** to the backend's
    /// resolution. An interrupted wait is `Ok` with nothing appended.
    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()>;

    /// In the child of a fork: a kernel set and a wake fd of its own, under the same numbers. Interests are re-added
    /// by the caller through `change` from `EMPTY`.
    fn after_fork(&self) -> io::Result<()>;

    /// The loop's waker. The same object for the life of this value.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The fd that becomes readable when `wait` would report something, if the backend has one.
    fn poll_fd(&self) -> Option<RawFd>;

    // Streams. Every fd made here is non-blocking and close-on-exec.

    /// Appends at most `max` bytes to the spare capacity of `buf` (which never grows); 0 is the end of the stream.
    fn recv(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &mut Vec<u8>, max: usize) -> io::Result<usize>;

    /// Sends once, without raising SIGPIPE.
    fn send(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &[u8]) -> io::Result<usize>;

    /// Like `send` for several pieces; at most 64 are taken.
    fn sendv(&self, fd: RawFd, kind: &Cell<FdKind>, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends at most `max` bytes of `file` from `offset` on, without raising SIGPIPE; 0 is the end of the file.
    ///
    /// `InvalidInput` or `Unsupported` says that these two do not go together: the bytes have to be read and sent.
    fn sendfile(&self, fd: RawFd, file: &File, offset: u64, max: usize) -> io::Result<usize>;

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<RawFd>;

    /// Readies a socket made elsewhere for `accept`, listening with `backlog` if it does not listen yet.
    fn adopt(&self, fd: RawFd, backlog: i32) -> io::Result<()>;

    /// Makes an owner of an fd that is the caller's; `Unsupported` where numbers are not the system's.
    fn own(&self, fd: RawFd) -> io::Result<OwnedFd>;

    fn accept(&self, fd: RawFd) -> io::Result<(RawFd, Address)>;

    /// Starts to connect. Ready or failed is told by WRITE readiness and then `take_error`.
    fn connect(&self, address: &Address) -> io::Result<RawFd>;

    /// Makes a stream socket for addresses of this family, which `start_connect` connects: the same in two steps.
    fn socket(&self, address: &Address) -> io::Result<RawFd>;

    /// Gives a socket its own address.
    fn bind(&self, fd: RawFd, source: &Address) -> io::Result<()>;

    /// Starts to connect a socket of `socket`.
    fn start_connect(&self, fd: RawFd, address: &Address) -> io::Result<()>;

    /// The fd for the system's own calls, for as long as the caller keeps it open; `None` where numbers are not the
    /// system's.
    fn borrow<'a>(&self, fd: RawFd) -> Option<BorrowedFd<'a>>;

    /// `SO_ERROR`: the error that is waiting on a socket, taken.
    fn take_error(&self, fd: RawFd) -> io::Result<Option<io::Error>>;

    fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()>;

    /// Has the close of a TCP connection reset it (`SO_LINGER` of 0), where what was not sent is thrown away.
    fn reset_on_close(&self, fd: RawFd) -> io::Result<()>;

    /// Closes the fd. `EINTR` closes too (close(2) on Linux).
    fn close(&self, fd: RawFd);

    fn local_address(&self, fd: RawFd) -> io::Result<Address>;

    fn peer_address(&self, fd: RawFd) -> io::Result<Address>;

    fn set_nonblocking(&self, fd: RawFd) -> io::Result<()>;

    /// Which file stands at `path`, if this kernel knows: a name may pass to another socket.
    fn file_at(&self, path: &Path) -> Option<FileId>;

    /// Removes the name of a unix socket. Gone already is as good.
    fn unlink(&self, path: &Path);

    /// Highest number of open files the process may have (`RLIMIT_NOFILE`), now.
    fn open_file_limit(&self) -> usize;

    // Signals. A delivery wakes the loop; the loop then takes the counts.

    /// Starts to count deliveries of `signal` for this loop; the first in the process saves the old disposition.
    fn signal_add(&self, signal: i32) -> io::Result<()>;

    /// Stops it; the last in the process restores the old disposition.
    fn signal_del(&self, signal: i32);

    /// Appends `(signal, deliveries)` since the last call.
    fn take_signals(&self, out: &mut Vec<(i32, u32)>);
}
