//! How a loop is made: on which backend, and how long a batch of callbacks may last.

use std::rc::Rc;
use std::time::Duration;

use crate::error::Error;
use crate::interest::Features;
use crate::reactor::{BatchLimit, LoopHandle};
use crate::sys::{self, Sys};

/// Restricts the choice of backend, and sets what is set before a loop runs.
///
/// Unless [`ignore_env`](Self::ignore_env) is asked for, the environment has a say, too: `EVENT_NOEPOLL`, `EVENT_NOPOLL`
/// and so on leave a backend out, and with `EVENT_SHOW_METHOD` the choice is logged through `log`, at level info.
///
/// ```
/// use event_core::{Config, EventBase};
///
/// let base = EventBase::with_config(Config::new().avoid_method("epoll"))?;
/// assert_ne!(base.method(), "epoll");
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias = "event_config")]
#[doc(alias = "event_config_new")]
pub struct Config {
    avoid: Vec<String>,
    features: Features,
    ignore_env: bool,
    batch: Option<BatchLimit>,
    no_cache_time: bool,
}

impl Config {
    /// Any backend will do, and the environment is heeded.
    pub fn new() -> Config {
        Config::default()
    }

    /// Leaves a backend out by its name. Unknown names are accepted.
    #[doc(alias = "event_config_avoid_method")]
    pub fn avoid_method(mut self, name: &str) -> Config {
        self.avoid.push(name.to_owned());
        self
    }

    /// Takes only a backend that has all of these.
    #[doc(alias = "event_config_require_features")]
    pub fn require_features(mut self, features: Features) -> Config {
        self.features |= features;
        self
    }

    /// Does not look at the environment.
    #[doc(alias = "EVENT_BASE_FLAG_IGNORE_ENV")]
    pub fn ignore_env(mut self) -> Config {
        self.ignore_env = true;
        self
    }

    /// Has the loop look at its fds and timers again after `time` or after so many `callbacks`, whichever is first,
    /// though more of the same priority are queued. Those stay queued; something more urgent that has become ready
    /// runs before them. It holds for callbacks of priority `from` and of less urgent ones, so with 1 the most urgent,
    /// which nothing can overtake, run to their end. A later call replaces an earlier one.
    ///
    /// At least one callback runs in a turn, and none is interrupted. Without this a batch runs until its queue is empty.
    /// With a time the clock is read after each callback.
    ///
    /// ```
    /// use event_core::{Config, EventBase};
    /// use std::time::Duration;
    ///
    /// let config = Config::new().max_dispatch_interval(Some(Duration::from_millis(5)), Some(100), 1);
    /// let base = EventBase::with_config(config)?;
    /// base.priority_init(2)?;
    /// # Ok::<(), event_core::Error>(())
    /// ```
    #[doc(alias = "event_config_set_max_dispatch_interval")]
    pub fn max_dispatch_interval(
        mut self,
        time: Option<Duration>,
        callbacks: Option<usize>,
        from: u8,
    ) -> Config {
        let limit = BatchLimit { time, callbacks, from_priority: from };
        self.batch = (time.is_some() || callbacks.is_some()).then_some(limit);
        self
    }

    /// Has [`LoopHandle::now`] and [`LoopHandle::elapsed`] read the clock every time, in callbacks too. Streams measure
    /// their timeouts so as well.
    #[doc(alias = "EVENT_BASE_FLAG_NO_CACHE_TIME")]
    pub fn no_cache_time(mut self) -> Config {
        self.no_cache_time = true;
        self
    }

    /// Makes the best kernel that this allows.
    pub(crate) fn kernel(&self) -> Result<Rc<dyn Sys>, Error> {
        let method = sys::METHODS.iter().find(|method| self.accepts(method.name, method.features));
        let method = method.ok_or(Error::Invalid("no backend is left to choose"))?;
        let kernel = (method.make)()?;
        if !self.ignore_env && std::env::var_os("EVENT_SHOW_METHOD").is_some() {
            log::info!("the event loop uses {}", method.name);
        }
        Ok(kernel)
    }

    /// Sets what is not a matter of the kernel.
    pub(crate) fn apply(&self, handle: &LoopHandle) {
        handle.set_batch_limit(self.batch);
        handle.set_no_cache_time(self.no_cache_time);
    }

    fn accepts(&self, name: &str, features: Features) -> bool {
        if self.avoid.iter().any(|avoided| avoided == name) || !features.contains(self.features) {
            return false;
        }
        self.ignore_env || std::env::var_os(format!("EVENT_NO{}", name.to_uppercase())).is_none()
    }
}
