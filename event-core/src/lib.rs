//! A single-threaded reactor in the manner of libevent: one thread, one loop, callbacks.

mod base;
mod buffer;
mod bufferevent;
mod clock;
mod config;
mod error;
mod event;
mod fdmap;
mod heap;
mod interest;
mod listener;
pub mod manual;
mod owned;
mod queue;
mod reactor;
mod remote;
mod slots;
mod sys;
pub mod testing;
#[cfg(any(test, doctest))]
mod threads;

pub use base::EventBase;
pub use buffer::{Buffer, Eol};
pub use bufferevent::{BufferEvent, BufferGuard, Callbacks, Direction, Scoped, StreamEvent, Transport};
pub use bytes::Bytes;
pub use config::Config;
pub use error::Error;
pub use event::{Event, Signal, Timer};
pub use interest::{Features, Ready, What};
pub use listener::{Accepted, Listener};
pub use owned::{Hold, Owned};
pub use reactor::{EventId, LoopEnd, LoopFlags, LoopHandle};
pub use remote::{Mailbox, Remote, SendError, Sender, Waker};
pub use sys::Address;
