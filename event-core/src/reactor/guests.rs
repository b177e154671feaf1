//! What rooms above keep with a loop: one of a type, made when it is first asked for.

use std::any::Any;
use std::rc::Rc;

use crate::error::Error;
use crate::reactor::LoopHandle;

/// Something that lives as long as its loop.
pub(crate) trait Guest: Any {
    /// The process is the child of a fork, and the loop has a kernel set of its own again.
    fn after_fork(&self) {}

    /// The loop ends.
    fn teardown(&self);
}

impl LoopHandle {
    /// The loop's guest of a type, if there is one.
    pub(crate) fn find_guest<G: Guest>(&self) -> Option<Rc<G>> {
        let guests = self.reactor.guests.borrow();
        guests.iter().find_map(|guest| {
            let guest: Rc<dyn Any> = guest.clone();
            guest.downcast().ok()
        })
    }

    /// The loop's guest of a type, which is made if there is none.
    pub(crate) fn guest<G: Guest>(
        &self,
        make: impl FnOnce() -> Result<Rc<G>, Error>,
    ) -> Result<Rc<G>, Error> {
        if let Some(guest) = self.find_guest() {
            return Ok(guest);
        }
        self.check()?;
        let guest = make()?;
        self.reactor.guests.borrow_mut().push(guest.clone());
        Ok(guest)
    }

    pub(super) fn guests_after_fork(&self) {
        let guests = self.reactor.guests.borrow().clone();
        guests.iter().for_each(|guest| guest.after_fork());
    }
}
