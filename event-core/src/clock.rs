//! A point on the loop's own monotonic clock, small enough to store by the thousand.

use std::time::Duration;

/// Nanoseconds since the clock's origin. The origin is the backend's affair; only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(u64);

impl Time {
    /// Later than every deadline: "no deadline".
    pub(crate) const NEVER: Time = Time(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time `after` later; a sum past the clock's range (584 years) is `NEVER`.
    #[inline]
    pub(crate) fn after(self, after: Duration) -> Time {
        self.after_nanos(nanos(after))
    }

    #[inline]
    pub(crate) fn after_nanos(self, after: u64) -> Time {
        Time(self.0.saturating_add(after))
    }

    /// How long from `earlier` to this; zero if that is in the past.
    pub(crate) fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds; what is past the clock's range is all of it.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_differences_do_not_go_negative() {
        assert_eq!(Time::from_nanos(5).after(Duration::MAX), Time::NEVER);
        assert_eq!(Time::NEVER.after(Duration::from_secs(1)), Time::NEVER);
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Duration::ZERO);
        assert_eq!(Time::from_nanos(9).since(Time::from_nanos(5)), Duration::from_nanos(4));
    }
}
