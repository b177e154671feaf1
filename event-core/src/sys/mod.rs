//! The kernel side: the only place with `unsafe`, and the only place that knows which system this is.

mod calls;
mod faulty;
mod seam;
mod sim;

pub use calls::{Call, Calls};
pub(crate) use faulty::{Fault, Faulty, Plan};
pub use seam::Address;
pub(crate) use seam::{FdKind, ListenOptions, Reported, Sys, WAKE_TAG, Wake};
pub(crate) use sim::{By, ObjId, Sim, Step, World};
