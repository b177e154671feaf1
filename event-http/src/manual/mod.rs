//! The manual: programs on evhttp, and how they are written here.
//!
//! - [`from_evhttp`]: the C lines and the Rust lines side by side.
//! - [Every name of libevent](../../event_core/manual/from_libevent/index.html#httph-http_compath), evhttp's included.
//! - [The rest of the manual](../../event_core/manual/index.html): the loop, events, streams, threads, and
//!   [what programs stumble over](../../event_core/manual/traps/index.html).

pub mod from_evhttp;
