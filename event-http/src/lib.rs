//! HTTP/1.1 on event-core, in the manner of evhttp.
#![forbid(unsafe_code)]

mod conn;
mod date;
mod driver;
mod encode;
mod error;
mod framing;
mod head;
mod limits;
mod parse;
mod server;

pub use error::Error;
pub use head::{HeaderValue, Headers, Method, MethodSet, Version};
pub use limits::Limits;
pub use server::{Completion, Deferred, DeferredReply, Gone, HandlerReturn, Reply, Request, Server};
