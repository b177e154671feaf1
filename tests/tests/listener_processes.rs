//! Listeners in processes of their own: inherited sockets, and no descriptors left.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Address, BufferEvent, Error, EventBase, Listener, LoopEnd};
use event_http::{Request, Server};
use tests::streams::socket_path;
use tests::{PATIENCE, Peer, child, each_backend, is_child};

const MS: Duration = Duration::from_millis(1);
const LOCAL: &str = "127.0.0.1:0";

/// Whether a child would not get it, where the system says so.
fn is_closed_by_exec(fd: i32) -> bool {
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else { return true };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap() & libc::O_CLOEXEC != 0
}

/// A shell that runs the child with something done first; `$0` and on are the child's command.
fn through_shell(child: &Command, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

fn succeeds(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_process_without_descriptors_neither_spins_nor_dies() {
    const NAME: &str = "a_process_without_descriptors_neither_spins_nor_dies";
    if !is_child(NAME) {
        return succeeds(through_shell(&child(NAME), r#"ulimit -n 40 && exec "$0" "$@""#));
    }
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let kept = Rc::new(RefCell::new(Vec::new()));
        let sink = kept.clone();
        let listener =
            Listener::bind(&base, LOCAL, move |_, accepted| sink.borrow_mut().push(accepted)).unwrap();
        let told = Rc::new(Cell::new(0));
        let count = told.clone();
        listener.set_error_cb(move |_, error| {
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            count.set(count.get() + 1);
        });
        let address = listener.local_address().unwrap();
        let ip = address.socket_addr().unwrap();
        let waiting = TcpStream::connect(ip).unwrap();
        let mut hoard = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        assert_eq!(BufferEvent::connect(&base, &address).unwrap_err().raw_os_error(), Some(libc::EMFILE));
        let waits = faults.count(Call::Wait);
        base.loopexit(Some(350 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        let waits = faults.count(Call::Wait) - waits;
        assert!(waits < 100 && told.get() == 1, "{waits} turns, told {} times", told.get());
        drop(hoard);
        bed.run_until(&mut base, || kept.borrow().len() == 1);
        drop((waiting, kept.take()));
    });
}

#[test]
fn sockets_that_were_inherited_are_listened_on() {
    const NAME: &str = "sockets_that_were_inherited_are_listened_on";
    if is_child(NAME) {
        return inherit();
    }
    let (tcp, path) = (TcpListener::bind(LOCAL).unwrap(), socket_path());
    let unix = UnixListener::bind(&path).unwrap();
    // They come as 3 and 4, as a service manager would have it; the process that this starts keeps the shell's id.
    let script = r#"LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web: exec "$0" "$@" 3<&0 4<&1 </dev/null >&2"#;
    let child = child(NAME);
    let mut shell = through_shell(&child, script);
    shell.env("ADDRESSES", format!("{} unix:{}", tcp.local_addr().unwrap(), path.display()));
    shell.stdin(Stdio::from(OwnedFd::from(tcp))).stdout(Stdio::from(OwnedFd::from(unix)));
    shell.stderr(Stdio::piped());
    succeeds(shell);
    std::fs::remove_file(&path).expect("whoever made the path removes it");
}

fn inherit() {
    let addresses = std::env::var("ADDRESSES").unwrap();
    let addresses: Vec<Address> = addresses.split(' ').map(|text| text.parse().unwrap()).collect();
    let mut sockets = event_core::listen_fds().unwrap();
    let names: Vec<&str> = sockets.iter().map(|socket| &*socket.name).collect();
    assert_eq!(names, ["web", "unknown"]);
    assert!(event_core::listen_fds().unwrap().is_empty(), "they are given once");
    assert!(sockets.iter().all(|socket| is_closed_by_exec(socket.fd.as_raw_fd())));
    assert_eq!(sockets[0].fd.as_raw_fd(), 3);

    let mut base = EventBase::new().unwrap();
    let server = Server::new(&base).unwrap();
    server.set_gencb(|req: Request| req.send_reply(200, None, "inherited"));
    let unix = Listener::from_fd(&base, sockets.pop().unwrap(), |_, _| panic!("replaced")).unwrap();
    server.bind_listener(unix).unwrap();
    let tcp = server.accept_socket(sockets.pop().unwrap()).unwrap();
    assert_eq!(tcp.local_address().unwrap(), addresses[0]);
    assert_eq!(server.addresses().len(), 2);
    for address in &addresses {
        let peer = match address.path() {
            Some(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_nonblocking(true).unwrap();
                Peer::Unix(stream)
            }
            None => Peer::tcp(address.socket_addr().unwrap()),
        };
        peer.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let start = std::time::Instant::now();
        let mut got = Vec::new();
        while !got.ends_with(b"inherited") {
            assert!(start.elapsed() < PATIENCE);
            base.run(event_core::LoopFlags::NONBLOCK).unwrap();
            got.extend(peer.read().0);
        }
    }
    drop(base);
    assert!(event_core::listen_fds().unwrap().is_empty(), "also when the numbers are free again");
}

#[test]
fn inherited_descriptors_that_do_not_listen_are_refused_by_number() {
    const NAME: &str = "inherited_descriptors_that_do_not_listen_are_refused_by_number";
    if !is_child(NAME) {
        let script = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3</dev/null"#;
        return succeeds(through_shell(&child(NAME), script));
    }
    let error = event_core::listen_fds().unwrap_err();
    let Error::Io(error) = error else { panic!("{error:?}") };
    let text = error.to_string();
    assert!(text.starts_with("descriptor 3 of LISTEN_FDS is no listening socket"), "{text}");
    assert!(std::fs::metadata("/dev/fd/3").is_ok(), "it is open still");
}
