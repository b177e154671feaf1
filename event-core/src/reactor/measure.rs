//! Statistics and slow callbacks: how long things take, if anybody asked.

use std::time::Duration;

use super::extras::Uses;
use super::inspect::describe;
use crate::clock::Time;
use crate::reactor::{EventId, Kind, LoopHandle};
use crate::slots::Key;
use crate::stats::Stats;

/// A callback that is being timed. Which event's it is is noted before, since it may free that.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    key: Key,
    kind: Kind,
    source: i32,
    start: Time,
}

impl LoopHandle {
    /// Starts to count turns and callbacks and to measure how long they take, from zero, or stops. A loop does neither
    /// at first. Counting costs two readings of the clock a callback, and two a turn.
    pub fn set_stats(&self, on: bool) {
        let extras = &self.reactor.extras;
        if on && !extras.recording.get() {
            extras.recorder.take();
        }
        extras.recording.set(on);
        extras.set(Uses::MEASURE, on || extras.slow.get().is_some());
    }

    /// What was counted since `set_stats(true)`, up to `set_stats(false)`, and what the loop holds now.
    ///
    /// ```
    /// use event_core::{EventBase, Timer};
    /// use std::time::Duration;
    ///
    /// let mut base = EventBase::new()?;
    /// base.set_stats(true);
    /// let timer = Timer::new(&base, |_| std::thread::sleep(Duration::from_millis(2)))?;
    /// timer.add(Duration::from_millis(1))?;
    /// base.dispatch()?;
    /// let stats = base.stats();
    /// assert_eq!(stats.callbacks, 1);
    /// for (less_than, count) in stats.durations.buckets().filter(|(_, count)| *count > 0) {
    ///     println!("{count} callbacks took less than {less_than:?}");
    /// }
    /// # Ok::<(), event_core::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.keep_promises();
        let mut stats = self.reactor.extras.recorder.borrow().stats();
        let core = self.reactor.core.borrow();
        // The loop's own slot, for other threads, is nobody's event.
        stats.events = core.slots.keys().len().saturating_sub(usize::from(!self.is_gone()));
        stats.fds = core.fds.in_use().len();
        stats.timers = core.heap.len();
        stats
    }

    /// Logs a warning, through `log`, for every callback that runs longer than this: which event it was of, and how
    /// long it took. `None`, as at first, logs none and measures nothing.
    ///
    /// While a callback runs, everybody else waits. A stream's callbacks are measured together with its reads and
    /// writes, and what other threads asked for as one.
    pub fn set_slow_callback(&self, longer_than: Option<Duration>) {
        let extras = &self.reactor.extras;
        extras.slow.set(longer_than);
        extras.set(Uses::MEASURE, longer_than.is_some() || extras.recording.get());
    }

    /// A callback is about to run, and somebody wants to know how long.
    pub(super) fn start_measuring(&self, key: Key, kind: Kind) {
        let source = self.reactor.core.borrow().slots.get(key).map_or(-1, |slot| slot.source);
        self.reactor.extras.measured.set(Some(Measured { key, kind, source, start: self.clock() }));
    }

    /// It has returned, and everything is in its place again.
    pub(super) fn stop_measuring(&self) {
        let extras = &self.reactor.extras;
        let Some(Measured { key, kind, source, start }) = extras.measured.take() else { return };
        let took = self.clock().since(start);
        if extras.recording.get() {
            extras.recorder.borrow_mut().callback(took);
        }
        if let Some(limit) = extras.slow.get().filter(|limit| took > *limit) {
            let what = describe(EventId(key), kind, source);
            log::warn!("a slow callback: {what} ran for {took:?}, longer than {limit:?}");
        }
    }

    /// When a wait begins, if that is to be measured.
    #[inline]
    pub(super) fn wait_starts(&self) -> Option<Time> {
        self.reactor.extras.has(Uses::MEASURE).then(|| self.clock())
    }

    /// The wait has ended, and the turn's time was read.
    #[inline]
    pub(super) fn wait_ended(&self, start: Option<Time>) {
        if let Some(start) = start
            && self.reactor.extras.recording.get()
        {
            self.reactor.extras.recorder.borrow_mut().turn(self.turn_time().since(start));
        }
    }
}
