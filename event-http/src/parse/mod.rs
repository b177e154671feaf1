//! Bytes to heads, targets, hosts and chunk sizes. Everything here is pure.

mod authority;
mod chunk;
mod head;
mod plain;
mod target;
mod trailer;

pub(crate) use authority::{is_host as is_valid_host, is_valid as is_valid_authority};
pub(crate) use chunk::chunk_line;
#[cfg(test)]
pub(crate) use head::field_lines;
pub(crate) use head::{Scan, Section, request_head};
pub(crate) use plain::{Bearing, Plain, is_again, plain_head};
pub(crate) use trailer::trailers;
