//! The Date field, formatted once a second.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Length of an IMF-fixdate (RFC 9110 section 5.6.7).
const DATE_LEN: usize = 29;

/// `Date: ` with an IMF-fixdate and CRLF.
pub(crate) type DateLine = [u8; DATE_LEN + 8];

/// The last formatted date and the loop time up to which it holds.
#[derive(Debug)]
pub(crate) struct DateCache {
    line: DateLine,
    until: Duration,
}

impl DateCache {
    pub(crate) fn new() -> DateCache {
        DateCache { line: date_line(UNIX_EPOCH), until: Duration::ZERO }
    }

    /// The loop time up to which the last line holds.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }

    /// The field line at loop time `now`; `wall` is asked only when the second has passed, so the wall clock costs nothing
    /// per request, and a clock that was set is noticed within a second.
    pub(crate) fn at(&mut self, now: Duration, wall: impl FnOnce() -> SystemTime) -> &DateLine {
        if now >= self.until {
            let wall = wall();
            self.line = date_line(wall);
            let passed = wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            self.until = now + Duration::from_nanos(1_000_000_000 - u64::from(passed));
        }
        &self.line
    }
}

fn date_line(time: SystemTime) -> DateLine {
    let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    line[6..6 + DATE_LEN].copy_from_slice(&format(time));
    line
}

/// `time` as IMF-fixdate; a time outside 1970 to 9999 becomes the nearest of these.
pub(crate) fn format(time: SystemTime) -> [u8; DATE_LEN] {
    /// 31 December 9999, 23:59:59: the format has four digits.
    const LAST_SECOND: u64 = 253_402_300_799;
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST_SECOND);
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds));
    let mut text = [b' '; DATE_LEN];
    // A date is exactly that long, so writing it into a slice of that length cannot fail.
    let _ = write!(&mut text[..], "{date}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seconds: u64) -> String {
        String::from_utf8(format(UNIX_EPOCH + Duration::from_secs(seconds)).to_vec()).unwrap()
    }

    #[test]
    fn dates_have_the_fixed_format() {
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn a_clock_that_is_far_off_does_not_panic() {
        assert_eq!(text(u64::from(u32::MAX) * 1000), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(1)), format(UNIX_EPOCH));
    }

    #[test]
    fn the_wall_clock_is_read_once_a_second_and_at_its_edge() {
        let mut cache = DateCache::new();
        let start = UNIX_EPOCH + Duration::from_millis(784_111_777_900);
        assert_eq!(cache.at(Duration::ZERO, || UNIX_EPOCH), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        let at = |ms: u64| Duration::from_millis(5_000 + ms);
        assert_eq!(&cache.at(at(0), || start)[23..31], b"08:49:37");
        assert_eq!(&cache.at(at(99), || unreachable!())[23..31], b"08:49:37");
        assert_eq!(&cache.at(at(100), || start + Duration::from_millis(100))[23..31], b"08:49:38");
        assert_eq!(&cache.at(at(1099), || unreachable!())[23..31], b"08:49:38");
    }
}
