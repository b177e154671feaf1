//! The whole of the streams under faults: every system call of every scenario fails once, in each way it can, or moves a
//! byte instead of what it could. Whatever happens, bytes are in order, the program is told, and nothing is left over.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults, Peer, ScriptedResolver, Sim};
use event_core::{
    Accepted, Address, Buffer, BufferEvent, Callbacks, Connect, Direction, EventBase, Family, Filter,
    Filtered, FlushMode, Listener, LoopEnd, LoopFlags, RateLimit, RateLimitGroup, StreamEvent, What,
};
use tests::streams::Canary;

const SECOND: Duration = Duration::from_secs(1);

/// What a scenario writes its doings into.
#[derive(Clone, Default)]
struct Notes {
    /// Bytes that arrived where they were meant to.
    got: Rc<RefCell<Vec<u8>>>,
    /// How often the program was told of a failure.
    told: Rc<Cell<usize>>,
    /// Things that happened, where a clean run must show the same ones.
    seen: Rc<RefCell<Vec<&'static str>>>,
    canary: Canary,
}

impl Notes {
    fn check<T, E>(&self, result: Result<T, E>) -> Option<T> {
        if result.is_err() {
            self.fail();
        }
        result.ok()
    }

    fn fail(&self) {
        self.told.set(self.told.get() + 1);
    }

    fn see(&self, what: &'static str) {
        self.seen.borrow_mut().push(what);
    }

    fn take(&self, bev: &BufferEvent) {
        self.got.borrow_mut().extend(bev.read_buffer().to_vec());
    }
}

/// Gathers what comes; an error or a timeout is noted and frees, an end closes.
struct Sink(Notes);

impl Callbacks for Sink {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.0.take(bev);
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.intersects(StreamEvent::ERROR | StreamEvent::TIMEOUT) {
            self.0.fail();
            bev.free();
        } else if event.contains(StreamEvent::EOF) {
            self.0.take(bev);
            bev.close_after_flush();
        }
    }
}

/// Sends everything back.
struct Echo(Notes);

impl Callbacks for Echo {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.0.check(bev.write(bev.read_buffer()));
        if !bev.has_room() {
            bev.disable(Direction::READ);
        }
    }

    fn on_room(&mut self, bev: &BufferEvent) {
        self.0.check(bev.enable(Direction::READ));
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        Sink(self.0.clone()).on_event(bev, event);
    }
}

fn message() -> Vec<u8> {
    (0..6000).map(|n| (n % 251) as u8).collect()
}

fn patient(bev: &BufferEvent) {
    bev.set_timeouts(Some(20 * SECOND), Some(20 * SECOND));
}

/// Listens for one connection; without one, gives up after a minute.
fn serve(
    base: &EventBase,
    notes: &Notes,
    with: impl FnOnce(BufferEvent, &Notes) + 'static,
) -> Option<Address> {
    let (inner, mut with) = (notes.clone(), Some(with));
    let listener = Listener::bind(base, "127.0.0.1:0", move |listener, accepted: Accepted| {
        let bev = accepted.into_stream();
        patient(&bev);
        if let Some(with) = with.take() {
            with(bev, &inner);
        }
        listener.free();
    });
    let listener = notes.check(listener)?;
    let errors = notes.clone();
    listener.set_error_cb(move |_, _| errors.fail());
    let gone = listener.clone();
    base.once(-1, What::empty(), Some(60 * SECOND), move |_| gone.free()).unwrap();
    notes.check(listener.local_address())
}

type Run = fn(&EventBase, &Sim, &Notes) -> Option<()>;

/// Every scenario with what a run without faults gathers and shows.
const SCENARIOS: &[(&str, Run, usize, &[&str])] = &[
    ("echo", echo, 6000, &["connected"]),
    ("proxy", proxy, 6000, &["end"]),
    ("proxy of a slow reader", slow_proxy, 6000, &["end"]),
    ("marks", marks, 6000, &[]),
    ("half-close", half_close, 12, &["eof"]),
    ("timeouts", timeouts, 0, &["reading", "deadline", "writing"]),
    ("another fd", another_fd, 9, &[]),
    ("connecting again", again, 8, &["connected", "connected"]),
    ("connecting by name", by_name, 4, &["connected"]),
    ("flush at once", at_once, 6000, &["flushed"]),
    ("reset", reset, 4, &["reset"]),
    ("changes", changes, 6000, &["changed"]),
    ("visits", visits, 6000, &[]),
    ("peer that never reads", never_reads, 0, &["full"]),
    ("pair behind a socket", behind, 6000, &[]),
    ("filters", filters, 6000, &["eof", "eof"]),
    ("rate limits", rate_limits, 6000, &[]),
    ("filters under limits", limited_filters, 6000, &["eof", "eof"]),
];

/// Notes a failure of a writer; the end of its peer ends it.
fn tell(bev: &BufferEvent, notes: &Notes) {
    let events = notes.clone();
    bev.set_event_cb(move |bev, event| {
        if event.contains(StreamEvent::CONNECTED) {
            return;
        }
        if !event.contains(StreamEvent::EOF) {
            events.fail();
        }
        bev.free();
    });
    if notes.check(bev.enable(Direction::READ)).is_none() {
        bev.free();
    }
}

fn connect(base: &EventBase, notes: &Notes, address: &Address) -> Option<BufferEvent> {
    let client = notes.check(BufferEvent::connect(base, address))?;
    patient(&client);
    Some(client)
}

fn echo(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Client(Notes);
    impl Callbacks for Client {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
            if self.0.got.borrow().len() == 6000 {
                bev.shutdown_write();
            }
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::CONNECTED) {
                self.0.see("connected");
            }
            Sink(self.0.clone()).on_event(bev, event);
        }
    }
    let address = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Echo(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_callbacks(Client(notes.clone()));
    notes.check(client.enable(Direction::READ));
    for piece in message().chunks(2000) {
        notes.check(client.write(event_core::Bytes::copy_from_slice(piece)));
    }
    Some(())
}

/// A client, a proxy, and a server that sends everything back.
fn proxied(base: &EventBase, notes: &Notes, cap: Option<usize>) -> Option<()> {
    let server = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Echo(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let handle = base.handle();
    let proxy = serve(base, notes, move |one, notes| {
        let Some(other) = notes.check(BufferEvent::connect(&handle, &server)) else { return one.free() };
        patient(&other);
        if let Some(cap) = cap {
            one.set_watermark(Direction::WRITE, 0, Some(cap));
            other.set_watermark(Direction::WRITE, 0, Some(cap));
        }
        let ends = notes.clone();
        notes.check(one.splice(&other, move |end| {
            if !end.event.contains(StreamEvent::EOF) || end.error.is_some() {
                ends.fail();
            }
            ends.see("end");
        }));
    })?;
    let client = connect(base, notes, &proxy)?;
    client.set_callbacks(Sink(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

fn proxy(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    proxied(base, notes, None)
}

fn slow_proxy(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    proxied(base, notes, Some(700))
}

fn marks(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Reader(Notes);
    impl Callbacks for Reader {
        fn on_read(&mut self, bev: &BufferEvent) {
            let mut input = bev.input();
            let mut some = vec![0; 200];
            let n = input.remove(&mut some);
            self.0.got.borrow_mut().extend(&some[..n]);
            drop(input);
            // What is left is above the low mark perhaps, and no news.
            self.0.check(bev.trigger_at_marks(Direction::READ));
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            Sink(self.0.clone()).on_event(bev, event);
        }
    }
    let address = serve(base, notes, |bev, notes| {
        bev.set_watermark(Direction::READ, 100, Some(300));
        bev.set_callbacks(Reader(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_watermark(Direction::WRITE, 500, Some(1000));
    let left = RefCell::new(message());
    let inner = notes.clone();
    let fill = move |bev: &BufferEvent| {
        while bev.has_room() && !left.borrow().is_empty() {
            let n = left.borrow().len().min(400);
            let piece: Vec<u8> = left.borrow_mut().drain(..n).collect();
            inner.check(bev.write(piece));
        }
        if left.borrow().is_empty() {
            bev.shutdown_write();
        }
    };
    tell(&client, notes);
    fill(&client);
    client.set_write_cb(fill);
    Some(())
}

fn half_close(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Late(Notes);
    impl Callbacks for Late {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::EOF) {
                self.0.see("eof");
                self.0.check(bev.write("answer"));
                bev.close_after_flush();
            } else {
                Sink(self.0.clone()).on_event(bev, event);
            }
        }
    }
    let address = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Late(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_callbacks(Sink(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write("please"));
    client.shutdown_write();
    Some(())
}

fn timeouts(base: &EventBase, sim: &Sim, notes: &Notes) -> Option<()> {
    struct Waiting(Notes, #[allow(dead_code)] Peer);
    impl Callbacks for Waiting {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
        }
        fn on_deadline(&mut self, bev: &BufferEvent) {
            self.0.see("deadline");
            // More than the peer, who never reads, takes.
            self.0.check(bev.write(vec![0; 4 << 20]));
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::TIMEOUT | StreamEvent::READING) {
                self.0.see("reading");
            } else if event.contains(StreamEvent::TIMEOUT | StreamEvent::WRITING) {
                self.0.see("writing");
                bev.free();
            } else {
                self.0.fail();
                bev.free();
            }
        }
    }
    let (bev, peer) = sim.stream(base);
    bev.set_timeouts(Some(SECOND), Some(SECOND));
    bev.set_deadline(Some(base.elapsed() + 2 * SECOND));
    bev.set_callbacks(Waiting(notes.clone(), peer));
    if notes.check(bev.enable(Direction::READ)).is_none() {
        bev.free();
        return None;
    }
    // A stream that waits for its deadline alone holds no loop.
    bev.set_held(true);
    Some(())
}

fn another_fd(base: &EventBase, sim: &Sim, notes: &Notes) -> Option<()> {
    let (bev, first) = sim.stream(base);
    patient(&bev);
    let (inner, world) = (notes.clone(), sim.clone());
    let second = Rc::new(RefCell::new(None));
    bev.set_read_cb(move |bev| {
        inner.take(bev);
        if inner.got.borrow().len() >= 5 && second.borrow().is_none() {
            if let Some(peer) = inner.check(world.replace_fd(bev)) {
                let _ = peer.write_all(b"last");
                let _ = peer.shutdown(std::net::Shutdown::Write);
                *second.borrow_mut() = Some(peer);
            } else {
                bev.free();
            }
        }
    });
    let events = notes.clone();
    bev.set_event_cb(move |bev, event| Sink(events.clone()).on_event(bev, event));
    if notes.check(bev.enable(Direction::READ)).is_none() {
        bev.free();
    }
    first.write_all(b"first").unwrap();
    Some(())
}

fn again(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Twice(Notes, Address, usize);
    impl Callbacks for Twice {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
            let len = self.0.got.borrow().len();
            if len == 4 * self.2 && self.2 == 1 {
                self.2 = 2;
                let tried = bev.write("pong").and_then(|()| bev.reconnect(&self.1));
                if self.0.check(tried).is_none() {
                    bev.free();
                }
            } else if len == 8 {
                bev.free();
            }
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::CONNECTED) {
                self.0.see("connected");
            } else {
                Sink(self.0.clone()).on_event(bev, event);
            }
        }
    }
    let echo = |bev: BufferEvent, notes: &Notes| {
        bev.set_callbacks(Echo(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    };
    let address = serve(base, notes, echo)?;
    let other = serve(base, notes, echo)?;
    let client = BufferEvent::without_fd(base).unwrap();
    patient(&client);
    client.set_callbacks(Twice(notes.clone(), other, 1));
    let started = client.reconnect(&address).and_then(|()| client.enable(Direction::READ));
    if notes.check(started).is_none() {
        client.free();
        return None;
    }
    notes.check(client.write("ping"));
    Some(())
}

/// Two addresses of which the second listens; each socket gets an address of its own first.
fn by_name(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let address = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Echo(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let resolver = ScriptedResolver::new(base);
    resolver.answer("echo.test", SECOND / 100, Family::V4, &["127.0.0.9", "127.0.0.1"]);
    resolver.unknown("echo.test", SECOND / 50, Family::V6);
    let source: SocketAddr = ([127, 0, 0, 1], 0).into();
    let connect = Connect::new(("echo.test", address.port().unwrap())).resolver(Rc::new(resolver));
    let client = notes.check(connect.source(source).start(base))?;
    patient(&client);
    struct Once(Notes);
    impl Callbacks for Once {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
            if self.0.got.borrow().len() == 4 {
                bev.free();
            }
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::CONNECTED) {
                self.0.see("connected");
            } else {
                Sink(self.0.clone()).on_event(bev, event);
            }
        }
    }
    client.set_callbacks(Once(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write("ping"));
    Some(())
}

fn at_once(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Writer(Notes);
    impl Callbacks for Writer {
        fn on_read(&mut self, _: &BufferEvent) {}
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if event.contains(StreamEvent::CONNECTED) {
                for piece in message().chunks(1000) {
                    self.0.check(bev.write(piece));
                    self.0.check(bev.try_flush());
                }
                self.0.see("flushed");
                bev.close_after_flush();
            } else {
                self.0.fail();
                bev.free();
            }
        }
    }
    let address = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Sink(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    connect(base, notes, &address)?.set_callbacks(Writer(notes.clone()));
    Some(())
}

fn reset(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    struct Cut(Notes);
    impl Callbacks for Cut {
        fn on_read(&mut self, bev: &BufferEvent) {
            self.0.take(bev);
        }
        fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
            if !event.contains(StreamEvent::CONNECTED) {
                let errno = bev.error().and_then(|error| error.raw_os_error());
                if errno == Some(libc::ECONNRESET) && self.0.got.borrow().len() == 4 {
                    self.0.see("reset");
                } else {
                    self.0.fail();
                }
                bev.free();
            }
        }
    }
    let address = serve(base, notes, |bev, notes| {
        notes.check(bev.write("half"));
        bev.set_write_cb(|bev| {
            if bev.pending_output() == 0 {
                bev.close_with_reset();
            }
        });
        let events = notes.clone();
        bev.set_event_cb(move |bev, _| {
            events.fail();
            bev.free();
        });
    })?;
    let client = connect(base, notes, &address)?;
    client.set_callbacks(Cut(notes.clone()));
    if notes.check(client.enable(Direction::READ)).is_none() {
        client.free();
    }
    Some(())
}

fn changes(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let address = serve(base, notes, |bev, notes| {
        bev.set_callbacks(Sink(notes.clone()));
        let counted = notes.clone();
        let sum = Cell::new((0, 0));
        bev.set_buffer_cb(move |_, change| {
            let (added, drained) = sum.get();
            sum.set((added + change.added, drained + change.drained));
            assert!(sum.get().1 <= sum.get().0);
            if sum.get() == (6000, 6000) {
                counted.see("changed");
            }
        });
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    tell(&client, notes);
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

fn visits(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let address = serve(base, notes, |bev, notes| {
        bev.set_max_single_read(Some(500)).unwrap();
        bev.set_callbacks(Sink(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_max_single_write(Some(700)).unwrap();
    tell(&client, notes);
    for piece in message().chunks(50) {
        notes.check(client.write(event_core::Bytes::copy_from_slice(piece)));
    }
    client.shutdown_write();
    Some(())
}

fn never_reads(base: &EventBase, sim: &Sim, notes: &Notes) -> Option<()> {
    let (bev, peer) = sim.stream(base);
    bev.set_max(None, Some(1 << 20));
    let events = notes.clone();
    bev.set_event_cb(move |bev, event| {
        let _held = &peer;
        match bev.error() {
            Some(event_core::Error::OutputFull) if event == StreamEvent::ERROR => events.see("full"),
            _ => events.fail(),
        }
        bev.free();
    });
    if notes.check(bev.write(vec![0; 900 << 10])).is_none() {
        bev.free();
        return None;
    }
    let more = bev.clone();
    base.once(-1, What::empty(), Some(SECOND), move |_| {
        if !more.is_freed() {
            // Over the bound, whatever the kernel has taken by now.
            let _ = more.write(vec![0; 2 << 20]);
        }
    })
    .unwrap();
    Some(())
}

fn behind(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let (one, other) = BufferEvent::pair(base).unwrap();
    other.set_callbacks(Echo(notes.clone()));
    other.enable(Direction::READ).unwrap();
    let address = serve(base, notes, move |bev, notes| {
        let ends = notes.clone();
        notes.check(bev.splice(&one, move |end| {
            if end.error.is_some() || !end.event.contains(StreamEvent::EOF) {
                ends.fail();
            }
        }));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_callbacks(Sink(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

/// Passes things on in pieces, counts what passes, and says so behind it at the end.
struct Framed {
    notes: Notes,
    came: usize,
    went: usize,
}

impl Filter for Framed {
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        // All but the last four bytes, which are the count.
        let bytes = from.len().saturating_sub(4).min(room).min(500);
        if bytes > 0 {
            self.came += from.remove_buffer(to, bytes);
            return Ok(Filtered::Done);
        }
        if mode < FlushMode::Finished {
            return Ok(Filtered::NeedMore);
        }
        let mut count = [0; 4];
        if from.remove(&mut count) < 4 || u32::from_be_bytes(count) as usize != self.came {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.notes.see("eof");
        Ok(Filtered::NeedMore)
    }

    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        self.went += from.remove_buffer(to, room.min(700));
        if mode == FlushMode::Finished && from.is_empty() {
            to.add(&u32::try_from(self.went).unwrap().to_be_bytes());
            return Ok(Filtered::NeedMore);
        }
        Ok(Filtered::Done)
    }
}

fn framed(under: &BufferEvent, notes: &Notes) -> Option<BufferEvent> {
    let filter = BufferEvent::filter(under, Framed { notes: notes.clone(), came: 0, went: 0 });
    let filter = filter.and_then(|framed| BufferEvent::filter(&framed, Pass));
    if filter.is_err() {
        under.free();
    }
    notes.check(filter)
}

struct Pass;

impl Filter for Pass {}

fn filters(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let address = serve(base, notes, |bev, notes| {
        bev.set_watermark(Direction::READ, 0, Some(900));
        let Some(bev) = framed(&bev, notes) else { return };
        bev.set_watermark(Direction::READ, 0, Some(1100));
        bev.set_callbacks(Sink(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    client.set_watermark(Direction::WRITE, 0, Some(1500));
    let client = framed(&client, notes)?;
    tell(&client, notes);
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

fn rate_limits(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let group =
        notes.check(RateLimitGroup::new(base, RateLimit::new().read(1500, 1500).write(2000, 2000)))?;
    let of_server = group.clone();
    let address = serve(base, notes, move |bev, notes| {
        notes.check(bev.set_rate_limit(Some(RateLimit::new().read(1000, 4000).write(700, 700))));
        notes.check(bev.add_to_rate_limit_group(&of_server));
        bev.set_callbacks(Echo(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = connect(base, notes, &address)?;
    notes.check(client.add_to_rate_limit_group(&group));
    client.set_callbacks(Sink(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

fn limited_filters(base: &EventBase, _: &Sim, notes: &Notes) -> Option<()> {
    let address = serve(base, notes, |bev, notes| {
        notes.check(bev.set_rate_limit(Some(RateLimit::new().read(1300, 1300))));
        let Some(bev) = framed(&bev, notes) else { return };
        notes.check(bev.set_rate_limit(Some(RateLimit::new().read(1000, 1000).tick(SECOND / 2))));
        bev.set_callbacks(Sink(notes.clone()));
        notes.check(bev.enable(Direction::READ));
    })?;
    let client = framed(&connect(base, notes, &address)?, notes)?;
    notes.check(client.set_rate_limit(Some(RateLimit::new().write(2000, 2000))));
    client.set_callbacks(Sink(notes.clone()));
    notes.check(client.enable(Direction::READ));
    notes.check(client.write(message()));
    client.shutdown_write();
    Some(())
}

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    got: Vec<u8>,
    seen: Vec<&'static str>,
    told: usize,
}

/// Says which run it was if it panics.
struct Under<'a>(&'a str);
impl Drop for Under<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("under this fault: {}", self.0);
        }
    }
}

fn play(run: Run, faults: &Faults, what: &str) -> Outcome {
    let _under = Under(what);
    let sim = Sim::new(7);
    let notes = Notes::default();
    // Unlike its clones, it goes with the callbacks.
    let inner = notes.clone();
    let mut ended = true;
    if let Some(mut base) = notes.check(sim.event_base_with(faults)) {
        run(&base, &sim, &inner);
        let handle = base.handle();
        base.once(-1, What::empty(), Some(3600 * SECOND), move |_| handle.loopexit(None).unwrap()).unwrap();
        ended = false;
        for _ in 0..100 {
            match notes.check(base.dispatch()) {
                Some(LoopEnd::Exit) => {
                    ended = base.run(LoopFlags::NONBLOCK).unwrap() == LoopEnd::Empty;
                    break;
                }
                Some(end) => panic!("{what}: {end:?} before the clock"),
                None => {}
            }
        }
    }
    drop(inner);
    assert!(ended, "{what}: something keeps the loop running");
    assert_eq!(notes.canary.alive(), 0, "{what}: callbacks are left");
    assert_eq!(sim.open_fds(), [], "{what}: fds are left");
    Outcome { got: notes.got.take(), seen: notes.seen.take(), told: notes.told.get() }
}

/// In which ways a call may fail, and whether nobody may notice.
fn ways(call: Call) -> &'static [(i32, bool)] {
    match call {
        Call::Recv | Call::Send | Call::Sendv => {
            &[(libc::EAGAIN, true), (libc::ENOBUFS, false), (libc::ECONNRESET, false)]
        }
        Call::Accept => &[
            (libc::EAGAIN, true),
            (libc::ECONNABORTED, true),
            (libc::EMFILE, false),
            (libc::ENFILE, false),
            (libc::ENOMEM, false),
        ],
        Call::Connect => &[(libc::ECONNREFUSED, false), (libc::EMFILE, false), (libc::ENETUNREACH, false)],
        Call::Socket => &[(libc::EMFILE, false), (libc::ENOBUFS, false)],
        Call::Change => &[(libc::ENOMEM, false), (libc::ENOSPC, false)],
        Call::Wait => &[(libc::EIO, false)],
        _ => &[(libc::EIO, false)],
    }
}

#[test]
fn every_scenario_stands_every_fault_at_every_step() {
    let mut points = 0;
    for &(name, run, expected, shows) in SCENARIOS {
        let clean = Faults::new();
        let whole = play(run, &clean, name);
        assert_eq!(
            (whole.got.len(), &whole.seen[..], whole.told),
            (expected, shows, 0),
            "{name} without faults"
        );
        let judge = |faults: &Faults, harmless: bool, what: &str| {
            let outcome = play(run, faults, what);
            assert!(whole.got.starts_with(&outcome.got), "{what}: out of order after {}", outcome.got.len());
            if harmless {
                assert_eq!(outcome, whole, "{what}: nobody may notice");
            } else {
                let same = outcome.got == whole.got && outcome.seen == whole.seen;
                assert!(same || outcome.told > 0, "{what}: lost in silence: {:?}", outcome.seen);
            }
        };
        for call in Call::ALL.into_iter().filter(|call| call.is_fallible()) {
            for nth in 1..=clean.count(call) {
                for &(errno, harmless) in ways(call) {
                    let faults = Faults::new();
                    faults.fail(call, nth, errno);
                    judge(&faults, harmless, &format!("{name}: {call:?} {nth} fails with {errno}"));
                    points += 1;
                }
                if call.moves_bytes() {
                    for bytes in [1, 7] {
                        let faults = Faults::new();
                        faults.cut(call, nth, bytes);
                        judge(&faults, true, &format!("{name}: {call:?} {nth} moves {bytes}"));
                        points += 1;
                    }
                }
            }
            if call.moves_bytes() {
                // Every one of them, and each second one finds nothing to do.
                let faults = Faults::new();
                for nth in 1..2000 {
                    if nth % 2 == 0 {
                        faults.fail(call, nth, libc::EAGAIN);
                    } else {
                        faults.cut(call, nth, 13);
                    }
                }
                judge(&faults, true, &format!("{name}: each {call:?} is cut or finds nothing"));
                points += 1;
            }
        }
    }
    println!("{points} points in {} scenarios", SCENARIOS.len());
}
