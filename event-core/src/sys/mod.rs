//! The kernel side: the only place with `unsafe`, and the only place that knows which system this is.

mod seam;

pub use seam::Address;
pub(crate) use seam::{FdKind, ListenOptions, Reported, Sys, WAKE_TAG, Wake};
