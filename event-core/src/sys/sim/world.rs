//! The simulated world: open files, fd numbers, time, and what is yet to happen.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::clock::Time;
use crate::interest::Report;
use crate::sys::calls::{Call, Calls};
use crate::sys::seam::{Address, Reported, WAKE_TAG, Wake};

use super::connect::Reach;
use super::errno;
use super::fds::FdTable;
use super::random::Random;
use super::sockets::{Delivery, Listener};
use super::stream::{Obstacles, Step, Stream};
use super::waker::SimWaker;
use super::watch::WatchSet;

/// Names an open file. Never used twice in a world; 0 names nothing.
pub(crate) type ObjId = u64;

/// Names one loop's set of registrations.
pub(super) type SetId = u64;

/// User code that waits for its time.
type Action = Box<dyn FnOnce()>;

/// When, and for equal times in which order.
type Slot = (Time, u64);

/// 2026-01-01T00:00:00Z, the time of day at which every world begins.
const BIRTH: Duration = Duration::from_secs(1_767_225_600);

/// How many waits in a row may report something that nobody answers with any call: far more than a program needs,
/// and less than a second of spinning.
const MAX_UNANSWERED: u32 = 1_000_000;

/// An open file: what an fd number stands for.
#[derive(Debug)]
pub(super) struct Object {
    /// How many fd numbers, test ends and accept queues hold it; at 0 it is closed.
    pub(super) refs: u32,
    pub(super) body: Body,
    /// In the way of `recv` and `accept`.
    pub(super) taking: Obstacles,
    /// In the way of `send` and `sendv`.
    pub(super) giving: Obstacles,
}

#[derive(Debug)]
pub(super) enum Body {
    Listener(Listener),
    /// A file whose readiness the test sets by hand.
    Plain(Report),
    Stream(Stream),
}

/// Everything there is, shared by the loops and the test.
pub(crate) struct World {
    state: RefCell<State>,
    /// How long, in real time, a wait for another thread may last before it counts as a deadlock.
    pub(super) deadlock_limit: Cell<Duration>,
    /// How long, in real time, other threads are given before the clock jumps.
    pub(super) patience: Cell<Duration>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World {
            state: RefCell::new(State::new(seed)),
            deadlock_limit: Cell::new(Duration::from_secs(30)),
            patience: Cell::new(Duration::ZERO),
        }
    }

    /// Runs `f`, which must not call user code, on the state.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.borrow_mut())
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
    }

    /// Forgets a loop. With the last one the actions that nothing will run any more are dropped.
    pub(super) fn remove_set(&self, set: SetId) {
        let orphans = self.with(|state| {
            state.sets.remove(&set);
            if state.sets.is_empty() { mem::take(&mut state.actions) } else { BTreeMap::new() }
        });
        drop(orphans); // They may own anything, also what calls back into this world: nothing is borrowed here.
    }

    /// `Sys::wait` for the loop `set`, which cannot fail.
    pub(super) fn wait(
        &self,
        set: SetId,
        waker: &SimWaker,
        out: &mut Vec<Reported>,
        timeout: Option<Duration>,
    ) {
        self.with(|state| state.count(Call::Wait));
        // `NEVER` stands for a wait without limit, asked for as such or by a timeout beyond the clock's range.
        let deadline = timeout.map_or(Time::NEVER, |timeout| self.with(|state| state.now.after(timeout)));
        loop {
            self.run_due_actions();
            let target = self.with(|state| {
                if state.collect(set, waker.is_set(), out) || state.now >= deadline {
                    return None;
                }
                state.note_unanswered();
                Some(state.next_instant().min(deadline))
            });
            let Some(target) = target else { return };
            if target < Time::NEVER {
                let patience = self.patience.get();
                if patience.is_zero() || !waker.block(patience) {
                    self.with(|state| state.advance_to(target));
                }
            } else if !waker.block(self.deadlock_limit.get()) {
                let watched = self.with(|state| state.sets.get(&set).map_or(0, WatchSet::len));
                panic!(
                    "simulation deadlock: the loop waits without a timeout, none of its {watched} fds is ready, \
                     nothing is scheduled, and no other thread woke it for {:?}",
                    self.deadlock_limit.get()
                );
            }
        }
    }

    /// Runs the actions whose time has come, but none that is scheduled meanwhile.
    fn run_due_actions(&self) {
        let end = self.with(|state| state.next_order);
        while let Some(action) = self.take_due_action(end) {
            action();
        }
    }

    /// A method of its own so that no borrow outlives the `while let` above into the action.
    fn take_due_action(&self, end: u64) -> Option<Action> {
        self.with(|state| {
            let mut due = state.actions.range(..=(state.now, u64::MAX));
            let slot = due.find(|(slot, _)| slot.1 < end).map(|(&slot, _)| slot)?;
            state.actions.remove(&slot)
        })
    }
}

/// The state of a world. No method of it runs user code.
pub(crate) struct State {
    pub(super) now: Time,
    pub(super) fds: FdTable,
    pub(super) objects: BTreeMap<ObjId, Object>,
    next_object: ObjId,
    /// The open files of `objects` that listen.
    pub(super) listeners: Vec<ObjId>,
    /// The files of unix sockets. To connect to one that nobody listens on is refused, to any other path ENOENT.
    pub(super) unix_names: BTreeSet<PathBuf>,
    pub(super) sets: BTreeMap<SetId, WatchSet>,
    next_set: SetId,
    deliveries: BTreeMap<Slot, Delivery>,
    actions: BTreeMap<Slot, Action>,
    next_order: u64,
    pub(super) random: Random,
    pub(super) next_port: u16,
    calls: Calls,
    unanswered: u32,
    pub(super) max_unanswered: u32,
    /// Whether calls are cut short and refused at random.
    pub(crate) cuts: bool,
    /// The send buffer of new streams, in bytes.
    pub(crate) default_capacity: usize,
    /// The latency of new TCP streams and of connecting.
    pub(crate) default_latency: Duration,
    /// What becomes of connects to these addresses.
    pub(super) reaches: Vec<(Address, Reach)>,
}

impl State {
    fn new(seed: u64) -> State {
        State {
            now: Time::default(),
            fds: FdTable::default(),
            objects: BTreeMap::new(),
            next_object: 1,
            listeners: Vec::new(),
            unix_names: BTreeSet::new(),
            sets: BTreeMap::new(),
            next_set: 0,
            deliveries: BTreeMap::new(),
            actions: BTreeMap::new(),
            next_order: 0,
            random: Random::new(seed),
            next_port: 0,
            calls: Calls::default(),
            unanswered: 0,
            max_unanswered: MAX_UNANSWERED,
            cuts: false,
            default_capacity: 64 * 1024,
            default_latency: Duration::ZERO,
            reaches: Vec::new(),
        }
    }

    pub(crate) fn calls(&self) -> Calls {
        self.calls
    }

    pub(super) fn count(&mut self, call: Call) {
        self.calls.add(call);
        if call != Call::Wait {
            self.unanswered = 0;
        }
    }

    // Time.

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(Time::default())
    }

    pub(crate) fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + BIRTH + self.elapsed()
    }

    /// Moves the clock on; what is under way arrives as its time is passed. Actions wait for the next wait.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.advance_to(self.now.after(by));
    }

    fn advance_to(&mut self, target: Time) {
        while let Some(entry) = self.deliveries.first_entry() {
            let due = entry.key().0;
            if due > target || due == Time::NEVER {
                break;
            }
            let delivery = entry.remove();
            // What the delivery sets off starts from the moment of its arrival.
            self.now = self.now.max(due);
            self.deliver(delivery);
        }
        if target > self.now {
            self.now = target;
            self.unanswered = 0;
        }
    }

    /// When the next thing happens by itself; `NEVER` if nothing does.
    fn next_instant(&self) -> Time {
        let delivery = self.deliveries.first_key_value().map_or(Time::NEVER, |(slot, _)| slot.0);
        let action = self.actions.first_key_value().map_or(Time::NEVER, |(slot, _)| slot.0);
        delivery.min(action)
    }

    pub(crate) fn at(&mut self, delay: Duration, action: Box<dyn FnOnce()>) {
        let slot = (self.now.after(delay), self.order());
        self.actions.insert(slot, action);
    }

    /// Lets `delivery` happen at `due`, at once if that is now.
    pub(super) fn schedule(&mut self, due: Time, delivery: Delivery) {
        if due <= self.now {
            self.deliver(delivery);
        } else {
            let slot = (due, self.order());
            self.deliveries.insert(slot, delivery);
        }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    // Loops.

    pub(super) fn add_set(&mut self) -> SetId {
        let set = self.next_set;
        self.next_set += 1;
        self.sets.insert(set, WatchSet::default());
        set
    }

    /// Appends what is ready in a random order, after the wake-up; says whether that was anything.
    fn collect(&mut self, set: SetId, woken: bool, out: &mut Vec<Reported>) -> bool {
        let first = out.len();
        if woken {
            out.push(Reported::new(WAKE_TAG, Report::READ));
        }
        let ready = out.len();
        let objects = &self.objects;
        if let Some(set) = self.sets.get_mut(&set) {
            set.collect(|id| readiness(objects, id), out);
        }
        self.random.shuffle(&mut out[ready..]);
        if out.len() > first {
            self.note_unanswered();
        }
        out.len() > first
    }

    /// Counts a turn of a wait that led to nothing so far; time stands still meanwhile, so a program that spins would
    /// do so for ever.
    fn note_unanswered(&mut self) {
        self.unanswered += 1;
        assert!(
            self.unanswered <= self.max_unanswered,
            "simulation livelock: {} waits in a row and not one call that answers them",
            self.max_unanswered
        );
    }

    /// Counts a delivery of `signal` in every loop that asked for it; says whether one did.
    pub(crate) fn raise(&mut self, signal: i32) -> bool {
        let mut counted = false;
        for set in self.sets.values_mut() {
            if let Some(count) = set.signals.get_mut(&signal) {
                *count = count.saturating_add(1);
                set.waker.wake();
                counted = true;
            }
        }
        counted
    }

    // Open files.

    /// Adds an open file that has one reference.
    pub(super) fn insert(&mut self, body: Body) -> ObjId {
        let id = self.next_object;
        self.next_object += 1;
        let object = Object { refs: 1, body, taking: Obstacles::default(), giving: Obstacles::default() };
        self.objects.insert(id, object);
        id
    }

    pub(super) fn object(&mut self, id: ObjId) -> io::Result<&mut Object> {
        self.objects.get_mut(&id).ok_or_else(|| errno(libc::EBADF))
    }

    /// Something happened on the open file `id`: all who watch it look again.
    pub(super) fn touch(&mut self, id: ObjId) {
        self.unanswered = 0;
        for set in self.sets.values_mut() {
            set.touch(id);
        }
    }

    /// Gives one reference back; the last one closes the file.
    pub(crate) fn release(&mut self, id: ObjId) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.refs -= 1;
        if object.refs == 0 {
            self.dispose(id, false);
        }
    }

    pub(crate) fn file_of(&self, fd: RawFd) -> io::Result<ObjId> {
        self.fds.get(fd).ok_or_else(|| errno(libc::EBADF))
    }

    /// Gives the open file `id`, whose reference is handed over, the lowest free number.
    pub(crate) fn install(&mut self, id: ObjId) -> RawFd {
        self.fds.insert(id)
    }

    pub(crate) fn dup(&mut self, fd: RawFd) -> io::Result<RawFd> {
        let id = self.file_of(fd)?;
        self.fds.check_limit()?;
        self.object(id)?.refs += 1;
        Ok(self.install(id))
    }

    pub(crate) fn close(&mut self, fd: RawFd) -> io::Result<()> {
        let id = self.fds.remove(fd).ok_or_else(|| errno(libc::EBADF))?;
        self.release(id);
        Ok(())
    }

    pub(crate) fn open_fds(&self) -> Vec<RawFd> {
        self.fds.open()
    }

    pub(crate) fn open_file_limit(&self) -> usize {
        self.fds.limit
    }

    pub(crate) fn set_open_file_limit(&mut self, limit: usize) {
        self.fds.limit = limit;
    }

    /// Lays `step` in the way of a later receive or accept (`taking`) or send on `fd`.
    pub(crate) fn lay(&mut self, fd: RawFd, taking: bool, step: Step) -> io::Result<()> {
        let id = self.file_of(fd)?;
        let object = self.object(id)?;
        let obstacles = if taking { &mut object.taking } else { &mut object.giving };
        obstacles.steps.push_back(step);
        Ok(())
    }

    /// Opens a plain file, ready for nothing.
    pub(crate) fn plain(&mut self) -> RawFd {
        let id = self.insert(Body::Plain(Report::empty()));
        self.install(id)
    }

    /// Sets the readiness of the plain file `fd` within `mask`; each call is an edge.
    pub(crate) fn set_plain(&mut self, fd: RawFd, mask: Report, value: Report) -> io::Result<()> {
        let id = self.file_of(fd)?;
        let Body::Plain(report) = &mut self.object(id)?.body else { return Err(errno(libc::EINVAL)) };
        *report = (*report - mask) | (value & mask);
        self.touch(id);
        Ok(())
    }
}

/// What a poll of the open file `id` says now.
fn readiness(objects: &BTreeMap<ObjId, Object>, id: ObjId) -> Report {
    match objects.get(&id).map(|object| &object.body) {
        None => Report::empty(),
        Some(Body::Listener(listener)) if listener.queue.is_empty() => Report::empty(),
        Some(Body::Listener(_)) => Report::READ,
        Some(Body::Plain(report)) => *report,
        Some(Body::Stream(stream)) => stream.readiness(objects.contains_key(&stream.peer)),
    }
}
