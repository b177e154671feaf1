//! Common timeouts: one queue for many events with the same timeout.

use std::time::Duration;

use crate::common_timeout::{After, CommonTimeout};
use crate::error::Error;
use crate::reactor::timers::AddedAlone;
use crate::reactor::{EventId, LoopHandle};

impl LoopHandle {
    /// Makes a common timeout, or finds the one there is of this duration: what many events of this loop have as their
    /// timeout, each by [`add_common`](Self::add_common). Such events stand in a queue in the order of their adding, and
    /// only the first of them in the heap of timers, so that adding, deleting and firing one costs the same however many
    /// there are. A loop may have 256, and they last as long as the loop.
    ///
    /// ```
    /// use event_core::{EventBase, Timer};
    /// use std::time::Duration;
    ///
    /// let mut base = EventBase::new()?;
    /// let short = base.common_timeout(Duration::from_millis(1))?;
    /// let timers: Vec<Timer> =
    ///     (0..100).map(|n| Timer::new(&base, move |_| println!("{n}"))).collect::<Result<_, _>>()?;
    /// for timer in &timers {
    ///     timer.add_common(short)?;
    /// }
    /// base.dispatch()?;
    /// # Ok::<(), event_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Error::Invalid` if there are 256 others.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_base_init_common_timeout")]
    pub fn common_timeout(&self, duration: Duration) -> Result<CommonTimeout, Error> {
        self.check()?;
        self.reactor.core.borrow_mut().heap.common(duration)
    }

    /// Adds an event with a common timeout: like [`add`](Self::add) with that duration, but O(1). A later `add` with a
    /// timeout takes the event out of the queue.
    ///
    /// It is never early, and among equal deadlines events fire in the order of their adding, whether or not their
    /// timeout is a common one. A persistent event counts from when it was due, but does not overtake what was added to
    /// the queue since.
    ///
    /// # Errors
    /// - `Error::Invalid` if the common timeout is of another loop.
    /// - Those of `add`.
    pub fn add_common(&self, id: EventId, timeout: CommonTimeout) -> Result<(), Error> {
        self.check()?;
        if !self.reactor.core.borrow().heap.owns(timeout) {
            return Err(Error::Invalid("the common timeout is of another loop"));
        }
        match self.add_alone(id, After::Common(timeout)) {
            AddedAlone::Last => self.added_last(),
            AddedAlone::No => self.add_any_common(id, timeout),
            AddedAlone::Yes => Ok(()),
        }
    }

    #[inline(never)]
    fn add_any_common(&self, id: EventId, timeout: CommonTimeout) -> Result<(), Error> {
        if self.arm_alone(id, After::Common(timeout)) {
            return Ok(());
        }
        self.add_with(id, Some(timeout.duration()), |timers, clock, _| {
            timers.set_common(id.0.index, timeout, clock);
        })?;
        let mut core = self.reactor.core.borrow_mut();
        core.leave_alone(id.0);
        self.note_armed(&mut core);
        Ok(())
    }
}
