//! Objects of other crates that a loop owns, and what keeps a loop running without an event of its own.

use std::fmt;
use std::rc::Rc;

use crate::error::Error;
use crate::interest::{Ready, What};
use crate::reactor::{Callback, EventId, Kind, LoopHandle, Source};

/// An object that is built on the reactor, has callbacks of its users, and lives as long as the loop: what a server is.
///
/// The loop calls it with nothing borrowed, on a fresh stack.
pub trait Owned {
    /// The object was activated, or its timeout passed: [`LoopHandle::activate`] and [`LoopHandle::add`] work on the id
    /// that [`LoopHandle::own`] gave.
    fn run(self: Rc<Self>, handle: &LoopHandle, ready: Ready);

    /// The `EventBase` is being dropped, or `run` has panicked, which ends the object: every callback of the object's
    /// users is to be moved out and dropped, which is what cuts cycles.
    fn loop_gone(self: Rc<Self>);
}

struct Registered(Rc<dyn Owned>);

impl Source for Registered {
    fn ready(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        self.0.clone().run(handle, ready);
    }

    fn is_for_calls(&self) -> bool {
        true
    }

    /// Whoever frees it has its reasons and its own way.
    fn let_go(self: Rc<Self>) {}

    fn teardown(self: Rc<Self>) {
        self.0.clone().loop_gone();
    }
}

/// Keeps the loop running while it exists, as an added event does. Dropping it lets go.
#[must_use = "dropping it lets the loop end"]
pub struct Hold {
    handle: LoopHandle,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.handle.keep_less();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

impl LoopHandle {
    /// Makes the loop the owner of an object, which does not keep it running. [`free`](Self::free) lets the object go
    /// without calling it.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked` after a fork.
    pub fn own(&self, object: Rc<dyn Owned>) -> Result<EventId, Error> {
        let source = Callback::Source(Rc::new(Registered(object)));
        let id = self.insert(Kind::Fd, -1, What::empty(), source)?;
        self.set_background(id, true)?;
        Ok(id)
    }

    /// Keeps the loop running until the result is dropped.
    pub fn hold(&self) -> Hold {
        self.keep_more();
        Hold { handle: self.clone() }
    }
}
