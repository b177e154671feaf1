//! Dispatching a warm event allocates nothing.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use allocation_counter::measure;
use event_core::{BufferEvent, Direction, Event, EventBase, LoopFlags, Ready, Timer, What};
use tests::each_backend;
use tests::streams::Echo;

/// How often the loop allocates in ten turns, once it is warm.
fn allocations(base: &mut EventBase, mut turn: impl FnMut(&mut EventBase)) -> u64 {
    (0..20).for_each(|_| turn(base));
    measure(|| (0..10).for_each(|_| turn(base))).count_total
}

#[test]
fn a_persistent_event_on_an_fd_allocates_nothing() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return; // The simulated kernel allocates, not the loop.
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, |_, _| {}).unwrap();
        event.add(Some(Duration::from_secs(60))).unwrap();
        peer.write_all(b"x");
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn a_one_shot_event_that_adds_itself_again_allocates_nothing() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let event = Event::new(&base, fd.raw(), What::READ, |event, _| event.add(None).unwrap()).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn an_activation_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let event = Event::new(&base, -1, What::PERSIST, |_, _| {}).unwrap();
        let now = allocations(&mut base, |base| {
            event.activate_now(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        let later = allocations(&mut base, |base| {
            event.activate(Ready::READ).unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        assert_eq!((now, later), (0, 0));
    });
}

#[test]
fn a_persistent_timer_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Timer::persistent(&base, |_| {}).unwrap();
        timer.add(Duration::from_micros(10)).unwrap();
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn a_one_shot_timer_that_adds_itself_again_allocates_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let timer = Timer::new(&base, |timer| timer.add(Duration::ZERO).unwrap()).unwrap();
        timer.add(Duration::ZERO).unwrap();
        let count = allocations(&mut base, |base| _ = base.run(LoopFlags::ONCE).unwrap());
        assert_eq!(count, 0);
    });
}

#[test]
fn messages_and_closures_allocate_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (_mailbox, sender) = base.mailbox(|_: [u64; 4]| {}).unwrap();
        let remote = base.remote();
        let sent = allocations(&mut base, |base| {
            (0..100).for_each(|n| sender.send([n; 4]).unwrap());
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        let posted = allocations(&mut base, |base| {
            (0..100_u64).for_each(|n| remote.post(move |_| assert_ne!(n, 100)).unwrap());
            base.run(LoopFlags::NONBLOCK).unwrap();
        });
        assert_eq!((sent, posted), (0, 0));
    });
}

/// Sockets and their other ends, whose numbers lie apart, as those of another program do: a loop has a table by number.
fn sockets(count: usize) -> Vec<(UnixStream, UnixStream)> {
    let clone = |socket: &UnixStream| socket.try_clone().unwrap();
    let (mut ours, theirs): (Vec<_>, Vec<_>) = (0..count).map(|_| UnixStream::pair().unwrap()).unzip();
    let peers: Vec<_> = theirs.iter().map(clone).collect();
    drop(theirs);
    // The farther half moves to where the other ends were.
    let far = ours.split_off(count / 2);
    ours.extend(far.iter().map(clone));
    let mut pairs: Vec<_> = ours.into_iter().zip(peers).collect();
    pairs.sort_by_key(|pair| pair.0.as_raw_fd());
    pairs
}

// What a stream takes of the loop's tables is seen from where they are nearly full to where they are so again: they
// double.
#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn an_idle_stream_that_has_worked_holds_no_more_than_224_bytes() {
    const STREAMS: usize = 252;
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let mut sockets = sockets(2 * STREAMS).into_iter();
        let mut peers = Vec::with_capacity(2 * STREAMS);
        let mut grow = |base: &mut EventBase| {
            let before = peers.len();
            for (socket, mut peer) in sockets.by_ref().take(STREAMS) {
                let stream = BufferEvent::new(base, socket).unwrap();
                stream.set_callbacks(Echo);
                stream.enable(Direction::READ).unwrap();
                peer.set_nonblocking(true).unwrap();
                peer.write_all(b"a message").unwrap();
                peers.push(peer);
            }
            for peer in &mut peers[before..] {
                bed.run_until(base, || peer.read(&mut [0; 9]).is_ok());
            }
        };
        grow(&mut base);
        let more = measure(|| grow(&mut base)).bytes_current;
        println!("{} bytes an idle stream on {}", more / STREAMS as i64, bed.method);
        // To poll(2) the whole table is handed each time, so there it is the program's and not the kernel's.
        let most = if bed.method == "poll" { 288 } else { 224 };
        assert!(more <= most * STREAMS as i64, "{more} bytes");
    });
}
