//! How listeners are made: addresses, options, sockets made elsewhere; and how many connections they take.
//!
//! Nothing here starts a process: between fork and exec a child holds what a test closes, so that it listens on.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults, Sim};
use event_core::{
    Accepted, Address, BufferEvent, Direction, Error, EventBase, Listener, ListenerOptions, LoopEnd, What,
};
use event_http::{Request, Server};
use socket2::{Domain, Socket, Type};
use tests::streams::{Canary, socket_path};
use tests::{Bed, Peer, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);
const LOCAL: &str = "127.0.0.1:0";

/// What a listener has accepted, and a callback that puts it there.
type Kept = Rc<RefCell<Vec<Accepted>>>;

fn keeper() -> (Kept, impl FnMut(&Listener, Accepted) + 'static) {
    let kept = Kept::default();
    let sink = kept.clone();
    (kept, move |_: &Listener, accepted| sink.borrow_mut().push(accepted))
}

fn connect(bed: &Bed, listener: &Listener, n: usize) -> Vec<Peer> {
    let address = listener.local_address().unwrap();
    (0..n).map(|_| bed.connect(&address)).collect()
}

fn errno(result: Result<Listener, Error>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Whether this machine has IPv6; the simulation does.
fn has_ipv6(bed: &Bed) -> bool {
    let has = bed.sim().is_some() || TcpListener::bind("[::1]:0").is_ok();
    if !has {
        println!("skipped: IPv6");
    }
    has
}

#[test]
fn an_address_is_said_in_whatever_way_is_at_hand() {
    each_backend(|bed| {
        let base = bed.base();
        let path = socket_path();
        let text = format!("unix:{}", path.display());
        let listeners = [
            Listener::bind(&base, LOCAL, |_, _| {}),
            Listener::bind(&base, String::from(LOCAL), |_, _| {}),
            Listener::bind(&base, ("127.0.0.1", 0), |_, _| {}),
            Listener::bind(&base, (Ipv4Addr::LOCALHOST, 0), |_, _| {}),
            Listener::bind(&base, "localhost:0", |_, _| {}),
            Listener::bind(&base, LOCAL.parse::<Address>().unwrap(), |_, _| {}),
        ];
        for listener in listeners {
            let address = listener.unwrap().local_address().unwrap();
            assert!(address.socket_addr().unwrap().ip().is_loopback() && address.port() != Some(0));
        }
        let listener = Listener::bind(&base, &text, |_, _| {}).unwrap();
        let address = listener.local_address().unwrap();
        assert_eq!((address.path(), address.to_string()), (Some(&*path), text));
        assert_eq!(errno(Listener::bind(&base, &path, |_, _| {})), Some(libc::EADDRINUSE));
        listener.free();
        Listener::bind(&base, &path, |_, _| {}).unwrap();
        for nonsense in ["", "80", "127.0.0.1", "unix:%"] {
            let refused = Listener::bind(&base, nonsense, |_, _| {});
            assert!(matches!(refused, Err(Error::Invalid(_))), "{nonsense}");
        }
        let unnamed = Listener::bind(&base, Address::Unix(None), |_, _| {});
        assert!(matches!(unnamed, Err(Error::Io(_))));
    });
}

#[test]
fn an_ipv6_listener_leaves_ipv4_alone_unless_it_is_told_otherwise() {
    each_backend(|bed| {
        if !has_ipv6(bed) {
            return;
        }
        let mut base = bed.base();
        // Another process may have taken the port on IPv4 by chance, so a few tries.
        let both = (0..10).any(|_| {
            let six = Listener::bind(&base, "[::]:0", |_, _| {}).unwrap();
            let port = six.local_address().unwrap().port().unwrap();
            let four = Listener::bind(&base, (Ipv4Addr::UNSPECIFIED, port), |_, _| {});
            six.free();
            four.is_ok()
        });
        assert!(both);
        let (kept, cb) = keeper();
        let dual = ListenerOptions::new().only_v6(false).bind(&base, "[::]:0", cb).unwrap();
        let port = dual.local_address().unwrap().port().unwrap();
        let four = Listener::bind(&base, (Ipv4Addr::UNSPECIFIED, port), |_, _| {});
        assert_eq!(errno(four), Some(libc::EADDRINUSE));
        let _peers = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)]
            .map(|ip| bed.connect(&Address::Ip((ip, port).into())));
        bed.run_until(&mut base, || kept.borrow().len() == 2);
        let peers: Vec<IpAddr> =
            kept.borrow().iter().filter_map(|a| Some(a.address().socket_addr()?.ip())).collect();
        assert!(peers.iter().all(IpAddr::is_ipv6), "{peers:?}");
        let canonical: Vec<IpAddr> = peers.iter().map(IpAddr::to_canonical).collect();
        assert_eq!(canonical, [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)]);
    });
}

#[test]
fn a_port_is_shared_by_listeners_that_all_say_so_and_each_gets_its_part() {
    each_backend(|bed| {
        let mut base = bed.base();
        let shared = ListenerOptions::new().reuse_port(true);
        let counts = [0; 2].map(|_| Rc::new(Cell::new(0)));
        let counter = |n: usize| {
            let count = counts[n].clone();
            move |_: &Listener, _: Accepted| count.set(count.get() + 1)
        };
        let one = shared.bind(&base, LOCAL, counter(0)).unwrap();
        let address = one.local_address().unwrap();
        assert_eq!(errno(Listener::bind(&base, &address, |_, _| {})), Some(libc::EADDRINUSE));
        let other = shared.bind(&base, &address, counter(1)).unwrap();
        let _peers = connect(bed, &one, 100);
        bed.run_until(&mut base, || counts[0].get() + counts[1].get() == 100);
        assert!(counts.iter().all(|count| count.get() > 10), "{counts:?}");
        one.free();
        let _peers = connect(bed, &other, 5);
        let before = counts[1].get();
        bed.run_until(&mut base, || counts[1].get() == before + 5);
        let unix = shared.bind(&base, socket_path(), |_, _| {});
        assert!(matches!(unix, Err(Error::Invalid(_))), "a path cannot be shared");
    });
}

#[test]
fn a_stale_socket_is_replaced_if_asked_for_and_nothing_else_is() {
    each_backend(|bed| {
        let mut base = bed.base();
        let path = socket_path();
        let careless = ListenerOptions::new().unlink_on_free(false);
        careless.bind(&base, &path, |_, _| {}).unwrap().free();
        assert_eq!(
            errno(Listener::bind(&base, &path, |_, _| {})),
            Some(libc::EADDRINUSE),
            "the file is left"
        );
        let replacing = ListenerOptions::new().replace_stale(true);
        let (kept, cb) = keeper();
        let listener = replacing.bind(&base, &path, cb).unwrap();
        let refused = replacing.bind(&base, &path, |_, _| {});
        assert_eq!(errno(refused), Some(libc::EADDRINUSE), "somebody listens");
        let _peers = connect(bed, &listener, 1);
        bed.run_until(&mut base, || kept.borrow().len() == 1);
        listener.free();
        replacing.bind(&base, &path, |_, _| {}).unwrap().free();
        if bed.sim().is_some() {
            return;
        }
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(errno(replacing.bind(&base, &path, |_, _| {})), Some(libc::EADDRINUSE));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        // A link to a stale socket is not one itself.
        let target = socket_path();
        drop(UnixListener::bind(&target).unwrap());
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert_eq!(errno(replacing.bind(&base, &path, |_, _| {})), Some(libc::EADDRINUSE));
        assert!(target.exists() && path.is_symlink());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&target).unwrap();
    });
}

#[test]
fn the_file_of_a_unix_socket_has_the_mode_that_was_asked_for() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let base = bed.base();
        for mode in [0o600, 0o666, 0o660] {
            let path = socket_path();
            let listener = ListenerOptions::new().mode(mode).bind(&base, &path, |_, _| {}).unwrap();
            let file = path.symlink_metadata().unwrap();
            assert!(file.file_type().is_socket());
            assert_eq!(file.permissions().mode() & 0o777, mode);
            listener.free();
            assert!(!path.exists());
        }
    });
}

#[test]
fn a_name_in_the_abstract_namespace_needs_no_file() {
    each_backend(|bed| {
        if !cfg!(target_os = "linux") {
            return;
        }
        let mut base = bed.base();
        let name = format!("unix:@{}", socket_path().display());
        let options = ListenerOptions::new().mode(0o600).replace_stale(true);
        for _ in 0..2 {
            let (kept, cb) = keeper();
            let listener = options.bind(&base, &name, cb).unwrap();
            assert_eq!(listener.local_address().unwrap().to_string(), name);
            assert_eq!(errno(options.bind(&base, &name, |_, _| {})), Some(libc::EADDRINUSE));
            if let Some(sim) = bed.sim() {
                let _peer = sim.connect(&name.parse().unwrap()).unwrap();
                bed.run_until(&mut base, || kept.borrow().len() == 1);
            }
            listener.free();
        }
    });
}

#[test]
fn a_listener_may_begin_disabled_and_go_without_a_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (kept, cb) = keeper();
        let listener = ListenerOptions::new().disabled(true).bind(&base, LOCAL, cb).unwrap();
        assert!(!listener.is_enabled());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let _peers = connect(bed, &listener, 3);
        bed.settle(&mut base);
        assert_eq!(kept.borrow().len(), 0);
        listener.enable();
        bed.run_until(&mut base, || kept.borrow().len() == 3);
        listener.clear_cb();
        let _more = connect(bed, &listener, 2);
        bed.settle(&mut base);
        assert_eq!((base.dispatch().unwrap(), kept.borrow().len()), (LoopEnd::Empty, 3));
        let count = Rc::new(Cell::new(0));
        let n = count.clone();
        listener.set_cb(move |listener, _| {
            n.set(n.get() + 1);
            listener.clear_cb();
        });
        bed.run_until(&mut base, || count.get() == 1);
        bed.settle(&mut base);
        assert_eq!((count.get(), Rc::strong_count(&count)), (1, 1), "cleared in itself, and dropped");
    });
}

#[test]
fn a_turn_accepts_as_many_as_it_is_told() {
    each_seed(|bed| {
        for (budget, most) in [(5, 5), (0, 1), (1000, 200)] {
            let sim = bed.sim().unwrap();
            let mut base = bed.base();
            let (kept, cb) = keeper();
            let listener = ListenerOptions::new().accepts_per_turn(budget).bind(&base, LOCAL, cb).unwrap();
            let _peers = connect(bed, &listener, 200);
            let mut largest = 0;
            while kept.borrow().len() < 200 {
                let (before, waits) = (kept.borrow().len(), sim.calls()[Call::Wait]);
                base.run(event_core::LoopFlags::ONCE).unwrap();
                assert_eq!(sim.calls()[Call::Wait] - waits, 1);
                largest = largest.max(kept.borrow().len() - before);
            }
            assert!(largest <= most && largest + 1 >= most, "{largest} in a turn of {budget}");
        }
    });
}

#[test]
fn connections_above_the_limit_wait_in_the_backlog() {
    each_backend(|bed| {
        let mut base = bed.base();
        let streams = Rc::new(RefCell::new(Vec::<BufferEvent>::new()));
        let sink = streams.clone();
        let options = ListenerOptions::new().max_connections(Some(3));
        let listener = options
            .bind(&base, LOCAL, move |_, accepted| {
                let stream = accepted.into_stream();
                stream.enable(Direction::READ).unwrap();
                sink.borrow_mut().push(stream);
            })
            .unwrap();
        let mut peers = connect(bed, &listener, 6);
        bed.run_until(&mut base, || streams.borrow().len() == 3);
        bed.settle(&mut base);
        let stats = listener.stats();
        assert_eq!((streams.borrow().len(), stats.open, stats.accepted, stats.filled), (3, 3, 3, 1));
        assert!(listener.is_enabled());
        // One is freed by the program; one ends, which frees it.
        streams.borrow()[0].free();
        assert_eq!(listener.stats().open, 2);
        bed.run_until(&mut base, || streams.borrow().len() == 4);
        drop(peers.remove(1));
        bed.run_until(&mut base, || streams.borrow().len() == 5);
        bed.settle(&mut base);
        assert_eq!((streams.borrow().len(), listener.stats().open, listener.stats().filled), (5, 3, 3));
        listener.set_max_connections(Some(4));
        bed.run_until(&mut base, || streams.borrow().len() == 6);
        // Freed streams, freed listener, freed loop, in any order.
        listener.free();
        streams.borrow()[5].free();
        assert_eq!(listener.stats().open, 3);
        drop(base);
        assert_eq!(listener.stats().open, 0);
    });
}

#[test]
fn what_is_dropped_or_taken_out_counts_no_more_and_zero_is_zero() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (count, canary) = (Rc::new(Cell::new(0)), Canary::new());
        let (n, held) = (count.clone(), canary.clone());
        let options = ListenerOptions::new().max_connections(Some(1));
        let listener = options
            .bind(&base, LOCAL, move |listener, accepted| {
                assert_eq!((listener.stats().open, held.alive()), (1, 1));
                n.set(n.get() + 1);
                match n.get() % 2 {
                    0 => drop(accepted),
                    _ => drop(accepted.into_fd()),
                }
                assert_eq!(listener.stats().open, 0);
            })
            .unwrap();
        let _peers = connect(bed, &listener, 10);
        bed.run_until(&mut base, || count.get() == 10);
        assert_eq!(listener.stats().filled, 10);
        listener.set_max_connections(Some(0));
        let _more = connect(bed, &listener, 2);
        bed.settle(&mut base);
        assert_eq!(count.get(), 10);
        // It waits to be told otherwise, and keeps the loop running meanwhile.
        let handle = base.handle();
        base.once(-1, What::empty(), Some(2 * MS), move |_| drop(handle.loopexit(None))).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        listener.set_cb(|_, _| {});
        listener.set_max_connections(None);
        let before = listener.stats().accepted;
        bed.run_until(&mut base, || listener.stats().accepted == before + 2);
    });
}

#[test]
fn failures_are_counted_by_whose_they_are() {
    let (sim, faults) = (Sim::new(1), Faults::new());
    let mut base = sim.event_base_with(&faults).unwrap();
    let (kept, cb) = keeper();
    let listener = Listener::bind(&base, LOCAL, cb).unwrap();
    faults.fail(Call::Accept, 1, libc::ECONNABORTED);
    faults.fail(Call::Accept, 2, libc::EMFILE);
    let _peer = sim.connect(&listener.local_address().unwrap()).unwrap();
    while kept.borrow().is_empty() {
        base.run(event_core::LoopFlags::ONCE).unwrap();
    }
    let stats = listener.stats();
    assert_eq!((stats.accepted, stats.aborted, stats.rested, stats.filled, stats.open), (1, 1, 1, 0, 0));
    assert_eq!(sim.elapsed(), 100 * MS);
    listener.free();
    assert_eq!(listener.stats(), stats);
}

#[test]
fn a_socket_that_is_only_bound_listens_from_then_on() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
        socket.set_cloexec(false).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let same = socket.try_clone().unwrap();
        let (kept, cb) = keeper();
        let listener = Listener::from_fd(&base, socket, cb).unwrap();
        assert!(same.nonblocking().unwrap() && is_closed_by_exec(listener.fd().unwrap()));
        let _peers = connect(bed, &listener, 2);
        bed.run_until(&mut base, || kept.borrow().len() == 2);
    });
}

/// Whether a child would not get it, where the system says so.
fn is_closed_by_exec(fd: i32) -> bool {
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else { return true };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap() & libc::O_CLOEXEC != 0
}

#[test]
fn what_cannot_listen_is_refused_and_closed() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let base = bed.base();
        let (pipe, _writer) = std::io::pipe().unwrap();
        let (stream, mut other) = UnixStream::pair().unwrap();
        let udp = std::net::UdpSocket::bind(LOCAL).unwrap();
        let refused = |fd: OwnedFd| errno(Listener::from_fd(&base, fd, |_, _| {}));
        assert_eq!(refused(pipe.into()), Some(libc::ENOTSOCK));
        assert_eq!(refused(stream.into()), Some(libc::EINVAL));
        assert_eq!(refused(udp.into()), Some(libc::EOPNOTSUPP));
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "closed");
    });
}

#[test]
fn a_borrowed_socket_stays_open_when_its_listener_is_freed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let owner = ListenerOptions::new().disabled(true).bind(&bed.base(), LOCAL, |_, _| {});
        // The other loop is gone and has closed it.
        assert!(owner.unwrap().fd().is_none());
        let mut other = bed.base();
        let (own, cb) = keeper();
        let owner = ListenerOptions::new().disabled(true).bind(&other, LOCAL, cb).unwrap();
        let (kept, cb) = keeper();
        let borrower = Listener::from_borrowed_fd(&base, owner.fd().unwrap(), cb).unwrap();
        assert_eq!(borrower.local_address().unwrap(), owner.local_address().unwrap());
        let _peers = connect(bed, &owner, 2);
        bed.run_until(&mut base, || kept.borrow().len() == 2);
        borrower.free();
        assert!(borrower.fd().is_none());
        owner.enable();
        let _more = connect(bed, &owner, 1);
        bed.run_until(&mut other, || own.borrow().len() == 1);
        assert!(Listener::from_borrowed_fd(&base, -1, |_, _| {}).is_err());
        if let Some(sim) = bed.sim() {
            let (fd, _peer) = sim.pair();
            assert_eq!(errno(Listener::from_borrowed_fd(&base, fd, |_, _| {})), Some(libc::EINVAL));
            assert!(sim.open_fds().contains(&fd));
        }
    });
}

#[test]
fn an_accepted_socket_may_be_taken_out() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (kept, cb) = keeper();
        let listener = Listener::bind(&base, LOCAL, cb).unwrap();
        let peers = connect(bed, &listener, 1);
        bed.run_until(&mut base, || kept.borrow().len() == 1);
        let accepted = kept.borrow_mut().pop().unwrap();
        if bed.sim().is_some() {
            let error = accepted.into_fd().unwrap_err();
            assert!(matches!(error, Error::Io(error) if error.kind() == ErrorKind::Unsupported));
            bed.run_until(&mut base, || peers[0].read().1);
            return;
        }
        let mut stream = TcpStream::from(accepted.into_fd().unwrap());
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
        peers[0].write_all(b"x");
        stream.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_message_from_another_thread_disables_it_while_its_callback_runs() {
    each_backend(|bed| {
        let mut base = bed.base();
        let count = Rc::new(Cell::new(0));
        let listener = Listener::bind(&base, LOCAL, |_, _| {}).unwrap();
        let own = listener.clone();
        let (_mailbox, sender) = base.mailbox(move |()| own.disable()).unwrap();
        let n = count.clone();
        listener.set_cb(move |listener, _| {
            n.set(n.get() + 1);
            let sender = sender.clone();
            std::thread::spawn(move || sender.send(()).unwrap()).join().unwrap();
            assert!(listener.is_enabled(), "not in the middle of the callback");
        });
        let _peers = connect(bed, &listener, 1);
        bed.run_until(&mut base, || !listener.is_enabled());
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn without_descriptors_a_connect_is_an_error_and_no_event() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (kept, cb) = keeper();
        let listener = Listener::bind(&base, LOCAL, cb).unwrap();
        let address = listener.local_address().unwrap();
        for errno in [libc::EMFILE, libc::ENFILE] {
            faults.fail(Call::Connect, faults.count(Call::Connect) + 1, errno);
            let refused = BufferEvent::connect(&base, &address).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(errno));
        }
        bed.settle(&mut base);
        let stream = BufferEvent::connect(&base, &address).unwrap();
        bed.run_until(&mut base, || kept.borrow().len() == 1);
        stream.free();
        if let Some(sim) = bed.sim() {
            let before = sim.open_fds();
            sim.set_open_file_limit(3);
            assert_eq!(BufferEvent::connect(&base, &address).unwrap_err().raw_os_error(), Some(libc::EMFILE));
            assert_eq!(sim.open_fds(), before);
        }
    });
}

#[test]
fn a_servers_listener_tells_its_port_and_stops_alone() {
    each_backend(|bed| {
        let mut base = bed.base();
        let server = Server::new(&base).unwrap();
        server.set_gencb(|req: Request| req.send_reply(200, None, "page"));
        let one = server.bind(LOCAL).unwrap();
        let options = ListenerOptions::new().max_connections(Some(1));
        let other = server.bind_with(&options, LOCAL).unwrap();
        let ask = |base: &mut EventBase, listener: &Listener| {
            let peer = connect(bed, listener, 1).remove(0);
            bed.settle(base);
            peer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            peer
        };
        let answered = |base: &mut EventBase, peer: &Peer| {
            let mut got = Vec::new();
            bed.run_until(base, || {
                got.extend(peer.read().0);
                got.ends_with(b"page")
            });
        };
        let first = ask(&mut base, &one);
        answered(&mut base, &first);
        let second = ask(&mut base, &other);
        answered(&mut base, &second);
        let third = ask(&mut base, &other);
        bed.settle(&mut base);
        assert_eq!((server.connection_count(), other.stats().accepted), (2, 1));
        drop(second);
        if bed.sim().is_some() {
            third.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        answered(&mut base, &third);
        one.free();
        assert_eq!(server.addresses(), [other.local_address().unwrap()]);
        assert!(server.bind("nowhere").unwrap_err().is_invalid_argument());
        let taken = server.bind(other.local_address().unwrap()).unwrap_err();
        assert!(taken.is_ours() && format!("{taken:#}").contains("in use"), "{taken:#}");
        server.free();
        assert!(other.fd().is_none());
        let late = Listener::bind(&base, LOCAL, |_, _| {}).unwrap();
        assert!(server.bind_listener(late.clone()).unwrap_err().is_server_gone());
        assert!(late.fd().is_none());
    });
}
