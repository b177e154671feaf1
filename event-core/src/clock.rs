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
    pub(crate) fn after(self, after: Duration) -> Time {
        Time(u64::try_from(after.as_nanos()).map_or(u64::MAX, |n| self.0.saturating_add(n)))
    }

    /// How long from `earlier` to this; zero if that is in the past.
    pub(crate) fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
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
