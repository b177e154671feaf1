//! HTTP/1.1 on event-core, in the manner of evhttp.
#![forbid(unsafe_code)]

mod conn;
mod date;
mod encode;
mod error;
mod framing;
mod head;
mod limits;
mod parse;

pub use error::Error;
pub use head::{HeaderValue, Headers, Method, MethodSet, Version};
pub use limits::Limits;
