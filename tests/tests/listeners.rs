//! Listeners: accepting, stopping, running out of descriptors, unix paths.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults, Sim};
use event_core::{Accepted, Address, Direction, Error, EventBase, Listener, LoopEnd};
use tests::streams::{Canary, Echo, Seen, socket_path};
use tests::{Bed, Peer, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Listens and keeps what is accepted.
fn keeper(base: &EventBase) -> (Listener, Rc<RefCell<Vec<Accepted>>>) {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let sink = kept.clone();
    let listener =
        Listener::bind(base, local(), move |_, accepted| sink.borrow_mut().push(accepted)).unwrap();
    (listener, kept)
}

fn connect(bed: &Bed, listener: &Listener, n: usize) -> Vec<Peer> {
    let address = listener.local_address().unwrap();
    (0..n).map(|_| bed.connect(&address)).collect()
}

#[test]
fn every_connection_is_accepted_with_its_address() {
    const COUNT: usize = tests::few_under_miri(150, 20);
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, kept) = keeper(&base);
        let peers = connect(bed, &listener, COUNT);
        bed.run_until(&mut base, || kept.borrow().len() == COUNT);
        for accepted in kept.borrow_mut().drain(..) {
            assert!(
                matches!(accepted.address(), Address::Ip(ip) if ip.ip() == local().ip() && ip.port() != 0)
            );
            let peer = accepted.address().clone();
            assert_eq!(accepted.into_stream().peer_address().unwrap(), peer);
        }
        drop(peers);
        assert!(listener.is_enabled() && listener.fd().is_some());
    });
}

#[test]
fn a_listener_that_its_callback_frees_by_the_id_of_what_runs_is_freed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let held = Rc::new(());
        let canary = held.clone();
        let listener = Listener::bind(&base, local(), move |listener, _| {
            let _captured = &canary;
            let handle = listener.handle();
            handle.free(handle.running_event().unwrap()).unwrap();
        })
        .unwrap();
        let _peers = connect(bed, &listener, 1);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((listener.fd(), Rc::strong_count(&held)), (None, 1));
    });
}

#[test]
fn a_connection_that_the_callback_drops_is_closed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, local(), |_, accepted| drop(accepted)).unwrap();
        let peers = connect(bed, &listener, 1);
        bed.run_until(&mut base, || peers[0].read().1);
        let listener = Listener::bind(&base, local(), |_, _ignored| {}).unwrap();
        let peers = connect(bed, &listener, 1);
        bed.run_until(&mut base, || peers[0].read().1);
    });
}

#[test]
fn disabling_in_the_callback_leaves_the_rest_in_the_backlog() {
    each_backend(|bed| {
        let mut base = bed.base();
        let count = Rc::new(Cell::new(0));
        let n = count.clone();
        let listener = Listener::bind(&base, local(), move |listener, accepted| {
            n.set(n.get() + 1);
            let stream = accepted.into_stream();
            stream.set_callbacks(Echo);
            stream.enable(Direction::READ).unwrap();
            if n.get() % 4 == 0 {
                listener.disable();
                listener.disable();
            }
        })
        .unwrap();
        let peers = connect(bed, &listener, 12);
        for expected in [4, 8, 12] {
            bed.run_until(&mut base, || count.get() == expected);
            bed.settle(&mut base);
            assert_eq!((count.get(), listener.is_enabled()), (expected, false));
            listener.enable();
            listener.enable();
        }
        drop(peers);
    });
}

#[test]
fn freeing_in_the_callback_stops_at_once_and_drops_it_afterwards() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (count, canary) = (Rc::new(Cell::new(0)), Canary::new());
        let (n, held) = (count.clone(), canary.clone());
        let listener = Listener::bind(&base, local(), move |listener, _| {
            n.set(n.get() + 1);
            if n.get() == 5 {
                listener.free();
                assert!(listener.fd().is_none() && !listener.is_enabled());
            }
            assert_eq!(held.alive(), 1);
        })
        .unwrap();
        let _peers = connect(bed, &listener, 12);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((count.get(), canary.alive()), (5, 0));
        listener.free();
        listener.enable();
        assert!(!listener.is_enabled());
        assert!(matches!(listener.local_address(), Err(Error::Stale)));
    });
}

#[test]
fn the_callback_may_be_replaced_in_itself_and_a_freed_listener_keeps_none() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (seen, canary) = (Seen::new(), Canary::new());
        let (log, held) = (seen.clone(), canary.clone());
        let listener = Listener::bind(&base, local(), move |listener, _| {
            log.push("first");
            let (log, own, held) = (log.clone(), listener.clone(), held.clone());
            listener.set_cb(move |_, _| {
                let _ = (&own, &held);
                log.push("second");
            });
        })
        .unwrap();
        let _peers = connect(bed, &listener, 3);
        bed.run_until(&mut base, || seen.len() == 3);
        assert_eq!(
            (seen.take(), canary.alive()),
            (["first", "second", "second"].map(String::from).to_vec(), 1)
        );
        listener.free();
        assert_eq!(canary.alive(), 0);
        let (own, held, own_too, held_too) =
            (listener.clone(), canary.clone(), listener.clone(), canary.clone());
        listener.set_cb(move |_, _| drop((own.clone(), held.clone())));
        listener.set_error_cb(move |_, _| drop((own_too.clone(), held_too.clone())));
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
fn a_listener_that_captures_itself_goes_with_the_loop() {
    each_backend(|bed| {
        let base = bed.base();
        let canary = Canary::new();
        let (listener, _) = keeper(&base);
        let (own, held) = (listener.clone(), canary.clone());
        listener.set_cb(move |_, _| drop((own.clone(), held.clone())));
        let (own, held) = (listener.clone(), canary.clone());
        listener.set_error_cb(move |_, _| drop((own.clone(), held.clone())));
        assert_eq!(canary.alive(), 2);
        drop(base);
        assert_eq!((canary.alive(), listener.fd()), (0, None));
        assert!(matches!(Listener::bind(listener.handle(), local(), |_, _| {}), Err(Error::LoopGone)));
    });
}

#[test]
fn a_listener_keeps_the_loop_running_while_it_is_enabled() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, _kept) = keeper(&base);
        let handle = base.handle();
        base.once(-1, event_core::What::empty(), Some(2 * MS), move |_| handle.loopexit(None).unwrap())
            .unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        listener.disable();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_panic_in_the_callback_frees_that_listener_only() {
    each_backend(|bed| {
        let mut base = bed.base();
        let broken = Listener::bind(&base, local(), |_, _| panic!("on purpose")).unwrap();
        let (listener, kept) = keeper(&base);
        let _first = connect(bed, &broken, 1);
        let panicked = Cell::new(false);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            bed.run_until(&mut base, || panicked.get());
        }));
        assert!(result.is_err() && broken.fd().is_none());
        let _second = connect(bed, &listener, 1);
        bed.run_until(&mut base, || kept.borrow().len() == 1);
    });
}

#[test]
fn single_connections_cost_one_accept_and_a_burst_one_more() {
    each_seed(|bed| {
        let sim = bed.sim().unwrap();
        let mut base = bed.base();
        let (listener, kept) = keeper(&base);
        for n in 1..=5 {
            let before = sim.calls()[Call::Accept];
            let _peer = connect(bed, &listener, 1);
            bed.settle(&mut base);
            assert_eq!((kept.borrow().len(), sim.calls()[Call::Accept] - before), (n, 1));
            sim.advance(10 * MS);
        }
        let before = sim.calls()[Call::Accept];
        let _peers = connect(bed, &listener, 40);
        bed.settle(&mut base);
        assert_eq!((kept.borrow().len(), sim.calls()[Call::Accept] - before), (45, 41));
    });
}

#[test]
fn a_burst_does_not_hold_up_the_others() {
    const BURST: usize = tests::few_under_miri(300, 140);
    each_seed(|bed| {
        let mut base = bed.base();
        let (listener, kept) = keeper(&base);
        let _peers = connect(bed, &listener, BURST);
        let most = Rc::new(Cell::new(0));
        let (largest, kept_now, last) = (most.clone(), kept.clone(), Cell::new(0));
        bed.run_until(&mut base, || {
            let n = kept_now.borrow().len();
            largest.set(largest.get().max(n - last.replace(n)));
            n == BURST
        });
        assert!(most.get() <= 64 * 2, "{}", most.get());
    });
}

#[test]
fn without_descriptors_accepting_rests_and_is_told_once_until_it_works_again() {
    each_seed(|bed| {
        let sim = bed.sim().unwrap();
        let mut base = bed.base();
        let (listener, kept) = keeper(&base);
        let seen = Seen::new();
        let log = seen.clone();
        listener.set_error_cb(move |listener, error| {
            assert!(listener.is_enabled());
            log.push(format!("{}", error.raw_os_error().unwrap()));
        });
        let mut peers = connect(bed, &listener, 3);
        for _ in 0..2 {
            sim.set_open_file_limit(sim.open_fds().len() + 3 - 1);
            let (waits, accepts) = (sim.calls()[Call::Wait], sim.calls()[Call::Accept]);
            let handle = base.handle();
            base.once(-1, event_core::What::empty(), Some(1050 * MS), move |_| {
                handle.loopexit(None).unwrap()
            })
            .unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
            assert_eq!(seen.take(), [libc::EMFILE.to_string()]);
            let (waits, accepts) = (sim.calls()[Call::Wait] - waits, sim.calls()[Call::Accept] - accepts);
            assert!(accepts <= 13 && waits <= 26, "{accepts} accepts, {waits} waits");
            sim.set_open_file_limit(1024);
            let had = kept.borrow().len();
            bed.pass(&mut base, 100 * MS);
            assert!(kept.borrow().len() > had);
            kept.borrow_mut().clear();
            peers.extend(connect(bed, &listener, 1));
        }
    });
}

#[test]
fn the_error_callback_may_free_disable_or_replace() {
    each_seed(|bed| {
        for how in 0..3 {
            let sim = bed.sim().unwrap();
            let mut base = bed.base();
            let (listener, kept) = keeper(&base);
            let canary = Canary::new();
            let held = canary.clone();
            listener.set_error_cb(move |listener, _| {
                let _ = &held;
                match how {
                    0 => listener.free(),
                    1 => listener.disable(),
                    _ => listener.set_error_cb(|_, _| {}),
                }
            });
            let peers = connect(bed, &listener, 2);
            sim.set_open_file_limit(sim.open_fds().len());
            bed.settle(&mut base);
            assert_eq!(canary.alive(), usize::from(how == 1));
            sim.set_open_file_limit(1024);
            bed.pass(&mut base, 300 * MS);
            assert_eq!(kept.borrow().len(), if how == 2 { 2 } else { 0 });
            listener.enable();
            bed.settle(&mut base);
            assert_eq!(kept.borrow().len(), if how == 0 { 0 } else { 2 });
            drop((peers, listener));
        }
    });
}

#[test]
fn what_is_the_clients_fault_is_passed_over() {
    let sim = Sim::new(1);
    let faults = Faults::new();
    let mut base = sim.event_base_with(&faults).unwrap();
    let (listener, kept) = keeper(&base);
    let address = listener.local_address().unwrap();
    for (n, errno) in
        [libc::ECONNABORTED, libc::EPROTO, libc::EPERM, libc::ENETUNREACH].into_iter().enumerate()
    {
        faults.fail(Call::Accept, faults.count(Call::Accept) + 1, errno);
        let peer = sim.connect(&address).unwrap();
        for _ in 0..10 {
            base.run(event_core::LoopFlags::NONBLOCK).unwrap();
        }
        assert_eq!(kept.borrow().len(), n + 1);
        drop(peer);
    }
    assert_eq!(sim.elapsed(), Duration::ZERO, "no rest");
}

#[test]
fn a_unix_listener_takes_its_path_with_it_and_no_others() {
    each_backend(|bed| {
        let mut base = bed.base();
        let path = socket_path();
        let canary = Rc::new(Cell::new(0));
        let n = canary.clone();
        let listener = Listener::bind(&base, &path, move |_, accepted| {
            assert!(matches!(accepted.address(), Address::Unix(None)));
            n.set(n.get() + 1);
        })
        .unwrap();
        let address = listener.local_address().unwrap();
        assert_eq!(address, Address::Unix(Some(path.clone())));
        let error = Listener::bind(&base, &path, |_, _| {}).unwrap_err();
        assert!(matches!(&error, Error::Io(e) if e.raw_os_error() == Some(libc::EADDRINUSE)), "{error:?}");
        let _peer = bed.connect(&address);
        bed.run_until(&mut base, || canary.get() == 1);
        listener.free();
        assert!(!path.exists());
        let again = Listener::bind(&base, &path, |_, _| {}).unwrap();
        if bed.sim().is_none() {
            // Somebody else has the name by now: it is not ours to remove.
            std::fs::remove_file(&path).unwrap();
            let other = UnixListener::bind(&path).unwrap();
            again.free();
            assert!(path.exists());
            drop(other);
            std::fs::remove_file(&path).unwrap();
        }
        again.free();
        let last = Listener::bind(&base, &path, |_, _| {}).unwrap();
        drop(base);
        assert!(last.fd().is_none() && !path.exists(), "the loop's end removes it too");
    });
}

#[test]
fn a_simulated_listener_touches_no_real_file() {
    let sim = Sim::new(1);
    let base = sim.event_base().unwrap();
    let path = socket_path();
    std::fs::write(&path, "precious").unwrap();
    let listener = Listener::bind(&base, &path, |_, _| {}).unwrap();
    listener.free();
    assert!(Path::new(&path).exists());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(sim.connect(&Address::Unix(Some(path))).unwrap_err().raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn a_listening_socket_may_be_brought_along() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let socket = std::net::TcpListener::bind(local()).unwrap();
        let address = Address::Ip(socket.local_addr().unwrap());
        let count = Rc::new(Cell::new(0));
        let n = count.clone();
        let listener = Listener::from_fd(&base, socket, move |_, _| n.set(n.get() + 1)).unwrap();
        assert_eq!(listener.local_address().unwrap(), address);
        let _peers = connect(bed, &listener, 3);
        bed.run_until(&mut base, || count.get() == 3);
        let in_use = Listener::bind(&base, &address, |_, _| {});
        assert!(matches!(in_use, Err(Error::Io(e)) if e.raw_os_error() == Some(libc::EADDRINUSE)));
    });
}

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static VICTIM: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Keeps each thread's lines apart, and frees a listener from within: a sink is user code.
struct Sink;
impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        LINES.with(|lines| lines.borrow_mut().push(record.args().to_string()));
        let victim = VICTIM.take();
        if let Some(victim) = victim {
            victim.free();
        }
    }
    fn flush(&self) {}
}

#[test]
fn a_shortage_is_logged_once_and_the_log_may_free_the_listener() {
    log::set_logger(&Sink).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    for frees in [false, true] {
        let sim = Sim::new(1);
        let mut base = sim.event_base().unwrap();
        let (listener, kept) = keeper(&base);
        let _peer = sim.connect(&listener.local_address().unwrap()).unwrap();
        sim.set_open_file_limit(sim.open_fds().len());
        VICTIM.set(frees.then(|| listener.clone()));
        let handle = base.handle();
        base.once(-1, event_core::What::empty(), Some(5000 * MS), move |_| handle.loopexit(None).unwrap())
            .unwrap();
        LINES.take();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        let lines = LINES.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("rests"));
        assert_eq!((listener.fd().is_none(), kept.borrow().len()), (frees, 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "the real kernel")]
fn another_thread_may_ask_to_disable_a_listener_while_its_callback_runs() {
    let mut base = EventBase::new().unwrap();
    let place: Rc<RefCell<Option<Listener>>> = Rc::default();
    let inside = place.clone();
    let (mailbox, sender) = base
        .mailbox(move |()| {
            let listener = inside.borrow_mut().take();
            if let Some(listener) = listener {
                listener.free();
            }
        })
        .unwrap();
    let count = Rc::new(Cell::new(0));
    let calls = count.clone();
    let listener = Listener::bind(&base, local(), move |_, _| {
        calls.set(calls.get() + 1);
        // The other thread is done while this runs: no lock is held that it would wait for.
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(()).is_ok()).join().unwrap();
    })
    .unwrap();
    let address = listener.local_address().unwrap();
    *place.borrow_mut() = Some(listener);
    let Address::Ip(address) = address else { unreachable!() };
    let _client = std::net::TcpStream::connect(address).unwrap();
    // The listener alone keeps it running.
    assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    assert_eq!(count.get(), 1);
    drop(mailbox);
}
