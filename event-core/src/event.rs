//! `Event`, `Timer` and `Signal`: unique owners of one slot of the loop each.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::common_timeout::CommonTimeout;
use crate::error::Error;
use crate::interest::{Ready, What};
use crate::reactor::{Callback, EventId, EventInfo, Kind, LoopHandle, Owner};

pub use crate::reactor::{Event, Signal, Timer};

impl Owner {
    fn new(handle: &LoopHandle, kind: Kind, source: i32, what: What, cb: Callback) -> Result<Owner, Error> {
        let id = handle.insert(kind, source, what, cb)?;
        Ok(Owner { handle: handle.clone(), id })
    }
}

macro_rules! owner_methods {
    ($type:ident) => {
        impl $type {
            /// Stops it: it is not watched, its timeout is off and a queued callback does not run. `add` starts it
            /// again. Stopping twice is harmless.
            ///
            /// # Errors
            /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
            #[doc(alias = "event_del")]
            #[doc(alias = "evtimer_del")]
            #[doc(alias = "evsignal_del")]
            #[doc(alias = "evuser_del")]
            pub fn del(&self) -> Result<(), Error> {
                self.owner.handle.del(self.owner.id)
            }

            /// What it waits for now, and the reasons it is queued with.
            #[doc(alias = "event_pending")]
            #[doc(alias = "evtimer_pending")]
            #[doc(alias = "evsignal_pending")]
            #[doc(alias = "evuser_pending")]
            pub fn pending(&self) -> Ready {
                self.owner.handle.pending(self.owner.id)
            }

            /// When its timeout passes; `None` without one.
            pub fn deadline(&self) -> Option<Instant> {
                self.owner.handle.deadline(self.owner.id)
            }

            /// Queues the callback for the next turn; see [`LoopHandle::activate`].
            ///
            /// # Errors
            /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
            #[doc(alias = "event_active")]
            pub fn activate(&self, ready: Ready) -> Result<(), Error> {
                self.owner.handle.activate(self.owner.id, ready)
            }

            /// Queues the callback for the pass that is running; see [`LoopHandle::activate_now`].
            ///
            /// # Errors
            /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
            #[doc(alias = "event_active")]
            #[doc(alias = "evuser_trigger")]
            pub fn activate_now(&self, ready: Ready) -> Result<(), Error> {
                self.owner.handle.activate_now(self.owner.id, ready)
            }

            /// Sets the priority; 0 is the most urgent.
            ///
            /// # Errors
            /// - `Error::Invalid` if there is no such priority, or it is queued to run.
            /// - `Error::Stale`, `Error::LoopGone`, `Error::Forked`.
            #[doc(alias = "event_priority_set")]
            pub fn set_priority(&self, priority: u8) -> Result<(), Error> {
                self.owner.handle.set_priority(self.owner.id, priority)
            }

            /// The priority; 0 is the most urgent. 0 if it was freed by its id.
            #[doc(alias = "event_get_priority")]
            pub fn priority(&self) -> u8 {
                self.owner.handle.priority(self.owner.id)
            }

            /// Whether its callback is what the loop runs right now.
            pub fn is_running(&self) -> bool {
                self.owner.handle.running_event() == Some(self.owner.id)
            }

            /// All there is to know of it; `None` if it was freed by its id.
            #[doc(alias = "event_get_assignment")]
            pub fn info(&self) -> Option<EventInfo> {
                self.owner.handle.event_info(self.owner.id)
            }

            /// Whether it keeps the loop running while it is added; it does at first.
            ///
            /// # Errors
            /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
            pub fn set_background(&self, background: bool) -> Result<(), Error> {
                self.owner.handle.set_background(self.owner.id, background)
            }

            /// The id, which may be copied and goes stale when this is freed.
            pub fn id(&self) -> EventId {
                self.owner.id
            }

            /// The loop it belongs to.
            #[doc(alias = "event_get_base")]
            pub fn handle(&self) -> &LoopHandle {
                &self.owner.handle
            }

            /// Leaves it to the loop, which keeps it until it is freed by its id or the loop ends.
            pub fn detach(mut self) -> EventId {
                std::mem::replace(&mut self.owner.id, EventId::NOBODY)
            }
        }
    };
}

owner_methods!(Event);

impl Event {
    /// Makes an event; `add` starts it. With an fd of -1 it is a timer or is only ever activated by hand.
    ///
    /// `cb` is called with the event and the reasons. A one-shot event is no longer added when its callback runs, so
    /// it may be added again there. A persistent one stays, its timeout already started anew.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "event_new")]
    #[doc(alias = "event_assign")]
    #[doc(alias = "evuser_new")]
    pub fn new(
        handle: &LoopHandle,
        fd: RawFd,
        what: What,
        cb: impl FnMut(&Event, Ready) + 'static,
    ) -> Result<Event, Error> {
        Ok(Event { owner: Owner::new(handle, Kind::Fd, fd, what, Event::wrap(cb))? })
    }

    /// Starts it; see [`LoopHandle::add`].
    ///
    /// # Errors
    /// - `Error::Io` with the kernel's errno if it refuses the fd: `EPERM` for a regular file on epoll.
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_add")]
    pub fn add(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.owner.handle.add(self.owner.id, timeout)
    }

    /// Starts it with a common timeout; see [`LoopHandle::add_common`].
    ///
    /// # Errors
    /// - `Error::Invalid` if the common timeout is of another loop.
    /// - Those of [`add`](Self::add).
    pub fn add_common(&self, timeout: CommonTimeout) -> Result<(), Error> {
        self.owner.handle.add_common(self.owner.id, timeout)
    }

    /// The fd; `None` if it has none, or was freed by its id.
    #[doc(alias = "event_get_fd")]
    pub fn fd(&self) -> Option<RawFd> {
        self.info()?.fd
    }

    /// What it waits for when it is added, and how; nothing if it was freed by its id.
    #[doc(alias = "event_get_events")]
    pub fn what(&self) -> What {
        self.info().map_or(What::empty(), |info| info.what)
    }

    /// Takes the timeout away and leaves the rest as it is.
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_remove_timer")]
    pub fn remove_timer(&self) -> Result<(), Error> {
        self.owner.handle.remove_timer(self.owner.id)
    }

    /// Replaces the callback. In the callback itself, the running one is dropped when it returns.
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`.
    pub fn set_callback(&self, cb: impl FnMut(&Event, Ready) + 'static) -> Result<(), Error> {
        self.owner.handle.set_callback(self.owner.id, Event::wrap(cb))
    }

    fn wrap(mut cb: impl FnMut(&Event, Ready) + 'static) -> Callback {
        Callback::User(Box::new(move |lent, ready, _| cb(&lent.event, ready)))
    }
}

owner_methods!(Timer);

impl Timer {
    /// Makes a one-shot timer; `add` starts it, also in its own callback.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "evtimer_new")]
    #[doc(alias = "evtimer_assign")]
    pub fn new(handle: &LoopHandle, cb: impl FnMut(&Timer) + 'static) -> Result<Timer, Error> {
        Timer::with(handle, What::empty(), cb)
    }

    /// Makes a timer that starts itself anew, counted from when it was due: it does not drift. After a stall it fires
    /// once, not once for each time missed.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "EV_PERSIST")]
    pub fn persistent(handle: &LoopHandle, cb: impl FnMut(&Timer) + 'static) -> Result<Timer, Error> {
        Timer::with(handle, What::PERSIST, cb)
    }

    /// Starts it, or starts it anew: it fires when `after` has passed from now, never earlier. A timer of no length
    /// fires in the next turn. A callback that starts more than sixteen: see [`LoopHandle::add`].
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evtimer_add")]
    pub fn add(&self, after: Duration) -> Result<(), Error> {
        self.owner.handle.add(self.owner.id, Some(after))
    }

    /// Starts it with a common timeout; see [`LoopHandle::add_common`].
    ///
    /// # Errors
    /// - `Error::Invalid` if the common timeout is of another loop.
    /// - Those of [`add`](Self::add).
    pub fn add_common(&self, timeout: CommonTimeout) -> Result<(), Error> {
        self.owner.handle.add_common(self.owner.id, timeout)
    }

    /// Replaces the callback. In the callback itself, the running one is dropped when it returns.
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`.
    pub fn set_callback(&self, cb: impl FnMut(&Timer) + 'static) -> Result<(), Error> {
        self.owner.handle.set_callback(self.owner.id, Timer::wrap(cb))
    }

    fn with(handle: &LoopHandle, what: What, cb: impl FnMut(&Timer) + 'static) -> Result<Timer, Error> {
        Ok(Timer { owner: Owner::new(handle, Kind::Fd, -1, what, Timer::wrap(cb))? })
    }

    fn wrap(mut cb: impl FnMut(&Timer) + 'static) -> Callback {
        Callback::User(Box::new(move |lent, _, _| cb(&lent.timer)))
    }
}

owner_methods!(Signal);

/// The signals that programs commonly watch, by their usual names; any other number works too.
impl Signal {
    /// A child has stopped or ended.
    pub const CHLD: i32 = libc::SIGCHLD;
    /// The terminal has hung up; servers commonly reload.
    pub const HUP: i32 = libc::SIGHUP;
    /// Interrupt from the keyboard.
    pub const INT: i32 = libc::SIGINT;
    /// Termination was asked for.
    pub const TERM: i32 = libc::SIGTERM;
    /// The program's own.
    pub const USR1: i32 = libc::SIGUSR1;
    /// The program's own.
    pub const USR2: i32 = libc::SIGUSR2;
}

impl Signal {
    /// Makes a signal event; `add` starts it. It persists.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    #[doc(alias = "evsignal_new")]
    #[doc(alias = "evsignal_assign")]
    pub fn new(handle: &LoopHandle, signal: i32, cb: impl FnMut(&Signal) + 'static) -> Result<Signal, Error> {
        let owner = Owner::new(handle, Kind::Signal, signal, What::PERSIST, Signal::wrap(cb))?;
        Ok(Signal { owner })
    }

    /// Starts it.
    ///
    /// # Errors
    /// - `Error::Io` with `EINVAL` for a signal that does not exist or cannot be caught.
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evsignal_add")]
    pub fn add(&self) -> Result<(), Error> {
        self.owner.handle.add(self.owner.id, None)
    }

    /// The signal's number; `None` if it was freed by its id.
    #[doc(alias = "event_get_signal")]
    pub fn signal(&self) -> Option<i32> {
        self.info()?.signal
    }

    /// Replaces the callback. In the callback itself, the running one is dropped when it returns.
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed by its id; `Error::LoopGone`.
    pub fn set_callback(&self, cb: impl FnMut(&Signal) + 'static) -> Result<(), Error> {
        self.owner.handle.set_callback(self.owner.id, Signal::wrap(cb))
    }

    fn wrap(mut cb: impl FnMut(&Signal) + 'static) -> Callback {
        Callback::User(Box::new(move |lent, _, _| cb(&lent.signal)))
    }
}
