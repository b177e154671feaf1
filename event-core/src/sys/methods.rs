//! The table of backends of the systems that have no kqueue(2).

use super::common::Method;
#[cfg(target_os = "linux")]
use super::epoll::Epoll;
use super::poll::Poll;

/// The backends of this system, best first: libevent's `eventops[]`.
pub(crate) static METHODS: &[Method] = &[
    #[cfg(target_os = "linux")]
    Method::of::<Epoll>(),
    Method::of::<Poll>(),
];
