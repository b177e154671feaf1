//! The kernel side: the only place with `unsafe`, and the only place that knows which system this is.
//!
//! A backend (`epoll`, `kqueue`, `poll`) is what differs in waiting; `common` adds what every real kernel gives: the clock,
//! sockets, the waker and signals. `linux` and `posix` offer the same few calls, and one of them is `os`. The tests
//! compile `posix` and `kqueue` on Linux too, so that they are run before another system runs them.

mod calls;
mod common;
#[cfg(target_os = "linux")]
mod epoll;
mod errno;
mod faulty;
mod fetch;
mod fork;
#[cfg(any(test, not(target_os = "linux")))]
mod kqueue;
#[cfg(target_os = "linux")]
mod linux;
mod listening;
// The one list of the systems with kqueue(2), which have a table of backends, and the calls for it, of their own. A tag
// travels there in a pointer, so it must fit into one.
#[cfg_attr(
    all(
        target_pointer_width = "64",
        any(
            target_vendor = "apple",
            target_os = "dragonfly",
            target_os = "freebsd",
            target_os = "netbsd",
            target_os = "openbsd"
        )
    ),
    path = "kqueue/system.rs"
)]
mod methods;
mod net;
mod poll;
#[cfg(any(test, not(target_os = "linux")))]
mod posix;
mod reported;
mod seam;
mod sig;
mod sigpipe;
mod sim;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
mod wake;

#[cfg(target_os = "linux")]
use linux as os;
#[cfg(not(target_os = "linux"))]
use posix as os;

pub use calls::{Call, Calls};
pub(crate) use faulty::{Fault, Faulty, Plan};

pub(crate) use fetch::prefetch;
pub(crate) use fork::{fork_count, forks};
pub(crate) use listening::inherited;
pub(crate) use methods::METHODS;
pub(crate) use seam::{Address, FdKind, FileId, ListenOptions, Reported, Sys, WAKE_TAG, Wake};
pub use sim::Reach;
pub(crate) use sim::{By, ObjId, Sim, Step, World};
