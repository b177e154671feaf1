//! What few loops use: watchers, measurements, limits to a batch. One look at a set of bits tells that none is in use.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bitflags::bitflags;

use super::measure::Measured;
use super::watchers::Watchers;
use crate::clock::Time;
use crate::error::Error;
use crate::reactor::{Kind, LoopHandle};
use crate::slots::Key;
use crate::stats::Recorder;

bitflags! {
    /// What is in use, and what a batch has to look out for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Uses: u16 {
        /// There are check watchers.
        const CHECK = 0x01;
        /// `loopcontinue` was called in this batch.
        const CONTINUE = 0x02;
        /// A batch has a limit.
        const LIMIT = 0x04;
        /// The highest counts are kept.
        const MARKS = 0x08;
        /// Callbacks are timed.
        const MEASURE = 0x10;
        /// `now` is always read from the clock.
        const NO_CACHE = 0x20;
        /// There are prepare watchers.
        const PREPARE = 0x40;
        /// `loopbreak` was called.
        const STOP = 0x80;
        /// `loopexit` was called.
        const EXIT = 0x100;
        /// There is a wait hook.
        const HOOK = 0x200;
        /// The flush list is not empty.
        const UNFLUSHED = 0x400;
        /// There are several priorities.
        const PRIORITIES = 0x800;
    }
}

impl Uses {
    /// What the short way of a batch knows nothing of.
    pub(super) const LONG_WAY: Uses =
        Uses::CHECK.union(Uses::CONTINUE).union(Uses::LIMIT).union(Uses::MARKS).union(Uses::MEASURE);

    /// What the short way has to look at after a callback.
    pub(super) const PAUSE: Uses = Uses::LONG_WAY.union(Uses::STOP).union(Uses::UNFLUSHED);

    /// What ends the turns of the short way.
    pub(super) const LONG_TURN: Uses = Uses::LONG_WAY
        .union(Uses::EXIT)
        .union(Uses::HOOK)
        .union(Uses::PREPARE)
        .union(Uses::PRIORITIES)
        .union(Uses::STOP)
        .union(Uses::UNFLUSHED);
}

/// When a batch ends early: libevent's maximal dispatch interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimit {
    /// After so much time.
    pub(crate) time: Option<Duration>,
    /// After so many callbacks.
    pub(crate) callbacks: Option<usize>,
    /// Batches of this priority and of less urgent ones.
    pub(crate) from_priority: u8,
}

#[derive(Default)]
pub(super) struct Extras {
    uses: Cell<Uses>,
    pub(super) prepare: RefCell<Watchers>,
    pub(super) check: RefCell<Watchers>,
    pub(super) recorder: RefCell<Recorder>,
    /// Whether turns and callbacks go into the recorder; the slow callbacks are another reason to measure.
    pub(super) recording: Cell<bool>,
    pub(super) slow: Cell<Option<Duration>>,
    /// The callback that runs, if it is timed.
    pub(super) measured: Cell<Option<Measured>>,
    limit: Cell<Option<BatchLimit>>,
    /// When the time of the running batch is over.
    batch_end: Cell<Time>,
}

impl Extras {
    #[inline]
    pub(super) fn has(&self, uses: Uses) -> bool {
        self.uses.get().intersects(uses)
    }

    pub(super) fn set(&self, uses: Uses, on: bool) {
        let mut all = self.uses.get();
        all.set(uses, on);
        self.uses.set(all);
    }
}

impl LoopHandle {
    /// Whether the loop is to stop before the next callback.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.reactor.extras.has(Uses::STOP)
    }

    pub(super) fn stop(&self) {
        self.reactor.extras.set(Uses::STOP, true);
    }

    pub(super) fn exit(&self) {
        self.reactor.extras.set(Uses::EXIT, true);
    }

    /// Ends the batch when the running callback returns: the loop looks at its fds and timers again, and goes on with
    /// what is more urgent by then. What has not run stays queued and is not lost. Without a batch that runs, nothing.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    /// - `Error::Forked` after a fork.
    #[doc(alias = "event_base_loopcontinue")]
    pub fn loopcontinue(&self) -> Result<(), Error> {
        self.check()?;
        // The next batch begins without it.
        self.reactor.extras.set(Uses::CONTINUE, true);
        Ok(())
    }

    pub(crate) fn set_batch_limit(&self, limit: Option<BatchLimit>) {
        self.reactor.extras.limit.set(limit);
        self.reactor.extras.set(Uses::LIMIT, limit.is_some());
    }

    /// Whether `now` is read from the clock every time.
    pub(crate) fn set_no_cache_time(&self, no_cache: bool) {
        self.reactor.extras.set(Uses::NO_CACHE, no_cache);
    }

    /// A batch begins.
    #[inline]
    pub(super) fn begin_batch(&self) {
        let extras = &self.reactor.extras;
        if !extras.has(Uses::CONTINUE | Uses::LIMIT) {
            return;
        }
        extras.set(Uses::CONTINUE, false);
        let time = extras.limit.get().and_then(|limit| limit.time);
        extras.batch_end.set(time.map_or(Time::NEVER, |time| self.clock().after(time)));
    }

    /// A callback is about to run, and is counted or timed.
    #[cold]
    pub(super) fn before_one(&self, key: Key, kind: Kind) {
        self.reactor.core.borrow_mut().marks.ran(kind);
        if self.reactor.extras.has(Uses::MEASURE) {
            self.start_measuring(key, kind);
        }
    }

    /// A callback has returned, and something is in use. Tells whether the batch of this priority, of which so many
    /// have run, is to end before the next.
    #[cold]
    pub(super) fn after_one(&self, priority: usize, callbacks: usize) -> bool {
        self.stop_measuring();
        self.is_over(priority, callbacks)
    }

    /// Whether the callback that runs several of the user's is to stop before the next one, for `loopcontinue`.
    pub(super) fn is_continued(&self) -> bool {
        self.reactor.extras.has(Uses::CONTINUE)
    }

    fn is_over(&self, priority: usize, callbacks: usize) -> bool {
        let extras = &self.reactor.extras;
        if extras.has(Uses::CONTINUE) {
            return true;
        }
        let Some(limit) = extras.limit.get() else { return false };
        // A limit of none runs one: a loop that does nothing would never end.
        if callbacks == 0 || priority < limit.from_priority.into() {
            return false;
        }
        limit.callbacks.is_some_and(|most| callbacks >= most)
            || extras.batch_end.get() != Time::NEVER && self.clock() >= extras.batch_end.get()
    }
}
