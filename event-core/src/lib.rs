//! A single-threaded reactor in the manner of libevent: one thread, one loop, callbacks.

mod base;
mod buffer;
mod bufferevent;
mod clock;
mod common_timeout;
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
mod stats;
mod sys;
pub mod testing;
#[cfg(any(test, doctest))]
mod threads;
mod watcher;

pub use base::EventBase;
pub use buffer::{Buffer, Eol};
pub use bufferevent::{BufferEvent, BufferGuard, Callbacks, Direction, Scoped, StreamEvent, Transport};
pub use bytes::Bytes;
pub use common_timeout::CommonTimeout;
pub use config::Config;
pub use error::Error;
pub use event::{Event, Signal, Timer};
pub use interest::{Features, Ready, What};
pub use listener::{Accepted, Listener};
pub use owned::{Hold, Owned};
pub use reactor::{EventCount, EventId, EventInfo, LoopEnd, LoopFlags, LoopHandle};
pub use remote::{Mailbox, Remote, SendError, Sender, Waker};
pub use stats::{Histogram, Stats};
pub use sys::Address;
pub use watcher::{PrepareInfo, Watcher};
