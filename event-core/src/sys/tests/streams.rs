//! Bytes and sockets.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process;

use super::super::{Address, ListenOptions};
use super::*;

/// What a program gets that asks for nothing else.
fn options() -> ListenOptions {
    ListenOptions { backlog: 16, ..ListenOptions::default() }
}

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    (a, b)
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: only given fds that the call before has made.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn assert_nonblocking_and_cloexec(fd: RawFd) {
    // SAFETY: fcntl(2) F_GETFL takes no further argument.
    let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    assert!(status & libc::O_NONBLOCK != 0);
    // SAFETY: fcntl(2) F_GETFD takes no further argument.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    assert!(flags & libc::FD_CLOEXEC != 0);
}

#[test]
fn bytes_go_into_the_spare_capacity_and_no_further() {
    each(|sys| {
        let (a, mut b) = pair();
        let (fd, kind) = (a.as_raw_fd(), socket());
        let mut buf = Vec::with_capacity(10);
        buf.extend_from_slice(b"abc");
        let capacity = buf.capacity();
        assert_eq!(sys.recv(fd, &kind, &mut buf, 100).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        b.write_all(b"0123456789").unwrap();
        assert_eq!(sys.recv(fd, &kind, &mut buf, 2).unwrap(), 2);
        assert_eq!(buf, b"abc01");
        assert_eq!(sys.recv(fd, &kind, &mut buf, 100).unwrap(), capacity - 5);
        assert_eq!(buf.len(), capacity);
        assert_eq!(buf.capacity(), capacity);
        // No room is no end.
        assert_eq!(errno(sys.recv(fd, &kind, &mut buf, 100)), Some(libc::EINVAL));
        buf.clear();
        assert_eq!(errno(sys.recv(fd, &kind, &mut buf, 0)), Some(libc::EINVAL));
        b.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sys.recv(fd, &kind, &mut buf, 100).unwrap(), 13 - capacity);
        assert_eq!(sys.recv(fd, &kind, &mut buf, 100).unwrap(), 0);
        assert_eq!(buf, &b"0123456789"[capacity - 3..]);
        assert_eq!(kind.get(), FdKind::Socket);
    });
}

#[test]
fn several_pieces_leave_in_one_call_and_at_most_64() {
    each(|sys| {
        let (a, mut b) = pair();
        let (fd, kind) = (a.as_raw_fd(), socket());
        assert_eq!(sys.send(fd, &kind, b"head").unwrap(), 4);
        let pieces: Vec<_> = (0..100u8).map(|n| [n, n]).collect();
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        assert_eq!(sys.sendv(fd, &kind, &slices).unwrap(), 128);
        let mut got = [0; 132];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got[..4], b"head");
        assert_eq!(got[4..], pieces[..64].concat());
        // A full socket is told as such.
        let block = [0; 65536];
        let full = (0..1000).find_map(|_| sys.send(fd, &kind, &block).err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn a_pipe_turns_into_a_file_and_stays_one() {
    each(|sys| {
        let (reader, writer) = io::pipe().unwrap();
        sys.set_nonblocking(reader.as_raw_fd()).unwrap();
        let (r, w) = (socket(), socket());
        assert_eq!(sys.send(writer.as_raw_fd(), &w, b"one ").unwrap(), 4);
        assert_eq!(w.get(), FdKind::File);
        assert_eq!(sys.send(writer.as_raw_fd(), &w, b"two ").unwrap(), 4);
        let pieces = [IoSlice::new(b"thr"), IoSlice::new(b"ee")];
        assert_eq!(sys.sendv(writer.as_raw_fd(), &w, &pieces).unwrap(), 5);
        let fresh = socket();
        assert_eq!(sys.sendv(writer.as_raw_fd(), &fresh, &pieces).unwrap(), 5);
        assert_eq!(fresh.get(), FdKind::File);

        let mut buf = Vec::with_capacity(64);
        assert_eq!(sys.recv(reader.as_raw_fd(), &r, &mut buf, 4).unwrap(), 4);
        assert_eq!(r.get(), FdKind::File);
        assert_eq!(sys.recv(reader.as_raw_fd(), &r, &mut buf, 64).unwrap(), 14);
        assert_eq!(buf, b"one two threethree");
        let empty = sys.recv(reader.as_raw_fd(), &r, &mut buf, 64);
        assert_eq!(empty.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        assert_eq!(sys.recv(reader.as_raw_fd(), &r, &mut buf, 64).unwrap(), 0);
    });
}

#[test]
fn both_ends_of_a_terminal_are_files() {
    each(|sys| {
        // SAFETY: posix_openpt(3) takes a number.
        let master = owned(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) });
        // SAFETY: grantpt(3) takes a number.
        assert_eq!(unsafe { libc::grantpt(master.as_raw_fd()) }, 0);
        // SAFETY: unlockpt(3) takes a number.
        assert_eq!(unsafe { libc::unlockpt(master.as_raw_fd()) }, 0);
        let kind = socket();
        sys.change(master.as_raw_fd(), 1, NONE, READ | WRITE).unwrap();
        assert_eq!(sys.send(master.as_raw_fd(), &kind, b"hello\n").unwrap(), 6);
        assert_eq!(kind.get(), FdKind::File);
        // The line discipline echoes, with the carriage return of ONLCR.
        let mut echo = Vec::with_capacity(64);
        sys.recv(master.as_raw_fd(), &kind, &mut echo, 64).unwrap();
        assert_eq!(echo, b"hello\r\n");
    });
}

#[test]
fn numbers_that_are_not_open_are_errors_everywhere() {
    each(|sys| {
        for fd in [-1, closed_number()] {
            let mut buf = Vec::with_capacity(8);
            assert_eq!(errno(sys.recv(fd, &socket(), &mut buf, 8)), Some(libc::EBADF));
            assert_eq!(errno(sys.send(fd, &socket(), b"x")), Some(libc::EBADF));
            assert_eq!(errno(sys.sendv(fd, &socket(), &[IoSlice::new(b"x")])), Some(libc::EBADF));
            assert_eq!(errno(sys.accept(fd)), Some(libc::EBADF));
            assert_eq!(errno(sys.take_error(fd)), Some(libc::EBADF));
            assert_eq!(errno(sys.shutdown(fd, Shutdown::Both)), Some(libc::EBADF));
            assert_eq!(errno(sys.local_address(fd)), Some(libc::EBADF));
            assert_eq!(errno(sys.peer_address(fd)), Some(libc::EBADF));
            assert_eq!(errno(sys.set_nonblocking(fd)), Some(libc::EBADF));
            sys.close(fd);
        }
    });
}

/// Connects to a listener at `address` and sends both ways.
fn talk(sys: &dyn Sys, address: &Address) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let listener = owned(sys.listen(address, &options())?);
    assert_nonblocking_and_cloexec(listener.as_raw_fd());
    let address = sys.local_address(listener.as_raw_fd()).unwrap();
    assert_eq!(sys.accept(listener.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let client = owned(sys.connect(&address).unwrap());
    assert_nonblocking_and_cloexec(client.as_raw_fd());
    sys.change(listener.as_raw_fd(), 1, NONE, READ).unwrap();
    assert_eq!(wait(sys, LONG), [(1, Report::READ)]);
    let (server, peer) = sys.accept(listener.as_raw_fd()).unwrap();
    let server = owned(server);
    assert_nonblocking_and_cloexec(server.as_raw_fd());
    sys.change(listener.as_raw_fd(), 1, READ, NONE).unwrap();

    sys.change(client.as_raw_fd(), 2, NONE, WRITE).unwrap();
    assert_eq!(wait(sys, LONG), [(2, Report::WRITE)]);
    sys.change(client.as_raw_fd(), 2, WRITE, NONE).unwrap();
    assert!(sys.take_error(client.as_raw_fd()).unwrap().is_none());
    assert_eq!(sys.peer_address(client.as_raw_fd()).unwrap(), address);
    assert_eq!(sys.local_address(client.as_raw_fd()).unwrap(), peer);

    sys.send(client.as_raw_fd(), &socket(), b"hello").unwrap();
    sys.shutdown(client.as_raw_fd(), Shutdown::Write).unwrap();
    let mut got = Vec::with_capacity(64);
    sys.change(server.as_raw_fd(), 3, NONE, READ).unwrap();
    loop {
        assert_eq!(wait(sys, LONG)[0].0, 3);
        if sys.recv(server.as_raw_fd(), &socket(), &mut got, 64).unwrap() == 0 {
            break;
        }
    }
    assert_eq!(got, b"hello");
    sys.change(server.as_raw_fd(), 3, READ, NONE).unwrap();
    Ok((listener, client, server))
}

fn ip(text: &str) -> Address {
    Address::Ip(text.parse().unwrap())
}

#[test]
fn tcp_over_ipv4() {
    each(|sys| {
        let (listener, _client, server) = talk(sys, &ip("127.0.0.1:0")).unwrap();
        // The accepted socket has it from the listener.
        let server = socket2::Socket::from(server);
        assert!(server.tcp_nodelay().unwrap());
        assert!(socket2::Socket::from(listener).reuse_address().unwrap());
    });
}

#[test]
fn tcp_options_are_set_only_when_asked_for() {
    each(|sys| {
        let options = ListenOptions { reuse_address: false, no_delay: false, keep_alive: None, ..options() };
        let listener = owned(sys.listen(&ip("127.0.0.1:0"), &options).unwrap());
        let listener = socket2::Socket::from(listener);
        assert!(!listener.reuse_address().unwrap());
        assert!(!listener.tcp_nodelay().unwrap());
    });
}

#[test]
fn tcp_options_that_are_asked_for_are_set() {
    each(|sys| {
        let asked = ListenOptions {
            reuse_port: cfg!(target_os = "linux"),
            keep_alive: Some(Duration::from_secs(60)),
            deferred_accept: true,
            ..options()
        };
        let listener = socket2::Socket::from(owned(sys.listen(&ip("127.0.0.1:0"), &asked).unwrap()));
        assert!(listener.keepalive().unwrap());
        assert_eq!(listener.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        #[cfg(target_os = "linux")]
        {
            assert!(listener.reuse_port().unwrap());
            assert_eq!(listener.tcp_keepalive_interval().unwrap(), Duration::from_secs(20));
            let (mut seconds, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
            let (fd, out) = (listener.as_raw_fd(), (&raw mut seconds).cast());
            // SAFETY: getsockopt(2) writes at most `len` bytes at `out`, which is an int.
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, out, &mut len) };
            assert!(seconds > 0);
        }
    });
}

#[test]
fn a_keep_alive_of_any_length_is_taken() {
    each(|sys| {
        for idle in [Duration::ZERO, Duration::from_millis(1500), Duration::MAX] {
            let asked = ListenOptions { keep_alive: Some(idle), ..options() };
            owned(sys.listen(&ip("127.0.0.1:0"), &asked).unwrap());
        }
    });
}

#[test]
fn a_bind_that_fails_leaves_the_file_that_was_there() {
    each(|sys| {
        let path = TempPath::new("mode.sock");
        let address = Address::Unix(Some(path.0.clone()));
        let fd = sys.listen(&address, &options()).unwrap();
        sys.close(fd);
        assert!(path.0.exists());
        // It is another's, and not removed by the failure.
        assert_eq!(errno(sys.listen(&address, &options())), Some(libc::EADDRINUSE));
        assert!(path.0.exists());
    });
}

#[test]
fn tcp_over_ipv6_leaves_the_same_port_free_on_ipv4() {
    each(|sys| {
        let (listener, ..) = match talk(sys, &ip("[::1]:0")) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT)) => {
                println!("skipped: IPv6");
                return;
            }
            done => done.unwrap(),
        };
        assert!(socket2::Socket::from(listener).only_v6().unwrap());
        // Both wildcards with one port, which a dual-stack socket would not allow. Another process may have taken
        // the port on IPv4 by chance, so a few tries.
        let both = (0..10).any(|_| {
            let six = owned(sys.listen(&ip("[::]:0"), &options()).unwrap());
            let Address::Ip(bound) = sys.local_address(six.as_raw_fd()).unwrap() else { panic!() };
            let four = sys.listen(&ip(&format!("0.0.0.0:{}", bound.port())), &options());
            four.map(owned).is_ok()
        });
        assert!(both);
    });
}

/// A path of its own for each use, removed at the end.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> TempPath {
        TempPath(env::temp_dir().join(format!("event-core-{}-{name}", process::id())))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn unix_sockets_with_a_path() {
    each(|sys| {
        let path = TempPath::new("talk.sock");
        let address = Address::Unix(Some(path.0.clone()));
        let (listener, client, server) = talk(sys, &address).unwrap();
        assert_eq!(sys.local_address(listener.as_raw_fd()).unwrap(), address);
        assert_eq!(sys.local_address(client.as_raw_fd()).unwrap(), Address::Unix(None));
        assert_eq!(sys.peer_address(server.as_raw_fd()).unwrap(), Address::Unix(None));
        drop(listener);
        // The file is left, and what to do about it is not decided here.
        assert_eq!(errno(sys.listen(&address, &options())), Some(libc::EADDRINUSE));
        assert_eq!(errno(sys.connect(&address)), Some(libc::ECONNREFUSED));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn unix_sockets_in_the_abstract_namespace() {
    each(|sys| {
        let name = PathBuf::from(format!("\0event-core-{}-{}", process::id(), sys.name()));
        let address = Address::Unix(Some(name));
        let (listener, ..) = talk(sys, &address).unwrap();
        assert_eq!(sys.local_address(listener.as_raw_fd()).unwrap(), address);
    });
}

#[test]
fn unix_addresses_that_the_kernel_would_mistake_are_refused() {
    each(|sys| {
        let long = "x".repeat(200);
        let bad = [None, Some(""), Some("a\0b"), Some(&long)];
        for path in bad {
            let address = Address::Unix(path.map(PathBuf::from));
            let refused = sys.listen(&address, &options()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{address:?}");
            assert_eq!(sys.connect(&address).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn a_refused_connection_is_told() {
    each(|sys| {
        // A port that was free a moment ago.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = match sys.connect(&Address::Ip(gone)) {
            Err(error) => error,
            Ok(fd) => {
                let client = owned(fd);
                sys.change(fd, 1, NONE, WRITE).unwrap();
                let reported = wait(sys, LONG);
                assert!(reported[0].1.contains(Report::ERR), "{reported:?}");
                let error = sys.take_error(fd).unwrap().unwrap();
                assert!(sys.take_error(fd).unwrap().is_none(), "it was taken");
                drop(client);
                error
            }
        };
        assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    });
}

#[test]
fn shutting_down_and_closing_reach_the_peer() {
    each(|sys| {
        let (a, mut b) = pair();
        let fd = OwnedFd::from(a);
        sys.shutdown(fd.as_raw_fd(), Shutdown::Write).unwrap();
        assert_eq!(b.read(&mut [0; 4]).unwrap(), 0);
        b.write_all(b"x").unwrap();
        sys.close(std::os::fd::IntoRawFd::into_raw_fd(fd));
        assert_eq!(b.write(b"y").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_open_file_limit_is_the_soft_one() {
    each(|sys| {
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap();
        assert_eq!(sys.open_file_limit(), soft.parse().unwrap_or(usize::MAX));
    });
}
