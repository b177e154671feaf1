//! The loop's short way from a report or a due timer to its callback against the long way through the queues: random
//! programs must not be able to tell which one they run on. A loop that keeps statistics always goes the long way.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::testing::{Peer, Sim};
use event_core::{
    CommonTimeout, Direction, Event, EventCount, EventId, LoopFlags, LoopHandle, Ready, Timer, What,
};
use tests::random::Random;
use tests::{Log, each_backend, few_under_miri};

const MS: Duration = Duration::from_millis(1);

/// Streams of a program.
const STREAMS: u64 = 7;

/// Events of a program: several a stream.
const EVENTS: u64 = 12;

/// Timers of a program, most of them timers and nothing else.
const TIMERS: u64 = 10;

/// Callbacks after which a program ends.
const CALLBACKS: usize = few_under_miri(250, 40);

/// What a program knows: its callbacks draw what they do from one sequence, so two runs that differ anywhere differ in
/// all that follows.
struct Program {
    sim: Sim,
    handle: LoopHandle,
    random: Random,
    fds: Vec<i32>,
    peers: Vec<Peer>,
    events: RefCell<Vec<Option<Event>>>,
    timers: RefCell<Vec<Option<Timer>>>,
    common: [CommonTimeout; 2],
    tokens: RefCell<Vec<EventId>>,
    log: RefCell<Vec<String>>,
    callbacks: Cell<usize>,
}

impl Program {
    fn draw(&self, bound: u64) -> u64 {
        self.random.draw(bound)
    }

    fn note(&self, text: String) {
        self.log.borrow_mut().push(text);
    }

    /// One of the ids, of an event, a timer or a token event.
    fn id(&self) -> Option<EventId> {
        let tokens = self.tokens.borrow().len() as u64;
        match self.draw(EVENTS + TIMERS + tokens) {
            at @ ..EVENTS => self.events.borrow()[at as usize].as_ref().map(Event::id),
            at if at < EVENTS + TIMERS => self.timer_id(at - EVENTS),
            at => Some(self.tokens.borrow()[(at - EVENTS - TIMERS) as usize]),
        }
    }

    fn timer_id(&self, at: u64) -> Option<EventId> {
        self.timers.borrow()[at as usize].as_ref().map(Timer::id)
    }

    fn stream(&self) -> usize {
        self.draw(STREAMS) as usize
    }

    fn called(self: &Rc<Self>, who: &str, fd: usize, ready: Ready) {
        self.note(format!("{who} {ready:?} at {:?}", self.sim.elapsed()));
        self.callbacks.set(self.callbacks.get() + 1);
        if self.callbacks.get() >= CALLBACKS {
            self.handle.loopexit(None).unwrap();
            return;
        }
        if self.draw(3) > 0 {
            let _ = self.sim.read(self.fds[fd], 4);
        }
        for _ in 0..self.draw(3) {
            self.act();
        }
    }

    /// Does something to somebody, and notes what came of it.
    fn act(self: &Rc<Self>) {
        let what = self.draw(32);
        let stream = self.stream();
        let id = if what < 20 { self.id() } else { self.timer_id(self.draw(TIMERS)) };
        let Some(id) = id else { return };
        let outcome = match what {
            0..=3 => {
                self.peers[stream].write(b"xy").unwrap();
                String::new()
            }
            4 => format!("{:?}", self.handle.add(id, None)),
            5 => format!("{:?}", self.handle.add(id, Some(MS * self.draw(3) as u32))),
            6 => format!("{:?}", self.handle.del(id)),
            7 => format!("{:?} {:?}", self.handle.del(id), self.handle.add(id, None)),
            8 => format!("{:?}", self.handle.activate(id, Ready::READ)),
            9 => format!("{:?}", self.handle.activate_now(id, Ready::WRITE)),
            10 => format!("{:?}", self.handle.pending(id)),
            11 => format!("{}", self.handle.num_events(EventCount::ACTIVE | EventCount::ADDED)),
            12 => format!("{:?}", self.handle.set_priority(id, 0)),
            13 => format!("{:?}", self.handle.active_by_fd(self.fds[stream], Ready::READ)),
            14 if self.draw(4) == 0 => {
                let at = self.draw(EVENTS) as usize;
                let old = self.events.borrow_mut()[at].take();
                drop(old);
                self.events.borrow_mut()[at] = Some(self.event(at));
                "anew".to_owned()
            }
            15 if self.draw(3) == 0 => format!("{:?}", self.handle.loopcontinue()),
            16 if self.draw(3) == 0 => self.handle.dump_events(),
            17 => self.handle.event_info(id).map_or(String::new(), |info| info.to_string()),
            18 if self.draw(20) == 0 => format!("{}", self.handle.max_events(EventCount::ACTIVE, true)),
            19 if self.draw(20) == 0 => format!("{:?}", self.handle.priority_init(2)),
            // So that many are due at once.
            20 => format!("{:?}", self.handle.add_common(id, self.common[self.draw(2) as usize])),
            21..=24 => format!("{:?}", self.handle.add(id, Some(MS * self.draw(2) as u32))),
            25 => format!("{:?}", self.handle.del(id)),
            26 => format!("{:?}", self.handle.remove_timer(id)),
            27 => {
                let since_origin = |at: Option<Instant>| {
                    at.map(|at| at.saturating_duration_since(self.handle.clock_origin()))
                };
                let deadlines = [self.handle.deadline(id), self.handle.next_deadline()];
                format!("{:?}", deadlines.map(since_origin))
            }
            28 if self.draw(4) == 0 => format!("{:?}", self.handle.set_background(id, self.draw(2) == 0)),
            29 => self.replace_a_timer(),
            30 => format!("{:?}", self.handle.add(id, None)),
            31 => self.arm_many(id),
            _ => return,
        };
        self.note(format!("  {what} {} {outcome}", self.handle.is_alive(id)));
    }

    /// More than a callback's first timers, which are dealt with one by one; and then something about the last of them.
    fn arm_many(&self, last: EventId) -> String {
        let few = [self.draw(TIMERS), self.draw(TIMERS)];
        let ids = (0..20).filter_map(|at| self.timer_id(few[at % 2]));
        let armed: Vec<_> =
            ids.chain([last]).map(|id| self.handle.add(id, Some(MS * self.draw(2) as u32))).collect();
        let then = match self.draw(4) {
            0 => self.handle.activate(last, Ready::READ),
            1 => self.handle.remove_timer(last),
            2 => self.handle.del(last),
            _ => Ok(()),
        };
        format!("{armed:?} {then:?}")
    }

    /// Frees one and makes another; or gives it another callback; or makes one that nobody owns.
    fn replace_a_timer(self: &Rc<Self>) -> String {
        let at = self.draw(TIMERS) as usize;
        match self.draw(4) {
            0 => {
                let program = Rc::downgrade(self);
                let cb = move |_| program.upgrade().unwrap().called("once", 0, Ready::TIMEOUT);
                format!("{:?}", self.handle.once(-1, What::empty(), Some(MS), cb))
            }
            1 => {
                let program = Rc::downgrade(self);
                let cb = move |_: &Timer| program.upgrade().unwrap().called("other", at % 3, Ready::TIMEOUT);
                let timers = self.timers.borrow();
                timers[at].as_ref().map_or(String::new(), |timer| format!("{:?}", timer.set_callback(cb)))
            }
            2 => {
                let old = self.timers.borrow_mut()[at].take();
                drop(old);
                "freed".to_owned()
            }
            _ => {
                let old = self.timers.borrow_mut()[at].take();
                drop(old);
                let timer = self.timer(at);
                timer.add(MS).unwrap();
                self.timers.borrow_mut()[at] = Some(timer);
                "anew".to_owned()
            }
        }
    }

    fn timer(self: &Rc<Self>, at: usize) -> Timer {
        let program = Rc::downgrade(self);
        let cb = move |timer: &Timer| {
            let program = program.upgrade().unwrap();
            assert!(timer.is_running());
            if program.draw(4) > 0 {
                timer.add(MS * program.draw(2) as u32).unwrap();
            }
            program.called(&format!("timer {at}"), at % STREAMS as usize, Ready::TIMEOUT);
        };
        let is_persistent = self.draw(40) == 0;
        let timer =
            if is_persistent { Timer::persistent(&self.handle, cb) } else { Timer::new(&self.handle, cb) };
        timer.unwrap()
    }

    fn event(self: &Rc<Self>, at: usize) -> Event {
        let stream = self.stream();
        let what = match self.draw(6) {
            0 => What::READ,
            1 => What::READ | What::CLOSED | What::PERSIST,
            _ => What::READ | What::PERSIST,
        };
        let program = Rc::downgrade(self);
        let event = Event::new(&self.handle, self.fds[stream], what, move |_, ready| {
            program.upgrade().unwrap().called(&format!("event {at}"), stream, ready);
        });
        let event = event.unwrap();
        let timeout = (self.draw(12) == 0).then(|| MS * 2);
        event.add(timeout).unwrap();
        event
    }
}

/// What a program has seen; `long` sends its loop the long way.
fn run(sim_seed: u64, program_seed: u64, long: bool) -> Vec<String> {
    let sim = Sim::new(sim_seed);
    let mut base = sim.event_base().unwrap();
    base.set_stats(long);
    let (fds, peers) = (0..STREAMS).map(|_| sim.pair()).unzip();
    let program = Rc::new(Program {
        sim,
        handle: base.handle(),
        random: Random::new(program_seed),
        fds,
        peers,
        events: RefCell::default(),
        timers: RefCell::default(),
        common: [base.common_timeout(MS).unwrap(), base.common_timeout(2 * MS).unwrap()],
        tokens: RefCell::default(),
        log: RefCell::default(),
        callbacks: Cell::new(0),
    });
    for at in 0..EVENTS as usize {
        let event = program.event(at);
        program.events.borrow_mut().push(Some(event));
    }
    for at in 0..TIMERS as usize {
        let timer = program.timer(at);
        timer.add(MS).unwrap();
        program.timers.borrow_mut().push(Some(timer));
    }
    let weak = Rc::downgrade(&program);
    base.set_token_handler(move |_, _, token, ready, _| {
        weak.upgrade().unwrap().called(&format!("token {token}"), token, ready);
    });
    for token in 0..4 {
        let is_timer = token > 1;
        let (fd, what) =
            if is_timer { (-1, What::empty()) } else { (program.fds[token], What::READ | What::PERSIST) };
        let id = base.register_token(fd, false, what, None, token).unwrap();
        base.add(id, is_timer.then_some(MS)).unwrap();
        program.tokens.borrow_mut().push(id);
    }
    for peer in &program.peers {
        if program.draw(4) > 0 {
            peer.write(b"x").unwrap();
        }
    }
    // However quiet it gets, it goes on to its end.
    let kicked = Rc::downgrade(&program);
    let kick = Timer::new(&base, move |kick| {
        kick.add(5 * MS).unwrap();
        let program = kicked.upgrade().unwrap();
        program.note("kick".to_owned());
        program.called("kick", 0, Ready::TIMEOUT);
        for peer in &program.peers {
            peer.write(b"k").unwrap();
        }
    });
    let kick = kick.unwrap();
    kick.add(5 * MS).unwrap();
    let end = base.dispatch().unwrap();
    program.note(format!("{end:?}"));
    program.log.take()
}

#[test]
fn no_program_can_tell_the_short_way_from_the_long_one() {
    let mut callbacks = 0;
    for sim_seed in 1..=few_under_miri(4, 1) {
        for program_seed in 1..=few_under_miri(60, 1) {
            let (short, long) = (run(sim_seed, program_seed, false), run(sim_seed, program_seed, true));
            if let Some(at) = (0..short.len().max(long.len())).find(|&at| short.get(at) != long.get(at)) {
                let from = at.saturating_sub(8);
                let end = |log: &[String]| log.len().min(at + 3);
                panic!(
                    "seeds {sim_seed} and {program_seed} part at {at}:\nshort {:#?}\nlong {:#?}",
                    &short[from.min(short.len())..end(&short)],
                    &long[from.min(long.len())..end(&long)]
                );
            }
            callbacks += short.iter().filter(|line| !line.starts_with(' ')).count();
        }
    }
    assert!(callbacks > few_under_miri(10_000, 20), "the programs have hardly run: {callbacks}");
}

#[test]
fn a_stream_that_a_neighbour_enables_is_read_in_the_next_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (paused, paused_peer) = bed.stream(&base);
        let (busy, busy_peer) = bed.stream(&base);
        let (log, turn) = (Log::new(), Rc::new(Cell::new(0)));
        let (sink, now) = (log.clone(), turn.clone());
        paused.set_read_cb(move |_| sink.push(("paused", now.get())));
        paused.enable(Direction::READ).unwrap();
        let (sink, now, other) = (log.clone(), turn.clone(), paused.clone());
        busy.set_read_cb(move |_| {
            sink.push(("busy", now.get()));
            other.enable(Direction::READ).unwrap();
        });
        busy.enable(Direction::READ).unwrap();
        // The kernel watches both by now, and is not told of a pause.
        base.run(LoopFlags::NONBLOCK).unwrap();
        paused.disable(Direction::READ);
        paused_peer.write_all(b"x");
        busy_peer.write_all(b"x");
        bed.run_until(&mut base, || {
            turn.set(turn.get() + 1);
            log.len() == 2
        });
        let ran = log.take();
        assert_eq!([ran[0].0, ran[1].0], ["busy", "paused"]);
        assert!(ran[0].1 < ran[1].1, "{ran:?}");
    });
}
