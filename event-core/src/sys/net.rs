//! Bytes and sockets: the calls of `Sys` that all backends share. No state.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef};

use super::seam::{Address, FdKind, FileId};
use super::{os, sigpipe};

/// The pieces that one `sendv` takes: enough to fill a socket's buffer, few enough for the kernel's own stack array.
const MAX_PIECES: usize = 64;

/// The bytes that one read(2) or write(2) is asked for. XNU refuses more than `INT_MAX`; nobody sends this much.
const MAX_TRANSFER: usize = 1 << 30;

/// Appends at most `max` bytes to the spare capacity of `buf`; 0 is the end of the stream.
///
/// Asked for no bytes at all (no spare capacity, or `max` 0), it answers `EINVAL`: 0 would read as the end.
pub(super) fn recv(fd: RawFd, kind: &Cell<FdKind>, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    let start = buf.len();
    let room = buf.spare_capacity_mut();
    let len = room.len().min(max);
    let room = &mut room[..len];
    if room.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let n = match as_socket(kind, || SockRef::from(&borrow(fd)?).recv(room)) {
        Some(received) => received?,
        None => read(fd, room)?,
    };
    // SAFETY: recv(2) and read(2) have written `n` bytes from the start of `room`, which begins at `start` and has no
    // more than the spare capacity.
    unsafe { buf.set_len(start + n) };
    Ok(n)
}

/// Sends once, without raising SIGPIPE.
pub(super) fn send(fd: RawFd, kind: &Cell<FdKind>, buf: &[u8]) -> io::Result<usize> {
    as_socket(kind, || SockRef::from(&borrow(fd)?).send_with_flags(buf, libc::MSG_NOSIGNAL))
        .unwrap_or_else(|| sigpipe::without(|| write(fd, buf)))
}

/// Like `send` for the first 64 of several pieces.
pub(super) fn sendv(fd: RawFd, kind: &Cell<FdKind>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let bufs = &bufs[..bufs.len().min(MAX_PIECES)];
    as_socket(kind, || SockRef::from(&borrow(fd)?).send_vectored_with_flags(bufs, libc::MSG_NOSIGNAL))
        .unwrap_or_else(|| sigpipe::without(|| writev(fd, bufs)))
}

/// Sends at most `max` bytes of `file` from `offset` on, without raising SIGPIPE; 0 is the end of the file.
pub(super) fn sendfile(fd: RawFd, file: &File, offset: u64, max: usize) -> io::Result<usize> {
    let to = borrow(fd)?;
    let max = max.min(MAX_TRANSFER);
    // The call has no flag for it, on sockets too.
    sigpipe::without(|| retry(|| os::sendfile(to, file.as_fd(), offset, max)))
}

/// read(2), repeated when a signal interrupts it. Initialises the bytes that it counts.
pub(super) fn read(fd: RawFd, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    let len = room.len().min(MAX_TRANSFER);
    // SAFETY: read(2) writes at most `len` bytes at `room`, which is valid for that many writes.
    retry(|| counted(unsafe { libc::read(fd, room.as_mut_ptr().cast(), len) }))
}

fn write(fd: RawFd, buf: &[u8]) -> io::Result<usize> {
    let len = buf.len().min(MAX_TRANSFER);
    // SAFETY: write(2) reads at most `len` bytes at `buf`.
    retry(|| counted(unsafe { libc::write(fd, buf.as_ptr().cast(), len) }))
}

fn writev(fd: RawFd, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // At most `MAX_PIECES`, so it fits.
    let len = bufs.len() as libc::c_int;
    // SAFETY: writev(2) reads `len` iovecs and what they point to; std promises that IoSlice has the layout of one.
    retry(|| counted(unsafe { libc::writev(fd, bufs.as_ptr().cast(), len) }))
}

/// Takes one connection; the fd is the caller's.
pub(super) fn accept(fd: RawFd) -> io::Result<(RawFd, Address)> {
    let (socket, name) = retry(|| os::accept(borrow(fd)?))?;
    let address = from_kernel(&name)?;
    Ok((socket.into_raw_fd(), address))
}

/// Starts to connect; a refusal that is known at once is returned at once.
pub(super) fn connect(address: &Address) -> io::Result<RawFd> {
    let name = to_kernel(address)?;
    let socket = os::stream_socket(name.domain())?;
    begin(&SockRef::from(&socket), &name)?;
    Ok(socket.into_raw_fd())
}

/// A stream socket for addresses of this family.
pub(super) fn socket(address: &Address) -> io::Result<RawFd> {
    Ok(os::stream_socket(to_kernel(address)?.domain())?.into_raw_fd())
}

/// bind(2). Of several sockets that connect from one port at the same time each has its own peer, so they may share it.
pub(super) fn bind(fd: RawFd, source: &Address) -> io::Result<()> {
    let fd = borrow(fd)?;
    let socket = SockRef::from(&fd);
    if source.port().is_some_and(|port| port != 0) {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&to_kernel(source)?)
}

/// Starts to connect a socket that is there.
pub(super) fn start_connect(fd: RawFd, address: &Address) -> io::Result<()> {
    begin(&SockRef::from(&borrow(fd)?), &to_kernel(address)?)
}

fn begin(socket: &SockRef<'_>, name: &SockAddr) -> io::Result<()> {
    match socket.connect(name) {
        // After EINTR the kernel goes on by itself, and to ask again would be EALREADY (connect(2)).
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn take_error(fd: RawFd) -> io::Result<Option<io::Error>> {
    SockRef::from(&borrow(fd)?).take_error()
}

pub(super) fn shutdown(fd: RawFd, how: Shutdown) -> io::Result<()> {
    SockRef::from(&borrow(fd)?).shutdown(how)
}

/// `SO_LINGER` with a time of 0.
pub(super) fn reset_on_close(fd: RawFd) -> io::Result<()> {
    SockRef::from(&borrow(fd)?).set_linger(Some(Duration::ZERO))
}

/// close(2), once: Linux has given up the number even if it says EINTR, and by then another thread may have it.
pub(super) fn close(fd: RawFd) {
    // SAFETY: close(2) takes a number. That it is the caller's to close is what calling this says.
    unsafe { libc::close(fd) };
}

pub(super) fn local_address(fd: RawFd) -> io::Result<Address> {
    from_kernel(&SockRef::from(&borrow(fd)?).local_addr()?)
}

pub(super) fn peer_address(fd: RawFd) -> io::Result<Address> {
    from_kernel(&SockRef::from(&borrow(fd)?).peer_addr()?)
}

/// Sets `O_NONBLOCK`, on fds of any kind.
pub(super) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // Socket or not: it is done with fcntl(2).
    SockRef::from(&borrow(fd)?).set_nonblocking(true)
}

/// The device and inode of a file.
pub(super) fn file_at(path: &Path) -> Option<FileId> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some(FileId(file.dev(), file.ino()))
}

/// The soft limit of `RLIMIT_NOFILE`; `usize::MAX` if there is none.
pub(super) fn open_file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: getrlimit(2) writes one `rlimit`. With these arguments it has no error to give.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        return usize::MAX;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

fn counted(n: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            done => return done,
        }
    }
}

/// Makes a call that only sockets have; `None` if `kind` is or turns out to be a file, which it then stays.
fn as_socket<T>(kind: &Cell<FdKind>, call: impl FnMut() -> io::Result<T>) -> Option<io::Result<T>> {
    if kind.get() == FdKind::File {
        return None;
    }
    let answer = retry(call);
    if answer.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOTSOCK)) {
        kind.set(FdKind::File);
        return None;
    }
    Some(answer)
}

/// A number as what socket2 wants to see. Refuses negative ones, which the types cannot hold.
pub(super) fn borrow<'a>(fd: RawFd) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1. The value does not outlive the one call into the kernel it is made for, and the kernel answers
    // EBADF to a number that is not open; that an open one is ours to use is the caller's word.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(super) fn to_kernel(address: &Address) -> io::Result<SockAddr> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match address {
        Address::Ip(ip) => Ok(SockAddr::from(*ip)),
        Address::Unix(None) => invalid("a unix socket without a path has no address"),
        Address::Unix(Some(path)) => {
            // A NUL at the start is Linux's abstract namespace; one further on would silently cut the path (unix(7)).
            let bytes = path.as_os_str().as_bytes();
            match bytes.first() {
                None => invalid("the path of a unix socket is empty"),
                Some(1..) if bytes.contains(&0) => invalid("the path of a unix socket holds a NUL"),
                Some(_) => SockAddr::unix(path),
            }
        }
    }
}

fn from_kernel(name: &SockAddr) -> io::Result<Address> {
    if let Some(ip) = name.as_socket() {
        return Ok(Address::Ip(ip));
    }
    if let Some(path) = name.as_pathname() {
        return Ok(Address::Unix(Some(Path::to_path_buf(path))));
    }
    if let Some(rest) = name.as_abstract_namespace() {
        let mut bytes = vec![0];
        bytes.extend_from_slice(rest);
        return Ok(Address::Unix(Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))));
    }
    // Some systems give no address at all, so not even a family, for the unnamed end.
    if name.is_unix() || name.domain() == Domain::from(libc::AF_UNSPEC) {
        return Ok(Address::Unix(None));
    }
    Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}
