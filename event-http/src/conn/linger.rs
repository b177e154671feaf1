//! Bounds the input that is thrown away after the last answer (RFC 9112 section 9.6).

use std::time::Duration;

use crate::limits::Limits;

/// What a connection that was answered for the last time may still send before it is closed.
///
/// A socket that is closed while input waits is reset, and the reset can overtake the answer. So the output is shut
/// down, and input is read and dropped until the peer closes or one of two bounds is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    until: Option<Duration>,
    left: u64,
}

impl Linger {
    /// Begins at loop time `now`.
    pub(crate) fn new(now: Duration, limits: &Limits) -> Linger {
        Linger {
            until: limits.linger_timeout.map(|timeout| now.saturating_add(timeout)),
            left: limits.max_linger_bytes.unwrap_or(u64::MAX),
        }
    }

    /// Counts `len` bytes that were thrown away; false if the connection is to be closed now.
    pub(crate) fn discard(&mut self, len: usize, now: Duration) -> bool {
        self.left = self.left.saturating_sub(len as u64);
        self.left > 0 && self.until.is_none_or(|until| now < until)
    }

    /// When to close at the latest.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lingering_ends_by_time_or_by_bytes() {
        let limits = Limits { max_linger_bytes: Some(10), ..Limits::default() };
        let at = Duration::from_secs;
        let mut linger = Linger::new(at(5), &limits);
        assert_eq!(linger.deadline(), Some(at(7)));
        assert!(linger.discard(9, at(6)));
        assert!(!linger.discard(1, at(6)));
        assert!(!Linger::new(at(5), &limits).discard(0, at(7)));
        let none = Limits { max_linger_bytes: Some(0), linger_timeout: None, ..limits };
        assert!(!Linger::new(at(5), &none).discard(0, at(5)), "zero means zero");
        assert_eq!(Linger::new(at(5), &none).deadline(), None);
    }
}
