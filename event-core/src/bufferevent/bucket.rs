//! Token buckets: how much may move, refilled tick by tick.

use std::time::Duration;

use super::buffers::Side;
use crate::clock::{Time, nanos};
use crate::error::Error;

/// How fast bytes may move: libevent's `ev_token_bucket_cfg`.
///
/// A bucket gets its rate at every tick and holds at most its burst; what moves is taken out of it, and while it is
/// empty nothing moves. A new one holds one rate. Copied where it is set: there is nothing to free.
///
/// ```
/// use event_core::{BufferEvent, EventBase, RateLimit};
/// use std::time::Duration;
///
/// let base = EventBase::new()?;
/// let (bev, _other) = BufferEvent::pair(&base)?;
/// // 100 KiB/s in, at most 200 KiB at once after a pause; writing is free.
/// bev.set_rate_limit(Some(RateLimit::new().read(100 << 10, 200 << 10)))?;
/// // The same rate in smaller steps.
/// let smooth = RateLimit::new().read(10 << 10, 200 << 10).tick(Duration::from_millis(100));
/// bev.set_rate_limit(Some(smooth))?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ev_token_bucket_cfg")]
pub struct RateLimit {
    rates: [Option<Rate>; 2],
    tick: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// Bytes a tick.
    rate: usize,
    burst: usize,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit::new()
    }
}

impl RateLimit {
    /// The highest rate and burst that can be set.
    #[doc(alias = "EV_RATE_LIMIT_MAX")]
    pub const MAX: usize = isize::MAX as usize;

    /// No limit either way, with a tick of a second.
    #[must_use]
    #[doc(alias = "ev_token_bucket_cfg_new")]
    pub fn new() -> RateLimit {
        RateLimit { rates: [None; 2], tick: Duration::from_secs(1) }
    }

    /// Limits reading to `rate` bytes a tick, and to `burst` bytes at once, which is at least `rate`. A rate of 0 stands
    /// still once the bucket is empty, until the limit is changed.
    #[must_use]
    pub fn read(self, rate: usize, burst: usize) -> RateLimit {
        RateLimit { rates: [Some(Rate { rate, burst }), self.rates[1]], ..self }
    }

    /// Limits writing in the same way.
    #[must_use]
    pub fn write(self, rate: usize, burst: usize) -> RateLimit {
        RateLimit { rates: [self.rates[0], Some(Rate { rate, burst })], ..self }
    }

    /// Sets how often the buckets are refilled, a millisecond at least.
    #[must_use]
    pub fn tick(self, tick: Duration) -> RateLimit {
        RateLimit { tick, ..self }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.tick < Duration::from_millis(1) || self.tick > Duration::from_nanos(u64::MAX / 2) {
            return Err(Error::Invalid("a tick is at least a millisecond and at most 292 years"));
        }
        for Rate { rate, burst } in self.rates.into_iter().flatten() {
            if burst < rate {
                return Err(Error::Invalid("a burst below the rate"));
            }
            if burst > RateLimit::MAX {
                return Err(Error::Invalid("a burst above RateLimit::MAX"));
            }
        }
        Ok(())
    }

    fn of(&self, side: Side) -> Option<Rate> {
        self.rates[side as usize]
    }
}

/// Two buckets, one a direction.
pub(super) struct Buckets {
    pub(super) limit: RateLimit,
    levels: [i64; 2],
    /// The tick of the last refill.
    last: Time,
}

/// A count of bytes as what a bucket counts in; never negative.
fn tokens(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Buckets {
    pub(super) fn new(limit: RateLimit, now: Time) -> Buckets {
        let level = |side| limit.of(side).map_or(0, |of| tokens(of.rate));
        Buckets { limit, levels: [level(Side::Input), level(Side::Output)], last: now }
    }

    /// Changes the limit. What is in a bucket stays there, as far as the new one holds it; a direction that had none
    /// starts as a new one does.
    pub(super) fn set_limit(&mut self, limit: RateLimit, now: Time) {
        self.refill(now);
        let fresh = Buckets::new(limit, now);
        for side in [Side::Input, Side::Output] {
            let level = &mut self.levels[side as usize];
            match (self.limit.of(side), limit.of(side)) {
                (Some(_), Some(of)) => *level = (*level).min(tokens(of.burst)),
                _ => *level = fresh.levels[side as usize],
            }
        }
        if limit.tick != self.limit.tick {
            self.last = now;
        }
        self.limit = limit;
    }

    /// Adds what the ticks up to now bring; says whether there was one.
    pub(super) fn refill(&mut self, now: Time) -> bool {
        let tick = nanos(self.limit.tick);
        let passed = now.as_nanos().saturating_sub(self.last.as_nanos());
        if passed < tick {
            return false;
        }
        let ticks = passed / tick;
        self.last = self.last.after_nanos(ticks * tick);
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        for side in [Side::Input, Side::Output] {
            if let Some(of) = self.limit.of(side) {
                let level = &mut self.levels[side as usize];
                *level = level.saturating_add(ticks.saturating_mul(tokens(of.rate))).min(tokens(of.burst));
            }
        }
        true
    }

    /// What is in a bucket, less than nothing if more was taken than it held; `None` without a limit.
    pub(super) fn level(&self, side: Side) -> Option<i64> {
        self.limit.of(side).map(|_| self.levels[side as usize])
    }

    /// Bytes a tick; `None` without a limit.
    pub(super) fn rate(&self, side: Side) -> Option<usize> {
        self.limit.of(side).map(|of| of.rate)
    }

    pub(super) fn is_empty(&self, side: Side) -> bool {
        self.level(side).is_some_and(|level| level <= 0)
    }

    /// Takes so much out, or puts it back if it is negative: no more than the burst.
    pub(super) fn take(&mut self, side: Side, bytes: i64) {
        if let Some(of) = self.limit.of(side) {
            let level = &mut self.levels[side as usize];
            *level = level.saturating_sub(bytes).min(tokens(of.burst));
        }
    }

    /// The next tick at which a bucket will hold something.
    pub(super) fn filled_at(&self, side: Side) -> Time {
        let Some(of) = self.limit.of(side) else { return Time::NEVER };
        let missing = 1_i64.saturating_sub(self.levels[side as usize]);
        let ticks = match missing {
            ..=0 => 1,
            _ if of.rate == 0 => return Time::NEVER,
            _ => missing.unsigned_abs().div_ceil(of.rate as u64),
        };
        self.last.after_nanos(nanos(self.limit.tick).saturating_mul(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_bucket_gets_its_rate_at_every_tick_and_holds_its_burst() {
        let limit = RateLimit::new().read(10, 25).tick(Duration::from_millis(100));
        let mut buckets = Buckets::new(limit, at(0));
        assert_eq!((buckets.level(Side::Input), buckets.level(Side::Output)), (Some(10), None));
        assert!(!buckets.refill(at(99)));
        assert!(buckets.refill(at(100)));
        assert_eq!(buckets.level(Side::Input), Some(20));
        buckets.refill(at(350));
        assert_eq!(buckets.level(Side::Input), Some(25));
        buckets.take(Side::Input, 57);
        assert_eq!((buckets.level(Side::Input), buckets.is_empty(Side::Input)), (Some(-32), true));
        // The last tick was at 300: 4 of them bring 8 above nothing.
        assert_eq!(buckets.filled_at(Side::Input), at(700));
        assert_eq!(buckets.filled_at(Side::Output), Time::NEVER);
        buckets.refill(at(699));
        assert!(buckets.is_empty(Side::Input));
        buckets.refill(at(700));
        assert_eq!(buckets.level(Side::Input), Some(8));
        buckets.take(Side::Input, -1000);
        assert_eq!(buckets.level(Side::Input), Some(25));
    }

    #[test]
    fn extremes_neither_overflow_nor_divide_by_zero() {
        let most = RateLimit::new().read(RateLimit::MAX, RateLimit::MAX).write(0, 5).tick(Duration::MAX);
        assert!(most.check().is_err());
        let most = most.tick(Duration::from_millis(1));
        most.check().unwrap();
        let mut buckets = Buckets::new(most, at(0));
        buckets.refill(Time::NEVER);
        assert_eq!(buckets.level(Side::Input), Some(i64::MAX));
        buckets.take(Side::Input, i64::MAX);
        buckets.take(Side::Input, i64::MAX);
        buckets.take(Side::Input, i64::MAX);
        assert_eq!(buckets.level(Side::Input), Some(-i64::MAX).map(|level| level.saturating_mul(2)));
        assert_eq!(buckets.filled_at(Side::Output), Time::NEVER);
        buckets.take(Side::Output, i64::MIN);
        assert_eq!(buckets.level(Side::Output), Some(5));
        for bad in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX)] {
            assert!(RateLimit::new().tick(bad).check().is_err());
        }
        assert!(RateLimit::new().read(2, 1).check().is_err());
        assert!(RateLimit::new().write(1, usize::MAX).check().is_err());
    }

    #[test]
    fn changing_the_limit_keeps_what_the_new_bucket_holds() {
        let mut buckets = Buckets::new(RateLimit::new().read(100, 100), at(0));
        buckets.set_limit(RateLimit::new().read(10, 40).write(7, 7), at(500));
        assert_eq!((buckets.level(Side::Input), buckets.level(Side::Output)), (Some(40), Some(7)));
        // The same ticks.
        assert!(buckets.refill(at(1000)));
        buckets.take(Side::Input, 90);
        buckets.set_limit(RateLimit::new().read(50, 50).tick(Duration::from_millis(10)), at(1500));
        assert_eq!((buckets.level(Side::Input), buckets.filled_at(Side::Input)), (Some(-50), at(1520)));
    }
}
