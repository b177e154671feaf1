//! How a loop is made: which backends are avoided, which features it must have.

use std::rc::Rc;

use crate::error::Error;
use crate::interest::Features;
use crate::sys::{self, Sys};

/// Restricts the choice of backend.
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
}

impl Config {
    /// Any backend will do; `EVENT_NOEPOLL` and the like in the environment are heeded.
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

    /// Makes the best kernel that this allows.
    pub(crate) fn kernel(&self) -> Result<Rc<dyn Sys>, Error> {
        let method = sys::METHODS.iter().find(|method| self.accepts(method.name, method.features));
        let method = method.ok_or(Error::Invalid("no backend is left to choose"))?;
        Ok((method.make)()?)
    }

    fn accepts(&self, name: &str, features: Features) -> bool {
        if self.avoid.iter().any(|avoided| avoided == name) || !features.contains(self.features) {
            return false;
        }
        self.ignore_env || std::env::var_os(format!("EVENT_NO{}", name.to_uppercase())).is_none()
    }
}
