//! Programs that do everything everywhere: free themselves and their neighbours, panic, panic in a `Drop`, stop the loop,
//! go on. None may end a loop otherwise than it asked for, and none may tell by which way its callbacks were reached.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use event_core::testing::{Peer, Sim};
use event_core::{
    BufferEvent, CommonTimeout, Direction, Event, EventCount, EventId, LoopHandle, Mailbox, Ready, Sender,
    Signal, Timer, What,
};
use tests::random::Random;
use tests::{Alive, Token, quiet_panic};

const MS: Duration = Duration::from_millis(1);

/// Which way a program's callbacks are reached.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The short one wherever it goes.
    Short,
    /// Measured, so that the queues are gone through.
    Long,
    /// Counted as well, so that no timer is alone.
    Counted,
}

/// What is captured by each callback: counted, and it may panic when it goes.
struct Captured {
    _token: Token,
    panics: Cell<bool>,
}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.panics.get() && !std::thread::panicking() {
            quiet_panic("in a drop");
        }
    }
}

enum Object {
    Event(Event),
    Timer(Timer),
    Signal(Signal),
}

impl Object {
    fn id(&self) -> EventId {
        match self {
            Object::Event(it) => it.id(),
            Object::Timer(it) => it.id(),
            Object::Signal(it) => it.id(),
        }
    }
}

struct Program {
    sim: Sim,
    handle: LoopHandle,
    alive: Alive,
    random: Random,
    fds: Vec<i32>,
    peers: Vec<Peer>,
    objects: RefCell<Vec<Option<Object>>>,
    streams: RefCell<Vec<BufferEvent>>,
    stream_peers: RefCell<Vec<Peer>>,
    mailboxes: RefCell<Vec<Option<Mailbox<Arc<()>>>>>,
    senders: RefCell<Vec<Sender<Arc<()>>>>,
    letters: Arc<()>,
    common: [CommonTimeout; 2],
    log: RefCell<Vec<String>>,
    left: Cell<usize>,
}

impl Program {
    fn draw(&self, bound: u64) -> u64 {
        self.random.draw(bound)
    }

    fn note(&self, text: String) {
        self.log.borrow_mut().push(text);
    }

    fn captured(&self) -> Captured {
        Captured { _token: self.alive.token(), panics: Cell::new(self.draw(40) == 0) }
    }

    fn called(&self, who: &str) {
        self.note(format!("{who} at {:?}", self.sim.elapsed()));
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        for _ in 0..self.draw(6) {
            self.act();
        }
        if self.draw(60) == 0 {
            quiet_panic("in a callback");
        }
    }

    fn callback(self: &Rc<Self>, who: String) -> impl FnMut() + use<> {
        let (program, captured) = (Rc::downgrade(self), self.captured());
        move || {
            let _captured = &captured;
            if let Some(program) = program.upgrade() {
                program.called(&who);
            }
        }
    }

    fn fd(&self) -> usize {
        self.draw(self.fds.len() as u64) as usize
    }

    fn me(&self) -> Rc<Program> {
        ME.with(|me| me.borrow().upgrade().unwrap())
    }

    fn object(self: &Rc<Self>, at: usize) -> Object {
        match self.draw(5) {
            0 => {
                let mut cb = self.callback(format!("timer {at}"));
                Object::Timer(Timer::new(&self.handle, move |_| cb()).unwrap())
            }
            1 => {
                let mut cb = self.callback(format!("persistent {at}"));
                Object::Timer(Timer::persistent(&self.handle, move |_| cb()).unwrap())
            }
            2 if self.draw(3) == 0 => {
                let mut cb = self.callback(format!("signal {at}"));
                Object::Signal(Signal::new(&self.handle, Signal::USR1, move |_| cb()).unwrap())
            }
            _ => {
                let fd = self.fd();
                let what = match self.draw(4) {
                    // Not WRITE: when the kernel is told that nobody wants it any more is not the same on both ways.
                    0 => What::READ,
                    1 => What::READ | What::PERSIST | What::CLOSED,
                    _ => What::READ | What::PERSIST,
                };
                let mut cb = self.callback(format!("event {at}"));
                let program = Rc::downgrade(self);
                let event = Event::new(&self.handle, self.fds[fd], what, move |_, ready| {
                    let program = program.upgrade().unwrap();
                    if ready.contains(Ready::READ) {
                        let _ = program.sim.read(program.fds[fd], 3);
                    }
                    program.note(format!("  {ready:?}"));
                    cb();
                });
                Object::Event(event.unwrap())
            }
        }
    }

    fn replace(self: &Rc<Self>, at: usize) {
        let old = self.objects.borrow_mut()[at].take();
        drop(old);
        let new = self.object(at);
        let id = new.id();
        let old = self.objects.borrow_mut()[at].replace(new);
        drop(old);
        self.add(id);
    }

    fn add(&self, id: EventId) {
        let persists = self.handle.event_info(id).is_some_and(|info| info.what.contains(What::PERSIST));
        let timeout = match self.draw(5) {
            0 => None,
            // One that persists would be due again for ever, at the same time.
            1 if !persists => Some(Duration::ZERO),
            2 => Some(Duration::MAX),
            _ => Some(MS * (u32::from(persists) + self.draw(5) as u32)),
        };
        let added = self.handle.add(id, timeout);
        self.note(format!("  add {timeout:?} {added:?}"));
    }

    fn stream(self: &Rc<Self>) {
        if self.streams.borrow().len() >= 6 {
            let at = self.draw(6) as usize;
            let old = self.streams.borrow_mut().remove(at);
            old.free();
            let peer = self.stream_peers.borrow_mut().remove(at);
            drop(peer);
        }
        let (stream, peer) = self.sim.stream(&self.handle);
        let at = self.draw(1000);
        let mut cb = self.callback(format!("read {at}"));
        stream.set_read_cb(move |bev| {
            let data = bev.read_buffer();
            let _ = bev.write(data);
            cb();
        });
        let mut cb = self.callback(format!("written {at}"));
        stream.set_write_cb(move |_| cb());
        let mut cb = self.callback(format!("event of {at}"));
        stream.set_event_cb(move |bev, _| {
            bev.free();
            cb();
        });
        let _ = stream.enable(Direction::READ);
        self.streams.borrow_mut().push(stream);
        self.stream_peers.borrow_mut().push(peer);
    }

    fn mailbox(self: &Rc<Self>, at: usize) {
        let old = self.mailboxes.borrow_mut()[at].take();
        drop(old);
        let mut cb = self.callback(format!("mail {at}"));
        let (mailbox, sender) = self
            .handle
            .mailbox(move |letter: Arc<()>| {
                cb();
                drop(letter);
            })
            .unwrap();
        let old = self.mailboxes.borrow_mut()[at].replace(mailbox);
        drop(old);
        if self.senders.borrow().len() <= at {
            self.senders.borrow_mut().push(sender);
        } else {
            self.senders.borrow_mut()[at] = sender;
        }
    }

    fn act(&self) {
        let me = self.me();
        let at = self.draw(14) as usize;
        let id = self.objects.borrow()[at].as_ref().map(Object::id);
        let Some(id) = id else {
            me.replace(at);
            return;
        };
        let outcome = match self.draw(44) {
            0..6 => {
                let fd = self.fd();
                let _ = self.peers[fd].write(b"xyz");
                String::new()
            }
            6..11 => {
                self.add(id);
                String::new()
            }
            11..13 => format!("{:?}", self.handle.del(id)),
            13 => format!("{:?}", self.handle.activate(id, Ready::READ)),
            14 => format!("{:?}", self.handle.activate_now(id, Ready::TIMEOUT)),
            15 => format!("{:?}", self.handle.free(id)),
            16 => {
                me.replace(at);
                String::new()
            }
            17 => format!("{:?}", self.handle.pending(id)),
            18 => format!("{:?}", self.handle.deadline(id).map(|at| at - self.handle.clock_origin())),
            19 => format!("{}", self.handle.num_events(EventCount::all())),
            20 => format!("{:?}", self.handle.event_info(id).map(|info| info.to_string())),
            21 if self.draw(8) == 0 => {
                self.handle.max_events(EventCount::all(), self.draw(2) == 0);
                String::new()
            }
            22 => format!("{:?}", self.handle.set_background(id, self.draw(2) == 0)),
            23 => format!("{:?}", self.handle.remove_timer(id)),
            24..26 => format!("{:?}", self.handle.add_common(id, self.common[self.draw(2) as usize])),
            26 if self.draw(4) == 0 => format!("{:?}", self.handle.loopbreak()),
            27 if self.draw(4) == 0 => format!("{:?}", self.handle.loopexit(None)),
            28 => format!("{:?}", self.handle.loopcontinue()),
            29 => {
                let mut cb = me.callback("once".to_owned());
                let fd = self.fd();
                let (fd, what) =
                    if self.draw(2) == 0 { (-1, What::empty()) } else { (self.fds[fd], What::READ) };
                let timeout = (self.draw(2) == 0).then(|| MS * self.draw(3) as u32);
                format!("{:?}", self.handle.once(fd, what, timeout, move |_| cb()))
            }
            30 => format!("raise {}", self.sim.raise(Signal::USR1)),
            31..33 => {
                let to = self.draw(3) as usize;
                for _ in 0..=self.draw(3) {
                    let sender = self.senders.borrow()[to].clone();
                    let _ = sender.send(self.letters.clone());
                }
                String::new()
            }
            33 => {
                me.mailbox(self.draw(3) as usize);
                String::new()
            }
            34 => {
                let old = self.mailboxes.borrow_mut()[self.draw(3) as usize].take();
                drop(old);
                String::new()
            }
            35 => {
                me.stream();
                String::new()
            }
            36..39 => {
                let peers = self.stream_peers.borrow();
                if let Some(peer) = peers.get(self.draw(6) as usize) {
                    let _ = peer.write(b"hello");
                    peer.read();
                }
                String::new()
            }
            39 => {
                let stream = self.streams.borrow().get(self.draw(6) as usize).cloned();
                let Some(stream) = stream else { return };
                match self.draw(6) {
                    0 => stream.free(),
                    1 => stream.close_after_flush(),
                    2 => stream.shutdown_write(),
                    3 => stream.disable(Direction::READ),
                    4 => _ = stream.enable(Direction::READ),
                    _ => stream.set_timeouts(Some(MS * 3), Some(MS * 2)),
                }
                String::new()
            }
            40 => {
                let stream = self.streams.borrow().get(self.draw(6) as usize).cloned();
                let Some(stream) = stream else { return };
                let _ = stream.write("from a neighbour");
                String::new()
            }
            41 => {
                let mut cb = me.callback(format!("replaced {at}"));
                let objects = self.objects.take();
                let replaced = catch_unwind(AssertUnwindSafe(|| match &objects[at] {
                    Some(Object::Event(event)) => {
                        let sim = self.sim.clone();
                        let set = event.set_callback(move |event, _| {
                            let _ = event.fd().map(|fd| sim.read(fd, 3));
                            cb();
                        });
                        format!("{set:?}")
                    }
                    Some(Object::Timer(timer)) => format!("{:?}", timer.set_callback(move |_| cb())),
                    Some(Object::Signal(signal)) => format!("{:?}", signal.set_callback(move |_| cb())),
                    None => String::new(),
                }));
                // What the drop of the old one has made meanwhile is not: it only panics.
                assert!(self.objects.replace(objects).is_empty());
                match replaced {
                    Ok(text) => text,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            42 => format!("{:?}", self.handle.active_by_fd(self.fds[self.fd()], Ready::READ)),
            43 => format!("{:?}", self.handle.next_deadline().is_some()),
            _ => return,
        };
        self.note(format!("  {at} {outcome}"));
    }
}

thread_local! {
    static ME: RefCell<Weak<Program>> = const { RefCell::new(Weak::new()) };
}

fn run(sim_seed: u64, seed: u64, way: Way, priorities: u8) -> Vec<String> {
    let sim = Sim::new(sim_seed);
    let mut base = sim.event_base().unwrap();
    base.priority_init(priorities).unwrap();
    base.set_stats(way != Way::Short);
    if way == Way::Counted {
        base.max_events(EventCount::all(), false);
    }
    let (fds, peers) = (0..5).map(|_| sim.pair()).unzip();
    let common = [base.common_timeout(MS).unwrap(), base.common_timeout(MS * 3).unwrap()];
    let program = Rc::new(Program {
        sim: sim.clone(),
        handle: base.handle(),
        alive: Alive::default(),
        random: Random::new(seed),
        fds,
        peers,
        objects: RefCell::new((0..14).map(|_| None).collect()),
        streams: RefCell::default(),
        stream_peers: RefCell::default(),
        mailboxes: RefCell::new((0..3).map(|_| None).collect()),
        senders: RefCell::default(),
        letters: Arc::default(),
        common,
        log: RefCell::default(),
        left: Cell::new(0),
    });
    ME.with(|me| *me.borrow_mut() = Rc::downgrade(&program));
    (0..14).for_each(|at| program.replace(at));
    (0..3).for_each(|at| program.mailbox(at));
    (0..3).for_each(|_| program.stream());
    for round in 0..12 {
        program.left.set(25);
        if priorities > 1 {
            let objects = program.objects.borrow();
            for object in objects.iter().flatten() {
                let _ = base.set_priority(object.id(), program.draw(priorities.into()) as u8);
            }
        }
        let kick = program.callback(format!("kick {round}"));
        let mut kick = Some(kick);
        let _ = base.once(-1, What::empty(), Some(MS), move |_| kick.take().unwrap()());
        // Whatever goes on by itself ends.
        base.loopexit(Some(20 * MS)).unwrap();
        let acted = catch_unwind(AssertUnwindSafe(|| (0..3).for_each(|_| program.act())));
        let end = catch_unwind(AssertUnwindSafe(|| format!("{:?}", base.dispatch())));
        if let Err(panic) = &end
            && !panic.is::<&str>()
        {
            let log = program.log.borrow();
            let tail = log[log.len().saturating_sub(30)..].join("\n");
            panic!("round {round}: {}\n{tail}\n{:?}", base.dump_events(), panic.downcast_ref::<String>());
        }
        if let Err(panic) = &end {
            let text = panic.downcast_ref::<&str>().unwrap();
            assert!(["in a drop", "in a callback"].contains(text), "{text}");
        }
        base.num_events(EventCount::all());
        program.note(format!("round {round}: {} {:?}", acted.is_ok(), end.ok()));
    }
    // With everything gone nothing keeps the loop.
    program.left.set(0);
    for at in 0..14 {
        let old = program.objects.borrow_mut()[at].take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
    }
    for stream in program.streams.take() {
        let _ = catch_unwind(AssertUnwindSafe(|| stream.free()));
    }
    for at in 0..5 {
        // For what waits once.
        let _ = program.peers[at].write(b"x");
    }
    let mut turns = 0;
    loop {
        match catch_unwind(AssertUnwindSafe(|| base.dispatch())) {
            Ok(Ok(event_core::LoopEnd::Empty)) => break,
            Err(panic) if !panic.is::<&str>() => {
                panic!("{}\n{:?}", base.dump_events(), panic.downcast_ref::<String>())
            }
            _ => turns += 1,
        }
        assert!(turns < 1000, "the loop does not become empty: {}", base.dump_events());
    }
    assert_eq!(base.num_events(EventCount::ADDED | EventCount::ACTIVE), 0, "{}", base.dump_events());
    assert_eq!(base.stats().timers, 0);
    let mailboxes = program.mailboxes.take();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(mailboxes)));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(base)));
    assert_eq!((program.alive.count(), Arc::strong_count(&program.letters)), (0, 1), "something is left");
    program.log.take()
}

fn tell_apart(sim_seed: u64, seed: u64, priorities: u8) {
    let short = run(sim_seed, seed, Way::Short, priorities);
    for way in [Way::Long, Way::Counted] {
        let long = run(sim_seed, seed, way, priorities);
        if let Some(at) = (0..short.len().max(long.len())).find(|&at| short.get(at) != long.get(at)) {
            let part =
                |log: &[String]| log[at.saturating_sub(90).min(log.len())..log.len().min(at + 4)].join("\n");
            panic!(
                "seeds {sim_seed}, {seed}, {priorities}: {way:?} parts at {at}:\n{}\n\nand\n\n{}",
                part(&short),
                part(&long)
            );
        }
    }
}

#[test]
fn a_program_that_frees_panics_and_stops_everywhere_gets_what_it_asks_for() {
    for seed in 1..=100 {
        tell_apart(seed % 3 + 1, seed, if seed % 4 == 3 { 3 } else { 1 });
    }
}
