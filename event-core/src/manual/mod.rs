//! A short book about this crate. Prose, tables and examples; no code of its own.
//!
//! - [`turn`]: what the loop does in one turn, and in which order, with a chart.
//! - [`porting`]: from a program in C on libevent to one in Rust, concept by concept, the two side by side.
//! - [`from_libevent`]: every name of libevent and what to write in its place.
//! - [`traps`]: what programs in C rely on without knowing, and what becomes of each here.
//! - [`on_purpose`]: what is different from libevent, and why.
//!
//! HTTP has [a manual of its own](../../event_http/manual/index.html).

pub mod from_libevent;
pub mod on_purpose;
pub mod porting;
pub mod traps;
pub mod turn;
