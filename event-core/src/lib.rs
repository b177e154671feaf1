//! A single-threaded reactor in the manner of libevent: one thread, one loop, callbacks.
//!
//! A program makes an [`EventBase`], gives it things that call back, and runs it until nothing is left to wait for. Here
//! a TCP server sends every line back, hangs up on a client that is silent for half a minute, and stops on Ctrl-C:
//!
//! ```no_run
//! use event_core::{BufferEvent, Callbacks, Direction, Eol, EventBase, Listener, Signal, StreamEvent};
//! use std::time::Duration;
//!
//! struct Lines;
//!
//! impl Callbacks for Lines {
//!     fn on_read(&mut self, bev: &BufferEvent) {
//!         // A line that is not whole yet stays in the input.
//!         while let Some(mut line) = bev.input().readln(Eol::Crlf) {
//!             line.push(b'\n');
//!             let _ = bev.write(line);
//!         }
//!     }
//!
//!     fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
//!         println!("{event:?}"); // the end, an error, or the timeout
//!         bev.close_after_flush();
//!     }
//! }
//!
//! let mut base = EventBase::new()?;
//! Listener::bind(&base, "127.0.0.1:7777", |_, accepted| {
//!     let bev = accepted.into_stream();
//!     bev.set_timeouts(Some(Duration::from_secs(30)), None);
//!     bev.set_callbacks(Lines);
//!     let _ = bev.enable(Direction::READ); // from here on the loop keeps it
//! })?;
//! let handle = base.handle();
//! let stop = Signal::new(&base, Signal::INT, move |_| drop(handle.loopexit(None)))?;
//! stop.add()?;
//! base.dispatch()?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! # What there is
//!
//! | to | use |
//! |---|---|
//! | run a loop | [`EventBase`]; what callbacks capture of it is a [`LoopHandle`] |
//! | watch a file descriptor of your own | [`Event`] |
//! | call back later, or again and again | [`Timer`], [`LoopHandle::once`] |
//! | get a signal as a callback | [`Signal`] |
//! | accept connections | [`Listener`]; with [`ListenerOptions`]; on what systemd has opened: [`listen_fds`] |
//! | say where to listen or to connect | [`Address`], [`ToAddress`] |
//! | connect by name, with deadlines | [`BufferEvent::connect_hostname`], [`Connect`]; another [`Resolver`] |
//! | read and write a stream with buffers | [`BufferEvent`] with [`Callbacks`], and [`Buffer`] |
//! | encrypt, compress, frame: change what passes a stream | [`BufferEvent::filter`] with a [`Filter`] |
//! | bound how fast streams move bytes | [`BufferEvent::set_rate_limit`], [`RateLimitGroup`] |
//! | send messages to the loop from other threads | [`LoopHandle::mailbox`], [`Remote`] |
//! | test without sockets and real time | [`testing::Sim`] |
//! | serve HTTP | [the crate `event_http`](../event_http/index.html) |
//!
//! # What to know first
//!
//! - Nothing calls back inside a call of yours: callbacks run on the loop's own stack, one at a time. In each of them
//!   every call is allowed, such as freeing the object that calls.
//! - `Event`, `Timer` and `Signal` belong to whoever holds the value: dropping it stops it, and `detach` leaves it to the
//!   loop. Streams and listeners belong to the loop, and dropping a handle on one does nothing.
//! - The loop ends by itself when nothing is left that keeps it running. What is marked by `set_background`, mailboxes and
//!   remotes do not.
//! - What peers send is bounded: see [`BufferEvent::set_max`].
//!
//! # Examples
//!
//! Whole programs, one file each; `cargo run --example echo` runs one. [All of them](../examples/index.html) are in the
//! same repository; those that only serve HTTP are on [the front page of `event_http`](../event_http/index.html#examples).
//!
//! | example | what it shows |
//! |---|---|
//! | [`raw_fd`](../examples/raw_fd/index.html) | an fd of your own: a pipe to a child process |
//! | [`timer`](../examples/timer/index.html) | timers, once and again and again |
//! | [`signals`](../examples/signals/index.html) | signals as callbacks; Ctrl-C ends it |
//! | [`sigchld`](../examples/sigchld/index.html) | reaping child processes in the loop |
//! | [`mailbox`](../examples/mailbox/index.html) | messages from a thread to the loop |
//! | [`inside_another_loop`](../examples/inside_another_loop/index.html) | a loop of this library driven by another one |
//! | [`udp`](../examples/udp/index.html) | a UDP echo server on a socket of the standard library |
//! | [`echo`](../examples/echo/index.html) | a TCP echo server with buffered streams and back-pressure |
//! | [`client`](../examples/client/index.html) | its client, which connects again after a while when it is refused |
//! | [`proxy`](../examples/proxy/index.html) | a TCP proxy: joined streams with back-pressure |
//! | [`becat`](../examples/becat/index.html) | libevent's `becat` sample: a netcat, connecting by name or listening |
//! | [`le_proxy`](../examples/le_proxy/index.html) | libevent's `le-proxy` sample: a TCP proxy that closes both sides when one ends |
//! | [`compress`](../examples/compress/index.html) | a filter that compresses |
//! | [`chat`](../examples/chat/index.html) | a chat room: many clients, and slow readers are dropped |
//! | [`hello_world`](../examples/hello_world/index.html) | libevent's `hello-world` sample: greets every client and hangs up |
//! | [`event_read_fifo`](../examples/event_read_fifo/index.html) | libevent's `event-read-fifo` sample: prints what is written to a named pipe |
//! | [`signal_test`](../examples/signal_test/index.html) | libevent's `signal-test` sample: ends by itself at the third SIGINT |
//! | [`time_test`](../examples/time_test/index.html) | libevent's `time-test` sample: a tick every two seconds, by either kind of timer |
//! | [`watch_timing`](../examples/watch_timing/index.html) | libevent's `watch-timing` sample: how long handlers take and how late the loop wakes |
//! | [`line_server`](../examples/line_server/index.html) | a whole server: commands, timeouts, a worker thread, signals and a status page |
//!
//! # Where to look next
//!
//! - [`manual`]: a short book. [`manual::turn`] shows what the loop does and in which order; the rest is for those who
//!   know libevent: [a guide to porting](manual::porting), [every name](manual::from_libevent), [what programs stumble
//!   over](manual::traps), [what is different on purpose](manual::on_purpose). The search finds everything that has a
//!   counterpart by its C name, too: try `bufferevent_setcb`.
//! - [The design](../examples/design/index.html): how it is built, and why so (`DESIGN.md`).
#![doc(test(attr(deny(unused_assignments, unused_must_use))))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod address;
mod base;
mod buffer;
mod bufferevent;
mod clock;
mod common_timeout;
mod config;
mod error;
mod event;
mod fdmap;
#[cfg(test)]
mod few;
mod heap;
mod interest;
mod listener;
pub mod manual;
mod owned;
mod queue;
mod reactor;
mod remote;
mod resolver;
mod slots;
mod stats;
mod sys;
pub mod testing;
#[cfg(any(test, doctest))]
mod threads;
mod watcher;
mod workers;

// An item that is re-exported loses its aliases in rendered documentation: they stand here once more.
pub use address::{Address, Target, ToAddress};
#[doc(alias = "event_base")]
pub use base::EventBase;
#[doc(alias("evbuffer", "evbuffer_free"))]
pub use buffer::Buffer;
#[doc(alias = "evbuffer_eol_style")]
pub use buffer::Eol;
#[doc(alias("evbuffer_file_segment", "evbuffer_file_segment_free"))]
pub use buffer::FileSegment;
#[doc(alias = "evbuffer_cb_info")]
pub use bufferevent::BufferChange;
#[doc(alias = "bufferevent")]
pub use bufferevent::BufferEvent;
#[doc(alias = "bufferevent_filter_result")]
pub use bufferevent::Filtered;
#[doc(alias = "bufferevent_flush_mode")]
pub use bufferevent::FlushMode;
#[doc(alias = "ev_token_bucket_cfg")]
pub use bufferevent::RateLimit;
#[doc(alias = "bufferevent_rate_limit_group")]
pub use bufferevent::RateLimitGroup;
pub use bufferevent::{
    BufferGuard, Callbacks, Connect, Direction, Filter, NewSocket, Scoped, Spliced, StreamEvent, Transport,
};
pub use bytes::Bytes;
pub use common_timeout::CommonTimeout;
#[doc(alias("event_config", "event_config_new"))]
pub use config::Config;
#[doc(alias = "bufferevent_socket_get_dns_error")]
pub use error::ConnectError;
pub use error::{ConnectPhase, Error};
#[doc(alias = "event")]
pub use event::Event;
pub use event::{Signal, Timer};
#[doc(alias = "event_method_feature")]
pub use interest::Features;
pub use interest::{Ready, What};
#[doc(alias = "evconnlistener")]
pub use listener::Listener;
pub use listener::{Accepted, InheritedSocket, ListenerOptions, ListenerStats, listen_fds};
pub use owned::{Hold, Owned};
#[doc(alias = "event_base")]
pub use reactor::LoopHandle;
pub use reactor::{EventCount, EventId, EventInfo, LoopEnd, LoopFlags};
pub use remote::{Mailbox, Remote, SendError, Sender, Waker};
pub use resolver::{Answer, Family, Query, Resolver};
pub use stats::{Histogram, Stats};
pub use watcher::{PrepareInfo, Watcher};
