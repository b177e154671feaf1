//! The kernel side: the only place with `unsafe`, and the only place that knows which system this is.
//!
//! A backend (`epoll`, `poll`) is what differs in waiting; `common` adds what every real kernel gives: the clock,
//! sockets, the waker and signals. `linux` and `posix` offer the same few calls, and one of them is `os`. The tests
//! compile `posix` on Linux too, so that its calls are run before another system runs them.

mod calls;
mod common;
#[cfg(target_os = "linux")]
mod epoll;
mod errno;
mod faulty;
mod fork;
#[cfg(target_os = "linux")]
mod linux;
mod net;
mod poll;
#[cfg(any(test, not(target_os = "linux")))]
mod posix;
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
pub use seam::Address;

pub(crate) use common::METHODS;
pub(crate) use fork::fork_count;
pub(crate) use seam::{FdKind, FileId, ListenOptions, Reported, Sys, WAKE_TAG, Wake};
pub(crate) use sim::{By, ObjId, Sim, Step, World};
