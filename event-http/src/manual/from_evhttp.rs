#![doc = include_str!("from_evhttp.md")]

#[cfg(doc)]
use crate::{BodyReader, Deferred, Error, Limits, Reply, Request, Server};
