//! What an interest is in filters, and what kevents say: kqueue(2) without a kernel.
//!
//! Numbers and fields are those of the manual pages of FreeBSD, NetBSD, OpenBSD, DragonFly and macOS, which agree on
//! all that is used here. Nothing is remembered between two calls but memory.

use std::os::fd::RawFd;

use crate::interest::{Interest, Report};
use crate::sys::Reported;

pub(in crate::sys) const EV_ADD: u32 = 0x0001;
pub(in crate::sys) const EV_DELETE: u32 = 0x0002;
/// Edge-triggered: what was told is not told again until it happens again.
pub(in crate::sys) const EV_CLEAR: u32 = 0x0020;
/// A change is answered by a kevent with `EV_ERROR` in any case, 0 being "done".
pub(in crate::sys) const EV_RECEIPT: u32 = 0x0040;
/// `data` is an errno.
pub(in crate::sys) const EV_ERROR: u32 = 0x4000;
/// The direction of this filter has ended; of a socket, `fflags` is the error that ended it or 0.
pub(in crate::sys) const EV_EOF: u32 = 0x8000;

/// What a filter looks at. Systems give them different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sys) enum Filter {
    Read,
    Write,
}

/// `struct kevent`, as a change to make, as the answer to one, or as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sys) struct Kevent {
    /// `ident`.
    pub(in crate::sys) fd: RawFd,
    pub(in crate::sys) filter: Filter,
    pub(in crate::sys) flags: u32,
    pub(in crate::sys) fflags: u32,
    pub(in crate::sys) data: i64,
    /// `udata`.
    pub(in crate::sys) tag: u64,
}

/// Changes that one `changes` can give.
pub(super) const MOST_CHANGES: usize = 4;

/// What to tell the kernel so that it watches `new`, in this order.
///
/// A filter that is watched already is deleted and added again instead of being changed. The deletion tells by
/// `ENOENT` that the fd was closed, and maybe its number reused, behind our back, where an addition alone would succeed
/// on the new file; and whether a filter is edge-triggered is not among what every kernel changes in place. A filter
/// that nobody wants is deleted also if we know of none: whatever was there before, afterwards it is `new`.
pub(super) fn changes(fd: RawFd, tag: u64, old: Interest, new: Interest) -> impl Iterator<Item = Kevent> {
    let each = [Filter::Read, Filter::Write].into_iter().flat_map(move |filter| {
        let mode = mode(new, filter);
        let delete = (mode.is_none() || watches(old, filter)).then_some(EV_DELETE);
        [delete, mode.map(|mode| EV_ADD | mode)].into_iter().flatten().map(move |flags| (filter, flags))
    });
    each.map(move |(filter, flags)| Kevent { fd, filter, flags: flags | EV_RECEIPT, fflags: 0, data: 0, tag })
}

/// The flags with which an interest wants a filter, or `None`.
///
/// `CLOSED` is the `EV_EOF` of the read filter, which comes whether or not the data before it has been read. Where
/// nobody reads, that data must not be reported again and again, so then the filter is edge-triggered.
fn mode(interest: Interest, filter: Filter) -> Option<u32> {
    let (wanted, level) = match filter {
        Filter::Read => (Interest::READ | Interest::CLOSED, Interest::READ),
        Filter::Write => (Interest::WRITE, Interest::WRITE),
    };
    let is_edge = interest.contains(Interest::EDGE) || !interest.intersects(level);
    interest.intersects(wanted).then_some(if is_edge { EV_CLEAR } else { 0 })
}

fn watches(interest: Interest, filter: Filter) -> bool {
    mode(interest, filter).is_some()
}

/// What the answers to the changes from `old` to `new` amount to: each change with its receipt.
///
/// `None` if the kernel watches `new` now. Else the errno for the caller; the fd is then watched in part, and the
/// caller has to have it forgotten. Where something was watched before, any failure is told as `ENOENT` or `EBADF`:
/// those say that it is watched no longer.
pub(super) fn failure(
    old: Interest,
    new: Interest,
    answers: impl Iterator<Item = (Kevent, Kevent)>,
) -> Option<i32> {
    for (change, receipt) in answers {
        let errno = match receipt.flags & EV_ERROR {
            0 => continue,
            _ => i32::try_from(receipt.data).unwrap_or(libc::EINVAL),
        };
        let is_deletion = change.flags & EV_DELETE != 0;
        match errno {
            0 => {}
            libc::ENOENT if is_deletion && (new.is_empty() || !watches(old, change.filter)) => {}
            // Closed: the kernel has forgotten it by itself.
            libc::EBADF if new.is_empty() => {}
            libc::EBADF => return Some(errno),
            _ if old.is_empty() || new.is_empty() => return Some(errno),
            _ => return Some(libc::ENOENT),
        }
    }
    None
}

/// Makes one report of an fd's two kevents. Holds memory only: 8 bytes for each number up to the highest reported.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// Where in the output each fd was put last, by fd number: kernels hand out the lowest free one, so it is dense.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: u32,
    /// The kevent that was put there had `EV_EOF`.
    ended: bool,
}

impl Merge {
    /// Appends what a batch of kevents says, one report for each fd and tag.
    pub(super) fn append(&mut self, kevents: impl Iterator<Item = Kevent>, out: &mut Vec<Reported>) {
        let start = out.len();
        for kevent in kevents {
            let (Ok(fd), report) = (usize::try_from(kevent.fd), report(&kevent)) else { continue };
            if report.is_empty() {
                continue;
            }
            if self.places.len() <= fd {
                self.places.resize(fd + 1, Place::default());
            }
            let place = &mut self.places[fd];
            let ended = kevent.flags & EV_EOF != 0;
            let tag = kevent.tag;
            // A place from an earlier batch is before the start, behind the end, or somebody else's.
            match out.get_mut(start..).and_then(|batch| batch.get_mut(place.at as usize)) {
                Some(other) if other.tag() == tag => {
                    let mut both = other.report() | report;
                    // Each direction alone may have been shut by ourselves; both are a hang-up.
                    both.set(Report::HUP, ended && place.ended);
                    *other = Reported::new(tag, both);
                }
                _ => {
                    // A batch has a few thousand, so it fits.
                    *place = Place { at: (out.len() - start) as u32, ended };
                    out.push(Reported::new(tag, report));
                }
            }
        }
    }
}

/// What one kevent says.
///
/// `EV_EOF` of the write filter alone means no more than that writing fails from now on, and it may be our own
/// shutdown(2). To tell it as a hang-up would have readers read where nothing can be read. `fflags` is the socket's
/// error only together with `EV_EOF`.
fn report(kevent: &Kevent) -> Report {
    if kevent.flags & EV_ERROR != 0 {
        return if kevent.data == 0 { Report::empty() } else { Report::ERR };
    }
    let ended = kevent.flags & EV_EOF != 0;
    let mut report = match kevent.filter {
        Filter::Read => Report::READ,
        Filter::Write => Report::WRITE,
    };
    report.set(Report::CLOSED, ended && kevent.filter == Filter::Read);
    report.set(Report::ERR, ended && kevent.fflags != 0);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Interest = Interest::empty();
    const R: Interest = Interest::READ;
    const W: Interest = Interest::WRITE;
    const C: Interest = Interest::CLOSED;
    const E: Interest = Interest::EDGE;

    /// Every interest there is.
    fn interests() -> impl Iterator<Item = Interest> + Clone {
        (0..16).map(|bits: u8| {
            [R, W, C, E].iter().enumerate().filter(|(i, _)| bits >> i & 1 != 0).map(|(_, &bit)| bit).collect()
        })
    }

    /// Changes as text: `-r` deletes the read filter, `+w` adds the write filter, `+r!` edge-triggered.
    fn text(changes: impl Iterator<Item = Kevent>) -> String {
        let words = changes.map(|change| {
            assert_eq!((change.fd, change.tag, change.fflags, change.data), (5, 77, 0, 0));
            let filter = if change.filter == Filter::Read { "r" } else { "w" };
            match change.flags {
                0x42 => format!("-{filter}"),
                0x41 => format!("+{filter}"),
                0x61 => format!("+{filter}!"),
                other => panic!("{other:#x}"),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_added_is_what_is_wanted() {
        let table = [
            (NONE, "-r -w"),
            (R, "+r -w"),
            (W, "-r +w"),
            (R | W, "+r +w"),
            (C, "+r! -w"),
            (R | C, "+r -w"),
            (W | C, "+r! +w"),
            (R | W | C, "+r +w"),
            (E, "-r -w"),
            (R | E, "+r! -w"),
            (W | E, "-r +w!"),
            (R | W | E, "+r! +w!"),
            (C | E, "+r! -w"),
            (R | C | E, "+r! -w"),
            (W | C | E, "+r! +w!"),
            (R | W | C | E, "+r! +w!"),
        ];
        for (new, expected) in table {
            assert_eq!(text(changes(5, 77, NONE, new)), expected, "{new:?}");
        }
        assert_eq!(table.len(), interests().count());
    }

    #[test]
    fn what_was_watched_is_deleted_first_in_every_transition() {
        // By what was watched (columns: nothing, read, write, both) and what is wanted.
        let table = [
            ("", ["-r -w"; 4]),
            ("r", ["+r -w", "-r +r -w", "+r -w", "-r +r -w"]),
            ("r!", ["+r! -w", "-r +r! -w", "+r! -w", "-r +r! -w"]),
            ("w", ["-r +w", "-r +w", "-r -w +w", "-r -w +w"]),
            ("w!", ["-r +w!", "-r +w!", "-r -w +w!", "-r -w +w!"]),
            ("rw", ["+r +w", "-r +r +w", "+r -w +w", "-r +r -w +w"]),
            ("r!w", ["+r! +w", "-r +r! +w", "+r! -w +w", "-r +r! -w +w"]),
            ("r!w!", ["+r! +w!", "-r +r! +w!", "+r! -w +w!", "-r +r! -w +w!"]),
        ];
        let name = |interest: Interest| {
            let read = match (interest.contains(R), interest.contains(C), interest.contains(E)) {
                (false, false, _) => "",
                (true, _, false) => "r",
                _ => "r!",
            };
            let write = match (interest.contains(W), interest.contains(E)) {
                (false, _) => "",
                (true, false) => "w",
                (true, true) => "w!",
            };
            format!("{read}{write}")
        };
        let mut seen = std::collections::BTreeSet::new();
        for old in interests() {
            let column = usize::from(old.intersects(R | C)) + 2 * usize::from(old.contains(W));
            for new in interests() {
                let row = name(new);
                let (_, columns) = table.iter().find(|(wanted, _)| *wanted == row).unwrap();
                assert_eq!(text(changes(5, 77, old, new)), columns[column], "{old:?} to {new:?}");
                assert!(changes(5, 77, old, new).count() <= MOST_CHANGES);
                seen.insert((row, column));
            }
        }
        assert_eq!(seen.len(), table.len() * 4, "every cell has been looked at");
    }

    /// The failure of a transition whose changes are answered by these errnos.
    fn answered(old: Interest, new: Interest, errnos: &[i32]) -> Option<i32> {
        let sent: Vec<_> = changes(5, 77, old, new).collect();
        assert_eq!(sent.len(), errnos.len(), "{}", text(sent.into_iter()));
        let receipts = sent.iter().zip(errnos).map(|(&change, &errno)| {
            let flags = change.flags | EV_ERROR;
            (change, Kevent { flags, data: errno.into(), ..change })
        });
        failure(old, new, receipts)
    }

    #[test]
    fn each_change_is_judged_by_its_own_receipt() {
        const OK: i32 = 0;
        use libc::{EBADF, EINVAL, ENOENT, ENOMEM, EPIPE};
        let table: &[(Interest, Interest, &[i32], Option<i32>)] = &[
            // Added.
            (NONE, R, &[OK, ENOENT], None),
            (NONE, R | W, &[OK, OK], None),
            // What was left behind is swept away.
            (NONE, R, &[OK, OK], None),
            (NONE, W, &[OK, OK], None),
            // Refused.
            (NONE, R, &[EBADF, EBADF], Some(EBADF)),
            (NONE, W, &[EBADF, EBADF], Some(EBADF)),
            (NONE, R, &[EINVAL, ENOENT], Some(EINVAL)),
            (NONE, R | W, &[OK, EPIPE], Some(EPIPE)),
            (NONE, R | W, &[ENOMEM, OK], Some(ENOMEM)),
            // Nothing of an interest without a filter is added, but the number must be open.
            (NONE, E, &[ENOENT, ENOENT], None),
            (NONE, E, &[EBADF, EBADF], Some(EBADF)),
            // An addition has nothing to find.
            (NONE, R, &[ENOENT, ENOENT], Some(ENOENT)),
            // Asserted again.
            (R, R, &[OK, OK, ENOENT], None),
            (R | W, R | W, &[OK, OK, OK, OK], None),
            (R, R, &[EBADF, EBADF, EBADF], Some(EBADF)),
            (R, R, &[ENOENT, OK, ENOENT], Some(ENOENT)),
            (R | W, R | W, &[OK, OK, ENOENT, OK], Some(ENOENT)),
            // Changed.
            (R, R | W, &[OK, OK, OK], None),
            (R, R | W, &[ENOENT, OK, OK], Some(ENOENT)),
            (R, W, &[ENOENT, OK], Some(ENOENT)),
            (R, W, &[OK, OK], None),
            (R | W, R, &[OK, OK, ENOENT], Some(ENOENT)),
            (R | W, R, &[OK, OK, OK], None),
            // Whatever refuses the rest: what was watched is lost.
            (R, R | W, &[OK, OK, EPIPE], Some(ENOENT)),
            (R, R | W, &[OK, ENOMEM, OK], Some(ENOENT)),
            // Removed, or gone already.
            (R, NONE, &[OK, ENOENT], None),
            (R | W, NONE, &[OK, OK], None),
            (R | W, NONE, &[ENOENT, ENOENT], None),
            (R, NONE, &[EBADF, EBADF], None),
            (R, NONE, &[ENOMEM, ENOENT], Some(ENOMEM)),
        ];
        for &(old, new, errnos, expected) in table {
            assert_eq!(answered(old, new, errnos), expected, "{old:?} to {new:?}: {errnos:?}");
        }
    }

    #[test]
    fn an_answer_without_an_error_is_none() {
        let change = changes(5, 77, NONE, R).next().unwrap();
        let odd = Kevent { data: 9, ..change };
        assert_eq!(failure(NONE, R, [(change, odd)].into_iter()), None);
        let huge = Kevent { flags: EV_ERROR, data: i64::MAX, ..change };
        assert_eq!(failure(NONE, R, [(change, huge)].into_iter()), Some(libc::EINVAL));
    }

    fn kevent(fd: RawFd, filter: Filter, flags: u32, fflags: u32) -> Kevent {
        Kevent { fd, filter, flags, fflags, data: 1, tag: fd as u64 + 100 }
    }

    fn merged(batch: &[Kevent]) -> Vec<(u64, Report)> {
        let mut out = Vec::new();
        Merge::default().append(batch.iter().copied(), &mut out);
        out.into_iter().map(|reported| (reported.tag(), reported.report())).collect()
    }

    #[test]
    fn every_kevent_has_its_report() {
        use Filter::{Read, Write};
        let refused = libc::ECONNREFUSED as u32;
        let table = [
            (Read, 0, 0, Report::READ),
            (Read, EV_CLEAR, 0, Report::READ),
            (Read, 0, refused, Report::READ),
            (Read, EV_EOF, 0, Report::READ | Report::CLOSED),
            (Read, EV_EOF | EV_CLEAR | EV_ADD, 0, Report::READ | Report::CLOSED),
            (Read, EV_EOF, refused, Report::READ | Report::CLOSED | Report::ERR),
            (Read, EV_ERROR, 0, Report::ERR),
            (Read, EV_ERROR | EV_EOF, refused, Report::ERR),
            (Write, 0, 0, Report::WRITE),
            (Write, EV_CLEAR, 0, Report::WRITE),
            (Write, 0, refused, Report::WRITE),
            (Write, EV_EOF, 0, Report::WRITE),
            (Write, EV_EOF, refused, Report::WRITE | Report::ERR),
            (Write, EV_ERROR, 0, Report::ERR),
            (Write, EV_ERROR | EV_EOF, refused, Report::ERR),
        ];
        for (filter, flags, fflags, expected) in table {
            let kevent = kevent(3, filter, flags, fflags);
            assert_eq!(merged(&[kevent]), [(103, expected)], "{kevent:?}");
        }
    }

    #[test]
    fn nothing_is_reported_of_a_receipt_or_of_no_fd() {
        let receipt = Kevent { data: 0, ..kevent(3, Filter::Read, EV_ERROR, 0) };
        assert_eq!(merged(&[receipt]), []);
        let nowhere = Kevent { fd: -1, ..kevent(3, Filter::Read, 0, 0) };
        assert_eq!(merged(&[nowhere]), []);
    }

    #[test]
    fn both_kevents_of_an_fd_make_one_report_in_either_order() {
        for (read, write, extra) in [
            (0, 0, Report::empty()),
            (EV_EOF, 0, Report::CLOSED),
            (0, EV_EOF, Report::empty()),
            (EV_EOF, EV_EOF, Report::CLOSED | Report::HUP),
        ] {
            for (read_error, write_error) in [(0, 0), (54, 0), (0, 54), (54, 54)] {
                let error = read & EV_EOF != 0 && read_error != 0 || write & EV_EOF != 0 && write_error != 0;
                let mut expected = Report::READ | Report::WRITE | extra;
                expected.set(Report::ERR, error);
                let mut batch = [
                    kevent(3, Filter::Read, read, read_error),
                    kevent(4, Filter::Write, 0, 0),
                    kevent(3, Filter::Write, write, write_error),
                    kevent(9, Filter::Read, EV_EOF, 0),
                ];
                let other = (109, Report::READ | Report::CLOSED);
                assert_eq!(merged(&batch), [(103, expected), (104, Report::WRITE), other], "{batch:?}");
                batch.swap(0, 2);
                assert_eq!(merged(&batch), [(103, expected), (104, Report::WRITE), other], "{batch:?}");
            }
        }
    }

    #[test]
    fn kevents_of_one_fd_under_two_tags_stay_apart() {
        let old = kevent(3, Filter::Read, EV_EOF, 0);
        let new = Kevent { tag: 200, ..kevent(3, Filter::Write, EV_EOF, 0) };
        assert_eq!(merged(&[old, new]), [(103, Report::READ | Report::CLOSED), (200, Report::WRITE)]);
    }

    #[test]
    fn a_batch_is_not_merged_into_an_earlier_one() {
        let mut merge = Merge::default();
        let mut out = vec![Reported::new(103, Report::WRITE)];
        for batch in 1..4 {
            merge.append(
                [kevent(7, Filter::Read, 0, 0), kevent(3, Filter::Read, EV_EOF, 0)].into_iter(),
                &mut out,
            );
            assert_eq!(out.len(), 1 + 2 * batch);
            // Alone in its batch, at the place where the other was.
            merge.append([kevent(3, Filter::Write, EV_EOF, 0)].into_iter(), &mut out);
            assert_eq!(out.pop(), Some(Reported::new(103, Report::WRITE)));
        }
        assert_eq!(out[0].report(), Report::WRITE);
        assert!(out[1..].iter().all(|reported| !reported.report().intersects(Report::WRITE | Report::HUP)));
    }
}
