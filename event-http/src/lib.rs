//! HTTP/1.1 on event-core, in the manner of evhttp.
//!
//! A [`Server`] lives on an event loop and calls a handler for each whole request; the handler answers it at once, keeps
//! it for later, or hands it to another thread:
//!
//! ```no_run
//! use event_core::{EventBase, Signal};
//! use event_http::Server;
//! use std::time::Duration;
//!
//! let mut base = EventBase::new()?;
//! let http = Server::start(&base, "127.0.0.1", 8081)?;
//! http.set_gencb(|req| req.send_reply(200, "OK", "Hello!\n")); // every path that has no handler of its own
//! http.set_cb("/query", |req| {
//!     let query = req.query().unwrap_or("").to_owned();
//!     req.send_reply(200, "OK", query)
//! })?;
//!
//! // Ctrl-C: answers that are out are finished, for at most ten seconds; then nothing keeps the loop running.
//! let stop = Signal::new(&base, Signal::INT, move |_| http.shutdown(Duration::from_secs(10)))?;
//! stop.add()?;
//! stop.set_background(true)?;
//! base.dispatch()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What there is
//!
//! | to | use |
//! |---|---|
//! | choose the handler by path, pattern, method or host | [`Server::set_cb`], [`Server::route`], [`Server::add_virtual_host`] |
//! | answer in one piece, or with an error page | [`Request::send_reply`], [`Request::send_error`], [`Server::set_errorcb`] |
//! | answer piece by piece, as fast as the client reads | [`Request::send_reply_start`], [`Reply`] |
//! | answer from another thread | [`Request::defer`], [`Deferred`] |
//! | look at a request before its body is read | [`Server::set_header_cb`], [`Server::route_early`] |
//! | take a body of any size | [`Request::stream_body`] |
//! | speak another protocol | [`Request::upgrade`] |
//! | hear that the client has left, or that the answer has | [`Request::on_client_gone`], [`Request::on_complete`] |
//! | listen on more, or on what is there | [`Server::bind`], [`Server::accept_socket`], [`Server::bind_listener`] |
//! | take a target, a URI or a query apart, decode and encode, escape HTML | [`Request::uri`], [`Request::query_pairs`], [`Uri`], [`uridecode`], [`uriencode`], [`htmlescape`] |
//! | bound sizes and times | [`Limits`], [`Server::set_limits`], [`Server::set_max_connections`] |
//! | stop | [`Server::shutdown`], [`Server::free`] |
//!
//! # What to know first
//!
//! - Answering takes the request, so that it is answered once. One that is dropped unanswered is answered 500.
//! - A handler may return a `Result`; an error is logged (crate `log`). A handler that panics is logged, too, and stays.
//! - Everything that a client sends or does not read is bounded from the start: [`Limits`] tells by what.
//! - What RFC 9110 and 9112 let a server refuse is refused, with the status that they name. The one leniency is
//!   [`Server::set_lenient_targets`], which servers of web pages want: browsers send `?a[]=1` as it is.
//! - Requests on one connection are answered in their order, whatever order the program answers them in.
//!
//! - An [`Error`] says by itself what failed, and in the form `{error:#}` why. The address is the program's to add, and a
//!   `main` that returns the error prints the form for debugging instead:
//!
//! ```
//! # let base = event_core::EventBase::new()?;
//! # let first = event_http::Server::new(&base)?;
//! # let address = first.bind("127.0.0.1:0")?.local_address()?.to_string();
//! # let http = event_http::Server::new(&base)?;
//! if let Err(error) = http.bind(&address) {
//!     eprintln!("{address}: {error:#}"); // ..: cannot listen: Address already in use (os error 98)
//! #   assert!(format!("{error:#}").contains("in use"), "{error:#}");
//! }
//! # Ok::<(), event_http::Error>(())
//! ```
//!
//! # Examples
//!
//! Whole programs, one file each; `cargo run --example generic_handler` runs one. [All of them](../examples/index.html) are
//! in the same repository.
//!
//! | example | what it shows |
//! |---|---|
//! | [`generic_handler`](../examples/generic_handler/index.html) | the shortest web server, with a graceful stop |
//! | [`worker_thread`](../examples/worker_thread/index.html) | a handler that has another thread answer |
//! | [`http_server`](../examples/http_server/index.html) | libevent's `http-server` sample: the files of a directory |
//! | [`line_server`](../examples/line_server/index.html) | a whole server: commands, timeouts, a worker thread, signals and a status page |
//!
//! # Where to look next
//!
//! - [`manual`]: programs on evhttp and how they are written here.
//! - [The crate `event_core`](../event_core/index.html): the loop, timers, signals and streams;
//!   [its manual](../event_core/manual/index.html) has the names of libevent, a guide to porting and the loop's turn.
//! - [The design](../examples/design/index.html): how it is built, and why so (`DESIGN.md`).
#![doc(test(attr(deny(unused_assignments, unused_must_use))))]
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod conn;
mod date;
mod driver;
mod encode;
mod error;
#[cfg(test)]
mod few;
mod framing;
mod head;
mod limits;
pub mod manual;
mod parse;
mod server;
mod uri;

// An item that is re-exported loses its aliases in rendered documentation: they stand here once more.
pub use error::Error;
#[doc(alias = "evkeyvalq")]
pub use head::Headers;
#[doc(alias = "evhttp_cmd_type")]
pub use head::Method;
pub use head::{HeaderValue, MethodSet, Version};
pub use limits::Limits;
#[doc(alias = "evhttp_bound_socket")]
pub use server::BoundSocket;
#[doc(alias = "evhttp_request")]
pub use server::Request;
#[doc(alias = "evhttp")]
pub use server::Server;
pub use server::{
    BodyEvent, BodyReader, Completion, Deferred, DeferredReply, ErrorPage, Gone, HandlerReturn, Overload,
    Reply, VirtualHost,
};
#[doc(alias = "evhttp_uri")]
pub use uri::Uri;
#[doc(alias = "evhttp_decode_uri")]
pub use uri::decode_uri;
#[doc(alias = "evhttp_encode_uri")]
pub use uri::encode_uri;
#[doc(alias = "evhttp_htmlescape")]
pub use uri::htmlescape;
#[doc(alias("evhttp_parse_query_str", "evhttp_parse_query_str_flags"))]
pub use uri::parse_query_str;
#[doc(alias = "evhttp_uridecode")]
pub use uri::uridecode;
#[doc(alias = "evhttp_uriencode")]
pub use uri::uriencode;
pub use uri::{Plus, QueryFlags, QueryPair, UriFlags, query_pairs, uridecode_str};
