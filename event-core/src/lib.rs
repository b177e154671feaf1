//! A single-threaded reactor in the manner of libevent: one thread, one loop, callbacks.

mod buffer;
mod clock;
mod error;
mod interest;
mod sys;
pub mod testing;

pub use buffer::{Buffer, Eol};
pub use bytes::Bytes;
pub use error::Error;
pub use interest::{Features, Ready, What};
pub use sys::Address;
