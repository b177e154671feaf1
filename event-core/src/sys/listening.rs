//! Listening sockets: made, taken over, and inherited from whoever started the process.

use std::fs::{self, Permissions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{SockAddr, SockRef, Socket};

use super::net::{self, borrow, file_at, set_nonblocking, to_kernel};
use super::os;
use super::seam::{Address, ListenOptions};

/// The first descriptor that a service manager hands over (sd_listen_fds(3)).
const FIRST_INHERITED: RawFd = 3;

/// Makes a listening socket.
pub(super) fn listen(address: &Address, options: &ListenOptions) -> io::Result<RawFd> {
    let name = to_kernel(address)?;
    let socket = os::stream_socket(name.domain())?;
    match address {
        Address::Ip(ip) => {
            tcp_options(&socket, ip.is_ipv6(), options)?;
            socket.bind(&name)?;
            socket.listen(options.backlog)?;
        }
        Address::Unix(path) => {
            let file = path.as_deref().filter(|path| !is_abstract(path));
            bind_unix(&socket, &name, file, options)?;
            if let Err(error) = finish_unix(&socket, file, options) {
                // Else the name would be in the way of the next try.
                let _ = file.map(fs::remove_file);
                return Err(error);
            }
        }
    }
    Ok(socket.into_raw_fd())
}

fn tcp_options(socket: &Socket, is_ipv6: bool, options: &ListenOptions) -> io::Result<()> {
    if is_ipv6 {
        // Said either way: systems, and the settings of one, differ in what holds otherwise.
        socket.set_only_v6(options.only_v6)?;
    }
    if options.reuse_address {
        socket.set_reuse_address(true)?;
    }
    if options.reuse_port {
        os::share_port(socket)?;
    }
    if options.no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(idle) = options.keep_alive {
        os::keep_alive(socket, idle)?;
    }
    if options.deferred_accept {
        os::defer_accept(socket)?;
    }
    Ok(())
}

/// Binds to a path; a stale socket that is in the way goes first, if that is asked for.
fn bind_unix(
    socket: &Socket,
    name: &SockAddr,
    file: Option<&Path>,
    options: &ListenOptions,
) -> io::Result<()> {
    match (socket.bind(name), file) {
        (Err(error), Some(path))
            if error.raw_os_error() == Some(libc::EADDRINUSE)
                && options.replace_stale
                && remove_stale(name, path) =>
        {
            socket.bind(name)
        }
        (bound, _) => bound,
    }
}

/// Before `listen` nobody can connect: the mode is in force from the first connection on.
fn finish_unix(socket: &Socket, file: Option<&Path>, options: &ListenOptions) -> io::Result<()> {
    if let (Some(path), Some(mode)) = (file, options.mode) {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    socket.listen(options.backlog)
}

/// Removes the file of a unix socket that refuses connections; false if it is anything else.
fn remove_stale(name: &SockAddr, path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let before = file_at(path);
    let Ok(probe) = os::stream_socket(name.domain()) else { return false };
    let refused = probe.connect(name).is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED));
    // Another program may have done the same meanwhile, and listen there.
    is_socket && refused && before == file_at(path) && fs::remove_file(path).is_ok()
}

/// A name in Linux's abstract namespace, which has no file.
fn is_abstract(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().first() == Some(&0)
}

/// Readies a socket that was made elsewhere: non-blocking, not inherited by children, and listening if it was only
/// bound before.
pub(super) fn adopt(fd: RawFd, backlog: i32) -> io::Result<()> {
    let listens = listens(fd)?;
    let socket = borrow(fd)?;
    SockRef::from(&socket).set_cloexec(true)?;
    set_nonblocking(fd)?;
    if !listens {
        SockRef::from(&socket).listen(backlog)?;
    }
    Ok(())
}

/// `SO_ACCEPTCONN`; fails if it is no socket.
fn listens(fd: RawFd) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut len = mem::size_of_val(&value) as libc::socklen_t;
    let out = (&raw mut value).cast();
    // SAFETY: getsockopt(2) writes at most `len` bytes at `out`, which is an int, and the length at `len`.
    if unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, out, &mut len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value != 0)
}

/// Takes over the `count` sockets that the process was started with: all of them, or none and which of them is none.
/// There are none any more once they were taken.
pub(crate) fn inherited(count: usize) -> Result<Vec<OwnedFd>, (RawFd, io::Error)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let count = RawFd::try_from(count).unwrap_or(RawFd::MAX - FIRST_INHERITED);
    let fds = || FIRST_INHERITED..FIRST_INHERITED + count;
    if TAKEN.load(Ordering::Acquire) {
        return Ok(Vec::new());
    }
    for fd in fds() {
        match listens(fd) {
            Ok(true) => {}
            Ok(false) => return Err((fd, io::Error::from_raw_os_error(libc::EINVAL))),
            Err(error) => return Err((fd, error)),
        }
    }
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    let own = |fd| {
        // SAFETY: sd_listen_fds(3): LISTEN_PID says that these descriptors were opened for this very process; it is
        // open, as a listening socket, and `TAKEN` sees to it that it is given out once.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Without it they would go on to every child; it fails for what is not open alone.
        let _ = SockRef::from(&fd).set_cloexec(true);
        fd
    };
    Ok(fds().map(own).collect())
}

/// Makes the number an owner.
pub(super) fn own(fd: RawFd) -> io::Result<OwnedFd> {
    net::borrow(fd)?;
    // SAFETY: it is open, and the caller's to close: that it gives it away is what calling this says.
    Ok(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) })
}
