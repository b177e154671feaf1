//! What a wait reports of one fd. Where the kernel's own record says it in one piece it is kept as it is: a wait then
//! copies nothing, and what is not looked at is not translated.

use std::fmt;

use crate::interest::Report;

/// One fd's readiness, with the tag that `change` gave it last; may be out of date, which the reactor checks.
#[derive(Clone, Copy)]
#[cfg_attr(target_os = "linux", repr(transparent))]
pub(crate) struct Reported(Record);

#[cfg(target_os = "linux")]
type Record = libc::epoll_event;

#[cfg(target_os = "linux")]
mod bits {
    use super::Report;

    /// The same of epoll and poll(2); epoll has no bit for `INVALID`, which takes that of poll.
    const PAIRS: [(Report, u32); 6] = [
        (Report::READ, libc::EPOLLIN as u32),
        (Report::WRITE, libc::EPOLLOUT as u32),
        (Report::CLOSED, libc::EPOLLRDHUP as u32),
        (Report::HUP, libc::EPOLLHUP as u32),
        (Report::ERR, libc::EPOLLERR as u32),
        (Report::INVALID, libc::POLLNVAL as u32),
    ];

    pub(super) fn of(report: Report) -> u32 {
        PAIRS.iter().filter(|(bit, _)| report.contains(*bit)).fold(0, |all, (_, mask)| all | mask)
    }

    #[inline]
    pub(super) fn report(events: u32) -> Report {
        // Nearly always.
        if events == libc::EPOLLIN as u32 { Report::READ } else { any(events) }
    }

    #[inline(never)]
    fn any(events: u32) -> Report {
        PAIRS.iter().filter(|(_, mask)| events & mask != 0).map(|(bit, _)| *bit).collect()
    }
}

#[cfg(target_os = "linux")]
impl Reported {
    #[inline]
    pub(crate) fn new(tag: u64, report: Report) -> Reported {
        Reported(Record { events: bits::of(report), u64: tag })
    }

    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.0.u64
    }

    #[inline]
    pub(crate) fn report(&self) -> Report {
        bits::report(self.0.events)
    }

    /// Whether it is READ and nothing else, as nearly always.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.0.events == libc::EPOLLIN as u32
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Clone, Copy)]
struct Record {
    tag: u64,
    report: Report,
}

#[cfg(not(target_os = "linux"))]
impl Reported {
    #[inline]
    pub(crate) fn new(tag: u64, report: Report) -> Reported {
        Reported(Record { tag, report })
    }

    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.0.tag
    }

    #[inline]
    pub(crate) fn report(&self) -> Report {
        self.0.report
    }

    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.0.report == Report::READ
    }
}

impl PartialEq for Reported {
    fn eq(&self, other: &Reported) -> bool {
        (self.tag(), self.report()) == (other.tag(), other.report())
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reported").field("tag", &self.tag()).field("report", &self.report()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_it_was_made_of() {
        for bits in 0..=u8::MAX {
            let report = Report::from_bits_truncate(bits);
            let reported = Reported::new(u64::from(bits) << 40 | 7, report);
            assert_eq!((reported.tag(), reported.report()), (u64::from(bits) << 40 | 7, report));
            assert_eq!(reported.is_read(), report == Report::READ);
        }
    }
}
