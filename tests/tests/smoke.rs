//! The shortest programs that use each part.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    BufferEvent, Callbacks, Direction, Event, Listener, LoopEnd, Ready, StreamEvent, Timer, What,
};
use tests::each_backend;

#[test]
fn a_ready_fd_calls_back_once_unless_it_persists() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let sink = seen.clone();
        let event =
            Event::new(&base, fd.raw(), What::READ, move |_, ready| sink.borrow_mut().push(ready)).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(*seen.borrow(), [Ready::READ]);
    });
}

#[test]
fn timers_fire_in_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        let order = Rc::new(RefCell::new(Vec::new()));
        let timers: Vec<Timer> = [3_u64, 1, 2]
            .iter()
            .map(|&n| {
                let order = order.clone();
                let timer = Timer::new(&base, move |_| order.borrow_mut().push(n)).unwrap();
                timer.add(Duration::from_millis(n * 3)).unwrap();
                timer
            })
            .collect();
        base.dispatch().unwrap();
        drop(timers);
        assert_eq!(*order.borrow(), [1, 2, 3]);
    });
}

struct Echo;
impl Callbacks for Echo {
    fn on_read(&mut self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        let _ = bev.write(data);
    }
}

#[test]
fn an_accepted_stream_echoes_and_ends() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, "127.0.0.1:0", |listener, accepted| {
            let stream = accepted.into_stream();
            stream.set_callbacks(Echo);
            stream.enable(Direction::READ).unwrap();
            listener.free();
        })
        .unwrap();
        let peer = bed.connect(&listener.local_address().unwrap());
        bed.settle(&mut base);
        peer.write_all(b"hello");
        let got = RefCell::new(Vec::new());
        bed.run_until(&mut base, || {
            got.borrow_mut().extend(peer.read().0);
            *got.borrow() == b"hello"
        });
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(peer.read().1);
    });
}

#[test]
fn a_pair_carries_bytes_both_ways_and_its_end() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        one.set_callbacks(Echo);
        one.enable(Direction::READ).unwrap();
        let got = Rc::new(RefCell::new(String::new()));
        let ended = Rc::new(Cell::new(StreamEvent::empty()));
        let (sink, flag) = (got.clone(), ended.clone());
        other.set_read_cb(move |bev| {
            sink.borrow_mut().push_str(&String::from_utf8(bev.read_buffer().to_vec()).unwrap());
            bev.partner().unwrap().free();
        });
        other.set_event_cb(move |bev, event| {
            flag.set(event);
            bev.free();
        });
        other.enable(Direction::READ).unwrap();
        other.write("ping").unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(*got.borrow(), "ping");
        assert_eq!(ended.get(), StreamEvent::EOF | StreamEvent::READING);
    });
}

#[test]
fn a_mailbox_gets_what_a_thread_sends() {
    each_backend(|bed| {
        let mut base = bed.base();
        let got = Rc::new(RefCell::new(Vec::new()));
        let (sink, handle) = (got.clone(), base.handle());
        let (mailbox, sender) = base
            .mailbox(move |n: u32| {
                sink.borrow_mut().push(n);
                if n == 99 {
                    handle.loopexit(None).unwrap();
                }
            })
            .unwrap();
        let thread = std::thread::spawn(move || (0..100).for_each(|n| sender.send(n).unwrap()));
        let flags = event_core::LoopFlags::NO_EXIT_ON_EMPTY;
        assert_eq!(base.run(flags).unwrap(), LoopEnd::Exit);
        thread.join().unwrap();
        assert_eq!(*got.borrow(), (0..100).collect::<Vec<_>>());
        drop(mailbox);
    });
}
