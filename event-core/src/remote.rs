//! What crosses threads: wake-ups, closures, activations, stops, and typed messages to a callback on the loop.

mod inbox;
#[cfg(all(test, loom))]
mod loom_tests;
mod mailbox;
mod posted;

use std::fmt;
use std::sync::Arc;

pub(crate) use self::inbox::{MESSAGES_PER_TURN, Shared, Taken};
use self::inbox::{Op, Stops};
pub use self::mailbox::{Mailbox, SendError, Sender};
use crate::error::Error;
use crate::interest::Ready;
use crate::reactor::{EventId, LoopHandle};

/// Wakes the loop from any thread and does nothing else: the loop takes one turn.
///
/// Dropping it does nothing. It may outlive the loop; waking is then without effect.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Makes the loop take a turn, now or as soon as it waits next. Many calls between two turns cost one system call.
    pub fn wake(&self) {
        self.shared.wake();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// What other threads may ask of a loop. `Clone`, `Send` and `Sync`; made by [`LoopHandle::remote`].
///
/// Everything is done by the loop's thread in its next turn, in the order it was asked for; at most 1,024 requests
/// run in a turn. Dropping a `Remote` does nothing. It may outlive the loop: calls then give [`Error::LoopGone`]. A
/// remote does not keep the loop running.
///
/// ```
/// use event_core::{EventBase, LoopFlags};
/// use std::thread;
///
/// let mut base = EventBase::new()?;
/// let remote = base.remote();
/// thread::spawn(move || {
///     remote.post(|base| println!("in the loop, on {}", base.method()))?;
///     remote.loopexit()
/// });
/// base.run(LoopFlags::NO_EXIT_ON_EMPTY)?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    pub(crate) fn new(shared: Arc<Shared>) -> Remote {
        Remote { shared }
    }

    /// Runs `f` on the loop's thread. It gets the loop's handle, and must not need anything else of the loop's state:
    /// for that there is [`LoopHandle::mailbox`].
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `f` is dropped.
    pub fn post(&self, f: impl FnOnce(&LoopHandle) + Send + 'static) -> Result<(), Error> {
        self.shared.post(f)
    }

    /// Queues the event's callback with `ready` as its reasons, as [`LoopHandle::activate`] does. A stale id is ignored.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_active")]
    pub fn activate(&self, id: EventId, ready: Ready) -> Result<(), Error> {
        self.shared.push(Op::Activate(id, ready)).map_err(|_| Error::LoopGone)
    }

    /// Ends the loop after the turn that is running, or, if none runs, after the first turn of the next `dispatch`.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_base_loopexit")]
    pub fn loopexit(&self) -> Result<(), Error> {
        self.shared.set(Stops { exit: true, stop: false })
    }

    /// Ends the loop as soon as it sees this: no callback runs after that. Kept until a loop has seen it.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_base_loopbreak")]
    pub fn loopbreak(&self) -> Result<(), Error> {
        self.shared.set(Stops { exit: false, stop: true })
    }

    /// A handle that only wakes.
    pub fn waker(&self) -> Waker {
        Waker { shared: self.shared.clone() }
    }

    /// Whether the `EventBase` was dropped.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl LoopHandle {
    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.shared().clone())
    }

    /// A handle for other threads that only wakes the loop.
    pub fn waker(&self) -> Waker {
        Waker { shared: self.shared().clone() }
    }
}
