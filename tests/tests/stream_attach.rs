//! A stream's fd is replaced, taken away, connected anew, closed by a reset; and is a terminal.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::Sim;
use event_core::{
    Address, BufferEvent, Callbacks, Direction, Error, EventBase, Listener, LoopEnd, LoopFlags, StreamEvent,
    Timer,
};
use tests::streams::{Recorder, Seen};
use tests::{Bed, Peer, each_backend};

/// Gives `stream` another fd; its other end.
fn replace(bed: &Bed, stream: &BufferEvent) -> Peer {
    replace_in(bed.sim(), stream)
}

fn replace_in(sim: Option<&Sim>, stream: &BufferEvent) -> Peer {
    match sim {
        Some(sim) => Peer::Sim(sim.replace_fd(stream).unwrap()),
        None => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            stream.replace_fd(ours).unwrap();
            Peer::Unix(theirs)
        }
    }
}

#[test]
fn another_fd_takes_the_place_of_the_old_one_which_is_closed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, old) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        old.write_all(b"before");
        bed.run_until(&mut base, || seen.len() == 1);
        let before = stream.fd();
        let new = replace(bed, &stream);
        assert_ne!(stream.fd(), before);
        assert!(old.read().1, "the old one is closed at once");
        assert!(stream.enabled().contains(Direction::READ));
        new.write_all(b"after");
        stream.write("answer").unwrap();
        bed.run_until(&mut base, || seen.len() == 3);
        let mut all = seen.take();
        all.sort();
        assert_eq!(all, ["read after", "read before", "wrote, 0 left"]);
        assert_eq!(new.read().0, b"answer");
        stream.free();
        assert!(new.read().1);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn what_was_not_sent_leaves_through_the_new_fd() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, old) = bed.stream(&base);
        stream.set_timeouts(None, Some(Duration::from_secs(3600)));
        stream.write(vec![b'u'; 3 << 20]).unwrap();
        bed.settle(&mut base);
        let left = stream.pending_output();
        assert!(left > 0, "no peer holds as much");
        drop(old);
        let new = replace(bed, &stream);
        assert_eq!(stream.pending_output(), left);
        let got = Cell::new(0);
        bed.run_until(&mut base, || {
            got.set(got.get() + new.read().0.len());
            got.get() == left
        });
        assert!(stream.error().is_none());
    });
}

#[test]
fn the_end_and_the_errors_of_the_old_fd_are_not_the_new_ones() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, old) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        old.shutdown_write();
        bed.run_until(&mut base, || seen.len() == 1);
        assert_eq!(seen.take(), ["reading eof"]);
        let new = replace(bed, &stream);
        new.write_all(b"more");
        stream.write("as well").unwrap();
        bed.run_until(&mut base, || seen.len() == 2);
        assert!(seen.take().contains(&"read more".to_owned()));
        new.shutdown_write();
        bed.run_until(&mut base, || seen.len() == 1);
        assert_eq!(seen.take(), ["reading eof"]);
        assert_eq!(new.read().0, b"as well");
    });
}

type Replace = Box<dyn FnOnce(&BufferEvent)>;

/// Gives its stream another fd in one of its callbacks, the first time it gets there.
struct Replacer {
    seen: Seen,
    in_write: bool,
    replace: Option<Replace>,
}

impl Replacer {
    fn act(&mut self, bev: &BufferEvent) {
        if let Some(replace) = self.replace.take() {
            replace(bev);
        }
    }
}

impl Callbacks for Replacer {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.seen.push(String::from_utf8(bev.read_buffer().to_vec()).unwrap());
        match self.in_write {
            // The write callback comes in the same visit.
            true => bev.write("answer").unwrap(),
            false => self.act(bev),
        }
    }

    fn on_write(&mut self, bev: &BufferEvent) {
        if self.in_write {
            self.act(bev);
        }
    }

    fn on_event(&mut self, _: &BufferEvent, event: StreamEvent) {
        self.seen.push(tests::streams::words(event));
    }
}

/// Has a stream find bytes and an end in one visit, in which one of its callbacks gives it another fd and writes; what
/// it sees, and with `lives` of what the other end of the new one sends.
fn replaced_in_a_visit(bed: &Bed, in_write: bool, lives: bool) -> Vec<String> {
    let mut base = bed.base();
    let (stream, old) = bed.stream(&base);
    let (seen, kept) = (Seen::new(), Rc::new(Cell::new(None)));
    let (sim, place) = (bed.sim().cloned(), kept.clone());
    let replace = move |bev: &BufferEvent| {
        let peer = replace_in(sim.as_ref(), bev);
        match lives {
            true => place.set(Some(peer)),
            false => peer.reset(),
        }
        bev.write("anew").unwrap();
    };
    stream.set_callbacks(Replacer { seen: seen.clone(), in_write, replace: Some(Box::new(replace)) });
    stream.enable(Direction::READ).unwrap();
    old.write_all(b"last");
    old.shutdown_write();
    bed.run_until(&mut base, || !seen.is_empty());
    bed.settle(&mut base);
    if let Some(new) = kept.take() {
        assert_eq!(new.read().0, b"anew");
        new.write_all(b"first");
        bed.settle(&mut base);
    }
    seen.take()
}

#[test]
fn an_event_of_the_old_fd_that_is_not_told_yet_does_not_come() {
    each_backend(|bed| {
        for in_write in [false, true] {
            assert_eq!(replaced_in_a_visit(bed, in_write, true), ["last", "first"], "{in_write}");
        }
    });
}

// An error of the new one was taken for one of the old.
#[test]
fn an_error_of_an_fd_that_a_callback_has_just_put_there_is_told() {
    each_backend(|bed| {
        for in_write in [false, true] {
            let seen = replaced_in_a_visit(bed, in_write, false);
            assert_eq!(seen[0], "last");
            assert!(seen[1..].iter().any(|event| event.contains("writing error")), "{in_write}: {seen:?}");
        }
    });
}

#[test]
fn a_stream_without_an_fd_waits_for_one_and_holds_no_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stream = BufferEvent::without_fd(&base).unwrap();
        let seen = Recorder::patient_on(&stream);
        stream.write("waits").unwrap();
        assert!(!stream.try_flush().unwrap());
        assert_eq!((stream.max_to_read(), stream.max_to_write()), (0, 0));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((stream.pending_output(), stream.fd()), (5, None));
        let peer = replace(bed, &stream);
        bed.run_until(&mut base, || stream.pending_output() == 0);
        assert_eq!(peer.read().0, b"waits");
        peer.write_all(b"came");
        bed.run_until(&mut base, || seen.len() == 2);

        // And taken away again.
        let fd = stream.detach_fd().unwrap().unwrap();
        assert_eq!((stream.fd(), stream.detach_fd().unwrap()), (None, None));
        assert!(!peer.read().1, "open, and the caller's");
        peer.write_all(b"unseen");
        bed.settle(&mut base);
        assert_eq!(seen.len(), 2);
        stream.write("x").unwrap();
        stream.close_after_flush();
        assert!(stream.is_freed(), "nothing can be sent");
        match bed.sim() {
            Some(sim) => assert_eq!(sim.read(fd, 100).unwrap(), b"unseen"),
            None => {
                let mut text = [0; 6];
                let back = BufferEvent::from_borrowed_fd(&base, fd).unwrap();
                back.set_read_cb(|_| {});
                back.enable(Direction::READ).unwrap();
                bed.run_until(&mut base, || back.pending_input() == 6);
                assert_eq!(back.read(&mut text), 6);
                assert_eq!(&text, b"unseen");
                back.free();
                nix::unistd::close(fd).unwrap();
            }
        }
    });
}

#[test]
fn timeouts_and_deadlines_go_on_with_the_new_fd() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, _old) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        stream.set_timeouts(Some(Duration::from_millis(30)), None);
        stream.set_deadline(Some(base.elapsed() + Duration::from_millis(60)));
        let new = replace(bed, &stream);
        bed.run_until(&mut base, || {
            if let Some(sim) = bed.sim() {
                sim.advance(Duration::from_millis(1));
            }
            seen.len() == 2
        });
        let mut all = seen.take();
        if bed.sim().is_none() {
            // On a busy machine both may have passed when the loop looks.
            all.sort_by(|one, other| other.cmp(one));
        }
        assert_eq!(all, ["reading timeout", "deadline"]);
        drop(new);
    });
}

// The timer went with the old fd, and nothing but a nearer deadline set it again.
#[test]
fn a_deadline_that_is_all_a_stream_waits_for_goes_on_with_the_new_fd() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, _old) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        stream.set_deadline(Some(base.elapsed() + Duration::from_millis(30)));
        let new = replace(bed, &stream);
        bed.run_until(&mut base, || {
            if let Some(sim) = bed.sim() {
                sim.advance(Duration::from_millis(1));
            }
            !seen.is_empty()
        });
        assert_eq!(seen.take(), ["deadline"]);
        drop(new);
    });
}

#[test]
fn what_has_no_fd_of_its_own_gets_none() {
    each_backend(|bed| {
        let base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        assert!(matches!(one.detach_fd(), Err(Error::Invalid(_))));
        assert!(matches!(other.reconnect(&Address::Unix(None)), Err(Error::Invalid(_))));
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(matches!(one.replace_fd(ours), Err(Error::Invalid(_))));
        one.free();
        assert!(matches!(one.detach_fd(), Err(Error::Stale)));
    });
}

fn echo(base: &EventBase) -> Listener {
    Listener::bind(base, "127.0.0.1:0", |_, accepted| {
        let bev = accepted.into_stream();
        bev.set_callbacks(tests::streams::Echo);
        bev.enable(Direction::READ).unwrap();
    })
    .unwrap()
}

#[test]
fn connecting_again_on_the_same_stream_starts_with_nothing_of_the_old_connection() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = echo(&base);
        let address = listener.local_address().unwrap();
        let stream = BufferEvent::without_fd(&base).unwrap();
        let seen = Recorder::patient_on(&stream);
        for round in 0..3 {
            stream.write("ping").unwrap();
            stream.reconnect(&address).unwrap();
            assert!(seen.is_empty(), "no event inside the call");
            bed.run_until(&mut base, || seen.len() == 3);
            assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read ping"], "round {round}");
            if round == 1 {
                // Its end must not be the next one's.
                stream.shutdown_write();
                bed.run_until(&mut base, || stream.is_freed() || !seen.is_empty());
                seen.take();
                break;
            }
        }
        // A refusal, and then a success.
        let nobody = Listener::bind(&base, "127.0.0.1:0", |_, _| {}).unwrap();
        let gone = nobody.local_address().unwrap();
        nobody.free();
        let stream = BufferEvent::without_fd(&base).unwrap();
        let seen = Recorder::patient_on(&stream);
        stream.reconnect(&gone).unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["error"]);
        assert_eq!(stream.error().unwrap().raw_os_error(), Some(libc::ECONNREFUSED));
        stream.write("again").unwrap();
        stream.reconnect(&address).unwrap();
        assert!(stream.error().is_none());
        stream.enable(Direction::READ).unwrap();
        bed.run_until(&mut base, || seen.len() == 3);
        assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read again"]);
        stream.free();
        listener.free();
        bed.settle(&mut base);
        if let Some(sim) = bed.sim() {
            assert_eq!(sim.open_fds(), []);
        }
    });
}

#[test]
fn a_connect_that_cannot_even_be_tried_leaves_the_stream_as_it_is() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        let nowhere = Address::Unix(Some("/nonexistent/socket".into()));
        assert!(stream.reconnect(&nowhere).is_err());
        peer.write_all(b"still here");
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read still here"]);
    });
}

#[test]
fn an_fd_that_the_backend_refuses_leaves_the_stream_without_one() {
    each_backend(|bed| {
        if bed.method != "epoll" {
            return;
        }
        let mut base = bed.base();
        let (stream, old) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(stream.replace_fd(file).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!((stream.fd(), stream.is_freed()), (None, false));
        assert!(old.read().1);
        let peer = replace(bed, &stream);
        peer.shutdown_write();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["reading eof"]);
    });
}

#[test]
fn a_close_by_a_reset_is_an_error_at_the_other_end_and_no_end() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
            let bev = accepted.into_stream();
            bev.write("half of").unwrap();
            bev.set_write_cb(BufferEvent::close_with_reset);
        })
        .unwrap();
        let client = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        let seen = Recorder::patient_on(&client);
        bed.run_until(&mut base, || seen.len() >= 2 && client.error().is_some());
        bed.settle(&mut base);
        let all = seen.take();
        assert_eq!(all.last().unwrap(), "reading error", "{all:?}");
        assert_eq!(client.error().unwrap().raw_os_error(), Some(libc::ECONNRESET));
        client.close_with_reset();
        client.close_with_reset();
        assert!(client.is_freed());
        listener.free();
    });
}

#[test]
fn a_reset_between_the_ends_of_a_pair_and_where_there_are_none() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::patient_on(&other);
        one.write("some").unwrap();
        bed.settle(&mut base);
        one.close_with_reset();
        assert!(one.is_freed());
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read some", "reading error"]);
        assert_eq!(other.error().unwrap().raw_os_error(), Some(libc::ECONNRESET));
        // A unix socket has an end only.
        if bed.sim().is_none() {
            let (stream, peer) = bed.stream(&base);
            stream.close_with_reset();
            assert_eq!(peer.read(), (vec![], true));
        }
    });
}

#[test]
fn a_terminal_is_a_stream_each_way() {
    for method in EventBase::supported_methods().filter(|_| !cfg!(miri)) {
        let others = EventBase::supported_methods().filter(|other| *other != method);
        let config =
            others.fold(event_core::Config::new().ignore_env(), |config, other| config.avoid_method(other));
        let mut base = EventBase::with_config(config).unwrap();
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut raw = nix::sys::termios::tcgetattr(&pty.slave).unwrap();
        nix::sys::termios::cfmakeraw(&mut raw);
        nix::sys::termios::tcsetattr(&pty.slave, nix::sys::termios::SetArg::TCSANOW, &raw).unwrap();
        let program = BufferEvent::new(&base, pty.slave).unwrap();
        program.set_callbacks(tests::streams::Echo);
        program.enable(Direction::READ).unwrap();
        let user = BufferEvent::new(&base, pty.master).unwrap();
        let seen = Recorder::patient_on(&user);
        user.write("typed\n").unwrap();
        let end = Timer::new(&base, {
            let handle = base.handle();
            move |_| handle.loopbreak().unwrap()
        })
        .unwrap();
        end.add(tests::PATIENCE).unwrap();
        while !seen.all().iter().any(|line| line.starts_with("read")) {
            assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        }
        drop(end);
        program.free();
        // The other end of a terminal that is gone: EIO on Linux, an end elsewhere.
        let mut ended = false;
        for _ in 0..1000 {
            base.run(LoopFlags::NONBLOCK).unwrap();
            ended = seen.all().iter().any(|line| line.contains("error") || line.contains("eof"));
            if ended {
                break;
            }
        }
        assert!(ended, "{method}");
        user.free();
    }
}
