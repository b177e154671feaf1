//! Watchers: callbacks right before and right after every wait of the loop.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::reactor::{LoopHandle, When};

/// Calls back in every turn of the loop, right before it waits for the kernel or right after.
///
/// In a turn all prepare watchers run, then the loop waits, then all check watchers run, then the callbacks of events;
/// each kind in the order in which they were made. One that is made by a watcher runs from the next turn on. Watchers do
/// not keep the loop running, are not what `LoopFlags::ONCE` waits for, and go with the `EventBase`. A panic in one frees
/// it, comes out of `dispatch`, and loses nothing else.
///
/// Dropping it frees the watcher: its callback is dropped, at once or, if it is running, when it returns. That is
/// allowed in any callback, also in one of a watcher, its own included.
///
/// ```
/// use event_core::{EventBase, Timer, Watcher};
/// use std::time::Duration;
///
/// let mut base = EventBase::new()?;
/// let _prepare = Watcher::prepare(&base, |info| println!("about to wait: {:?}", info.timeout()))?;
/// let _check = Watcher::check(&base, || println!("has waited"))?;
/// let timer = Timer::new(&base, |_| println!("a callback"))?;
/// timer.add(Duration::from_millis(1))?;
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[must_use = "dropping the watcher frees it"]
pub struct Watcher {
    handle: LoopHandle,
    when: When,
    id: u64,
    owns: bool,
}

/// What a prepare watcher is told.
#[derive(Clone, Copy, Debug)]
pub struct PrepareInfo {
    timeout: Option<Duration>,
}

impl PrepareInfo {
    /// How long the loop is about to wait, at most: zero if there is work, `None` if it waits without limit. What the
    /// watchers themselves ask for may make it less.
    #[doc(alias = "evwatch_prepare_get_timeout")]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

impl Watcher {
    /// Calls `cb` right before the loop hands its interests to the kernel and waits. What it adds, activates or stops
    /// counts for that very wait. The cached time is still that of the turn before.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "evwatch_prepare_new")]
    pub fn prepare(handle: &LoopHandle, cb: impl FnMut(&PrepareInfo) + 'static) -> Result<Watcher, Error> {
        Watcher::new(handle, When::Prepare, cb)
    }

    /// Calls `cb` right after the loop has waited and read the clock, before the callbacks of what is ready or due.
    /// What it deletes or frees does not run any more.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "evwatch_check_new")]
    pub fn check(handle: &LoopHandle, mut cb: impl FnMut() + 'static) -> Result<Watcher, Error> {
        Watcher::new(handle, When::Check, move |_| cb())
    }

    /// The loop it belongs to.
    #[doc(alias = "evwatch_base")]
    pub fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    /// Leaves it to the loop, which keeps it until the `EventBase` is dropped.
    pub fn detach(mut self) {
        self.owns = false;
    }

    fn new(
        handle: &LoopHandle,
        when: When,
        mut cb: impl FnMut(&PrepareInfo) + 'static,
    ) -> Result<Watcher, Error> {
        let callback = Box::new(move |_: &LoopHandle, timeout| cb(&PrepareInfo { timeout }));
        let id = handle.add_watcher(when, callback)?;
        Ok(Watcher { handle: handle.clone(), when, id, owns: true })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.owns {
            self.handle.free_watcher(self.when, self.id);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("when", &self.when).finish_non_exhaustive()
    }
}
