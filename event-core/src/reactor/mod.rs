//! The loop's state and the handle on it. What a turn does stands in `turn`, what events can be told in `ops`.

mod collect;
mod common;
mod counts;
mod direct;
mod due;
mod extras;
mod flush;
mod guests;
mod inspect;
mod lent;
mod measure;
mod ops;
mod register;
mod slot;
mod teardown;
mod timers;
mod turn;
mod watchers;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::buffer::Pool;
use crate::clock::Time;
use crate::common_timeout::Timers;
use crate::error::Error;
use crate::fdmap::FdMap;
use crate::heap::Entry;
use crate::interest::{Features, Ready};
use crate::queue::Queues;
use crate::remote::{Shared, Taken};
use crate::slots::{Key, Slots};
use crate::sys::{self, Reported, Sys};

pub use counts::EventCount;
use counts::Marks;
pub(crate) use extras::BatchLimit;
use extras::{Extras, Uses};
pub(crate) use guests::Guest;
pub use inspect::EventInfo;
pub use lent::{Event, Signal, Timer};
pub(crate) use lent::{Lent, Owner};
pub use slot::EventId;
pub(crate) use slot::{Callback, Flags, Kind, Slot, Source};
pub(crate) use teardown::FirstPanic;
pub use turn::{LoopEnd, LoopFlags};
pub(crate) use watchers::When;

/// Called for every token event of a base: the loop, the event, its token, the reasons, and how often its signal came.
type TokenHandler = dyn Fn(&LoopHandle, EventId, usize, Ready, u32);

/// Called right before and right after every wait for the kernel.
struct WaitHook {
    before: Box<dyn Fn()>,
    after: Box<dyn Fn()>,
}

/// Everything that changes together. Borrowed for single statements and blocks that call nothing of the user's.
pub(crate) struct Core {
    pub(crate) slots: Slots<Slot>,
    fds: FdMap,
    heap: Timers,
    queues: Queues,
    /// Events that are activated for the next turn, in order; their reasons stand in their slots. One that was taken back
    /// stays until the list is moved or swept, and does not count.
    later: Vec<Key>,
    /// How many of those count.
    later_live: usize,
    /// Fds whose interest is handed to the kernel before the next wait.
    dirty: Vec<i32>,
    /// The first event of each signal, by slot index.
    signals: Vec<(i32, u32)>,
    /// The timers that were found due in this turn, in their order.
    due: Vec<Entry>,
    /// How many of those were dealt with; the others wait for the short way (`direct`).
    fired: usize,
    /// When they were found.
    due_at: Time,
    /// What the kernel reported in this turn.
    reports: Vec<Reported>,
    /// How many of the reports were dealt with; the others wait for the short way (`direct`).
    reported: usize,
    /// Memory for the next turn's reports, while turns are short.
    spare_reports: Vec<Reported>,
    /// Events whose fd turned out to be gone, for the loop to end.
    lost: Vec<Key>,
    /// How many events there have been at most.
    marks: Marks,
}

/// A loop. Shared by its handles; only `EventBase` runs it.
pub(crate) struct Reactor {
    pub(crate) sys: Rc<dyn Sys>,
    core: RefCell<Core>,
    pool: Pool,
    shared: Arc<Shared>,
    /// Of what other threads asked for, what was taken and has not run.
    taken: Taken,
    remote_slot: Cell<Option<EventId>>,
    /// What the clock said in this turn, once anybody has asked; `NEVER` before that.
    now: Cell<Time>,
    /// The clock's origin on the scale of `Instant`.
    origin: Instant,
    running: Cell<bool>,
    /// Inside the kernel's wait: what is changed now must act at once.
    waiting: Cell<bool>,
    got_exit: Cell<bool>,
    got_break: Cell<bool>,
    gone: Cell<bool>,
    /// The process's fork count when the kernel objects were made.
    forks: Cell<u64>,
    /// How many things keep the loop running.
    keep: Cell<usize>,
    /// Something happened in this turn that `LoopFlags::ONCE` waits for.
    progress: Cell<bool>,
    /// How many more messages of other threads may run in this turn.
    message_budget: Cell<usize>,
    /// `NOBODY` between callbacks.
    running_event: Cell<EventId>,
    wait_hook: RefCell<Option<Rc<WaitHook>>>,
    /// Taken out while it runs.
    token_handler: Cell<Option<Box<TokenHandler>>>,
    flush_list: RefCell<std::collections::VecDeque<flush::Unflushed>>,
    extras: Extras,
    guests: RefCell<Vec<Rc<dyn Guest>>>,
}

/// A handle on a loop: what callbacks capture. Cloning is cheap; it does not keep the loop alive.
///
/// Everything but running is here; [`EventBase`](crate::EventBase) derefs to it. Every call is allowed in every
/// callback. After the `EventBase` was dropped calls give [`Error::LoopGone`].
#[derive(Clone)]
#[doc(alias = "event_base")]
pub struct LoopHandle {
    reactor: Rc<Reactor>,
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle").field("method", &self.method()).finish_non_exhaustive()
    }
}

impl LoopHandle {
    /// Makes a loop on a kernel.
    pub(crate) fn new(sys: Rc<dyn Sys>) -> Result<LoopHandle, Error> {
        // In this order: what is shown as an `Instant` then lies behind by a little, and never ahead of the clock.
        let origin = Instant::now();
        let now = sys.now();
        let shared = Shared::new(sys.waker());
        let core = Core {
            slots: Slots::new(),
            fds: FdMap::default(),
            heap: Timers::new(),
            queues: Queues::new(),
            later: Vec::new(),
            later_live: 0,
            dirty: Vec::new(),
            signals: Vec::new(),
            due: Vec::new(),
            fired: 0,
            due_at: now,
            reports: Vec::new(),
            reported: 0,
            spare_reports: Vec::new(),
            lost: Vec::new(),
            marks: Marks::default(),
        };
        let reactor = Reactor {
            sys,
            core: RefCell::new(core),
            pool: Pool::new(),
            shared,
            taken: Taken::default(),
            remote_slot: Cell::new(None),
            now: Cell::new(now),
            // An Instant cannot be made from a number: the origin is where the clock's zero lies, as near as it goes.
            origin: origin.checked_sub(Duration::from_nanos(now.as_nanos())).unwrap_or(origin),
            running: Cell::new(false),
            waiting: Cell::new(false),
            got_exit: Cell::new(false),
            got_break: Cell::new(false),
            gone: Cell::new(false),
            forks: Cell::new(sys::fork_count()),
            keep: Cell::new(0),
            progress: Cell::new(false),
            message_budget: Cell::new(0),
            running_event: Cell::new(EventId::NOBODY),
            wait_hook: RefCell::new(None),
            token_handler: Cell::new(None),
            flush_list: RefCell::default(),
            extras: Extras::default(),
            guests: RefCell::default(),
        };
        let handle = LoopHandle { reactor: Rc::new(reactor) };
        let remote = handle.insert(Kind::Remote, -1, Default::default(), Callback::Empty)?;
        handle.reactor.remote_slot.set(Some(remote));
        Ok(handle)
    }

    /// The name of the backend: `epoll`, `poll`, `simulation`.
    #[doc(alias = "event_base_get_method")]
    pub fn method(&self) -> &'static str {
        self.reactor.sys.name()
    }

    /// What the backend can do.
    #[doc(alias = "event_base_get_features")]
    pub fn features(&self) -> Features {
        self.reactor.sys.features()
    }

    /// The loop's cached time: what the monotonic clock said when it was first asked in the running turn, which is right
    /// after the wait if any timer is armed. Outside of `dispatch` the clock is read.
    #[doc(alias = "event_base_gettimeofday_cached")]
    pub fn now(&self) -> Instant {
        self.to_instant(self.cached_now())
    }

    /// The same time as [`now`](Self::now), counted from the origin of the loop's clock.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.cached_now().as_nanos())
    }

    /// [`elapsed`](Self::elapsed) in nanoseconds, for who counts in those; they last for 584 years.
    ///
    /// ```
    /// # let base = event_core::EventBase::new()?;
    /// let before = base.elapsed_nanos();
    /// assert!(u128::from(before) <= base.elapsed().as_nanos());
    /// # Ok::<(), event_core::Error>(())
    /// ```
    #[inline]
    pub fn elapsed_nanos(&self) -> u64 {
        self.cached_now().as_nanos()
    }

    /// The instant at which [`elapsed`](Self::elapsed) is zero.
    pub fn clock_origin(&self) -> Instant {
        self.reactor.origin
    }

    /// Reads the clock anew, so that `now` is exact again in a callback that took long.
    #[doc(alias = "event_base_update_cache_time")]
    pub fn update_cache_time(&self) {
        self.reactor.now.set(self.reactor.sys.now());
    }

    /// The time of day as this loop sees it; simulated on a simulated loop.
    pub fn wall_clock(&self) -> SystemTime {
        self.reactor.sys.wall()
    }

    /// The event whose callback runs now.
    #[doc(alias = "event_base_get_running_event")]
    pub fn running_event(&self) -> Option<EventId> {
        Some(self.reactor.running_event.get()).filter(|id| *id != EventId::NOBODY)
    }

    /// Sets how many priorities there are; 0 is the most urgent, and new events get the middle one. At least 1. Events of
    /// a priority that is no more are of the least urgent one from here on.
    ///
    /// # Errors
    /// - `Error::Invalid` while activations are queued, so not in a callback that has company.
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_base_priority_init")]
    pub fn priority_init(&self, count: u8) -> Result<(), Error> {
        self.check()?;
        let mut core = self.reactor.core.borrow_mut();
        core.queue_rest(&*self.reactor.sys);
        if core.is_any_active() {
            return Err(Error::Invalid("priorities cannot change while events are active"));
        }
        core.queues.set_priorities(count);
        self.reactor.extras.set(Uses::PRIORITIES, count > 1);
        Ok(())
    }

    /// How many priorities there are.
    #[doc(alias = "event_base_get_npriorities")]
    pub fn priorities(&self) -> usize {
        self.reactor.core.borrow().queues.priorities()
    }

    /// Ends the loop after the turn that is running; before the loop runs, after its first turn. With a delay, after
    /// the turn in which the delay is over; such a delayed exit keeps the loop running until then.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    /// - `Error::Forked` after a fork.
    #[doc(alias = "event_base_loopexit")]
    pub fn loopexit(&self, after: Option<Duration>) -> Result<(), Error> {
        self.check()?;
        let Some(after) = after else {
            self.exit();
            return self.touched();
        };
        let handle = self.clone();
        self.once(-1, Default::default(), Some(after), move |_| handle.exit())
    }

    /// Ends the loop when the running callback returns. Before the loop runs it is kept, and the loop ends at once.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    /// - `Error::Forked` after a fork.
    #[doc(alias = "event_base_loopbreak")]
    pub fn loopbreak(&self) -> Result<(), Error> {
        self.check()?;
        self.stop();
        self.touched()
    }

    /// Whether the last `dispatch` ended by `loopexit`.
    #[doc(alias = "event_base_got_exit")]
    pub fn got_exit(&self) -> bool {
        self.reactor.got_exit.get()
    }

    /// Whether the last `dispatch` ended by `loopbreak`.
    #[doc(alias = "event_base_got_break")]
    pub fn got_break(&self) -> bool {
        self.reactor.got_break.get()
    }

    /// An fd that becomes readable when this loop has something to do, so that another loop can watch it and then run
    /// this one with `LoopFlags::NONBLOCK`; `None` where the backend has none. Timers are not seen through it: wait no
    /// longer than until [`next_deadline`](Self::next_deadline).
    pub fn poll_fd(&self) -> Option<std::os::fd::RawFd> {
        self.reactor.sys.poll_fd()
    }

    /// When the next timer is due, or now if work is queued or the kernel is still to be told of an interest; `None` if
    /// neither.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.keep_promises();
        let mut core = self.reactor.core.borrow_mut();
        let queued =
            core.has_queued() || core.has_rest() || !core.dirty.is_empty() || self.reactor.shared.has_ops();
        if queued || !self.reactor.flush_list.borrow().is_empty() {
            drop(core);
            return Some(self.to_instant(self.turn_time()));
        }
        core.heap.first().map(|deadline| self.to_instant(deadline))
    }

    /// Calls `before` and `after` right round every wait for the kernel, waits of no length included, with nothing
    /// borrowed and no lock held: the place to release and retake a lock that guards the whole loop. What is changed
    /// in between acts on the wait that is running. Replaces an earlier hook. After the `EventBase` was dropped both are
    /// dropped at once.
    pub fn set_wait_hook(&self, before: impl Fn() + 'static, after: impl Fn() + 'static) {
        let hook = WaitHook { before: Box::new(before), after: Box::new(after) };
        if self.is_gone() {
            // Nobody would ever take it out again, and it may capture this handle.
            return;
        }
        self.reactor.extras.set(Uses::HOOK, true);
        let old = self.reactor.wait_hook.replace(Some(Rc::new(hook)));
        drop(old);
    }

    /// Sets the one handler of all token events; see [`register_token`](Self::register_token). Replaces an earlier one.
    /// After the `EventBase` was dropped it is dropped at once.
    pub fn set_token_handler(&self, handler: impl Fn(&LoopHandle, EventId, usize, Ready, u32) + 'static) {
        if self.is_gone() {
            return;
        }
        let old = self.reactor.token_handler.replace(Some(Box::new(handler)));
        drop(old);
    }

    /// How many files this process may have open (`RLIMIT_NOFILE`), now.
    pub fn open_file_limit(&self) -> usize {
        self.reactor.sys.open_file_limit()
    }

    /// The clock now, for deadlines.
    pub(crate) fn clock(&self) -> Time {
        self.reactor.sys.now()
    }

    /// The time of the running turn; outside of a turn, the clock.
    #[inline]
    pub(crate) fn cached_now(&self) -> Time {
        let is_cached = self.reactor.running.get() && !self.reactor.extras.has(Uses::NO_CACHE);
        if is_cached { self.turn_time() } else { self.clock() }
    }

    /// What the clock said when it was first asked in this turn.
    #[inline]
    pub(super) fn turn_time(&self) -> Time {
        match self.reactor.now.get() {
            Time::NEVER => self.read_turn_time(),
            now => now,
        }
    }

    fn read_turn_time(&self) -> Time {
        let now = self.clock();
        self.reactor.now.set(now);
        now
    }

    pub(crate) fn to_instant(&self, time: Time) -> Instant {
        self.reactor.origin + Duration::from_nanos(time.as_nanos())
    }

    #[inline]
    pub(crate) fn sys(&self) -> &Rc<dyn Sys> {
        &self.reactor.sys
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        &self.reactor.pool
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.reactor.shared
    }

    pub(crate) fn taken(&self) -> &Taken {
        &self.reactor.taken
    }

    pub(crate) fn keep_more(&self) {
        self.reactor.keep.set(self.reactor.keep.get() + 1);
        self.reactor.core.borrow_mut().marks.held();
    }

    pub(crate) fn keep_less(&self) {
        self.reactor.keep.set(self.reactor.keep.get().saturating_sub(1));
        self.reactor.core.borrow_mut().marks.let_go();
        // The last reason to go on may have gone while the loop waits.
        let _ = self.touched();
    }

    /// Something completed that `LoopFlags::ONCE` waits for.
    #[inline]
    pub(crate) fn note_progress(&self) {
        self.reactor.progress.set(true);
    }

    /// Whether another message may run in this turn.
    pub(crate) fn has_message_budget(&self) -> bool {
        self.reactor.message_budget.get() > 0
    }

    /// Takes one message from this turn's budget.
    pub(crate) fn take_message_budget(&self) {
        self.reactor.message_budget.set(self.reactor.message_budget.get().saturating_sub(1));
    }

    /// Whether the loop is to end, or to look around, after the callback that runs.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopped() || self.is_continued()
    }

    /// Whether a callback that runs several of the user's, one after the other, must stop before the next: the loop is to
    /// end or to look around, something more urgent is active, or its own event was freed.
    pub(crate) fn must_yield(&self, id: EventId) -> bool {
        let core = self.reactor.core.borrow();
        let Some(slot) = core.slots.get(id.0) else { return true };
        // Of a priority that is no more, it stands in the least urgent queue.
        let own = || usize::from(slot.priority).min(core.queues.priorities() - 1);
        self.is_stopping() || core.queues.most_urgent().is_some_and(|at| at < own())
    }

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.reactor.gone.get()
    }

    /// Whether the process is the child of a fork and `after_fork` was not called: the kernel set is the parent's.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        // The count began when the loop was made.
        self.reactor.forks.get() != sys::forks()
    }

    /// Refuses what a loop that is gone or forked cannot do.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.reactor.gone.get() {
            Err(Error::LoopGone)
        } else if self.is_forked() {
            Err(Error::Forked)
        } else {
            Ok(())
        }
    }

    /// In the child of a fork: a kernel set of its own, with everything added again.
    pub(crate) fn after_fork(&self) -> Result<(), Error> {
        let reactor = &self.reactor;
        reactor.sys.after_fork()?;
        reactor.shared.clear_wake();
        reactor.forks.set(sys::fork_count());
        let lost = {
            let mut core = reactor.core.borrow_mut();
            core.readd_all(&*reactor.sys)
        };
        for key in lost {
            self.lose(key);
        }
        self.guests_after_fork();
        // A message that was under way at the fork is still in the queue.
        reactor.shared.wake();
        Ok(())
    }
}
