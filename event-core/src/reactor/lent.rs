//! The unique owners of a slot each, and those that own nothing: what a callback is shown.

use std::fmt;

use crate::reactor::{EventId, LoopHandle};

/// Watches an fd, or none, and calls back when it is ready or a timeout passes: libevent's `struct event`.
///
/// Dropping it frees it: pending work is void and the callback is dropped, at once or, if it is running, when it
/// returns. The fd is borrowed: it is never closed here, and must be deleted from the loop before it is closed.
///
/// ```
/// use event_core::{Event, EventBase, What};
/// use std::{io::{Read, Write}, os::{fd::AsRawFd, unix::net::UnixStream}};
///
/// let mut base = EventBase::new()?;
/// let (mut ours, mut theirs) = UnixStream::pair()?;
/// let event = Event::new(&base, ours.as_raw_fd(), What::READ, move |_, ready| {
///     let mut byte = [0];
///     ours.read_exact(&mut byte).expect("the loop says that there is something to read");
///     println!("{ready:?}: {byte:?}");
/// })?;
/// event.add(None)?;
/// theirs.write_all(b"x")?;
/// base.dispatch()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the event stops it"]
#[doc(alias = "event")]
pub struct Event {
    pub(crate) owner: Owner,
}

/// Calls back after a while, once or again and again.
///
/// Dropping it frees it: the callback is dropped, at once or, if it is running, when it returns.
///
/// ```
/// use event_core::{EventBase, Timer};
/// use std::time::Duration;
///
/// let mut base = EventBase::new()?;
/// let mut left = 3;
/// let timer = Timer::new(&base, move |timer| {
///     left -= 1;
///     if left > 0 {
///         let _ = timer.add(Duration::from_millis(1)); // once more
///     }
/// })?;
/// timer.add(Duration::from_millis(1))?;
/// base.dispatch()?; // until no timer is armed any more
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the timer stops it"]
#[doc(alias = "evtimer_new")]
pub struct Timer {
    pub(crate) owner: Owner,
}

/// Calls back in the loop, as often as a signal was delivered; never in a signal handler's context.
///
/// Several loops of one process may watch the same signal: each gets it. The handler that was there before is put back
/// when the last one stops. Dropping it frees it, as with [`Event`].
///
/// ```
/// use event_core::{EventBase, Signal};
///
/// let mut base = EventBase::new()?;
/// let handle = base.handle();
/// let stop = Signal::new(&base, Signal::TERM, move |_| drop(handle.loopexit(None)))?;
/// stop.add()?;
/// # stop.activate(event_core::Ready::SIGNAL)?;
/// base.dispatch()?; // until it is told to stop
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the signal event stops it"]
#[doc(alias = "evsignal_new")]
pub struct Signal {
    pub(crate) owner: Owner,
}

/// What the three have in common: a slot, which dropping this value frees. Programs keep them by the million, so it has
/// no word of its own for what frees nothing: that is nobody's.
pub(crate) struct Owner {
    pub(crate) handle: LoopHandle,
    pub(crate) id: EventId,
}

const _: () = assert!(size_of::<Owner>() <= 8 + size_of::<usize>());

impl Drop for Owner {
    fn drop(&mut self) {
        if self.id != EventId::NOBODY {
            let _ = self.handle.free(self.id);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("id", &self.id).field("pending", &self.handle.pending(self.id)).finish()
    }
}

/// One owner of each type, which owns nothing and which the loop lends to one callback after the other: making one for
/// each call would cost more than the rest of the call.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) event: Event,
    pub(crate) timer: Timer,
    pub(crate) signal: Signal,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // What they were lent for last is not theirs.
        self.set_id(EventId::NOBODY);
    }
}

impl Lent {
    pub(crate) fn new(handle: &LoopHandle) -> Lent {
        let owner = || Owner { handle: handle.clone(), id: EventId::NOBODY };
        Lent {
            event: Event { owner: owner() },
            timer: Timer { owner: owner() },
            signal: Signal { owner: owner() },
        }
    }

    /// Makes them those of the event whose callback is called next.
    #[inline]
    pub(super) fn set_id(&mut self, id: EventId) {
        self.event.owner.id = id;
        self.timer.owner.id = id;
        self.signal.owner.id = id;
    }

    /// Enough for a callback that is called because of an fd.
    #[inline]
    pub(super) fn set_event_id(&mut self, id: EventId) {
        self.event.owner.id = id;
    }

    /// Enough for a callback that is called because of a timeout.
    #[inline]
    pub(super) fn set_timer_id(&mut self, id: EventId) {
        self.event.owner.id = id;
        self.timer.owner.id = id;
    }

    #[inline]
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.event.owner.handle
    }

    #[inline]
    pub(crate) fn id(&self) -> EventId {
        self.event.owner.id
    }
}
