//! A short book about this crate. Prose, tables and examples; no code of its own.

pub mod from_libevent;
