//! The unique owner of a loop: the only thing that runs it.

use std::ops::Deref;

use crate::config::Config;
use crate::error::Error;
use crate::reactor::{Lent, LoopEnd, LoopFlags, LoopHandle};
use crate::sys;

/// A loop: it owns its events' callbacks and calls them, one at a time, on the thread that runs it.
///
/// Everything but running, forking and dropping is done through [`LoopHandle`], to which it derefs; callbacks capture
/// a handle. Dropping the base drops every callback, closes every stream and listener that the loop owns, and makes
/// later calls on handles fail with [`Error::LoopGone`].
///
/// ```
/// use event_core::{EventBase, LoopEnd, Timer};
/// use std::time::Duration;
///
/// let mut base = EventBase::new()?;
/// let timer = Timer::new(&base, |_| println!("a millisecond later"))?;
/// timer.add(Duration::from_millis(1))?;
/// assert_eq!(base.dispatch()?, LoopEnd::Empty);
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "event_base")]
pub struct EventBase {
    handle: LoopHandle,
    /// What callbacks are shown.
    lent: Lent,
}

impl EventBase {
    /// Makes a loop on the best backend of this system.
    ///
    /// # Errors
    /// - `Error::Io` if the kernel gives no descriptor for it.
    /// - `Error::Invalid` if the environment leaves no backend.
    #[doc(alias = "event_base_new")]
    pub fn new() -> Result<EventBase, Error> {
        EventBase::with_config(Config::new())
    }

    /// Makes a loop on the best backend that the configuration allows.
    ///
    /// # Errors
    /// - `Error::Invalid` if it allows none.
    /// - `Error::Io` if the kernel gives no descriptor for it.
    #[doc(alias = "event_base_new_with_config")]
    pub fn with_config(config: Config) -> Result<EventBase, Error> {
        EventBase::configured(config.kernel()?, &config)
    }

    /// On a kernel that was made, whatever the configuration says of the choice.
    pub(crate) fn configured(sys: std::rc::Rc<dyn sys::Sys>, config: &Config) -> Result<EventBase, Error> {
        let base = EventBase::on(sys)?;
        config.apply(&base);
        Ok(base)
    }

    pub(crate) fn on(sys: std::rc::Rc<dyn sys::Sys>) -> Result<EventBase, Error> {
        let handle = LoopHandle::new(sys)?;
        let lent = Lent::new(&handle);
        Ok(EventBase { handle, lent })
    }

    /// The names of all backends of this build, best first.
    #[doc(alias = "event_get_supported_methods")]
    pub fn supported_methods() -> impl Iterator<Item = &'static str> {
        sys::METHODS.iter().map(|method| method.name)
    }

    /// Runs until nothing is left that keeps the loop running, or until it is told to stop.
    ///
    /// A panic in a callback ends the event it belongs to, as if freed, and comes out of this call; the next call goes
    /// on where it stopped.
    ///
    /// # Errors
    /// - `Error::Forked` in the child of a fork, before `after_fork`.
    /// - `Error::Io` if the kernel refuses to wait.
    #[doc(alias = "event_base_dispatch")]
    pub fn dispatch(&mut self) -> Result<LoopEnd, Error> {
        self.run(LoopFlags::empty())
    }

    /// Like [`dispatch`](Self::dispatch), for one turn or without waiting, as the flags say.
    ///
    /// # Errors
    /// As `dispatch`.
    #[doc(alias = "event_base_loop")]
    pub fn run(&mut self, flags: LoopFlags) -> Result<LoopEnd, Error> {
        self.handle.run(&mut self.lent, flags)
    }

    /// Makes the loop usable in the child of a fork: a kernel set of its own, with everything added again. The parent's
    /// loop is not touched. Until it is called, every call gives `Error::Forked`.
    ///
    /// Safe in the parent too. Fork while no other thread uses a `Remote` or `Sender` of this loop: a lock that such a
    /// thread holds at that moment stays locked in the child.
    ///
    /// # Errors
    /// - `Error::Io` if the kernel gives no descriptors.
    #[doc(alias = "event_reinit")]
    pub fn after_fork(&mut self) -> Result<(), Error> {
        self.handle.after_fork()
    }

    /// A handle for callbacks to capture.
    pub fn handle(&self) -> LoopHandle {
        self.handle.clone()
    }
}

impl Deref for EventBase {
    type Target = LoopHandle;

    fn deref(&self) -> &LoopHandle {
        &self.handle
    }
}

impl Drop for EventBase {
    fn drop(&mut self) {
        self.handle.teardown();
    }
}
